package redact

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"waldo/internal/detect/scrub"
	"waldo/internal/model/contract"
)

// bulk is how many bytes a Stream of known secrets gathers before it looks at them.
const bulk = 32 << 10

// soon limits how long whole lines wait if no match is pending.
const soon = 100 * time.Millisecond

// Stream hides secrets and personal data in text written through it, across write boundaries. It holds the last bytes
// back, since they could begin a secret; Close writes them. If no secret is known, whole lines are written at once. A
// secret added while it is open is hidden from then on. Tokens are not used, because a stream has no decision yet.
type Stream struct {
	mu    sync.Mutex
	later *time.Timer // writes what is whole; nil: nothing waits for it
	w     io.Writer
	known *Registry // may be nil
	p     *pass
	only  bool // known secrets and nothing else
	most  int  // bytes gathered before a scan
	tail  scrub.Tail
	over  int // bytes at the end of the tail that are beyond the limit of the output, and are not written
	err   error

	masked int  // values
	binary bool // a value was hidden in binary data
}

// Stream returns a Stream that writes to w. It does not clean: a terminal's escapes pass.
func (r *Redactor) Stream(w io.Writer) *Stream { return r.StreamOf(contract.Contract{}, w) }

// StreamOf is Stream with the classes of a contract.
func (r *Redactor) StreamOf(c contract.Contract, w io.Writer) *Stream {
	p := r.pass(c)
	p.clean = false
	s := &Stream{w: w, known: r.Known, p: p}
	s.measure()
	return s
}

// TerminalStream returns a Stream for the person at the terminal. It hides known secrets only, unless Terminal adds
// more, and holds no line back for matches by form.
func (r *Redactor) TerminalStream(w io.Writer) *Stream {
	s := r.Stream(w)
	if !r.Terminal {
		s.p.classes, s.p.bare = nil, true
	}
	s.p.hid = func(string) { s.masked++ }
	return s
}

// Masked returns how many values were hidden so far, and whether one of them was in binary data. Such data was
// altered and can be unusable.
func (s *Stream) Masked() (n int, binary bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.masked, s.binary
}

// Stream returns a Stream that writes to w and hides known secrets alone, in bulk.
func (g *Registry) Stream(w io.Writer) *Stream {
	s := &Stream{w: w, known: g, p: &pass{known: newMatcherOf(g)}, only: true}
	s.measure()
	return s
}

// measure takes the sizes from the secrets that are known.
func (s *Stream) measure() {
	s.tail.Keep = max(512, s.p.known.Keep())
	s.most = 2 * s.tail.Keep
	if s.only {
		s.most = max(bulk, s.most)
	}
}

// Write takes all of b. An error is that of an earlier write to the writer behind.
func (s *Stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.renew()
	s.tail.Add(b)
	if len(s.tail.Bytes()) >= s.most {
		s.flush(s.tail.Due())
	} else if s.later == nil && !s.only {
		s.later = time.AfterFunc(soon, s.settle)
	}
	return len(b), s.err
}

// settle writes what is whole. A known secret may begin anywhere, in any spelling.
func (s *Stream) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = nil
	s.renew()
	if s.p.known.Empty() && len(s.p.known.short) == 0 {
		s.flush(min(s.whole(), len(s.tail.Bytes())-s.over))
	}
}

// whole returns how much of the buffer can be scanned by itself: lines, and after them the prompt of a program that
// waits for an answer. A key of several lines is whole with its end.
func (s *Stream) whole() int {
	held := s.tail.Bytes()
	n := bytes.LastIndexByte(held, '\n') + 1
	if last := held[n:]; len(last) >= 2 && last[len(last)-1] == ' ' &&
		strings.IndexByte(">:$#?%])", last[len(last)-2]) >= 0 {
		n = len(held)
	}
	if key := bytes.LastIndex(held[:n], []byte("-----BEGIN")); key >= 0 &&
		!bytes.Contains(held[key:n], []byte("-----END")) {
		n = key
	}
	return n
}

// Beyond takes what follows the limit of the output, after the last Write. It is not written: a secret that begins
// before the limit is found by it.
func (s *Stream) Beyond(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b = b[:max(0, min(len(b), s.tail.Keep-s.over))]
	s.tail.Add(b)
	s.over += len(b)
}

// Close writes the buffered rest. It does not close the underlying writer.
func (s *Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew()
	s.flush(len(s.tail.Bytes()) - s.over)
	s.tail, s.over = scrub.Tail{Keep: s.tail.Keep}, 0
	return s.err
}

// renew takes up the secrets that have become known since the last write.
func (s *Stream) renew() {
	if m := newMatcherOf(s.known); m != s.p.known {
		p := *s.p
		p.known = m
		s.p = &p
		s.measure()
	}
}

// edits returns what is to be hidden in all that is held.
func (s *Stream) edits() []edit {
	if !s.only {
		return s.p.edits(s.tail.Bytes())
	}
	var out []edit
	for _, sp := range s.p.known.Spans(s.tail.Bytes()) {
		out = append(out, edit{sp, secretMask})
	}
	return out
}

// flush writes the buffer up to n, or up to an earlier position outside every value to hide.
func (s *Stream) flush(n int) {
	if s.err != nil || n == 0 {
		return
	}
	edits := s.edits()
	spans := make([]scrub.Span, 0, len(edits))
	for _, e := range edits {
		spans = append(spans, scrub.Span{Start: e.Start, End: e.End})
	}
	out := s.tail.Take(nil, n, spans)
	switch {
	case len(edits) == 0 && !s.p.known.short[string(out)]: // nothing to hide in the whole, so nothing in its part
	case s.only:
		out = []byte(s.p.secrets(string(out)))
	default:
		before := s.masked
		text := string(out)
		out = []byte(s.p.text(text))
		s.binary = s.binary || s.masked > before && (strings.IndexByte(text, 0) >= 0 || !utf8.ValidString(text))
	}
	if _, err := s.w.Write(out); err != nil {
		s.err = fmt.Errorf("redacted stream: %w", err)
	}
}
