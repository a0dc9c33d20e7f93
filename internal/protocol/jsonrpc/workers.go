package jsonrpc

import "sync/atomic"

// WorkerPool runs functions in goroutines that it reuses. A call needs about ten kilobytes of stack. A new goroutine
// grows its stack in steps and copies it each time, which was a tenth of a call's cost.
type WorkerPool struct {
	next chan func()
	over <-chan struct{}
	most int32
	idle atomic.Int32
}

// NewWorkerPool returns a WorkerPool that keeps at most so many idle goroutines, until over is closed.
func NewWorkerPool(most int, over <-chan struct{}) *WorkerPool {
	return &WorkerPool{next: make(chan func()), over: over, most: int32(most)}
}

// Go runs f and does not wait for it.
func (c *WorkerPool) Go(f func()) {
	select {
	case c.next <- f:
	default:
		go c.work(f)
	}
}

func (c *WorkerPool) work(f func()) {
	for {
		f()
		f = nil // let the collector free it
		if c.idle.Add(1) > c.most {
			c.idle.Add(-1)
			return
		}
		select {
		case f = <-c.next:
			c.idle.Add(-1)
		case <-c.over:
			return
		}
	}
}
