package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
)

// found is a program of the machine, with what a sandbox must be shown for it.
type found struct {
	path    string          // without links
	version string          // of its package; empty: unknown
	mounts  []sandbox.Mount // read-only
	dirs    []string        // of PATH
}

// find looks for a program on the person's PATH, and for those that it needs.
func find(program string, needs []string) (f found, err error) {
	if f, err = locate(program); err != nil {
		return f, err
	}
	for _, n := range needs {
		other, err := locate(n)
		if err != nil {
			return f, fmt.Errorf("%s needs %s: %w", program, n, err)
		}
		f.mounts, f.dirs = append(f.mounts, other.mounts...), append(f.dirs, other.dirs...)
	}
	return f, nil
}

// locate finds one program. Below /usr it is in every sandbox. Elsewhere its package is shown: the outermost
// node_modules around it, the prefix of a bin folder, or its own folder.
func locate(program string) (f found, err error) {
	at, err := lookPath(program)
	if err == nil {
		at, err = filepath.Abs(at)
	}
	if err == nil {
		f.path, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return f, err
	}
	root := filepath.Dir(f.path)
	if i := strings.Index(f.path, "/node_modules/"); i >= 0 {
		root = f.path[:i+len("/node_modules")]
		f.version = versionOf(f.path, root)
	} else if filepath.Base(root) == "bin" && narrow(filepath.Dir(root)) {
		f.dirs, root = append(f.dirs, root), filepath.Dir(root)
	}
	if below(f.path, "/usr") {
		return f, nil
	}
	if !narrow(root) {
		return f, fmt.Errorf("%s lies in %s, which holds more than the program: install it in a folder of its own", f.path, root)
	}
	f.mounts = []sandbox.Mount{{Source: root, Target: root}}
	return f, nil
}

// lookPath finds a program on PATH. A shim is left out: it is a script that finds the program with files that no
// sandbox is shown.
func lookPath(program string) (string, error) {
	if strings.Contains(program, "/") {
		return exec.LookPath(program)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) || filepath.Base(dir) == "shims" {
			continue
		}
		if at, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return at, nil
		}
	}
	return "", &exec.Error{Name: program, Err: exec.ErrNotFound}
}

// narrow reports whether a folder may be shown as that of a program: no home, nothing above one, and none of the
// system's.
func narrow(dir string) bool {
	home, _ := os.UserHomeDir()
	real, err := filepath.EvalSymlinks(home)
	if err == nil {
		home = real
	}
	if slices.Contains([]string{"/", "/home", "/root", "/opt", "/var", "/tmp", "/srv", "/etc"}, dir) || dir == home ||
		home != "" && contract.Within(home, dir) {
		return false
	}
	return dir != filepath.Join(home, ".local") && dir != filepath.Join(home, ".config")
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// versionOf reads the version of the package that a file of node_modules is in.
func versionOf(file, root string) string {
	for dir := filepath.Dir(file); below(dir, root) && dir != root; dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if err != nil {
			continue
		}
		var p struct{ Name, Version string }
		if json.Unmarshal(b, &p) == nil && p.Version != "" {
			return p.Version
		}
	}
	return ""
}

// toolchains are the folders of compilers and package managers in the person's home that a session is shown
// read-only, with the folder of their programs and the variables that make them work without writing there.
var toolchains = []struct {
	dir, bin string
	env      []string
}{
	{".nvm/versions", "", nil}, {".volta/bin", "", nil}, {".cargo/bin", ".", nil},
	{".rustup", "", []string{"RUSTUP_HOME={dir}"}}, {".pyenv/versions", "", nil},
	{"go/pkg/mod/cache/download", "", []string{"GOPROXY=file://{dir},https://proxy.golang.org", "GOFLAGS=-modcacherw"}},
	{".sdkman/candidates", "", nil}, {".local/share/mise/installs", "", nil}, {".asdf/installs", "", nil},
	{".bun/bin", ".", nil}, {".deno/bin", ".", nil},
}

// tools returns the mounts of the toolchains that are there.
func tools(home string) (f found, env []string) {
	for _, t := range toolchains {
		dir, err := filepath.EvalSymlinks(filepath.Join(home, t.dir))
		if st, serr := os.Stat(dir); err != nil || serr != nil || !st.IsDir() {
			continue
		}
		f.mounts = append(f.mounts, sandbox.Mount{Source: dir, Target: dir})
		if t.bin != "" {
			f.dirs = append(f.dirs, filepath.Join(dir, t.bin))
		}
		for _, kv := range t.env {
			env = append(env, strings.ReplaceAll(kv, "{dir}", dir))
		}
	}
	for _, dir := range []string{"/usr/local/go/bin"} {
		if _, err := os.Stat(dir); err == nil {
			f.dirs = append(f.dirs, dir)
		}
	}
	for _, program := range []string{"node", "go", "python3"} { // outside of /usr, as the person has them first
		if one, err := locate(program); err == nil && len(one.mounts) > 0 {
			f.mounts, f.dirs = append(f.mounts, one.mounts...), append(one.dirs, f.dirs...)
		}
	}
	return f, env
}

// distinct returns mounts without those within another, outermost first.
func distinct(all []sandbox.Mount) (out []sandbox.Mount) {
	for _, m := range all {
		inside := func(o sandbox.Mount) bool {
			return o.Target != m.Target && below(m.Target, o.Target) && below(m.Source, o.Source) && !m.Writable && !o.Writable
		}
		same := func(o sandbox.Mount) bool { return o.Target == m.Target }
		if !slices.ContainsFunc(all, inside) && !slices.ContainsFunc(out, same) {
			out = append(out, m)
		}
	}
	return out
}
