package hold

import (
	"context"
	"slices"
	"sync"
)

// turns is the order in which a program made the calls that are not yet known to be held or not.
type turns struct {
	mu   sync.Mutex
	open []*turn // the first one is ready
}

// turn is the place of one call.
type turn struct {
	of    *turns
	ready chan struct{} // closed once every earlier call is over
}

type turnKey struct{}

// Arrive gives a request of a program its place, in the order in which the program made them. It is called in that
// order, and never blocks. The place is free again when ctx ends, which must not be later than the answer.
func Arrive(ctx context.Context) context.Context {
	l := Whose(ctx)
	if l == nil {
		return ctx
	}
	t := &turn{&l.turns, make(chan struct{})}
	l.turns.mu.Lock()
	l.turns.open = append(l.turns.open, t)
	t.of.head()
	l.turns.mu.Unlock()
	context.AfterFunc(ctx, t.over)
	return context.WithValue(ctx, turnKey{}, t)
}

// Pass lets the later calls of a program go on: this one is not held, or is in the list.
func Pass(ctx context.Context) {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		t.over()
	}
}

// await returns when each earlier call of the program is over, or ctx has ended.
func await(ctx context.Context) {
	if t, ok := ctx.Value(turnKey{}).(*turn); ok {
		select {
		case <-t.ready:
		case <-ctx.Done():
		}
	}
}

func (t *turn) over() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if i := slices.Index(t.of.open, t); i >= 0 {
		t.of.open = slices.Delete(t.of.open, i, i+1)
		t.of.head()
	}
}

// head makes the first place ready.
func (o *turns) head() {
	if len(o.open) == 0 {
		return
	}
	select {
	case <-o.open[0].ready:
	default:
		close(o.open[0].ready)
	}
}
