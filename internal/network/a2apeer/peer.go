// Package a2apeer is a connection to an agent of A2A 1.0 or 0.3 that answers as an MCP server does: its skills are
// tools, a call is a task. What pins, hides and limits the tools of servers then holds for it. All that it sends is
// untrusted.
package a2apeer

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// Limits of what a peer sends, and of the waiting for it.
const (
	maxAnswer = 16 << 20
	maxCard   = 4 << 20
	pollFirst = 100 * time.Millisecond
	pollMost  = 2 * time.Second
	pauseMost = time.Minute     // for a person at the peer, where the call has no limit
	spare     = 3 * time.Second // of the time of a call, to answer in
)

// Options are what a connection is made of.
type Options struct {
	mcphttp.Options                          // URL is the address of the agent; its card is below it
	Key             string                   // the thumbprint of the key that signs its card (RFC 7638); empty: any, or none
	Name            string                   // of the peer, as the operator has it
	Questions       Questions                // nil: no person here answers a question of a peer
	Seal            func(text string) string // a keyed digest; nil: callers share their tasks
}

// Questions takes the questions of peers to the persons here, and their signed answers back.
type Questions interface {
	// Pass shows a question, and returns the signed answer that was not sent yet. It returns false for one that is not
	// shown.
	Pass(ctx context.Context, peer string, question json.RawMessage) (answer json.RawMessage, shown bool)
	// Sent notes that the peer has the answer, or why it was refused.
	Sent(ctx context.Context, approvalID, why string) error
	// Tell tells the client of the call what it waits for, and why the last answer was refused; the zero question: it
	// waits no more.
	Tell(ctx context.Context, question strictjson.Value, refused string)
	// Over removes a question that waits no longer.
	Over(ctx context.Context, approvalID string) error
}

// Conn is a connection to one agent.
type Conn struct {
	o      Options
	base   *url.URL
	http   *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	reads  atomic.Int64
	number atomic.Int64
	at     atomic.Pointer[endpoint] // where requests go, of the card
}

// New makes a connection. Nothing is sent before the first Call.
func New(o Options) (*Conn, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return nil, errors.New("not the address of an agent: write it as https://host")
	}
	c := &Conn{o: o, base: u, http: &http.Client{Transport: o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Serve waits until the connection is over.
func (c *Conn) Serve(ctx context.Context) error {
	defer c.cancel()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return nil
	}
}

// Close ends the connection.
func (c *Conn) Close() { c.cancel() }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Reads returns how many answers have been read.
func (c *Conn) Reads() int64 { return c.reads.Load() }

// Speak does nothing: the peer speaks no MCP.
func (c *Conn) Speak(string) {}

// TwoWay is false: a peer asks by the state of its task.
func (c *Conn) TwoWay() bool { return false }

// Notify drops notifications: the end of a call cancels its task.
func (c *Conn) Notify(string, any) bool { return true }

// Call answers a request of MCP with the answer of the peer.
func (c *Conn) Call(
	ctx context.Context, method string, params func(id int64) any, progress func(done, total float64),
) (strictjson.Value, error) {
	if c.ctx.Err() != nil {
		return strictjson.Value{}, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, jsonrpc.ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	switch method {
	case "initialize":
		return value(map[string]any{"protocolVersion": jsonrpc.Legacy,
			"capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo":   map[string]any{"name": c.base.Host, "version": "A2A"}})
	case "tools/list":
		card, err := c.card(ctx)
		if err != nil {
			return strictjson.Value{}, err
		}
		return value(map[string]any{"tools": card.tools()})
	case "tools/call":
		b, err := json.Marshal(params(c.number.Add(1)))
		if err != nil {
			return strictjson.Value{}, err
		}
		v, err := strictjson.Parse(b)
		if err != nil {
			return strictjson.Value{}, err
		}
		return c.call(ctx, v, progress)
	}
	return strictjson.Value{}, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "an A2A peer has no %s", method)
}

func value(v any) (strictjson.Value, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return strictjson.Value{}, err
	}
	return strictjson.Parse(b)
}

