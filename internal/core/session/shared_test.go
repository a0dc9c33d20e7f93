package session

import (
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// TestShared: clients of one principal share a session, those of another do not. A session of a stopped principal
// stays; one that was closed is replaced.
func TestShared(t *testing.T) {
	now := time.Now()
	m := NewManager(Defaults(), func() time.Time { return now })
	var opened, closed []Info
	var idle []call.Session
	s := &Shared{Sessions: m, Open: func(p call.Principal) (Info, error) { return m.Open(p, id.New(id.Workspace)) },
		Opened: func(n Info) { opened = append(opened, n) },
		Closed: func(n Info) { closed = append(closed, n) }, Idle: func(n call.Session) { idle = append(idle, n) }}
	enter := func(who call.Principal) call.Session {
		t.Helper()
		n, err := s.Enter(who)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ci, again, other := enter("token:ci"), enter("token:ci"), enter("token:other")
	if ci != again || ci == other || len(opened) != 2 {
		t.Fatal(ci, again, other, opened)
	}
	s.Leave(ci)
	if len(idle) != 0 {
		t.Error("a session with a client is idle")
	}
	s.Leave(ci)
	if len(idle) != 1 || idle[0] != ci {
		t.Error(idle)
	}
	m.Stop(func(n Info) bool { return n.Principal == "token:ci" })
	if enter("token:ci") != ci {
		t.Error("a stopped principal gets another session")
	}
	m.Stop(func(n Info) bool { return false }) // released
	if n := enter("token:ci"); n == ci {
		t.Error("a session that was ended is used again")
	}
	m.Close(other)
	if enter("token:other") == other || len(closed) == 0 {
		t.Error("a closed session is used again", closed)
	}
	s.Close()
	if len(m.List()) > 1 { // the stopped one is the manager's
		t.Errorf("%v", m.List())
	}
	if _, err := s.Enter(""); err == nil {
		t.Error("a session of no principal")
	}
}
