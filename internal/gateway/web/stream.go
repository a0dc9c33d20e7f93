package web

import (
	"bytes"
	"net/http"
	"time"
)

// pen writes a stream of server-sent events, which it opens when there is something to say.
type pen struct {
	w      http.ResponseWriter
	c      *http.ResponseController
	tick   *time.Timer
	every  time.Duration
	write  time.Duration
	open   bool
	broken bool // the client takes no more
}

func (s *Server) pen(w http.ResponseWriter) *pen {
	return &pen{w: w, c: http.NewResponseController(w), tick: time.NewTimer(s.o.Limits.KeepAlive), every: s.o.Limits.KeepAlive, write: s.o.Limits.Write}
}

func (p *pen) stop() { p.tick.Stop() }

// event writes one frame of JSON-RPC, which has no line break inside.
func (p *pen) event(frame []byte) {
	p.put([]byte("event: message\ndata: "), bytes.TrimRight(frame, "\n"), []byte("\n\n"))
}

// comment keeps a silent stream from being taken for a dead one.
func (p *pen) comment() { p.put([]byte(":\n\n")) }

func (p *pen) begin() {
	if p.open {
		return
	}
	p.open = true
	h := p.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	p.w.WriteHeader(http.StatusOK)
}

func (p *pen) put(parts ...[]byte) {
	p.begin()
	_ = p.c.SetWriteDeadline(time.Now().Add(p.write)) // a connection without deadlines is a test's
	for _, b := range parts {
		if _, err := p.w.Write(b); err != nil {
			p.broken = true
		}
	}
	if p.c.Flush() != nil {
		p.broken = true
	}
	_ = p.c.SetWriteDeadline(time.Time{})
	p.tick.Reset(p.every)
}

// stream carries what a legacy session says of its own accord, until the client, the session or the
// server ends. Where a client opens a second one, the first ends: of two readers each would get half.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, n *session) {
	defer n.done()
	if !takes(r.Header, "text/event-stream") {
		http.Error(w, "the stream is text/event-stream: say in Accept that you take it", http.StatusNotAcceptable)
		return
	}
	taken := n.take()
	defer n.leave(taken)
	p := s.pen(w)
	defer p.stop()
	p.put() // the headers, so that the client knows
	for !p.broken {
		select {
		case b := <-n.stream.out:
			p.event(b)
		case <-p.tick.C:
			p.comment()
		case <-taken:
			return
		case <-n.life.Done():
			return
		case <-s.closing:
			return
		case <-r.Context().Done():
			return
		}
	}
}
