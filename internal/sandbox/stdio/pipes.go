//go:build linux

package stdio

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// Pipes are waldo's ends of the streams of a command.
type Pipes struct {
	In       *os.File // nil: there is nothing to read
	Out, Err int      // not yet files, for each byte of which the runtime would be woken; -1: none
}

// Connect makes the streams of a command and returns the command's ends of them. They are never files
// of the host's: pipes, or /dev/null where there is nothing to read.
func Connect(c sandbox.Command) (w Pipes, theirs []*os.File, err error) {
	w.Out, w.Err = -1, -1
	defer func() {
		if err != nil {
			w.Close()
			for _, f := range theirs {
				_ = f.Close()
			}
		}
	}()
	var in *os.File
	if c.Stdin == nil && c.Direct == nil {
		in, err = os.Open(os.DevNull)
	} else {
		in, w.In, err = os.Pipe()
	}
	if err != nil {
		return w, nil, err
	}
	theirs = []*os.File{in}
	for _, mine := range []*int{&w.Out, &w.Err} {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return w, theirs, fmt.Errorf("pipe2: %w", err)
		}
		_ = unix.SetNonblock(ends[0], true) // it cannot fail
		*mine, theirs = ends[0], append(theirs, os.NewFile(uintptr(ends[1]), "stream"))
	}
	return w, theirs, nil
}

// ConnectTTY is Connect for a command with a terminal, which is given to the user that the sandbox belongs to.
func ConnectTTY(tty *os.File, uid, gid int) (w Pipes, theirs []*os.File, err error) {
	w.Out, w.Err = -1, -1
	if uid != os.Geteuid() {
		if err := tty.Chown(uid, gid); err != nil {
			return w, nil, err
		}
	}
	for range 3 {
		fd, err := unix.FcntlInt(tty.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			for _, f := range theirs {
				f.Close()
			}
			return w, nil, err
		}
		theirs = append(theirs, os.NewFile(uintptr(fd), "terminal"))
	}
	return w, theirs, nil
}

// Close closes what is open of them.
func (w *Pipes) Close() {
	if w.In != nil {
		_ = w.In.Close()
	}
	closeEnd(&w.Out)
	closeEnd(&w.Err)
}

// closeEnd closes an end of a pipe that is there.
func closeEnd(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
	}
}

// Stream starts the copying of the command's output and input, or gives its pipes to its Direct. finish waits for the
// streams' ends. With still set, the command is frozen and holds the streams, so finish reads only their present
// contents.
func (w *Pipes) Stream(c sandbox.Command, out, err *Capture) (finish func(still bool)) {
	var wg sync.WaitGroup
	var files []*os.File
	for _, s := range []struct {
		end *int
		to  *Capture
	}{{&w.Out, out}, {&w.Err, err}} {
		if *s.end >= 0 {
			s.to.From, *s.end = os.NewFile(uintptr(*s.end), "stream"), -1
			files = append(files, s.to.From)
			wg.Go(s.to.Drain)
		}
	}
	stop := copyStdin(w.In, c)
	return func(still bool) {
		stop()
		if still {
			for _, f := range files {
				_ = f.SetReadDeadline(time.Now())
			}
		}
		wg.Wait()
	}
}

// wholeMost is how much input fits into a pipe of the usual size.
const wholeMost = 32 << 10

// FeedWhole writes all input of a command at once, if the input is in memory and no reader follows the
// command's output. It reports whether it did; if so, Watch can wait for the command's end.
func (w *Pipes) FeedWhole(c sandbox.Command) bool {
	input, ok := c.Stdin.(sandbox.InMemory)
	// a user with many pipes is given small ones
	if !ok || input.Len() > wholeMost || c.Stdout != nil || c.Stderr != nil || !tryWrite(w.In, input) {
		return false
	}
	w.In = nil
	return true
}

// Watch reads the streams in the caller's thread, since to wake others takes as long as a short command. It
// ends at a time, or when over says so, which is asked whenever one of the descriptors has something; then
// it takes what the streams still hold.
func (w *Pipes) Watch(end time.Time, out, err *Capture, fds []int, over func(i int) bool) {
	at := make([]unix.PollFd, 2, 4)
	at[0].Fd, at[1].Fd = int32(w.Out), int32(w.Err)
	for _, fd := range fds {
		at = append(at, unix.PollFd{Fd: int32(fd)})
	}
	for i := range at {
		at[i].Events = unix.POLLIN
	}
	for left := time.Until(end); left > 0; left = time.Until(end) {
		wait := unix.NsecToTimespec(int64(left))
		if _, perr := unix.Ppoll(at, &wait, nil); perr != nil && perr != unix.EINTR {
			return
		}
		w.now(at, out, err)
		for i, p := range at[2:] {
			if p.Revents != 0 && over(i) {
				at[0].Revents, at[1].Revents = unix.POLLIN, unix.POLLIN
				w.now(at, out, err)
				return
			}
		}
	}
}

// now reads the present contents of the readable streams.
func (w *Pipes) now(at []unix.PollFd, out, err *Capture) {
	if w.Out >= 0 && at[0].Revents != 0 && !out.Now(w.Out) {
		closeEnd(&w.Out)
		at[0].Fd = -1
	}
	if w.Err >= 0 && at[1].Revents != 0 && !err.Now(w.Err) {
		closeEnd(&w.Err)
		at[1].Fd = -1
	}
}
