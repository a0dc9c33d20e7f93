package egress

import (
	"context"
	"sync"
	"time"
)

// Limits bound the traffic of one sandbox. A zero field takes the default of DefaultLimits, so that a missing limit
// is not unlimited.
type Limits struct {
	Conns  int           // at a time
	PerMin int           // new connections in any minute
	Bytes  int64         // both ways, over the life of the sandbox
	Idle   time.Duration // a connection on which nothing moves ends
	Names  int           // different names that are given an address

	PerSec      int   // requests of HTTP, and other connections, in a second; 0: only PerMin holds
	BytesPerSec int64 // both directions together; faster traffic waits; 0: unlimited
}

// DefaultLimits apply to a sandbox whose policy sets none.
var DefaultLimits = Limits{Conns: 256, PerMin: 6000, Bytes: 16 << 30, Idle: 10 * time.Minute, Names: 1024}

func (l Limits) complete() Limits {
	d := DefaultLimits
	if l.Conns <= 0 {
		l.Conns = d.Conns
	}
	if l.PerMin <= 0 {
		l.PerMin = d.PerMin
	}
	if l.Bytes <= 0 {
		l.Bytes = d.Bytes
	}
	if l.Idle <= 0 {
		l.Idle = d.Idle
	}
	if l.Names <= 0 {
		l.Names = d.Names
	}
	return l
}

// pace limits a sandbox's rates.
type pace struct {
	limits Limits

	mu       sync.Mutex
	requests bucket
	moved    bucket
}

// bucket fills at a rate and holds what a second brings.
type bucket struct {
	level float64
	last  time.Time
}

// take takes n out of the bucket, which may become less than empty, and returns its level.
func (b *bucket) take(n, rate float64, now time.Time) float64 {
	if b.last.IsZero() {
		b.level = rate
	} else {
		b.level = min(rate, b.level+rate*now.Sub(b.last).Seconds())
	}
	b.last = now
	b.level -= n
	return b.level
}

// request counts a request, and refuses one too many.
func (p *pace) request() *Refusal {
	if p.limits.PerSec <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests.take(1, float64(p.limits.PerSec), time.Now()) < 0 {
		p.requests.level++ // refused requests do not count
		return refuse("limit.requests", "too many requests in a second")
	}
	return nil
}

// bytes counts what has moved, and waits until that much may have.
func (p *pace) bytes(ctx context.Context, n int) {
	rate := float64(p.limits.BytesPerSec)
	if rate <= 0 || n == 0 {
		return
	}
	p.mu.Lock()
	level := p.moved.take(float64(n), rate, time.Now())
	p.mu.Unlock()
	if level >= 0 {
		return
	}
	select {
	case <-time.After(time.Duration(-level / rate * float64(time.Second))):
	case <-ctx.Done():
	}
}

// step is how many bytes may move between two looks at the limits.
func (p *pace) step(most int64) int64 {
	if p.limits.BytesPerSec > 0 {
		most = min(most, max(p.limits.BytesPerSec/10, 1<<10))
	}
	return most
}

// maxHeld is how many bytes of bodies waldo holds for one sandbox at a time.
const maxHeld = 32 << 20

// room counts the bytes that are held for one sandbox. The zero room is empty.
type room struct {
	mu   sync.Mutex
	used int64
	free chan struct{} // closed when bytes are returned; nil without a waiter
}

// take waits until there is room for n bytes, and reports whether there was before ctx ended.
func (r *room) take(ctx context.Context, n int64) bool {
	for {
		r.mu.Lock()
		if r.used+n <= maxHeld {
			r.used += n
			r.mu.Unlock()
			return true
		}
		if r.free == nil {
			r.free = make(chan struct{})
		}
		free := r.free
		r.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return false
		}
	}
}

func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used -= n; r.free != nil {
		close(r.free)
		r.free = nil
	}
}
