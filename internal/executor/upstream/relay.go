package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/content"
	"waldo/internal/executor/upstream/tasks"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/network/a2apeer"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// abilities are what a server says that it has.
type abilities struct{ tools, prompts, resources, subscribe, complete, logging, tasks bool }

// abilitiesOf reads the answer to server/discover or initialize.
func abilitiesOf(answer strictjson.Value) abilities {
	all, _ := answer.Members()
	m, _ := all["capabilities"].Members()
	has := func(name string) bool { _, ok := m[name].Members(); return ok }
	r, _ := m["resources"].Members()
	return abilities{tools: has("tools"), prompts: has("prompts"), resources: has("resources"), complete: has("completions"), logging: has("logging"),
		tasks:     tasks.Offered(all["capabilities"]) || tasks.Extended(all["capabilities"]),
		subscribe: string(r["subscribe"].Raw()) == "true"}
}

// result holds the members of a result, parsed once; nil: the result is not an object.
type result map[string]strictjson.Value

// A request is that of a decision, on the wire.
type rpcRequest struct {
	method string
	params map[string]any
	task   bool                                           // a legacy server takes it as a task alone
	read   func(m result, d policy.Decision) call.Outcome // of a result that is complete
	plan   func(ses *session) *call.Outcome               // may answer in the server's place; nil: it asks
}

// relayed makes the request of a capability that is not a tool, from its arguments; false if the method is not
// supported.
func (s *server) relayed(method string, d policy.Decision) (rpcRequest, bool) {
	args, _ := d.Call.Args.Value().Members()
	pick := func(names ...string) map[string]any {
		out := map[string]any{}
		for _, n := range names {
			if v := args[n]; !v.IsZero() {
				out[n] = v
			}
		}
		return out
	}
	q := rpcRequest{method: method}
	switch method {
	case "resources/read":
		q.params, q.read = pick("uri"), resourceRead
	case "prompts/get":
		q.params, q.read = pick("name", "arguments"), prompt
	case "completion/complete":
		q.params, q.read = pick("ref", "argument", "context"), structured("completion")
		q.plan = func(ses *session) *call.Outcome {
			if ses.can.complete {
				return nil
			}
			none, _ := strictjson.Parse([]byte(`{"values":[]}`))
			o := structured("completion")(result{"completion": none}, d)
			return &o
		}
	case "resources/subscribe":
		uri, _ := args["uri"].Text()
		end := string(args["unsubscribe"].Raw()) == "true"
		q.params, q.read = pick("uri"), done
		if end {
			q.method = "resources/unsubscribe"
		}
		q.plan = func(ses *session) *call.Outcome { return s.subscribe(ses, d, uri, end) }
	default:
		return rpcRequest{}, false
	}
	return q, true
}

// resourceRead makes an outcome of the result of resources/read: a block for each content.
func resourceRead(m result, d policy.Decision) call.Outcome {
	list, ok := m["contents"].Elements()
	if !ok || len(list) > content.MaxBlocks {
		return failed(d, "the server's answer is not the content of a resource")
	}
	o := done(m, d)
	for _, c := range list {
		part, _ := c.Members()
		_, text := part["text"].Text()
		_, blob := part["blob"].Text()
		if _, named := part["uri"].Text(); !named || text == blob {
			return failed(d, "the server's answer is not the content of a resource")
		}
		a, err := call.ArgsOf(map[string]any{"type": "resource", "resource": c})
		if err != nil {
			return failed(d, "the content of the resource is too large")
		}
		o.Content = append(o.Content, call.Content{Type: "resource", Raw: a.Value()})
	}
	return o
}

// structured makes an outcome of a result that is passed on as it is, and that must have a member.
func structured(member string) func(m result, d policy.Decision) call.Outcome {
	return func(m result, d policy.Decision) call.Outcome {
		if m[member].IsZero() {
			return failed(d, "the server's answer has no "+member)
		}
		out := map[string]any{}
		for k, x := range m {
			if k != "_meta" && k != "resultType" && k != "ttlMs" && k != "cacheScope" {
				out[k] = x
			}
		}
		a, err := call.ArgsOf(out)
		if err != nil {
			return failed(d, "the server's answer is too large")
		}
		o := done(m, d)
		o.Structured = a.Value()
		return o
	}
}

// prompt makes an outcome of the result of prompts/get: its messages, and their text for those who
// take no messages.
func prompt(m result, d policy.Decision) call.Outcome {
	o := structured("messages")(m, d)
	if o.IsError {
		return o
	}
	messages, _ := m["messages"].Elements()
	for _, x := range messages[:min(len(messages), content.MaxBlocks)] {
		one, _ := x.Members()
		block, _ := one["content"].Members()
		if text, ok := block["text"].Text(); ok {
			role, _ := one["role"].Text()
			o.Content = append(o.Content, call.Text(role+": "+text))
		}
	}
	return o
}

