package sandboxes

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/id"
)

// meanwhile has f called once, when the manager next asks for the time.
func meanwhile(m *Manager, f func()) {
	now := m.now
	var once atomic.Bool
	m.now = func() time.Time {
		if !once.Swap(true) {
			f()
		}
		return now()
	}
}

// TestSnapshotOfOneTime: a snapshot fails if a command ran meanwhile, because its files are of two times.
func TestSnapshotOfOneTime(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	create(t, m, me, "a")
	put(t, m, me, "a", "x", "1")
	if _, err := m.Snapshot(ctx, me, "a"); err != nil {
		t.Fatalf("control: %v", err)
	}
	picture := func() Snapshot {
		p, err := m.Snapshot(ctx, me, "a")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}()
	for why, f := range map[string]func(){
		"a command ran": func() {
			r, err := m.Begin(ctx, me, "a", id.New(id.Call), false)
			if err != nil || r.End(ctx) != nil {
				t.Error(err)
			}
		},
		"a command runs": func() {
			r, err := m.Begin(ctx, me, "a", id.New(id.Call), false)
			if err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { _ = r.End(ctx) })
		},
	} {
		meanwhile(m, f)
		if _, err := m.Snapshot(ctx, me, "a"); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v", why, err)
		}
	}
	b := create(t, m, me, "b")
	meanwhile(m, func() {
		if _, err := m.Restore(ctx, me, "b", picture.ID); err != nil {
			t.Error(err)
		}
	})
	if _, err := m.Snapshot(ctx, me, b.Name); err == nil {
		t.Error("other files were put in their place")
	}
}

// TestRemovedOnce: who removes a sandbox removes none that has taken its name since.
func TestRemovedOnce(t *testing.T) {
	m, _ := fresh(t)
	old := create(t, m, me, "a")
	if err := m.remove(t.Context(), old, true); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := m.remove(t.Context(), old, true); !errors.Is(err, ErrAbsent) {
		t.Errorf("again: %v", err)
	}
	a := create(t, m, me, "a")
	if err := m.remove(t.Context(), old, true); !errors.Is(err, ErrAbsent) {
		t.Errorf("another of its name: %v", err)
	}
	p, err := m.Snapshot(t.Context(), me, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Restore(t.Context(), me, "a", p.ID); err != nil {
		t.Fatal(err)
	}
	if err := m.remove(t.Context(), a, true); !errors.Is(err, ErrChanged) {
		t.Errorf("with other files than were noted: %v", err)
	}
	if s, err := m.Get(t.Context(), me, "a"); err != nil || s.ID != a.ID {
		t.Errorf("it is gone: %v", err)
	}
}

// TestResetLosesNothing: until the new sandbox is there, the old one is.
func TestResetLosesNothing(t *testing.T) {
	m, _ := fresh(t)
	a := create(t, m, me, "a")
	meanwhile(m, func() {
		if s, err := m.Get(t.Context(), me, "a"); err != nil || s.ID != a.ID {
			t.Errorf("a waldo that is killed now leaves %+v: %v", s, err)
		}
	})
	if s, err := m.Reset(t.Context(), me, "a", me); err != nil || s.ID == a.ID {
		t.Errorf("control: %+v %v", s, err)
	}
}
