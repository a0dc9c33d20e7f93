// Package workspace holds one session's files: input, which a sandbox sees read-only, output, which it leaves behind,
// and tmp. It opens every outside name beneath its folder, with all its links and dots.
package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"waldo/internal/model/id"
)

// Folder is one of the places of a workspace.
type Folder string

// The folders.
const (
	Input  Folder = "input"
	Output Folder = "output"
	Tmp    Folder = "tmp"
	Files  Folder = "files" // /workspace itself, of a named sandbox; created at its first use
	Spill  Folder = "spill" // results that were too long for the agent; created at its first use
)

// MaxName is how many bytes the name of a file may have, folders included; MaxDepth is how many
// folders it may stand in.
const (
	MaxName  = 4096
	MaxDepth = 64
)

// ErrName: a file of a workspace cannot have this name.
var ErrName = errors.New("not the name of a file below the workspace")

// Workspace is the open workspace of one session. The zero Workspace has no folders.
type Workspace struct {
	dir     string
	mu      sync.Mutex
	folders map[Folder]*os.Root // those that were asked for; nil: it is closed
}

// Open opens the workspace id ("w_…") below root, making its folders, mode 0700, where they are
// absent. It refuses a root that others can write.
func Open(root, ident string) (*Workspace, error) {
	if !id.Is(id.Workspace, ident) {
		return nil, fmt.Errorf("workspace %q: not a workspace id", ident)
	}
	w, err := OpenFolder(filepath.Join(root, ident))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	if err := os.Chtimes(w.dir, now, now); err != nil { // when it was last opened, for Sweep
		return nil, err
	}
	return w, nil
}

// OpenFolder opens a folder that an operator named as a workspace, making input, output and tmp
// in it where they are absent. It refuses one that others can write.
func OpenFolder(dir string) (*Workspace, error) {
	w := &Workspace{dir: dir, folders: map[Folder]*os.Root{}}
	for _, f := range []Folder{Input, Output, Tmp} {
		if err := w.Add(f); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Add makes a folder of the workspace, mode 0700, where it is absent. It refuses one that others can write.
func (w *Workspace) Add(f Folder) error {
	err := private(w.Path(f))
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(w.Path(f), 0o700); err == nil {
			err = private(w.Path(f))
		}
	}
	return err
}

// private refuses a folder that is a link or that others can write.
func private(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !st.IsDir() || st.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("workspace %s: others must not be able to write it; chmod go-w it", dir)
	}
	return nil
}

// Path returns where a folder is on the host.
func (w *Workspace) Path(f Folder) string { return filepath.Join(w.dir, string(f)) }

// Close lets go of the folders. The files stay.
func (w *Workspace) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, r := range w.folders {
		errs = append(errs, r.Close())
	}
	w.folders = nil
	return errors.Join(errs...)
}

// Destroy closes the workspace and deletes its files.
func (w *Workspace) Destroy() error { return errors.Join(w.Close(), os.RemoveAll(w.dir)) }

// Clean returns the stored form of name: slashes, no dots, relative. It refuses absolute names, names that climb
// above the folder, NUL, backslashes, invalid UTF-8 and long names.
func Clean(name string) (string, error) {
	switch {
	case name == "", len(name) > MaxName, !utf8.ValidString(name),
		strings.ContainsAny(name, "\x00\\"), strings.HasPrefix(name, "/"):
		return "", ErrName
	}
	clean := path.Clean(name)
	if clean == "." || !filepath.IsLocal(clean) || strings.Count(clean, "/") >= MaxDepth {
		return "", ErrName
	}
	return clean, nil
}

// ErrApart: a file would cover another folder of the workspace.
var ErrApart = errors.New("input, output, tmp and spill are folders of their own")

// apart refuses a clean name in Files that leads into another folder, as the code finds it in /workspace.
func apart(f Folder, name string) error {
	top, _, _ := strings.Cut(name, "/")
	if f == Files && (top == string(Input) || top == string(Output) || top == string(Tmp) || top == string(Spill)) {
		return fmt.Errorf("%s: %w", name, ErrApart)
	}
	return nil
}

