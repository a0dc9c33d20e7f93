// Package admission bounds the sandboxes that are live at a time: the sum of their memory limits, and how many
// each principal has. Who finds no room waits in line.
package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Limits bound the sandboxes of one process. The zero Limits admit one sandbox at a time.
type Limits struct {
	Memory int64         // bytes, the sum of the memory limits of live sandboxes
	Each   int           // live sandboxes of one principal
	Wait   time.Duration // how long a start waits for room
}

// maxLine is how many starts wait at a time; the next is refused at once.
const maxLine = 1024

// Gate admits sandboxes. Use New.
type Gate struct {
	limits Limits

	mu    sync.Mutex
	used  int64          // bytes, of those inside
	count map[string]int // those inside, by principal
	held  map[string]int64
	live  int
	line  []*waiter // the oldest first
}

type waiter struct {
	principal string
	memory    int64
	in        chan struct{} // closed when it is admitted
}

// New returns an empty gate.
func New(l Limits) *Gate { return &Gate{limits: l, count: map[string]int{}, held: map[string]int64{}} }

// Full is the reason why a sandbox was not admitted.
type Full struct{ Text string }

func (f *Full) Error() string { return f.Text }

// Enter admits a sandbox of a memory limit in bytes, or waits until there is room. The sandboxes of the empty
// principal are waldo's own: their memory counts and their number does not. leave must be called once when the
// sandbox is gone. An error is a *Full, or the context's.
func (g *Gate) Enter(ctx context.Context, principal string, memory int64) (leave func(), err error) {
	w := &waiter{principal: principal, memory: memory, in: make(chan struct{})}
	g.mu.Lock()
	if len(g.line) >= maxLine {
		g.mu.Unlock()
		return nil, &Full{fmt.Sprintf("%d sandboxes are waiting already", maxLine)}
	}
	g.line = append(g.line, w)
	g.admit()
	g.mu.Unlock()
	leave = sync.OnceFunc(func() { g.leave(w) })
	clock := time.NewTimer(g.limits.Wait)
	defer clock.Stop()
	select {
	case <-w.in:
		return leave, nil
	default:
	}
	select {
	case <-w.in:
		return leave, nil
	case <-clock.C:
		err = g.full(principal)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.line, w); i >= 0 {
		g.line = slices.Delete(g.line, i, i+1)
		g.admit() // those behind it may be smaller
		return nil, err
	}
	return leave, nil // it was admitted at the same moment
}

// admit lets in the oldest waiters that fit. A principal that has all its sandboxes does not delay other
// principals. A sandbox that is too large for now delays later ones, or it would never get in: those of all principals
// if its own would hold no more than an equal share of the memory with it, otherwise those of its own. g.mu is held.
func (g *Gate) admit() {
	share := g.limits.Memory / int64(g.principals())
	behind := map[string]bool{} // principals whose large sandbox waits
	for i := 0; i < len(g.line); {
		w := g.line[i]
		if behind[w.principal] || w.principal != "" && g.count[w.principal] >= max(1, g.limits.Each) {
			i++
			continue
		}
		if g.live > 0 && g.used+w.memory > g.limits.Memory { // the first is let in regardless of its size
			if g.held[w.principal]+w.memory <= share {
				return
			}
			behind[w.principal] = true
			i++
			continue
		}
		g.live++
		g.used += w.memory
		g.count[w.principal]++
		g.held[w.principal] += w.memory
		close(w.in)
		g.line = slices.Delete(g.line, i, i+1)
	}
}

// principals returns how many principals have or wait for a sandbox, at least 1.
func (g *Gate) principals() int {
	all := map[string]bool{}
	for who := range g.count {
		all[who] = true
	}
	for _, w := range g.line {
		all[w.principal] = true
	}
	return max(1, len(all))
}

func (g *Gate) leave(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live--
	g.used -= w.memory
	g.held[w.principal] -= w.memory
	if g.count[w.principal]--; g.count[w.principal] == 0 {
		delete(g.count, w.principal)
		delete(g.held, w.principal)
	}
	g.admit()
}

// full returns the bound that a new sandbox would exceed.
func (g *Gate) full(principal string) *Full {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.count[principal]; principal != "" && n >= max(1, g.limits.Each) {
		return &Full{fmt.Sprintf("%d sandboxes of this principal run already, which is the most (sandboxes.per_principal); "+
			"none ended within %v", n, g.limits.Wait)}
	}
	return &Full{fmt.Sprintf("%d live sandboxes may use %d MB, and all may use %d MB together "+
		"(sandboxes.memory_percent); none ended within %v",
		g.live, g.used>>20, g.limits.Memory>>20, g.limits.Wait)}
}
