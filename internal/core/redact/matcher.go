package redact

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
)

// minSecret is the fewest bytes of a secret that is looked for inside other text. A shorter one
// would blot out ordinary words; it is hidden only where it is the whole of a JSON string.
const minSecret = 6

// minSqueezed is the fewest letters and digits of a pattern that is looked for without regard to
// case, spaces and signs. Fewer would meet ordinary text.
const minSqueezed = 12

// span is a part of a text, from start to before end, in bytes.
type span struct{ start, end int }

// gram is one entry of the index: the four bytes at an offset of a pattern.
type gram struct {
	key     uint32
	pattern int32
	offset  int32
	next    int32 // the next entry of the same bucket, from 1; 0: none
}

// index finds many patterns of at least minSecret bytes at once. It inspects only one position in stride of the text:
// there it finds one of the first stride four-byte windows of every occurrence.
type index struct {
	patterns [][]byte
	longest  int
	stride   int
	seen     [1 << (32 - shift) / 64]uint64 // one bit for each hash of a window
	heads    [1 << 13]int32                 // from 1 into grams
	grams    []gram
}

// The stride is as long as the shortest pattern lets it be, and as the index has room for.
const (
	minStride = minSecret - 3
	maxStride = 16
	maxGrams  = 24 << 10
	shift     = 14
)

func hash(k uint32) uint32 { return (k * 0x9E3779B1) >> shift }

func newIndex(patterns [][]byte) *index {
	x := &index{}
	have := map[string]bool{}
	shortest := maxStride + 3
	for _, p := range patterns {
		if len(p) < minSecret || have[string(p)] {
			continue
		}
		have[string(p)] = true
		x.patterns = append(x.patterns, p)
		x.longest = max(x.longest, len(p))
		shortest = min(shortest, len(p))
	}
	x.stride = max(minStride, min(shortest-3, maxGrams/max(1, len(x.patterns))))
	for i, p := range x.patterns {
		for o := range x.stride {
			x.add(binary.LittleEndian.Uint32(p[o:]), i, o)
		}
	}
	return x
}

func (x *index) add(k uint32, pattern, offset int) {
	h := hash(k)
	x.seen[h>>6] |= 1 << (h & 63)
	b := h & uint32(len(x.heads)-1)
	x.grams = append(x.grams, gram{key: k, pattern: int32(pattern), offset: int32(offset), next: x.heads[b]})
	x.heads[b] = int32(len(x.grams))
}

// cursor is how far a search has come: a place of the text, and the entries left to try there.
type cursor struct {
	i int
	g int32
}

// next returns the next occurrence from c on, and whether there is one.
func (x *index) next(t []byte, c *cursor) (span, bool) {
	if len(x.patterns) == 0 {
		return span{}, false
	}
	for ; c.i+4 <= len(t); c.i += x.stride {
		k := binary.LittleEndian.Uint32(t[c.i:])
		if c.g == 0 {
			h := hash(k)
			if x.seen[h>>6]&(1<<(h&63)) == 0 {
				continue
			}
			c.g = x.heads[h&uint32(len(x.heads)-1)]
		}
		for c.g != 0 {
			e := &x.grams[c.g-1]
			c.g = e.next
			start := c.i - int(e.offset)
			if e.key != k || start < 0 {
				continue
			}
			p := x.patterns[e.pattern]
			if end := start + len(p); end <= len(t) && string(t[start:end]) == string(p) {
				if c.g == 0 {
					c.i += x.stride
				}
				return span{start, end}, true
			}
		}
	}
	return span{}, false
}

func (x *index) any(t []byte) bool {
	var c cursor
	_, ok := x.next(t, &c)
	return ok
}

func (x *index) all(t []byte) []span {
	var out []span
	var c cursor
	for s, ok := x.next(t, &c); ok; s, ok = x.next(t, &c) {
		out = append(out, s)
	}
	return out
}

// matcher knows a set of secrets in all their forms. It never changes.
type matcher struct {
	plain    *index // in the text and in its decoded escapes
	squeezed *index // in the text's letters and digits alone, in lower case
	short    map[string]bool
}

func newMatcher(secrets []string) *matcher {
	m := &matcher{short: map[string]bool{}}
	var plain, squeezed [][]byte
	for _, s := range secrets {
		if len(s) < minSecret {
			m.short[s] = s != ""
			continue
		}
		for _, f := range forms(s) {
			plain = append(plain, []byte(f))
			if q := squeeze(nil, []byte(f)); len(q) >= minSqueezed {
				squeezed = append(squeezed, q)
			}
		}
	}
	m.plain, m.squeezed = newIndex(plain), newIndex(squeezed)
	return m
}

// forms returns a secret plain and in the encodings that no view undoes: hexadecimal, and base64, once and twice.
// Base64 covers both alphabets and each alignment in the three-byte groups.
func forms(s string) []string {
	out := []string{s, hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s)))}
	codes := ""
	for _, c := range []byte(s) {
		codes += strconv.Itoa(int(c))
	}
	out = append(out, codes) // squeezed, a list of character codes
	if strings.Contains(s, " ") {
		out = append(out, strings.ReplaceAll(s, " ", "+"))
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for o := range 3 {
			out = append(out, core(enc, s, o))
			out = append(out, core(enc, base64.StdEncoding.EncodeToString([]byte(s)), o))
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

// shortOnly returns a matcher that knows nothing but the secrets too short to look for.
func (m *matcher) shortOnly() *matcher {
	if len(m.short) == 0 {
		return noSecrets()
	}
	return &matcher{plain: noSecrets().plain, squeezed: noSecrets().squeezed, short: m.short}
}

// rooms lends the memory that a text is squeezed into.
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// has reports whether the text contains a secret in any form.
func (m *matcher) has(t []byte) bool {
	if len(m.plain.patterns) == 0 {
		return false
	}
	if m.plain.any(t) {
		return true
	}
	room := rooms.Get().(*[]byte)
	defer func() {
		if cap(*room) <= 1<<20 {
			rooms.Put(room)
		}
	}()
	q, mayEscape := squeezeAndLook((*room)[:0], t)
	*room = q[:0]
	if !mayEscape {
		return len(q) >= minSqueezed && m.squeezed.any(q)
	}
	v, last := t, t
	for range viewDepth {
		if !escaped(v) {
			break
		}
		if v = unescape(v, nil, nil); m.plain.any(v) {
			return true
		}
		last = v
	}
	if len(last) < minSqueezed || len(m.squeezed.patterns) == 0 {
		return false
	}
	q = squeeze((*room)[:0], last)
	*room = q[:0]
	return m.squeezed.any(q)
}

// spans returns the positions of secrets in the text, unordered and overlapping.
func (m *matcher) spans(t []byte) []span {
	if !m.has(t) {
		return nil
	}
	v, pos := t, identity(len(t))
	out := m.plain.all(v)
	for range viewDepth {
		if !escaped(v) {
			break
		}
		v, pos = view(v, pos)
		for _, s := range m.plain.all(v) {
			out = append(out, original(s, pos))
		}
	}
	q, where := squeezeMap(v, pos)
	for _, s := range m.squeezed.all(q) {
		out = append(out, span{where[s.start].start, where[s.end-1].end})
	}
	return out
}
