package outline

import (
	"testing"
	"time"
)

// TestTime: a bound keeps its digits and its unit.
func TestTime(t *testing.T) {
	for most, want := range map[time.Duration]string{
		10 * time.Minute: "at most 10m", 30 * time.Minute: "at most 30m", time.Minute: "at most 1m", time.Hour: "at most 1h",
		20 * time.Hour: "at most 20h", 24 * time.Hour: "at most 24h", 30 * 24 * time.Hour: "at most 30 days",
		90 * time.Second: "at most 1m30s", 10 * time.Second: "at most 10s", 61 * time.Minute: "at most 1h1m",
	} {
		if got := Time(most).Bounds; got != want {
			t.Errorf("%s: %q, not %q", most, got, want)
		}
	}
}