// done is the outcome of a request whose answer says no more than that it was done.
func done(_ result, d policy.Decision) call.Outcome {
	o := call.Outcome{Facts: facts.New()}
	o.Facts.Status, o.Facts.SideEffect = facts.OK, effect(d, true)
	return o
}

// kind tells results apart. An absent word means complete (MCP 2026-07-28 basic).
func (m result) kind() string {
	kind, has := m["resultType"]
	if !has {
		if _, asks := m["inputRequests"].Members(); asks {
			return "input_required" // go-sdk 1.8.0 says so to legacy clients without a word
		}
		return "complete"
	}
	s, ok := kind.Text()
	if !ok {
		return "unknown"
	}
	return s
}

// maxBusy is how often a server may ask for another try without asking anything.
const maxBusy = 3

// rounds asks a server, and answers what it asks back until its result is complete.
func (ses *session) rounds(ctx context.Context, r *running, q rpcRequest) (result, *call.Outcome, error) {
	params := q.params
	if ses.s.cfg.Peer {
		own := []string{string(r.d.Call.Capability), string(r.d.Call.Principal)}
		owner := strings.Join(append(own, r.d.Call.Chain...), " ")
		ctx = a2apeer.WithCaller(ctx, owner, r.clock.Left)
	}
	for busy := 0; ; {
		v, err := ses.send(ctx, r, q, params)
		if err != nil {
			return nil, nil, err
		}
		members, _ := v.Members()
		m := result(members)
		if m.kind() == "task" && ses.can.tasks && q.method == "tools/call" {
			return ses.follow(ctx, r, v)
		}
		if m.kind() != "input_required" {
			return m, nil, nil
		}
		wanted, _ := m["inputRequests"].Members()
		if len(wanted) == 0 {
			if busy++; busy > maxBusy || !rest(ctx, time.Duration(busy)*200*time.Millisecond) {
				o := failed(r.d, "the server is busy: try again later")
				return m, &o, nil
			}
		}
		answers, o := r.answer(ctx, wanted)
		if o != nil {
			return m, o, nil
		}
		params = map[string]any{}
		for k, x := range q.params {
			params[k] = x
		}
		if len(answers) > 0 {
			params["inputResponses"] = answers
		}
		if state := m["requestState"]; !state.IsZero() {
			params["requestState"] = state
		}
	}
}

// answer gets the answers to the questions of a modern server, or the outcome of a call that ends without them.
func (r *running) answer(ctx context.Context, wanted map[string]strictjson.Value) (map[string]strictjson.Value, *call.Outcome) {
	r.mu.Lock()
	no := r.no
	r.mu.Unlock()
	if no {
		o := failed(r.d, "the person declined to answer what the server asks, so the call was not completed")
		return nil, &o
	}
	asked := map[string]call.Question{}
	for key, w := range wanted {
		method, _ := w.Member("method").Text()
		asked[key] = call.Question{Method: method, Params: w.Member("params")}
	}
	answers, refusal := r.ask(ctx, asked)
	if refusal != nil {
		o := failed(r.d, "the server asks for more before it answers: "+refusal.Message)
		return nil, &o
	}
	return answers, nil
}

// follow waits for the result of a task that a modern server made of a call.
func (ses *session) follow(ctx context.Context, r *running, task strictjson.Value) (result, *call.Outcome, error) {
	var short *call.Outcome
	ask := func(ctx context.Context, method string, params map[string]any) (strictjson.Value, error) {
		return ses.askFor(ctx, r, method, params)
	}
	v, err := tasks.Follow(ctx, ask, task, func(wanted map[string]strictjson.Value) (answers map[string]strictjson.Value, err error) {
		if answers, short = r.answer(ctx, wanted); short != nil {
			err = errors.New("the task cannot go on")
		}
		return answers, err
	})
	members, _ := v.Members()
	if short != nil {
		err = nil
	}
	return result(members), short, err
}

// send sends what a call asks for, as a task where the tool takes no other form.
func (ses *session) send(ctx context.Context, r *running, q rpcRequest, params map[string]any) (strictjson.Value, error) {
	ask := func(ctx context.Context, method string, params map[string]any) (strictjson.Value, error) {
		return ses.askFor(ctx, r, method, params)
	}
	if q.task && ses.can.tasks && ses.revision != jsonrpc.Modern {
		return tasks.Call(ctx, ask, params, max(r.d.Contract.Timeout, defaultTimeout))
	}
	return ask(ctx, q.method, params)
}

