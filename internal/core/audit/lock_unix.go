//go:build unix

package audit

import (
	"os"

	"golang.org/x/sys/unix"
)

// noFollow makes an open fail on a link.
const noFollow = unix.O_NOFOLLOW | unix.O_CLOEXEC

// tryLock takes the lock, shared or exclusive, and reports whether it did. It never waits. The
// kernel gives the lock back when the process ends.
func tryLock(f *os.File, shared bool) (bool, error) {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EWOULDBLOCK {
			return false, nil
		}
		return err == nil, err
	}
}

func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}
