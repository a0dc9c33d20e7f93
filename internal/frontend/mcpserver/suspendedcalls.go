package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"waldo/internal/frontend/mcpserver/tasks"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// How many calls may be parked, and how often one question is put again when its answer lacks
// something.
const (
	maxSuspended     = 256
	maxSuspendedEach = 32 // of one principal
	maxAgain         = 5
	maxUsed          = 10_000 // rounds that are remembered, so that the refusal can say why
)

// suspendedCalls holds the suspended calls of modern clients. The call goes on inside waldo, with one decision and one
// grant, and the client returns with the answers (MCP 2026-07-28 basic/utilities/mrtr).
type suspendedCalls struct {
	seal *sealer
	mu   sync.Mutex
	open map[string]*suspendedCall // by round
	used map[string]time.Time      // rounds that were answered or given up, until their states expire
}

func newSuspendedCalls(kept *[32]byte) *suspendedCalls {
	return &suspendedCalls{seal: newSealer(kept), open: map[string]*suspendedCall{}, used: map[string]time.Time{}}
}

// suspendedCall is one call of a modern client that may ask.
type suspendedCall struct {
	d      *Server
	who    call.Principal
	asked  jsonrpc.Message // the request, of which a digest is made when the call is parked
	cancel context.CancelFunc
	asks   chan question
	done   chan outcome
	host   *host
	maybe  bool                    // the client takes a task in place of the result
	long   chan chan<- *tasks.Task // asks to make a task of it
	became chan struct{}           // closed when it has become a task

	pending question // while it is parked
	again   int      // how often it was put
	expire  *time.Timer

	mu    sync.Mutex
	early func(result any, err error) // answers the request in whose goroutine the call runs; nil: it has its answer
}

// question is one question for the client that a worker waits for.
type question struct {
	asked  map[string]call.Question
	answer chan map[string]strictjson.Value
}

type outcome struct {
	result map[string]any
	err    error
}

// digestOf returns the digest of a request's own parameters, without its _meta and answers.
func digestOf(m jsonrpc.Message) string {
	members, _ := m.Params.Members()
	asks := map[string]any{}
	for k, v := range members {
		if k != "_meta" && k != "inputResponses" && k != "requestState" {
			asks[k] = v
		}
	}
	b, err := json.Marshal(map[string]any{"method": m.Method, "params": asks})
	if err != nil {
		return ""
	}
	v, err := strictjson.Parse(b) // no deeper than the message was
	if err != nil {
		return ""
	}
	return v.Digest()
}

// suspend answers a request of a modern client, which may come back with answers. The call runs in the goroutine of
// the request, and runs on there while it is parked. A front end that waits for that goroutine (no jsonrpc.Early)
// asks nothing of its client.
func (s *Session) suspend(
	ctx context.Context, m jsonrpc.Message, link Link, run func(ctx context.Context, h *host) (map[string]any, error),
) (map[string]any, error) {
	if v := m.Param("requestState"); !v.IsZero() && v.Kind() != 'n' {
		p, answers, fault := s.d.suspended.resume(ctx, s, m, v)
		if fault != nil {
			return nil, fault
		}
		p.host.begin(m, link)
		if answers != nil {
			p.pending.answer <- answers // has room for the one answer
		} else {
			return s.d.suspended.suspend(p, s.d.o.Now())
		}
		return p.wait(ctx)
	}
	long, p := s.suspendable(ctx, m, true, link)
	p.maybe = m.Method == "tools/call" && extended(m)
	early, can := jsonrpc.Early(ctx), p.host.can
	if early == nil || !p.maybe && can.Elicitation.IsZero() && can.Sampling.IsZero() && can.Roots.IsZero() {
		p.cancel() // the client that could answer is gone
		ctx, h := s.hosted(ctx, m, true, link)
		h.p = &suspendedCall{d: s.d, asks: make(chan question)}
		return run(ctx, h)
	}
	return p.here(ctx, long, early, run)
}

// suspendable makes a call that can outlast its request, and the context for it.
func (s *Session) suspendable(
	ctx context.Context, m jsonrpc.Message, modern bool, link Link,
) (context.Context, *suspendedCall) {
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	long, h := s.hosted(long, m, modern, link)
	h.p = &suspendedCall{
		d: s.d, who: s.who.Principal, asked: m, cancel: cancel, asks: make(chan question), done: make(chan outcome, 1),
		host: h, long: make(chan chan<- *tasks.Task), became: make(chan struct{}),
	}
	return call.WithTask(long, func() { h.asTask(long) }), h.p
}

// run carries out the call in a goroutine of its own.
func (p *suspendedCall) run(ctx context.Context, run func(ctx context.Context, h *host) (map[string]any, error)) {
	go func() {
		defer p.cancel()
		p.done <- p.carryOut(ctx, run)
	}()
}

