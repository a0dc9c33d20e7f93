//go:build linux

package stdio

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// Capture reads what a command writes to its end, and keeps the first of it.
type Capture struct {
	From   *os.File
	Limit  int64
	Copy   io.Writer                               // may be nil; a failing one is left alone
	Pass   bool                                    // Copy gets all of it, and nothing is a flood
	Whole  bool                                    // pass everything on and keep nothing
	Direct func(pipe *os.File)                     // with Whole: reads From itself; nil: Copy gets it
	Cut    func(text string, n int, more bool) int // as that of sandbox.Command
	Flood  func()                                  // called once the command has written floodFactor times the limit

	Kept  []byte
	after []byte // the bytes behind Kept, up to beyond, for Cut
	Total int64
}

// Captures are what reads the output of a command, each stream to a limit.
func Captures(c sandbox.Command, limit int64, flood func()) (out, err *Capture) {
	out = &Capture{Limit: limit, Copy: c.Stdout, Cut: c.Cut, Pass: c.Pass, Whole: c.Serve, Flood: flood}
	if c.Direct != nil {
		out.Direct = c.Direct.Out
	}
	return out, &Capture{Limit: limit, Copy: c.Stderr, Cut: c.Cut, Pass: c.Pass, Flood: flood}
}

// beyond is how many bytes after the limit are held for Cut, so that it sees a whole secret.
const beyond = 64 << 10

// floodFactor is how often a stream may pass its limit before the run is ended for it.
const floodFactor = 64

// Drain reads to the end, or to a deadline that From is given, and closes From.
func (s *Capture) Drain() {
	defer s.From.Close()
	if s.Direct != nil {
		s.Direct(s.From) // the bytes that it leaves unread are discarded
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := s.From.Read(*buf)
		s.take((*buf)[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.rest()
			return
		}
		if err != nil {
			return
		}
	}
}

var buffers = sync.Pool{New: func() any { return new(make([]byte, 64<<10)) }}

// rest reads the present contents of the pipe without waiting.
func (s *Capture) rest() {
	if conn, err := s.From.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { s.Now(int(fd)) })
	}
}

// packets bounds one call of Now. It is above the 256 packets that a user's pipe can hold in packet mode
// (O_DIRECT, pipe(2)), which the writer can choose.
const packets = 1 << 10

// Now reads the present contents of a non-blocking pipe. It reports whether more can follow. If a writer is as
// fast as the reader, it leaves the rest for another call.
func (s *Capture) Now(pipe int) bool {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for range packets {
		n, err := unix.Read(pipe, *buf)
		s.take((*buf)[:max(n, 0)])
		if n <= 0 && err != unix.EINTR {
			return err == unix.EAGAIN
		}
	}
	return true
}

func (s *Capture) take(b []byte) {
	var over []byte
	s.Total += int64(len(b))
	if !s.Whole {
		keep := b[:min(int64(len(b)), s.Limit-int64(len(s.Kept)))]
		s.Kept = append(s.Kept, keep...)
		over = b[len(keep):]
		if s.Cut != nil {
			s.after = append(s.after, over[:min(len(over), beyond-len(s.after))]...)
		}
		if !s.Pass {
			b = keep
		}
		if (!s.Pass || s.Copy == nil) && s.Total > floodFactor*s.Limit {
			s.Flood()
		}
	}
	if s.Copy != nil && len(b) > 0 {
		if _, err := s.Copy.Write(b); err != nil {
			s.Copy = nil
		}
	}
	if to, ok := s.Copy.(interface{ Beyond(b []byte) }); ok && !s.Pass && len(over) > 0 {
		to.Beyond(over)
	}
}

// Text returns the captured bytes as valid UTF-8, without the beginning of a secret where the limit cut one.
func (s *Capture) Text() string {
	kept := s.Kept
	if s.Truncated() && s.Cut != nil {
		all := string(kept) + string(s.after)
		kept = kept[:s.Cut(all, len(kept), s.Total > int64(len(all)))]
	}
	return strings.ToValidUTF8(string(kept), "\uFFFD")
}

// Truncated reports whether bytes were dropped.
func (s *Capture) Truncated() bool { return !s.Whole && s.Total > s.Limit }
