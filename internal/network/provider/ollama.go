package provider

import (
	"encoding/json"
	"io"

	"waldo/internal/model/chat"
)

func ollamaBody(model string, r chat.Request) any {
	messages := []any{map[string]any{"role": "system", "content": r.System}}
	for _, m := range r.Messages {
		messages = append(messages, ollamaMessages(m)...)
	}
	body := map[string]any{"model": model, "messages": messages, "stream": true,
		"options": map[string]any{"num_predict": r.Most}}
	if len(r.Tools) > 0 {
		body["tools"] = functions(r.Tools)
	}
	return body
}

func ollamaMessages(m chat.Message) []any {
	var out, calls []any
	text := ""
	for _, b := range m.Blocks {
		switch {
		case b.Call != nil:
			calls = append(calls, map[string]any{
				"function": map[string]any{"name": b.Call.Tool, "arguments": b.Call.Input}})
		case b.Result != nil:
			out = append(out, map[string]any{"role": "tool", "tool_name": b.Result.Tool, "content": b.Result.Text})
		default:
			text += b.Text
		}
	}
	if text == "" && len(calls) == 0 {
		return out
	}
	said := map[string]any{"role": m.Role, "content": text}
	if len(calls) > 0 {
		said["tool_calls"] = calls
	}
	return append(out, said)
}

// ollamaLine is one line of a stream.
type ollamaLine struct {
	Message struct {
		Content string `json:"content"`
		Calls   []struct {
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"message"`
	Done   bool   `json:"done"`
	Reason string `json:"done_reason"`
	Input  int    `json:"prompt_eval_count"`
	Output int    `json:"eval_count"`
	Error  string `json:"error"`
}

// readOllama reads a stream of JSON lines.
func readOllama(r io.Reader, a *answer) error {
	return lines(r, true, func(line []byte) error {
		if len(line) == 0 || a.whole {
			return nil
		}
		var l ollamaLine
		if err := decode(line, &l); err != nil {
			return err
		}
		if l.Error != "" {
			return &Fault{Cause: Overloaded, Text: errorText([]byte(l.Error))}
		}
		if err := a.say(l.Message.Content); err != nil {
			return err
		}
		for _, k := range l.Message.Calls {
			p, err := a.add(&part{call: true, tool: k.Function.Name})
			if err == nil {
				err = a.grow(p, string(k.Function.Arguments))
			}
			if err != nil {
				return err
			}
		}
		if l.Done {
			a.whole, a.usage = true, chat.Usage{Input: l.Input, Output: l.Output}
			a.stop = map[string]chat.Stop{"": chat.End, "stop": chat.End, "length": chat.Length}[l.Reason]
		}
		return nil
	})
}
