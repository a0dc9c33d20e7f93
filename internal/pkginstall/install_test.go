package pkginstall

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
)

func TestParse(t *testing.T) {
	for _, row := range []struct{ command, spec, name, bin, args string }{
		{"npx -y weather --metric", "weather", "weather", "", "--metric"},
		{"npx @scope/weather@1.2.3 -y", "@scope/weather@1.2.3", "@scope/weather", "", "-y"},
		{"/usr/bin/npx --yes weather@^1.0.0", "weather@^1.0.0", "weather", "", ""},
		{"npx -p weather@next forecast a", "weather@next", "weather", "forecast", "a"},
		{"npx --package=@a/b -- forecast -- a", "@a/b", "@a/b", "forecast", "-- a"},
		{"npm exec -y weather -- --metric", "weather", "weather", "", "--metric"},
		{"npm x -- weather --metric", "weather", "weather", "", "--metric"},
	} {
		w, ok, err := Parse(strings.Fields(row.command))
		if err != nil || !ok || w.Spec != row.spec || w.Name != row.name || w.Bin != row.bin ||
			strings.Join(w.Args, " ") != row.args {
			t.Errorf("%s: %+v %v %v", row.command, w, ok, err)
		}
	}
	for _, other := range []string{
		"", "node x.js", "npm start", "/opt/npxx weather", "uv", "uv run server.py", "uv tool", "uv tool install weather",
		"pipx", "pipx install weather", "/opt/uvxx weather", "python3 -m weather",
	} {
		if _, ok, err := Parse(strings.Fields(other)); ok || err != nil {
			t.Errorf("%q is taken for a package", other)
		}
	}
	for _, bad := range []string{
		"npx", "npx -y", "npx -c weather", "npx --registry=http://x weather", "npx https://x/y.tgz", "npx git+ssh://x/y",
		"npx ./weather", "npx ../weather", "npx weather@npm:other", "npx weather@file:../x", "npx user/repository",
		"npx -p a -p b c", "npx weather@http://x", "npm exec --call=x weather", "npx @a/../b",
	} {
		if _, ok, err := Parse(strings.Fields(bad)); !ok || err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
}

func TestRegistry(t *testing.T) {
	for _, row := range []struct{ address, rule, as string }{
		{"https://npm.example.com/", "GET,HEAD npm.example.com:443", "https://npm.example.com:443/"},
		{"http://127.0.0.1:4873/", "GET,HEAD localhost:4873", "http://localhost:4873/"},
		{"https://npm.example.com/a/b", "GET,HEAD npm.example.com:443", "https://npm.example.com:443/a/b"},
	} {
		if rule, as, err := registry(row.address); err != nil || rule != row.rule || as != row.as {
			t.Errorf("%s: %q %q %v", row.address, rule, as, err)
		}
	}
	for _, bad := range []string{
		"", "ftp://x/", "npm.example.com", "https://me:hunter2@npm.example.com/", "https:///x",
		"https://npm.example.com/?token=hunter2",
	} {
		if _, _, err := registry(bad); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

const manifest = `{"name":"weather","version":"1.0.0","bin":"server.js"}`

// fake is a registry, npm and a sandbox in one: it writes what npm would.
type fake struct {
	jobs   []Job
	lock   string
	server string
}

func (f *fake) run(_ context.Context, j Job) error {
	f.jobs = append(f.jobs, j)
	put := func(name, text string) error {
		at := filepath.Join(j.Out, name)
		return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644))
	}
	if slices.Contains(j.Argv, "--package-lock-only") {
		return put("package-lock.json", f.lock)
	}
	return errors.Join(put("node_modules/weather/package.json", manifest), put("node_modules/weather/server.js", f.server),
		put("node_modules/weather/.hidden", "x"))
}

const goodLock = `{"lockfileVersion":3,"packages":{"":{"dependencies":{"weather":"latest"}},` +
	`"node_modules/weather":{"version":"1.0.0","integrity":"sha512-AAAA"}}}`

func accepted(t *testing.T) (*Installer, *fake, *Pin, Wanted) {
	t.Helper()
	f := &fake{lock: goodLock, server: "serve()"}
	i := &Installer{
		Dir: t.TempDir(), Run: f.run, Npm: []string{"node", "npm"},
		Config: func(context.Context, string) (string, error) { return "https://npm.example.com/", nil },
	}
	w, _, err := Parse([]string{"npx", "weather"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := i.Accept(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return i, f, p, w
}

// TestPinned: Open accepts the pinned files and no others.
func TestPinned(t *testing.T) {
	i, f, p, w := accepted(t)
	dir, argv, err := i.Open(t.Context(), p, w, "/opt/server") // the control of all that follows
	if err != nil || !slices.Equal(argv, []string{"node", "/opt/server/node_modules/weather/server.js"}) ||
		p.Version != "1.0.0" {
		t.Fatal(dir, argv, err)
	}
	for _, j := range f.jobs {
		if !slices.Contains(j.Argv, "--ignore-scripts") || !slices.Equal(j.Reach, []string{"GET,HEAD npm.example.com:443"}) {
			t.Errorf("npm was started as %q and reached %q", j.Argv, j.Reach)
		}
	}
	server := filepath.Join(dir, "node_modules/weather/server.js")
	for _, attack := range []struct {
		why       string
		do, undo  func() error
		wantError string
	}{
		{"a file is another", func() error { return os.WriteFile(server, []byte("serve();evil()"), 0o644) },
			func() error { return os.WriteFile(server, []byte("serve()"), 0o644) }, "were changed since"},
		{"a file of the same length is another", func() error { return os.WriteFile(server, []byte("evil();"), 0o644) },
			func() error { return os.WriteFile(server, []byte("serve()"), 0o644) }, "were changed since"},
		{"a file is new", func() error { return os.WriteFile(dir+"/node_modules/x.js", nil, 0o644) },
			func() error { return os.Remove(dir + "/node_modules/x.js") }, "were changed since"},
		{"a file has another name", func() error { return os.Rename(server, server+"x") },
			func() error { return os.Rename(server+"x", server) }, "were changed since"},
		{"a hidden file is gone", func() error { return os.Remove(dir + "/node_modules/weather/.hidden") },
			func() error { return os.WriteFile(dir+"/node_modules/weather/.hidden", []byte("x"), 0o644) }, "were changed since"},
		{"a link", func() error { return os.Symlink("/etc", dir+"/node_modules/etc") },
			func() error { return os.Remove(dir + "/node_modules/etc") }, "not a regular file"},
		{"an empty folder in its place", func() error { return errors.Join(os.Rename(dir, dir+"x"), os.Mkdir(dir, 0o755)) },
			func() error { return errors.Join(os.Remove(dir), os.Rename(dir+"x", dir)) }, "were changed since"},
	} {
		if err := attack.do(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := i.Open(t.Context(), p, w, "/opt/server"); !errors.Is(err, ErrPin) ||
			!strings.Contains(err.Error(), attack.wantError) {
			t.Errorf("%s: %v", attack.why, err)
		}
		if err := attack.undo(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := i.Open(t.Context(), p, w, "/opt/server"); err != nil {
			t.Fatalf("control after %s: %v", attack.why, err)
		}
	}
	other, _, _ := Parse([]string{"npx", "weather@2"})
	if _, _, err := i.Open(t.Context(), p, other, "/opt/server"); !errors.Is(err, ErrPin) {
		t.Errorf("another version in the command: %v", err)
	}
	// A machine that does not have it yet installs it, and keeps nothing that is not as accepted.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	f.server = "evil()!"
	if _, _, err := i.Open(t.Context(), p, w, "/opt/server"); !errors.Is(err, ErrPin) ||
		!strings.Contains(err.Error(), "files are others") {
		t.Errorf("other files from the registry: %v", err)
	}
	if left, _ := os.ReadDir(i.Dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	f.server = "serve()"
	if _, _, err := i.Open(t.Context(), p, w, "/opt/server"); err != nil {
		t.Errorf("control: %v", err)
	}
}

// TestAcceptIsFresh: accepting takes what the registry has, never what somebody left in the folder.
func TestAcceptIsFresh(t *testing.T) {
	i, _, p, w := accepted(t)
	if err := os.WriteFile(filepath.Join(i.folder(p), "node_modules/weather/server.js"), []byte("evil()"),
		0o644); err != nil {
		t.Fatal(err)
	}
	again, err := i.Accept(t.Context(), w)
	if err != nil || again.Files != p.Files {
		t.Fatalf("%+v %v", again, err)
	}
	if _, _, err := i.Open(t.Context(), p, w, ""); err != nil {
		t.Error(err)
	}
}

// TestLocksThatHoldNothing: a package must match its digest, also when the registry sends other content.
func TestLocksThatHoldNothing(t *testing.T) {
	i, f, _, w := accepted(t)
	for why, lock := range map[string]string{
		"no integrity":       strings.Replace(goodLock, `,"integrity":"sha512-AAAA"`, "", 1),
		"a weak digest":      strings.Replace(goodLock, "sha512", "sha1", 1),
		"an address":         strings.Replace(goodLock, `"version"`, `"resolved":"https://evil.example/x.tgz","version"`, 1),
		"a link":             strings.Replace(goodLock, `"version"`, `"link":true,"version"`, 1),
		"not the package":    strings.Replace(goodLock, "node_modules/weather", "node_modules/other", 1),
		"a name given twice": strings.Replace(goodLock, `"version"`, `"version":"9","version"`, 1),
		"no JSON":            "{",
	} {
		f.lock = lock
		if p, err := i.Accept(t.Context(), w); err == nil {
			t.Errorf("%s: accepted %+v", why, p)
		}
		v, err := strictjson.Parse([]byte(lock))
		if err != nil || why == "not the package" {
			continue
		}
		before := len(f.jobs) // the same in a waldo.lock that somebody wrote
		if _, _, err := i.Open(t.Context(), &Pin{Spec: "weather", Lock: v}, w, ""); err == nil || len(f.jobs) != before {
			t.Errorf("%s, from waldo.lock: %v after %d jobs", why, err, len(f.jobs)-before)
		}
	}
}

func TestBin(t *testing.T) {
	for _, row := range []struct{ manifest, want, file string }{
		{`{"bin":"a.js"}`, "", "a.js"}, {`{"bin":{"x":"./b.js"}}`, "", "b.js"}, {`{"bin":{"weather":"a","y":"b"}}`, "", "a"},
		{`{"bin":{"weather":"a","y":"b"}}`, "y", "b"}, {`{"bin":{"x":"a","y":"b"}}`, "", ""}, {`{}`, "", ""},
		{`{"bin":"../../x"}`, "", ""}, {`{"bin":"/bin/sh"}`, "", ""}, {`{"bin":"."}`, "", ""}, {`{"bin":[1]}`, "", ""},
		{`{"bin":{"x":"a"}}`, "y", ""},
	} {
		if file, err := bin([]byte(row.manifest), "@s/weather", row.want); file != row.file ||
			(err == nil) != (row.file != "") {
			t.Errorf("%s %s: %q %v", row.manifest, row.want, file, err)
		}
	}
}

// FuzzBin: the program of a package is never outside the package.
func FuzzBin(f *testing.F) {
	f.Add([]byte(manifest), "")
	f.Add([]byte(`{"bin":{"a":"x/../../y"}}`), "a")
	f.Fuzz(func(t *testing.T, manifest []byte, want string) {
		file, err := bin(manifest, "@s/weather", want)
		if err == nil && (!filepath.IsLocal(file) || file == ".") {
			t.Errorf("%q is outside", file)
		}
	})
}
