//go:build linux && (amd64 || arm64)

// Package reach connects to ports of a sandbox's loopback from outside. A process of waldo's own joins the user and
// network namespaces of the sandbox and nothing else, makes sockets there and hands them over. A socket stays in the
// namespace that it was made in, so it leads to that loopback alone, and only waldo has it: nothing in the sandbox gets
// a descriptor, a route or a listener by it.
package reach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/procstat"
)

// Reach connects to ports of one sandbox.
type Reach struct {
	mu    sync.Mutex
	stage *initproc.Stage
}

// ErrOwn is the error for a process that is in no sandbox.
var ErrOwn = errors.New("namespace: it is not a process of a sandbox: it has the network of this machine")

// Open returns what connects to the sandbox whose PID 1 has that number outside. program is the executable of a
// machine.
func Open(program *os.File, pid int) (*Reach, error) {
	user, network, err := namespacesOf(pid)
	if err != nil {
		return nil, err
	}
	defer user.Close()
	defer network.Close()
	s := &initproc.List{}
	s.Call("close the machine", unix.SYS_CLOSE_RANGE, initproc.CtlFD+1, 0xffffffff, 0)
	s.TakeDescriptors(2, initvm.At(initproc.Gone))
	s.Call("join the user namespace", unix.SYS_SETNS, initproc.CtlFD+1, unix.CLONE_NEWUSER)
	s.Call("join the network namespace", unix.SYS_SETNS, initproc.CtlFD+2, unix.CLONE_NEWNET)
	s.Call("close the namespaces", unix.SYS_CLOSE_RANGE, initproc.CtlFD+1, 0xffffffff, 0)
	s.Call("report", unix.SYS_WRITE, initproc.CtlFD, s.Record(initproc.RecReady), initproc.RecordSize)
	again := len(s.Steps)
	s.Hear()
	s.Call("a socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	six := s.Call("a socket of IPv6", unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	// where there is no IPv6
	s.Call("another of IPv4", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	s.Steps[six].Fail, s.Steps[six].Next = initvm.To(six+1), initvm.To(six+2)
	s.SendFiles("the sockets", initproc.RecFiles, initproc.CtlFD+1, 2)
	last := s.Call("close the sockets", unix.SYS_CLOSE_RANGE, initproc.CtlFD+1, 0xffffffff, 0)
	s.Steps[last].Next = initvm.To(again)
	st, err := initproc.Spawn(program, os.Geteuid(), os.Getegid())
	if err != nil {
		return nil, err
	}
	if err = st.Send(s.LinkAt(initproc.ProgramBase)); err == nil {
		err = st.SendFiles([]int{int(user.Fd()), int(network.Fd())})
	}
	if err == nil {
		err = st.Ready(s, nil, nil)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &Reach{stage: st}, nil
}

// namespacesOf returns the user and network namespaces of a sandbox. PID 1 does not show its own, the commands show
// theirs, which are the same. Those of this process are refused: a number may have become another process's.
func namespacesOf(pid int) (user, network *os.File, err error) {
	err = errors.New("namespace: no command runs in the sandbox")
	for _, child := range procstat.Children(pid) {
		if user, network, err = openBoth(child); err == nil {
			return user, network, nil
		}
	}
	return nil, nil, err
}

// openBoth opens the namespaces of one process, which must be none of this process's.
func openBoth(pid int) (user, network *os.File, err error) {
	for _, row := range []struct {
		name string
		to   **os.File
	}{{"user", &user}, {"net", &network}} {
		if err = foreign(pid, row.name, row.to); err != nil {
			if user != nil {
				user.Close()
			}
			return nil, nil, err
		}
	}
	return user, network, nil
}

// foreign opens a namespace that is not this process's own.
func foreign(pid int, name string, to **os.File) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	theirs, err := f.Stat()
	own, oerr := os.Stat("/proc/self/ns/" + name)
	if err = errors.Join(err, oerr); err == nil && os.SameFile(theirs, own) {
		err = ErrOwn
	}
	if err != nil {
		f.Close()
		return err
	}
	*to = f
	return nil
}

// within bounds a connection attempt, so that the full queue of a sandbox's server does not block the caller.
const within = 5 * time.Second

// Dial connects to a port of the sandbox's loopback, at 127.0.0.1 or else at ::1.
func (r *Reach) Dial(port uint16) (net.Conn, error) {
	files, err := r.sockets()
	if err != nil {
		return nil, err
	}
	defer func() { _ = errors.Join(files[0].Close(), files[1].Close()) }()
	conn, err := connect(files[0], &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
	if err != nil {
		if six, serr := connect(files[1], &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}); serr == nil {
			return six, nil
		}
		return nil, fmt.Errorf("port %d of the sandbox: %w", port, err)
	}
	return conn, nil
}

// connect connects a socket.
func connect(f *os.File, to unix.Sockaddr) (net.Conn, error) {
	fd := int(f.Fd())
	limit := unix.NsecToTimeval(int64(within))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, to); err != nil {
		return nil, err
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{})
	return net.FileConn(f)
}

// sockets has two sockets made in the sandbox's network, of IPv4 and, where there is that, of IPv6.
func (r *Reach) sockets() ([]*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.stage.Ctl.Write([]byte{1}); err != nil {
		return nil, err
	}
	return r.stage.ReceiveFiles(initproc.RecFiles, 2)
}

// Close ends the process that makes sockets. Connections stay.
func (r *Reach) Close() error { return r.stage.Close() }
