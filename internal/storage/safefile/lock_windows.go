package safefile

import (
	"os"

	"golang.org/x/sys/windows"
)

// NoFollow has no meaning on this system.
const NoFollow = 0

const noWait = 0

// TryLock takes the lock of a file, shared or alone, and reports whether it did. It never waits. The system gives the
// lock back when the file is closed or the process ends.
func TryLock(f *os.File, shared bool) (bool, error) {
	err := lock(f, shared, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if err == windows.ERROR_LOCK_VIOLATION {
		return false, nil
	}
	return err == nil, err
}

// Lock takes the lock of a file when it is free.
func Lock(f *os.File, shared bool) error { return lock(f, shared, 0) }

// beyond is where the locked byte lies: far behind the end of the file, because a locked byte cannot be read.
func beyond() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

func lock(f *os.File, shared bool, flags uint32) error {
	if !shared {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	return windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, beyond())
}

// Unlock gives the lock back before the file is closed.
func Unlock(f *os.File) error { return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, beyond()) }

// SyncDir does nothing: this system makes names durable by itself.
func SyncDir(string) error { return nil }
