package web

import (
	"bytes"
	"net/http"
	"time"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// sseWriter writes a stream of server-sent events and opens it before the first event. Each event of a legacy session
// has an id and enters the replay buffer.
type sseWriter struct {
	w      http.ResponseWriter
	c      *http.ResponseController
	tick   *time.Timer
	every  time.Duration
	write  time.Duration
	open   bool
	broken bool // the client takes no more

	replay *replayBuffer // nil: events are not stored
	track  *stream       // nil: the stream is not open
	taken  chan struct{} // closed when another connection writes the stream
	prime  bool          // the client gets an id before the first event
}

// primed is the first revision whose clients know an event without data (MCP 2025-11-25 basic/transports).
const primed = "2025-11-25"

func (s *Server) events(w http.ResponseWriter, r *http.Request, n *session) *sseWriter {
	prime, first := n.replay != nil && r.Header.Get(headerVersion) >= primed, s.o.Limits.KeepAlive
	if prime {
		first = min(first, s.o.Limits.Prime)
	}
	return &sseWriter{w: w, c: http.NewResponseController(w), tick: time.NewTimer(first), every: s.o.Limits.KeepAlive,
		write: s.o.Limits.Write, replay: n.replay, prime: prime}
}

func (p *sseWriter) stop() {
	p.tick.Stop()
	if p.taken != nil {
		p.replay.leave(p.track, p.taken)
	}
}

// event writes one frame of JSON-RPC, which has no line break inside.
func (p *sseWriter) event(frame []byte) {
	p.begin()
	id := ""
	if p.replay != nil {
		id = p.replay.id(p.track, p.replay.add(p.track, frame))
	}
	p.frame(id, frame)
}

// last writes the answer, which ends the stream.
func (p *sseWriter) last(frame []byte, request strictjson.Value) {
	id := ""
	if p.replay != nil {
		id = p.replay.id(p.track, p.replay.end(p.track, frame, standIn(request)))
	}
	p.frame(id, frame)
}

// standIn answers in the place of an answer that is too long to be kept.
func standIn(request strictjson.Value) []byte {
	return jsonrpc.Answer(request, nil, jsonrpc.Errorf(jsonrpc.CodeInternal,
		"the connection was lost and the answer is too long to be kept; the call itself was carried out to its end, "+
			"and waldo log says what it did"))
}

func (p *sseWriter) frame(id string, frame []byte) {
	if id != "" {
		id = "id: " + id + "\n"
	}
	p.put([]byte(id+"event: message\ndata: "), bytes.TrimRight(frame, "\n"), []byte("\n\n"))
}

// comment keeps a silent stream from being taken for a dead one.
func (p *sseWriter) comment() { p.put([]byte(":\n\n")) }

// begin opens the stream. It sends the stream's id if the client can resume.
func (p *sseWriter) begin() {
	if p.open {
		return
	}
	p.open = true
	h := p.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	p.w.WriteHeader(http.StatusOK)
	if p.replay == nil {
		return
	}
	if p.track == nil {
		p.track = p.replay.begin()
		p.taken = p.replay.take(p.track)
	}
	if p.prime {
		// a later write reports a lost client
		_, _ = p.w.Write([]byte("id: " + p.replay.place(p.track) + "\ndata: \n\n"))
	}
}

func (p *sseWriter) put(parts ...[]byte) {
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

// keepOn enters what is still said on a stream whose client has gone, until the answer is made. A client
// that does not come back in time is asked nothing more.
func (s *Server) keepOn(n *session, k *stream, l *responseQueue, ready chan made, request strictjson.Value) {
	add := func(frame []byte) { n.replay.add(k, frame) }
	patience := time.NewTimer(s.o.Limits.Resume)
	defer patience.Stop()
	gone := false
	for {
		select {
		case b := <-l.out:
			add(b)
			continue
		case <-patience.C:
			if n.replay.written(k) {
				patience.Reset(s.o.Limits.Resume)
			} else if !gone {
				gone = true
				close(l.gone)
			}
			continue
		case a := <-ready:
			l.rest(add)
			n.replay.end(k, a.frame, standIn(request))
		case <-n.life.Done():
		}
		if !gone {
			close(l.gone)
		}
		return
	}
}

// stream carries the messages of a legacy session outside a request, or resumes a lost stream. It ends with itself,
// the client, the session or the server. A second stream of the client ends the first: two readers would each get
// half.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, n *session) {
	defer n.done()
	if !takes(r.Header, "text/event-stream") {
		http.Error(w, "the stream is text/event-stream: say in Accept that you take it", http.StatusNotAcceptable)
		return
	}
	p := s.events(w, r, n)
	at := 0
	if last := r.Header.Get(headerLast); last == "" {
		p.track, at = n.replay.own()
	} else if p.track, at = n.replay.find(last); p.track == nil {
		http.Error(w, "no event of this session has that id, or the event has expired and cannot be resumed",
			http.StatusBadRequest)
		return
	} else {
		p.prime = false // it knows where it is
	}
	own, closing := (<-chan []byte)(nil), (<-chan struct{})(nil)
	if p.track.number == 0 {
		own, closing = n.stream.out, s.closing // an answer may still come while the server closes
	}
	p.taken = n.replay.take(p.track)
	defer p.stop()
	p.put() // the headers, so that the client knows
	for !p.broken {
		events, done, more := n.replay.after(p.track, at)
		for _, e := range events {
			p.frame(n.replay.id(p.track, e.seq), e.frame)
			at = e.seq
		}
		if done {
			return
		}
		select {
		case b := <-own:
			if seq := n.replay.add(p.track, b); !n.replay.has(p.track, seq) { // there was no room for it
				p.frame(n.replay.id(p.track, seq), b)
			}
		case <-more:
		case <-p.tick.C:
			p.comment()
		case <-p.taken:
			return
		case <-closing:
			return
		case <-n.life.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}
