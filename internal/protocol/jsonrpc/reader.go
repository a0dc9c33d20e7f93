package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxFrame is how many bytes one message may have, as in go-sdk's own limit.
const MaxFrame = 16 << 20

// ErrTooLong: the line is longer than the limit.
var ErrTooLong = errors.New("a message longer than the limit")

// Reader reads lines and never holds more than one of them.
type Reader struct {
	r     *bufio.Reader
	max   int
	whole bool // the line that was too long has been read to its end
	ended bool // the input has, in the middle of a line
}

// NewReader returns a Reader that takes lines of at most max bytes; 0 means MaxFrame.
func NewReader(r io.Reader, max int) *Reader {
	if max <= 0 {
		max = MaxFrame
	}
	return &Reader{r: bufio.NewReaderSize(r, 32<<10), max: max}
}

// Next returns the next line that is not blank, without its end. A last line without an end counts
// as a line. After ErrTooLong the rest of the line is still to come: Skip it, or give up.
func (r *Reader) Next() ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		if len(line)+len(part) > r.max {
			r.whole = err == nil
			return nil, ErrTooLong
		}
		line = append(line, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		r.ended = err != nil
		line = bytes.TrimSpace(line)
		if len(line) > 0 {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Ended reports whether the input ended before the line did that Next has returned.
func (r *Reader) Ended() bool { return r.ended }

// More reports whether something of the next line has been read already.
func (r *Reader) More() bool { return r.r.Buffered() > 0 }

// Skip reads to the end of the line and keeps nothing.
func (r *Reader) Skip() error {
	if r.whole {
		return nil
	}
	for {
		_, err := r.r.ReadSlice('\n')
		if err != bufio.ErrBufferFull {
			return err
		}
	}
}
