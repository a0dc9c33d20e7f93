// Package a2apeer is a connection to an agent of A2A 1.0 that answers as an MCP server does: its skills are tools, a
// call is a task. What pins, hides and limits the tools of servers then holds for it. All that it sends is untrusted.
package a2apeer

import (
	"bytes"
	"context"
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
	pauseMost = time.Minute     // for a person at the peer, where the call has no deadline
	spare     = 3 * time.Second // of the deadline of a call, to answer in
)

// Options are what a connection is made of.
type Options struct {
	mcphttp.Options        // URL is the address of the agent; its card is below it
	Key             string // the thumbprint of the key that signs its card (RFC 7638); empty: any, or none
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
	at     atomic.Pointer[string] // where requests go, of the card
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
			"serverInfo":   map[string]any{"name": c.base.Host, "version": "A2A 1.0"}})
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
func (c *Conn) do(ctx context.Context, method, at string, body []byte) (*http.Response, error) {
	for again := true; ; again = false {
		r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("A2A-Version", "1.0")
		r.Header.Set("A2A-Extensions", arguments)
		r.Header.Set("Accept", "application/json")
		if body != nil {
			r.Header.Set("Content-Type", "application/json")
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
		if resp.StatusCode != http.StatusOK {
			return v, fmt.Errorf("the agent answered %d", resp.StatusCode)
		}
		return v, &jsonrpc.MalformedResponse{Why: "it is not strict JSON"}
	}
	return v, nil
}

// ask calls one method of A2A.
func (c *Conn) ask(ctx context.Context, method string, params any) (strictjson.Value, error) {
	at := c.at.Load()
	if at == nil {
		card, err := c.card(ctx)
		if err != nil {
			return strictjson.Value{}, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err)
		}
		at = &card.at
	}
	return c.askAt(ctx, *at, method, params)
}

func (c *Conn) askAt(ctx context.Context, at, method string, params any) (strictjson.Value, error) {
	id, err := value(c.number.Add(1))
	if err != nil {
		return strictjson.Value{}, err
	}
	frame, err := jsonrpc.Request(id, method, params)
	if err != nil {
		return strictjson.Value{}, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err)
	}
	resp, err := c.do(ctx, http.MethodPost, at, frame)
	if err != nil {
		return strictjson.Value{}, err
	}
	v, err := read(resp, maxAnswer)
	if err != nil {
		return v, err
	}
	m, fault := jsonrpc.Parse(v.Raw())
	if fault != nil {
		return v, &jsonrpc.MalformedResponse{Why: "it is not an answer of JSON-RPC"}
	}
	return m.Result, m.Fault()
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

// call sends a message to a skill, and follows its task until it has ended or waits for its caller. A call that is
// given up cancels its task.
func (c *Conn) call(
	ctx context.Context, params strictjson.Value, progress func(done, total float64),
) (strictjson.Value, error) {
	skill, _ := params.Member("name").Text()
	args := params.Member("arguments")
	text, said := args.Member("message").Text()
	data := args.Member("arguments")
	task, has := args.Member("task_id").Text()
	var now state
	if has && !said && data.IsZero() {
		v, err := c.ask(ctx, "GetTask", map[string]any{"id": task})
		if err == nil {
			now, err = stateOf(v)
		}
		if err != nil {
			return v, err
		}
	} else {
		message := map[string]any{"messageId": rand.Text(), "role": "ROLE_USER", "metadata": map[string]any{"skill": skill}}
		if has {
			message["taskId"] = task
		}
		if in, ok := args.Member("context_id").Text(); ok {
			message["contextId"] = in
		}
		parts := []any{}
		if said {
			parts = append(parts, map[string]any{"text": text})
		}
		if !data.IsZero() {
			parts = append(parts, map[string]any{"data": data})
		}
		if len(parts) == 0 {
			return strictjson.Value{}, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent,
				jsonrpc.Errorf(jsonrpc.CodeParams, "message or arguments must be there"))
		}
		message["parts"] = parts
		v, err := c.ask(ctx, "SendMessage", map[string]any{"message": message,
			"configuration": map[string]any{"returnImmediately": true}})
		if err != nil {
			return v, err
		}
		if direct := v.Member("message"); !direct.IsZero() {
			return result(contents(direct.Member("parts")), false, nil)
		}
		if now, err = stateOf(v.Member("task")); err != nil {
			return v, err
		}
	}
	return c.follow(ctx, now, progress)
}

// follow waits for a task.
func (c *Conn) follow(ctx context.Context, now state, progress func(done, total float64)) (strictjson.Value, error) {
	until := time.Now().Add(pauseMost)
	if by, has := ctx.Deadline(); has {
		until = by.Add(-spare)
	}
	for pause, seen := pollFirst, 0.0; !now.ended(); pause = min(pause*2, pollMost) {
		if waits, person := now.asks(); waits && (!person || time.Now().After(until)) {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			c.give(now.id)
			return strictjson.Value{}, ctx.Err()
		}
		v, err := c.ask(ctx, "GetTask", map[string]any{"id": now.id})
		if ctx.Err() != nil {
			c.give(now.id)
			return v, ctx.Err()
		}
		if err != nil {
			return v, err
		}
		next, err := stateOf(v)
		if err != nil || next.id != now.id {
			return v, &jsonrpc.MalformedResponse{Why: "it is not the task that was asked for"}
		}
		if next.word != now.word && progress != nil {
			seen++
			progress(seen, 0)
		}
		now = next
	}
	return now.result()
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
	if waits, _ := s.asks(); waits {
		content = append(content, text("The task "+s.id+" waits. Call the tool again with task_id to go on with it."))
	} else if s.word != "TASK_STATE_COMPLETED" {
		content = append(content, text("The task "+s.id+" ended as "+s.word+"."))
	}
	waits, _ := s.asks()
	return result(content, s.word != "TASK_STATE_COMPLETED" && !waits, structured)
}

func result(content []any, failed bool, structured map[string]any) (strictjson.Value, error) {
	if len(content) == 0 {
		content = []any{text("(no output)")}
	}
	out := map[string]any{"content": content, "isError": failed}
	if structured != nil {
		out["structuredContent"] = structured
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