// do sends one request with waldo's credentials, and again with another token where the first is refused.
func (c *Conn) do(ctx context.Context, method, at string, e endpoint, body []byte) (*http.Response, error) {
	for again := true; ; again = false {
		r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("A2A-Version", e.version())
		r.Header.Set("A2A-Extensions", arguments)
		r.Header.Set("Accept", "application/json, text/event-stream")
		if body != nil {
			r.Header.Set("Content-Type", "application/json")
		}
		if e.trace.Parent != "" {
			r.Header.Set("Traceparent", e.trace.Parent)
		}
		if e.trace.State != "" {
			r.Header.Set("Tracestate", e.trace.State)
		}
		if c.o.Header != nil {
			more, err := c.o.Header()
			if err != nil {
				return nil, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err)
			}
			for name, values := range more {
				r.Header[name] = values
			}
		}
		token := ""
		if c.o.Auth != nil {
			if token, err = c.o.Auth.Token(ctx); err != nil {
				return nil, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err)
			}
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := c.http.Do(r)
		if err != nil {
			return nil, err
		}
		c.reads.Add(1)
		refused := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
		if !refused || c.o.Auth == nil || !again {
			return resp, nil
		}
		other, err := c.o.Auth.Refused(ctx, token, resp)
		if err != nil || !other {
			return resp, err
		}
		_ = resp.Body.Close()
	}
}

// read reads an answer of JSON.
func read(resp *http.Response, most int64) (strictjson.Value, error) {
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return strictjson.Value{}, err
	case int64(len(b)) > most:
		return strictjson.Value{}, &jsonrpc.MalformedResponse{Why: "it is too long"}
	}
	v, err := strictjson.Parse(b)
	if err != nil {
		if resp.StatusCode/100 != 2 {
			return v, mcphttp.StatusOf(resp)
		}
		return v, &jsonrpc.MalformedResponse{Why: "it is not strict JSON"}
	}
	return v, nil
}

// reach returns where the agent is asked, by its card.
func (c *Conn) reach(ctx context.Context) (endpoint, error) {
	if at := c.at.Load(); at != nil {
		return *at, nil
	}
	card, err := c.card(ctx)
	if err != nil {
		return endpoint{}, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err)
	}
	return card.endpoint, nil
}

// ask carries out one operation of A2A.
func (c *Conn) ask(ctx context.Context, operation string, params map[string]any) (strictjson.Value, error) {
	e, err := c.reach(ctx)
	if err != nil {
		return strictjson.Value{}, err
	}
	return c.askAt(ctx, e, operation, params)
}

// state is what a call needs of a task.
type state struct {
	id, context, word string
	task              strictjson.Value
}

func (s state) ended() bool {
	switch s.word {
	case "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED":
		return true
	}
	return false
}

// asks reports whether the task waits for its caller, and whether a person at the peer has to agree, which the caller
// can do nothing about.
func (s state) asks() (waits, person bool) {
	_, person = s.task.Member("metadata").Member("waldo/approval_id").Text()
	return s.word == "TASK_STATE_INPUT_REQUIRED" || s.word == "TASK_STATE_AUTH_REQUIRED", person
}

func stateOf(task strictjson.Value) (s state, err error) {
	s.task = task
	s.id, _ = task.Member("id").Text()
	s.context, _ = task.Member("contextId").Text()
	s.word, _ = task.Member("status").Member("state").Text()
	if s.id == "" || len(s.id) > 256 || !strings.HasPrefix(s.word, "TASK_STATE_") {
		return s, &jsonrpc.MalformedResponse{Why: "it is not a task of A2A"}
	}
	return s, nil
}

// rests reports whether a task has ended or waits for its caller.
func (s state) rests() bool {
	waits, _ := s.asks()
	return waits || s.ended()
}

// told passes the progress of a call on to its caller.
type told struct {
	fn func(done, total float64)
	n  float64
}

func (t *told) more() {
	if t.n++; t.fn != nil {
		t.fn(t.n, 0)
	}
}

// wanted is what a call of a tool asks of a peer.
type wanted struct {
	skill, task string
	message     map[string]any // nil: to look at the task alone
	form        bool           // a question of the peer can be answered by a person at the caller
	trace       jsonrpc.Trace
}

type callerKey struct{}

// caller is who calls, and how long the call can still take.
type caller struct {
	owner string
	left  func() time.Duration
}

// WithCaller returns a context whose calls have tasks and conversations that no other owner can name, and that come
// back before left is zero where a person at the peer is asked.
func WithCaller(ctx context.Context, owner string, left func() time.Duration) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{owner, left})
}

