// Package bridge is the door of code that runs in a box. It serves one box over one connection:
// newline-delimited JSON-RPC 2.0 in the shape of MCP, with the same catalogue the agent sees. Each
// tools/call becomes a call.Call and walks the corridor; there is no lighter path.
package bridge

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"waldo/internal/call"
	"waldo/internal/facts"
)

// Limits of one bridge.
const (
	MaxFrame    = 16 << 20        // bytes of one frame, either way
	MaxInFlight = 32              // requests being answered at once
	MaxHeld     = MaxFrame        // bytes of the requests being answered at once
	MaxRequests = 100_000         // requests in the life of a box
	stopWait    = 2 * time.Second // for cancelled calls to return, once the box has ended
)

// Corridor is what the bridge needs of waldo. Every field is needed.
type Corridor struct {
	// Call takes a call to its result: broker.Call.
	Call func(ctx context.Context, c call.Call) (call.Result, error)
	// Tools returns what the run may see, sorted by name.
	Tools func(run call.Call) []call.Tool
	// Find returns the tool of that name, dotted or as on the wire, if the run may see it.
	Find func(run call.Call, name string) (call.Tool, bool)
	// Search returns the best tools for a query, best first.
	Search func(run call.Call, query string, limit int) []call.Tool
	// Check returns the reason against arguments that do not fit the tool's schema.
	Check func(t call.Tool, a call.Args) *call.Reason
}

// Bridge serves boxes.
type Bridge struct {
	c       Corridor
	version string
}

// New makes a bridge. It refuses a corridor with a piece missing.
func New(version string, c Corridor) (*Bridge, error) {
	if c.Call == nil || c.Tools == nil || c.Find == nil || c.Search == nil || c.Check == nil {
		return nil, errors.New("bridge: the corridor has a piece missing")
	}
	return &Bridge{c: c, version: version}, nil
}

// Open serves one box: run is the decided call whose code is in it, and every call that comes over
// conn is made as a child of it, for its session and principal. Open returns at once. The returned
// stop closes conn, cancels what is still being answered and says what is known of the effects of
// all calls together: none, confirmed, or unknown if that of any is.
func (b *Bridge) Open(ctx context.Context, run call.Call, conn net.Conn) (stop func() facts.SideEffect) {
	ctx, cancel := context.WithCancel(ctx)
	w := &wicket{b: b, run: run, conn: conn, places: map[string]place{}, effect: facts.None}
	w.spelled = sync.OnceValue(w.spell)
	w.all.Add(1)
	go func() {
		defer w.all.Done()
		defer cancel() // a box that closed its end or broke the rules gets no more answers
		w.serve(ctx)
		_ = conn.Close()
	}()
	return func() facts.SideEffect {
		cancel()
		_ = conn.Close()
		return w.settle()
	}
}

// wicket is the bridge of one box.
type wicket struct {
	b    *Bridge
	run  call.Call
	conn net.Conn
	all  sync.WaitGroup

	out sync.Mutex // held while a frame is written

	spelled func() map[string][]call.Tool // tools by how code spells their names; made once, when first asked for

	mu     sync.Mutex
	places map[string]place // by request id, while it is answered
	held   int              // bytes of those requests
	effect facts.SideEffect
}

// place is what a request takes up while it is answered.
type place struct {
	cancel context.CancelFunc
	bytes  int
}

// serve reads frames until the box closes its end, breaks the rules or is stopped.
func (w *wicket) serve(ctx context.Context) {
	r := bufio.NewReaderSize(w.conn, 64<<10)
	for n := 0; n < MaxRequests; n++ {
		line, err := readFrame(r)
		if errors.Is(err, errFrame) {
			w.fail(nil, codeParse, "a frame may have 16 MiB")
		}
		if err != nil {
			return
		}
		req, bad := parseRequest(line)
		if bad != nil {
			w.fail(nil, bad.code, bad.text)
			return // whoever writes garbage here is not our runtime
		}
		w.take(ctx, req, len(line))
	}
	w.fail(nil, codeBusy, "too many requests from one run")
}

// take starts the answer to one request, or refuses it.
func (w *wicket) take(ctx context.Context, req request, bytes int) {
	if req.notification() {
		w.notified(req)
		return
	}
	key := string(req.ID)
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	_, taken := w.places[key]
	full := len(w.places) >= MaxInFlight || w.held > 0 && w.held+bytes > MaxHeld
	if !taken && !full {
		w.places[key] = place{cancel, bytes}
		w.held += bytes
	}
	w.mu.Unlock()
	switch {
	case taken:
		cancel()
		w.fail(req.ID, codeInvalid, "this id is in use")
	case full:
		cancel()
		w.fail(req.ID, codeBusy, "too many calls at once: 32 of 16 MiB together may run")
	default:
		w.all.Add(1)
		go func() {
			defer w.all.Done()
			defer cancel()
			w.reply(key, w.answer(ctx, req))
		}()
	}
}

// notified handles a message that wants no answer.
func (w *wicket) notified(req request) {
	if req.Method != "notifications/cancelled" {
		return
	}
	id, ok := req.cancelled()
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p, ok := w.places[id]; ok {
		p.cancel()
	}
}

// judge adds the effect of one call: unknown outweighs confirmed, confirmed outweighs none.
func (w *wicket) judge(e facts.SideEffect) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e == facts.Unknown || w.effect == facts.Unknown:
		w.effect = facts.Unknown
	case e == facts.Confirmed:
		w.effect = facts.Confirmed
	}
}

// settle waits for the calls to return and gives the effect of all of them. A call that does not
// return in time is one whose effect nobody knows.
func (w *wicket) settle() facts.SideEffect {
	done := make(chan struct{})
	go func() { w.all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(stopWait):
		return facts.Unknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effect
}
