// Package budget bounds what is done at a time, in bytes and in number, with a share for each principal. Who finds no
// room waits in line. Principals of tenants ("acme/oidc:ann") share by tenant first: a tenant has half of the bytes and
// of the line at most, and of several that wait the one that has the least goes first. All others are one group.
package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tenantOf returns the tenant in the spelling of a principal (call.Principal); empty: it has none.
func tenantOf(principal string) string {
	tenant, _, ok := strings.Cut(principal, "/")
	if !ok || strings.Contains(tenant, ":") {
		return ""
	}
	return tenant
}

// Limits bound what is inside a gate. The zero Limits admit one at a time.
type Limits struct {
	Memory int64         // bytes of all inside
	Share  int64         // bytes of one principal; a larger request counts as this; 0: only Memory holds
	Each   int           // inside at a time, of one principal
	Wait   time.Duration // how long an entry waits for room
}

// maxLine is how many entries wait at a time; the next is refused at once.
const maxLine = 1024

// Gate admits pieces of work: sandboxes, processes, answers in memory. Use New. A nil Gate admits nothing.
type Gate struct {
	limits Limits

	mu    sync.Mutex
	used  int64          // bytes, of those inside
	count map[string]int // those inside, by principal
	held  map[string]int64
	group map[string]int64 // bytes of those inside, by tenant
	owner map[string]int   // those inside and waiting, by tenant, or by principal without one
	live  int

	line    map[string][]*waiter // by tenant, the oldest first; none is empty
	waiting int                  // in all lines
	entries uint64               // so far
}

// waiter is one entry: it waits, or is inside.
type waiter struct {
	principal string
	tenant    string
	memory    int64
	number    uint64        // in the order of arrival
	in        chan struct{} // closed when it is admitted
	inside    bool          // it was admitted
}

// owner returns whose share of the memory an entry takes.
func (w *waiter) owner() string { return cmp.Or(w.tenant, w.principal) }

// New returns an empty gate.
func New(l Limits) *Gate {
	return &Gate{limits: l, count: map[string]int{}, held: map[string]int64{}, group: map[string]int64{},
		owner: map[string]int{}, line: map[string][]*waiter{}}
}

// Full is the error for an entry that found no room.
type Full struct {
	Limit Limit
	Count int   // those inside: of the principal for Number and Share, otherwise of all
	Used  int64 // bytes of those
	Most  int64 // the limit that was reached, in bytes, or in number for Number and Line
	Wait  time.Duration
}

// Limit names what an entry would exceed.
type Limit string

// The limits of a gate.
const (
	None   Limit = "none"   // there is no gate
	Line   Limit = "line"   // too many wait already
	Number Limit = "number" // of one principal
	Share  Limit = "share"  // bytes of one principal
	Tenant Limit = "tenant" // bytes of one tenant
	Memory Limit = "memory" // bytes of all
)

func (f *Full) Error() string {
	return fmt.Sprintf("the budget is used up: %d inside, %d bytes; the limit of %s is %d", f.Count, f.Used, f.Limit, f.Most)
}

// Enter admits a piece of work of so many bytes, or waits until there is room. What belongs to the empty principal is
// waldo's own: its bytes count and its number does not. leave must be called once when it is over. An error is a *Full,
// also where the context's time ends, or the cause of a cancelled context.
func (g *Gate) Enter(ctx context.Context, principal string, memory int64) (leave func(), err error) {
	w, err := g.enter(ctx, principal, memory)
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { g.leave(w) }), nil
}

