package cpython

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	wasi "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
)

// Files are the folders of a workspace. Each is an os.Root: no name and no link leads out of it. A program makes no
// links.
type Files struct {
	Roots map[string]*os.Root // by the name of the folder
	Fixed map[string]bool     // the folders that are only read
	Bytes int64               // that may still be written
	Names int                 // files and folders that may still be made
}

// workspace is /workspace. Before the job is there, it is empty.
type workspace struct {
	wasi.UnimplementedFS
	late *late
}

// at returns the folder that a path is in, and the name there.
func (w workspace) at(name string, write bool) (*os.Root, string, wasi.Errno) {
	top, below, _ := strings.Cut(path.Clean(name), "/")
	if top == ".workspace" { // the old name
		top = "output"
	}
	f := w.late.job.Files
	if f == nil || f.Roots[top] == nil {
		return nil, "", wasi.ENOENT
	}
	if write && f.Fixed[top] {
		return nil, "", wasi.EROFS
	}
	if below == "" {
		below = "."
	}
	return f.Roots[top], below, 0
}

// isTop reports whether a path is /workspace itself.
func isTop(name string) bool {
	name = path.Clean(name)
	return name == "." || name == "/" || name == ""
}

var flags = []struct {
	wasi wasi.Oflag
	os   int
}{
	{wasi.O_APPEND, os.O_APPEND}, {wasi.O_CREAT, os.O_CREATE}, {wasi.O_EXCL, os.O_EXCL}, {wasi.O_TRUNC, os.O_TRUNC},
}

// OpenFile satisfies wasi.FS.
func (w workspace) OpenFile(name string, flag wasi.Oflag, perm fs.FileMode) (wasi.File, wasi.Errno) {
	if isTop(name) {
		return &top{late: w.late}, 0
	}
	mode, write := os.O_RDONLY, flag&(wasi.O_CREAT|wasi.O_TRUNC|wasi.O_APPEND) != 0
	switch flag & (wasi.O_RDONLY | wasi.O_WRONLY | wasi.O_RDWR) {
	case wasi.O_RDWR:
		mode, write = os.O_RDWR, true
	case wasi.O_WRONLY:
		mode, write = os.O_WRONLY, true
	}
	root, below, errno := w.at(name, write)
	if errno != 0 {
		return nil, errno
	}
	for _, f := range flags {
		if flag&f.wasi != 0 {
			mode |= f.os
		}
	}
	old, err := root.Stat(below)
	switch {
	case err == nil && !old.IsDir() && !old.Mode().IsRegular():
		return nil, wasi.EACCES // a FIFO would wait, a device would act
	case err == nil && old.IsDir() && write:
		return nil, wasi.EISDIR
	case err == nil && !old.IsDir() && flag&wasi.O_DIRECTORY != 0:
		return nil, wasi.ENOTDIR
	case err != nil && flag&wasi.O_CREAT != 0:
		if errno := w.late.job.Files.make(); errno != 0 {
			return nil, errno
		}
	}
	f, err := root.OpenFile(below, mode, perm.Perm()&0o755|0o600)
	if err != nil {
		return nil, reason(err)
	}
	return &file{File: f, budget: w.late.job.Files, append: mode&os.O_APPEND != 0}, 0
}

// make takes one name from the budget.
func (f *Files) make() wasi.Errno {
	if f.Names <= 0 {
		return wasi.EIO // the package has no ENOSPC
	}
	f.Names--
	return 0
}

func reason(err error) wasi.Errno {
	if err == nil {
		return 0
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		err = link.Err
	}
	if errno := wasi.UnwrapOSError(err); errno != wasi.EIO {
		return errno
	}
	return wasi.EACCES // a path that leads out of its folder
}

// Stat satisfies wasi.FS.
func (w workspace) Stat(name string) (sys.Stat_t, wasi.Errno) { return w.stat(name, (*os.Root).Stat) }

