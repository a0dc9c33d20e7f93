package files

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

const nonblock = unix.O_NONBLOCK | unix.O_NOCTTY

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
