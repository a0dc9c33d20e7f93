package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"waldo/internal/testing/repo"
)

// TestTasksWithTheSDK: the official TypeScript SDK calls tools as tasks, answers a question while it waits for a
// result, and cancels.
func TestTasksWithTheSDK(t *testing.T) {
	node, modules := repo.Packages(t, "npm", "@modelcontextprotocol/sdk")
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	waldo, config := filepath.Join(dir, "waldo"), filepath.Join(dir, "waldo.yaml")
	if err := os.Symlink(self, waldo); err != nil {
		t.Fatal(err)
	}
	text := "version: 1\napproval: {carriers: [elicitation]}\ncapabilities:\n  run_python: {mode: write, " +
		"approval: none}\n  run_shell: {mode: write, approval: always}\n  run_javascript: {mode: write, rules: [{when: " +
		"\"args.code != ''\", deny: true}]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), node, "testdata/tasks.mjs", modules, waldo, "--state",
		filepath.Join(dir, "state"), "--config", config, "serve", "--stdio")
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.Bytes(), errs.Bytes())
	}
	const want = `support run_code:optional run_javascript:optional run_python:optional run_shell:optional search_tools:undefined
run_python 42
run_shell input_required
run_shell agreed
run_javascript error McpError: MCP error -32603: Task ID failed
ttl 3600000
cancel cancelled
again MCP error -32602: the task has ended
list completed completed failed cancelled
`
	if got := out.String(); got != want {
		t.Errorf("%s\n%s", got, errs.Bytes())
	}
}
