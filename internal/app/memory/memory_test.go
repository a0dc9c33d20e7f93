package memory

import (
	"runtime/debug"
	"testing"
)

// TestServing: the collector gets waldo's setting, unless the operator has set one.
func TestServing(t *testing.T) {
	before := debug.SetGCPercent(77)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "77")
	Serving()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("with GOGC=77: %d", got)
	}
	t.Setenv("GOGC", "")
	Starting()
	if got := debug.SetGCPercent(77); got != 400 {
		t.Errorf("at the start, without GOGC: %d", got)
	}
	Serving()
	if got := debug.SetGCPercent(77); got != 120 {
		t.Errorf("without GOGC: %d", got)
	}
}
