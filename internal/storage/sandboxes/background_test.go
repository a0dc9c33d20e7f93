package sandboxes

import (
	"errors"
	"testing"
	"time"

	"waldo/internal/model/id"
)

// TestBackground: a background command is marked as one, does not keep the sandbox awake, pauses with it and ends
// with it. Only its own Watch checks.
func TestBackground(t *testing.T) {
	m, now := fresh(t)
	ctx := t.Context()
	create(t, m, me, "a")
	r, err := m.Begin(ctx, me, "a", id.New(id.Call), true)
	if err != nil {
		t.Fatal(err)
	}
	b, ended := &instance{}, make(chan struct{})
	defer r.Watch(b, func() {
		select {
		case <-ended:
		default:
			close(ended)
		}
	})()
	if all, err := m.Commands(ctx, me, "a"); err != nil || len(all) != 1 || !all[0].Background || all[0].Call != r.call ||
		all[0].State != running {
		t.Errorf("%+v %v", all, err)
	}
	wait := func(why string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(why)
			}
		}
	}
	step(now, r.Sandbox.Idle)
	wait("it does not stand still", b.paused.Load)
	if _, err := m.Begin(ctx, me, "a", id.New(id.Call), false); err != nil { // which wakes it
		t.Fatal(err)
	}
	wait("it does not go on", func() bool { return !b.paused.Load() })
	step(now, 3*r.Sandbox.Idle)
	select {
	case <-ended:
		t.Error("it ended while somebody waited for another")
	case <-time.After(3 * look):
	}
}

// TestBackgroundEndsWhenStopped: a sandbox that was idle for twice its time stops, and its commands end.
func TestBackgroundEndsWhenStopped(t *testing.T) {
	m, now := fresh(t)
	create(t, m, me, "a")
	r, err := m.Begin(t.Context(), me, "a", id.New(id.Call), true)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 100)
	defer r.Watch(&instance{}, func() { ended <- struct{}{} })()
	step(now, 3*r.Sandbox.Idle)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it goes on in a stopped sandbox")
	}
}

// TestKill ends one command, for its owner only.
func TestKill(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	create(t, m, me, "a")
	r, err := m.Begin(ctx, me, "a", id.New(id.Call), true)
	if err != nil {
		t.Fatal(err)
	}
	over := r.Watch(&instance{}, func() { _ = r.End(ctx) })
	if err := m.Kill(ctx, other, "a", r.call); !errors.Is(err, ErrAbsent) {
		t.Errorf("another's: %v", err)
	}
	if err := m.Kill(ctx, me, "a", id.New(id.Call)); !errors.Is(err, ErrNoCommand) {
		t.Errorf("no command: %v", err)
	}
	if err := m.Kill(ctx, me, "a", r.call); err != nil {
		t.Error(err)
	}
	over()
	for _, call := range []string{"", "../../x", r.call + "/../x"} {
		if _, _, err := m.OutputOf(ctx, me, "a", call); !errors.Is(err, ErrNoCommand) {
			t.Errorf("the output of %q: %v", call, err)
		}
	}
}
