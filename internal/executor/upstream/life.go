package upstream

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"waldo/internal/model/call"
)

// maxChildren is how many sessions may have a server of their own at once.
const maxChildren = 64

// of returns the server for a session: the shared one or, with per_session, its own, whose process serves that
// session only.
func (s *server) of(n call.Session) (*server, error) {
	if !s.cfg.PerSession {
		return s, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.children[n]; c != nil {
		return c, nil
	}
	if s.over {
		return nil, errStopped
	}
	if len(s.children) >= maxChildren {
		return nil, fmt.Errorf("server %s: %d sessions have one of their own already", s.cfg.Name, maxChildren)
	}
	c := &server{m: s.m, cfg: s.cfg, owner: n, changed: s.changed, offers: s.offers, legacy: s.legacy,
		subs: map[string]map[call.Session]bool{}}
	if s.children == nil {
		s.children = map[call.Session]*server{}
	}
	s.children[n] = c
	return c, nil
}

// orphan ends the server of a session that is over.
func (s *server) orphan(n call.Session) {
	s.mu.Lock()
	c := s.children[n]
	delete(s.children, n)
	s.mu.Unlock()
	if c != nil {
		c.stop()
	}
}

// How long a server is left alone that does not start, or ends soon after: twice as long each time.
const (
	firstRest   = time.Second
	longestRest = time.Minute
	freeDeaths  = 3                // ends that cost nothing: the next call starts it at once
	settled     = 30 * time.Second // a server that has lived for so long has not ended soon
)

// Restart ends what runs of a server: its process, its replicas, and those of its sessions. The next call starts it
// anew, also one that failed to start. A call under way ends as if the server had died. It reports false for an unknown
// server.
func (m *Manager) Restart(name string) bool {
	s := m.servers[name]
	if s != nil {
		s.restart()
	}
	return s != nil
}

func (s *server) restart() {
	s.mu.Lock()
	ses := s.session
	s.session, s.failed, s.falls = nil, nil, 0
	others := slices.AppendSeq(slices.Clone(s.replicas), maps.Values(s.children))
	s.mu.Unlock()
	if ses != nil {
		ses.stop()
	}
	for _, t := range others {
		t.restart()
	}
}

// crashed notes that a start has failed, or that a running server has ended by itself. The lock is held.
func (s *server) crashed(started bool, lived time.Duration) {
	switch {
	case !started:
		s.falls = max(s.falls, freeDeaths) + 1
	case lived >= settled:
		s.falls = 0
	default:
		s.falls++
	}
	s.failedAt = time.Now()
	if left := s.backoff(); left > 0 {
		s.m.o.Watcher.BreakerChanged(s.cfg.Name, 0, s.failedAt.Add(left))
	}
}

// backoff says for how much longer the server is left alone. The lock is held.
func (s *server) backoff() time.Duration {
	n := s.falls - freeDeaths
	if n <= 0 {
		return 0
	}
	rest := longestRest
	if n < 8 {
		rest = min(firstRest<<(n-1), longestRest)
	}
	return rest - time.Since(s.failedAt)
}
