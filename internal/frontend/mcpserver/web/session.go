package web

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/frontend/mcpserver"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// session is one client's: a legacy one has an id and a stream of its own; the modern era knows no
// sessions, so all that a principal asks in it shares one.
type session struct {
	id      string // "": modern
	who     call.Principal
	gateway *mcpserver.Session
	stream  *responseQueue
	replay  *replayBuffer // nil: modern, where nothing is resumed
	asks    *serverRequests
	sse     atomic.Bool // its answers come on its stream
	life    context.Context
	end     context.CancelFunc

	mu       sync.Mutex
	used     time.Time
	live     int                           // requests of HTTP under way
	inFlight map[string]context.CancelFunc // requests being answered, by id; legacy alone
	answers  int                           // how many are being answered
}

// Reasons for refusing a session. The client sees them.
var (
	errFull = errors.New("too many sessions are open (gateway.limits.sessions), and each was used within the last " +
		"minute: close some (DELETE), or try again later")
	errEach = errors.New("this principal has too many sessions open (gateway.limits.sessions_each), and each was used " +
		"within the last minute: close some (DELETE), or try again later")
)

// open makes a session for a principal. The id of a legacy one cannot be guessed.
func (s *Server) open(who call.Principal, legacy bool) (*session, error) {
	own, err := s.o.Open(who)
	if err != nil {
		return nil, err
	}
	n := &session{who: who, used: time.Now(), live: 1, inFlight: map[string]context.CancelFunc{}}
	n.life, n.end = context.WithCancel(s.life)
	if legacy {
		n.id = rand.Text()
		n.asks = &serverRequests{over: n.life.Done()}
	}
	n.stream = newResponseQueue(n.asks)
	if legacy {
		n.replay = s.newReplayBuffer()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !legacy && s.modern[who] != nil { // somebody was faster
		n.end()
		n = s.modern[who]
		n.begin()
		return n, nil
	}
	if err := s.room(who, legacy); err != nil {
		n.end()
		return nil, err
	}
	n.gateway = s.o.Server.Session(mcpserver.Who{Session: own, Principal: who}, n.stream)
	if legacy {
		s.sessions[n.id] = n
	} else {
		s.modern[who] = n
	}
	return n, nil
}

// room makes room for one more session. It drops the longest idle session if that was idle for at least Limits.Spare:
// the principal's own when its share is used, any when all are taken. It refuses the new session if all are in use.
// The caller holds the lock.
func (s *Server) room(who call.Principal, legacy bool) error {
	each, of, full := 0, call.Principal(""), errFull
	for _, n := range s.sessions {
		if n.who == who {
			each++
		}
	}
	switch {
	case legacy && each >= s.o.Limits.Each:
		of, full = who, errEach
	case len(s.sessions)+len(s.modern) < s.o.Limits.Sessions:
		return nil
	}
	var oldest *session
	var since time.Time
	for _, n := range s.sessions {
		used, idle := n.idle()
		if idle && (of == "" || n.who == of) && time.Since(used) >= s.o.Limits.Spare &&
			(oldest == nil || used.Before(since)) {
			oldest, since = n, used
		}
	}
	if oldest == nil {
		return full
	}
	delete(s.sessions, oldest.id)
	oldest.close()
	return nil
}

// begun counts a request of a principal that is to be answered; false: it has as many as it may.
func (s *Server) begun(who call.Principal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[who] >= s.o.Limits.Calls {
		return false
	}
	s.calls[who]++
	return true
}

func (s *Server) over(who call.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[who]--; s.calls[who] <= 0 {
		delete(s.calls, who)
	}
}

// find returns a principal's session by its id and marks it used; nil: it has none of that id, even
// if somebody else has. The caller calls done.
func (s *Server) find(id string, who call.Principal) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil || n.who != who {
		return nil
	}
	n.begin()
	return n
}

// shared returns the session of a principal for the modern era.
func (s *Server) shared(who call.Principal) (*session, error) {
	s.mu.Lock()
	n := s.modern[who]
	if n != nil && s.o.Over != nil && s.o.Over(n.gateway.Who().Session) {
		delete(s.modern, who)
		n.close() // with its tasks
		n = nil
	}
	if n != nil {
		n.begin()
	}
	s.mu.Unlock()
	if n != nil {
		return n, nil
	}
	return s.open(who, false)
}

func (s *Server) forget(n *session) {
	s.mu.Lock()
	delete(s.sessions, n.id)
	s.mu.Unlock()
	n.close()
}

// sweep drops the sessions that were idle for Limits.Idle.
func (s *Server) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.sessions {
		n.replay.expire(now.Add(-s.o.Limits.Resume))
		if used, idle := n.idle(); idle && now.Sub(used) >= s.o.Limits.Idle {
			delete(s.sessions, id)
			n.close()
		}
	}
	for who, n := range s.modern {
		if used, idle := n.idle(); idle && now.Sub(used) >= s.o.Limits.Idle {
			delete(s.modern, who)
			n.close()
		}
	}
}

func (n *session) begin() {
	n.mu.Lock()
	n.live++
	n.used = time.Now()
	n.mu.Unlock()
}

// done ends one request of HTTP.
func (n *session) done() {
	n.mu.Lock()
	n.live--
	n.used = time.Now()
	n.mu.Unlock()
}

func (n *session) idle() (used time.Time, idle bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.used, n.live == 0 && n.answers == 0
}

func (n *session) close() {
	n.gateway.Close()
	n.end()
	if n.replay != nil {
		n.replay.close()
	}
}

// admit takes a request in, or says why not. A legacy request lives until it is answered, cancelled
// or its session ends, since a client may lose its connection and mean no harm by it; a modern one
// ends with its connection.
func (n *session) admit(ctx context.Context, m jsonrpc.Message, most int) (context.Context, func(), *jsonrpc.Error) {
	key := string(m.ID.Canonical())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.id != "" && n.answers >= most {
		return nil, nil,
			jsonrpc.Errorf(jsonrpc.CodeBusy, "too much is being answered already in this session; ask again later")
	}
	if n.inFlight[key] != nil {
		return nil, nil, jsonrpc.Errorf(jsonrpc.CodeInvalid, "the id belongs to a request that is not answered yet")
	}
	n.answers++
	var cancel context.CancelFunc
	if n.id == "" {
		ctx, cancel = context.WithCancel(ctx)
		stop := context.AfterFunc(n.life, cancel)
		return ctx, func() { stop(); cancel(); n.answered("") }, nil
	}
	ctx, cancel = context.WithCancel(n.life)
	n.inFlight[key] = cancel
	return ctx, func() { cancel(); n.answered(key) }, nil
}

func (n *session) answered(key string) {
	n.mu.Lock()
	n.answers--
	delete(n.inFlight, key)
	n.used = time.Now()
	n.mu.Unlock()
}

// note takes a notification of a client.
func (n *session) note(m jsonrpc.Message) {
	switch {
	case m.Method == "notifications/cancelled" && n.id != "":
		if id := m.Param("requestId"); !id.IsZero() {
			n.mu.Lock()
			cancel := n.inFlight[string(id.Canonical())]
			n.mu.Unlock()
			if cancel != nil {
				cancel()
			}
		}
	case m.Method == "notifications/progress" && n.asks != nil:
		n.asks.Progress(m)
	default:
		n.gateway.HandleNotification(m)
	}
}
