package jsonrpc

import "sync/atomic"

// Crew runs functions, each in a goroutine of its own that stays for the next one. A call takes some
// ten kilobytes of stack, and the stack of a new goroutine is grown to that in steps, each of which
// copies it: that was a tenth of what a call cost.
type Crew struct {
	next  chan func()
	over  <-chan struct{}
	most  int32
	spare atomic.Int32
}

// NewCrew makes a crew of which at most so many wait for work, until over is closed.
func NewCrew(most int, over <-chan struct{}) *Crew {
	return &Crew{next: make(chan func()), over: over, most: int32(most)}
}

// Go runs f and does not wait for it.
func (c *Crew) Go(f func()) {
	select {
	case c.next <- f:
	default:
		go c.work(f)
	}
}

func (c *Crew) work(f func()) {
	for {
		f()
		f = nil // nothing of it is kept
		if c.spare.Add(1) > c.most {
			c.spare.Add(-1)
			return
		}
		select {
		case f = <-c.next:
			c.spare.Add(-1)
		case <-c.over:
			return
		}
	}
}
