package provider

import (
	"encoding/json"
	"io"
	"net/http"

	"waldo/internal/feature/agent/chat"
)

func anthropicHeader(h http.Header, key string) {
	h.Set("anthropic-version", "2023-06-01")
	if key != "" {
		h.Set("x-api-key", key)
	}
}

func anthropicBody(model string, r chat.Request) any {
	messages := []any{}
	for _, m := range r.Messages {
		blocks := []any{}
		for _, b := range m.Blocks {
			switch {
			case b.Call != nil:
				blocks = append(blocks, map[string]any{
					"type": "tool_use", "id": b.Call.ID, "name": b.Call.Tool, "input": b.Call.Input})
			case b.Result != nil:
				blocks = append(blocks, map[string]any{"type": "tool_result", "tool_use_id": b.Result.CallID,
					"content": b.Result.Text, "is_error": b.Result.Error})
			default:
				blocks = append(blocks, map[string]any{"type": "text", "text": b.Text})
			}
		}
		messages = append(messages, map[string]any{"role": m.Role, "content": blocks})
	}
	body := map[string]any{
		"model": model, "max_tokens": r.Most, "system": r.System, "messages": messages, "stream": true}
	if len(r.Tools) > 0 {
		tools := []any{}
		for _, t := range r.Tools {
			tools = append(tools, map[string]any{"name": t.Name, "description": t.Description, "input_schema": t.Schema})
		}
		body["tools"] = tools
	}
	return body
}

// anthropicEvent is one event of a stream. Only the fields of its type are set.
type anthropicEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	Block struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type   string `json:"type"`
		Text   string `json:"text"`
		Input  string `json:"partial_json"`
		Reason string `json:"stop_reason"`
	} `json:"delta"`
	Usage anthropicUsage `json:"usage"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

type anthropicUsage struct {
	Input   int `json:"input_tokens"`
	Written int `json:"cache_creation_input_tokens"`
	Cached  int `json:"cache_read_input_tokens"`
	Output  int `json:"output_tokens"`
}

var anthropicStops = map[string]chat.Stop{"end_turn": chat.End, "stop_sequence": chat.End, "tool_use": chat.Calls,
	"max_tokens": chat.Length, "model_context_window_exceeded": chat.Length, "refusal": chat.Refused}

// readAnthropic reads a stream of the Messages API. Thinking and other kinds of block are passed over.
func readAnthropic(r io.Reader, a *answer) error {
	blocks := map[int]*part{} // by index; nil: passed over
	return events(r, func(data []byte) error {
		var e anthropicEvent
		if err := decode(data, &e); err != nil {
			return err
		}
		if a.whole {
			return nil
		}
		switch e.Type {
		case "message_start":
			u := e.Message.Usage
			a.usage = chat.Usage{Input: u.Input + u.Written + u.Cached, Output: u.Output}
		case "content_block_start":
			if _, twice := blocks[e.Index]; twice {
				return malformed("block %d of the answer begins twice", e.Index)
			}
			p, err := anthropicBlock(e, a)
			blocks[e.Index] = p
			return err
		case "content_block_delta":
			p, begun := blocks[e.Index]
			switch {
			case !begun:
				return malformed("block %d of the answer has not begun", e.Index)
			case p != nil && e.Delta.Type == "text_delta" && !p.call:
				return a.grow(p, e.Delta.Text)
			case p != nil && e.Delta.Type == "input_json_delta" && p.call:
				return a.grow(p, e.Delta.Input)
			}
		case "message_delta":
			if e.Delta.Reason != "" {
				a.stop = anthropicStops[e.Delta.Reason]
			}
			if e.Usage.Output > 0 {
				a.usage.Output = e.Usage.Output
			}
		case "message_stop":
			a.whole = true
		case "error":
			f := &Fault{Cause: Rejected, Text: errorText([]byte(e.Error.Message))}
			switch e.Error.Type {
			case "overloaded_error", "api_error", "rate_limit_error", "timeout_error":
				f.Cause = Overloaded
			}
			return f
		}
		return nil
	})
}

func anthropicBlock(e anthropicEvent, a *answer) (*part, error) {
	switch e.Block.Type {
	case "text":
		p, err := a.add(&part{})
		if err != nil {
			return nil, err
		}
		return p, a.grow(p, e.Block.Text)
	case "tool_use":
		p, err := a.add(&part{call: true, key: e.Block.ID, tool: e.Block.Name})
		if err != nil {
			return nil, err
		}
		if s := string(e.Block.Input); s != "" && s != "{}" && s != "null" { // usually it comes in parts
			return p, a.grow(p, s)
		}
		return p, nil
	}
	return nil, nil
}
