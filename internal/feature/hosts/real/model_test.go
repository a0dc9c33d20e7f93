//go:build hosts

package real

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// step is one call that the model makes, of the tool whose name ends so.
type step struct {
	tool string
	args map[string]any
}

// model is a scripted language model that speaks the four protocols of the hosts, streaming. It makes its
// calls one after the other, and keeps what the host gave it as the answer of each. It is a test's way to
// make a real host make real calls.
type model struct {
	steps []step
	said  string // the last words

	mu   sync.Mutex
	got  []string // for each call: the part of the host's request after the call
	seen []string // every request, for a test that fails
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	var in struct {
		Stream   bool              `json:"stream"`
		Tools    []json.RawMessage `json:"tools"`
		Messages []json.RawMessage `json:"messages"` // Messages, chat completions
		Input    []json.RawMessage `json:"input"`    // Responses
		Contents []json.RawMessage `json:"contents"` // Gemini
	}
	_ = json.Unmarshal(body, &in)
	got := answers(slices.Concat(in.Messages, in.Input, in.Contents))
	m.mu.Lock()
	m.seen = append(m.seen, time.Now().Format("05.0 ")+r.Method+" "+r.URL.String()+" "+string(body))
	if len(got) > len(m.got) {
		m.got = got
	}
	m.mu.Unlock()
	t := turn{n: len(got), text: "I have nothing to do."}
	if len(got) >= len(m.steps) {
		t.text = m.said
	} else if name, space := find(in.Tools, m.steps[len(got)].tool); name != "" {
		t.tool, t.space, t.args = name, space, m.steps[len(got)].args
	}
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/messages/count_tokens"):
		reply(w, map[string]any{"input_tokens": 10})
	case strings.HasSuffix(path, "/messages"):
		anthropic(w, in.Stream, t)
	case strings.HasSuffix(path, "/responses"):
		responses(w, t)
	case strings.HasSuffix(path, "/chat/completions"):
		completions(w, in.Stream, t)
	case strings.Contains(path, ":countTokens"):
		reply(w, map[string]any{"totalTokens": 10})
	case strings.Contains(path, ":streamGenerateContent"):
		event(w, "", gemini(t))
	case strings.Contains(path, ":generateContent"):
		reply(w, gemini(t))
	case strings.HasSuffix(path, "/models"):
		reply(w, map[string]any{
			"object": "list", "data": []any{map[string]any{"id": "scripted", "object": "model"}}, "models": []any{},
		})
	default:
		http.NotFound(w, r)
	}
}

// turn is the model's next step: text or a tool call.
type turn struct {
	n                 int // how many came before
	text, tool, space string
	args              map[string]any
}

func (t turn) id(kind string) string { return fmt.Sprintf("%s_%d", kind, t.n) }

func (t turn) arguments() string { b, _ := json.Marshal(t.args); return string(b) }

// answers cuts a conversation at the calls that the model made in it, and returns what follows each.
func answers(talk []json.RawMessage) []string {
	var out []string
	for _, raw := range talk {
		var one struct {
			Type  string `json:"type"`
			Calls []any  `json:"tool_calls"`
			Parts []struct {
				Call any `json:"functionCall"`
			} `json:"parts"`
		}
		_ = json.Unmarshal(raw, &one)
		called := one.Type == "function_call" || len(one.Calls) > 0
		for _, p := range one.Parts {
			called = called || p.Call != nil
		}
		var blocks struct {
			Content []struct {
				Type string `json:"type"`
			} `json:"content"`
		}
		_ = json.Unmarshal(raw, &blocks)
		for _, b := range blocks.Content {
			called = called || b.Type == "tool_use"
		}
		if called {
			out = append(out, "")
		} else if len(out) > 0 {
			out[len(out)-1] += string(raw)
		}
	}
	return out
}

// pictured reports whether an answer holds a picture as one, and not as the text of its bytes.
func pictured(answer, data string) bool {
	d := json.NewDecoder(strings.NewReader(answer))
	for d.More() {
		var v any
		if d.Decode(&v) != nil {
			return false
		}
		if depicts(v, data) {
			return true
		}
	}
	return false
}

func depicts(v any, data string) bool {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			s, _ := x.(string)
			if (name == "data" || name == "image_url" || name == "url") && (s == data || strings.HasSuffix(s, ","+data)) ||
				depicts(x, data) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if depicts(x, data) {
				return true
			}
		}
	}
	return false
}

