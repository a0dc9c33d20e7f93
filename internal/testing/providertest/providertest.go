// Package providertest is a language model for tests: a script behind real HTTP, in the APIs of all three kinds. It
// refuses requests that the real APIs refuse.
package providertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Call is a tool call that the model makes. Input is JSON, or another text of the script.
type Call struct{ Tool, Input string }

// Turn is one answer of the script.
type Turn struct {
	Text  string
	Calls []Call
	Stop  string // in the API's own words; empty: the fitting one

	Status int           // of HTTP; 0: 200
	Raw    string        // the body in place of an answer
	After  string        // Retry-After
	Hold   time.Duration // silence before the second half of the answer
	Cut    bool          // the connection ends in the middle
	Tokens int           // that the answer states as its output; 0: 7
}

// Result is a result of a tool, as the model got it.
type Result struct{ ID, Tool, Text string }

// Ask is a request, as all kinds have it.
type Ask struct {
	Kind    string
	Key     string
	System  string
	Task    string   // the first words of the user
	Said    []string // all words of the user
	Results []Result // of all calls, in order
	Answers int      // earlier answers of the model
	Tools   []string
	Most    int
}

// Server answers by a script. Chunk is how many bytes go out at a time; 0: all.
type Server struct {
	Script func(Ask) Turn
	Chunk  int

	mu     sync.Mutex
	asked  []Ask
	faults []string
}

// Asked returns the requests so far.
func (s *Server) Asked() []Ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Ask{}, s.asked...)
}

// Faults returns what the real APIs would refuse of the requests so far.
func (s *Server) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.faults...)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	kind := map[string]string{"/v1/messages": "anthropic", "/chat/completions": "openai", "/api/chat": "ollama"}[r.URL.Path]
	var a Ask
	if err == nil {
		a, err = parse(kind, b)
	}
	a.Kind, a.Key = kind, r.Header.Get("x-api-key")
	if kind != "anthropic" {
		a.Key = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	s.mu.Lock()
	if err != nil {
		s.faults = append(s.faults, err.Error())
	}
	s.asked = append(s.asked, a)
	s.mu.Unlock()
	if err != nil {
		http.Error(w, `{"error":{"message":`+quote(err.Error())+`}}`, http.StatusBadRequest)
		return
	}
	t := s.Script(a)
	if t.After != "" {
		w.Header().Set("Retry-After", t.After)
	}
	if t.Status != 0 {
		w.WriteHeader(t.Status)
	}
	body := t.Raw
	if body == "" {
		body = Render(kind, t)
	}
	if t.Cut {
		body = body[:len(body)/2]
	}
	s.send(w, body, t.Hold)
	if t.Cut {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) send(w http.ResponseWriter, body string, hold time.Duration) {
	n := s.Chunk
	if n == 0 {
		n = len(body)
	}
	half := len(body) / 2
	for i := 0; i < len(body); i += n {
		if hold > 0 && i <= half && i+n > half {
			time.Sleep(hold)
		}
		_, _ = io.WriteString(w, body[i:min(i+n, len(body))])
		w.(http.Flusher).Flush()
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// Render writes an answer as the API of a kind streams it.
func Render(kind string, t Turn) string {
	if t.Tokens == 0 {
		t.Tokens = 7
	}
	switch kind {
	case "anthropic":
		return renderAnthropic(t)
	case "openai":
		return renderOpenAI(t)
	}
	return renderOllama(t)
}

// halves cuts a text in two, between characters.
func halves(s string) []string {
	r := []rune(s)
	return []string{string(r[:len(r)/2]), string(r[len(r)/2:])}
}

func renderAnthropic(t Turn) string {
	var b strings.Builder
	event := func(kind, data string) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, data)
	}
	event("message_start", `,"message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":11,"output_tokens":1}}`)
	event("ping", "")
	i := 0
	if t.Text != "" {
		event("content_block_start", fmt.Sprintf(`,"index":%d,"content_block":{"type":"text","text":""}`, i))
		for _, part := range halves(t.Text) {
			event("content_block_delta", fmt.Sprintf(`,"index":%d,"delta":{"type":"text_delta","text":%s}`, i, quote(part)))
		}
		event("content_block_stop", fmt.Sprintf(`,"index":%d`, i))
		i++
	}
	for _, c := range t.Calls {
		event("content_block_start", fmt.Sprintf(`,"index":%d,"content_block":{"type":"tool_use","id":"toolu_%d","name":%s,"input":{}}`,
			i, i, quote(c.Tool)))
		for _, part := range halves(c.Input) {
			event("content_block_delta", fmt.Sprintf(`,"index":%d,"delta":{"type":"input_json_delta","partial_json":%s}`, i, quote(part)))
		}
		event("content_block_stop", fmt.Sprintf(`,"index":%d`, i))
		i++
	}
	stop := t.Stop
	if stop == "" {
		if stop = "end_turn"; len(t.Calls) > 0 {
			stop = "tool_use"
		}
	}
	event("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":%q},"usage":{"output_tokens":%d}`, stop, t.Tokens))
	event("message_stop", "")
	return b.String()
}

func renderOpenAI(t Turn) string {
	var b strings.Builder
	data := func(s string) { fmt.Fprintf(&b, "data: %s\n\n", s) }
	delta := func(s, finish string) {
		data(fmt.Sprintf(`{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`, s, finish))
	}
	delta(`{"role":"assistant","content":""}`, "null")
	for _, part := range halves(t.Text) {
		if part != "" {
			delta(`{"content":`+quote(part)+`}`, "null")
		}
	}
	for i, c := range t.Calls {
		delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"call_x%d","type":"function","function":{"name":%s,"arguments":""}}]}`,
			i, i, quote(c.Tool)), "null")
		for _, part := range halves(c.Input) {
			delta(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, quote(part)), "null")
		}
	}
	stop := t.Stop
	if stop == "" {
		if stop = "stop"; len(t.Calls) > 0 {
			stop = "tool_calls"
		}
	}
	delta("{}", quote(stop))
	data(fmt.Sprintf(`{"id":"x","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":%d}}`, t.Tokens))
	data("[DONE]")
	return b.String()
}