// carryOut runs the call to its end. A panic ends this request, not waldo.
func (p *suspendedCall) carryOut(
	ctx context.Context, run func(ctx context.Context, h *host) (map[string]any, error),
) (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			p.d.o.Log.Error("a request panicked", "method", p.asked.Method, "panic", v)
			o = outcome{err: jsonrpc.Errorf(jsonrpc.CodeInternal, "the request failed")}
		}
	}()
	result, err := run(ctx, p.host)
	return outcome{result, err}
}

// here carries out the call in the goroutine of its request: another goroutine would have to be woken, and would have
// to wake this one. If the call has to wait for the client or becomes a task, early answers the request, and the call
// goes on.
func (p *suspendedCall) here(
	ctx, long context.Context, early func(any, error), run func(ctx context.Context, h *host) (map[string]any, error),
) (map[string]any, error) {
	defer p.cancel()
	p.early = early
	defer context.AfterFunc(ctx, func() { // the client has cancelled, or is gone
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.early != nil {
			p.cancel()
		}
	})()
	if p.maybe {
		late := time.AfterFunc(p.d.o.TaskAfter, func() { p.asTask() })
		defer late.Stop()
	}
	o := p.carryOut(long, run)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.early == nil {
		p.done <- o // has room for the one outcome
		return nil, nil
	}
	p.early = nil
	p.host.end()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return o.result, o.err
}

// leave answers the request in whose goroutine the call runs with the result of f, which can decline. It reports
// whether the request had no answer before.
func (p *suspendedCall) leave(f func() (result map[string]any, err error, ok bool)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.early == nil {
		return false
	}
	if result, err, ok := f(); ok {
		p.host.end()
		early := p.early
		p.early = nil
		if err != nil {
			early(nil, err)
		} else {
			early(p.d.complete(result), nil)
		}
	}
	return true
}

// asTask makes a task of the call whose request has no answer yet, unless that is beyond the limits: then the client
// waits. It reports whether the request had no answer before.
func (p *suspendedCall) asTask() (t *tasks.Task, mine bool) {
	mine = p.leave(func() (map[string]any, error, bool) {
		var err error
		if t, err = p.host.s.task(p, 0); err != nil {
			return nil, nil, false
		}
		return t.Created(), nil, true
	})
	return t, mine
}

// wait answers a request that came back to the call: with the end of the call, or with a question. A call that takes
// long becomes a task, if the client takes one.
func (p *suspendedCall) wait(ctx context.Context) (map[string]any, error) {
	defer p.host.end()
	var late <-chan time.Time
	if p.maybe {
		timer := time.NewTimer(p.d.o.TaskAfter)
		defer timer.Stop()
		late = timer.C
	}
	for {
		var wanted chan<- *tasks.Task
		select {
		case o := <-p.done:
			return o.result, o.err
		case p.pending = <-p.asks:
			p.again = 0
			return p.d.suspended.suspend(p, p.d.o.Now())
		case wanted = <-p.long:
		case <-late:
		case <-ctx.Done():
			p.cancel()
			return nil, ctx.Err()
		}
		t, err := p.host.s.task(p, 0) // beyond the limits the client waits
		if wanted != nil {
			wanted <- t
		}
		if err == nil {
			return t.Created(), nil
		}
	}
}

