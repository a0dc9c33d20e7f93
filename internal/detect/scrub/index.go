package scrub

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
)

// Span is a part of a text, from Start to before End, in bytes.
type Span struct{ Start, End int }

// Index finds any of a set of texts. A rolling hash treats every byte alike, so search time depends only on the input
// size and on complete matches. A prefix comparison would take longer near a secret and reveal it letter by letter.
type Index struct {
	tables  []table
	longest int
	edged   map[string]bool
	plain   []string // found among escapes, too
	decoded *Index   // of plain; nil: none
}

// table finds texts of similar length by the hash of their first window bytes. Search time therefore reveals only
// guesses that are right in most of a text at once.
type table struct {
	window int
	out    [256]uint64 // the share of a byte in the hash when it leaves the window
	seen   [1 << 16 / 64]uint64
	texts  map[uint64][][]byte
}

// words has a random word for each byte, different in each process.
var words = sync.OnceValue(func() (w [256]uint64) {
	var b [8 * 256]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return w
})

// NewIndex returns an index of the non-empty texts.
func NewIndex(texts []string) *Index {
	x := &Index{}
	sorted := slices.Clone(texts)
	slices.SortFunc(sorted, func(a, b string) int { return len(a) - len(b) })
	for _, s := range sorted {
		if s == "" {
			continue
		}
		if n := len(x.tables); n == 0 || 2*len(s) > 3*x.tables[n-1].window {
			x.tables = append(x.tables, newTable(len(s)))
		}
		x.tables[len(x.tables)-1].add([]byte(s))
		x.longest = max(x.longest, len(s))
	}
	return x
}

func newTable(window int) table {
	l := table{window: window, texts: map[uint64][][]byte{}}
	for i, w := range words() {
		l.out[i] = bits.RotateLeft64(w, window)
	}
	return l
}

func (l *table) add(text []byte) {
	var h uint64
	for _, c := range text[:l.window] {
		h = bits.RotateLeft64(h, 1) ^ words()[c]
	}
	l.seen[h>>48>>6] |= 1 << (h >> 48 & 63)
	if !slices.ContainsFunc(l.texts[h], func(t []byte) bool { return bytes.Equal(t, text) }) {
		l.texts[h] = append(l.texts[h], text)
	}
}

// Edge marks one of the texts as part of base64. The characters beside it contain some of its bits and are covered
// with it. Call it before the index is used.
func (x *Index) Edge(text string) {
	if x.edged == nil {
		x.edged = map[string]bool{}
	}
	x.edged[text] = true
	x.longest = max(x.longest, len(text)+2)
}

// reach returns the range of a match, with the adjacent characters that contain some of its bits.
func (x *Index) reach(b []byte, s Span) Span {
	if !x.edged[string(b[s.Start:s.End])] {
		return s
	}
	if s.Start > 0 && sixBits(b[s.Start-1]) {
		s.Start--
	}
	if s.End < len(b) && sixBits(b[s.End]) {
		s.End++
	}
	return s
}

// sixBits reports whether a character is one of base64, in either alphabet.
func sixBits(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

// All returns every match in b. Ranges can overlap.
func (x *Index) All(b []byte) []Span {
	out := x.inEscapes(b)
	for i := range x.tables {
		x.tables[i].candidates(b, func(start int, texts [][]byte) {
			for _, t := range texts {
				if bytes.HasPrefix(b[start:], t) {
					out = append(out, x.reach(b, Span{start, start + len(t)}))
				}
			}
		})
	}
	return out
}

// candidates calls yield for each position in b where the first window bytes of a text occur.
func (l *table) candidates(b []byte, yield func(start int, texts [][]byte)) {
	if len(b) < l.window {
		return
	}
	in, w, h := words(), l.window, uint64(0)
	for _, c := range b[:w] {
		h = bits.RotateLeft64(h, 1) ^ in[c]
	}
	for i := w; ; i++ {
		if l.seen[h>>48>>6]&(1<<(h>>48&63)) != 0 {
			if texts := l.texts[h]; texts != nil {
				yield(i-w, texts)
			}
		}
		if i == len(b) {
			return
		}
		h = bits.RotateLeft64(h, 1) ^ l.out[b[i-w]] ^ in[b[i]]
	}
}

// Hide replaces each byte of every match in b with a star, and reports whether there was a match.
func (x *Index) Hide(b []byte) bool {
	spans := x.All(b)
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
