package redact

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
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

// index finds many patterns of at least minSecret bytes at once. It looks at every third place of
// the text only: one of the first three four-byte windows of every occurrence stands there.
type index struct {
	patterns [][]byte
	longest  int
	seen     [1 << 17 / 64]uint64 // one bit for each hash of a window
	heads    [1 << 12]int32       // from 1 into grams
	grams    []gram
}

const stride = minSecret - 3

func hash(k uint32) uint32 { return (k * 0x9E3779B1) >> 15 }

func newIndex(patterns [][]byte) *index {
	x := &index{}
	have := map[string]bool{}
	for _, p := range patterns {
		if len(p) < minSecret || have[string(p)] {
			continue
		}
		have[string(p)] = true
		x.patterns = append(x.patterns, p)
		x.longest = max(x.longest, len(p))
		for o := range stride {
			x.add(binary.LittleEndian.Uint32(p[o:]), len(x.patterns)-1, o)
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

// find calls hit for every occurrence until it says to stop.
func (x *index) find(t []byte, hit func(span) (more bool)) {
	if len(x.patterns) == 0 {
		return
	}
	for i := 0; i+4 <= len(t); i += stride {
		k := binary.LittleEndian.Uint32(t[i:])
		h := hash(k)
		if x.seen[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		for g := x.heads[h&uint32(len(x.heads)-1)]; g != 0; g = x.grams[g-1].next {
			e := &x.grams[g-1]
			start := i - int(e.offset)
			if e.key != k || start < 0 {
				continue
			}
			p := x.patterns[e.pattern]
			if start+len(p) <= len(t) && string(t[start:start+len(p)]) == string(p) && !hit(span{start, start + len(p)}) {
				return
			}
		}
	}
}

func (x *index) any(t []byte) bool {
	found := false
	x.find(t, func(span) bool { found = true; return false })
	return found
}

// matcher knows a set of secrets in all their forms. It never changes.
type matcher struct {
	plain    *index // in the text and in what its escapes stand for
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
			if q := squeeze([]byte(f)); len(q) >= minSqueezed {
				squeezed = append(squeezed, q)
			}
		}
	}
	m.plain, m.squeezed = newIndex(plain), newIndex(squeezed)
	return m
}

// forms returns a secret as it is and in the encodings that no view undoes: hexadecimal, and
// base64 of both alphabets wherever in the three-byte groups the secret may begin, once and twice.
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

// has reports whether a secret stands in the text in any form.
func (m *matcher) has(t []byte) bool {
	if len(m.plain.patterns) == 0 {
		return false
	}
	if m.plain.any(t) {
		return true
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
	return m.squeezed.any(squeeze(last))
}

// spans returns where secrets stand in the text, in no order and overlapping.
func (m *matcher) spans(t []byte) []span {
	if !m.has(t) {
		return nil
	}
	var out []span
	keep := func(pos []int32) func(span) bool {
		return func(s span) bool {
			out = append(out, original(s, pos))
			return true
		}
	}
	v, pos := t, identity(len(t))
	m.plain.find(v, keep(pos))
	for range viewDepth {
		if !escaped(v) {
			break
		}
		v, pos = view(v, pos)
		m.plain.find(v, keep(pos))
	}
	q, qpos := squeezeMap(v, pos)
	m.squeezed.find(q, func(s span) bool {
		out = append(out, span{int(qpos[s.start].start), int(qpos[s.end-1].end)})
		return true
	})
	return out
}
