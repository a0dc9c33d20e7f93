package bounds

import (
	"context"
	"sync"
	"time"
)

// Clock counts the running time of a call; it pauses while a question waits for an answer.
type Clock struct {
	mu      sync.Mutex
	t       *time.Timer
	left    time.Duration
	since   time.Time
	stopped int
}

// WithClock returns a context that ends once the clock has run for so long; context.Cause is then
// DeadlineExceeded, as of a plain deadline.
func WithClock(ctx context.Context, most time.Duration) (context.Context, *Clock, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &Clock{left: most, since: time.Now()}
	c.t = time.AfterFunc(most, func() { cancel(context.DeadlineExceeded) })
	return ctx, c, func() { c.t.Stop(); cancel(context.Canceled) }
}

// Stop stops the clock until Start is called as often.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped++; c.stopped == 1 {
		c.t.Stop()
		c.left -= time.Since(c.since)
	}
}

// Left is how long it can still run.
func (c *Clock) Left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped > 0 {
		return c.left
	}
	return c.left - time.Since(c.since)
}

// Start undoes one Stop.
func (c *Clock) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped--; c.stopped == 0 {
		c.since = time.Now()
		c.t.Reset(max(c.left, time.Millisecond))
	}
}

// Second lets so many things pass in a second.
type Second struct {
	mu    sync.Mutex
	began time.Time
	n     int
}

// Pass reports whether one more thing may pass.
func (r *Second) Pass(perSecond int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.began) >= time.Second {
		r.began, r.n = now, 0
	}
	r.n++
	return r.n <= perSecond
}
