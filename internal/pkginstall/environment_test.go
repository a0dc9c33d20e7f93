package pkginstall

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func lines(all []Requirement) (out []string) {
	for _, r := range all {
		out = append(out, r.Line())
	}
	return out
}

func TestParseRequirements(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0a", 32)
	for _, row := range []struct{ text, want string }{
		{"pandas", "pandas"},
		{"\ufeffPandas == 2.2.2  # frames\r\n\r\n# all of it\nnumpy>=1,<3\n", "pandas==2.2.2|numpy>=1,<3"},
		{"a[x,y]==1", "a[x,y]==1"},
		{"a_b.c~=1.0", "a-b-c~=1.0"},
		{"a==1 --hash=" + hash, "a==1 --hash=" + hash},
		{"a==1 \\\n    --hash=" + hash + " \\\n    --hash=" + hash + "\nb", "a==1 --hash=" + hash + "|b"},
		{"a; python_version < \"3.12\" and sys_platform == 'linux'",
			"a ; python_version < \"3.12\" and sys_platform == 'linux'"},
		{"a ; python_version<'3' --hash=" + hash, "a ; python_version<'3' --hash=" + hash},
	} {
		all, err := ParseRequirements("r.txt", []byte(row.text))
		if got := strings.Join(lines(all), "|"); err != nil || got != row.want {
			t.Errorf("%q: %q %v", row.text, got, err)
		}
	}
	for _, row := range []struct{ text, want string }{
		{"", "r.txt: it names no package"},
		{"a\n\n-r other.txt", "r.txt:3: \"-r\": one file holds all requirements"},
		{"--index-url=http://evil.example/simple",
			"r.txt:1: \"--index-url=http://evil.example/simple\": the index is that of this machine's pip"},
		{"--extra-index-url http://x", "there is one index"},
		{"-e .", "build a wheel"},
		{"--find-links /tmp", "wheels come from the index"},
		{"-c c.txt", "no constraint files"},
		{"--no-binary :all:", "options have no place here"},
		{"a @ https://x/a.whl", "is not a package of an index"},
		{"git+https://x/y", "is not a package of an index"},
		{"./a", "is not a package of an index"},
		{"a==1 --hash=md5:00", "only --hash=sha256:"},
		{"a==1 --global-option=x", "only --hash=sha256:"},
		{"a ; os.system('x') \x00", "is not a marker"},
		{"a ; x\\", "is not a marker"},
		{"a\na", "r.txt:2: a is named twice"},
		{"a b", "a"},
		{strings.Repeat("a", MaxRequirements+1), "at most"},
	} {
		all, err := ParseRequirements("r.txt", []byte(row.text))
		if row.text == "a b" { // spaces inside a version specifier are allowed, so this is the package "ab"
			continue
		}
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%.80q: %q %v, want %q", row.text, lines(all), err, row.want)
		}
	}
}

var safeLine = regexp.MustCompile(`^[a-z0-9][^\n\r\\@#/:]*( --hash=sha256:[0-9a-f]{64})*$`)

// FuzzParseRequirements: a line that is accepted is one requirement for pip, without an option, an address or a file,
// and reads the same again.
func FuzzParseRequirements(f *testing.F) {
	for _, s := range []string{
		"a==1 --hash=sha256:" + strings.Repeat("0", 64), "a ; x == \"y\"", "a\\\nb", "-r x", "a @ file:///x", "A.b_c[d]~=1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseRequirements("r.txt", []byte(text))
		if err != nil {
			return
		}
		got := strings.Join(lines(all), "\n")
		for _, l := range lines(all) {
			if !safeLine.MatchString(l) || strings.Contains(l, " -") && !strings.Contains(l, " --hash=") &&
				!strings.Contains(l, ";") {
				t.Fatalf("%q became %q", text, l)
			}
		}
		again, err := ParseRequirements("r.txt", []byte(got))
		if err != nil || strings.Join(lines(again), "\n") != got {
			t.Fatalf("%q, and again %q: %v", got, lines(again), err)
		}
	})
}

