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

// Index finds any of a set of texts. The time of a search depends on the number of bytes searched
// and on whole texts found: a rolling hash reads each byte in the same way, whatever it is. A search
// that compares prefixes takes longer near a secret, and tells it letter by letter.
type Index struct {
	lanes   []lane
	longest int
	edged   map[string]bool
}

// A lane finds texts of nearly one length by the hash of their first window bytes. What the time of a
// search tells is therefore no less than most of a text, guessed at once.
type lane struct {
	window int
	out    [256]uint64 // what a byte leaves in the hash when it falls out of the window
	seen   [1 << 16 / 64]uint64
	texts  map[uint64][][]byte
}

// words is a random word for each byte, other ones in each process.
var words = sync.OnceValue(func() (w [256]uint64) {
	var b [8 * 256]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return w
})

// NewIndex returns an index of texts. Empty ones are left out.
func NewIndex(texts []string) *Index {
	x := &Index{}
	sorted := slices.Clone(texts)
	slices.SortFunc(sorted, func(a, b string) int { return len(a) - len(b) })
	for _, s := range sorted {
		if s == "" {
			continue
		}
		if n := len(x.lanes); n == 0 || 2*len(s) > 3*x.lanes[n-1].window {
			x.lanes = append(x.lanes, newLane(len(s)))
		}
		x.lanes[len(x.lanes)-1].add([]byte(s))
		x.longest = max(x.longest, len(s))
	}
	return x
}

func newLane(window int) lane {
	l := lane{window: window, texts: map[uint64][][]byte{}}
	for i, w := range words() {
		l.out[i] = bits.RotateLeft64(w, window)
	}
	return l
}

func (l *lane) add(text []byte) {
	var h uint64
	for _, c := range text[:l.window] {
		h = bits.RotateLeft64(h, 1) ^ words()[c]
	}
	l.seen[h>>48>>6] |= 1 << (h >> 48 & 63)
	if !slices.ContainsFunc(l.texts[h], func(t []byte) bool { return bytes.Equal(t, text) }) {
		l.texts[h] = append(l.texts[h], text)
	}
}

// Edge marks one of the texts as a part of base64. The characters beside it hold bits of it too, and are
// covered with it. Call it before the index is used.
func (x *Index) Edge(text string) {
	if x.edged == nil {
		x.edged = map[string]bool{}
	}
	x.edged[text] = true
	x.longest = max(x.longest, len(text)+2)
}

// reach returns the place of a text that was found, with the characters beside it that hold bits of it.
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

// All returns every place in b where one of the texts stands. Places may overlap.
func (x *Index) All(b []byte) (out []Span) {
	for i := range x.lanes {
		x.lanes[i].candidates(b, func(start int, texts [][]byte) {
			for _, t := range texts {
				if bytes.HasPrefix(b[start:], t) {
					out = append(out, x.reach(b, Span{start, start + len(t)}))
				}
			}
		})
	}
	return out
}

// candidates calls yield for each place in b at which the first window bytes of a text stand.
func (l *lane) candidates(b []byte, yield func(start int, texts [][]byte)) {
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

// Hide covers every text in b with as many stars as it has bytes, and reports whether there was one.
func (x *Index) Hide(b []byte) bool {
	spans := x.All(b)
	cover(b, spans)
	return len(spans) > 0
}

// cover writes stars into those of the spans that end in b.
func cover(b []byte, spans []Span) {
	for _, s := range spans {
		for i := s.Start; i < s.End && s.End <= len(b); i++ {
			b[i] = '*'
		}
	}
}
