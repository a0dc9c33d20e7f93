package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// The maximum of extra sessions of one legacy server that sends requests. Such a request need not name its call, so
// each call under way gets a session of its own. That is a process each, or a session at its url.
const (
	maxReplicas = 16
	maxRemote   = 64
)

// errShare is the error of a call that found no session in time since its principal uses three quarters of them.
var errShare = errors.New("three quarters of the sessions are in use by calls of this principal")

// forCall returns the session for a call, and a function that releases it. A call with a host gets a legacy session
// of its own in two cases: the server speaks legacy revisions only, or the host does and the server speaks both.
// Tools that send requests fail in the modern revision.
func (s *server) forCall(ctx context.Context, who call.Principal, q rpcRequest) (*session, func(), error) {
	host := call.HostOf(ctx)
	if host == nil && q.plan == nil {
		if t := s.lately(); t != nil {
			return s.with(ctx, t)
		}
	}
	for first := true; ; first = false {
		ses, unused, err := s.use(ctx)
		if err != nil || q.plan != nil || host == nil || !s.asks() {
			return ses, unused, err
		}
		told := s.declared(host, true)
		modern, old := ses.revision == jsonrpc.Modern, host.Abilities().Legacy && len(told) > 0
		switch {
		case modern && !(old && ses.dual.Load()):
			return ses, unused, nil
		case !modern && !old && s.split(ses):
			told = nil // a modern session
		case first && s.cfg.URL == "":
			unused()
			s.startAgainFor(ctx, ses, told)
			continue
		}
		own, over, err := s.alone(ctx, who, told)
		switch {
		case err == nil && (!modern || own.revision != jsonrpc.Modern && own.conn.TwoWay()):
			unused()
			return own, over, nil
		case err == nil:
			over()
		case !modern || ctx.Err() != nil:
			unused()
			return nil, nil, err
		}
		ses.dual.Store(false) // it says so, and takes none
		return ses, unused, nil
	}
}

// split reports whether a server that speaks both eras has a legacy session for the sake of a host.
func (s *server) split(ses *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.both && s.session == ses
}

// startAgainFor restarts a program's session as its first host needs it, unless a call has reached the present one. One
// process then serves that host, its scripts, lists and subscriptions. A server at a url keeps its state across
// sessions. It waits up to 2 s for lists that are being read.
func (s *server) startAgainFor(ctx context.Context, ses *session, told map[string]any) {
	for range 100 {
		s.mu.Lock()
		if s.session != ses || ses.served.Load() || len(s.replicas) > 0 || s.taken || s.legacy && s.first() == keyOf(told) {
			s.mu.Unlock()
			return
		}
		if s.using == 0 {
			s.both = s.both || ses.revision == jsonrpc.Modern
			s.session, s.told, s.legacy = nil, told, true
			s.mu.Unlock()
			ses.stop()
			return
		}
		s.mu.Unlock()
		if !rest(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// first returns the key of the capabilities announced to the server's first session. The caller holds the lock.
func (s *server) first() string {
	if s.told != nil {
		return keyOf(s.told)
	}
	return keyOf(s.declared(nil, false))
}

// relapse gives a server that did not start for its first host back its modern session.
func (s *server) relapse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.both {
		s.told, s.legacy, s.both, s.single = nil, false, false, true
	}
}

// alone returns a session without a call under way, and a function that releases it. The session is a legacy one with
// these capabilities or, for nil, a modern one. It waits while all are busy.
func (s *server) alone(ctx context.Context, who call.Principal, told map[string]any) (*session, func(), error) {
	t, err := s.take(ctx, who, told)
	if err != nil {
		return nil, nil, err
	}
	return s.with(ctx, t)
}

// with starts a replica that was taken, and frees it when the call is over.
func (s *server) with(ctx context.Context, t *server) (*session, func(), error) {
	ses, unused, err := t.use(ctx)
	if err != nil {
		s.free(t)
		return nil, nil, err
	}
	return ses, func() { unused(); s.free(t) }, nil
}

// lately takes the replica that had the last call, if it runs and is free. A call without a host, such as code in a
// sandbox, then finds the state of earlier calls in the server's memory.
func (s *server) lately() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.recent
	if t == nil || t.taken {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session == nil || !t.session.alive() {
		return nil
	}
	t.taken = true
	return t
}

// share reports whether the calls of a principal use their share of the sessions: three quarters, where several
// principals use the server. The caller holds the lock.
func (s *server) share(who call.Principal, most int) bool {
	n := 0
	for _, t := range slices.Concat(s.replicas, []*server{s}) {
		if t.taken && t.user == who {
			n++
		}
	}
	return s.owner == "" && n >= most*3/4
}

// take finds a free session with the same capabilities, or makes room for one by ending one with others. A principal
// that has its share waits.
func (s *server) take(ctx context.Context, who call.Principal, told map[string]any) (*server, error) {
	want, most := keyOf(told), maxReplicas
	if s.cfg.URL != "" {
		most = maxRemote
	}
	for {
		s.mu.Lock()
		if s.over {
			s.mu.Unlock()
			return nil, errStopped
		}
		full := s.share(who, most)
		if !full && s.legacy && !s.taken && s.first() == want {
			s.taken, s.user, s.recent = true, who, nil
			s.mu.Unlock()
			return s, nil
		}
		other := -1
		for i, t := range s.replicas {
			if !full && !t.taken && keyOf(t.told) == want {
				t.taken, t.user, s.recent = true, who, t
				s.mu.Unlock()
				return t, nil
			}
			if !t.taken {
				other = i
			}
		}
		if !full && len(s.replicas) >= most && other >= 0 {
			go s.replicas[other].stop()
			s.replicas = slices.Delete(s.replicas, other, other+1)
		}
		if !full && len(s.replicas) < most {
			t := &server{m: s.m, cfg: s.cfg, owner: s.owner, changed: s.changed, offers: s.offers, legacy: told != nil, told: told, taken: true, user: who}
			s.replicas, s.recent = append(s.replicas, t), t
			s.mu.Unlock()
			return t, nil
		}
		if s.freed == nil {
			s.freed = make(chan struct{})
		}
		wait := s.freed
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			if full {
				return nil, errShare
			}
			return nil, ctx.Err()
		}
	}
}

func keyOf(told map[string]any) string {
	b, _ := json.Marshal(told) // names and empty objects encode
	return string(b)
}

func (s *server) free(t *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.taken, t.user = false, ""
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}
