package pkginstall

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waldo/internal/protocol/strictjson"
)

func TestParsePython(t *testing.T) {
	for _, row := range []struct{ command, spec, name, bin, args string }{
		{"uvx mcp-server-git --repository /x", "mcp-server-git", "mcp-server-git", "", "--repository /x"},
		{"/usr/bin/uvx mcp_server.git@1.2", "mcp_server.git==1.2", "mcp-server-git", "", ""},
		{"uvx weather[cli]@latest", "weather[cli]", "weather", "", ""},
		{"uvx --from weather forecast a", "weather", "weather", "forecast", "a"},
		{"uvx --from=weather>=1,<2 --with x --with y,z==3 -q forecast --with", "weather>=1,<2 x y z==3", "weather",
			"forecast", "--with"},
		{"uv tool run --python 3.12 weather", "weather", "weather", "", ""},
		{"uvx -p python3.12 -- weather", "weather", "weather", "", ""},
		{"pipx run weather==1.0 a", "weather==1.0", "weather", "", "a"},
		{"pipx run --spec weather~=1.0 forecast", "weather~=1.0", "weather", "forecast", ""},
	} {
		w, ok, err := Parse(strings.Fields(row.command))
		if err != nil || !ok || w.Manager != PyPI || w.Spec != row.spec || w.Name != row.name || w.Bin != row.bin ||
			strings.Join(w.Args, " ") != row.args || strings.Contains(row.command, "3.12") != (w.Python == "3.12") {
			t.Errorf("%s: %+v %v %v", row.command, w, ok, err)
		}
	}
	for _, bad := range []string{
		"uvx", "uvx -q", "uv tool run", "pipx run", "uvx --from git+https://x/y weather", "uvx git+https://x/y",
		"uvx https://x/y.whl", "uvx ./weather", "uvx /weather", "uvx --index-url http://x weather",
		"uvx --default-index=http://x weather", "uvx --with-editable . weather", "uvx weather@https://x/y.whl",
		"uvx --from weather@git+https://x weather", "uvx --python /tmp/python weather", "uvx --python ../python weather",
		"uvx --with ./x weather", "uvx --with=--index-url=http://x weather", "uvx weather;x",
		"pipx run --pip-args=--index-url=http://x weather", "pipx run --path ./x.py", "pipx run https://x/y.py",
		"pipx run weather@1.0", "uvx weather@1/../2",
	} {
		if w, ok, err := Parse(strings.Fields(bad)); !ok || err == nil {
			t.Errorf("%q is understood: %+v", bad, w)
		}
	}
}

// wheel is an archive with the files of a package, by name.
func wheel(files map[string]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range files {
			if !yield(n) {
				return
			}
		}
	}) {
		w, _ := z.Create(name)
		_, _ = w.Write([]byte(files[name]))
	}
	_ = z.Close()
	return b.Bytes()
}

const (
	weatherWheel = "weather-1.0.0-py3-none-any.whl"
	helperWheel  = "helper_lib-2.0-cp311-cp311-manylinux_2_17_x86_64.whl"
)

func weatherFiles() map[string]string {
	return map[string]string{
		"weather/__init__.py":                      "def main(): pass\n",
		"weather-1.0.0.dist-info/entry_points.txt": "[console_scripts]\nweather = weather:main\n",
	}
}

// index is an index, pip and a sandbox in one: it leaves what pip would.
type index struct {
	jobs   []Job
	wheels map[string][]byte
	lines  string // of the last requirements.txt
}

