package provider

import (
	"encoding/json"
	"io"

	"waldo/internal/feature/agent/chat"
)

func ollamaBody(model string, r chat.Request) any {
	body := functionBody(model, r, "", func(b chat.Block) map[string]any {
		if b.Call != nil {
			return map[string]any{"function": map[string]any{"name": b.Call.Tool, "arguments": b.Call.Input}}
		}
		return map[string]any{"role": "tool", "tool_name": b.Result.Tool, "content": b.Result.Text}
	})
	body["options"] = map[string]any{"num_predict": r.Most}
	return body
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
