// Package scrub hides known texts in streams. The number of received bytes, and boundaries that every reader sees,
// decide when it releases bytes. Similarity to a secret has no influence: an attacker who chooses bytes would learn
// the secret from the difference.
package scrub

import "slices"

// Tail is the end of a stream. It is held back because a hidden text can begin in it.
type Tail struct {
	Keep int // bytes held back before the end: at least the longest hidden text minus one
	buf  []byte
}

// maxHeld limits the bytes held because whole hidden texts overlap.
const maxHeld = 1 << 20

// Add appends the next bytes of the stream.
func (t *Tail) Add(b []byte) { t.buf = append(t.buf, b...) }

// Bytes returns the held bytes. They are valid until the next method call.
func (t *Tail) Bytes() []byte { return t.buf }

// Due returns how many held bytes can be released before the end of the stream. It depends on their number only.
func (t *Tail) Due() int { return max(0, len(t.buf)-t.Keep) }

// Take removes the first n bytes and appends them to dst. If n is inside a span, it takes only the bytes before the
// span, so that a text is hidden whole. The spans are those of Bytes.
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
