package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
)

// Clock tells the time and waits. Tests move one by hand.
type Clock interface {
	Now() time.Time
	// Sleep waits for d. It returns false if ctx ends first.
	Sleep(ctx context.Context, d time.Duration) bool
	// Jitter returns a random time below d.
	Jitter(d time.Duration) time.Duration
}

// wallClock is the machine's clock.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) Jitter(d time.Duration) time.Duration { return rand.N(d) }

func (wallClock) Sleep(ctx context.Context, d time.Duration) bool { return rest(ctx, d) }

// Bounds of retries and of the circuit breaker, for each upstream.
const (
	firstGap   = 100 * time.Millisecond // most that the first retry waits; each later one twice as long
	longestGap = 10 * time.Second
	firstSpare = 3               // retries that an upstream has before its first call
	mostSpare  = 10              // and that it can save up
	perCall    = 0.1             // of a retry, that each call adds
	openAfter  = 5               // failures in a row
	firstOpen  = 5 * time.Second // how long the breaker is open then; twice as long after each failed try
	longest    = 2 * time.Minute
)

// circuit counts what happens to the calls of one upstream: failures of its transport alone, never errors of tools.
type circuit struct {
	mu     sync.Mutex
	spare  float64 // retries that it has left, less firstSpare
	fails  int     // in a row
	open   time.Duration
	until  time.Time // when it is half open
	trying bool      // one call tries it

	noting sync.Mutex // one change at a time is passed on
	over   bool       // no change is passed on: a later manager has another circuit
}

// refusal is the reason against a call while the breaker is open. Half open, it lets one read try; if there is none for
// as long again, any call. tries: this call is the one that tries.
func (c *circuit) refusal(d policy.Decision, now time.Time) (why *call.Reason, tries bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spare = min(c.spare+perCall, mostSpare-firstSpare)
	if c.open == 0 {
		return nil, false
	}
	ready := !now.Before(c.until) && (d.Repeats() || !now.Before(c.until.Add(c.open)))
	if ready && !c.trying {
		c.trying = true
		return nil, true
	}
	wait := c.until.Sub(now)
	if !d.Repeats() {
		wait += c.open
	}
	return call.Reason{Code: "upstream.open", Text: fmt.Sprintf("the server failed %d calls in a row, so waldo lets it rest", c.fails)}.
		In(max(wait, time.Second)), false
}

// ended notes how an attempt ended: whether its transport failed. A caller that gave up proves nothing about that.
// Calls that were under way when the breaker opened do not keep it open for longer. It reports whether the breaker
// opened, opened again or closed.
func (c *circuit) ended(tried, failed, gaveUp bool, now time.Time) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tried {
		c.trying = false
	}
	switch {
	case gaveUp:
		return false
	case !failed:
		changed = c.open > 0
		c.fails, c.open = 0, 0
		return changed
	}
	if c.fails++; c.fails >= openAfter && (c.open == 0 || tried) {
		c.open = min(max(firstOpen, 2*c.open), longest)
		c.until = now.Add(c.open)
		return true
	}
	return false
}

// tell passes the state of the breaker on: the failures in a row, and until when it is open; zero: it is closed.
func (c *circuit) tell(w Watcher, server string) {
	c.noting.Lock()
	defer c.noting.Unlock()
	if c.over {
		return
	}
	c.mu.Lock()
	fails, until := c.fails, c.until
	if c.open == 0 {
		until = time.Time{}
	}
	c.mu.Unlock()
	w.BreakerChanged(server, fails, until)
}

// end passes on that an open breaker is closed, and nothing afterwards.
func (c *circuit) end(w Watcher, server string) {
	c.noting.Lock()
	defer c.noting.Unlock()
	c.over = true
	c.mu.Lock()
	open := c.open > 0
	c.mu.Unlock()
	if open {
		w.BreakerChanged(server, 0, time.Time{})
	}
}

// spend takes one retry from the budget.
func (c *circuit) spend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spare+firstSpare < 1 {
		return false
	}
	c.spare--
	return true
}
