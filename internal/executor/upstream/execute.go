package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/bounds"
	"waldo/internal/executor/upstream/content"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/executor/upstream/tasks"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/network/a2apeer"
	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/jsonrpc"
)

// defaultTimeout holds for a contract that names none.
const defaultTimeout = 30 * time.Second

// Execute carries out the one call that a grant permits: tools/call of the contract's server. A server that fails,
// times out or answers nonsense is reported in the outcome. An error means that the grant was already spent.
func (m *Manager) Execute(ctx context.Context, g *grant.Grant) (call.Outcome, error) {
	d, err := g.Redeem()
	if err != nil {
		return call.Outcome{}, err
	}
	begin := time.Now()
	timeout := d.Contract.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	o := m.carryOut(ctx, d, timeout)
	o.Facts.Usage.WallMS = facts.MS(time.Since(begin))
	o.Facts.Limits.WallMS = timeout.Milliseconds()
	o.Trust = trust(d.Contract.Trust)
	return o, nil
}

// carryOut finds the tool and asks for it, again where the contract says that it may be. Each try
// has the whole timeout.
func (m *Manager) carryOut(ctx context.Context, d policy.Decision, timeout time.Duration) call.Outcome {
	name := d.Contract.Server
	if name == "" {
		name, _, _ = strings.Cut(string(d.Call.Capability), ".")
	}
	s := m.servers[name]
	if s == nil {
		return refused("upstream.unbound", "no server is configured for this capability")
	}
	q, no := s.request(ctx, d, timeout)
	if no != nil {
		return *no
	}
	s, err := s.of(d.Call.Session)
	if err != nil {
		m.o.Log.Warn("no server for this session", "server", name, "error", err)
		return m.servers[name].unasked(ctx, d, err)
	}
	return m.attempts(ctx, s, &m.servers[name].circuit, d, q, timeout)
}

// attempts asks a server, again where the contract allows it and the retry budget of the server has room.
func (m *Manager) attempts(
	ctx context.Context, s *server, c *circuit, d policy.Decision, q rpcRequest, timeout time.Duration,
) call.Outcome {
	var o call.Outcome
	for try := 0; ; try++ {
		why, tried := c.refusal(d, m.o.Clock.Now())
		if why != nil && try == 0 {
			o = refused(why.Code, why.Text)
			o.Refused = why
		}
		if why != nil { // what the tries before may have done stays in the outcome
			o.Facts.Warnings = append(o.Facts.Warnings, why.Code+": "+why.Text)
			return o
		}
		var failure string
		var wait time.Duration
		o, failure, wait = s.attempt(ctx, d, q, timeout)
		changed := c.ended(tried, failure != "", ctx.Err() != nil || failure == unstarted, m.o.Clock.Now())
		if changed && failure != "" {
			o.Facts.Warnings = append(o.Facts.Warnings, "the circuit breaker of the server is open now: it lets no call through for a while")
		}
		if changed {
			c.tell(m.o.Watcher, s.cfg.Name)
		}
		renewed := failure == forgotten && try == 0 && d.Repeats()
		repeat := ctx.Err() == nil && (renewed || again(d, failure, try)) && wait <= timeout
		if repeat && !renewed && !c.spend() {
			o.Facts.Warnings = append(o.Facts.Warnings, "not tried again: the server's retries are one in ten calls")
			repeat = false
		}
		if repeat && !renewed {
			wait = max(wait, m.o.Clock.Jitter(min(firstGap<<try, longestGap)))
		}
		if !repeat || !m.o.Clock.Sleep(ctx, wait) {
			if try > 0 {
				o.Facts.Warnings = append(o.Facts.Warnings, fmt.Sprintf("tried %d times", try+1))
			}
			return o
		}
	}
}

