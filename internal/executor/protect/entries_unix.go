//go:build unix

package protect

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// entries returns the names of a folder with their types. A file that an os.Root opened asks the kernel for each name;
// a file of the same descriptor does not.
func entries(f *os.File) ([]fs.DirEntry, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, failed := -1, error(nil)
	if err := conn.Control(func(own uintptr) { fd, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	same := os.NewFile(uintptr(fd), f.Name())
	defer same.Close()
	return same.ReadDir(-1)
}
