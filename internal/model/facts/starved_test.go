package facts

import (
	"strings"
	"testing"
)

// TestStarved: a crash is laid on memory only where the kernel refuses memory to processes, and the limit or the use
// makes that likely.
func TestStarved(t *testing.T) {
	for _, c := range []struct {
		name        string
		signal      string
		limit, peak int64
		warnings    []string
		driver      string
		want        bool
	}{
		{"a small limit", "SIGSEGV", 1 << 20, 0, []string{NoMemoryCgroup}, "namespace", true},
		{"confined has no cgroup", "SIGABRT", 1 << 20, 0, nil, "confined", true},
		{"most of a large limit", "SIGTRAP", 512 << 20, 300 << 20, []string{NoMemoryCgroup}, "namespace", true},
		{"little of a large limit", "SIGSEGV", 512 << 20, 10 << 20, []string{NoMemoryCgroup}, "namespace", false},
		{"a cgroup", "SIGSEGV", 1 << 20, 0, nil, "namespace", false},
		{"a kill", "SIGKILL", 1 << 20, 0, []string{NoMemoryCgroup}, "namespace", false},
		{"no signal", "", 1 << 20, 0, []string{NoMemoryCgroup}, "namespace", false},
	} {
		f := New()
		if c.signal != "" {
			f.Signal = &c.signal
		}
		f.Limits.MemoryBytes, f.Usage.MemoryPeak, f.Warnings, f.Sandbox.Driver = c.limit, c.peak, c.warnings, c.driver
		got := f.Starved()
		if (got != "") != c.want || c.want && (!strings.Contains(got, c.signal+" is probably") ||
			!strings.Contains(got, "--memory-mb")) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
