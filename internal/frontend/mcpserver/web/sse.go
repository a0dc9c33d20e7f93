package web

import (
	"net/http"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// querySession is the query parameter of the address to which an HTTP+SSE client posts. It works only for the
// principal that opened the stream.
const querySession = "session"

// opensSSE reports whether a request is how a client of the transport before streamable HTTP begins: such a client
// says no revision, has no session and takes a stream alone.
func opensSSE(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get(headerSession) == "" && r.Header.Get(headerVersion) == "" &&
		takes(r.Header, "text/event-stream") && !takes(r.Header, "application/json")
}

// sse serves a client of HTTP+SSE (MCP 2024-11-05 basic/transports): one stream carries all answers, and its first
// event names the address to which the client posts. The session and its requests end with the stream.
func (s *Server) sse(w http.ResponseWriter, r *http.Request, who call.Principal) {
	n, status, why := s.opened(s.open(who, true))
	if n == nil {
		refuse(w, status, why)
		return
	}
	n.sse.Store(true)
	defer func() {
		close(n.stream.gone)
		n.done()
		s.forget(n)
	}()
	p := &sseWriter{
		w: w, c: http.NewResponseController(w), tick: time.NewTimer(s.o.Limits.KeepAlive), every: s.o.Limits.KeepAlive,
		write: s.o.Limits.Write,
	}
	defer p.stop()
	p.put([]byte("event: endpoint\ndata: /mcp?" + querySession + "=" + n.id + "\n\n"))
	for !p.broken {
		select {
		case b := <-n.stream.out:
			p.frame("", b)
		case <-p.tick.C:
			p.comment()
		case <-n.life.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}

// posted takes a request of a client of HTTP+SSE, whose answer comes on the stream.
func (s *Server) posted(w http.ResponseWriter, r *http.Request, n *session, m jsonrpc.Message) {
	if !s.begun(n.who) {
		refuse(w, http.StatusServiceUnavailable,
			"too many requests are being answered for this principal already (gateway.limits.calls_each); ask again later")
		return
	}
	ctx, end, fault := n.admit(r.Context(), m, s.o.Limits.InFlight)
	if fault != nil {
		s.over(n.who)
		refuse(w, http.StatusServiceUnavailable, fault.Message)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	s.work.Add(1)
	s.workers.Go(func() {
		defer s.work.Add(-1)
		a := s.make(ctx, n, m, n.stream)
		end()
		s.over(n.who)
		_ = n.stream.send(n.life, a.frame) // an error: the client is gone
	})
}
