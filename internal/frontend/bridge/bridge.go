// Package bridge is the channel of code that runs in a sandbox. It serves one sandbox over one connection:
// newline-delimited JSON-RPC 2.0 in the shape of MCP, with the catalogue that the agent sees. Each tools/call becomes
// a call.Call and passes the whole pipeline.
package bridge

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"waldo/internal/budget"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
)

// Limits of one bridge.
const (
	MaxInFlight = 32                   // requests being answered at once
	MaxAnswer   = 4 * jsonrpc.MaxFrame // bytes: text, with escapes, and structured content of one result
	MaxHeld     = jsonrpc.MaxFrame     // bytes of the requests being answered at once
	MaxMessages = 100_000              // in the life of a sandbox
	stopWait    = 2 * time.Second      // for cancelled calls to return, once the sandbox has ended
)

// The pipeline functions that the bridge calls. Every field but Arrive is required.
type Pipeline struct {
	// Call takes a call to its result: broker.Call.
	Call func(ctx context.Context, c call.Call) (call.Result, error)
	// Refuse ends a call whose arguments do not fit, and has it on record: broker.Refuse.
	Refuse func(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	// Result returns the result of a held call of the run, by its number.
	Result func(ctx context.Context, run call.Call, number int, approvalID string) (call.Result, error)
	// Arrive returns the context of a call or of a question for a result: hold.Arrive. It is called in their order.
	// nil: nothing is added.
	Arrive func(ctx context.Context) context.Context
	// Tools returns what the run may see, sorted by name.
	Tools func(run call.Call) []call.Tool
	// Find returns the tool of that name, dotted or as on the wire, also one that the run may not use.
	Find func(run call.Call, name string) (call.Tool, bool)
	// Search returns the best tools for a query, best first.
	Search func(run call.Call, query string, limit int) []call.Tool
	// Check returns the reason against a call whose arguments do not fit the tool's schema. An unknown tool has a name
	// and nothing else.
	Check func(c call.Call, t call.Tool) *call.Reason
	// Messages is the memory for long requests of all bridges while they are answered.
	Messages *budget.Gate
}

// Bridge serves sandboxes.
type Bridge struct {
	c       Pipeline
	version string
}

// New makes a bridge. It returns an error if a required field is nil.
func New(version string, c Pipeline) (*Bridge, error) {
	if c.Call == nil || c.Refuse == nil || c.Result == nil || c.Tools == nil || c.Find == nil || c.Search == nil ||
		c.Check == nil || c.Messages == nil {
		return nil, errors.New("bridge: a field is missing")
	}
	return &Bridge{c: c, version: version}, nil
}

// Open serves one sandbox: run is the decided call whose code is in it. Every call over conn is made as its child,
// for its session and principal. Open returns at once. The returned stop closes conn, cancels calls in progress and
// returns their merged side effect: none, confirmed, or unknown if any is unknown. A program with a place in which it
// can be suspended is told of calls that wait for a human, and can hand itself over. place.Still is called for one that
// stands still.
func (b *Bridge) Open(
	ctx context.Context, run call.Call, conn net.Conn, place *call.Suspension,
) (stop func() facts.SideEffect) {
	ctx, cancel := context.WithCancel(ctx)
	w := &bridgeConn{b: b, run: run, effect: facts.None}
	switch {
	case place != nil && place.Still != nil:
		w.still, ctx = place.Still, call.WithWait(ctx, w.wait)
	case place != nil:
		if !place.Held {
			ctx = call.WithSuspension(ctx)
		}
		w.waits = slices.Clone(place.Approvals)
		w.place, w.held, w.stays = place, map[string]string{}, make(chan struct{})
	}
	w.spelled = sync.OnceValue(w.spell)
	w.conn = jsonrpc.New(conn, conn, jsonrpc.Options{
		Request: w.answer, Arrive: w.arrive, MaxInFlight: MaxInFlight, MaxBytes: MaxHeld, MaxAnswer: MaxAnswer, MaxMessages: MaxMessages,
		Room: b.c.Messages, Who: string(run.Principal),
		AnswerInvalid: true, Strict: true, // malformed lines do not come from our runtime
	})
	go func() {
		_ = w.conn.Serve(ctx) // a sandbox that closed its end or broke the rules gets no more answers
		cancel()
		_ = conn.Close()
	}()
	return func() facts.SideEffect {
		cancel()
		_ = conn.Close()
		return w.settle()
	}
}

// One connection of the bridge: it serves one sandbox.
type bridgeConn struct {
	b    *Bridge
	run  call.Call
	conn *jsonrpc.Conn

	spelled func() map[string][]call.Tool // tools by how code spells their names; made once, when first asked for

	place *call.Suspension // nil: the program cannot be suspended
	waits []string         // the questions that the program waited for before it went on here
	last  context.Context  // of the call before, of a program whose writes are held; it ends with the answer
	stays chan struct{}    // closed once the program was not taken: waiting calls are answered then

	mu     sync.Mutex
	effect facts.SideEffect
	active int               // calls that are under way and do not wait
	asking int               // calls that wait for a human, of a program that stands still
	still  func(still bool)  // nil: the program does not stand still
	held   map[string]string // the approvals of calls that wait, by the request's id
}

// judge adds the effect of one call.
func (w *bridgeConn) judge(e facts.SideEffect) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effect = w.effect.And(e)
}

// settle waits for the calls to return and merges their side effects. A call that does not return in time has an
// unknown side effect.
func (w *bridgeConn) settle() facts.SideEffect {
	done := make(chan struct{})
	go func() { w.conn.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(stopWait):
		return facts.Unknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effect
}