// find returns the name under which a host offers a tool, however deep it stands in its tools,
// and the name space around it.
func find(tools []json.RawMessage, wanted string) (name, space string) {
	for _, raw := range tools {
		var t struct {
			Name     string `json:"name"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
			Tools    []json.RawMessage `json:"tools"`
			Declared []json.RawMessage `json:"functionDeclarations"`
		}
		_ = json.Unmarshal(raw, &t)
		for _, n := range []string{t.Name, t.Function.Name} {
			if strings.HasSuffix(n, wanted) {
				return n, ""
			}
		}
		if n, _ := find(append(t.Tools, t.Declared...), wanted); n != "" {
			return n, t.Name
		}
	}
	return "", ""
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// event writes one server-sent event.
func event(w http.ResponseWriter, name string, v any) {
	w.Header().Set("Content-Type", "text/event-stream")
	b, _ := json.Marshal(v)
	if name != "" {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", b)
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}

type obj = map[string]any

// anthropic speaks the Messages protocol.
func anthropic(w http.ResponseWriter, stream bool, t turn) {
	block, delta, stop := obj{"type": "text", "text": ""}, obj{"type": "text_delta", "text": t.text}, "end_turn"
	whole := obj{"type": "text", "text": t.text}
	if t.tool != "" {
		block, delta, stop = obj{"type": "tool_use", "id": t.id("toolu"), "name": t.tool, "input": obj{}},
			obj{"type": "input_json_delta", "partial_json": t.arguments()}, "tool_use"
		whole = obj{"type": "tool_use", "id": t.id("toolu"), "name": t.tool, "input": t.args}
	}
	message := obj{
		"id": t.id("msg"), "type": "message", "role": "assistant", "model": "scripted", "content": []any{},
		"stop_reason": nil, "usage": obj{"input_tokens": 1, "output_tokens": 1},
	}
	if !stream {
		message["content"], message["stop_reason"] = []any{whole}, stop
		reply(w, message)
		return
	}
	event(w, "message_start", obj{"type": "message_start", "message": message})
	event(w, "content_block_start", obj{"type": "content_block_start", "index": 0, "content_block": block})
	event(w, "content_block_delta", obj{"type": "content_block_delta", "index": 0, "delta": delta})
	event(w, "content_block_stop", obj{"type": "content_block_stop", "index": 0})
	event(w, "message_delta", obj{
		"type": "message_delta", "delta": obj{"stop_reason": stop}, "usage": obj{"output_tokens": 1},
	})
	event(w, "message_stop", obj{"type": "message_stop"})
}

// responses speaks OpenAI's Responses protocol.
func responses(w http.ResponseWriter, t turn) {
	item := obj{
		"type": "message", "id": t.id("msg"), "role": "assistant", "status": "completed",
		"content": []any{obj{"type": "output_text", "text": t.text, "annotations": []any{}}},
	}
	if t.tool != "" {
		item = obj{
			"type": "function_call", "id": t.id("fc"), "call_id": t.id("call"), "name": t.tool, "arguments": t.arguments(),
			"status": "completed",
		}
		if t.space != "" {
			item["namespace"] = t.space
		}
	}
	event(w, "response.created", obj{"type": "response.created", "response": obj{"id": t.id("resp")}})
	event(w, "response.output_item.done", obj{"type": "response.output_item.done", "output_index": 0, "item": item})
	event(w, "response.completed",
		obj{"type": "response.completed", "response": obj{"id": t.id("resp"), "output": []any{item},
			"usage": obj{
				"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2,
			}}})
}

// completions speaks OpenAI's chat completions.
func completions(w http.ResponseWriter, stream bool, t turn) {
	delta, stop := obj{"role": "assistant", "content": t.text}, "stop"
	if t.tool != "" {
		delta = obj{
			"role": "assistant", "tool_calls": []any{obj{
				"index": 0, "id": t.id("call"), "type": "function", "function": obj{"name": t.tool, "arguments": t.arguments()},
			}},
		}
		stop = "tool_calls"
	}
	chunk := func(delta any, stop any) obj {
		return obj{
			"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
			"choices": []any{obj{"index": 0, "delta": delta, "finish_reason": stop}},
		}
	}
	if !stream {
		reply(w, obj{"id": "c1", "object": "chat.completion", "created": 1, "model": "scripted",
			"choices": []any{obj{"index": 0, "message": delta, "finish_reason": stop}},
			"usage":   obj{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
		return
	}
	event(w, "", chunk(delta, nil))
	event(w, "", chunk(obj{}, stop))
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// gemini speaks Gemini's generateContent.
func gemini(t turn) obj {
	part := obj{"text": t.text}
	if t.tool != "" {
		part = obj{"functionCall": obj{"name": t.tool, "args": t.args}}
	}
	return obj{"candidates": []any{obj{
		"index": 0, "finishReason": "STOP", "content": obj{"role": "model", "parts": []any{part}},
	}},
		"usageMetadata": obj{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
}