// sealed is the id of a task or conversation for the owner of a call. The peer knows one caller, waldo, so waldo tells
// its own callers apart.
func (c *Conn) sealed(ctx context.Context, id string) string {
	by, has := ctx.Value(callerKey{}).(caller)
	if !has || c.o.Seal == nil || id == "" {
		return id
	}
	b, _ := json.Marshal([]string{c.o.Name, by.owner, id}) // texts always encode
	return id + "." + c.o.Seal(string(b))
}

// opened returns the id in a sealed one; false: it is not one of the owner of the call.
func (c *Conn) opened(ctx context.Context, text string) (id string, ok bool) {
	if id, ok = text, c.sealed(ctx, text) == text; ok {
		return id, true
	}
	id = text[:max(strings.LastIndexByte(text, '.'), 0)]
	return id, id != "" && hmac.Equal([]byte(c.sealed(ctx, id)), []byte(text))
}

// The refusals of a call that is not sent: the task or conversation of another, and no message.
var (
	errOthers = errors.New("there is no such task or conversation of yours and of this skill at this agent")
	errEmpty  = errors.New("message or arguments must be there")
)

// wantedOf reads the parameters of a call. The second call of one whose question was answered has the answer and the
// task.
func (c *Conn) wantedOf(ctx context.Context, params strictjson.Value) (w wanted, declined bool, err error) {
	w.skill, _ = params.Member("name").Text()
	args := params.Member("arguments")
	w.form = !params.Member("_meta").Member(jsonrpc.MetaCapabilities).Member("elicitation").Member("form").IsZero()
	w.trace.Parent, _ = params.Member("_meta").Member("traceparent").Text()
	w.trace.State, _ = params.Member("_meta").Member("tracestate").Text()
	text, said := args.Member("message").Text()
	data, in := args.Member("arguments"), args.Member("context_id")
	if task, named := args.Member("task_id").Text(); named {
		if w.task, named = c.opened(ctx, task); !named {
			return w, false, errOthers
		}
	}
	if task, again := params.Member("requestState").Text(); again {
		w.task, data, in = task, strictjson.Value{}, strictjson.Value{}
		answer := params.Member("inputResponses").Member("answer")
		if text, said = answer.Member("content").Member("answer").Text(); !said {
			return w, true, nil
		}
	}
	parts := []any{}
	if said {
		parts = append(parts, map[string]any{"text": text})
	}
	if !data.IsZero() {
		parts = append(parts, map[string]any{"data": data})
	}
	switch {
	case len(parts) == 0 && w.task == "":
		return w, false, errEmpty
	case len(parts) == 0:
		return w, false, nil
	}
	w.message = map[string]any{"messageId": rand.Text(), "role": "ROLE_USER", "parts": parts,
		"metadata": map[string]any{"skill": w.skill}}
	if w.task != "" {
		w.message["taskId"] = w.task
	}
	if in, ok := in.Text(); ok {
		if in, ok = c.opened(ctx, in); !ok {
			return w, false, errOthers
		}
		w.message["contextId"] = in
	}
	return w, false, nil
}

// call sends a message to a skill, and follows its task until it has ended or waits for its caller. A call that is
// given up cancels its task.
func (c *Conn) call(
	ctx context.Context, params strictjson.Value, progress func(done, total float64),
) (strictjson.Value, error) {
	w, declined, err := c.wantedOf(ctx, params)
	if errors.Is(err, errOthers) || errors.Is(err, errEmpty) {
		return result([]any{text(err.Error())}, true, nil, "none")
	}
	if err != nil {
		return strictjson.Value{}, err
	}
	if declined {
		c.give(w.task)
		return result([]any{text("the person declined to answer what the agent asks, so its task was canceled")}, true, nil, "")
	}
	tell := &told{fn: progress}
	v, err := c.send(ctx, w, tell)
	if err != nil {
		return v, err
	}
	if direct := v.Member("message"); !direct.IsZero() {
		return result(contents(direct.Member("parts")), false, nil, "")
	}
	now, err := stateOf(v.Member("task"))
	if err != nil {
		return v, err
	}
	if now, err = c.follow(ctx, now, tell); err != nil {
		return strictjson.Value{}, err
	}
	if waits, person := now.asks(); waits && !person && w.form && now.word == "TASK_STATE_INPUT_REQUIRED" {
		return now.question()
	}
	now.id, now.context = c.sealed(ctx, now.id), c.sealed(ctx, now.context)
	return now.result()
}

