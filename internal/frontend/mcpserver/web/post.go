package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"waldo/internal/budget"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// post takes one message and answers it.
func (s *Server) post(w http.ResponseWriter, r *http.Request, who call.Principal) {
	if !plain(r.Header) {
		http.Error(w, "a message is application/json", http.StatusUnsupportedMediaType)
		return
	}
	if !takes(r.Header, "application/json", "text/event-stream") {
		http.Error(w, "an answer is application/json or text/event-stream: say in Accept that you take both",
			http.StatusNotAcceptable)
		return
	}
	size, ok := s.hold(who, r.ContentLength)
	if !ok {
		refuse(w, http.StatusServiceUnavailable, "too much is being answered already; ask again later")
		return
	}
	defer func() { s.release(who, size) }()
	body, status := s.body(w, r)
	if status != 0 {
		http.Error(w, http.StatusText(status), status)
		return
	}
	s.release(who, size-int64(len(body))) // its real size is known now
	size = int64(len(body))
	leave := budget.Turn(string(who), size)
	m, fault := jsonrpc.Parse(body)
	leave()
	if fault != nil {
		s.answer(w, http.StatusBadRequest, jsonrpc.Answer(m.ID, nil, fault))
		return
	}
	if more := int64(m.Weight - m.Size); more > 0 { // its values cost more than its bytes
		if !s.holdMore(who, more) {
			refuse(w, http.StatusServiceUnavailable, "too much is being answered already; ask again later")
			return
		}
		defer s.release(who, more)
	}
	if s.o.Proof != nil {
		proof, refusal := s.o.Proof(who, r)
		if refusal != nil {
			refusal.Answer(w)
			return
		}
		m.Proof = jsonrpc.Proof(proof)
	}
	m.Key = call.KeyOf(r.Header.Values(headerKey)...)
	m.Trace = jsonrpc.Trace(TraceOf(r.Header))
	modern, fault := agree(r.Header, m)
	if fault != nil {
		s.answer(w, statusOf(fault, http.StatusBadRequest), jsonrpc.Answer(m.ID, nil, fault))
		return
	}
	n, status, why := s.admit(r, m, who, modern)
	if n == nil {
		refuse(w, status, why)
		return
	}
	defer n.done()
	switch {
	case m.IsRequest() && n.sse.Load():
		s.posted(w, r, n, m)
	case m.IsRequest():
		s.request(w, r, n, m)
	case m.Method != "":
		n.note(m)
		w.WriteHeader(http.StatusAccepted)
	default:
		n.asks.Answered(m)
		w.WriteHeader(http.StatusAccepted)
	}
}

// hold reserves memory for a message of size bytes, -1 if unknown, and returns the reserved amount. One message is
// always accepted. A principal has half of the memory at most, so that it cannot take the room of the others.
func (s *Server) hold(who call.Principal, size int64) (int64, bool) {
	if size < 0 || size > s.o.Limits.Body {
		size = s.o.Limits.Body
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > 0 && s.held+size > s.o.Limits.Held || s.beyond(who, size) {
		return 0, false
	}
	s.held += size
	s.heldBy[who] += size
	return size, true
}

// beyond reports whether a principal with a message under way would have more than its share. The lock is held.
func (s *Server) beyond(who call.Principal, size int64) bool {
	return s.heldBy[who] > 0 && s.heldBy[who]+size > s.o.Limits.Held/2
}

// holdMore reserves memory for the extra cost of an accepted message. A message alone always gets its reservation.
func (s *Server) holdMore(who call.Principal, more int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > s.o.Limits.Body && s.held+more > s.o.Limits.Held ||
		s.heldBy[who] > s.o.Limits.Body && s.beyond(who, more) {
		return false
	}
	s.held += more
	s.heldBy[who] += more
	return true
}

func (s *Server) release(who call.Principal, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= size
	if s.heldBy[who] -= size; s.heldBy[who] == 0 {
		delete(s.heldBy, who)
	}
}

// body reads a message, or returns the status that says why not.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, int) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.o.Limits.Read)) // a connection without deadlines is a test's
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.Limits.Body))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, http.StatusRequestEntityTooLarge
	case err != nil:
		return nil, http.StatusRequestTimeout
	}
	_ = control.SetReadDeadline(time.Time{}) // while it is answered, a silent client is not a slow one
	return b, 0
}

// admit finds the session that a message belongs to. A legacy one is opened by initialize.
func (s *Server) admit(r *http.Request, m jsonrpc.Message, who call.Principal, modern bool) (*session, int, string) {
	id := r.Header.Get(headerSession)
	var n *session
	var err error
	switch {
	case modern:
		n, err = s.shared(who)
	case id != "":
		if n = s.find(id, who); n == nil {
			return nil, http.StatusNotFound, "no such session: open one with initialize"
		}
	case r.URL.Query().Has(querySession):
		if n = s.find(r.URL.Query().Get(querySession), who); n == nil {
			return nil, http.StatusNotFound, "no such session: its stream has ended, or it is somebody else's"
		}
	case m.Method == "initialize" && m.IsRequest():
		n, err = s.open(who, true)
	default:
		return nil, http.StatusBadRequest,
			headerSession + " is missing: open a session with initialize, or send requests of revision " + jsonrpc.Modern
	}
	return s.opened(n, err)
}

