package web

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"waldo/internal/model/call"
)

// conns counts the connections of a server. Those that have not shown who they are, strangers, have a bound of
// their own and the shortest patience: however many come, who has shown a token is let in.
type conns struct {
	limits Limits

	mu        sync.Mutex
	strangers map[*conn]bool
	from      map[string]int // strangers by address
	known     int
	each      map[call.Principal]int
	swept     time.Time // last
}

// Beside gives another server the rule of this one: strangers make room for who has shown a token. Its handler calls
// Full first, and Knows once a request has shown who it is from. It returns the listener to serve, until ctx is done.
func Beside(ctx context.Context, hs *http.Server, l net.Listener, limits Limits) net.Listener {
	o := newConns(limits)
	hs.ConnState = o.state
	hs.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	go func() {
		tick := time.NewTicker(limits.pause())
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				o.sweep(time.Now())
			case <-ctx.Done():
				return
			}
		}
	}()
	return counting{l, o}
}

// Full reports whether a request came on a connection beyond the bound, and answers it with 503 then.
func Full(w http.ResponseWriter, r *http.Request) bool {
	c := connOf(r)
	if c == nil || !c.over {
		return false
	}
	full(w, "too many connections have not shown who they are; try again later")
	return true
}

func newConns(limits Limits) *conns {
	return &conns{limits: limits, strangers: map[*conn]bool{}, from: map[string]int{}, each: map[call.Principal]int{}}
}

// pause is the time between two sweeps.
func (l Limits) pause() time.Duration { return max(l.Stranger/5, 10*time.Millisecond) }

// conn is one connection.
type conn struct {
	net.Conn
	of   *conns
	peer string // the address of another machine; "": this one

	// Held by of.mu.
	who    call.Principal // "": a stranger
	since  time.Time      // of its state
	busy   bool           // a request of it is being answered
	asked  bool           // it has had an answer, and did not show who it is
	over   bool           // beyond the bound: it gets 503, and /healthz
	closed bool
}

type counting struct {
	net.Listener
	of *conns
}

// Accept satisfies net.Listener. It never leaves a connection in the kernel's queue. Beyond the bound it closes the
// unauthenticated connection that was idle longest; if all are active, it answers the new one with 503.
func (l counting) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if x := l.of.take(c); x != nil {
			return x, nil
		}
		_ = c.Close()
	}
}

// take counts a new connection; it returns nil if even a refusal would exceed the bound.
func (o *conns) take(c net.Conn) *conn {
	x := &conn{Conn: c, of: o, since: time.Now()}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		x.peer = a.IP.String()
	}
	o.mu.Lock()
	share := o.limits.Strangers
	if x.peer != "" {
		share = max(share/4, 1)
	}
	var old *conn
	switch {
	case o.from[x.peer] >= share:
		old = o.idlest(x.peer, true)
		x.over = old == nil
	case len(o.strangers) >= o.limits.Strangers:
		old = o.idlest("", false)
		x.over = old == nil
	}
	if x.over && len(o.strangers) >= 2*o.limits.Strangers {
		o.mu.Unlock()
		return nil
	}
	o.strangers[x] = true
	o.from[x.peer]++
	o.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	return x
}

// idlest is the stranger to close for another: one that has had an answer, then one that is silent, then one
// that had an answer and asks again; of equals the one that is so for longest. One whose first request is being
// looked at is not closed. The lock is held.
func (o *conns) idlest(peer string, only bool) (old *conn) {
	rank := func(x *conn) int {
		switch {
		case x.asked && !x.busy:
			return 0
		case !x.busy:
			return 1
		case x.asked:
			return 2
		}
		return 3
	}
	for x := range o.strangers {
		if rank(x) == 3 || only && x.peer != peer {
			continue
		}
		if old == nil || rank(x) < rank(old) || rank(x) == rank(old) && x.since.Before(old.since) {
			old = x
		}
	}
	return old
}

// answered notes that an unauthenticated connection got its answer: later input on it stays unread.
func (c *conn) answered() {
	c.of.mu.Lock()
	c.asked = true
	c.of.mu.Unlock()
}

// Close satisfies net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	if !c.closed {
		c.closed = true
		c.uncount()
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// uncount takes a connection out of its count. The lock is held.
func (c *conn) uncount() {
	o := c.of
	if c.who == "" {
		delete(o.strangers, c)
		if o.from[c.peer]--; o.from[c.peer] <= 0 {
			delete(o.from, c.peer)
		}
		return
	}
	o.known--
	if o.each[c.who]--; o.each[c.who] <= 0 {
		delete(o.each, c.who)
	}
}

// know counts a connection among those of who it has shown to be. It reports whether there was room.
func (c *conn) know(who call.Principal) bool {
	o := c.of
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.who == who || c.closed {
		return true
	}
	known := o.known
	if c.who != "" {
		known-- // a proxy lends its connections to one client after the other
	}
	if known >= o.limits.Conns || o.each[who] >= max(o.limits.Conns/2, 1) {
		return false
	}
	c.uncount()
	c.who = who
	o.known++
	o.each[who]++
	return true
}

// state follows what net/http does with a connection.
func (o *conns) state(c net.Conn, s http.ConnState) {
	x, ok := c.(*conn)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	x.since = time.Now()
	switch s {
	case http.StateActive:
		x.busy = true
	case http.StateIdle:
		x.busy, x.asked = false, true
	}
}

// sweep closes the strangers that are idle for too long. A sweep that comes much too late says that this process did
// not run meanwhile, on a machine that is overloaded or was suspended: requests then wait unread, and the time does
// not count.
func (o *conns) sweep(now time.Time) {
	o.mu.Lock()
	var old []*conn
	late := now.Sub(o.swept) - o.limits.pause()
	if o.swept.IsZero() || late < o.limits.pause() {
		late = 0
	}
	o.swept = now
	for x := range o.strangers {
		if late > 0 {
			x.since = x.since.Add(late)
		}
	}
	for x := range o.strangers {
		if !x.busy && now.Sub(x.since) >= o.limits.Stranger {
			old = append(old, x)
		}
	}
	o.mu.Unlock()
	for _, x := range old {
		_ = x.Close()
	}
}
