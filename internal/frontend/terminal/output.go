package terminal

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"waldo/internal/model/display"
)

// Masking is a stream that masks secrets, and counts them.
type Masking interface {
	io.WriteCloser
	Masked() (n int, binary bool)
}

// ErrUnread is the error of a run whose reader disconnected. It is empty, since the reader knows.
var ErrUnread error = unread{}

// ErrDamaged is the error of binary output in which a secret was masked.
var ErrDamaged = errors.New("a secret was masked in binary output: its bytes are not as written")

// Through returns writers that mask secrets in the output of a run, and a function that flushes them. The flush
// reports the masking. It returns an error if binary output was masked, since its bytes changed. A reader that
// disconnects triggers end and an error. Until the flush a broken pipe is an error too: SIGPIPE would end waldo
// without a final record.
func Through(out, errw io.Writer, mask func(io.Writer) Masking, end func()) (io.Writer, io.Writer, func() error) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	var gone atomic.Bool
	watch := func(w io.Writer) io.WriteCloser {
		if OnScreen(w) {
			return Screen(w)
		}
		return Screen(&watched{Writer: w, end: end, gone: &gone})
	}
	to, te := watch(out), watch(errw)
	so, se := mask(to), mask(te)
	return so, se, func() error {
		defer signal.Stop(broken)
		for _, w := range []io.Closer{so, se, to, te} {
			_ = w.Close() // a disconnected reader was reported already
		}
		if gone.Load() {
			return ErrUnread
		}
		n, damaged := so.Masked()
		m, _ := se.Masked()
		if n+m > 0 {
			display.Fprintf(errw, "waldo: values masked in the output: %d\n", n+m)
		}
		if damaged {
			return ErrDamaged
		}
		return nil
	}
}

// watched is one output of a run. A write to a disconnected reader ends the run, as SIGPIPE ends a command.
type watched struct {
	io.Writer
	end  func()
	gone *atomic.Bool
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		w.gone.Store(true)
		w.end()
	}
	return n, err
}

type unread struct{}

func (unread) Error() string { return "" }

// Screen wraps w for output of code in a sandbox. A terminal gets escaped text, a file or a pipe the exact bytes.
func Screen(w io.Writer) io.WriteCloser {
	if OnScreen(w) {
		return display.Writer(w)
	}
	return Whole{w}
}

// Whole is a writer without buffering.
type Whole struct{ io.Writer }

func (Whole) Close() error { return nil }