// opened is a session that was opened, or the status that says why it was not.
func (s *Server) opened(n *session, err error) (*session, int, string) {
	if err != nil {
		s.o.Log.Warn("a session was refused", "error", err)
		if errors.Is(err, errFull) || errors.Is(err, errEach) {
			return nil, http.StatusServiceUnavailable, err.Error()
		}
		return nil, http.StatusServiceUnavailable, "no session could be opened; try again later"
	}
	return n, 0, ""
}

func refuse(w http.ResponseWriter, status int, why string) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, why, status)
}

// answer writes an answer as one JSON object.
func (s *Server) answer(w http.ResponseWriter, status int, frame []byte) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(s.o.Limits.Write)) // a connection without deadlines is a test's
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(frame)))
	w.WriteHeader(status)
	_, _ = w.Write(frame) // a client that has gone has gone
	_ = control.Flush()
	_ = control.SetWriteDeadline(time.Time{})
}

// statusOf is the status that goes with an error (MCP 2026-07-28 streamable-http).
func statusOf(e *jsonrpc.Error, otherwise int) int {
	switch e.Code {
	case jsonrpc.CodeNoMethod:
		return http.StatusNotFound
	case jsonrpc.CodeMismatch, jsonrpc.CodeCapability, jsonrpc.CodeUnsupported:
		return http.StatusBadRequest
	}
	return otherwise
}

// made is an answer that is ready.
type made struct {
	frame  []byte
	status int
}

// request answers a request: with one JSON object where nothing has to be said before it, and with
// a stream of events otherwise, or where it takes long.
func (s *Server) request(w http.ResponseWriter, r *http.Request, n *session, m jsonrpc.Message) {
	if !s.begun(n.who) {
		s.answer(w, http.StatusServiceUnavailable, jsonrpc.Answer(m.ID, nil, jsonrpc.Errorf(jsonrpc.CodeBusy,
			"%d requests are being answered for this principal already (gateway.limits.calls_each); ask again later",
			s.o.Limits.Calls)))
		return
	}
	ctx, end, fault := n.admit(r.Context(), m, s.o.Limits.InFlight)
	if fault != nil {
		s.over(n.who)
		status := http.StatusBadRequest
		if fault.Code == jsonrpc.CodeBusy {
			status = http.StatusServiceUnavailable
		}
		s.answer(w, status, jsonrpc.Answer(m.ID, nil, fault))
		return
	}
	if n.id != "" && m.Method == "initialize" {
		w.Header().Set(headerSession, n.id)
	}
	l := newResponseQueue(n.asks)
	ready := make(chan made, 1)
	s.work.Add(1)
	answered := func(a made) {
		end() // the id is free again as soon as the client can see the answer
		s.over(n.who)
		ready <- a
		s.work.Add(-1)
	}
	s.workers.Go(func() {
		var early atomic.Bool
		a := s.make(jsonrpc.WithEarly(ctx, func(result any, err error) {
			early.Store(true)
			answered(n.made(m, result, err))
		}), n, m, l)
		if !early.Load() {
			answered(a)
		}
	})
	p := s.events(w, r, n)
	defer p.stop()
	for lost := false; !lost && !p.broken; {
		select {
		case b := <-l.out:
			p.event(b)
		case <-p.tick.C:
			p.comment()
		case a := <-ready:
			l.rest(p.event)
			if p.open {
				p.last(a.frame, m.ID)
			} else {
				s.answer(w, a.status, a.frame)
			}
			l.told.Store(!p.broken)
			close(l.gone)
			if n.id != "" && m.Method == "initialize" && a.status != http.StatusOK {
				s.forget(n)
			}
			return
		case <-p.taken:
			lost = true
		case <-r.Context().Done():
			lost = true
		}
	}
	if p.track == nil { // a legacy request cannot be resumed here: the answer is made and dropped
		close(l.gone)
		return
	}
	go s.keepOn(n, p.track, l, ready, m.ID)
}

// make makes the answer. A panic ends this request alone.
func (s *Server) make(ctx context.Context, n *session, m jsonrpc.Message, l *responseQueue) (a made) {
	defer func() {
		if p := recover(); p != nil {
			s.o.Log.Error("a request failed in waldo itself", "method", m.Method, "panic", p, "stack", string(debug.Stack()))
			a = made{
				jsonrpc.Answer(m.ID, nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "the request failed")),
				http.StatusInternalServerError,
			}
		}
	}()
	result, err := n.gateway.Answer(ctx, m, l)
	return n.made(m, result, err)
}

// made is the answer with a result or an error.
func (n *session) made(m jsonrpc.Message, result any, err error) made {
	if err == nil {
		return made{jsonrpc.Answer(m.ID, result, nil), http.StatusOK}
	}
	var fault *jsonrpc.Error
	if !errors.As(err, &fault) {
		fault = jsonrpc.Errorf(jsonrpc.CodeInternal, "the request failed")
	}
	status := http.StatusOK
	if n.id == "" {
		status = statusOf(fault, http.StatusOK)
	} else if m.Method == "initialize" {
		status = http.StatusBadRequest
	}
	return made{jsonrpc.Answer(m.ID, nil, fault), status}
}
