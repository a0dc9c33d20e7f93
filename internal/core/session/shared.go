package session

import (
	"sync"

	"waldo/internal/model/call"
)

// Owner makes the sessions that clients share, and is told of their fates.
type Owner interface {
	// Open opens a session of a principal. Opened follows where clients get it.
	Open(call.Principal) (Info, error)
	Opened(Info)
	// Idle follows once the last client of a session has left.
	Idle(call.Session)
	Closed(Info)
}

// Shared gives all clients of one principal one session. Budgets, files and tokens of personal data then belong to
// the principal, for any number of clients.
type Shared struct {
	Sessions *Manager
	Owner    Owner

	mu      sync.Mutex
	info    map[call.Principal]Info
	clients map[call.Session]int
}

// Enter returns the session of a principal for one more client.
func (s *Shared) Enter(who call.Principal) (call.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.info[who]
	if s.Over(n.ID) {
		s.forget()
		var err error
		if n, err = s.Owner.Open(who); err != nil {
			return "", err
		}
		if s.info == nil {
			s.info, s.clients = map[call.Principal]Info{}, map[call.Session]int{}
		}
		s.info[who] = n
		s.Owner.Opened(n)
	}
	s.clients[n.ID]++
	return n.ID, nil
}

// Over reports whether a principal needs another session in place of n. A session that the operator has stopped stays
// while its principal is stopped, and refuses its calls.
func (s *Shared) Over(n call.Session) bool {
	now, open := s.Sessions.Get(n)
	return !open || now.Stopped && !s.Sessions.Kept(now.Principal)
}

// forget drops the sessions that the manager has closed because they were idle. The lock is held.
func (s *Shared) forget() {
	for who, n := range s.info {
		if _, open := s.Sessions.Get(n.ID); !open {
			s.Owner.Closed(n)
			delete(s.info, who)
		}
	}
}

// Leave ends one client of a session.
func (s *Shared) Leave(n call.Session) {
	s.mu.Lock()
	last := s.clients[n] <= 1
	if last {
		delete(s.clients, n)
	} else {
		s.clients[n]--
	}
	s.mu.Unlock()
	if last {
		s.Owner.Idle(n)
	}
}

// Close closes all sessions.
func (s *Shared) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.info {
		s.Sessions.Close(n.ID)
		s.Owner.Closed(n)
	}
}
