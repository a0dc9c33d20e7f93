//go:build linux

package notice

import (
	"bytes"
	"testing"
)

// FuzzSockaddr: an address that is read back is the one that the bytes say, or there is none.
func FuzzSockaddr(f *testing.F) {
	f.Add([]byte{2, 0, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{10, 0, 1, 187, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Add([]byte{1, 0, '/', 't', 'm', 'p', 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := parseSockaddr(b)
		if !ok {
			return
		}
		if a.Port() != uint16(b[2])<<8|uint16(b[3]) || !bytes.Contains(b, a.Addr().AsSlice()) {
			t.Errorf("% x is not %v", b, a)
		}
	})
}