func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// begin enters a call among those under way.
func (ses *session) begin(r *running) (end func()) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	ses.calls[r] = 0
	return func() {
		ses.mu.Lock()
		defer ses.mu.Unlock()
		delete(ses.calls, r)
	}
}

// askFor sends a request of a call. After the first answer, the error of another is not jsonrpc.ErrNotSent: the call began.
func (ses *session) askFor(ctx context.Context, r *running, method string, params map[string]any) (strictjson.Value, error) {
	v, err := ses.askOnce(ctx, r, method, params)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began && errors.Is(err, jsonrpc.ErrNotSent) {
		err = fmt.Errorf("a later request of the call: %v", err)
	}
	r.began = r.began || err == nil
	return v, err
}

func (ses *session) askOnce(ctx context.Context, r *running, method string, params map[string]any) (strictjson.Value, error) {
	if err := ses.setLevel(ctx, r); err != nil {
		return strictjson.Value{}, errors.Join(jsonrpc.ErrNotSent, err)
	}
	var progress func(done, total float64)
	if told := call.Progress(ctx); told != nil {
		progress = func(done, total float64) { told(done, total, "") }
	}
	return ses.conn.Call(ctx, method, func(id int64) any {
		ses.mu.Lock()
		if _, under := ses.calls[r]; under {
			ses.calls[r] = id
		}
		ses.mu.Unlock()
		return ses.params(id, params, progress != nil, r)
	}, progress)
}

// levels of log messages, the least first (RFC 5424).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// setLevel requests the host's log level from a legacy server.
func (ses *session) setLevel(ctx context.Context, r *running) error {
	if r.host == nil || !ses.can.logging || ses.revision == jsonrpc.Modern {
		return nil
	}
	want := slices.Index(levels, r.host.Abilities().Log)
	ses.mu.Lock()
	have := ses.level
	if want < 0 || have > 0 && have <= want+1 {
		ses.mu.Unlock()
		return nil
	}
	ses.level = want + 1
	ses.mu.Unlock()
	_, err := ses.ask(ctx, "logging/setLevel", map[string]any{"level": levels[want]})
	if none := (*jsonrpc.Error)(nil); errors.As(err, &none) {
		return nil // it logs as it likes
	}
	return err
}

// callOf returns the call that a message of the server belongs to: the one on whose stream it came, or the only one
// under way. With several calls it returns nil.
func (ses *session) callOf(m jsonrpc.Message) *running {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	var one *running
	for r, id := range ses.calls {
		if m.Of != 0 && id == m.Of {
			return r
		}
		if one != nil && m.Of == 0 {
			return nil
		}
		one = r
	}
	if m.Of != 0 {
		return nil
	}
	return one
}

// question answers what a legacy server asks during a call.
func (ses *session) question(ctx context.Context, m jsonrpc.Message) (any, error) {
	if m.Method == "ping" {
		return struct{}{}, nil
	}
	if m.Method != elicit && m.Method != sample && m.Method != roots || !ses.s.asks() {
		return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "this client does not offer %.50q", m.Method)
	}
	r := ses.callOf(m)
	if r == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalid, "nobody can say which call %q belongs to", m.Method)
	}
	answers, no := r.ask(ctx, map[string]call.Question{"question": {Method: m.Method, Params: m.Params}})
	if no != nil {
		return nil, &jsonrpc.Error{Code: no.Code, Message: no.Message, Data: no.Data}
	}
	return answers["question"], nil
}

// The most that a server may log: how much in one message, and how many in a second of one call.
const (
	maxLog  = 16 << 10
	maxLogs = 50
)

// notified takes what a server says unasked.
func (ses *session) notified(m jsonrpc.Message) {
	s := ses.s
	switch {
	case m.Method == "notifications/message":
		level, _ := m.Param("level").Text()
		r := ses.callOf(m)
		if r == nil || r.host == nil || m.Size > maxLog {
			return
		}
		want := slices.Index(levels, r.host.Abilities().Log)
		if want < 0 || slices.Index(levels, level) < want || !r.logs.Pass(maxLogs) {
			return
		}
		r.host.Log(s.cfg.Name, level, m.Params)
	case s.cfg.URL != "" && s.told != nil && strings.HasSuffix(m.Method, "/list_changed"): // its first session gets it
	case m.Method == "notifications/tools/list_changed":
		s.changed.Ask(time.Now())
	case m.Method == "notifications/prompts/list_changed" || m.Method == "notifications/resources/list_changed":
		s.offers.Ask(time.Now())
	case m.Method == "notifications/resources/updated":
		if uri, ok := m.Param("uri").Text(); ok && s.subscribed(uri) {
			s.m.o.Watcher.ResourceUpdated(s.cfg.Name, uri)
		}
	}
}

