package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/cli"
	"waldo/internal/config"
	"waldo/internal/core/redact"
)

// Each useless contract has a warning with its code and the fault; the mended one has none.
func TestWarnings(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "there"), 0o755); err != nil {
		t.Fatal(err)
	}
	g := withFeatures(&cli.Context{State: t.TempDir(), Known: &redact.Registry{}})
	for _, c := range []struct{ text, want string }{
		{"files.*: {transport: direct, root: there, mode: read, approval: none}",
			`2:58: mode.covers: mode: read of "files.*" covers tools that write (danger 2) and run without a question: ` +
				"files.write, files.edit, files.move, files.restore, files.extract"},
		{"files.write: {transport: direct, root: there, mode: read, approval: none}",
			`mode.covers: mode: read of "files.write" covers tools that write`},
		{"files.*: {transport: direct, root: there, mode: write, approval: none}", ""},
		{"files.*: {transport: direct, root: there, mode: read, approval: always}", ""},
		{"files.read: {transport: direct, root: there, mode: read, approval: none}", ""},
		{"files.*: {transport: direct, mode: write}", `root.missing: "files.*" names no folder: its calls are denied`},
		{"files.read: {transport: direct, root: gone, mode: read}", "2:48: root.absent: root: " + filepath.Join(dir, "gone") +
			" is not a folder of this machine"},
		{"fetch: {transport: direct, mode: read}", "fetch.hosts: fetch names no host"},
		{"fetch: {transport: direct, mode: read, network: {allow: [api.example.com]}}", ""},
		{"cli: {transport: sandboxed_exec, mode: read}", "cli.programs: cli names no program"},
		{"cli: {transport: sandboxed_exec, mode: read, allow: [ls, \"no-such-program *\"]}",
			"cli.absent: this machine does not have these programs of cli: no-such-program;"},
		{"cli: {transport: sandboxed_exec, mode: read, allow: [ls]}", ""},
		{"run_python: deny\nagent: {providers: [{kind: ollama, model: x}]}", "agent.tools: agent: has no tool"},
		{"run_python: {mode: high_risk}\nagent: {providers: [{kind: ollama, model: x}]}", ""},
		{"run_python: {mode: high_risk}", ""},
		{"files.*: deny", ""},
		{`"*": {mode: read, approval: none}`, ""},
	} {
		text := "version: 1\ncapabilities: {" + strings.Replace(c.text, "\nagent", "}\nagent", 1)
		if !strings.Contains(c.text, "\nagent") {
			text += "}"
		}
		cfg, problems := config.Parse(filepath.Join(dir, "waldo.yaml"), []byte(text))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", c.text, problems)
		}
		refused, got := examine(t.Context(), g, cfg)
		if len(refused) > 0 {
			t.Fatalf("%s: %v", c.text, refused)
		}
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got.Error(), c.want)) {
			t.Errorf("%s:\n got %q\nwant %q", c.text, got.Error(), c.want)
		}
	}
}
