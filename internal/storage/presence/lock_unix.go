//go:build unix

package presence

import (
	"errors"
	"os"
	"syscall"
)

// holdFile locks a file for this process, and reports false where another has locked it.
func holdFile(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
