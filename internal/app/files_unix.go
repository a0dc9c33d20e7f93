//go:build unix

package app

import "syscall"

// openFiles is how many files waldo may have open; 0: it cannot be told.
func openFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(uint64(l.Cur), 1<<30))
}
