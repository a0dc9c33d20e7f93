package codegen

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// echo is a small MCP server: its tool returns the arguments as structured content, as JSON or as an event.
func echo(t *testing.T, events bool) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     *int
			Method string
			Params struct {
				Name      string
				Arguments json.RawMessage
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if m.Method != "initialize" && r.Header.Get("Mcp-Session-Id") != "s1" {
			http.Error(w, "no session", http.StatusNotFound)
			return
		}
		w.Header().Set("Mcp-Session-Id", "s1")
		result := `{"protocolVersion":"2025-11-25"}`
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Params.Name == "fail":
			result = `{"isError":true,"content":[{"type":"text","text":"it went wrong"}]}`
		case m.Method == "tools/call":
			result = fmt.Sprintf(`{"content":[],"structuredContent":{"name":%q,"arguments":%s}}`,
				m.Params.Name, m.Params.Arguments)
		}
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, *m.ID, result)
		if events {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, ": hello\n\nid: 0\nretry: 10\ndata:\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n"+
				"data: %s\n\n", answer)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const pythonCalls = `
import json, sys
sys.path.insert(0, sys.argv[1])
from servers.s import SERVER_URL, ToolError, say, fail
import asyncio
for v in json.load(open(sys.argv[2], encoding="utf-8")):
    for r in (say.call_sync(SERVER_URL, say.Params(v=v)), asyncio.run(say.call(SERVER_URL, say.Params(v=v)))) if v == "x" else (say.call_sync(SERVER_URL, say.Params(v=v)),):
        assert r == {"name": "say", "arguments": {"v": v}}, (v, r)
try:
    fail.call_sync()
    raise SystemExit("no error")
except ToolError as e:
    assert str(e) == "it went wrong", e
try:
    fail.call_sync("file:///etc/passwd")
    raise SystemExit("a file was asked")
except ToolError as e:
    assert "is not the address" in str(e), e
`

const nodeCalls = `
const fs = require('fs'), path = require('path'), assert = require('assert'), vm = require('vm');
const strip = new Function(fs.readFileSync(process.argv[3], 'utf8') + '\nreturn strip')();
const loaded = new Map();
const load = (f) => { if (!loaded.has(f)) loaded.set(f, new vm.SourceTextModule(strip(fs.readFileSync(f, 'utf8'), f), { identifier: f })); return loaded.get(f); };
(async () => {
  const index = load(path.join(process.argv[1], 'servers/s/index.ts'));
  await index.link((s, from) => load(path.resolve(path.dirname(from.identifier), s)));
  await index.evaluate();
  const { say, fail, SERVER_URL, ToolError } = index.namespace;
  for (const v of JSON.parse(fs.readFileSync(process.argv[2], 'utf8'))) {
    if (v === Number('9007199254740993')) { await assert.rejects(say.call(SERVER_URL, { v }), RangeError); continue; }
    assert.deepStrictEqual(await say.call(SERVER_URL, { v }), { name: 'say', arguments: { v } });
  }
  await assert.rejects(fail.call(), (e) => e instanceof ToolError && e.message === 'it went wrong');
})().catch((e) => { console.error(e); process.exit(1); });
`