// folder returns a folder, which the first that asks for it opens: most runs bring no files.
func (w *Workspace) folder(f Folder) (*os.Root, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.folders[f]; r != nil {
		return r, nil
	}
	if w.folders == nil || !slices.Contains([]Folder{Input, Output, Tmp, Files, Spill}, f) {
		return nil, fmt.Errorf("workspace: no folder %q is open", f)
	}
	check := private(w.Path(f))
	if f == Files || f == Spill {
		check = w.Add(f)
	}
	if check != nil {
		return nil, check
	}
	r, err := os.OpenRoot(w.Path(f))
	if err == nil {
		w.folders[f] = r
	}
	return r, err
}

// Put writes a file of at most limit bytes, mode 0600, making the folders it stands in. A file that
// is there is replaced, never written through, and stays where the new one cannot be written whole.
func (w *Workspace) Put(f Folder, name string, from io.Reader, limit int64) error {
	r, err := w.folder(f)
	if err != nil {
		return err
	}
	if name, err = Clean(name); err != nil {
		return err
	}
	if err := apart(f, name); err != nil {
		return err
	}
	_, err = put(r, name, from, limit)
	return err
}

// put does what Put says for a clean name, and returns how many bytes it wrote.
func put(r *os.Root, name string, from io.Reader, limit int64) (int64, error) {
	if err := r.MkdirAll(path.Dir(name), 0o700); err != nil {
		return 0, err
	}
	return Replace(r, name, 0o600, from, limit)
}

// Replace atomically replaces a file with at most limit bytes. After an error the old file stays. It returns the
// number of bytes written.
func Replace(r *os.Root, name string, mode fs.FileMode, from io.Reader, limit int64) (int64, error) {
	temp := path.Join(path.Dir(name), ".waldo-"+id.New(id.Record))
	file, err := r.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(file, io.LimitReader(from, limit+1))
	err = errors.Join(err, file.Close())
	if e := (*fs.PathError)(nil); errors.As(err, &e) && e.Path == file.Name() {
		e.Path = name
	}
	if err == nil && n > limit {
		err = fmt.Errorf("%q is longer than the %d bytes that are left: %w", name, limit, ErrTooMuch)
	}
	if st, serr := r.Lstat(name); err == nil && serr == nil && st.IsDir() {
		err = r.Remove(name) // an empty one
	}
	if err == nil {
		err = r.Rename(temp, name)
	}
	if err != nil {
		_ = r.Remove(temp)
	}
	return n, err
}

// Get opens a regular file for reading. A link, even one that stays inside, is refused.
func (w *Workspace) Get(f Folder, name string) (*os.File, error) {
	r, err := w.folder(f)
	if err != nil {
		return nil, err
	}
	if name, err = Clean(name); err != nil {
		return nil, err
	}
	named, err := r.Lstat(name)
	if err != nil {
		return nil, err
	}
	file, err := r.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for who writes
	if err != nil {
		return nil, err
	}
	// Check the opened file: its name may have changed meaning.
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() || !os.SameFile(st, named) {
		return nil, errors.Join(fmt.Errorf("%q: %w", name, ErrName), file.Close())
	}
	return file, nil
}

// Executable lets the owner of a regular file execute it.
func (w *Workspace) Executable(f Folder, name string) error {
	file, err := w.Get(f, name)
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(0o700), file.Close())
}

// Remove deletes one file or an empty folder, also one with a name that Put would refuse. A missing file and a folder
// with content are not errors.
func (w *Workspace) Remove(f Folder, name string) error {
	r, err := w.folder(f)
	if err != nil {
		return err
	}
	if name = path.Clean(name); name == "." || !filepath.IsLocal(name) {
		return ErrName
	}
	if err := r.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

// Clear deletes everything in a folder, and keeps the folder.
func (w *Workspace) Clear(f Folder) error {
	r, err := w.folder(f)
	if err != nil {
		return err
	}
	names, err := fs.ReadDir(r.FS(), ".")
	for _, n := range names {
		err = errors.Join(err, r.RemoveAll(n.Name()))
	}
	return err
}

// File is one file of a workspace.
type File struct {
	Name string // below its folder, with slashes
	Exec bool   // its owner may execute it
}

// List returns the regular files of a folder by name, at most limit of them.
func (w *Workspace) List(f Folder, limit int) ([]File, error) {
	r, err := w.folder(f)
	if err != nil {
		return nil, err
	}
	var out []File
	err = fs.WalkDir(r.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		if len(out) >= limit {
			return fs.SkipAll
		}
		out = append(out, File{Name: name, Exec: st.Mode()&0o100 != 0})
		return nil
	})
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, err
}
