package upstream

import (
	"context"
	"encoding/json"
	"slices"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// How many more sessions one server may have that is asked in a legacy revision and asks back: it need not say which
// call a question belongs to, so each call under way has a session of its own. That is a process each, or a session
// at its url.
const (
	maxTwins  = 16
	maxRemote = 64
)

// forCall returns the session that a call is sent to, and a function to say that the call is over. A call whose
// host can be asked gets a legacy session of its own, if the server speaks a legacy revision alone, or if the host
// does and the server takes both: tools that ask by a request of their own fail in the modern revision.
func (s *server) forCall(ctx context.Context, q errand) (*session, func(), error) {
	host := call.HostOf(ctx)
	if host == nil && q.plan == nil {
		if t := s.lately(); t != nil {
			return s.with(ctx, t)
		}
	}
	ses, unused, err := s.use(ctx)
	if err != nil || q.plan != nil || host == nil || !s.asks() {
		return ses, unused, err
	}
	told := s.declared(host, true)
	modern := ses.revision == jsonrpc.Modern
	if modern && !(host.Abilities().Legacy && ses.dual.Load() && len(told) > 0) {
		return ses, unused, nil
	}
	own, over, err := s.alone(ctx, told)
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

// alone returns a legacy session that has no call under way and that was told these capabilities, and a function
// to say that the call is over. It waits while all are busy.
func (s *server) alone(ctx context.Context, told map[string]any) (*session, func(), error) {
	t, err := s.take(ctx, told)
	if err != nil {
		return nil, nil, err
	}
	return s.with(ctx, t)
}

// with starts a twin that was taken, and frees it when the call is over.
func (s *server) with(ctx context.Context, t *server) (*session, func(), error) {
	ses, unused, err := t.use(ctx)
	if err != nil {
		s.free(t)
		return nil, nil, err
	}
	return ses, func() { unused(); s.free(t) }, nil
}

// lately takes the twin that had the last call, if it runs and is free: a call without a host, as of code in a
// sandbox, finds there what the calls before it have left in the server's memory.
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

// take finds a free session that was told the same, or makes room for one by ending one that was told something
// else.
func (s *server) take(ctx context.Context, told map[string]any) (*server, error) {
	want, most := keyOf(told), maxTwins
	if s.cfg.URL != "" {
		most = maxRemote
	}
	for {
		s.mu.Lock()
		if s.legacy && !s.taken && keyOf(s.declared(nil, false)) == want {
			s.taken, s.recent = true, nil
			s.mu.Unlock()
			return s, nil
		}
		other := -1
		for i, t := range s.twins {
			if !t.taken && keyOf(t.told) == want {
				t.taken, s.recent = true, t
				s.mu.Unlock()
				return t, nil
			}
			if !t.taken {
				other = i
			}
		}
		if len(s.twins) >= most && other >= 0 {
			go s.twins[other].retire()
			s.twins = slices.Delete(s.twins, other, other+1)
		}
		if len(s.twins) < most {
			t := &server{m: s.m, cfg: s.cfg, owner: s.owner, changed: s.changed, offers: s.offers, legacy: true, told: told, taken: true}
			s.twins, s.recent = append(s.twins, t), t
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
			return nil, ctx.Err()
		}
	}
}

func keyOf(told map[string]any) string {
	b, _ := json.Marshal(told) // names and empty objects encode
	return string(b)
}

func (s *server) retire() {
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	s.stop()
}

func (s *server) free(t *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.taken = false
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}
