package runner

import (
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/executor/protect"
	"waldo/internal/model/call"
)

// TestSweepKilled: what a run has planted whose waldo was killed is moved away by the next one. A run under way keeps
// its note, and what was there before stays.
func TestSweepKilled(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	makeFiles(t, dir, ".envrc")
	rules, err := protect.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	before, err := rules.Look(root)
	if err != nil || len(before) != 1 {
		t.Fatal(before, err)
	}
	m := liveMount{before: before}
	m.Source, m.Writable = dir, true
	forget, err := Options{mounts: []liveMount{m}}.noted(state, policy.Decision{Call: call.Call{ID: "c_1"}})
	if err != nil {
		t.Fatal(err)
	}
	makeFiles(t, dir, ".vscode/tasks.json", "main.go", "sub/.mcp.json")
	there := func(names ...string) {
		t.Helper()
		for _, n := range names {
			if _, err := os.Stat(n); err != nil {
				t.Error(err)
			}
		}
	}
	planted := []string{filepath.Join(dir, ".vscode/tasks.json"), filepath.Join(dir, "sub/.mcp.json")}
	if err := SweepKilled(state); err != nil {
		t.Fatal(err)
	}
	there(planted...) // control: the run is under way
	note := filepath.Join(state, mountNotes, "c_1")
	b, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	forget()
	if err := os.WriteFile(note, b, 0o600); err != nil { // a killed waldo leaves it, without a lock
		t.Fatal(err)
	}
	if err := SweepKilled(state); err != nil {
		t.Fatal(err)
	}
	for _, n := range append(planted, note) {
		if _, err := os.Lstat(n); err == nil {
			t.Errorf("%s is still there", n)
		}
	}
	held := filepath.Join(state, mountNotes, "held", "c_1")
	there(filepath.Join(dir, ".envrc"), filepath.Join(dir, "main.go"), filepath.Join(held, ".vscode/tasks.json"),
		filepath.Join(held, "sub/.mcp.json"))
}
