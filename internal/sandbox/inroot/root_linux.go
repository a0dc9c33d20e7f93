package inroot

import (
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is a folder whose files are found as a process with that root would find them.
type Root struct {
	folder *os.File
	path   string // without links; "" for /
}

// Open takes a folder as root.
func Open(dir string) (*Root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	r := &Root{folder: os.NewFile(uintptr(fd), dir)}
	at, err := os.Readlink(r.proc(r.folder))
	if err != nil {
		r.Close()
		return nil, err
	}
	r.path = strings.TrimSuffix(at, "/")
	return r, nil
}

// Close closes the folder.
func (r *Root) Close() error { return r.folder.Close() }

func (r *Root) proc(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Stat returns a file's path in the root, without links, and what it is. The kernel follows the links (openat2(2),
// RESOLVE_IN_ROOT): none leads out.
func (r *Root) Stat(name string) (at string, info fs.FileInfo, err error) {
	f, at, err := r.find(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	info, err = f.Stat()
	return at, info, err
}

// Open opens a regular file or a folder, and returns its path without links. For another kind it returns
// fs.ErrNotExist.
func (r *Root) Open(name string) (f *os.File, at string, err error) {
	found, at, err := r.find(name)
	if err != nil {
		return nil, "", err
	}
	defer found.Close()
	info, err := found.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() { // to open a pipe could wait for ever
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err == nil {
		f, err = os.Open(r.proc(found))
	}
	return f, at, err
}

// find opens what is at a path, for its name and kind alone.
func (r *Root) find(name string) (*os.File, string, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(r.folder.Fd()), name, &how)
	for range maxTries {
		if err != unix.EAGAIN && err != unix.EINTR { // a rename in the same moment
			break
		}
		fd, err = unix.Openat2(int(r.folder.Fd()), name, &how)
	}
	if err != nil {
		return nil, "", &fs.PathError{Op: "openat2", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	at, err := os.Readlink(r.proc(f))
	if err == nil {
		below, ok := strings.CutPrefix(at, r.path)
		if ok && strings.HasPrefix(below, "/") {
			return f, below, nil
		}
		if ok && below == "" {
			return f, "/", nil
		}
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist} // it was moved out meanwhile
	}
	f.Close()
	return nil, "", err
}

// maxTries bounds the repetitions of a search that a rename disturbs.
const maxTries = 100