// Lstat satisfies wasi.FS.
func (w workspace) Lstat(name string) (sys.Stat_t, wasi.Errno) { return w.stat(name, (*os.Root).Lstat) }

func (w workspace) stat(name string, of func(*os.Root, string) (fs.FileInfo, error)) (sys.Stat_t, wasi.Errno) {
	if isTop(name) {
		return sys.Stat_t{Mode: fs.ModeDir | 0o755, Nlink: 1, Ino: 1}, 0
	}
	root, below, errno := w.at(name, false)
	if errno != 0 {
		return sys.Stat_t{}, errno
	}
	info, err := of(root, below)
	if err != nil {
		return sys.Stat_t{}, reason(err)
	}
	return sys.NewStat_t(info), 0
}

// Readlink satisfies wasi.FS.
func (w workspace) Readlink(name string) (string, wasi.Errno) {
	root, below, errno := w.at(name, false)
	if errno != 0 {
		return "", errno
	}
	to, err := root.Readlink(below)
	return to, reason(err)
}

// change makes one change to a name that can be written.
func (w workspace) change(name string, act func(r *os.Root, below string) error) wasi.Errno {
	root, below, errno := w.at(name, true)
	if errno != 0 {
		return errno
	}
	return reason(act(root, below)) // a root's own name cannot be removed, moved or made
}

// Mkdir satisfies wasi.FS.
func (w workspace) Mkdir(name string, _ fs.FileMode) wasi.Errno {
	return w.change(name, func(r *os.Root, below string) error {
		if w.late.job.Files.make() != 0 {
			return wasi.EIO
		}
		return r.Mkdir(below, 0o755)
	})
}

// Rmdir satisfies wasi.FS.
func (w workspace) Rmdir(name string) wasi.Errno { return w.Unlink(name) }

// Unlink satisfies wasi.FS.
func (w workspace) Unlink(name string) wasi.Errno {
	return w.change(name, func(r *os.Root, below string) error { return r.Remove(below) })
}

// Utimens satisfies wasi.FS. Times are not a program's to set.
func (w workspace) Utimens(string, int64, int64) wasi.Errno { return 0 }

// Rename satisfies wasi.FS. It works within one folder.
func (w workspace) Rename(from, to string) wasi.Errno {
	old, below, errno := w.at(from, true)
	if errno != 0 {
		return errno
	}
	return w.change(to, func(r *os.Root, name string) error {
		if r != old {
			return wasi.EINVAL
		}
		return r.Rename(below, name)
	})
}

// offset is a position in a file. `go vet` takes a Seek of int64 for io.Seeker's, whose error is another type.
type offset = int64

// absent has the methods that a folder has not. It is a type of its own so that those of DirFile come before its.
type absent struct{ wasi.UnimplementedFile }

// top is the folder /workspace.
type top struct {
	wasi.DirFile
	absent
	late *late
	read bool
}

func (t *top) Dev() (uint64, wasi.Errno)    { return 0, 0 }
func (t *top) Ino() (sys.Inode, wasi.Errno) { return 1, 0 }
func (t *top) Stat() (sys.Stat_t, wasi.Errno) {
	return sys.Stat_t{Mode: fs.ModeDir | 0o755, Nlink: 1, Ino: 1}, 0
}
func (t *top) Close() wasi.Errno                    { return 0 }
func (t *top) Seek(offset, int) (int64, wasi.Errno) { t.read = false; return 0, 0 }

// Readdir satisfies wasi.File.
func (t *top) Readdir(int) (all []wasi.Dirent, _ wasi.Errno) {
	if t.late.job.Files == nil || t.read {
		return nil, 0
	}
	t.read = true
	for i, name := range []string{"input", "output", "tmp"} {
		if t.late.job.Files.Roots[name] != nil { // the C library looks an entry without a number up once more
			all = append(all, wasi.Dirent{Ino: sys.Inode(i + 2), Name: name, Type: fs.ModeDir})
		}
	}
	return all, 0
}

