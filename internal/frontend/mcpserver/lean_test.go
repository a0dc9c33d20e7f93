package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tiktoken-go/tokenizer"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/testing/catalogtest"
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
			for tool, args := range map[string]string{
				"call_tool": `{"name":"call_tool","arguments":{"name":"s__echo"}}`, "run_code": `{"code":"x","language":"cobol"}`,
			} {
				if r := ask(tool, args); !r.IsError {
					t.Errorf("%s %s was taken", tool, args)
				}
			}
			if r := ask("call_tool", `{"name":"s__echo","arguments":{"message":1}}`); !r.IsError ||
				!strings.Contains(say(r), "do not fit") {
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

// The lean list and the instructions fit the promised 250 tokens of prompt, for any number of tools behind them.
func TestLeanPromptIsSmall(t *testing.T) {
	sizes := map[int]int{}
	for _, n := range []int{1, 10_000} {
		var list []call.Tool
		for i := range n {
			list = append(list, call.Tool{Capability: call.Capability(fmt.Sprintf("x.t%d", i)), Input: parse(t, `{}`)})
		}
		o := options(t, newDesk(t))
		o.Lean = true
		o.Catalogue = catalog.New(catalog.Options{
			Contracts: catalogtest.Rules[catalog.Viewer]{},
			Sources:   map[string]catalog.Source{"x": func(context.Context) ([]call.Tool, error) { return list, nil }},
		})
		s := client(t, o, "2025-11-25", nil)
		r, err := s.ListTools(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal(r.Tools)
		if err != nil {
			t.Fatal(err)
		}
		sizes[n] = tokens(t, string(shown)+s.InitializeResult().Instructions)
		if len(r.Tools) != 3 || r.NextCursor != "" {
			t.Errorf("%d tools are shown as %d", n, len(r.Tools))
		}
		_ = s.Close()
		o.Catalogue.Close()
	}
	if sizes[1] != sizes[10_000] || sizes[1] > 250 {
		t.Errorf("tokens of the prompt: %v", sizes)
	}
	t.Logf("the lean prompt has %d tokens", sizes[1])
}

// tokens counts the tokens of a text by the vocabulary o200k_base.
func tokens(t *testing.T, text string) int {
	t.Helper()
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	n, err := codec.Count(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRunCode: without the lean mode run_code is listed where one of its languages can be used, and is a call of the
// capability that the language names.
func TestRunCode(t *testing.T) {
	d := newDesk(t)
	s := client(t, options(t, d), "2025-11-25", nil)
	defer s.Close()
	for args, want := range map[string]string{
		`{"code":"print(1)"}`: `run_python {"code":"print(1)"}`,
		`{"code":"print(1)","language":"python","args":["a"]}`: `run_python {"args":["a"],"code":"print(1)"}`,
		`{"code":"1","language":"javascript"}`:                 `run_javascript {"code":"1"}`,
		`{"code":"1","language":"typescript"}`:                 `run_typescript {"code":"1"}`,
		`{"code":"ls","language":"shell"}`:                     `run_shell {"command":"ls"}`,
	} {
		if _, err := s.CallTool(context.Background(),
			&mcp.CallToolParams{Name: "run_code", Arguments: json.RawMessage(args)}); err != nil {
			t.Fatal(err)
		}
		if c := d.last(); string(c.Capability)+" "+string(c.Args.Value().Canonical()) != want {
			t.Errorf("%s became %s %s", args, c.Capability, c.Args.Raw())
		}
	}
	before := d.count()
	for _, args := range []string{
		`{}`, `{"code":1}`, `{"code":"1","language":"cobol"}`, `{"code":"1","language":["python"]}`,
	} {
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "run_code", Arguments: json.RawMessage(args)})
		if err != nil || !r.IsError || !strings.Contains(say(r), "run_code needs code") {
			t.Errorf("%s: %v %v", args, r, err)
		}
	}
	if d.count() != before {
		t.Error("a call without a program entered the pipeline")
	}
	if _, err := s.CallTool(context.Background(),
		&mcp.CallToolParams{Name: "call_tool", Arguments: json.RawMessage(`{"name":"s__echo"}`)}); err == nil &&
		d.count() != before {
		if c := d.last(); c.Capability == "s.echo" {
			t.Error("call_tool calls without the lean mode")
		}
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
	o.Catalogue = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{},
		Sources:   map[string]catalog.Source{"x": func(context.Context) ([]call.Tool, error) { return list, nil }},
	})
	defer o.Catalogue.Close()
	s := client(t, o, "2025-11-25", nil)
	defer s.Close()
	for args, want := range map[string]int{`{"query":"row"}`: 10, `{"query":"row","detail":"full"}`: 3,
		`{"query":"row","detail":"full","limit":7}`: 7,
		`{"query":"x__row_3","detail":"full"}`:      1} {
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{
			Name: "search_tools", Arguments: json.RawMessage(args),
		})
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
