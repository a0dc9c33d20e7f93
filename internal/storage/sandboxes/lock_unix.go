//go:build unix

package sandboxes

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a file for this process without waiting; the kernel gives it back when the process ends.
func lock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// wait takes a file, alone or with others who do not want it alone, when it is free.
func wait(f *os.File, alone bool) error {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	return syscall.Flock(int(f.Fd()), how)
}
