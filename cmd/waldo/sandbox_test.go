package main

import (
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/sandbox"
	"waldo/internal/storage/sandboxes"
)

// TestProcessorFitsTheTime: a command that may run for longer has processor time for it, unless somebody set that.
func TestProcessorFitsTheTime(t *testing.T) {
	l := sandbox.Limits{Wall: 30 * time.Second, CPU: 10 * time.Second}
	for _, row := range []struct {
		why   string
		e     execFlags
		fixed bool
		want  time.Duration
	}{
		{"nothing said", execFlags{}, false, 30 * time.Second},
		{"a longer time", execFlags{timeout: 10 * time.Minute}, false, 10 * time.Minute},
		{"in the background", execFlags{as: "c_x"}, false, app.MostLimits.Wall},
		{"the sandbox's was set", execFlags{timeout: 10 * time.Minute}, true, 10 * time.Second},
		{"the command's was set", execFlags{timeout: 10 * time.Minute, cpu: 1.5}, true, 1500 * time.Millisecond},
	} {
		if got := row.e.processor(sandboxes.Sandbox{Limits: l, CPUFixed: row.fixed}); got != row.want {
			t.Errorf("%s: %v, want %v", row.why, got, row.want)
		}
	}
}
