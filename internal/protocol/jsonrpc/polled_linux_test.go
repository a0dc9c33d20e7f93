package jsonrpc

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends returns the two ends of a pipe or of a pair of sockets, as a host makes them: reads of the first wait.
func ends(t *testing.T, sockets bool) (in, out *os.File) {
	t.Helper()
	pair := make([]int, 2)
	if sockets {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		copy(pair, p[:])
	} else if err := unix.Pipe2(pair, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	in, out = os.NewFile(uintptr(pair[0]), "in"), os.NewFile(uintptr(pair[1]), "out")
	t.Cleanup(func() { in.Close(); out.Close() })
	return in, out
}

func waits(t *testing.T, f *os.File) bool {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	flags := 0
	_ = raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_NONBLOCK == 0
}

// The same bytes and the same end come through the poller, and the stream is given back as it was.
func TestPolled(t *testing.T) {
	for _, sockets := range []bool{false, true} {
		in, out := ends(t, sockets)
		r, release := Polled(in)
		f, ok := r.(*os.File)
		if !ok || f == in {
			t.Fatalf("sockets %v: it is not polled", sockets)
		}
		if err := f.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil { // only a polled file has one
			t.Fatalf("sockets %v: %v", sockets, err)
		}
		b := make([]byte, 8)
		if _, err := f.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("sockets %v: %v", sockets, err)
		}
		_ = f.SetReadDeadline(time.Time{})
		go func() {
			time.Sleep(5 * time.Millisecond)
			_, _ = io.WriteString(out, "first")
			out.Close()
		}()
		if got, err := io.ReadAll(f); err != nil || string(got) != "first" {
			t.Errorf("sockets %v: %q %v", sockets, got, err)
		}
		if !sockets && !waits(t, in) {
			t.Error("who shares the pipe has reads that do not wait")
		}
		release()
		if !waits(t, in) {
			t.Errorf("sockets %v: it was not given back as it was", sockets)
		}
	}
}

// A stream that is also output stays as it is: a write that does not wait would be cut.
func TestPolledLeavesAStreamThatIsOutputToo(t *testing.T) {
	in, _ := ends(t, true)
	keep, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := in.SyscallConn()
	_ = raw.Control(func(fd uintptr) { err = unix.Dup2(int(fd), 2) })
	r, release := Polled(in)
	waiting := waits(t, in)
	release()
	_ = unix.Dup2(keep, 2)
	_ = unix.Close(keep)
	if err != nil || r != io.Reader(in) || !waiting {
		t.Errorf("%v: its writes wait: %v", err, waiting)
	}
}

// A file has no poller, and neither has what is not a file.
func TestPolledLeavesTheRest(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "in")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, in := range []io.Reader{f, io.LimitReader(f, 1)} {
		r, release := Polled(in)
		if release(); r != in {
			t.Errorf("%T was changed", in)
		}
	}
}
