package scrub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/bits"
)

// minKeep is the minimum number of bytes that a Reader holds back. Sizes are rounded to powers of two, so that they
// do not reveal a secret's length.
const minKeep = 512

// Boundary returns how many of the held bytes can be released because no hidden text crosses their end. The last
// fresh bytes are new. It does not know the texts.
type Boundary func(held []byte, fresh int) int

// Broken is the boundary of a stream that could hide a text from a search. The stream ends, without its held bytes.
const Broken = math.MinInt

// ErrCut ends a broken stream, and an Open one whose last bytes were dropped.
var ErrCut = errors.New("the stream ends where a hidden text could have been cut")

// Reader reads a stream and replaces texts with stars. It holds the last bytes back until a boundary or the end of
// the stream. A stream that breaks off can end inside a text. The held bytes are then dropped, with or without a
// text.
type Reader struct {
	Open bool // EOF does not tell the end of the stream from a cut

	from     io.Reader
	texts    *Matcher
	boundary Boundary
	tail     Tail
	room     []byte // read buffer
	out      []byte // bytes to release
	gone     int    // released bytes of out
	err      error
}

// NewReader returns a Reader of from. The longest text decides how many bytes it holds back.
func NewReader(from io.Reader, texts *Matcher, boundary Boundary) *Reader {
	keep := 1 << bits.Len(uint(max(minKeep, texts.Keep())-1))
	return &Reader{from: from, texts: texts, boundary: boundary, tail: Tail{Keep: keep}}
}

// Read returns released bytes. It blocks until there are some.
func (r *Reader) Read(p []byte) (int, error) {
	for r.gone == len(r.out) && r.err == nil && len(p) > 0 {
		r.next(len(p))
	}
	n := copy(p, r.out[r.gone:])
	if r.gone += n; n == 0 {
		return 0, r.err
	}
	return n, nil
}

// next reads once.
func (r *Reader) next(most int) {
	if r.room == nil {
		r.room = make([]byte, max(most, 4<<10))
	}
	n, err := r.from.Read(r.room)
	r.tail.Add(r.room[:n])
	end := r.boundary(r.tail.Bytes(), n)
	if end == Broken {
		r.out, r.gone, r.err = r.out[:0], 0, ErrCut
		return
	}
	due := max(r.tail.Due(), end)
	if r.err = err; err == io.EOF && !r.Open {
		due = len(r.tail.Bytes())
	}
	if err == io.EOF && due < len(r.tail.Bytes()) {
		r.err = ErrCut
	}
	if r.out, r.gone = r.out[:0], 0; due <= 0 {
		return
	}
	spans := r.texts.Spans(r.tail.Bytes())
	r.out = r.tail.Take(r.out, due, spans)
	cover(r.out, spans)
}

// Lines is the boundary of a text: the end of a line that cannot go on. An encoder can break base64 after any
// character of it, so only a line that ends in another one is released.
func Lines(held []byte, _ int) int {
	for end := len(held); end > 0; {
		end = bytes.LastIndexByte(held[:end], '\n')
		if line := bytes.TrimRight(held[:max(0, end)], "\r"); end >= 0 && (len(line) == 0 || !sixBits(line[len(line)-1])) {
			return end + 1
		}
	}
	return 0
}

// Frames returns the boundary of one direction of a websocket (RFC 6455 §5.2): the end of a frame. A text split over
// two frames is not found. Other bytes break the stream, and so does a masked frame: only clients may mask.
func Frames() Boundary {
	var f frames
	return func(held []byte, fresh int) int {
		if end := f.end(held[len(held)-fresh:]); !f.none {
			return end + len(held) - fresh
		}
		return Broken
	}
}

// frames parses frames as they arrive.
type frames struct {
	head    []byte // received part of a frame header
	payload uint64 // missing bytes of a frame
	none    bool   // the stream does not consist of frames
}

// end returns the end of the last frame that ends in b. Without one it returns a number below 1, before all held
// bytes.
func (f *frames) end(b []byte) int {
	const nowhere = -1 << 40
	last := nowhere
	for i := 0; i < len(b) && !f.none; {
		if f.payload > 0 {
			n := min(f.payload, uint64(len(b)-i))
			f.payload -= n
			i += int(n)
			if f.payload == 0 {
				last = i
			}
			continue
		}
		f.head = append(f.head, b[i])
		i++
		n, whole, sound := header(f.head)
		if f.none = !sound; !whole {
			continue
		}
		if f.payload, f.head = n, f.head[:0]; n == 0 {
			last = i
		}
	}
	return last
}

// header parses a frame header: the payload length, and whether the header is complete. Reserved bits are an error,
// since no extension was negotiated.
func header(b []byte) (payload uint64, whole, sound bool) {
	if op := b[0] &^ 0x80; op > 2 && (op < 8 || op > 10) {
		return 0, false, false
	}
	if len(b) < 2 {
		return 0, false, true
	}
	if b[1] >= 0x80 { // masked
		return 0, false, false
	}
	long := map[byte]int{126: 2, 127: 8}[b[1]]
	if len(b) < 2+long {
		return 0, false, true
	}
	switch long {
	case 2:
		return uint64(binary.BigEndian.Uint16(b[2:])), true, true
	case 8:
		return binary.BigEndian.Uint64(b[2:]), true, true
	}
	return uint64(b[1]), true, true
}