func (x *index) run(_ context.Context, j Job) error {
	x.jobs = append(x.jobs, j)
	if b, err := os.ReadFile(filepath.Join(j.Seed, pinned)); err == nil {
		x.lines = string(b)
		_ = os.WriteFile(filepath.Join(j.Out, pinned), b, 0o644) // the sandbox starts with this file, and it stays
	}
	for name, b := range x.wheels {
		if err := os.WriteFile(filepath.Join(j.Out, name), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func acceptedWheels(t *testing.T) (*Installer, *index, *Pin, Wanted) {
	t.Helper()
	x := &index{wheels: map[string][]byte{
		weatherWheel: wheel(weatherFiles()), helperWheel: wheel(map[string]string{"helper_lib.py": "x = 1\n"}),
	}}
	i := &Installer{
		Dir: t.TempDir(), Run: x.run, Python: Python{
			Exe: "/usr/bin/python3", Version: "3.11", Index: "https://pypi.example.com/simple", Files: "files.example.com",
		},
	}
	w, _, err := Parse([]string{"uvx", "weather", "--metric"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := i.Accept(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return i, x, p, w
}

// TestPinnedWheels: Open accepts the pinned wheels and no others.
func TestPinnedWheels(t *testing.T) {
	i, x, p, w := acceptedWheels(t)
	dir, argv, err := i.Open(t.Context(), p, w, "/opt/server") // the control of all that follows
	if err != nil || p.Version != "1.0.0" || p.Manager != PyPI || !strings.HasPrefix(p.Integrity, "sha256:") {
		t.Fatal(dir, argv, err)
	}
	if want := []string{
		"/usr/bin/python3", "-I", "-S", "-c", starter, "/opt/server", "weather", "main", "weather", "--metric",
	}; !slices.Equal(argv, want) {
		t.Errorf("it is started as %q", argv)
	}
	for _, j := range x.jobs {
		if !slices.Contains(j.Argv, "--only-binary=:all:") ||
			!slices.Contains(j.Argv, "--index-url=https://pypi.example.com:443/simple") ||
			!slices.Contains(j.Env, "PIP_CONFIG_FILE=/dev/null") ||
			!slices.Equal(j.Reach, []string{"GET,HEAD pypi.example.com:443", "GET,HEAD files.example.com:443"}) {
			t.Errorf("pip was started as %q and reached %q", j.Argv, j.Reach)
		}
	}
	sum := sha256.Sum256(x.wheels[weatherWheel])
	if len(x.jobs) != 2 || !slices.Contains(x.jobs[1].Argv, "--require-hashes") ||
		!strings.Contains(x.lines, "helper_lib==2.0 --hash=sha256:") ||
		!strings.Contains(x.lines, "weather==1.0.0 --hash=sha256:"+hex.EncodeToString(sum[:])+"\n") {
		t.Errorf("pip was held to %q", x.lines)
	}
	npx, _, _ := Parse([]string{"npx", "weather", "--metric"})
	if _, _, err := i.Open(t.Context(), p, npx, ""); !errors.Is(err, ErrPin) {
		t.Errorf("a package of that name of another manager: %v", err)
	}
	module := filepath.Join(dir, "weather/__init__.py")
	if err := os.WriteFile(module, []byte("def main(): evil\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := i.Open(t.Context(), p, w, ""); !errors.Is(err, ErrPin) ||
		!strings.Contains(err.Error(), "were changed since") {
		t.Errorf("a changed file: %v", err)
	}
	with, _, _ := Parse([]string{"uvx", "--with", "x", "weather", "--metric"})
	if _, _, err := i.Open(t.Context(), p, with, ""); !errors.Is(err, ErrPin) {
		t.Errorf("another package beside it: %v", err)
	}
	newer := *i
	newer.Python.Version = "3.12"
	if _, _, err := newer.Open(t.Context(), p, w, ""); !errors.Is(err, ErrPin) ||
		!strings.Contains(err.Error(), "accepted for Python 3.11") {
		t.Errorf("another Python: %v", err)
	}

	// A machine that does not have it yet installs it, and keeps nothing that is not as accepted.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	good := x.wheels[weatherWheel]
	for why, wheels := range map[string]map[string][]byte{
		"a wheel with other bytes": {weatherWheel: wheel(map[string]string{"weather.py": "evil"}),
			helperWheel: x.wheels[helperWheel]},
		"a wheel that was not pinned": {weatherWheel: good, helperWheel: x.wheels[helperWheel],
			"evil-1.0-py3-none-any.whl": good},
		"a dependency that is missing": {weatherWheel: good},
		"another version of it":        {"weather-1.0.1-py3-none-any.whl": good, helperWheel: x.wheels[helperWheel]},
	} {
		before := x.wheels
		x.wheels = wheels
		if _, _, err := i.Open(t.Context(), p, w, ""); !errors.Is(err, ErrPin) ||
			!strings.Contains(err.Error(), "the index gave other wheels") {
			t.Errorf("%s: %v", why, err)
		}
		if left, _ := os.ReadDir(i.Dir); len(left) != 0 {
			t.Errorf("%s: left %v", why, left)
		}
		x.wheels = before
	}
	if _, _, err := i.Open(t.Context(), p, w, ""); err != nil {
		t.Errorf("control: %v", err)
	}
}

// TestLocksOfWheels: an edited waldo.lock injects neither an argument of pip nor a path.
func TestLocksOfWheels(t *testing.T) {
	i, x, p, w := acceptedWheels(t)
	sum := strings.Repeat("a", 64)
	for why, lock := range map[string]string{
		"no digest":      `{"python":"3.11","wheels":{"weather-1.0.0-py3-none-any.whl":""}}`,
		"a weak digest":  `{"python":"3.11","wheels":{"weather-1.0.0-py3-none-any.whl":"sha1:aaaa"}}`,
		"a short digest": `{"python":"3.11","wheels":{"weather-1.0.0-py3-none-any.whl":"sha256:aaaa"}}`,
		"an option of pip": `{"python":"3.11","wheels":{"weather-1.0.0 --index-url=http:x-py3-none-any.whl":"sha256:` +
			sum + `"}}`,
		"a line of its own":     `{"python":"3.11","wheels":{"weather-1.0.0\n--pre-py3-none-any.whl":"sha256:` + sum + `"}}`,
		"a path":                `{"python":"3.11","wheels":{"../weather-1.0.0-py3-none-any.whl":"sha256:` + sum + `"}}`,
		"a source package":      `{"python":"3.11","wheels":{"weather-1.0.0.tar.gz":"sha256:` + sum + `"}}`,
		"nothing":               `{"python":"3.11","wheels":{}}`,
		"a Python that is none": `{"python":"../3","wheels":{"weather-1.0.0-py3-none-any.whl":"sha256:` + sum + `"}}`,
	} {
		v, err := strictjson.Parse([]byte(lock))
		if err != nil {
			t.Fatal(err)
		}
		before := len(x.jobs)
		if _, _, err := i.Open(t.Context(), &Pin{Manager: PyPI, Spec: "weather", Files: p.Files, Lock: v}, w,
			""); err == nil || len(x.jobs) != before {
			t.Errorf("%s: %v after %d jobs", why, err, len(x.jobs)-before)
		}
	}
	// A lock with other valid wheels does not match: the wheels that pip downloads are refused.
	var l wheels
	if err := p.Lock.Decode(&l); err != nil {
		t.Fatal(err)
	}
	delete(l.Wheels, helperWheel)
	b, _ := json.Marshal(l)
	v, _ := strictjson.Parse(b)
	x.wheels = map[string][]byte{weatherWheel: x.wheels[weatherWheel]}
	if _, _, err := i.Open(t.Context(), &Pin{Manager: PyPI, Spec: "weather", Files: p.Files, Lock: v}, w,
		""); !errors.Is(err, ErrPin) || !strings.Contains(err.Error(), "files are others") {
		t.Errorf("a dependency that was taken out: %v", err)
	}
}

// TestNoSources: waldo refuses output of pip that is not a wheel, and explains a missing wheel.
func TestNoSources(t *testing.T) {
	i, x, _, w := acceptedWheels(t)
	good := x.wheels
	for why, wheels := range map[string]map[string][]byte{
		"a source package":  {weatherWheel: good[weatherWheel], "helper-1.0.tar.gz": []byte("x")},
		"two of one name":   {weatherWheel: good[weatherWheel], "Weather-1.0.1-py3-none-any.whl": good[weatherWheel]},
		"not the package":   {helperWheel: good[helperWheel]},
		"no archive at all": {weatherWheel: []byte("x")},
	} {
		x.wheels = wheels
		if p, err := i.Accept(t.Context(), w); err == nil {
			t.Errorf("%s: accepted %+v", why, p)
		}
	}
	x.wheels = good
	i.Run = func(context.Context, Job) error {
		return errors.New("ERROR: No matching distribution found for weather")
	}
	if _, err := i.Accept(t.Context(), w); err == nil || !strings.Contains(err.Error(), "waldo installs wheels alone") {
		t.Errorf("%v", err)
	}
	i.Run = func(context.Context, Job) error {
		return fmt.Errorf("ERROR: No matching distribution found for weather: %w", ErrUnreached)
	}
	if _, err := i.Accept(t.Context(), w); !errors.Is(err, ErrUnreached) || strings.Contains(err.Error(), "wheels") {
		t.Errorf("an index that is not there: %v", err)
	}
}

// TestWheelsStayInside: a wheel writes below its folder and nowhere else.
func TestWheelsStayInside(t *testing.T) {
	i, x, _, w := acceptedWheels(t)
	outside := filepath.Join(i.Dir, "evil.py")
	raw := func(name string, mode fs.FileMode, text string) []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for n, text := range weatherFiles() {
			f, _ := z.Create(n)
			_, _ = f.Write([]byte(text))
		}
		h := &zip.FileHeader{Name: name}
		h.SetMode(mode)
		f, _ := z.CreateHeader(h)
		_, _ = f.Write([]byte(text))
		_ = z.Close()
		return b.Bytes()
	}
	for _, row := range []struct {
		why, want string
		wheel     []byte
	}{
		{"the control", "", raw("weather/evil.py", 0o644, "x")},
		{"a folder above", "is outside the package", raw("../evil.py", 0o644, "x")},
		{"a folder above, on the way", "is outside the package", raw("weather/../../evil.py", 0o644, "x")},
		{"an absolute name", "is outside the package", raw(outside, 0o644, "x")},
		{"another system's separator", "is outside the package", raw(`..\evil.py`, 0o644, "x")},
		{"a name that ends early", "is outside the package", raw("weather/evil.py\x00.txt", 0o644, "x")},
		{"a link", "is not a regular file", raw("weather/evil.py", fs.ModeSymlink|0o777, "/etc/passwd")},
		{"a pipe", "is not a regular file", raw("weather/evil.py", fs.ModeNamedPipe|0o644, "")},
		{"a file twice", "twice", raw("weather/__init__.py", 0o644, "evil")},
		{"a script, which is left out", "", raw("weather-1.0.0.data/scripts/evil", 0o755, "x")},
		{"a folder above, in its data", "is outside the package",
			raw("weather-1.0.0.data/purelib/../../../evil.py", 0o644, "x")},
	} {
		x.wheels = map[string][]byte{weatherWheel: row.wheel}
		p, err := i.Accept(t.Context(), w)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v", row.why, err)
		}
		if _, err := os.Lstat(outside); err == nil {
			t.Fatalf("%s: it wrote %s", row.why, outside)
		}
		if err != nil {
			continue
		}
		if _, err := os.Lstat(filepath.Join(i.folder(p), "weather-1.0.0.data")); err == nil {
			t.Errorf("%s: its scripts were unpacked", row.why)
		}
	}
	// Modules may be in the wheel's data. The first wheel wins where two have the same file.
	x.wheels = map[string][]byte{weatherWheel: raw("weather-1.0.0.data/platlib/weather/native.so", 0o644, "x"),
		"zz-1.0-py3-none-any.whl": wheel(map[string]string{"weather/__init__.py": "evil"})}
	p, err := i.Accept(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(i.folder(p), "weather/native.so")); err != nil || string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(i.folder(p), "weather/__init__.py")); err != nil ||
		strings.Contains(string(b), "evil") {
		t.Errorf("%q %v", b, err)
	}
}

// TestBombs: a wheel that unpacks to more than it may is not unpacked.
func TestBombs(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, weatherWheel)
	if err := os.WriteFile(name, wheel(map[string]string{"a.py": strings.Repeat("x", 1000), "b.py": ""}),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		bytes int64
		files int
		want  string
	}{{1000, 2, ""}, {999, 2, "more than"}, {1000, 1, "more than"}} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		u := &unpacker{to: root, bytes: row.bytes, files: row.files}
		if err := u.wheel(name); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v", row, err)
		}
		_ = root.Close()
	}
}

func TestScript(t *testing.T) {
	for _, row := range []struct{ points, want, is string }{
		{"[console_scripts]\nweather = a.b:c.d\n", "", "weather a.b c.d"},
		{"[console_scripts]\nother=a:b [extra]\n", "", "other a b"},
		{"[gui_scripts]\nx=evil:x\n[console_scripts]\nWeather = a:b\ny = c:d\n", "", "Weather a b"},
		{"[console_scripts]\nweather = a:b\ny = c:d\n", "y", "y c d"},
		{"[console_scripts]\nweather = a:b\n", "y", ""},
		{"[console_scripts]\nx = a:b\ny = c:d\n", "", ""},
		{"[gui_scripts]\nweather=a:b\n", "", ""},
		{"", "", ""},
		{"[console_scripts]\nweather = a\n", "", ""},
		{"[console_scripts]\nweather = ../../a:b\n", "", ""},
		{"[console_scripts]\nweather = a:__import__('os').system\n", "", ""},
		{"[console_scripts]\nweather = a; import os:b\n", "", ""},
		{"[console_scripts]\nweather = -c:b\n", "", ""},
	} {
		name, module, attr, err := script(row.points, "weather", row.want)
		if got := strings.TrimSpace(name + " " + module + " " + attr); got != row.is || (err == nil) != (row.is != "") {
			t.Errorf("%q %q: %q %v", row.points, row.want, got, err)
		}
	}
}

// FuzzScript: the entry point of a package is a function of a module, with plain names.
func FuzzScript(f *testing.F) {
	f.Add("[console_scripts]\nweather = a.b:c.d\n", "")
	f.Fuzz(func(t *testing.T, points, want string) {
		_, module, attr, err := script(points, "weather", want)
		if err == nil &&
			(strings.Trim(module+attr, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") != "" ||
				module == "" || attr == "" || strings.HasPrefix(module, ".")) {
			t.Errorf("%q %q", module, attr)
		}
	})
}

// FuzzInWheel: wherever a file of a wheel goes, it is below the folder.
func FuzzInWheel(f *testing.F) {
	f.Add("weather/../../x", uint32(0))
	f.Add("weather-1.0.data/purelib/../../x", uint32(0o644<<16))
	f.Fuzz(func(t *testing.T, name string, attributes uint32) {
		at, err := inWheel(&zip.File{FileHeader: zip.FileHeader{
			Name: name, ExternalAttrs: attributes, CreatorVersion: 3 << 8,
		}})
		if err == nil && at != "" && (!filepath.IsLocal(at) || at == ".") {
			t.Errorf("%q goes to %q", name, at)
		}
	})
}

// TestWheelDirectory: a wheel of too many files is refused before their list is read.
func TestWheelDirectory(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for range maxFiles + 1 {
		if _, err := z.CreateHeader(&zip.FileHeader{Name: "d/"}); err != nil { // a folder, which counts as no file
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "w.whl")
	if err := errors.Join(z.Close(), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	err := (&unpacker{bytes: maxUnpacked, files: maxFiles}).wheel(file)
	if err == nil || err.Error() != "it has 200001 entries; at most 200000 are unpacked" {
		t.Error(err)
	}
}
