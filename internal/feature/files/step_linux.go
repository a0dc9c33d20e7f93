package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const nonblock = unix.O_NONBLOCK | unix.O_NOCTTY

// step opens a folder by its name. The kernel refuses a link there, also one that appears at that moment (openat2(2),
// Linux 5.6). Without openat2 or /proc the portable way is taken.
func step(here *os.Root, part string) (*os.Root, error) {
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
		return nil, errChanged
	case errors.Is(err, unix.ENOTDIR):
		return nil, errNoDir
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

// inode names the inode of a file and the time of its last change, which no program can set.
func inode(i fs.FileInfo) string {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d %d.%d", s.Ino, s.Ctim.Sec, s.Ctim.Nsec)
}

// renameOnto renames from to to, and never over a file that is there.
func (j *jail) renameOnto(from, to *place) error {
	a, err := from.dir.Open(".")
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := to.dir.Open(".")
	if err != nil {
		return err
	}
	defer b.Close()
	return unix.Renameat2(int(a.Fd()), from.base, int(b.Fd()), to.base, unix.RENAME_NOREPLACE)
}