func renderOllama(t Turn) string {
	var b strings.Builder
	for _, part := range halves(t.Text) {
		if part != "" {
			fmt.Fprintf(&b, `{"model":"m","message":{"role":"assistant","content":%s},"done":false}`+"\n", quote(part))
		}
	}
	if len(t.Calls) > 0 {
		var calls []string
		for _, c := range t.Calls {
			calls = append(calls, fmt.Sprintf(`{"function":{"name":%s,"arguments":%s}}`, quote(c.Tool), c.Input))
		}
		fmt.Fprintf(&b, `{"message":{"role":"assistant","content":"","tool_calls":[%s]},"done":false}`+"\n", strings.Join(calls, ","))
	}
	stop := t.Stop
	if stop == "" {
		stop = "stop"
	}
	fmt.Fprintf(&b, `{"message":{"role":"assistant","content":""},"done":true,"done_reason":%q,"prompt_eval_count":11,"eval_count":%d}`+"\n",
		stop, t.Tokens)
	return b.String()
}

// message is a message in any of the three APIs.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	CallID string `json:"tool_call_id"`
	Tool   string `json:"tool_name"`
}

// parse reads a request and checks what the API of its kind checks.
func parse(kind string, b []byte) (a Ask, err error) {
	var q struct {
		Model    string    `json:"model"`
		System   string    `json:"system"`
		Messages []message `json:"messages"`
		Stream   bool      `json:"stream"`
		Tools    []struct {
			Name     string         `json:"name"`
			Schema   map[string]any `json:"input_schema"`
			Function struct {
				Name   string         `json:"name"`
				Schema map[string]any `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
		Most int `json:"max_tokens"`
	}
	if err := json.Unmarshal(b, &q); err != nil {
		return a, err
	}
	if kind == "" || q.Model == "" || !q.Stream {
		return a, errors.New("no such API, no model, or not streamed")
	}
	a.System, a.Most = q.System, q.Most
	for _, t := range q.Tools {
		name, schema := t.Name+t.Function.Name, t.Schema
		if kind != "anthropic" {
			schema = t.Function.Schema
		}
		if name == "" || len(name) > 64 || schema["type"] != "object" {
			return a, fmt.Errorf("tool %q: its name or schema is refused", name)
		}
		a.Tools = append(a.Tools, name)
	}
	if kind == "anthropic" {
		return a, anthropicMessages(&a, q.Messages)
	}
	return a, otherMessages(&a, kind, q.Messages)
}

func (a *Ask) user(text string) {
	if a.Said = append(a.Said, text); a.Task == "" {
		a.Task = text
	}
}

func anthropicMessages(a *Ask, all []message) error {
	var open []string // ids of calls that want a result in this message
	tools := map[string]string{}
	for i, m := range all {
		var blocks []struct {
			Type, Text, ID, Name string
			CallID               string          `json:"tool_use_id"`
			Content              string          `json:"content"`
			Input                json.RawMessage `json:"input"`
		}
		if err := json.Unmarshal(m.Content, &blocks); err != nil || len(blocks) == 0 {
			return fmt.Errorf("message %d has no blocks: %v", i, err)
		}
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of %s", i, m.Role)
		}
		var results []string
		var calls []string
		for _, b := range blocks {
			switch b.Type {
			case "text":
				if strings.TrimSpace(b.Text) == "" {
					return errors.New("text content blocks must contain non-whitespace text")
				}
				if m.Role == "user" {
					a.user(b.Text)
				}
			case "tool_use":
				if len(b.Input) == 0 || b.Input[0] != '{' || tools[b.ID] != "" {
					return fmt.Errorf("call %q: its input is not an object, or its id is taken", b.ID)
				}
				tools[b.ID] = b.Name
				calls = append(calls, b.ID)
			case "tool_result":
				results = append(results, b.CallID)
				a.Results = append(a.Results, Result{b.CallID, tools[b.CallID], b.Content})
			}
		}
		if fmt.Sprint(results) != fmt.Sprint(open) {
			return fmt.Errorf("message %d: calls %v have the results %v", i, open, results)
		}
		if open = calls; m.Role == "assistant" {
			a.Answers++
		}
	}
	return nil
}

func otherMessages(a *Ask, kind string, all []message) error {
	var open []string
	tools := map[string]string{}
	for i, m := range all {
		var text string
		if string(m.Content) != "null" && json.Unmarshal(m.Content, &text) != nil {
			return fmt.Errorf("message %d: its content is not text", i)
		}
		if m.Role != "tool" && len(open) > 0 {
			return fmt.Errorf("message %d: calls %v have no result", i, open)
		}
		switch m.Role {
		case "system":
			a.System = text
		case "user":
			a.user(text)
		case "assistant":
			a.Answers++
			for _, c := range m.Calls {
				if in := string(c.Function.Arguments); (kind == "openai") != strings.HasPrefix(in, `"`) {
					return fmt.Errorf("message %d: arguments are %s", i, in)
				}
				tools[c.ID] = c.Function.Name
				open = append(open, c.ID)
			}
		case "tool":
			if len(open) == 0 || kind == "openai" && m.CallID != open[0] {
				return fmt.Errorf("message %d: a result of %q, waiting: %v", i, m.CallID, open)
			}
			tool := m.Tool
			if kind == "openai" {
				tool = tools[m.CallID]
			}
			a.Results = append(a.Results, Result{open[0], tool, text})
			open = open[1:]
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %v have no result", open)
	}
	return nil
}
