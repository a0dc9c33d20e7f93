package session

import (
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// owner remembers the fates of sessions.
type owner struct {
	m              *Manager
	opened, closed []Info
	idle           []call.Session
}

func (o *owner) Open(p call.Principal) (Info, error) { return o.m.Open(p, id.New(id.Workspace)) }
func (o *owner) Opened(n Info)                       { o.opened = append(o.opened, n) }
func (o *owner) Idle(n call.Session)                 { o.idle = append(o.idle, n) }
func (o *owner) Closed(n Info)                       { o.closed = append(o.closed, n) }

// TestShared: clients of one principal share a session, those of another do not. A session of a stopped principal
// stays; one that was closed is replaced.
func TestShared(t *testing.T) {
	now := time.Now()
	m := NewManager(Defaults(), func() time.Time { return now })
	o := &owner{m: m}
	s := &Shared{Sessions: m, Owner: o}
	enter := func(who call.Principal) call.Session {
		t.Helper()
		n, err := s.Enter(who)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ci, again, other := enter("token:ci"), enter("token:ci"), enter("token:other")
	if ci != again || ci == other || len(o.opened) != 2 {
		t.Fatal(ci, again, other, o.opened)
	}
	s.Leave(ci)
	if len(o.idle) != 0 {
		t.Error("a session with a client is idle")
	}
	s.Leave(ci)
	if len(o.idle) != 1 || o.idle[0] != ci {
		t.Error(o.idle)
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
	if enter("token:other") == other || len(o.closed) == 0 {
		t.Error("a closed session is used again", o.closed)
	}
	s.Close()
	if len(m.List()) > 1 { // the stopped one is the manager's
		t.Errorf("%v", m.List())
	}
	if _, err := s.Enter(""); err == nil {
		t.Error("a session of no principal")
	}
}
