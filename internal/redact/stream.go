package redact

import (
	"fmt"
	"io"

	"waldo/internal/contract"
)

// maxHeld is how many bytes a Stream keeps back at most while something to hide may go on.
const maxHeld = 1 << 20

// Stream hides secrets and personal data in what is written through it, wherever the writes are
// cut. It keeps the last bytes back, since they may begin something that is to be hidden; Close
// writes them. Tokens are not used: a stream belongs to no decision yet.
type Stream struct {
	w    io.Writer
	p    *pass
	hold int
	buf  []byte
	err  error
}

// Stream returns a Stream that writes to w. It does not clean: a terminal's escapes pass.
func (r *Redactor) Stream(w io.Writer) *Stream {
	p := r.pass(contract.Contract{})
	p.clean = false
	return &Stream{w: w, p: p, hold: max(512, 8*max(p.known.plain.longest, p.known.squeezed.longest))}
}

// Write takes all of b. An error is that of an earlier write to the writer behind.
func (s *Stream) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.buf = append(s.buf, b...)
	if len(s.buf) < 2*s.hold {
		return len(b), nil
	}
	s.flush(s.safe(len(s.buf) - s.hold))
	return len(b), s.err
}

// Close writes what was kept back. It does not close the writer behind.
func (s *Stream) Close() error {
	s.flush(len(s.buf))
	return s.err
}

// safe returns the last place at or before cut that stands in nothing to be hidden.
func (s *Stream) safe(cut int) int {
	if len(s.buf) > maxHeld {
		return cut
	}
	for moved := true; moved; {
		moved = false
		for _, e := range s.p.edits(s.buf) {
			if e.start < cut && cut < e.end {
				cut, moved = e.start, true
			}
		}
	}
	return cut
}

func (s *Stream) flush(n int) {
	if s.err != nil || n == 0 {
		return
	}
	if _, err := io.WriteString(s.w, s.p.text(string(s.buf[:n]))); err != nil {
		s.err = fmt.Errorf("redacted stream: %w", err)
	}
	s.buf = append(s.buf[:0], s.buf[n:]...)
}
