// Package bridge is the channel of code that runs in a sandbox. It serves one sandbox over one connection:
// newline-delimited JSON-RPC 2.0 in the shape of MCP, with the catalogue that the agent sees. Each tools/call becomes
// a call.Call and passes the whole pipeline.
package bridge

import (
	"context"
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

// Pipeline takes the calls of a run to their results, and lists the tools that a run may see.
type Pipeline interface {
	Call(ctx context.Context, c call.Call) (call.Result, error)
	// Refuse ends a call whose arguments do not fit, and has it on record.
	Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	// Result returns the result of a held call of the run, by its number.
	Result(ctx context.Context, run call.Call, number int, approvalID string) (call.Result, error)
	// Arrive returns the context of a call or of a question for a result. It is called in their order.
	Arrive(ctx context.Context) context.Context
	// Tools returns what the run may see, sorted by name.
	Tools(run call.Call) []call.Tool
	// Find returns the tool of that name, dotted or as on the wire, also one that the run may not use.
	Find(run call.Call, name string) (call.Tool, bool)
	// Search returns the best tools for a query, best first.
	Search(run call.Call, query string, limit int) []call.Tool
	// Check returns the reason against a call whose arguments do not fit the tool's schema. An unknown tool has a name
	// and nothing else.
	Check(c call.Call, t call.Tool) *call.Reason
}

// Bridge serves sandboxes.
type Bridge struct {
	pipeline Pipeline
	version  string
	messages *budget.Gate // the memory for long requests of all bridges while they are answered
}

// New makes a bridge. Long requests of all of its sandboxes take their memory from messages while they are answered.
func New(version string, p Pipeline, messages *budget.Gate) *Bridge {
	return &Bridge{pipeline: p, version: version, messages: messages}
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
		Request: w.answer, Arrive: w.arrive, MaxInFlight: MaxInFlight, MaxBytes: MaxHeld,
		MaxAnswer: MaxAnswer, MaxMessages: MaxMessages,
		Room: b.messages, Who: string(run.Principal),
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
