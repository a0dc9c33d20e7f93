package sandbox

import (
	"sync"
	"time"
)

// MaxStopped is the longest time for which the clock of one run stops, in total.
const MaxStopped = time.Hour

// Clock measures for how long the wall clock of a run was stopped while a human was asked. It is stopped while
// at least one question is open. A nil Clock never stops.
type Clock struct {
	mu      sync.Mutex
	open    int       // questions
	since   time.Time // when the first of those was put
	stopped time.Duration
}

// Stop stops the clock until start is called.
func (c *Clock) Stop() (start func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open++; c.open == 1 {
		c.since = time.Now()
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open--; c.open == 0 {
			c.stopped += time.Since(c.since)
		}
	})
}

// Stopped returns for how long the clock was stopped, MaxStopped at most.
func (c *Clock) Stopped() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.stopped
	if c.open > 0 {
		d += time.Since(c.since)
	}
	return min(d, MaxStopped)
}

// Left returns how much is left of a wall-clock limit of a run that began then.
func (c *Clock) Left(began time.Time, limit time.Duration) time.Duration {
	return limit + c.Stopped() - time.Since(began)
}

// Again returns the time until the next check of a clock with so much left. It has a lower bound for a stopped
// clock.
func Again(left time.Duration) time.Duration { return max(left, 20*time.Millisecond) }
