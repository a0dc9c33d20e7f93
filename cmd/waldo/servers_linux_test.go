package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/frontend/mcpserver/catalog"
)

// twenty is a server of 20 tools.
const twenty = `import sys, json
tools = [{"name": "tool_%d" % i, "description": "Creates a row in a table and returns its id. " + "The table must be there. " * 8,
          "inputSchema": {"type": "object", "properties": {"table": {"type": "string", "description": "The name of the table."}}}} for i in range(20)]
answers = {"tools/list": {"tools": tools},
           "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}}
for line in sys.stdin:
    m = json.loads(line)
    if "id" in m:
        a = {"result": answers[m["method"]]} if m["method"] in answers else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **a}), flush=True)
`

// BenchmarkServers is the first list of 50 servers of 20 tools, each a Python in a sandbox of its own, until all are
// listed.
func BenchmarkServers(b *testing.B) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		b.Skip("no /usr/bin/python3")
	}
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		var text strings.Builder
		text.WriteString("version: 1\ncapabilities: {'s*.*': {mode: read, approval: none}}\nservers:\n")
		for i := range 50 {
			fmt.Fprintf(&text, "  s%d: {command: [/usr/bin/python3, %s], placement: sandbox}\n", i,
				filepath.Join(dir, "server.py"))
		}
		for name, content := range map[string]string{"waldo.yaml": text.String(), "server.py": twenty} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		h, err := withFeatures(&cli.Context{Config: filepath.Join(dir, "waldo.yaml"), State: filepath.Join(dir, "state")}).Open(context.Background(), app.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		begin := time.Now()
		n := len(h.Catalogue.List(context.Background(), catalog.Viewer{Principal: app.Principal(), Channel: "cli"}))
		b.ReportMetric(time.Since(begin).Seconds(), "s/list")
		b.StopTimer()
		if err := h.Close(); err != nil || n != 1001 {
			b.Fatalf("%d tools: %v", n, err)
		}
		b.StartTimer()
	}
}
