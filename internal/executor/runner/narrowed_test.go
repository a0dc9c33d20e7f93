package runner

import (
	"slices"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/sandbox"
)

func TestNarrowed(t *testing.T) {
	given := sandbox.Limits{Wall: 30 * time.Second, CPU: 10 * time.Second, Memory: 512 << 20, Pids: 64, Files: 64,
		Disk: 256 << 20, Output: 200 << 10}
	if got := narrowed(call.Limits{Wall: 30 * time.Second, Memory: 1 << 20}, given); got != nil {
		t.Errorf("control: %q", got)
	}
	got := narrowed(call.Limits{Wall: time.Minute, Memory: 1 << 30}, given)
	if want := []string{"time: 1m0s were asked for, and the contract allows 30s",
		"MB of memory: 1024 were asked for, and the contract allows 512"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
