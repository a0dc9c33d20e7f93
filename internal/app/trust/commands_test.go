package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// project is a trusted configuration with one file, in the working folder.
func project(
	t *testing.T, file string, change func(c *contract.Config),
) (state string, cfg *contract.Config, path string) {
	t.Helper()
	state, dir := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	path = filepath.Join(dir, file)
	put(t, path, "#!/bin/sh\n")
	cfg = &contract.Config{File: filepath.Join(dir, "waldo.yaml"), Digest: "sha256:1", Programs: map[string]string{},
		Servers: map[string]contract.Server{}, Secrets: map[string]contract.Secret{}}
	change(cfg)
	return state, cfg, path
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// keep records a configuration as waldo trust does.
func keep(t *testing.T, state string, cfg *contract.Config) {
	t.Helper()
	found, err := Programs(state, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(state, map[string]Record{cfg.File: {Digest: cfg.Digest, Lock: NoLock, Programs: found}}); err != nil {
		t.Fatal(err)
	}
}

// starts returns the refusals of everything that a configuration starts outside of sandboxes.
func starts(t *testing.T, state string, cfg *contract.Config) (refused []string) {
	t.Helper()
	if cfg.Programs != nil { // as the configuration is loaded
		was, err := Read(state)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Programs = was[cfg.File].Programs; cfg.Programs == nil {
			cfg.Programs = map[string]string{}
		}
	}
	tell := func(err error) {
		if err != nil {
			refused = append(refused, err.Error())
		}
	}
	for _, s := range cfg.Servers {
		tell(Unchanged(state, cfg, s))
	}
	for _, s := range cfg.Secrets {
		tell(prepared(state, cfg, s.Spec.Command))
	}
	if len(cfg.Approval.Notify) > 0 {
		tell(prepared(state, cfg, cfg.Approval.Notify))
	}
	return refused
}

func prepared(state string, cfg *contract.Config, argv []string) error {
	_, _, err := Prepare(state, cfg, argv)
	return err
}

func server(argv ...string) func(c *contract.Config) {
	return func(c *contract.Config) {
		at := contract.Position{File: c.File, Line: 3}
		c.Servers["o"] = contract.Server{Name: "o", At: at, CommandAt: at, Placement: "outside", Command: argv}
	}
}

// TestCommands: a file that a command names in the folder starts only as it was trusted.
func TestCommands(t *testing.T) {
	for _, x := range []struct {
		name, file string
		change     func(c *contract.Config)
	}{
		{"a program", "srv.py", server("./srv.py")},
		{"a script", "srv.py", server("python3", "./srv.py")},
		{"a bare script", "srv.py", server("python3", "srv.py")},
		{"behind options", "srv.py", server("python3", "-Xutf8", "-W", "ignore", "./srv.py")},
		{"env", "srv.py", server("env", "python3", "./srv.py")},
		{"behind = of an option", "hook.js", server("node", "--require=./hook.js", "/opt/x.js")},
		{"bare behind = of an option", "hook.js", server("node", "--require=hook.js", "/opt/x.js")},
		{"its data", "data.json", server("/bin/true", "data.json")},
		{"the command of a secret", "get.sh", func(c *contract.Config) {
			c.Secrets["k"] = contract.Secret{Name: "k", Spec: secret.Spec{Command: []string{"./get.sh"}}}
		}},
		{"a script of a secret", "get.sh", func(c *contract.Config) {
			c.Secrets["k"] = contract.Secret{Name: "k", Spec: secret.Spec{Command: []string{"sh", "./get.sh"}}}
		}},
		{"notify", "not.sh", func(c *contract.Config) { c.Approval.Notify = []string{"./not.sh"} }},
	} {
		t.Run(x.name, func(t *testing.T) {
			state, cfg, path := project(t, x.file, x.change)
			keep(t, state, cfg)
			if refused := starts(t, state, cfg); len(refused) > 0 {
				t.Fatalf("control: %s", refused)
			}
			put(t, path, "#!/bin/sh\nevil\n")
			want := fmt.Sprintf("%s is not the program that was trusted with %s: read it, then run: waldo trust %s",
				path, cfg.File, cfg.File)
			if len(cfg.Servers) > 0 {
				want = "server o: " + want
			}
			if refused := starts(t, state, cfg); !slices.Equal(refused, []string{want}) {
				t.Errorf("a changed file: %q, want %q", refused, want)
			}
			if cfg.Programs = nil; len(cfg.Servers) == 0 && len(starts(t, state, cfg)) > 0 {
				t.Error("a configuration that the operator named is refused")
			}
			cfg.Programs = map[string]string{}
			keep(t, state, cfg)
			if refused := starts(t, state, cfg); len(refused) > 0 {
				t.Errorf("trusted again: %s", refused)
			}
		})
	}
}

// TestAppeared: a file that comes to be what a word names was not trusted.
func TestAppeared(t *testing.T) {
	state, cfg, path := project(t, "other", server("/bin/true", "read"))
	keep(t, state, cfg)
	if refused := starts(t, state, cfg); len(refused) > 0 {
		t.Fatalf("control: %q", refused)
	}
	put(t, filepath.Join(filepath.Dir(path), "read"), "evil")
	if refused := starts(t, state, cfg); len(refused) != 1 || !strings.Contains(refused[0], "/read is not the program") {
		t.Errorf("a file in place of a word: %q", refused)
	}
}

// TestSearched: a program that PATH finds outside of the system's folders is one of the files.
func TestSearched(t *testing.T) {
	state, cfg, path := project(t, "bin/tool", server("tool"))
	t.Setenv("PATH", filepath.Dir(path)+":"+os.Getenv("PATH"))
	keep(t, state, cfg)
	if refused := starts(t, state, cfg); len(refused) > 0 {
		t.Fatalf("control: %q", refused)
	}
	put(t, path, "evil")
	if refused := starts(t, state, cfg); len(refused) != 1 {
		t.Errorf("%q", refused)
	}
}

// TestBounds: a configuration with a program that is too large is not trusted.
func TestBounds(t *testing.T) {
	state, cfg, path := project(t, "a", server("./a"))
	if found, err := Programs(state, cfg); err != nil || found[path] == "" {
		t.Fatalf("control: %v %v", found, err)
	}
	if err := os.Truncate(path, maxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Programs(state, cfg); err == nil || !strings.Contains(err.Error(), "more than 256 MiB") {
		t.Errorf("too large: %v", err)
	}
}

// TestWorkingFolder: a command outside of sandboxes starts in an empty folder that nobody else can write. Its relative
// words start at the configuration's folder, whatever the working folder is.
func TestWorkingFolder(t *testing.T) {
	state, cfg, path := project(t, "get.sh", func(c *contract.Config) { c.Programs = nil })
	foreign := t.TempDir()
	for _, name := range []string{"get.sh", "json.py"} {
		put(t, filepath.Join(foreign, name), "evil")
	}
	t.Chdir(foreign)
	argv, dir, err := Prepare(state, cfg, []string{"./get.sh", "get.sh", "json.py", "./x", "-m", "sh", "--to=get.sh"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{path, path, "json.py", filepath.Dir(path) + "/x", "-m", "sh", "--to=" + path}
	if !slices.Equal(argv, want) {
		t.Errorf("%q, want %q", argv, want)
	}
	info, err := os.Stat(dir)
	entries, rerr := os.ReadDir(dir)
	if err != nil || rerr != nil || info.Mode().Perm() != 0o700 || len(entries) > 0 || !contract.Within(dir, state) {
		t.Errorf("%s %v %v: %v %v", dir, info, entries, err, rerr)
	}
	_, other, err := Prepare(state, cfg, []string{"/bin/true"})
	if err != nil || other == dir {
		t.Errorf("two commands share %s: %v", other, err)
	}
}

// TestUncovered: a command that can load other files needs the operator's line. A static executable does not.
func TestUncovered(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		argv    []string
		covered bool
	}{
		{[]string{self, "helpdesk"}, true}, {[]string{"STATIC"}, true},
		{[]string{"STATIC", "words", "--to", "other.txt"}, true},
		{[]string{"STATIC", "DIR/app"}, false}, {[]string{"STATIC", "./app"}, false},
		{[]string{"STATIC", "--in=./app"}, false},
		{[]string{"./script"}, false}, {[]string{"python3", "./srv.py"}, false}, {[]string{"python3", "-m", "srv"}, false},
		{[]string{"python3", "-msrv"}, false}, {[]string{"npm", "run", "serve"}, false}, {[]string{"npx", "-y", "x"}, false},
		{[]string{"make", "serve"}, false}, {[]string{"env", "make"}, false}, {[]string{"sh", "-c", "./s*"}, false},
		{[]string{"node", "app"}, false}, {[]string{"git", "log"}, false},
		{[]string{"/bin/true"}, false}, {[]string{"absent-program"}, false}, {[]string{"./absent"}, false},
	} {
		_, cfg, path := project(t, "app/index.js", func(*contract.Config) {})
		dir := filepath.Dir(filepath.Dir(path))
		put(t, filepath.Join(dir, "script"), "#!/bin/sh\n")
		copyFile(t, self, filepath.Join(dir, "static"))
		argv := slices.Clone(x.argv)
		for i, w := range argv {
			argv[i] = strings.ReplaceAll(strings.ReplaceAll(w, "STATIC", "./static"), "DIR", dir)
		}
		server(argv...)(cfg)
		cfg.Secrets["k"] = contract.Secret{Name: "k", Spec: secret.Spec{Command: argv}}
		cfg.Approval.Notify = argv
		if got := Uncovered(cfg); x.covered && len(got) > 0 || !x.covered && (len(got) != 3 || !got.Has("trust.uncovered")) {
			t.Errorf("%q: %v", x.argv, got)
		}
		s, k := cfg.Servers["o"], cfg.Secrets["k"]
		s.Trust, k.Trust, cfg.Approval.Trust = contract.Uncovered, contract.Uncovered, contract.Uncovered
		cfg.Servers["o"], cfg.Secrets["k"] = s, k
		if got := Uncovered(cfg); len(got) > 0 {
			t.Errorf("%q with the line: %v", x.argv, got)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	put(t, to, string(b))
}

// TestHeldUncovered: a trust record without the line, as an earlier waldo wrote it, does not load.
func TestHeldUncovered(t *testing.T) {
	state, cfg, _ := project(t, "srv.py", server("python3", "srv.py"))
	keep(t, state, cfg)
	if _, err := Held(state, cfg); err == nil || !strings.Contains(err.Error(), "trust.uncovered") {
		t.Errorf("%v", err)
	}
	s := cfg.Servers["o"]
	s.Trust = contract.Uncovered
	cfg.Servers["o"] = s
	if _, err := Held(state, cfg); err != nil {
		t.Errorf("control: %v", err)
	}
}
