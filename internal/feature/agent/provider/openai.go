package provider

import (
	"encoding/json"
	"io"

	"waldo/internal/feature/agent/chat"
)

func openaiBody(model string, r chat.Request) any {
	body := functionBody(model, r, nil, func(b chat.Block) map[string]any {
		if b.Call != nil {
			return map[string]any{"id": b.Call.ID, "type": "function",
				"function": map[string]any{"name": b.Call.Tool, "arguments": string(b.Call.Input)}}
		}
		return map[string]any{"role": "tool", "tool_call_id": b.Result.CallID, "content": b.Result.Text}
	})
	body["stream_options"], body["max_tokens"] = map[string]any{"include_usage": true}, r.Most
	return body
}

// functionBody is a request as OpenAI and Ollama take it. convert makes a call, or a message of a result, of a block.
// silent is the content of a message of calls alone.
func functionBody(model string, r chat.Request, silent any, convert func(chat.Block) map[string]any) map[string]any {
	messages := []any{map[string]any{"role": "system", "content": r.System}}
	for _, m := range r.Messages {
		var calls []any
		text := ""
		for _, b := range m.Blocks {
			switch {
			case b.Call != nil:
				calls = append(calls, convert(b))
			case b.Result != nil:
				messages = append(messages, convert(b))
			default:
				text += b.Text
			}
		}
		said := map[string]any{"role": m.Role, "content": text}
		if len(calls) > 0 {
			said["tool_calls"] = calls
			if text == "" {
				said["content"] = silent
			}
		}
		if text != "" || len(calls) > 0 {
			messages = append(messages, said)
		}
	}
	body := map[string]any{"model": model, "messages": messages, "stream": true}
	if len(r.Tools) > 0 {
		body["tools"] = functions(r.Tools)
	}
	return body
}

// functions are tools as OpenAI and Ollama take them.
func functions(tools []chat.Tool) []any {
	out := []any{}
	for _, t := range tools {
		out = append(out, map[string]any{"type": "function",
			"function": map[string]any{"name": t.Name, "description": t.Description, "parameters": t.Schema}})
	}
	return out
}

// openaiChunk is one part of a stream.
type openaiChunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
			Refusal string `json:"refusal"`
			Calls   []struct {
				Index    int    `json:"index"`
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"delta"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Input  int `json:"prompt_tokens"`
		Output int `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

var openaiStops = map[string]chat.Stop{"stop": chat.End, "tool_calls": chat.Calls, "function_call": chat.Calls,
	"length": chat.Length, "content_filter": chat.Refused}

// readOpenAI reads a stream of chat completions. Its end is a finish_reason: not every server sends [DONE].
func readOpenAI(r io.Reader, a *answer) error {
	calls, done, refused := map[int]*part{}, false, false
	return events(r, func(data []byte) error {
		if done || string(data) == "[DONE]" {
			done = true
			return nil
		}
		var c openaiChunk
		if err := decode(data, &c); err != nil {
			return err
		}
		if len(c.Error) > 0 && string(c.Error) != "null" {
			return &Fault{Cause: Overloaded, Text: errorText(data)}
		}
		if c.Usage.Input+c.Usage.Output > 0 {
			a.usage = chat.Usage{Input: c.Usage.Input, Output: c.Usage.Output}
		}
		if len(c.Choices) == 0 || a.whole {
			return nil
		}
		d := c.Choices[0].Delta
		refused = refused || d.Refusal != ""
		if err := a.say(d.Content + d.Refusal); err != nil {
			return err
		}
		for _, k := range d.Calls {
			p := calls[k.Index]
			if p == nil || k.ID != "" && p.key != "" && k.ID != p.key { // some servers number every call 0
				var err error
				if p, err = a.add(&part{call: true, key: k.ID, tool: k.Function.Name}); err != nil {
					return err
				}
				calls[k.Index] = p
			}
			if err := a.grow(p, k.Function.Arguments); err != nil {
				return err
			}
		}
		if f := c.Choices[0].Finish; f != "" {
			a.stop, a.whole = openaiStops[f], true
			if refused {
				a.stop = chat.Refused
			}
		}
		return nil
	})
}
