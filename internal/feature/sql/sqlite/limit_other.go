//go:build !unix

package sqlite

import "time"

// limit does nothing: only the end of its time ends this process.
func limit(uint64, time.Duration) {}
