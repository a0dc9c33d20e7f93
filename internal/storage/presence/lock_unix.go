//go:build unix

package presence

import (
	"errors"
	"os"
	"syscall"
)

// Hold locks a file for as long as it stays open. It reports false if another process has the lock.
func Hold(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