func (g *Gate) enter(ctx context.Context, principal string, memory int64) (w *waiter, err error) {
	if g == nil {
		return nil, &Full{Limit: None}
	}
	if g.limits.Share > 0 {
		memory = min(memory, g.limits.Share)
	}
	w = &waiter{principal: principal, tenant: tenantOf(principal), memory: memory, in: make(chan struct{})}
	g.mu.Lock()
	if g.waiting >= maxLine || w.tenant != "" && len(g.line[w.tenant]) >= maxLine/2 {
		g.mu.Unlock()
		return nil, &Full{Limit: Line, Count: g.live, Used: g.used, Most: maxLine}
	}
	g.entries++
	w.number = g.entries
	g.line[w.tenant] = append(g.line[w.tenant], w)
	g.waiting++
	g.owner[w.owner()]++
	g.admit()
	g.mu.Unlock()
	select {
	case <-w.in:
		return w, nil
	default:
	}
	clock := time.NewTimer(g.limits.Wait)
	defer clock.Stop()
	select {
	case <-w.in:
		return w, nil
	case <-clock.C:
		err = g.full(w)
	case <-ctx.Done():
		if err = context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) {
			err = g.full(w)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.inside {
		return w, nil // it was admitted at the same moment
	}
	g.unline(w.tenant, func(other *waiter) bool { return other == w })
	g.disown(w)
	g.admit() // those behind it may be smaller
	return nil, err
}

// unline takes entries out of a tenant's line. g.mu is held.
func (g *Gate) unline(tenant string, which func(*waiter) bool) {
	was := len(g.line[tenant])
	line := slices.DeleteFunc(g.line[tenant], which)
	g.waiting -= was - len(line)
	if g.line[tenant] = line; len(line) == 0 {
		delete(g.line, tenant)
	}
}

// disown ends an entry's part in the count of owners. g.mu is held.
func (g *Gate) disown(w *waiter) {
	if g.owner[w.owner()]--; g.owner[w.owner()] == 0 {
		delete(g.owner, w.owner())
	}
}

// admit lets in the oldest waiters that fit, those of the tenant with the fewest bytes inside first. A principal at its
// own limit does not delay other principals. An entry that is too large for now delays later ones, or it would never
// get in: those of all if its tenant, or its principal without one, would hold no more than an equal share of the
// memory with it, otherwise those of its own principal. An entry that its tenant has no room for delays all behind it
// of that tenant. g.mu is held.
func (g *Gate) admit() {
	if g.waiting == 0 {
		return
	}
	share := g.limits.Memory / int64(len(g.owner))
	behind := map[string]bool{}  // principals whose large entry waits
	entered := map[string]bool{} // tenants of those let in
	for lines := maps.Clone(g.line); len(lines) > 0; {
		w := g.next(lines)
		if g.overTenant(w) {
			delete(lines, w.tenant)
			continue
		}
		if behind[w.principal] || w.principal != "" && g.count[w.principal] >= max(1, g.limits.Each) {
			continue
		}
		if g.overShare(w) {
			behind[w.principal] = true
			continue
		}
		if g.live > 0 && g.used+w.memory > g.limits.Memory { // the first is let in regardless of its size
			held := g.held[w.principal]
			if w.tenant != "" {
				held = g.group[w.tenant]
			}
			if held+w.memory <= share {
				break
			}
			behind[w.principal] = true
			continue
		}
		g.live++
		g.used += w.memory
		g.count[w.principal]++
		g.held[w.principal] += w.memory
		g.group[w.tenant] += w.memory
		w.inside = true
		entered[w.tenant] = true
		close(w.in)
	}
	for tenant := range entered {
		g.unline(tenant, func(w *waiter) bool { return w.inside })
	}
}

// next takes the entry whose turn it is: of the tenant with the fewest bytes inside; of several, the oldest. g.mu is
// held.
func (g *Gate) next(lines map[string][]*waiter) (first *waiter) {
	for tenant, line := range lines {
		w := line[0]
		if first == nil || g.group[tenant] < g.group[first.tenant] ||
			g.group[tenant] == g.group[first.tenant] && w.number < first.number {
			first = w
		}
	}
	if lines[first.tenant] = lines[first.tenant][1:]; len(lines[first.tenant]) == 0 {
		delete(lines, first.tenant)
	}
	return first
}

// overTenant reports whether a tenant would hold more than half of the memory. Its first entry is let in regardless of
// its size. g.mu is held.
func (g *Gate) overTenant(w *waiter) bool {
	held := g.group[w.tenant]
	return w.tenant != "" && held > 0 && held+w.memory > g.limits.Memory/2
}

// overShare reports whether a principal would hold more than its share. g.mu is held.
func (g *Gate) overShare(w *waiter) bool {
	return g.limits.Share > 0 && g.held[w.principal]+w.memory > g.limits.Share
}

func (g *Gate) leave(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.disown(w)
	g.live--
	g.used -= w.memory
	g.held[w.principal] -= w.memory
	if g.group[w.tenant] -= w.memory; g.group[w.tenant] == 0 {
		delete(g.group, w.tenant)
	}
	if g.count[w.principal]--; g.count[w.principal] == 0 {
		delete(g.count, w.principal)
		delete(g.held, w.principal)
	}
	g.admit()
}

// full returns the limit that an entry would exceed.
func (g *Gate) full(w *waiter) *Full {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := &Full{Limit: Memory, Count: g.live, Used: g.used, Most: g.limits.Memory, Wait: g.limits.Wait}
	n, most := g.count[w.principal], max(1, g.limits.Each)
	switch {
	case w.principal != "" && n >= most:
		f.Limit, f.Count, f.Used, f.Most = Number, n, g.held[w.principal], int64(most)
	case g.overShare(w):
		f.Limit, f.Count, f.Used, f.Most = Share, n, g.held[w.principal], g.limits.Share
	case g.overTenant(w):
		f.Limit, f.Used, f.Most = Tenant, g.group[w.tenant], g.limits.Memory/2
	}
	return f
}

// Lease is what one piece of work holds of a gate's bytes. It belongs to one goroutine at a time. A nil Lease covers
// nothing.
type Lease struct {
	gate      *Gate
	principal string
	held      *waiter // nil: nothing
	bytes     int64   // that were asked for
}

// Lease returns a lease that holds nothing yet. Close it.
func (g *Gate) Lease(principal string) *Lease { return &Lease{gate: g, principal: principal} }

// Cover makes the lease hold at least n bytes, or waits for them. It gives back what it has before it waits, so that no
// two leases wait for each other. After an error, as of Enter, it holds nothing.
func (l *Lease) Cover(ctx context.Context, n int64) (err error) {
	if l == nil {
		return &Full{Limit: None}
	}
	if l.held != nil && n <= l.bytes {
		return nil
	}
	_ = l.Close() // never fails
	l.held, err = l.gate.enter(ctx, l.principal, n)
	l.bytes = n
	return err
}

// Shrink gives back all but n bytes.
func (l *Lease) Shrink(n int64) {
	if l == nil || l.held == nil || n >= l.bytes {
		return
	}
	l.bytes = n
	g, w := l.gate, l.held
	g.mu.Lock()
	defer g.mu.Unlock()
	if back := w.memory - n; back > 0 {
		g.used -= back
		g.held[w.principal] -= back
		g.group[w.tenant] -= back
		w.memory = n
		g.admit()
	}
}

// Close gives back what the lease holds. It never fails.
func (l *Lease) Close() error {
	if l != nil && l.held != nil {
		l.gate.leave(l.held)
		l.held, l.bytes = nil, 0
	}
	return nil
}
