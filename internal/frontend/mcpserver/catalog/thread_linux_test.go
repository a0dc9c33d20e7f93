package catalog

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the processor time of this thread so far.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
