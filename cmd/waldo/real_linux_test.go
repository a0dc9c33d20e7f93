package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/testing/repo"
)

// TestRealServersInSandboxes: the reference servers of MCP answer real calls through the gateway, each in
// a sandbox of its own. The heavier ones are in make hosts.
func TestRealServersInSandboxes(t *testing.T) {
	_, packages := repo.Packages(t, "npm", "@modelcontextprotocol/server-filesystem")
	server := func(name string, args ...string) string {
		script := "/app/node_modules/@modelcontextprotocol/server-" + name + "/dist/index.js"
		return "[" + strings.Join(append([]string{"node", script}, args...), ", ") + "], mounts: {/app/node_modules: " +
			packages + "}"
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "waldo.yaml")
	text := "version: 1\nservers:\n  all: {command: " + server("everything", "stdio") + "}\n  files: {command: " +
		server("filesystem", "/workspace/output") + "}\n" +
		"  memory: {command: " + server("memory") +
		", env: {MEMORY_FILE_PATH: /workspace/output/m.json}}\n  think: {command: " + server("sequential-thinking") + "}\n" +
		"capabilities:\n  \"*.*\": {transport: mcp, mode: high_risk, approval: none}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	call := converse(t, "--state", filepath.Join(dir, "state"), "--config", config, "serve", "--stdio")
	for _, c := range [][3]string{
		{"all__echo", `{"message":"h\u00ef"}`, "hï"},
		{"files__write_file", `{"path":"/workspace/output/a.txt","content":"kept"}`, "Successfully wrote"},
		{"files__read_text_file", `{"path":"/workspace/output/a.txt"}`, "kept"},
		{"memory__create_entities", `{"entities":[{"name":"waldo","entityType":"box","observations":["is sealed"]}]}`,
			"is sealed"},
		{"memory__read_graph", `{}`, "is sealed"},
		{"think__sequentialthinking", `{"thought":"a","nextThoughtNeeded":false,"thoughtNumber":1,"totalThoughts":1}`,
			"thoughtHistoryLength"},
	} {
		got := call(fmt.Sprintf(`{"name":%q,"arguments":%s}`, c[0], c[1]))
		if !strings.Contains(got, c[2]) || !strings.Contains(got, `"driver":"namespace"`) {
			t.Errorf("%s: wanted %s, from a sandbox, in %.3000s", c[0], c[2], got)
		}
	}
}

// TestRealServersKeepTheirData: files that server-memory and server-filesystem write to lasting folders remain for
// the next waldo. The facts name them, and the configuration beside the project is unchanged.
func TestRealServersKeepTheirData(t *testing.T) {
	_, packages := repo.Packages(t, "npm", "@modelcontextprotocol/server-memory")
	dir := t.TempDir()
	config := filepath.Join(dir, "waldo.yaml")
	script := func(name string) string {
		return "/app/node_modules/@modelcontextprotocol/server-" + name + "/dist/index.js"
	}
	text := "version: 1\nservers:\n" +
		"  memory: {command: [node, " + script("memory") + "], mounts: {/app/node_modules: " + packages +
		"}, data: graph, env: {MEMORY_FILE_PATH: /data/m.json}}\n" +
		"  files: {command: [node, " + script("filesystem") + ", /project], mounts: {/app/node_modules: " + packages +
		", /project: {from: ., writable: true}}}\n" +
		"capabilities:\n  \"*.*\": {transport: mcp, mode: high_risk, approval: none}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	for _, turn := range [][][3]string{{
		{"memory__create_entities", `{"entities":[{"name":"waldo","entityType":"box","observations":["is sealed"]}]}`,
			`"/data/m.json"`},
		{"files__write_file", `{"path":"/project/src.txt","content":"kept"}`, `"/project/src.txt"`},
		{"files__write_file", `{"path":"/project/waldo.yaml","content":"capabilities: {}"}`, `"isError":true`},
	}, {
		{"memory__read_graph", `{}`, "is sealed"},
		{"files__read_text_file", `{"path":"/project/src.txt"}`, "kept"},
	}} {
		t.Run("", func(t *testing.T) {
			call := converse(t, "--state", state, "--config", config, "serve", "--stdio")
			for _, c := range turn {
				if got := call(fmt.Sprintf(`{"name":%q,"arguments":%s}`, c[0], c[1])); !strings.Contains(got, c[2]) ||
					!strings.Contains(got, `"driver":"namespace"`) {
					t.Errorf("%s: wanted %s in %.3000s", c[0], c[2], got)
				}
			}
		})
	}
	if got, err := os.ReadFile(config); err != nil || string(got) != text {
		t.Errorf("the configuration is other than before: %v", err)
	}
	if st, err := os.Stat(filepath.Join(state, "data", "graph")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the lasting folder: %v %v", st, err)
	}
}

// converse starts a gateway and returns a way to call a tool and to get the answer as it came.
func converse(t *testing.T, args ...string) func(params string) string {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(args, inR, outW, os.Stderr)
		outW.Close()
		ended <- code
	}()
	t.Cleanup(func() {
		inW.Close()
		go func() { _, _ = io.Copy(io.Discard, outR) }()
		if code := <-ended; code != 0 {
			t.Errorf("waldo serve ended with %d", code)
		}
	})
	lines := bufio.NewReader(outR)
	id := 0
	ask := func(method, params string) string {
		id++
		fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %v", method, err)
			}
			var m struct{ ID int }
			if json.Unmarshal([]byte(line), &m) == nil && m.ID == id {
				return line
			}
		}
	}
	ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	fmt.Fprintln(inW, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return func(params string) string { return ask("tools/call", params) }
}
