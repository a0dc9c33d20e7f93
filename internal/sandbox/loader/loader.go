// Package loader lists the files that a program needs to start: itself, the loader of its format, and the libraries that
// it names. It reads no library's code.
package loader

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/sandbox/inroot"
)

// Files are the files of some programs, by their paths without links.
type Files struct {
	Execute []string // the programs, the interpreters of scripts and the loaders of libraries
	Read    []string // the libraries
}

// maxFiles bounds the files of one program.
const maxFiles = 300

// ErrTooMany is the error for a program with too many libraries.
var ErrTooMany = errors.New("a program needs more than 300 files to start")

// always are what loaders and C libraries open besides, of the machine's own and of musl.
var always = []string{"/etc/ld.so.cache", "/etc/ld.so.conf", "/usr/lib/locale/", "/usr/share/zoneinfo/",
	"/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path"}

// usual are the folders of libraries that every loader knows.
var usual = []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}

// Finder finds the files of programs. The zero Finder is for use.
type Finder struct {
	mu   sync.Mutex
	kept map[string]found
}

type found struct {
	files Files
	until time.Time
}

// Bounds of what is kept. After its time a program is looked at again: its libraries may be others.
const (
	keepFor = time.Minute
	maxKept = 100
)

// Needs returns the files of programs in a root. A program is found by its path or, without a slash, in dirs.
func (f *Finder) Needs(root string, dirs []string, programs ...string) (Files, error) {
	key := fmt.Sprintf("%q %q %q", root, dirs, programs)
	f.mu.Lock()
	defer f.mu.Unlock()
	if k, ok := f.kept[key]; ok && time.Now().Before(k.until) {
		return k.files.clone(), nil
	}
	files, err := needs(root, dirs, programs)
	if err != nil {
		return Files{}, err
	}
	if len(f.kept) >= maxKept || f.kept == nil {
		f.kept = map[string]found{}
	}
	f.kept[key] = found{files, time.Now().Add(keepFor)}
	return files.clone(), nil
}

func (f Files) clone() Files { return Files{slices.Clone(f.Execute), slices.Clone(f.Read)} }

func needs(root string, dirs, programs []string) (Files, error) {
	in, err := inroot.Open(root)
	if err != nil {
		return Files{}, err
	}
	defer in.Close()
	l := &search{root: root, in: in, dirs: dirs, seen: map[string]bool{}}
	l.files.Read = slices.Clone(always)
	for _, dir := range append(l.configured("/etc/ld.so.conf", 0), usual...) {
		if !slices.Contains(l.folders, dir) { // first those for newer processors
			l.folders = append(append(l.folders, Glob(root, path.Join(dir, "glibc-hwcaps/*"))...), dir)
		}
	}
	for _, p := range programs {
		if err := l.program(p, 0); err != nil {
			return Files{}, err
		}
	}
	return l.files, nil
}

type search struct {
	root    string
	in      *inroot.Root
	dirs    []string
	folders []string // of libraries
	seen    map[string]bool
	files   Files
}

// maxDepth bounds interpreters of interpreters, and files that include others.
const maxDepth = 4

// program adds a program: an ELF file, or a script with a line that names its interpreter.
func (l *search) program(name string, depth int) error {
	f, at, err := l.find(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if l.seen[at] {
		return nil
	}
	if l.seen[at] = true; len(l.seen) > maxFiles {
		return ErrTooMany
	}
	l.files.Execute = append(l.files.Execute, at)
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head)
	if line, ok := strings.CutPrefix(string(head[:n]), "#!"); ok && depth < maxDepth {
		line, _, _ = strings.Cut(line, "\n")
		words := strings.Fields(line)
		if len(words) > 1 && path.Base(words[0]) != "env" {
			words = words[:1]
		}
		for _, w := range words {
			if strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
				continue // of env
			}
			if err := l.program(w, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return l.elf(f, at, true, nil)
}

// find opens a program by its path or name.
func (l *search) find(name string) (*os.File, string, error) {
	if path.IsAbs(name) {
		return l.in.Open(name)
	}
	if strings.Contains(name, "/") {
		return nil, "", &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
	}
	for _, dir := range l.dirs {
		f, at, err := l.in.Open(path.Join(dir, name))
		if err != nil {
			continue
		}
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return f, at, nil
		}
		f.Close()
	}
	return nil, "", &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
}

// elf adds the loader of an ELF file and the libraries that it names. What is no such file needs nothing.
func (l *search) elf(f *os.File, at string, program bool, own []string) error {
	e, err := elf.NewFile(f)
	if err != nil {
		return nil
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP && program && p.Filesz < 4096 {
			name, err := io.ReadAll(p.Open())
			if err == nil {
				err = l.program(strings.TrimRight(string(name), "\x00"), maxDepth)
			}
			if err != nil {
				return err
			}
		}
	}
	needed, _ := e.ImportedLibraries()
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		lists, _ := e.DynString(tag)
		for _, list := range lists {
			for dir := range strings.SplitSeq(list, ":") {
				dir = strings.NewReplacer("$ORIGIN", path.Dir(at), "${ORIGIN}", path.Dir(at)).Replace(dir)
				if path.IsAbs(dir) {
					own = append(slices.Clip(own), path.Clean(dir))
				}
			}
		}
	}
	for _, n := range needed {
		if err := l.library(n, own); err != nil {
			return err
		}
	}
	return nil
}

// library adds a library under each of the names that the loader may find it by.
func (l *search) library(name string, own []string) error {
	if strings.Contains(name, "/") {
		return nil // no library of a system is named so
	}
	for _, dir := range slices.Concat(own, l.folders) {
		if err := l.add(path.Join(dir, name), own); err != nil {
			return err
		}
	}
	return nil
}

// add adds a library with those that it names, which are looked for in its user's own folders too.
func (l *search) add(name string, own []string) error {
	f, at, err := l.in.Open(name)
	if err != nil || l.seen[at] {
		if err == nil {
			f.Close()
		}
		return nil
	}
	defer f.Close()
	if l.seen[at] = true; len(l.seen) > maxFiles {
		return ErrTooMany
	}
	l.files.Read = append(l.files.Read, at)
	return l.elf(f, at, false, own)
}

// Glob returns the names in a root that match an absolute pattern. A name that ends in "/" stays as it is.
func Glob(root, pattern string) []string {
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}
	}
	end := ""
	if strings.HasSuffix(pattern, "/") {
		end = "/"
	}
	found, _ := fs.Glob(os.DirFS(root), path.Clean(pattern)[1:])
	for i := range found {
		found[i] = "/" + found[i] + end
	}
	return found
}

// configured returns the folders that a file for the loader names.
func (l *search) configured(name string, depth int) (dirs []string) {
	f, _, err := l.in.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(io.LimitReader(f, 64<<10)); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "include" && path.IsAbs(words[1]) && depth < maxDepth:
			for _, f := range Glob(l.root, words[1]) {
				dirs = append(dirs, l.configured(f, depth+1)...)
			}
		case len(words) == 1 && path.IsAbs(words[0]):
			dirs = append(dirs, path.Clean(words[0]))
		}
	}
	return dirs
}
