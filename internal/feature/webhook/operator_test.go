package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"waldo/internal/core/audit"
	"waldo/internal/storage/inbox"
)

// byHand lists what the log says of the operator's changes: "event result: reason".
func (b *bench) byHand(t *testing.T) (all []string) {
	t.Helper()
	of := audit.Selection{Last: 100, Match: func(r audit.Record) bool { return r.Kind == inbox.Kind }}
	_, err := audit.Select(t.Context(), audit.Dir(b.o.Queue.Store.Dir()), of, func(r audit.Record) error {
		var e HandedOver
		if err := json.Unmarshal(r.Body, &e); err != nil || e.Result == "" {
			return err
		}
		if e.Principal != "os:7" || e.Delivery == "" {
			t.Errorf("%+v", e)
		}
		all = append(all, e.Event+" "+e.Result+": "+e.Reason)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func queued(t *testing.T, b *bench) *inbox.Delivery {
	t.Helper()
	b.hook("h", "standard", 0, standardSecret)
	d := &inbox.Delivery{Hook: "h", Target: inbox.Agent, Body: []byte("{}")}
	q := *b.o.Queue
	q.Holder = ""
	if err := q.Add(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestByHand: each change of the operator is recorded before it is made, and its end after it.
func TestByHand(t *testing.T) {
	b := newBench(t)
	d := queued(t, b)
	if _, err := b.Retry(t.Context(), d.ID, "os:7"); err != nil {
		t.Fatal("control:", err)
	}
	taken, err := b.o.Queue.Claim(t.Context(), inbox.Agent)
	if err != nil || taken == nil {
		t.Fatal(taken, err)
	}
	for _, change := range []func() error{
		func() error { _, err := b.Retry(t.Context(), d.ID, "os:7"); return err },
		func() error { _, err := b.Drop(t.Context(), d.ID, "os:7"); return err },
	} {
		if err := change(); !errors.Is(err, inbox.ErrHeld) {
			t.Errorf("while another works on it: %v", err)
		}
	}
	if err := b.o.Queue.Fail(t.Context(), taken, inbox.Failure{Final: true, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Drop(t.Context(), d.ID, "os:7"); err != nil {
		t.Fatal("control:", err)
	}
	if _, err := b.Drop(t.Context(), d.ID, "os:7"); !errors.Is(err, inbox.ErrNone) {
		t.Errorf("one that is gone: %v", err)
	}
	held := inbox.ErrHeld.Error()
	want := []string{"retried begun: ", "retried done: ", "retried begun: ", "retried refused: " + held,
		"dropped begun: ", "dropped refused: " + held, "dropped begun: ", "dropped done: "}
	if got := b.byHand(t); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestByHandUnrecorded: a change that cannot be recorded is not made. One that waldo did not survive stays begun.
func TestByHandUnrecorded(t *testing.T) {
	b := newBench(t)
	d := queued(t, b)
	killed := func(context.Context, string) error { panic("killed") }
	func() {
		defer func() { _ = recover() }()
		_, _ = b.act(t.Context(), d.ID, "dropped", "os:7", killed)
	}()
	if got := b.byHand(t); !slices.Equal(got, []string{"dropped begun: "}) {
		t.Errorf("%q", got)
	}
	_ = b.log.Close()
	if _, err := b.Drop(t.Context(), d.ID, "os:7"); err == nil {
		t.Error("a drop without its record")
	}
	if _, err := b.o.Queue.Get(t.Context(), d.ID); err != nil {
		t.Errorf("it is dropped: %v", err)
	}
}
