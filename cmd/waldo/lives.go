package main

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"waldo/internal/frontend/mcpserver"
)

// lives are the houses that stand on one ground: the one in force, and those before it until the calls that
// they took are over. A call ends in the house that decided it.
type lives struct {
	server atomic.Pointer[mcpserver.Server] // the one that serves; nil: none does

	mu    sync.Mutex
	now   *house
	calls map[*house]int // under way; a house that is not here was closed
	gone  sync.WaitGroup // houses being closed
}

func newLives(first *house) *lives { return &lives{now: first, calls: map[*house]int{first: 0}} }

// inForce returns the house of the configuration in force.
func (l *lives) inForce() *house {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// enter returns the house in force for one call, and what says that the call is over.
func (l *lives) enter() (*house, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.now
	l.calls[h]++
	return h, sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls[h]--
		l.leave(h)
	})
}

// change puts another house in force.
func (l *lives) change(next *house) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.now
	l.now = next
	l.calls[next] = 0
	if srv := l.server.Load(); srv != nil {
		srv.Replace(next.catalogue)
	}
	l.leave(was)
}

// leave closes a house that is in force no more and has no call. The lock is held.
func (l *lives) leave(h *house) {
	n, open := l.calls[h]
	if h == l.now || !open || n > 0 {
		return
	}
	delete(l.calls, h)
	l.gone.Go(func() {
		if err := h.retire(); err != nil {
			slog.Warn("closing what an earlier configuration had open", "why", err)
		}
	})
}

// end closes all houses.
func (l *lives) end() error {
	l.gone.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for h := range l.calls {
		errs = append(errs, h.retire())
	}
	clear(l.calls)
	return errors.Join(errs...)
}

// all are the houses that are open.
func (l *lives) all() (open []*house) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.calls {
		open = append(open, h)
	}
	return open
}