// send sends the message of a call, or reads its task. Where the caller takes progress, it streams.
func (c *Conn) send(ctx context.Context, w wanted, tell *told) (strictjson.Value, error) {
	if w.message == nil {
		v, err := c.ask(ctx, "GetTask", map[string]any{"id": w.task})
		if err != nil {
			return v, err
		}
		return value(map[string]any{"task": v})
	}
	e, err := c.reach(ctx)
	if err != nil {
		return strictjson.Value{}, err
	}
	e.trace = w.trace
	params := map[string]any{"message": w.message, "configuration": map[string]any{"returnImmediately": true}}
	if e.old {
		params = map[string]any{"message": older(w.message), "configuration": map[string]any{"blocking": false}}
	}
	if e.streams && tell.fn != nil {
		return c.stream(ctx, e, params, tell)
	}
	return c.askAt(ctx, e, "SendMessage", params)
}

// follow waits for a task. It stops waiting for a person at the peer while the call has time to answer in.
func (c *Conn) follow(ctx context.Context, now state, tell *told) (state, error) {
	until := time.Now().Add(pauseMost)
	if by, has := ctx.Value(callerKey{}).(caller); has {
		until = time.Now().Add(by.left() - spare)
	}
	if by, has := ctx.Deadline(); has && by.Add(-spare).Before(until) {
		until = by.Add(-spare)
	}
	shown := ""
	for pause := pollFirst; ; pause = min(pause*2, pollMost) {
		if shown = c.carry(ctx, now, shown); now.ended() {
			break
		}
		waits, person := now.asks()
		if waits && (!person || !time.Now().Before(until)) {
			break
		}
		nap := pause
		if waits {
			nap = min(nap, time.Until(until))
		}
		select {
		case <-time.After(nap):
		case <-ctx.Done():
			c.give(now.id)
			return now, ctx.Err()
		}
		if waits && !time.Now().Before(until) {
			break
		}
		v, err := c.look(ctx, now.id)
		if err != nil {
			return now, err
		}
		next, err := stateOf(v)
		if err != nil || next.id != now.id {
			return now, &jsonrpc.MalformedResponse{Why: "it is not the task that was asked for"}
		}
		if next.word != now.word {
			tell.more()
		}
		now = next
	}
	return now, nil
}

// carry passes on the question of a task that waits for a person, and sends the signed answer to it. shown is the id of
// the question that was passed on before; carry returns that of the one which is now.
func (c *Conn) carry(ctx context.Context, now state, shown string) string {
	if c.o.Questions == nil {
		return ""
	}
	meta := now.task.Member("metadata")
	question := meta.Member("waldo/question")
	id, _ := question.Member("question").Member("id").Text()
	if waits, person := now.asks(); !waits || !person || id == "" {
		if shown != "" {
			_ = c.o.Questions.Over(ctx, shown) // it is over at its time all the same
			c.o.Questions.Tell(ctx, strictjson.Value{}, "")
		}
		return ""
	}
	answer, ok := c.o.Questions.Pass(ctx, c.o.Name, question.Raw())
	if !ok {
		return shown
	}
	why, _ := meta.Member("waldo/refused").Text()
	if len(answer) > 0 {
		why = ""
		if _, err := c.ask(ctx, "SendMessage", map[string]any{"message": map[string]any{"messageId": rand.Text(),
			"role": "ROLE_USER", "taskId": now.id, "parts": []any{map[string]any{"text": "a signed answer"}},
			"metadata": map[string]any{"waldo/answer": answer}}, "configuration": map[string]any{"returnImmediately": true},
		}); err != nil {
			why = err.Error()
		}
	}
	if len(answer) > 0 || why != "" {
		_ = c.o.Questions.Sent(ctx, id, why) // else it is sent again
	}
	c.o.Questions.Tell(ctx, question, why)
	return id
}

// away is how long a call waits for a peer that cannot be reached while it has a task there.
const away = 30 * time.Second

