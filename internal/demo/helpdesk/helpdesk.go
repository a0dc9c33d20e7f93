// Package helpdesk is an example MCP server: a helpdesk with 5,000 invented customers. Their data looks like data
// that waldo must protect. It is in memory only and is lost at exit. The server speaks MCP up to 2025-11-25 over
// lines.
package helpdesk

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"sync"

	"waldo/internal/protocol/jsonrpc"
)

// data is the state of one run of the server.
type data struct {
	mu         sync.Mutex
	customers  []Customer
	tickets    []Ticket
	lastTicket int
}

// Serve answers requests until in ends.
func Serve(in io.Reader, out io.Writer) error {
	d := &data{}
	d.customers, d.tickets = desk()
	d.lastTicket = len(d.tickets)
	c := jsonrpc.New(in, out, jsonrpc.Options{
		Request:       func(_ context.Context, m jsonrpc.Message) (any, error) { return d.answer(m) },
		Inline:        func(string) bool { return true },
		AnswerInvalid: true,
	})
	return c.Serve(context.Background())
}

func (d *data) answer(m jsonrpc.Message) (any, error) {
	switch m.Method {
	case "initialize":
		revision, _ := m.Param("protocolVersion").Text()
		if !slices.Contains(jsonrpc.LegacyRevisions, revision) {
			revision = jsonrpc.Legacy
		}
		return map[string]any{
			"protocolVersion": revision,
			"capabilities":    map[string]any{"tools": struct{}{}},
			"serverInfo":      jsonrpc.Implementation{Name: "helpdesk", Version: "1"},
		}, nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return map[string]any{"tools": definitions()}, nil
	case "tools/call":
		return d.call(m)
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method")
}

func definitions() []map[string]any {
	var out []map[string]any
	for _, t := range tools {
		out = append(out, map[string]any{"name": t.name, "title": t.title, "description": t.description,
			"inputSchema": json.RawMessage(t.input), "outputSchema": json.RawMessage(t.output),
			"annotations": json.RawMessage(t.annotations)})
	}
	return out
}

func (d *data) call(m jsonrpc.Message) (any, error) {
	name, _ := m.Param("name").Text()
	i := slices.IndexFunc(tools, func(t tool) bool { return t.name == name })
	if i < 0 {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "no such tool")
	}
	var a args
	if v := m.Param("arguments"); !v.IsZero() {
		if err := v.Decode(&a); err != nil {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "the arguments do not fit the tool")
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	result, summary, err := tools[i].run(d, a)
	if err != nil {
		return map[string]any{"content": text(err.Error()), "isError": true}, nil
	}
	b, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	return map[string]any{"content": text(summary + "\n" + string(b)), "structuredContent": json.RawMessage(b)}, nil
}

func text(s string) []map[string]string {
	return []map[string]string{{"type": "text", "text": s}}
}
