package jsonrpc

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Polled returns the same input in a form whose readers wait in Go's poller, and the function that gives it back. A
// thread that waits in read(2) for the client has the runtime look after it every 20 µs, which was a third of the
// processor time of a call. The row "waldo, stdio to a sandboxed stdio server" of BENCHMARKS.md pays for it. It returns
// in itself where that cannot be had: a terminal, a file, or a stream that is also the output of this process.
func Polled(in io.Reader) (io.Reader, func()) {
	file, ok := in.(*os.File)
	if !ok {
		return in, func() {}
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return in, func() {}
	}
	polled, done := in, func() {}
	_ = raw.Control(func(number uintptr) {
		fd := int(number)
		var st unix.Stat_t
		flags, err := unix.FcntlInt(number, unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 || unix.Fstat(fd, &st) != nil { // polled already, or unknown
			return
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFIFO: // opened anew: other processes that share the old description keep it as it is
			again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				f := os.NewFile(uintptr(again), "input")
				polled, done = f, func() { _ = f.Close() }
			}
		case unix.S_IFSOCK: // hosts in Node give each standard stream a socket of its own
			if shared(st) {
				return
			}
			own, err := unix.FcntlInt(number, unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return
			}
			if unix.SetNonblock(own, true) != nil {
				_ = unix.Close(own)
				return
			}
			f := os.NewFile(uintptr(own), "input")
			polled, done = f, func() {
				_ = f.Close()
				_ = raw.Control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), false) })
			}
		}
	})
	return polled, done
}

// shared reports whether standard output or standard error is the same stream: their writers would have to be ready
// for a write that does not wait.
func shared(in unix.Stat_t) bool {
	for fd := 1; fd <= 2; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Dev == in.Dev && st.Ino == in.Ino {
			return true
		}
	}
	return false
}
