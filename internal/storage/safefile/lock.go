package safefile

import (
	"context"
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
