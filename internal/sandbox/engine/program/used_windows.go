package program

import (
	"syscall"
	"time"
)

// used is the processor time of this process.
func used() time.Duration {
	var created, exited, kernel, user syscall.Filetime
	self, err := syscall.GetCurrentProcess()
	if err != nil || syscall.GetProcessTimes(self, &created, &exited, &kernel, &user) != nil {
		return 0
	}
	span := func(f syscall.Filetime) time.Duration { // in units of 100 ns
		return time.Duration(uint64(f.HighDateTime)<<32|uint64(f.LowDateTime)) * 100
	}
	return span(kernel) + span(user)
}
