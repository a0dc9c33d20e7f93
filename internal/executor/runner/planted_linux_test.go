package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/core/policy"
	"waldo/internal/executor/protect"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestSweepKilled: what a run has planted whose waldo was killed is moved away by the next one. A run under way keeps
// its note, and what was there before stays. What cannot be copied is removed.
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
	makeFiles(t, dir, ".vscode/tasks.json", ".vscode/\xff", "main.go", "sub/.mcp.json")
	for _, pipe := range []string{".vscode/pipe", ".npmrc"} { // none keeps waldo from removing them, and the rest
		if err := unix.Mkfifo(filepath.Join(dir, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := func(names ...string) {
		t.Helper()
		for _, n := range names {
			if _, err := os.Stat(n); err != nil {
				t.Error(err)
			}
		}
	}
	planted := []string{filepath.Join(dir, ".vscode/tasks.json"), filepath.Join(dir, "sub/.mcp.json"),
		filepath.Join(dir, ".vscode"), filepath.Join(dir, ".npmrc")}
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

// TestOverlappingRuns: what one run plants while another starts in the same folder is not taken for the person's. Runs
// start one after the other, and not with other rules.
func TestOverlappingRuns(t *testing.T) {
	r, _ := real(t)
	r.State = t.TempDir()
	dir := gitRepo(t)
	makeFiles(t, dir, ".vscode/tasks.json", "evil/config")
	plant := "echo new > .envrc; echo ../evil > .git/commondir; touch $1; while [ ! -e $2 ]; do sleep 0.02; done\n"
	first := make(chan call.Outcome, 1)
	go func() { first <- inProject(t, r, dir, "set -- planted ready\n"+plant, nil) }()
	for i := 0; ; i++ {
		if _, err := os.Stat(filepath.Join(dir, "planted")); err == nil {
			break
		}
		if i == 500 {
			t.Fatal("the first run planted nothing")
		}
		time.Sleep(20 * time.Millisecond)
	}
	out := inProject(t, r, dir, "true", func(c *contract.Contract) { c.Unprotect = []string{".envrc"} })
	if out.Refused == nil || out.Refused.Code != "mounts.busy" {
		t.Errorf("other rules: %+v", out.Refused)
	}
	again := "touch ready; while [ -e .envrc ]; do sleep 0.02; done\n" // until the first run's are gone
	out = inProject(t, r, dir, again+"echo new > .envrc; echo ../evil > .git/commondir", nil)
	<-first
	for _, name := range []string{".envrc", ".git/commondir"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s stays", name)
		}
		if want := filepath.Join(dir, name); !slices.Contains(out.Facts.Files.Held, want) {
			t.Errorf("%s is not named: %q", name, out.Facts.Files.Held)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".vscode/tasks.json")); err != nil {
		t.Errorf("control: %v", err)
	}
	out = inProject(t, r, dir, "true", func(c *contract.Contract) { c.Unprotect = []string{".envrc"} })
	if out.Refused != nil {
		t.Errorf("control: %+v", out.Refused)
	}
}

// TestHiddenFolders: a folder above a hidden file cannot be moved to where the next run would see it, and what a link
// with a hidden name leads to is hidden too.
func TestHiddenFolders(t *testing.T) {
	r, _ := real(t)
	dir := gitRepo(t)
	makeFiles(t, dir, "config/.env", "s/real", "node_modules/", "free/x")
	if err := os.Symlink("s/real", filepath.Join(dir, ".env.local")); err != nil {
		t.Fatal(err)
	}
	out := inProject(t, r, dir, "cat config/.env .env.local s/real\nmv config node_modules/ && echo MOVED\n"+
		"mv free node_modules/ && echo control", nil)
	if got := strings.TrimSpace(out.Facts.Stdout); got != "control" {
		t.Errorf("%q %q", got, out.Facts.Stderr)
	}
}
