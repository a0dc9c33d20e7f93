//go:build unix

package safefile

import (
	"os"

	"golang.org/x/sys/unix"
)

// NoFollow makes an open fail on a link.
const NoFollow = unix.O_NOFOLLOW | unix.O_CLOEXEC

// noWait makes an open of a pipe return at once.
const noWait = unix.O_NONBLOCK

// TryLock takes the lock of a file, shared or alone, and reports whether it did. It never waits. The kernel gives the
// lock back when the file is closed or the process ends.
func TryLock(f *os.File, shared bool) (bool, error) {
	err := flock(f, how(shared)|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// Lock takes the lock of a file when it is free.
func Lock(f *os.File, shared bool) error { return flock(f, how(shared)) }

// Unlock gives the lock back before the file is closed.
func Unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

func how(shared bool) int {
	if shared {
		return unix.LOCK_SH
	}
	return unix.LOCK_EX
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}
