package budget

import (
	"runtime"
	"slices"
	"sync"
)

// Heavy is the size in bytes from which work of waldo's own process takes a turn at the processors.
const Heavy = 64 << 10

// processors is one for the process, as the processors are.
var processors = NewTurns(runtime.GOMAXPROCS(0))

// Turn waits for a turn at the processors, for work of waldo's own process on so many bytes for a principal. Less than
// Heavy, and waldo's own work (""), begins at once. leave must be called. Until then the work waits for no memory, lock
// or message of another call: that call can be in the line.
func Turn(principal string, bytes int64) (leave func()) {
	if principal == "" || bytes < Heavy {
		return func() {}
	}
	return processors.Enter(principal)
}

// Turn is the function Turn for the lease's principal.
func (l *Lease) Turn(bytes int64) (leave func()) {
	if l == nil {
		return func() {}
	}
	return Turn(l.principal, bytes)
}

// Turns hands a number of turns to principals in rotation. One principal has all but one at most, so that another's
// work never waits for more than the processors. Use NewTurns.
type Turns struct {
	all, each int

	mu     sync.Mutex
	busy   int
	of     map[string]int    // turns under way, by principal, and by tenant with a "/"
	served map[string]uint64 // when each principal in the line or at work had its last turn
	clock  uint64
	line   []*turn // the oldest first
}

type turn struct {
	principal string
	in        chan struct{} // closed when it begins
}

// NewTurns returns that many turns, of which none is taken.
func NewTurns(n int) *Turns {
	return &Turns{all: n, each: max(1, n-1), of: map[string]int{}, served: map[string]uint64{}}
}

// Enter waits for a turn. leave must be called once.
func (t *Turns) Enter(principal string) (leave func()) {
	w := &turn{principal, make(chan struct{})}
	t.mu.Lock()
	t.line = append(t.line, w)
	t.admit()
	t.mu.Unlock()
	<-w.in
	return sync.OnceFunc(func() { t.leave(principal) })
}

// admit begins the turns that are free. The tenant with the fewest turns under way goes first, then its principal with
// the fewest; of several, that which waits longest since its last turn. t.mu is held.
func (t *Turns) admit() {
	for t.busy < t.all {
		next := -1
		for i, w := range t.line {
			tenant := tenantOf(w.principal)
			free := t.of[w.principal] < t.each && (tenant == "" || t.of[tenant+"/"] < t.each)
			if free && (next < 0 || t.before(w.principal, t.line[next].principal)) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := t.line[next]
		t.line = append(t.line[:next], t.line[next+1:]...)
		t.clock++
		t.busy++
		for _, who := range []string{w.principal, tenantOf(w.principal) + "/"} {
			t.of[who]++
			t.served[who] = t.clock
		}
		close(w.in)
	}
}

// before reports whether a goes before b: by tenant, then by principal.
func (t *Turns) before(a, b string) bool {
	if x, y := tenantOf(a), tenantOf(b); x != y {
		a, b = x+"/", y+"/" // as no principal is spelled
	}
	if t.of[a] != t.of[b] {
		return t.of[a] < t.of[b]
	}
	return t.served[a] < t.served[b]
}

func (t *Turns) leave(principal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	for _, who := range []string{principal, tenantOf(principal) + "/"} {
		if t.of[who]--; t.of[who] == 0 {
			delete(t.of, who)
		}
	}
	t.admit()
	waits := func(fits func(who string) bool) bool {
		return slices.ContainsFunc(t.line, func(w *turn) bool { return fits(w.principal) })
	}
	if t.of[principal] == 0 && !waits(func(who string) bool { return who == principal }) {
		delete(t.served, principal)
	}
	tenant := tenantOf(principal)
	if t.of[tenant+"/"] == 0 && !waits(func(who string) bool { return tenantOf(who) == tenant }) {
		delete(t.served, tenant+"/")
	}
}