// ask hands the worker's questions over and waits until the client returns with answers.
func (p *suspendedCall) ask(ctx context.Context, asked map[string]call.Question) (map[string]strictjson.Value, error) {
	if p.cancel == nil {
		return nil, errNobody
	}
	p.host.mu.Lock()
	given := p.host.given
	p.host.given = nil
	p.host.mu.Unlock()
	if answers, ok := fits(asked, given); ok { // it knew what it would be asked
		return answers, nil
	}
	q := question{asked, make(chan map[string]strictjson.Value, 1)}
	first := p.leave(func() (map[string]any, error, bool) {
		p.pending, p.again = q, 0
		result, err := p.d.suspended.suspend(p, p.d.o.Now())
		return result, err, true
	})
	if !first {
		select {
		case p.asks <- q:
		case <-p.became:
			return p.host.put(ctx, asked)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case answers := <-q.answer:
		return answers, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fits returns the answers to exactly these questions, or an error if one is missing.
func fits(asked map[string]call.Question, given map[string]strictjson.Value) (map[string]strictjson.Value, bool) {
	out := map[string]strictjson.Value{}
	for key := range asked {
		if _, ok := given[key].Members(); !ok {
			return nil, false
		}
		out[key] = given[key]
	}
	return out, true
}

// suspend suspends a call and returns the answer that asks. The call waits until it is resumed, or is cancelled after
// its time.
func (l *suspendedCalls) suspend(p *suspendedCall, now time.Time) (map[string]any, error) {
	request := digestOf(p.asked)
	if request == "" {
		p.cancel()
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "the parameters are nested too deep")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	each := 0
	for _, o := range l.open {
		if o.who == p.who {
			each++
		}
	}
	if len(l.open) >= maxSuspended || each >= maxSuspendedEach || p.again > maxAgain {
		p.cancel()
		return nil, jsonrpc.Errorf(jsonrpc.CodeBusy, "too many calls wait for an answer; this one was given up")
	}
	p.again++
	p.host.mu.Lock()
	c := p.host.call
	p.host.mu.Unlock()
	st := state{
		Round: rand.Text(), Principal: p.who, Request: request, Expires: now.Add(p.d.o.Park).UnixMilli(), Call: c.ID,
	}
	if e, ok := p.d.o.Catalogue.Lookup(context.Background(), string(c.Capability)); ok {
		if mode, _ := p.d.o.Pipeline.Mode(c.Capability, e.Annotations); mode == contract.Read {
			st.Effect = facts.None
		}
	}
	l.open[st.Round] = p
	p.expire = time.AfterFunc(p.d.o.Park, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[st.Round] == p {
			delete(l.open, st.Round)
			p.cancel()
		}
	})
	requests := map[string]any{}
	for key, q := range p.pending.asked {
		r := map[string]any{"method": q.Method, "params": struct{}{}}
		if !q.Params.IsZero() {
			r["params"] = q.Params
		}
		requests[key] = r
	}
	return map[string]any{"resultType": "input_required", "inputRequests": requests, "requestState": l.seal.pair(st)}, nil
}

// resume finds the parked call that a retry continues, and its answers; none where one is missing.
// A state is good for one retry.
func (l *suspendedCalls) resume(
	ctx context.Context, s *Session, m jsonrpc.Message, text strictjson.Value,
) (*suspendedCall, map[string]strictjson.Value, *jsonrpc.Error) {
	sealed, _ := text.Text()
	now := s.d.o.Now()
	st, past, fault := l.seal.check(sealed, s.who.Principal, digestOf(m), now)
	if fault != nil {
		return nil, nil, fault
	}
	p, fault := l.take(st, past, now)
	switch {
	case fault != nil:
		return nil, nil, fault
	case past:
		return nil, nil, s.d.over(ctx, st)
	}
	given, _ := m.Param("inputResponses").Members()
	answers, ok := fits(p.pending.asked, given)
	if !ok {
		answers = nil
	}
	return p, answers, nil
}

// claim consumes a state and removes its suspended call. A state of an earlier process has no suspended call.
func (l *suspendedCalls) take(st state, past bool, now time.Time) (*suspendedCall, *jsonrpc.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for round, until := range l.used {
		if now.After(until) {
			delete(l.used, round)
		}
	}
	p := l.open[st.Round]
	if _, twice := l.used[st.Round]; twice {
		return nil, stateError("state.used", "the requestState was used before; each is good for one retry")
	}
	if p == nil && !past {
		return nil, stateError("state.gone", "the call that waited is gone: make the request anew, without requestState")
	}
	if p != nil {
		delete(l.open, st.Round)
		p.expire.Stop()
	}
	if len(l.used) >= maxUsed {
		clear(l.used) // a state that was used is refused all the same: nothing is parked under it
	}
	l.used[st.Round] = time.UnixMilli(st.Expires)
	return p, nil
}

// over says what became of a call that was parked in a waldo that has ended: its log knows, or else what
// its contract allows is all that is known.
func (d *Server) over(ctx context.Context, st state) *jsonrpc.Error {
	effect := st.Effect
	if effect != facts.None {
		if told, ended := d.o.Pipeline.SideEffect(ctx, st.Call); ended {
			effect = told
		}
	}
	say := map[facts.SideEffect]string{
		facts.None:      "It had no side effect: make the request anew, without requestState.",
		facts.Confirmed: "It had taken effect before: check its effect before you repeat it.",
		facts.Unknown:   "Whether it took effect is not known: look before you make the request anew, without requestState.",
	}[effect]
	e := stateError("state.restarted",
		"waldo was started anew while the call "+st.Call+" waited for an answer, and the call ended with it. "+say)
	if data, err := call.ArgsOf(map[string]any{
		"code": "state.restarted", "call_id": st.Call, "side_effect": effect,
	}); err == nil {
		e.Data = data.Value()
	}
	return e
}

// cancelSession gives up what a session has parked.
func (l *suspendedCalls) cancelSession(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for round, p := range l.open {
		if p.host.s == s {
			delete(l.open, round)
			p.expire.Stop()
			p.cancel()
		}
	}
}
