package sandboxes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/model/id"
	"waldo/internal/storage/workspace"
)

// TestMarks: the next Sweep deletes workspaces that a killed waldo had half made or half deleted, and no others.
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
	dead := func(w string) { // the mark of a process that has ended
		if err := os.WriteFile(m.store.Path("run", marks, w+"."+id.New(id.Record)), []byte(running), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sessions, left, held := made(), made(), made()
	done, err := m.mark(held)
	if err != nil {
		t.Fatal(err)
	}
	dead(left)
	dead(held) // as of a removal that was killed, while a command still ends
	dead(s.Workspace)
	there := func(want map[string]bool) {
		t.Helper()
		if _, err := m.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		for w, want := range want {
			if _, err := os.Stat(m.store.Path("workspaces", w)); (err == nil) != want {
				t.Errorf("%s: %v, wanted %v", w, err, want)
			}
		}
	}
	there(map[string]bool{s.Workspace: true, sessions: true, left: false, held: true})
	done()
	there(map[string]bool{s.Workspace: true, sessions: true, held: false})
	if notes, _ := filepath.Glob(m.store.Path("run", marks, "*")); len(notes) != 0 {
		t.Errorf("notes left: %v", notes)
	}
	if _, w, _, err := m.Files(t.Context(), me, "a"); err != nil {
		t.Error(err)
	} else if files, _ := w.List(workspace.Output, 9); len(files)+len(must(w.List(workspace.Input, 9))) != 1 {
		t.Error("the sandbox's file is gone")
	}
}

func must(files []workspace.File, _ error) []workspace.File { return files }

// TestFilesOfTheRemoved: files written for a sandbox that is removed meanwhile are deleted, and so is the output of
// its commands.
func TestFilesOfTheRemoved(t *testing.T) {
	for why, removed := range map[string]bool{"control: it stays": false, "it is removed": true} {
		m, _ := fresh(t)
		ctx := t.Context()
		s := create(t, m, me, "a")
		if _, _, err := m.OutputOf(ctx, me, "a", id.New(id.Call)); err != nil {
			t.Fatal(err)
		}
		_, w, done, err := m.Files(ctx, me, "a")
		if err != nil {
			t.Fatal(err)
		}
		if removed {
			if err := m.store.Delete(ctx, bucket, key(me, "a")); err != nil { // as a waldo that is killed then
				t.Fatal(err)
			}
		}
		if err := w.Put(workspace.Output, "f", strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
		done()
		if _, err := m.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{m.store.Path("workspaces", s.Workspace), m.store.Path("run", s.ID)} {
			if _, err := os.Stat(at); (err == nil) == removed {
				t.Errorf("%s: %s: %v", why, at, err)
			}
		}
		if notes, _ := filepath.Glob(m.store.Path("run", marks, "*")); len(notes) != 0 {
			t.Errorf("%s: notes left: %v", why, notes)
		}
	}
}