// TestOverHTTP: outside of waldo a call reaches the server itself, with its arguments unchanged.
func TestOverHTTP(t *testing.T) {
	for _, events := range []bool{false, true} {
		files, err := Generate(Server{Name: "s", URL: echo(t, events)},
			[]Tool{{Name: "say", Input: parse(t, []byte(`{"type":"object","properties":{"v":{}}}`))}, {Name: "fail"}}, Languages)
		if err != nil {
			t.Fatal(err)
		}
		root := laid(t, files)
		values := []any{
			"x", "", "\u2028\u202e\x00\"\\", "\U0001f600", json.RawMessage("1e308"), json.RawMessage("9007199254740993"), nil,
			[]any{}, map[string]any{"a": nil}, strings.Repeat("é", 100_000),
		}
		if !events {
			for _, r := range rows(t) {
				if r.Class == "naughty-value" {
					values = append(values, r.Input.Text)
				}
			}
		}
		b, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		list := filepath.Join(root, "values.json")
		if err := os.WriteFile(list, b, 0o600); err != nil {
			t.Fatal(err)
		}
		script, err := filepath.Abs(stripper)
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for program, args := range map[string][]string{
			"python3": {
				"-c", strings.Replace(pythonCalls, "import SERVER_URL, ToolError, say, fail",
					"import SERVER_URL, ToolError, load\nsay, fail = load('say'), load('fail')", 1), root, list,
			},
			"node": {"--no-warnings", "--experimental-vm-modules", "-e", nodeCalls, root, list, script},
		} {
			if _, err := exec.LookPath(program); err != nil {
				t.Log("this machine has no ", program)
				continue
			}
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = append(os.Environ(), "no_proxy=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s, events %v: %v\n%s", program, events, err, clip(string(out), 2000))
			}
			ran++
		}
		if ran == 0 {
			t.Skip("no program to run what was generated")
		}
	}
}

// laid puts generated files below a new folder.
func laid(t *testing.T, files []File) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		at := filepath.Join(root, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, f.Text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// everything starts the reference server over streamable HTTP, and returns its address. make setup installs it.
func everything(t *testing.T) string {
	t.Helper()
	main := filepath.Join("..", "..", "..", "..", ".cache", "npm", "node_modules", "@modelcontextprotocol", "server-everything",
		"dist", "index.js")
	if _, err := os.Stat(main); err != nil {
		t.Skip("server-everything is not installed: make setup")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(at)
	cmd := exec.CommandContext(t.Context(), "node", main, "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Skip("this machine has no node")
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if c, err := net.Dial("tcp", at); err == nil {
			_ = c.Close()
			return "http://" + at + "/mcp"
		}
	}
	t.Fatal("server-everything does not listen")
	return ""
}

// TestRealServers: the generated code calls the reference server of TypeScript, and a server of the Go SDK, which sends
// an event without a message first.
func TestRealServers(t *testing.T) {
	type said struct {
		Message string `json:"message"`
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, a said) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Echo: " + a.Message}}}, nil, nil
	})
	sdk := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}))
	t.Cleanup(func() { sdk.CloseClientConnections(); sdk.Close() })
	for name, address := range map[string]func(*testing.T) string{
		"go-sdk": func(*testing.T) string { return sdk.URL + "/mcp" }, "server-everything": everything,
	} {
		t.Run(name, func(t *testing.T) {
			files, err := Generate(Server{Name: "s", URL: address(t)}, []Tool{{Name: "echo",
				Input: parse(t, []byte(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`))}}, Languages)
			if err != nil {
				t.Fatal(err)
			}
			root := laid(t, files)
			script, err := filepath.Abs(stripper)
			if err != nil {
				t.Fatal(err)
			}
			node, _, _ := strings.Cut(nodeCalls, "  const { say,")
			node += "  console.log(await index.namespace.echo.call(index.namespace.SERVER_URL, { message: 'hi' }));\n" +
				"})().catch((e) => { console.error(e); process.exit(1); });\n"
			ran := 0
			for program, args := range map[string][]string{
				"python3": {"-c", "import sys, asyncio\nsys.path.insert(0, sys.argv[1])\nfrom servers.s import SERVER_URL\n" +
					"from servers.s.echo import call, Params\nprint(asyncio.run(call(SERVER_URL, Params(message='hi'))))", root},
				"node": {"--no-warnings", "--experimental-vm-modules", "-e", node, root, root, script},
			} {
				if _, err := exec.LookPath(program); err != nil {
					t.Log("this machine has no ", program)
					continue
				}
				cmd := exec.CommandContext(t.Context(), program, args...)
				cmd.Env = append(os.Environ(), "no_proxy=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
				if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "Echo: hi" {
					t.Errorf("%s: %v\n%s", program, err, clip(string(out), 2000))
				}
				ran++
			}
			if ran == 0 {
				t.Skip("no program to run what was generated")
			}
		})
	}
}
