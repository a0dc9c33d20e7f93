//go:build unix

package sqlite

import (
	"time"

	"golang.org/x/sys/unix"
)

// limit bounds the memory and the processor time of this process.
func limit(memory uint64, processor time.Duration) {
	seconds := uint64(processor/time.Second) + 2
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: memory, Max: memory})
	_ = unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds})
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}
