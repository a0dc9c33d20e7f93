// Package scrub hides known texts in streams. What it releases, and when, follows from the number of
// bytes that have come and from boundaries that every reader sees. It never follows from how near
// the bytes come to a secret: whoever can choose them would learn the secret from the difference.
package scrub

import "slices"

// Tail is the end of a stream, which is held back because something to be hidden may begin in it.
type Tail struct {
	Keep int // bytes held back while the stream goes on: one less than the longest text to hide, or more
	buf  []byte
}

// maxHeld is how many bytes are held at most because whole texts to hide overlap.
const maxHeld = 1 << 20

// Add takes the next bytes of the stream.
func (t *Tail) Add(b []byte) { t.buf = append(t.buf, b...) }

// Bytes returns what is held. It is valid until the next call of a method.
func (t *Tail) Bytes() []byte { return t.buf }

// Due returns how many of the bytes held may go although the stream goes on. Their number alone says so.
func (t *Tail) Due() int { return max(0, len(t.buf)-t.Keep) }

// Take removes the first n bytes and appends them to dst. Where place n stands inside one of the spans,
// it takes the bytes before the span: a whole text is hidden whole. The spans are those of Bytes.
func (t *Tail) Take(dst []byte, n int, spans []Span) []byte {
	if n < len(t.buf) && len(t.buf) <= maxHeld {
		for slices.ContainsFunc(spans, func(s Span) bool {
			inside := s.Start < n && n < s.End
			if inside {
				n = s.Start
			}
			return inside
		}) {
		}
	}
	dst = append(dst, t.buf[:n]...)
	t.buf = append(t.buf[:0], t.buf[n:]...)
	return dst
}
