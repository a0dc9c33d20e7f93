//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stream reads what a command writes to its end, and keeps the first of it.
type stream struct {
	from  *os.File
	limit int64
	copy  io.Writer // may be nil; a failing one is left alone
	whole bool      // pass everything on and keep nothing
	flood func()

	kept  []byte
	total int64
}

func (s *stream) drain() {
	defer s.from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.from.Read(buf)
		s.take(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.rest(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// rest takes what stands in the pipe, and waits for nothing.
func (s *stream) rest(buf []byte) {
	_ = s.from.SetReadDeadline(time.Time{})
	conn, err := s.from.SyscallConn()
	for n := 1; err == nil && n > 0; {
		err = conn.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) })
		s.take(buf[:max(n, 0)])
	}
}

func (s *stream) take(b []byte) {
	s.total += int64(len(b))
	if !s.whole {
		b = b[:min(int64(len(b)), s.limit-int64(len(s.kept)))]
		s.kept = append(s.kept, b...)
		if s.total > floodFactor*s.limit {
			s.flood()
		}
	}
	if s.copy != nil && len(b) > 0 {
		if _, err := s.copy.Write(b); err != nil {
			s.copy = nil
		}
	}
}

func (s *stream) truncated() bool { return !s.whole && s.total > s.limit }
