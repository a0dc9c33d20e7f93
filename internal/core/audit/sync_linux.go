package audit

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// dataSync makes the bytes of a file and its length durable, and not the times in its inode,
// which costs a third of fsync (fdatasync(2)). A closed file is fs.ErrClosed.
func dataSync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	closed := raw.Control(func(fd uintptr) { // holds the file open meanwhile
		for {
			if failed = unix.Fdatasync(int(fd)); failed != unix.EINTR {
				return
			}
		}
	})
	if closed != nil {
		return fs.ErrClosed
	}
	return failed
}
