package safefile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Exact opens a folder by an absolute path. A part of the path that is a link, also one that appears at that moment, is
// refused.
func Exact(path string) (*os.Root, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return exactPortably(path)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EAGAIN):
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrChanged}
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	was, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return openAs(path, was)
}

// Step opens a folder by its name. The kernel refuses a link there, also one that appears at that moment (openat2(2),
// Linux 5.6). Without openat2 or /proc the portable way is taken.
func Step(here *os.Root, part string) (*os.Root, error) {
	d, err := here.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Openat2(int(d.Fd()), part, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return stepPortably(here, part)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EAGAIN):
		return nil, ErrChanged
	case errors.Is(err, unix.ENOTDIR):
		return nil, ErrNoFolder
	case err != nil:
		return nil, err
	}
	defer unix.Close(fd)
	next, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
	if errors.Is(err, os.ErrNotExist) {
		return stepPortably(here, part)
	}
	return next, err
}
