// Package generation replaces a value that serves calls without interrupting them: a call ends in the value that it
// began with, and an earlier value is retired when its last call is over.
package generation

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
)

// Generations are the value in force, and earlier ones that still have calls.
type Generations[T comparable] struct {
	retire func(T) error

	mu    sync.Mutex
	now   T
	calls map[T]int      // calls of each value; one that is absent was retired
	gone  sync.WaitGroup // values that are being retired
}

// New puts the first value in force. retire closes a value that has no calls any more.
func New[T comparable](first T, retire func(T) error) *Generations[T] {
	return &Generations[T]{retire: retire, now: first, calls: map[T]int{first: 0}}
}

// Now returns the value in force.
func (g *Generations[T]) Now() T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// Enter returns the value in force for one call. done ends the call.
func (g *Generations[T]) Enter() (v T, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v = g.now
	g.calls[v]++
	return v, sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.calls[v]--
		g.leave(v)
	})
}

// Change puts another value in force. It calls between before the earlier value can be retired.
func (g *Generations[T]) Change(next T, between func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.now
	g.now = next
	g.calls[next] = 0
	between()
	g.leave(was)
}

// leave retires a value that is not in force and has no call. The lock is held.
func (g *Generations[T]) leave(v T) {
	n, open := g.calls[v]
	if v == g.now || !open || n > 0 {
		return
	}
	delete(g.calls, v)
	g.gone.Go(func() {
		if err := g.retire(v); err != nil {
			slog.Warn("closing what an earlier configuration had open", "why", err)
		}
	})
}

// End retires all values, also those that have calls.
func (g *Generations[T]) End() error {
	g.gone.Wait()
	g.mu.Lock()
	open := maps.Clone(g.calls)
	clear(g.calls)
	g.mu.Unlock()
	var errs []error
	for v := range open { // not under the lock: what ends can ask for the value in force
		errs = append(errs, g.retire(v))
	}
	return errors.Join(errs...)
}

// All returns the values that are not retired.
func (g *Generations[T]) All() (open []T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for v := range g.calls {
		open = append(open, v)
	}
	return open
}
