package scrub

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
)

// Span is a part of a text, from Start to before End, in bytes.
type Span struct{ Start, End int }

// pattern is a text to find. An edged one is part of base64: the characters beside it hold some of its bits.
type pattern struct {
	text  string
	edged bool
}

// index finds any of a set of patterns. It hashes long windows of a text, at one place in each stride, and compares
// only where a whole window is that of a pattern. So the work depends on the size of the input and on right guesses of
// half a pattern at once. A comparison of prefixes would take longer near a secret and reveal it letter by letter.
type index struct {
	patterns []pattern
	longest  int
	classes  []class
}

// class has the patterns of similar length. Each occurrence of one holds a window at one of its first stride places.
type class struct {
	keys           *keys
	window, stride int
	seen           []uint64 // a bit for each hash of a window
	shift          int      // of a hash, to its bit
	first          map[uint64]int32
	windows        []window
}

// window is one window of a pattern: its offset there, and the next one with the same hash, from 1.
type window struct{ pattern, offset, next int32 }

// A window is three quarters of the shortest pattern of its class, or enough.
const (
	enough    = 25
	maxWindow = 48
	maxStride = 16
)

func newIndex(patterns []pattern) *index {
	sorted := slices.Clone(patterns)
	slices.SortStableFunc(sorted, func(a, b pattern) int { return len(a.text) - len(b.text) })
	x := &index{patterns: sorted}
	for from := 0; from < len(sorted); {
		least := len(sorted[from].text)
		c := class{keys: theKeys(), stride: min(maxStride, max(least/4+1, least-enough+1)), first: map[uint64]int32{}}
		c.window = min(maxWindow, least-c.stride+1)
		to := from
		for to < len(sorted) && (2*len(sorted[to].text) <= 3*least || c.window == maxWindow) {
			to++
		}
		size := max(10, bits.Len(uint(16*c.stride*(to-from))))
		c.seen, c.shift = make([]uint64, 1<<(size-6)), 64-size
		for i := from; i < to; i++ {
			for o := range c.stride {
				c.add(sorted[i].text[o:o+c.window], i, o)
			}
			x.longest = max(x.longest, len(sorted[i].text))
		}
		x.classes = append(x.classes, c)
		from = to
	}
	return x
}

func (c *class) add(text string, pattern, offset int) {
	h := c.keys.hash([]byte(text))
	bit := h >> c.shift
	c.seen[bit>>6] |= 1 << (bit & 63)
	c.windows = append(c.windows, window{int32(pattern), int32(offset), c.first[h]})
	c.first[h] = int32(len(c.windows))
}

// keys are random, different in each process: nobody can make many windows of one hash.
type keys [maxWindow / 8]uint64

var theKeys = sync.OnceValue(func() *keys {
	var k keys
	var b [8 * len(k)]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	for i := range k {
		k[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return &k
})

// hash reads every byte of a window of at most maxWindow bytes. Its time depends on the length alone.
func (k *keys) hash(b []byte) (h uint64) {
	switch n := len(b); {
	case n > 16:
		h = mix(b[n-8:], b[n-16:], k[4], k[3])
		for i := 0; len(b) > 16; b, i = b[16:], (i+2)&3 {
			h ^= mix(b, b[8:16], k[i], k[i+1])
		}
		return h
	case n >= 8:
		return mix(b, b[n-8:], k[0], k[1])
	}
	var last [8]byte
	copy(last[:], b)
	return mix(last[:], last[:], k[0], k[1]+uint64(len(b)))
}

func mix(a, b []byte, x, y uint64) uint64 {
	hi, lo := bits.Mul64(binary.LittleEndian.Uint64(a)^x, binary.LittleEndian.Uint64(b)^y)
	return hi ^ lo
}

// each calls yield for every occurrence of a pattern, in no order, until it returns false.
func (x *index) each(t []byte, yield func(p *pattern, start int) bool) {
	for i := range x.classes {
		if !x.classes[i].each(t, x.patterns, yield) {
			return
		}
	}
}

func (c *class) each(t []byte, patterns []pattern, yield func(p *pattern, start int) bool) bool {
	k, seen, shift, n := c.keys, c.seen, c.shift, c.window
	for i := 0; i+n <= len(t); i += c.stride {
		h := k.hash(t[i : i+n])
		if bit := h >> shift; seen[bit>>6]&(1<<(bit&63)) == 0 {
			continue
		}
		for n := c.first[h]; n > 0; n = c.windows[n-1].next {
			w := c.windows[n-1]
			p, start := &patterns[w.pattern], i-int(w.offset)
			if end := start + len(p.text); start < 0 || end > len(t) || string(t[start:end]) != p.text {
				continue
			}
			if !yield(p, start) {
				return false
			}
		}
	}
	return true
}

func (x *index) any(t []byte) bool {
	found := false
	x.each(t, func(*pattern, int) bool { found = true; return false })
	return found
}
