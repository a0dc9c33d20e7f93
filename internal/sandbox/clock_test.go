package sandbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"waldo/internal/sandbox"
)

// TestClock: the clock is stopped while at least one question is open, and no longer than MaxStopped in total.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *sandbox.Clock
		c, began := &sandbox.Clock{}, time.Now()
		left := func(want time.Duration) {
			t.Helper()
			if got := c.Left(began, 30*time.Second); got != want {
				t.Errorf("%v left, want %v", got, want)
			}
		}
		time.Sleep(10 * time.Second)
		left(20 * time.Second)
		first, second := c.Stop(), c.Stop()
		time.Sleep(2 * time.Minute)
		left(20 * time.Second)
		first()
		first()
		time.Sleep(time.Minute)
		left(20 * time.Second)
		second()
		time.Sleep(5 * time.Second)
		left(15 * time.Second)
		if got := none.Left(began, time.Hour); got != time.Hour-195*time.Second {
			t.Errorf("no clock: %v left", got)
		}
		c.Stop()
		time.Sleep(2 * time.Hour)
		if got := c.Stopped(); got != sandbox.MaxStopped {
			t.Errorf("stopped for %v", got)
		}
		if left := c.Left(began, 30*time.Second); left > 0 {
			t.Errorf("%v left of a clock that stood still for longer than it can", left)
		}
	})
}
