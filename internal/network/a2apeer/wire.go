package a2apeer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// endpoint is where an agent is asked, and in which form.
type endpoint struct {
	at      string
	old     bool // A2A 0.3
	rest    bool // HTTP+JSON; else JSON-RPC
	streams bool
	id      strictjson.Value // of the last request in JSON-RPC
	trace   jsonrpc.Trace    // of the message that is sent
}

func (e endpoint) version() string {
	if e.old {
		return "0.3"
	}
	return "1.0"
}

// oldMethods are the names of the operations in A2A 0.3.
var oldMethods = map[string]string{"SendMessage": "message/send", "SendStreamingMessage": "message/stream",
	"GetTask": "tasks/get", "CancelTask": "tasks/cancel", "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard"}

// path is where an operation is below the address of HTTP+JSON (A2A 1.0 §11.3).
func path(operation, task string) (method, below string) {
	switch operation {
	case "SendMessage":
		return http.MethodPost, "/message:send"
	case "SendStreamingMessage":
		return http.MethodPost, "/message:stream"
	case "GetTask":
		return http.MethodGet, "/tasks/" + url.PathEscape(task)
	case "CancelTask":
		return http.MethodPost, "/tasks/" + url.PathEscape(task) + ":cancel"
	}
	return http.MethodGet, "/extendedAgentCard"
}

// post sends one operation, and notes the id that its answer must have.
func (c *Conn) post(ctx context.Context, e *endpoint, operation string, params map[string]any) (*http.Response, error) {
	if e.rest {
		task, _ := params["id"].(string)
		method, below := path(operation, task)
		var body []byte
		if method == http.MethodPost {
			var err error
			if body, err = json.Marshal(params); err != nil {
				return nil, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err)
			}
		}
		return c.do(ctx, method, strings.TrimSuffix(e.at, "/")+below, *e, body)
	}
	var err error
	if e.id, err = value(c.number.Add(1)); err != nil {
		return nil, err
	}
	if e.old {
		operation = oldMethods[operation]
	}
	frame, err := jsonrpc.Request(e.id, operation, params)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, err)
	}
	return c.do(ctx, http.MethodPost, e.at, *e, frame)
}

// askAt carries out one operation at an endpoint. Its answer has the form of A2A 1.0.
func (c *Conn) askAt(ctx context.Context, e endpoint, operation string, params map[string]any) (strictjson.Value, error) {
	resp, err := c.post(ctx, &e, operation, params)
	if err != nil {
		return strictjson.Value{}, err
	}
	return e.answer(resp, operation)
}

// answer reads the answer to an operation. In HTTP+JSON, a status of a server or proxy that is away or busy is no
// answer of the agent, whatever is in its body.
func (e endpoint) answer(resp *http.Response, operation string) (strictjson.Value, error) {
	code := resp.StatusCode
	if e.rest && (code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooManyRequests) {
		_ = resp.Body.Close()
		return strictjson.Value{}, mcphttp.StatusOf(resp)
	}
	v, err := read(resp, maxAnswer)
	if err != nil {
		return v, err
	}
	if e.rest {
		if code/100 == 2 {
			return v, nil
		}
		say, _ := v.Member("error").Member("message").Text()
		return v, jsonrpc.Errorf(jsonrpc.CodeBusy, "the agent answered %d: %.500s", code, say)
	}
	return e.unwrapped(v, operation)
}

// unwrapped returns the result in an answer of JSON-RPC.
func (e endpoint) unwrapped(v strictjson.Value, operation string) (strictjson.Value, error) {
	m, fault := jsonrpc.Parse(v.Raw())
	if fault != nil || !m.ID.IsZero() && !bytes.Equal(m.ID.Canonical(), e.id.Canonical()) {
		return v, &jsonrpc.MalformedResponse{Why: "it is not an answer of JSON-RPC to this request"}
	}
	if err := m.Fault(); err != nil || !e.old || operation == "GetExtendedAgentCard" {
		return m.Result, err
	}
	now := newer(m.Result)
	if operation == "GetTask" || operation == "CancelTask" {
		return value(now["task"])
	}
	return value(now)
}

// Limits of one stream.
const maxStream = 256 << 20