// subscribe records a session's subscription to a resource, and answers locally if the server need not be asked.
func (s *server) subscribe(ses *session, d policy.Decision, uri string, end bool) *call.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := s.subs[uri]
	ok := done(nil, d)
	switch {
	case uri == "":
		o := failed(d, "a subscription needs a uri")
		return &o
	case end && !who[d.Call.Session]:
		return &ok
	case end:
		delete(who, d.Call.Session)
		if len(who) > 0 {
			return &ok
		}
		delete(s.subs, uri)
	case !ses.can.subscribe:
		o := failed(d, "the server does not offer subscriptions")
		return &o
	default:
		known := len(who) > 0
		if who == nil {
			if len(s.subs) >= maxSubs {
				o := failed(d, "too many resources of this server are subscribed to")
				return &o
			}
			who = map[call.Session]bool{}
			s.subs[uri] = who
		}
		who[d.Call.Session] = true
		if known {
			return &ok
		}
	}
	if ses.revision == jsonrpc.Modern { // its subscriptions are one long request
		ses.relisten()
		return &ok
	}
	return nil
}

// maxSubs is how many resources of one server may be subscribed to.
const maxSubs = 1000

// subscribed reports whether any session subscribes to a resource, or to one that contains it.
func (s *server) subscribed(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for u := range s.subs {
		if u == uri || strings.HasPrefix(uri, strings.TrimSuffix(u, "/")+"/") {
			return true
		}
	}
	return false
}

// Forget ends what a session that is over has had: its subscriptions, and servers of its own.
func (m *Manager) Forget(n call.Session) {
	for _, s := range m.servers {
		go s.orphan(n)
		s.mu.Lock()
		var ended []string
		for uri, who := range s.subs {
			if who[n] {
				if delete(who, n); len(who) == 0 {
					ended = append(ended, uri)
					delete(s.subs, uri)
				}
			}
		}
		ses := s.session
		s.mu.Unlock()
		for _, uri := range ended {
			if ses != nil && ses.revision != jsonrpc.Modern {
				go func() { // the server may be slow to confirm
					ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
					defer cancel()
					_, _ = ses.ask(ctx, "resources/unsubscribe", map[string]any{"uri": uri})
				}()
			}
		}
		if len(ended) > 0 && ses != nil && ses.revision == jsonrpc.Modern {
			ses.relisten()
		}
	}
}

// resume renews the subscriptions at a server that has just started.
func (ses *session) resume(ctx context.Context) {
	if ses.revision == jsonrpc.Modern {
		go ses.listen(ctx)
		return
	}
	ses.s.mu.Lock()
	defer ses.s.mu.Unlock()
	for uri := range ses.s.subs {
		go func() {
			short, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, _ = ses.ask(short, "resources/subscribe", map[string]any{"uri": uri})
		}()
	}
}

func (ses *session) relisten() {
	select {
	case ses.again <- struct{}{}:
	default: // it will look anyway
	}
}

// listen holds one subscription to all notifications of a modern server, for the life of the session (MCP 2026-07-28
// basic/utilities/subscriptions).
func (ses *session) listen(ctx context.Context) {
	for ctx.Err() == nil && ses.alive() {
		short, cancel := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() {
			want := map[string]any{"toolsListChanged": true}
			if ses.can.prompts {
				want["promptsListChanged"] = true
			}
			if ses.can.resources {
				want["resourcesListChanged"] = true
			}
			ses.s.mu.Lock()
			uris := []string{}
			for uri := range ses.s.subs {
				uris = append(uris, uri)
			}
			ses.s.mu.Unlock()
			if len(uris) > 0 {
				want["resourceSubscriptions"] = uris
			}
			_, err := ses.ask(short, "subscriptions/listen", map[string]any{"notifications": want})
			over <- err
		}()
		var none *jsonrpc.Error
		select {
		case err := <-over:
			if errors.As(err, &none) { // it offers none
				cancel()
				return
			}
			rest(short, time.Second)
		case <-ses.again:
			cancel()
			rest(ctx, settle)
		case <-ses.ended:
		case <-ctx.Done():
		}
		cancel()
	}
}

// settle limits how long a server takes to end one subscription before the next replaces it. go-sdk 1.8.0 takes the
// end of the old one for the end of both.
const settle = 100 * time.Millisecond
