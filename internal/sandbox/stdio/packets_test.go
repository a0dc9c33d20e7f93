//go:build linux

package stdio

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestPackets: a pipe in packet mode is read to its end, and an endless writer does not block the reader for
// ever.
func TestPackets(t *testing.T) {
	for why, flags := range map[string]int{"control: a stream": 0, "packets": unix.O_DIRECT} {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK|flags); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.Write(p[1], make([]byte, 60_000)); n != 60_000 {
			t.Fatal(n, err)
		}
		s := &Capture{Limit: 1 << 20}
		if more := s.Now(p[0]); s.Total != 60_000 || !more {
			t.Errorf("%s: %d bytes, more %v", why, s.Total, more)
		}
		unix.Close(p[1])
		if s.Now(p[0]) {
			t.Errorf("%s: more after the end", why)
		}
		unix.Close(p[0])
	}
	zero, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(zero)
	s := &Capture{Whole: true}
	if !s.Now(zero) || s.Total == 0 || s.Total > packets<<16 {
		t.Errorf("stopped after %d bytes of a file without one", s.Total)
	}
}