func resolved(t *testing.T, reqs string) (*Installer, *index, []Requirement, Wheels, string, error) {
	t.Helper()
	x := &index{wheels: map[string][]byte{
		weatherWheel: wheel(weatherFiles()), helperWheel: wheel(map[string]string{"helper_lib.py": "x = 1\n"}),
	}}
	i := &Installer{
		Dir: t.TempDir(), Run: x.run, Python: Python{
			Exe: "/usr/bin/python3", Version: "3.11", Index: "https://pypi.example.com/simple",
		},
	}
	all, err := ParseRequirements("r.txt", []byte(reqs))
	if err != nil {
		t.Fatal(err)
	}
	w, dir, err := i.ResolveWheels(t.Context(), all)
	return i, x, all, w, dir, err
}

func TestTemplateWheels(t *testing.T) {
	i, x, all, w, dir, err := resolved(t, "weather==1.0.0\n")
	if err != nil || len(w) != 2 || x.lines != "weather==1.0.0\n" {
		t.Fatalf("%v %q %v", w, x.lines, err)
	}
	to := filepath.Join(t.TempDir(), "python")
	if err := UnpackWheels(dir, w, to); err != nil {
		t.Fatal("control:", err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "helper_lib.py")); err != nil || string(b) != "x = 1\n" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := i.FetchLocked(t.Context(), w); err != nil ||
		!strings.Contains(x.lines, "helper_lib==2.0 --hash="+w[helperWheel]) ||
		!slices.Contains(x.jobs[len(x.jobs)-1].Argv, "--require-hashes") {
		t.Errorf("what is locked is fetched as %q: %v", x.lines, err)
	}

	// A wheel that was changed after it was downloaded is not unpacked.
	if err := os.WriteFile(filepath.Join(dir, helperWheel), wheel(map[string]string{"helper_lib.py": "x = 2\n"}),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := UnpackWheels(dir, w, filepath.Join(t.TempDir(), "python")); !errors.Is(err, ErrPin) {
		t.Errorf("a changed wheel: %v", err)
	}
	x.wheels[helperWheel] = wheel(map[string]string{"helper_lib.py": "x = 2\n"})
	if _, err := i.FetchLocked(t.Context(), w); !errors.Is(err, ErrPin) {
		t.Errorf("another wheel than the locked one: %v", err)
	}

	// waldo checks the hashes of requirements itself.
	held := "sha256:" + strings.Repeat("0", 64)
	if _, _, _, _, _, err := resolved(t, "helper-lib==2.0 --hash="+held+"\n"); !errors.Is(err, ErrPin) {
		t.Errorf("a wheel with none of its hashes: %v", err)
	}
	if _, _, _, _, _, err := resolved(t, "helper-lib==2.0 --hash="+held+" --hash="+w[helperWheel]+"\n"); err != nil {
		t.Errorf("control: a wheel with one of its hashes: %v", err)
	}
	if err := w.Meet(all); err != nil {
		t.Error("control:", err)
	}
	for name, bad := range map[string]Wheels{
		"two wheels of one package": {weatherWheel: w[weatherWheel], "weather-1.0.1-py3-none-any.whl": w[weatherWheel]},
		"a source package":          {"weather-1.0.0.tar.gz": w[weatherWheel]},
	} {
		if err := bad.Meet(all); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for name, bad := range map[string]Wheels{
		"nothing pins it": {weatherWheel: "sha256:00"}, "a path": {"../a-1-py3-none-any.whl": w[weatherWheel]}, "none": {},
	} {
		if _, err := i.FetchLocked(t.Context(), bad); err == nil {
			t.Errorf("a lock is accepted: %s", name)
		}
	}
}

// TestBytecode: the sandbox that compiles gives bytecode beside modules, and nothing else.
func TestBytecode(t *testing.T) {
	place := func(files ...string) string {
		dir := t.TempDir()
		for _, f := range files {
			at := filepath.Join(dir, f)
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	to := place("a/b.py")
	if err := addBytecode(place("a/__pycache__/b.cpython-311.pyc"), to); err != nil {
		t.Fatal("control:", err)
	}
	if _, err := os.Stat(filepath.Join(to, "a/__pycache__/b.cpython-311.pyc")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"a/b.py", "evil.py", "a/evil.so", "a/__pycache__/b.cpython-311.so", "a/__pycache__/other.cpython-311.pyc",
		"a/b.cpython-311.pyc", "x.pth",
	} {
		to := place("a/b.py")
		if err := addBytecode(place(bad), to); err == nil {
			t.Errorf("%s was taken", bad)
		}
		if b, _ := os.ReadFile(filepath.Join(to, "a/b.py")); string(b) != "new" || bad != "a/b.py" &&
			exists(filepath.Join(to, bad)) {
			t.Errorf("%s is there", bad)
		}
	}
	old := place("b.py", "__pycache__/b.cpython-311.pyc")
	if err := os.WriteFile(filepath.Join(old, "__pycache__/b.cpython-311.pyc"), []byte("of the wheel"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := addBytecode(place("__pycache__/b.cpython-311.pyc"), old); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(filepath.Join(old, "__pycache__/b.cpython-311.pyc")); string(b) != "of the wheel" {
		t.Errorf("a file of a wheel was replaced by %q", b)
	}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

const npmLockFile = `{"name":"x","lockfileVersion":3,"packages":{"":{"name":"x","dependencies":{"ms":"^2.1.3"},"devDependencies":{"d":"1"}},
"node_modules/ms":{"version":"2.1.3","resolved":"https://registry.example.com/ms/-/ms-2.1.3.tgz","integrity":"sha512-abc"}}}`

func TestParseNpmLock(t *testing.T) {
	n, err := ParseNpmLock("package-lock.json", []byte(npmLockFile))
	if err != nil || n.Packages != 1 || strings.Contains(string(n.Lock.Raw()), "registry.example.com") ||
		string(n.manifest) != `{"dependencies":{"ms":"^2.1.3"},"devDependencies":{"d":"1"}}` {
		t.Fatalf("%s %s %v", n.Lock.Raw(), n.manifest, err)
	}
	for why, edit := range map[string][2]string{
		"another version":       {`"lockfileVersion":3`, `"lockfileVersion":1`},
		"nothing pins it":       {`"integrity":"sha512-abc"`, `"x":1`},
		"a weak hash":           {"sha512-abc", "sha1-abc"},
		"a package from git":    {"https://registry.example.com/ms/-/ms-2.1.3.tgz", "git+ssh://git@x/y.git#1"},
		"a package of a folder": {"https://registry.example.com/ms/-/ms-2.1.3.tgz", "file:../ms"},
		"a link":                {`"version":"2.1.3"`, `"link":true`},
		"no packages": {`,
"node_modules/ms"`, `},"x":{"a"`},
		"not JSON": {`{"name"`, `{name`},
	} {
		if _, err := ParseNpmLock("package-lock.json",
			[]byte(strings.Replace(npmLockFile, edit[0], edit[1], 1))); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
}

// FuzzParseNpmLock: an accepted lock names no address, and pins each package outside of others' archives.
func FuzzParseNpmLock(f *testing.F) {
	f.Add(npmLockFile)
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseNpmLock("l", []byte(text))
		if err != nil {
			return
		}
		l, err := (&Pin{Lock: n.Lock}).lock()
		if err != nil {
			t.Fatal(err)
		}
		for at, p := range l.Packages {
			if p.Resolved != "" || at != "" && !p.InBundle && !strings.HasPrefix(p.Integrity, "sha512-") {
				t.Fatalf("%q: %+v", at, p)
			}
		}
	})
}
