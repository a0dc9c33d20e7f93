package pkginstall

import (
	"archive/zip"
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/protocol/zipfile"
)

// Limits of the unpacked wheels of one server.
const (
	maxUnpacked  = 2 << 30 // bytes
	maxFiles     = 200_000
	maxDirectory = 64 << 20 // bytes of the list of files of one wheel
)

// unpacker writes the files of wheels below one folder.
type unpacker struct {
	to    *os.Root
	bytes int64 // that may still be written
	files int
}

// unpackAll unpacks wheels into a folder where Python finds their modules. If two wheels hold the same file, the
// first in order wins.
func unpackAll(from string, names []string, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{to: root, bytes: maxUnpacked, files: maxFiles}
	for _, name := range names {
		if err := u.wheel(filepath.Join(from, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (u *unpacker) wheel(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zipfile.Open(f, info.Size(), zipfile.Limits{Entries: maxFiles, Directory: maxDirectory})
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") && f.UncompressedSize64 == 0 {
			continue // a folder is made with its first file
		}
		name, err := inWheel(f)
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("it names %.200q twice", f.Name)
		}
		if name == "" {
			continue
		}
		seen[name] = true
		if u.files--; u.files < 0 {
			return fmt.Errorf("the wheels hold more than %d files", maxFiles)
		}
		if err := u.file(f, name); err != nil {
			return fmt.Errorf("%.200q: %w", f.Name, err)
		}
	}
	return nil
}

// inWheel returns the path below the folder for a file of a wheel. It returns "" for scripts, headers and other data,
// which servers run without (PEP 427, .data).
func inWheel(f *zip.File) (string, error) {
	name := f.Name
	if name != path.Clean(name) || !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, "\\\x00") {
		return "", fmt.Errorf("%.200q is outside the package", name)
	}
	if !f.Mode().IsRegular() {
		return "", fmt.Errorf("%.200q is not a regular file", name)
	}
	first, rest, _ := strings.Cut(name, "/")
	if !strings.HasSuffix(first, ".data") {
		return name, nil
	}
	if kind, module, _ := strings.Cut(rest, "/"); kind == "purelib" || kind == "platlib" {
		return module, nil
	}
	return "", nil
}

func (u *unpacker) file(f *zip.File, name string) error {
	if err := u.to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	to, err := u.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := f.Open()
	if err != nil {
		return errors.Join(err, to.Close())
	}
	n, err := io.Copy(to, io.LimitReader(from, u.bytes+1))
	if u.bytes -= n; u.bytes < 0 {
		err = errors.Join(err, fmt.Errorf("the wheels hold more than %d bytes", maxUnpacked))
	}
	return errors.Join(err, from.Close(), to.Close())
}

// starter runs a function of a module from a folder as the package's program does. It hides other packages of this
// machine. Python processes that it starts find the folder too.
const starter = `import sys, site, os, importlib
at, module, attr, *sys.argv = sys.argv[1:]
os.environ["PYTHONPATH"] = at
site.setquit()
site.addsitedir(at)
run = importlib.import_module(module)
for name in attr.split("."): run = getattr(run, name)
sys.exit(run())`

// start is the command that runs a program of the wheels in dir, shown as at. No folder of this
// machine's Python but its own library is searched.
func (py Python) start(w Wanted, dir, at string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range found {
		info, ok := strings.CutSuffix(e.Name(), ".dist-info")
		if name, _, _ := strings.Cut(info, "-"); !ok || normal(name) != w.Name {
			continue
		}
		b, err := read(filepath.Join(dir, e.Name(), "entry_points.txt"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		program, module, attr, err := script(string(b), w.Name, w.Bin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
		return append([]string{py.Exe, "-I", "-S", "-c", starter, at, module, attr, program}, w.Args...), nil
	}
	return nil, fmt.Errorf("%s is not among its wheels", w.Name)
}

var point = lazy(`^([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)\s*:\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)$`)

// script finds a program of a package: the one that is wanted, or else the one that is called like the
// package, or the only one.
func script(points, pack, want string) (name, module, attr string, err error) {
	all, section := map[string]string{}, ""
	for lines := bufio.NewScanner(strings.NewReader(points)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		if k, v, ok := strings.Cut(line, "="); ok && section == "[console_scripts]" {
			v, _, _ = strings.Cut(v, "[") // extras are obsolete
			all[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	for n := range all {
		if n == want || want == "" && (len(all) == 1 || normal(n) == pack) {
			name = n
		}
	}
	m := point().FindStringSubmatch(all[name])
	switch {
	case len(all) == 0:
		return "", "", "", errors.New("it has no program for Python (console_scripts)")
	case name == "":
		return "", "", "", fmt.Errorf("it has no program %.80q but %.200q; name one: uvx --from PACKAGE PROGRAM",
			cmp.Or(want, pack), slices.Sorted(maps.Keys(all)))
	case m == nil:
		return "", "", "", fmt.Errorf("its program %.80q is %.200q, which is not a function of a module", name, all[name])
	}
	return name, m[1], m[2], nil
}
