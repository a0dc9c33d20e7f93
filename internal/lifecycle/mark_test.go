package lifecycle

import (
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/id"
	"waldo/internal/workspace"
)

// TestMarks: what a waldo that was killed had half made or half deleted goes at the next look, and
// nothing else does.
func TestMarks(t *testing.T) {
	m, _ := fresh(t)
	s := create(t, m, me, "a")
	put(t, m, me, "a", "f", "kept")
	made := func() string {
		w := id.New(id.Workspace)
		open, err := workspace.Open(m.store.Path("workspaces"), w)
		if err != nil {
			t.Fatal(err)
		}
		_ = open.Close()
		return w
	}
	dead := func(w string) { // the note of a process that is no more: nobody holds it
		if err := os.WriteFile(m.store.Path("run", marks, w), []byte(running), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sessions, left, held := made(), made(), made()
	done, err := m.mark(held)
	if err != nil {
		t.Fatal(err)
	}
	dead(left)
	dead(s.Workspace)
	if _, err := m.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for w, want := range map[string]bool{s.Workspace: true, sessions: true, left: false, held: true} {
		if _, err := os.Stat(m.store.Path("workspaces", w)); (err == nil) != want {
			t.Errorf("%s: %v, wanted %v", w, err, want)
		}
	}
	done()
	if notes, _ := filepath.Glob(m.store.Path("run", marks, "*")); len(notes) != 0 {
		t.Errorf("notes left: %v", notes)
	}
	if _, w, err := m.Files(t.Context(), me, "a"); err != nil {
		t.Error(err)
	} else if files, _ := w.List(workspace.Output, 9); len(files)+len(must(w.List(workspace.Input, 9))) != 1 {
		t.Error("the sandbox's file is gone")
	}
}

func must(files []workspace.File, _ error) []workspace.File { return files }
