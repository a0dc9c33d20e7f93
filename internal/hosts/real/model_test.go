//go:build hosts

package real

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// model is a scripted language model that speaks the four protocols of the hosts, streaming. To the
// first question that offers run_python it answers with one call; once it sees the call's result it
// says so. It is a test's way to make a real host make a real call.
type model struct {
	code string // what run_python is to run
	want string // what its result holds
	said string // the last words

	mu   sync.Mutex
	seen []string // every request, for a test that fails
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	m.mu.Lock()
	m.seen = append(m.seen, time.Now().Format("05.0 ")+r.Method+" "+r.URL.String()+" "+string(body))
	m.mu.Unlock()
	var in struct {
		Stream bool              `json:"stream"`
		Tools  []json.RawMessage `json:"tools"`
	}
	_ = json.Unmarshal(body, &in)
	tool, space := find(in.Tools)
	t := turn{text: "I have nothing to do."}
	switch {
	case strings.Contains(string(body), m.want):
		t.text = m.said
	case tool != "":
		t.tool, t.space, t.args = tool, space, map[string]any{"code": m.code}
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
		reply(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": "scripted", "object": "model"}}, "models": []any{}})
	default:
		http.NotFound(w, r)
	}
}

// turn is what the model does next: it speaks, or calls a tool.
type turn struct {
	text, tool, space string
	args              map[string]any
}

func (t turn) arguments() string { b, _ := json.Marshal(t.args); return string(b) }

// find returns the name under which a host offers run_python, however deep it stands in its tools,
// and the name space around it.
func find(tools []json.RawMessage) (name, space string) {
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
			if strings.HasSuffix(n, "run_python") {
				return n, ""
			}
		}
		if n, _ := find(append(t.Tools, t.Declared...)); n != "" {
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
		block, delta, stop = obj{"type": "tool_use", "id": "toolu_1", "name": t.tool, "input": obj{}}, obj{"type": "input_json_delta", "partial_json": t.arguments()}, "tool_use"
		whole = obj{"type": "tool_use", "id": "toolu_1", "name": t.tool, "input": t.args}
	}
	message := obj{"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "stop_reason": nil, "usage": obj{"input_tokens": 1, "output_tokens": 1}}
	if !stream {
		message["content"], message["stop_reason"] = []any{whole}, stop
		reply(w, message)
		return
	}
	event(w, "message_start", obj{"type": "message_start", "message": message})
	event(w, "content_block_start", obj{"type": "content_block_start", "index": 0, "content_block": block})
	event(w, "content_block_delta", obj{"type": "content_block_delta", "index": 0, "delta": delta})
	event(w, "content_block_stop", obj{"type": "content_block_stop", "index": 0})
	event(w, "message_delta", obj{"type": "message_delta", "delta": obj{"stop_reason": stop}, "usage": obj{"output_tokens": 1}})
	event(w, "message_stop", obj{"type": "message_stop"})
}

// responses speaks OpenAI's Responses protocol.
func responses(w http.ResponseWriter, t turn) {
	item := obj{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []any{obj{"type": "output_text", "text": t.text, "annotations": []any{}}}}
	if t.tool != "" {
		item = obj{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": t.tool, "arguments": t.arguments(), "status": "completed"}
		if t.space != "" {
			item["namespace"] = t.space
		}
	}
	event(w, "response.created", obj{"type": "response.created", "response": obj{"id": "resp_1"}})
	event(w, "response.output_item.done", obj{"type": "response.output_item.done", "output_index": 0, "item": item})
	event(w, "response.completed", obj{"type": "response.completed", "response": obj{"id": "resp_1", "output": []any{item},
		"usage": obj{"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}}})
}

// completions speaks OpenAI's chat completions.
func completions(w http.ResponseWriter, stream bool, t turn) {
	delta, stop := obj{"role": "assistant", "content": t.text}, "stop"
	if t.tool != "" {
		delta = obj{"role": "assistant", "tool_calls": []any{obj{"index": 0, "id": "call_1", "type": "function", "function": obj{"name": t.tool, "arguments": t.arguments()}}}}
		stop = "tool_calls"
	}
	chunk := func(delta any, stop any) obj {
		return obj{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": []any{obj{"index": 0, "delta": delta, "finish_reason": stop}}}
	}
	if !stream {
		reply(w, obj{"id": "c1", "object": "chat.completion", "created": 1, "model": "scripted", "choices": []any{obj{"index": 0, "message": delta, "finish_reason": stop}},
			"usage": obj{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
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
	return obj{"candidates": []any{obj{"index": 0, "finishReason": "STOP", "content": obj{"role": "model", "parts": []any{part}}}},
		"usageMetadata": obj{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
}
