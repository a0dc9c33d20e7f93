package sandbox

import (
	"sync"
	"time"
)

// MaxStopped is how long the clock of one run stands still at most, in all.
const MaxStopped = time.Hour

// Clock says for how long the wall clock of a run stood still, because a human was asked. It stands still while at least
// one question is open. A nil Clock never does.
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

// Stopped returns for how long the clock has stood still, MaxStopped at most.
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

// Again is when to look again at a clock with so much left: not at once where it stands still.
func Again(left time.Duration) time.Duration { return max(left, 20*time.Millisecond) }
