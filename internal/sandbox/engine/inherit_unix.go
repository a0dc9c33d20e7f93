//go:build !windows

package engine

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// inherit gives a process files, and returns their numbers there.
func inherit(c *exec.Cmd, files []*os.File) []uintptr {
	c.ExtraFiles = files
	handles := make([]uintptr, len(files))
	for i := range files {
		handles[i] = uintptr(3 + i)
	}
	return handles
}

// peak is the most memory that a process had, in bytes.
func peak(s *os.ProcessState) int64 {
	u, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}
