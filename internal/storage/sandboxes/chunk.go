package sandboxes

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// A file is stored in chunks. Their ends follow from the content (gear hash, as FastCDC), so that a byte inserted
// near the beginning changes one chunk.
const (
	chunkLeast = 64 << 10
	chunkMost  = 1 << 20
	chunkMask  = 1<<18 - 1 // an end every 256 KiB or so
)

// gear gives each byte a number of its own, the same everywhere.
var gear = func() (g [256]uint64) {
	for i := range g {
		sum := sha256.Sum256([]byte{'w', 'a', 'l', 'd', 'o', byte(i)})
		g[i] = binary.LittleEndian.Uint64(sum[:])
	}
	return g
}()

// cut returns how many bytes of b the first chunk has. b is at most chunkMost long.
func cut(b []byte) int {
	if len(b) <= chunkLeast {
		return len(b)
	}
	var h uint64
	for i, c := range b[chunkLeast:] {
		h = h<<1 + gear[c]
		if h>>40&chunkMask == 0 {
			return chunkLeast + i + 1
		}
	}
	return len(b)
}

// chunks hands over what is read, chunk by chunk. The bytes are good until the next.
func chunks(r io.Reader, f func([]byte) error) error {
	buf := make([]byte, chunkMost)
	for have := 0; ; {
		n, err := io.ReadFull(r, buf[have:])
		have += n
		if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if have == 0 {
			return nil
		}
		end := cut(buf[:have])
		if err := f(buf[:end]); err != nil {
			return err
		}
		have = copy(buf, buf[end:have])
	}
}