// request makes of a decision what is asked of the server, or says why nothing is.
func (s *server) request(ctx context.Context, d policy.Decision, timeout time.Duration) (rpcRequest, *call.Outcome) {
	no := func(o call.Outcome) (rpcRequest, *call.Outcome) { return rpcRequest{}, &o }
	tool := d.Contract.Tool
	if tool == "" {
		_, tool, _ = strings.Cut(string(d.Call.Capability), ".")
	}
	offer := strings.Contains(tool, "/") // no tool has such a name
	short, known := ctx, s.listed()
	if offer || !known { // known lists take no time
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		short = limited
	}
	if offer {
		q, ok := s.relayed(tool, d)
		if !ok {
			return no(refused("upstream.no_tool", "servers are not asked for this"))
		}
		return q, s.withheld(short, tool, d)
	}
	def, err := s.find(short, d)
	switch {
	case err != nil:
		s.warn(ctx, "tools could not be listed", err)
		return no(s.unasked(short, d, err))
	case def == nil:
		return no(refused("upstream.no_tool", "the server has no such tool"))
	case def.why != "": // quarantined
		return no(refused(def.code, inQuarantine(s.cfg.Name, def.why)))
	}
	switch d.Call.ToolDigest {
	case def.tool.Digest:
	case "": // so the arguments were not checked against its schema, nor the call against the server's annotations
		o := refused("upstream.unseen", "the tool is not in the list of tools, or was not when the call was decided: "+
			"waldo tools says what is left out, and why")
		if !known { // the server is back: the next call is decided with its list
			o.Refused = o.Refused.In(time.Second)
		}
		return no(o)
	default:
		return no(refused("upstream.changed", "the tool is not the one that was shown: list the tools again"))
	}
	return rpcRequest{method: "tools/call", params: map[string]any{"name": def.name, "arguments": d.Call.Args}, task: tasks.Required(def.raw), read: answered}, nil
}

// again reports whether to retry a failed attempt, as often as the contract allows, after a failure that it names: of a
// read, or of a call whose key the tool knows. Any other call that could have acted is never retried.
func again(d policy.Decision, failure string, try int) bool {
	keyed := d.Contract.Idempotency.Argument != "" && !d.Once
	return failure != "" && (keyed || d.Repeats() && failure != forgotten) && try < d.Contract.Retry.Max &&
		d.Contract.Retry.After(failure == contract.TimedOut)
}

// Failure kinds. unavailable: retried if the contract says so. forgotten: the server reported a lost session, or
// exited after it had answered calls. A read is then retried once regardless of the contract. unstarted: no connection
// could be made; a server that does not start has its own rests, and the breaker does not count it.
const (
	unstarted   = "unstarted"
	unavailable = contract.Unavailable
	forgotten   = "forgotten"
)

// listed reports whether the server's tools are known.
func (s *server) listed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pins.defs != nil
}