// stream sends a message, reports each event, and returns where its task was at the last one, or the message that
// answers. A stream that breaks off is followed by its task.
func (c *Conn) stream(ctx context.Context, e endpoint, params map[string]any, tell *told) (strictjson.Value, error) {
	resp, err := c.post(ctx, &e, "SendStreamingMessage", params)
	if err != nil {
		return strictjson.Value{}, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "text/event-stream" || resp.StatusCode/100 != 2 {
		return e.answer(resp, "SendMessage")
	}
	defer func() { _ = resp.Body.Close() }()
	var task string
	var direct strictjson.Value
	err = mcphttp.Events(resp.Body, maxStream, func(data []byte) (bool, error) {
		v, err := strictjson.Parse(data)
		if err != nil {
			return false, &jsonrpc.MalformedResponse{Why: "an event is not strict JSON"}
		}
		if !e.rest {
			if v, err = e.unwrapped(v, "SendStreamingMessage"); err != nil {
				return false, err
			}
		}
		c.reads.Add(1)
		tell.more()
		if direct = v; !v.Member("message").IsZero() {
			return false, nil
		}
		id, word := event(v)
		if id == "" || len(id) > 256 || task != "" && id != task {
			return false, &jsonrpc.MalformedResponse{Why: "it is not an event of one task of A2A"}
		}
		task = id
		return !(state{word: word}).rests(), nil
	})
	switch fault := (*jsonrpc.MalformedResponse)(nil); {
	case ctx.Err() != nil && task != "":
		c.give(task)
		return direct, ctx.Err()
	case task == "" && !direct.Member("message").IsZero():
		return direct, nil
	case task == "" && err == nil:
		return direct, errors.New("the stream ended before it began")
	case task == "" || errors.As(err, &fault):
		return direct, err
	}
	v, err := c.look(ctx, task)
	if err != nil {
		return v, err
	}
	return value(map[string]any{"task": v})
}

// event returns the task of an event of a stream, and its state where the event names it.
func event(v strictjson.Value) (task, word string) {
	if t := v.Member("task"); !t.IsZero() {
		task, _ = t.Member("id").Text()
		word, _ = t.Member("status").Member("state").Text()
		return task, word
	}
	if s := v.Member("statusUpdate"); !s.IsZero() {
		task, _ = s.Member("taskId").Text()
		word, _ = s.Member("status").Member("state").Text()
		return task, word
	}
	task, _ = v.Member("artifactUpdate").Member("taskId").Text()
	return task, ""
}

// older is a message in the form of A2A 0.3.
func older(message map[string]any) map[string]any {
	out := map[string]any{"kind": "message"}
	for name, v := range message {
		out[name] = v
	}
	out["role"] = "user"
	parts := []any{}
	for _, p := range message["parts"].([]any) {
		part := map[string]any{}
		for kind, v := range p.(map[string]any) {
			part["kind"], part[kind] = kind, v
		}
		parts = append(parts, part)
	}
	out["parts"] = parts
	return out
}

// newer is a result of A2A 0.3 in the form of 1.0, as far as waldo reads it.
func newer(v strictjson.Value) map[string]any {
	taskID := v.Member("taskId")
	switch kind, _ := v.Member("kind").Text(); kind {
	case "message":
		return map[string]any{"message": newerMessage(v)}
	case "status-update":
		return map[string]any{"statusUpdate": map[string]any{"taskId": taskID, "status": newerStatus(v.Member("status"))}}
	case "artifact-update":
		return map[string]any{"artifactUpdate": map[string]any{"taskId": taskID}}
	}
	artifacts := []any{}
	all, _ := v.Member("artifacts").Elements()
	for _, a := range all {
		artifacts = append(artifacts, newerMessage(a))
	}
	task := map[string]any{"id": v.Member("id"), "contextId": v.Member("contextId"), "artifacts": artifacts,
		"status": newerStatus(v.Member("status"))}
	for name, member := range task {
		if member, is := member.(strictjson.Value); is && member.IsZero() {
			delete(task, name)
		}
	}
	return map[string]any{"task": task}
}

func newerStatus(v strictjson.Value) map[string]any {
	word, _ := v.Member("state").Text()
	out := map[string]any{"state": "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(word, "-", "_"))}
	if said := v.Member("message"); !said.IsZero() {
		out["message"] = newerMessage(said)
	}
	return out
}

// newerMessage returns the parts of a message or artifact of A2A 0.3.
func newerMessage(v strictjson.Value) map[string]any {
	parts := []any{}
	all, _ := v.Member("parts").Elements()
	for _, p := range all {
		part := map[string]any{}
		file := p.Member("file")
		for name, member := range map[string]strictjson.Value{"text": p.Member("text"), "data": p.Member("data"),
			"raw": file.Member("bytes"), "url": file.Member("uri"), "mediaType": file.Member("mimeType"), "filename": file.Member("name")} {
			if !member.IsZero() {
				part[name] = member
			}
		}
		parts = append(parts, part)
	}
	return map[string]any{"parts": parts}
}
