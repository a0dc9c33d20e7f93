package scrub

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// MinSecret is the fewest bytes of a secret that is looked for inside other text. A shorter one would blot out
// ordinary words.
const MinSecret = 6

// minSqueezed is the fewest letters and digits of a pattern that is looked for without regard to case, spaces and
// signs. Fewer would meet ordinary text.
const minSqueezed = 12

// Matcher finds a set of secrets in all their spellings. It never changes.
type Matcher struct {
	exact    *index // every spelling, byte for byte
	few      *index // those with too few letters and digits for squeezed
	squeezed *index // letters and digits alone, in lower case
}

// New returns a matcher of the secrets of at least MinSecret bytes.
func New(secrets []string) *Matcher {
	var exact, few, squeezed []pattern
	have := map[pattern]bool{}
	add := func(to []pattern, p pattern) []pattern {
		if have[p] {
			return to
		}
		have[p] = true
		return append(to, p)
	}
	seen := map[string]bool{}
	for _, s := range secrets {
		if len(s) < MinSecret || seen[s] {
			continue
		}
		seen[s] = true
		for _, p := range spellings(s) {
			exact = append(exact, p)
			if q := string(squeeze(nil, []byte(p.text))); len(q) >= minSqueezed {
				squeezed = add(squeezed, pattern{q, p.edged})
			} else if len(p.text) >= MinSecret {
				few = append(few, p)
			}
		}
	}
	return &Matcher{newIndex(exact), newIndex(few), newIndex(squeezed)}
}

// spellings returns a secret plain and in the encodings that no view undoes: hexadecimal, character codes, UTF-16, and
// base64, once and twice. Base64 covers both alphabets and each alignment in the three-byte groups.
func spellings(s string) []pattern {
	codes := ""
	for _, c := range []byte(s) {
		codes += strconv.Itoa(int(c))
	}
	h := hex.EncodeToString([]byte(s))
	out := []pattern{{s, false}, {h, false}, {strings.ToUpper(h), false}, {codes, false}}
	if strings.Contains(s, " ") {
		out = append(out, pattern{strings.ReplaceAll(s, " ", "+"), false})
	}
	for _, w := range wide(s) {
		out = append(out, pattern{w, false})
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for o := range 3 {
			out = append(out, pattern{core(enc, s, o), true},
				pattern{core(enc, base64.StdEncoding.EncodeToString([]byte(s)), o), true})
		}
	}
	return out
}

// core returns the characters of the base64 of a text that holds s after o bytes of a group which
// depend on s alone.
func core(enc *base64.Encoding, s string, o int) string {
	e := enc.EncodeToString([]byte("\x00\x00"[:o] + s))
	return e[[]int{0, 2, 3}[o] : (o+len(s))*8/6]
}

// wide returns a text with characters beyond ASCII in UTF-16, in either order of bytes, without the zero bytes at its
// ends. That of ASCII is plain once the zero bytes are dropped.
func wide(s string) (out []string) {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return nil
	}
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		var b []byte
		for _, u := range utf16.Encode([]rune(s)) {
			b = order.AppendUint16(b, u)
		}
		out = append(out, strings.Trim(string(b), "\x00"))
	}
	return out
}

// Empty reports whether there is nothing to find.
func (m *Matcher) Empty() bool { return len(m.exact.patterns) == 0 }

// Keep is how many bytes a secret can take in a text, in any spelling; 0 without secrets.
func (m *Matcher) Keep() int {
	if m.Empty() {
		return 0
	}
	return max(512, 8*m.exact.longest)
}

// rooms lends the memory that a text is squeezed into.
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// Has reports whether the text contains a secret in any spelling.
func (m *Matcher) Has(t []byte) bool {
	if m.Empty() {
		return false
	}
	room := rooms.Get().(*[]byte)
	defer func() {
		if cap(*room) <= 1<<20 {
			rooms.Put(room)
		}
	}()
	q, more := squeezeAndLook((*room)[:0], t)
	*room = q[:0]
	if m.few.any(t) || m.squeezed.any(q) {
		return true
	}
	return more && (m.decoded(t, false, room) || m.decoded(t, true, room))
}

// decoded reports whether the text without its escapes contains a secret, in any layer.
func (m *Matcher) decoded(t []byte, loose bool, room *[]byte) bool {
	differs := !loose
	for range viewDepth {
		if !escaped(t) {
			break
		}
		if differs = differs || ambiguous(t); !differs {
			return false // read before
		}
		v := unescape(t, loose, nil, nil)
		if string(v) == string(t) {
			break
		}
		t = v
		q := squeeze((*room)[:0], t)
		*room = q[:0]
		if m.few.any(t) || m.squeezed.any(q) {
			return true
		}
	}
	return false
}

// Spans returns the positions of secrets in the text, unordered and overlapping.
func (m *Matcher) Spans(t []byte) (out []Span) {
	if !m.Has(t) {
		return nil
	}
	for _, loose := range []bool{false, true} {
		v, pos := t, identity(len(t))
		for range viewDepth + 1 {
			out = m.spansIn(out, v, pos)
			if !escaped(v) {
				break
			}
			v, pos = view(v, loose, pos)
		}
	}
	return out
}

// spansIn appends the positions of secrets in one layer of a text.
func (m *Matcher) spansIn(out []Span, v []byte, pos []int32) []Span {
	m.exact.each(v, func(p *pattern, start int) bool {
		out = append(out, original(edges(v, Span{start, start + len(p.text)}, p.edged), pos))
		return true
	})
	q, where := squeezeMap(v)
	m.squeezed.each(q, func(p *pattern, start int) bool {
		s := Span{int(where[start]), int(where[start+len(p.text)-1]) + 1}
		out = append(out, original(edges(v, s, p.edged), pos))
		return true
	})
	return out
}

// edges returns a span of base64 with the characters beside it that hold some of its bits, also behind a line end.
func edges(v []byte, s Span, edged bool) Span {
	if !edged {
		return s
	}
	from, to := s.Start-1, s.End
	for from >= 0 && (v[from] == '\n' || v[from] == '\r') {
		from--
	}
	for to < len(v) && (v[to] == '\n' || v[to] == '\r') {
		to++
	}
	if from >= 0 && sixBits(v[from]) {
		s.Start = from
	}
	if to < len(v) && sixBits(v[to]) {
		s.End = to + 1
	}
	return s
}

// sixBits reports whether a character is one of base64, in either alphabet.
func sixBits(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

// Hide replaces each byte of every secret in b with a star, and reports whether there was one.
func (m *Matcher) Hide(b []byte) bool {
	spans := m.Spans(b)
	cover(b, spans)
	return len(spans) > 0
}

// cover writes stars over the spans that end in b.
func cover(b []byte, spans []Span) {
	for _, s := range spans {
		for i := s.Start; i < s.End && s.End <= len(b); i++ {
			b[i] = '*'
		}
	}
}