// find returns the definition of the decision's tool; nil if the server does not list it. It lists the server's tools
// the first time.
func (s *server) find(ctx context.Context, d policy.Decision) (*definition, error) {
	if !s.listed() {
		if _, err := s.list(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, def := range s.pins.defs {
		if d.Contract.Tool != "" && def.name == d.Contract.Tool || d.Contract.Tool == "" && def.tool.Capability == d.Call.Capability {
			return def, nil
		}
	}
	return nil, nil
}

// attempt asks once. It returns the outcome and, where there was no answer, the kind of failure and how long the server
// asks to wait.
func (s *server) attempt(ctx context.Context, d policy.Decision, q rpcRequest, timeout time.Duration) (call.Outcome, string, time.Duration) {
	ctx, clock, cancel := bounds.WithClock(ctx, timeout)
	defer cancel()
	ses, unused, err := s.forCall(ctx, d.Call.Principal, q)
	if err != nil {
		s.warn(ctx, "server is not available", err)
		rest := (*restError)(nil)
		if errors.As(err, &rest) {
			return s.unasked(ctx, d, err), unstarted, rest.left
		}
		return s.unasked(ctx, d, err), unstarted, 0
	}
	defer unused()
	if q.plan != nil {
		if o := q.plan(ses); o != nil {
			return s.where(ses, *o), "", 0
		}
	}
	r := &running{ses: ses, d: d, host: call.HostOf(ctx), clock: clock, over: ctx}
	if q.plan == nil {
		defer ses.begin(r)()
	}
	ses.share(ctx, nil) // so that the server sees the files of its session's scripts
	var wait time.Duration
	before, served, used := ses.conn.Reads(), ses.served.Load(), ses.proc.spent()
	m, short, err := ses.rounds(ctx, r, q)
	o, failure := s.judge(ctx, ses, q, d, m, short, err, before)
	ses.proc.since(used, &o.Facts)
	ses.share(ctx, &o.Facts)
	status := (*mcphttp.Status)(nil)
	switch {
	case err == nil:
		ses.served.Store(true)
	case errors.As(err, &status): // it has seen the question
		wait = status.After
	case failure == unavailable && served: // it may have ended since, before it saw the question
		failure = forgotten
	}
	r.mu.Lock()
	o.Facts.Warnings = append(o.Facts.Warnings, r.notes...)
	r.mu.Unlock()
	return s.where(ses, o), failure, wait
}

// share syncs the server's files with its session's, within the call's time. It records the server's files in the
// facts, and that some could not be stored.
func (ses *session) share(ctx context.Context, f *facts.Facts) {
	if ses.proc == nil || ses.proc.Share == nil {
		return
	}
	left, err := ses.shared(ctx)
	if err != nil && ctx.Err() != nil {
		return // the call has ended; its result has the reason
	}
	if err != nil {
		ses.s.m.o.Log.Warn("files of a session could not be shared", "server", ses.s.cfg.Name, "error", err)
	}
	if f == nil {
		return
	}
	for _, name := range left {
		if strings.HasPrefix(name, "/") { // in a folder of the server's that stays
			f.Files.Written = append(f.Files.Written, name)
		} else {
			f.Files.Artifacts = append(f.Files.Artifacts, name)
		}
	}
	if err != nil {
		f.Warnings = append(f.Warnings, "not all files of the server could be listed or shared with its session")
	}
}

// shared shares once, unless the context ends first. One share at a time: one that is slow makes no others wait
// longer than their calls may.
func (ses *session) shared(ctx context.Context) ([]string, error) {
	select {
	case ses.sharing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type end struct {
		left []string
		err  error
	}
	done := make(chan end, 1)
	go func() {
		defer func() { <-ses.sharing }()
		left, err := ses.proc.Share()
		done <- end{left, err}
	}()
	select {
	case e := <-done:
		return e.left, e.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// judge makes an outcome of the server's result, if there is one.
func (s *server) judge(ctx context.Context, ses *session, q rpcRequest, d policy.Decision, m result, short *call.Outcome, err error, before int64) (call.Outcome, string) {
	var fault *jsonrpc.Error
	var malformed *jsonrpc.MalformedResponse
	switch {
	case short != nil:
		return *short, ""
	case err == nil && m.kind() != "complete":
		return failed(d, "the server wants more than an answer to this call; that is not supported"), ""
	case err == nil:
		o := q.read(m, d)
		if state, _ := o.Structured.Member("state").Text(); s.cfg.Peer && o.IsError && state == "TASK_STATE_INPUT_REQUIRED" {
			o.Refused = &call.Reason{Code: call.PeerWaits, Text: "a person has to agree at the other agent"}
		}
		if e, has := m["_meta"].Member(a2apeer.SideEffect).Text(); has && s.cfg.Peer && d.Mode() != contract.Read {
			_ = o.Facts.SideEffect.UnmarshalText([]byte(e)) // a2apeer writes it
		}
		return o, ""
	case errors.As(err, &fault):
		o := failed(d, fmt.Sprintf("the server refused: %s", fault.Message))
		o.Answered, o.Facts.SideEffect = true, refusal(d)
		if fault.Code != jsonrpc.CodeOpenFirst || s.cfg.Asks.URL && content.Addresses(fault.Data) {
			o.Fault = &call.Fault{Code: fault.Code, Message: fault.Message, Data: fault.Data}
		}
		return o, ""
	case errors.As(err, &malformed):
		s.m.o.Log.Warn("answer could not be read", "server", s.cfg.Name, "error", err)
		return failed(d, "the server gave "+malformed.Error()+known(effect(d, false))), ""
	case errors.Is(err, mcphttp.ErrForgotten):
		return unanswered(ctx, d, false), forgotten
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		if ses.conn.Reads() == before { // not a word since the call began: it hangs
			ses.kill()
		}
		o := unanswered(ctx, d, false)
		if ses.stray.Load() {
			o.Facts.Warnings = append(o.Facts.Warnings, "the server has written lines that are not messages; text for people belongs on its stderr")
		}
		return o, contract.TimedOut
	}
	o := unanswered(ctx, d, errors.Is(err, jsonrpc.ErrNotSent))
	if ses.flooded.Load() && ctx.Err() == nil { // the operator has the warning already
		o.Content = []call.Content{call.Text("the server is not available: " + errFlooded.Error() + known(o.Facts.SideEffect))}
		return o, unavailable
	}
	s.warn(ctx, "call was not answered", ses.ending(ctx, err))
	if status := (*mcphttp.Status)(nil); errors.As(err, &status) && ctx.Err() == nil {
		o.Content = []call.Content{call.Text("the server answered with " + status.Error() + known(o.Facts.SideEffect))}
		if !status.Temporary() {
			return o, "" // the same question gets the same answer
		}
	}
	return o, unavailable
}

// where adds what is known of the server and of the place in which it runs.
func (s *server) where(ses *session, o call.Outcome) call.Outcome {
	o.Peer = s.cfg.Peer
	if ses.proc == nil {
		return o
	}
	o.Facts.Sandbox = ses.proc.Sandbox
	o.Facts.Warnings = append(o.Facts.Warnings, ses.proc.Warnings...)
	if ses.proc.Reached != nil {
		ses.proc.Reached(&o.Facts)
	}
	if hosts := s.cfg.Network.Allow; len(hosts) > 0 {
		o.Facts.Network.Policy, o.Facts.Network.AllowedHosts = "allowed", slices.Clone(hosts)
	}
	return o
}

const notResult = "the server's answer is not a result of a tool"

// answered makes an outcome of the result of tools/call (MCP 2025-11-25 server/tools).
func answered(m result, d policy.Decision) call.Outcome {
	if m == nil {
		return failed(d, notResult+known(effect(d, false)))
	}
	blocks, ok := content.Read(m["content"])
	if !ok || m["content"].IsZero() && m["structuredContent"].IsZero() { // a task without a word for it, for one
		return failed(d, notResult+known(effect(d, false)))
	}
	o := call.Outcome{Facts: facts.New(), Content: blocks, Answered: true}
	if s := m["structuredContent"]; !s.IsZero() && s.Kind() != 'n' {
		o.Structured = s
	}
	if e, has := m["isError"]; has {
		o.IsError = string(e.Raw()) != "false" // anything but a plain no
	}
	o.Facts.Status, o.Facts.SideEffect = facts.OK, effect(d, true)
	if o.IsError {
		o.Facts.Status, o.Facts.SideEffect = facts.Failed, refusal(d)
		if e, _ := m["_meta"].Member("waldo/facts").Member("side_effect").Text(); e == "unknown" { // a waldo does not know
			o.Answered, o.Facts.SideEffect = false, effect(d, false)
		}
	}
	return o
}

// refusal is the effect of a call that the tool answered with an error.
func refusal(d policy.Decision) facts.SideEffect {
	if d.Mode() == contract.Read {
		return facts.None
	}
	return facts.Confirmed
}

// effect judges a call that reached the server. A read has no effect, if the contract says read and no hint of the
// server contradicts it. Any other call is confirmed by a clean success, and unknown after a failure.
func effect(d policy.Decision, clean bool) facts.SideEffect {
	switch {
	case d.Mode() == contract.Read:
		return facts.None
	case clean:
		return facts.Confirmed
	}
	return facts.Unknown
}

// refused is the outcome of a call that was not sent to a server.
func refused(code, text string) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.Denied, facts.None
	return call.Outcome{Content: []call.Content{call.Text(code + ": " + text)}, IsError: true, Refused: &call.Reason{Code: code, Text: text}, Facts: f}
}

// failed is the outcome of a call whose answer is an error.
func failed(d policy.Decision, text string) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.Failed, effect(d, false)
	return call.Outcome{Content: []call.Content{call.Text(text)}, IsError: true, Facts: f}
}

// unanswered is the outcome of a call without an answer: out of time, cancelled, or the server is gone. An unsent
// request has no side effect; a sent one could have.
func unanswered(ctx context.Context, d policy.Decision, unsent bool) call.Outcome {
	o := failed(d, "")
	text := "the server ended before it answered"
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		wall := facts.LimitWall
		o.Facts.Status, o.Facts.TimedOut, o.Facts.Limit = facts.Timeout, true, &wall
		text = "there was no answer in time"
	case ctx.Err() != nil:
		o.Facts.Status = facts.Cancelled
		text = "the call was cancelled"
	case unsent:
		text = "the server is not available"
	}
	if unsent {
		o.Facts.SideEffect = facts.None
	}
	o.Content = []call.Content{call.Text(text + known(o.Facts.SideEffect))}
	return o
}

// unasked is the outcome of a call before which the server failed: it has not seen it.
func (s *server) unasked(ctx context.Context, d policy.Decision, err error) call.Outcome {
	o := unanswered(ctx, d, true)
	malformed, fault := (*jsonrpc.MalformedResponse)(nil), (*jsonrpc.Error)(nil)
	status, rest := (*mcphttp.Status)(nil), (*restError)(nil)
	why, absent := " is not available", files.NotInstalled(s.cfg.Name, err)
	switch {
	case absent != "":
		why = absent
	case errors.Is(err, errShare):
		why += ": " + errShare.Error()
	case ctx.Err() != nil:
		return o
	case errors.As(err, &malformed):
		why += ": it gave " + malformed.Error()
	case errors.As(err, &fault):
		why += ": it says: " + fault.Message
	case errors.As(err, &status):
		why += ": it answers with " + status.Error()
	case errors.Is(err, errFlooded):
		why += ": " + errFlooded.Error()
	case errors.Is(err, errCrashed):
		why += ": it has ended again and again"
	case errors.As(err, &rest) && s.cfg.URL != "":
		why = " at its url cannot be reached"
	case errors.As(err, &rest):
		why = " failed to start"
	}
	if errors.As(err, &rest) && absent == "" {
		why += ". Try again in " + rest.again()
		o.Refused = call.Reason{Code: "upstream.resting", Text: "server " + s.cfg.Name +
			" ended or did not start too often, so waldo lets it rest"}.In(rest.left)
	}
	o.Content = []call.Content{call.Text("server " + s.cfg.Name + why + ". The call was not made.")}
	return o
}

// inQuarantine says why a definition is in quarantine and how an operator ends that.
func inQuarantine(server, why string) string {
	return "quarantined: " + why + ". The operator reviews it with: waldo lock --show " + server
}

// known says what is known of the effect of a call without an answer.
func known(e facts.SideEffect) string {
	if e == facts.None {
		return "; nothing was changed"
	}
	return call.NotKnown
}

// trust reads the contract's word. Any other word trusts nothing.
func trust(word string) call.Trust {
	switch word {
	case "trusted":
		return call.Trusted
	case "partial":
		return call.Partial
	}
	return call.Untrusted
}