// file is an open file or folder of a workspace.
type file struct {
	wasi.UnimplementedFile
	*os.File
	budget *Files
	append bool
}

// Dev satisfies wasi.File.
func (f *file) Dev() (uint64, wasi.Errno) { return 1, 0 }

// Ino satisfies wasi.File.
func (f *file) Ino() (sys.Inode, wasi.Errno) { st, errno := f.Stat(); return st.Ino, errno }

// IsDir satisfies wasi.File.
func (f *file) IsDir() (bool, wasi.Errno) { st, errno := f.Stat(); return st.Mode.IsDir(), errno }

// IsAppend satisfies wasi.File.
func (f *file) IsAppend() bool { return f.append }

// SetAppend satisfies wasi.File.
func (f *file) SetAppend(on bool) wasi.Errno { f.append = on; return 0 }

// Stat satisfies wasi.File.
func (f *file) Stat() (sys.Stat_t, wasi.Errno) {
	info, err := f.File.Stat()
	if err != nil {
		return sys.Stat_t{}, reason(err)
	}
	return sys.NewStat_t(info), 0
}

// end makes the end of a file no error, as read(2) does.
func end(n int, err error) (int, wasi.Errno) {
	if err == io.EOF {
		err = nil
	}
	return n, reason(err)
}

// Read satisfies wasi.File.
func (f *file) Read(b []byte) (int, wasi.Errno) { return end(f.File.Read(b)) }

// Pread satisfies wasi.File.
func (f *file) Pread(b []byte, off int64) (int, wasi.Errno) { return end(f.File.ReadAt(b, off)) }

// Seek satisfies wasi.File.
func (f *file) Seek(at offset, whence int) (int64, wasi.Errno) {
	n, err := f.File.Seek(at, whence)
	return n, reason(err)
}

// Readdir satisfies wasi.File.
func (f *file) Readdir(n int) (all []wasi.Dirent, _ wasi.Errno) {
	entries, err := f.File.ReadDir(n)
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it is gone by now
			all = append(all, wasi.Dirent{Ino: max(sys.NewStat_t(info).Ino, 1), Name: e.Name(), Type: e.Type()})
		}
	}
	if err == io.EOF {
		err = nil
	}
	return all, reason(err)
}

// spend takes bytes from the budget.
func (f *file) spend(n int64) bool {
	f.budget.Bytes -= n
	return f.budget.Bytes >= 0
}

// Write satisfies wasi.File.
func (f *file) Write(b []byte) (int, wasi.Errno) {
	if !f.spend(int64(len(b))) {
		return 0, wasi.EIO
	}
	if f.append {
		if _, err := f.File.Seek(0, io.SeekEnd); err != nil {
			return 0, reason(err)
		}
	}
	return end(f.File.Write(b))
}

// Pwrite satisfies wasi.File.
func (f *file) Pwrite(b []byte, off int64) (int, wasi.Errno) {
	if !f.spend(int64(len(b))) {
		return 0, wasi.EIO
	}
	return end(f.File.WriteAt(b, off))
}

// Truncate satisfies wasi.File. Added bytes count as written.
func (f *file) Truncate(size int64) wasi.Errno {
	st, errno := f.Stat()
	if errno != 0 {
		return errno
	}
	if size > st.Size && !f.spend(size-st.Size) {
		return wasi.EIO
	}
	return reason(f.File.Truncate(size))
}

// Sync satisfies wasi.File. waldo copies the files out after the program's end.
func (f *file) Sync() wasi.Errno { return 0 }

// Datasync satisfies wasi.File.
func (f *file) Datasync() wasi.Errno { return 0 }

// Utimens satisfies wasi.File.
func (f *file) Utimens(int64, int64) wasi.Errno { return 0 }

// Close satisfies wasi.File.
func (f *file) Close() wasi.Errno { return reason(f.File.Close()) }
