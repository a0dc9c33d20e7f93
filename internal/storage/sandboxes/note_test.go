package sandboxes

import (
	"strings"
	"testing"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// busy is a running sandbox that has used processor time.
type busy struct{ instance }

func (b *busy) Abilities() sandbox.Abilities {
	return sandbox.Abilities{Spent: func() sandbox.Use { return sandbox.Use{CPU: 7 * time.Second} }}
}

// TestNote: a command's words, its beginning and its processor time are known to every process, and so is its state.
func TestNote(t *testing.T) {
	m, now := fresh(t)
	create(t, m, me, "a")
	r, err := m.Begin(t.Context(), me, "a", id.New(id.Call), false)
	if err != nil {
		t.Fatal(err)
	}
	began := now.now().UTC().Truncate(time.Second)
	r.Tell("make " + strings.Repeat("é", maxLine))
	over := r.Watch(&busy{}, func() {})
	defer over()
	var c Command
	for end := time.Now().Add(time.Minute); c.CPU == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		all, err := m.Commands(t.Context(), me, "a")
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v %v", all, err)
		}
		c = all[0]
	}
	if c.State != running || c.CPU != 7*time.Second || !c.Started.Equal(began) || !strings.HasPrefix(c.Line, "make é") ||
		len(c.Line) > maxLine+len("…") {
		t.Errorf("%+v", c)
	}
	r.say(frozen)
	if all, _ := m.Commands(t.Context(), me, "a"); len(all) != 1 || all[0].State != frozen || all[0].CPU != 7*time.Second {
		t.Errorf("%+v", all)
	}
}

// TestSnapshotOfFiles: a snapshot holds the files of /workspace itself, within the limit.
func TestSnapshotOfFiles(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	a := create(t, m, me, "a")
	_, w, done, err := m.Files(ctx, me, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := w.Put(workspace.Files, "Makefile", strings.NewReader("all:"), 4); err != nil {
		t.Fatal(err)
	}
	p, err := m.Snapshot(ctx, me, "a")
	if err != nil || p.Files != 1 {
		t.Fatalf("%+v %v", p, err)
	}
	b, err := m.From(ctx, me, "b", p.ID)
	if err != nil || b.Limits != a.Limits {
		t.Fatal(err)
	}
	_, w, done, err = m.Files(ctx, me, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if files, err := w.List(workspace.Files, 9); err != nil || len(files) != 1 || files[0].Name != "Makefile" {
		t.Errorf("%+v %v", files, err)
	}
}