// look reads the task of a message, again where the peer is away. An error is not jsonrpc.ErrNotSent, since the message
// was sent. The end of the context cancels the task.
func (c *Conn) look(ctx context.Context, task string) (strictjson.Value, error) {
	for end := time.Now().Add(away); ; {
		v, err := c.ask(ctx, "GetTask", map[string]any{"id": task})
		lost, status := (*url.Error)(nil), (*mcphttp.Status)(nil)
		if errors.As(err, &lost) || errors.As(err, &status) && status.Temporary() || errors.Is(err, io.ErrUnexpectedEOF) {
			select {
			case <-ctx.Done():
			case <-time.After(pollMost):
			}
			if ctx.Err() == nil && time.Now().Before(end) {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			c.give(task)
			return v, ctx.Err()
		case errors.Is(err, jsonrpc.ErrNotSent):
			return v, fmt.Errorf("the task of a message could not be read: %v", err)
		}
		return v, err
	}
}

// question is a task that waits, as a question of a server of MCP to the person at the caller.
func (s state) question() (strictjson.Value, error) {
	var say []string
	for _, c := range contents(s.task.Member("status").Member("message").Member("parts")) {
		if words, is := c.(map[string]any)["text"].(string); is {
			say = append(say, words)
		}
	}
	return value(map[string]any{"requestState": s.id, "inputRequests": map[string]any{"answer": map[string]any{
		"method": "elicitation/create", "params": map[string]any{"mode": "form", "message": strings.Join(say, "\n"),
			"requestedSchema": map[string]any{"type": "object", "required": []string{"answer"},
				"properties": map[string]any{"answer": map[string]any{"type": "string"}}}}}}})
}

// give cancels a task whose call is given up.
func (c *Conn) give(task string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 5*time.Second)
	defer cancel()
	_, _ = c.ask(ctx, "CancelTask", map[string]any{"id": task}) // it can have ended
}

// result is the answer of a tool for a task.
func (s state) result() (strictjson.Value, error) {
	var content []any
	artifacts, _ := s.task.Member("artifacts").Elements()
	for _, a := range artifacts {
		content = append(content, contents(a.Member("parts"))...)
	}
	if s.word != "TASK_STATE_COMPLETED" || len(content) == 0 {
		content = append(content, contents(s.task.Member("status").Member("message").Member("parts"))...)
	}
	structured := map[string]any{"task_id": s.id, "context_id": s.context, "state": s.word}
	waits, person := s.asks()
	if waits {
		content = append(content, text("The task "+s.id+" waits. Call the tool again with task_id to go on with it."))
	} else if s.word != "TASK_STATE_COMPLETED" {
		content = append(content, text("The task "+s.id+" ended as "+s.word+"."))
	}
	effect, _ := s.task.Member("metadata").Member(SideEffect).Text()
	switch {
	case effect == "none" && (waits || s.word == "TASK_STATE_REJECTED"): // a failed one can be a second try
	case waits, s.word != "TASK_STATE_COMPLETED":
		effect = "unknown" // it can have acted before it asked, or before it failed
	default:
		effect = ""
	}
	return result(content, s.word != "TASK_STATE_COMPLETED" && (!waits || person), structured, effect)
}

// SideEffect is the member of _meta of a result, and of the metadata of a waldo's task: none, unknown or confirmed. A
// result without it has the effect of any answer of a server.
const SideEffect = "waldo/side_effect"

// result is the answer of a tool. effect is the SideEffect; empty: that of any answer.
func result(content []any, failed bool, structured map[string]any, effect string) (strictjson.Value, error) {
	if len(content) == 0 {
		content = []any{text("(no output)")}
	}
	out := map[string]any{"content": content, "isError": failed}
	if structured != nil {
		out["structuredContent"] = structured
	}
	if effect != "" {
		out["_meta"] = map[string]any{SideEffect: effect}
	}
	return value(out)
}

func text(s string) any { return map[string]any{"type": "text", "text": s} }

// contents are parts of A2A as contents of MCP.
func contents(parts strictjson.Value) (out []any) {
	all, _ := parts.Elements()
	for _, p := range all {
		kind, _ := p.Member("mediaType").Text()
		if s, ok := p.Member("text").Text(); ok {
			out = append(out, text(s))
		} else if data := p.Member("data"); !data.IsZero() {
			out = append(out, text(string(data.Raw())))
		} else if raw, ok := p.Member("raw").Text(); ok {
			out = append(out, file(p, kind, raw))
		} else if at, ok := p.Member("url").Text(); ok {
			out = append(out, text("a file at "+at))
		}
	}
	return out
}

// file is a part that holds a file.
func file(p strictjson.Value, kind, raw string) any {
	for _, form := range []string{"image", "audio"} {
		if strings.HasPrefix(kind, form+"/") {
			return map[string]any{"type": form, "data": raw, "mimeType": kind}
		}
	}
	name, _ := p.Member("filename").Text()
	if kind == "" {
		kind = "application/octet-stream"
	}
	return map[string]any{"type": "resource", "resource": map[string]any{"uri": "a2a:file/" + url.PathEscape(name),
		"mimeType": kind, "blob": raw}}
}
