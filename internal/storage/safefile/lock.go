package safefile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// LockWithin takes the lock of a file alone when it is free, or returns the error of a context that ends first.
func LockWithin(ctx context.Context, f *os.File) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if free, err := TryLock(f, false); free || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Claim makes a file, and locks it while it has its name. A process that finds a file before its maker locked it can lock
// it for a moment, and remove it: then another is made.
func Claim(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err = Lock(f, false); err == nil && Named(f) {
			return f, nil
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// Named reports whether a file that was opened by its path is still the one there. Who locks a file asks after that: the
// one who had the lock can have removed it, and another can have its name.
func Named(f *os.File) bool {
	here, err := f.Stat()
	there, lerr := os.Lstat(f.Name())
	return err == nil && lerr == nil && os.SameFile(here, there)
}

// Unclaim removes a locked file and then frees its lock: who has the lock of a file that is there keeps its name. Where an
// open file cannot be removed, it is removed after.
func Unclaim(f *os.File) error {
	removed := os.Remove(f.Name())
	closed := f.Close()
	if removed != nil {
		removed = os.Remove(f.Name())
	}
	if errors.Is(removed, fs.ErrNotExist) {
		removed = nil
	}
	return errors.Join(removed, closed)
}
