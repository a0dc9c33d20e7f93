package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
)

// In lean mode the host sees three tools; the inner calls pass the same pipeline as every call.
func TestLean(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			d := newDesk(t)
			o := options(t, d)
			o.Lean = true
			s := client(t, o, revision, nil)
			defer s.Close()
			list, err := s.ListTools(context.Background(), nil)
			if err != nil || len(list.Tools) != 3 {
				t.Fatalf("%+v %v", list, err)
			}
			ask := func(tool, args string) *mcp.CallToolResult {
				t.Helper()
				r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			if b := say(ask("search_tools", `{"query":"echo","detail":"full"}`)); !strings.Contains(b, `"name":"s__echo"`) {
				t.Errorf("search: %s", b)
			}
			ask("call_tool", `{"name":"s__echo","arguments":{"message":"hi"}}`)
			if c := d.last(); c.Capability != "s.echo" || string(c.Args.Raw()) != `{"message":"hi"}` || c.ToolDigest == "" {
				t.Errorf("call_tool: %+v", c)
			}
			ask("run_code", `{"code":"print(1)"}`)
			if c := d.last(); c.Capability != "run_python" || string(c.Args.Raw()) != `{"code":"print(1)"}` {
				t.Errorf("run_code: %+v", c)
			}
			before := d.count()
			for tool, args := range map[string]string{"call_tool": `{"name":"call_tool","arguments":{"name":"s__echo"}}`, "run_code": `{"code":"x","language":"cobol"}`} {
				if r := ask(tool, args); !r.IsError {
					t.Errorf("%s %s was taken", tool, args)
				}
			}
			if r := ask("call_tool", `{"name":"s__echo","arguments":{"message":1}}`); !r.IsError || !strings.Contains(say(r), "do not fit") {
				t.Errorf("arguments that do not fit: %s", say(r))
			}
			if d.count() != before {
				t.Error("what is no call entered the pipeline")
			}
			ask("call_tool", `{"name":"s__hidden"}`)
			if c := d.last(); c.Capability != "s.hidden" { // where it is refused, and on record
				t.Errorf("a hidden tool: %+v", c)
			}
		})
	}
}

// The lean list fits the promised 250 tokens of prompt. A token of JSON and English is more than three bytes (4.4
// with o200k_base, see BENCHMARKS.md).
func TestLeanPromptIsSmall(t *testing.T) {
	sizes := map[int]int{}
	for _, n := range []int{1, 10_000} {
		var list []call.Tool
		for i := range n {
			list = append(list, call.Tool{Capability: call.Capability(fmt.Sprintf("x.t%d", i)), Input: parse(t, `{}`)})
		}
		o := options(t, newDesk(t))
		o.Lean = true
		o.Catalogue = catalog.New(catalog.Options{Visible: func(call.Capability) bool { return true }, Sources: map[string]catalog.Source{"x": func(context.Context) ([]call.Tool, error) { return list, nil }}})
		s := client(t, o, "2025-11-25", nil)
		r, err := s.ListTools(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sizes[n] = len(leanTools) + len(s.InitializeResult().Instructions)
		if len(r.Tools) != 3 || r.NextCursor != "" {
			t.Errorf("%d tools are shown as %d", n, len(r.Tools))
		}
		_ = s.Close()
		o.Catalogue.Close()
	}
	if sizes[1] != sizes[10_000] || sizes[1] > 1000 {
		t.Errorf("bytes of the prompt: %v", sizes)
	}
}

// An answer with schemas is short unless the agent asks for more; the lean tools say how.
func TestFullAnswersAreShort(t *testing.T) {
	var list []call.Tool
	for i := range 20 {
		list = append(list, call.Tool{Capability: call.Capability(fmt.Sprintf("x.row_%d", i)), Input: parse(t, `{}`)})
	}
	o := options(t, newDesk(t))
	o.Lean = true
	o.Catalogue = catalog.New(catalog.Options{Visible: func(call.Capability) bool { return true }, Sources: map[string]catalog.Source{"x": func(context.Context) ([]call.Tool, error) { return list, nil }}})
	defer o.Catalogue.Close()
	s := client(t, o, "2025-11-25", nil)
	defer s.Close()
	for args, want := range map[string]int{`{"query":"row"}`: 10, `{"query":"row","detail":"full"}`: 3, `{"query":"row","detail":"full","limit":7}`: 7,
		`{"query":"x__row_3","detail":"full"}`: 1} {
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "search_tools", Arguments: json.RawMessage(args)})
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(say(r), `"capability"`); n != want {
			t.Errorf("%s: %d tools, want %d", args, n, want)
		}
	}
	if !strings.Contains(leanTools, `"limit"`) {
		t.Error("the lean mode does not show limit")
	}
}
