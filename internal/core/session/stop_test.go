package session

import (
	"context"
	"testing"

	"waldo/internal/model/call"
)

func TestStop(t *testing.T) {
	m, _, d := setup(t, Defaults())
	other, err := m.Open("token:ci", "w_2")
	if err != nil {
		t.Fatal(err)
	}
	of := func(p call.Principal) func(Info) bool { return func(n Info) bool { return n.Principal == p } }
	mine, done := m.Bind(context.Background(), d.Call.Session)
	defer done()
	theirs, end := m.Bind(context.Background(), other.ID)
	defer end()
	if ended := m.Stop(of("token:ci")); len(ended) != 1 || ended[0].ID != other.ID {
		t.Fatalf("ended %v", ended)
	}
	if mine.Err() != nil {
		t.Error("control: a call of another session was ended")
	}
	if why := call.Stopped(theirs); why == nil || why.Code != "session.stopped" || theirs.Err() == nil {
		t.Errorf("the call under way goes on: %v", why)
	}
	if _, why := m.Take(d); why != nil {
		t.Errorf("control: another session is refused: %q", why.Code)
	}
	e := d
	e.Call.Session, e.Call.Principal = other.ID, "token:ci"
	if _, why := m.Take(e); code(why) != "session.stopped" {
		t.Errorf("a stopped session takes a call: %q", code(why))
	}
	late, over := m.Bind(context.Background(), other.ID)
	defer over()
	if call.Stopped(late) == nil {
		t.Error("a call that was let in just before the stop goes on")
	}
	if !m.Kept("token:ci") || m.Kept("os:1000") {
		t.Error("who is kept out is not who was stopped")
	}
	born, err := m.Open("token:ci", "w_3")
	if err != nil {
		t.Fatal(err)
	}
	e.Call.Session = born.ID
	if _, why := m.Take(e); code(why) != "session.stopped" {
		t.Errorf("whoever is stopped opens another session: %q", code(why))
	}
	if again := m.Stop(of("token:ci")); len(again) != 0 {
		t.Errorf("ended a second time: %v", again)
	}

	m.Stop(func(Info) bool { return false })
	if _, why := m.Take(e); code(why) != "session.stopped" {
		t.Errorf("an ended session comes back: %q", code(why))
	}
	fresh, err := m.Open("token:ci", "w_4")
	if err != nil {
		t.Fatal(err)
	}
	e.Call.Session = fresh.ID
	if _, why := m.Take(e); why != nil {
		t.Errorf("whoever is let in again is refused: %q", why.Code)
	}
}

// A call that ends for another reason does not count as stopped.
func TestACancelledCallIsNotStopped(t *testing.T) {
	m, _, d := setup(t, Defaults())
	ctx, cancel := context.WithCancel(context.Background())
	bound, done := m.Bind(ctx, d.Call.Session)
	cancel()
	if bound.Err() == nil || call.Stopped(bound) != nil {
		t.Errorf("%v %v", bound.Err(), call.Stopped(bound))
	}
	done()
	m.Stop(func(Info) bool { return true })
	if call.Stopped(bound) != nil {
		t.Error("a call that is over was stopped")
	}
}
