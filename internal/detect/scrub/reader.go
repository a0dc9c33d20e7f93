package scrub

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/bits"
)

// minKeep is how many bytes a Reader holds back at least. Sizes are rounded to powers of two, so that
// the length of a secret does not show.
const minKeep = 512

// Boundary returns how many of the first bytes held may go because no text to hide reaches over their
// end. The last fresh bytes have just come. It does not know the texts.
type Boundary func(held []byte, fresh int) int

// Reader reads a stream with stars in the place of texts. It holds the last bytes back until the end
// of the stream, or until a boundary comes.
type Reader struct {
	from     io.Reader
	texts    *Index
	boundary Boundary
	tail     Tail
	room     []byte // what is read goes here
	out      []byte // what may go
	gone     int    // bytes of out that have gone
	err      error
}

// NewReader returns a Reader of from. How many bytes it holds back follows from the longest text.
func NewReader(from io.Reader, texts *Index, boundary Boundary) *Reader {
	keep := max(minKeep, 1<<bits.Len(uint(texts.longest)))
	return &Reader{from: from, texts: texts, boundary: boundary, tail: Tail{Keep: keep}}
}

// Read reads what may go. It reads on until there is something.
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
	due := max(r.tail.Due(), r.boundary(r.tail.Bytes(), n))
	if r.err = err; err != nil {
		due = len(r.tail.Bytes())
	}
	if r.out, r.gone = r.out[:0], 0; due <= 0 {
		return
	}
	spans := r.texts.All(r.tail.Bytes())
	r.out = r.tail.Take(r.out, due, spans)
	cover(r.out, spans)
}

// Lines is the boundary of texts that hold no line end.
func Lines(held []byte, _ int) int { return bytes.LastIndexByte(held, '\n') + 1 }

// Frames returns the boundary of one direction of a websocket (RFC 6455 §5.2): the end of a frame. What
// a host says in pieces, in two frames, is in no frame whole. After bytes that are no frames there is none.
func Frames() Boundary {
	var f frames
	return func(held []byte, fresh int) int { return f.end(held[len(held)-fresh:]) + len(held) - fresh }
}

// frames walks over frames as they come.
type frames struct {
	head    []byte // of a frame, as much as has come
	payload uint64 // bytes of a frame that are still to come
	none    bool   // these are no frames
}

// end returns where in b the last frame ends that ends in b; where none does, a number below 1 that
// lies before all that is held.
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

// header reads the first bytes of a frame: the length of its payload, and whether the header is whole.
// Reserved bits are for extensions, which are not agreed on here.
func header(b []byte) (payload uint64, whole, sound bool) {
	if op := b[0] &^ 0x80; op > 2 && (op < 8 || op > 10) {
		return 0, false, false
	}
	if len(b) < 2 {
		return 0, false, true
	}
	long := map[byte]int{126: 2, 127: 8}[b[1]&0x7f]
	mask := 4 * int(b[1]>>7)
	if len(b) < 2+long+mask {
		return 0, false, true
	}
	switch long {
	case 2:
		return uint64(binary.BigEndian.Uint16(b[2:])), true, true
	case 8:
		return binary.BigEndian.Uint64(b[2:]), true, true
	}
	return uint64(b[1] & 0x7f), true, true
}
