package seccompnotify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox/ready"
	"waldo/internal/sandbox/seccomp"
)

// refusedCalls are the refused calls that are reported. Each is answered with EPERM, as by the filter itself. A
// program makes one of these on purpose.
var refusedCalls = []string{"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "bpf", "perf_event_open",
	"userfaultfd", "add_key", "request_key", "keyctl", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot",
	"move_mount", "open_tree", "fsopen", "open_by_handle_at", "reboot", "kexec_load", "init_module", "finit_module",
	"swapon", "settimeofday", "clock_settime", "sethostname", "io_uring_setup"}

// Max is the number of denials of one command that are reported; further ones are only counted.
const Max = 100

// Calls returns the names of the calls that a filter hands over (seccomp.Profile.Notify).
func Calls() []string { return append([]string{callOfConnect}, refusedCalls...) }

// The calls that a filter hands over besides (seccomp.Profile.Ends), so that a Listener knows of ends
// before they come about. They want a kernel that keeps signals from who waits (Killable).
const (
	callOfExit = "exit_group"
	callOfEnd  = "kill" // with seccomp.EndSignal, and no other
)

// Killable is the flag of seccomp(2) by which a call that is handed over waits for its answer
// without a signal handler being run; Linux 5.19.
const Killable = 1 << 5

// Listener receives the kernel's notifications for calls that a sandbox's filter hands over
// (seccomp_unotify(2)): refused calls, and connect, which continues in the kernel. It makes no decision: the
// namespaces and the filter do.
type Listener struct {
	listener *os.File // nil while paused
	fd       int      // the listener while paused; -1: a goroutine serves it
	done     chan struct{}

	mu      sync.Mutex
	denials []facts.Denial
	more    int
	onExit  func(pid, status int) (hold bool)
	held    uint64 // the notification of a held process, or 0
}

// struct seccomp_notif, struct seccomp_notif_resp (linux/seccomp.h).
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

const (
	notifRecv     = 0xc0502100
	notifSend     = 0xc0182101
	notifValid    = 0x40082102
	goOn          = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	maxSockaddr   = 28
	callOfConnect = "connect"
)

// Listen answers until the last process of the sandbox is gone.
func Listen(listener *os.File) *Listener {
	n := &Listener{listener: listener, fd: -1}
	n.start()
	return n
}

func (n *Listener) start() {
	n.done = make(chan struct{})
	go func() {
		defer close(n.done)
		n.serve()
	}()
}

// Rest stops the goroutine. Notifications then queue until Serve, or until a caller polls FD and calls Answer.
// It is for a sandbox that waits, and for callers that wait in a single thread.
func (n *Listener) Rest() error {
	if n.fd >= 0 {
		return nil
	}
	conn, err := n.listener.SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	cerr := conn.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(cerr, err); err != nil {
		return fmt.Errorf("the listener: %w", err)
	}
	n.stop()
	n.fd = fd
	return nil
}

func (n *Listener) stop() {
	_ = n.listener.Close()
	<-n.done
	n.listener = nil
}

// Serve restarts the goroutine after Rest.
func (n *Listener) Serve() {
	if n.fd < 0 {
		return
	}
	n.listener, n.fd = os.NewFile(uintptr(n.fd), "seccomp"), -1
	n.start()
}

// FD returns the descriptor of a listener at rest; -1: it is not.
func (n *Listener) FD() int { return n.fd }

// Answer answers a call that waits, if there is one, where the listener is at rest.
func (n *Listener) Answer() {
	var ask notification
	if receive(uintptr(n.fd), &ask) == one {
		n.answer(n.control, ask)
	}
}

// control gives f the descriptor.
func (n *Listener) control(f func(fd uintptr)) error {
	if n.fd >= 0 {
		f(uintptr(n.fd))
		return nil
	}
	conn, err := n.listener.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(f)
}

// names are those of the calls that a filter may hand over.
var names = sync.OnceValue(func() map[uint32]string {
	out := map[uint32]string{}
	for _, name := range append(Calls(), callOfExit, callOfEnd) {
		if nr, ok := seccomp.Host().Number(name); ok {
			out[nr] = name
		}
	}
	return out
})

func (n *Listener) serve() {
	conn, err := n.listener.SyscallConn()
	if err != nil {
		return
	}
	for {
		var ask notification
		var got heard
		if err := conn.Read(func(fd uintptr) bool { got = receive(fd, &ask); return got != nothing }); err != nil ||
			got == over {
			return
		}
		if got == one {
			n.answer(conn.Control, ask)
		}
	}
}

// heard is the result of one receive.
type heard int

const (
	nothing heard = iota
	one           // there was a call
	died          // who asked has died since
	over          // no process is left
)

// receive takes a call that waits.
func receive(fd uintptr, ask *notification) heard {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if k, err := ready.Now(p...); err != nil || k == 0 {
		return nothing
	}
	if p[0].Revents&unix.POLLIN == 0 { // POLLHUP
		return over
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, notifRecv, uintptr(unsafe.Pointer(ask))); e != 0 {
		return died
	}
	return one
}

func (n *Listener) answer(control func(func(uintptr)) error, ask notification) {
	reply := response{id: ask.id, errno: -int32(unix.EPERM)}
	name := names()[uint32(ask.nr)]
	if name == callOfExit || name == callOfEnd {
		if n.hold(ask, name) {
			return
		}
		reply.errno, reply.flags = 0, goOn
	} else if name == callOfConnect {
		reply.errno, reply.flags = 0, goOn
		if to, ok := destination(ask); ok && waits(control, ask.id) { // its number was not another's by then
			n.add(facts.Denial{Kind: "network", What: to, Errno: unix.ErrnoName(unix.ENETUNREACH)})
		}
	} else {
		n.add(facts.Denial{Kind: "syscall", What: name, Errno: unix.ErrnoName(unix.EPERM)})
	}
	send(control, reply)
}

// waits reports whether who made a call still waits for its answer.
func waits(control func(func(uintptr)) error, id uint64) (ok bool) {
	_ = control(func(fd uintptr) {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, fd, notifValid, uintptr(unsafe.Pointer(&id)))
		ok = e == 0
	})
	return ok
}

func send(control func(func(uintptr)) error, reply response) {
	_ = control(func(fd uintptr) {
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, notifSend, uintptr(unsafe.Pointer(&reply)))
	})
}

// OnExit sets the function that decides about every process that is about to end, or asks to. f gets the
// thread, by waldo's numbering, and the status from 0 to 255. If f returns true, the process is held: it runs
// no more code until Release. A nil f holds none.
func (n *Listener) OnExit(f func(pid, status int) (hold bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onExit = f
}

func (n *Listener) hold(ask notification, name string) bool {
	status := ask.args[0]
	if name == callOfEnd {
		status = ask.args[1]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.onExit == nil || n.held != 0 || !n.onExit(int(ask.pid), int(status&0xff)) {
		return false
	}
	n.held = ask.id
	return true
}

// Release lets a held process continue. One that only asked for its end must have been killed by then.
func (n *Listener) Release() {
	n.mu.Lock()
	id := n.held
	n.held = 0
	n.mu.Unlock()
	if id != 0 {
		send(n.control, response{id: id, flags: goOn})
	}
}

// destination reads the address of a connect from the memory of who asks, and reports whether it is outside the
// sandbox. It may be changed under our eyes: it is for the record only.
func destination(ask notification) (string, bool) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", ask.pid))
	if err != nil {
		return "an address that could not be read", true
	}
	defer mem.Close()
	b := make([]byte, min(ask.args[2], maxSockaddr))
	if _, err := mem.ReadAt(b, int64(ask.args[1])); err != nil {
		return "", false // the kernel will not read it either: EFAULT
	}
	a, ok := parseSockaddr(b)
	if !ok || a.Addr().Unmap().IsLoopback() || a.Addr().IsUnspecified() {
		return "", false
	}
	return a.String(), true
}

// parseSockaddr reads a struct sockaddr_in or sockaddr_in6; any other is not of the network.
func parseSockaddr(b []byte) (netip.AddrPort, bool) {
	if len(b) < 8 {
		return netip.AddrPort{}, false
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), true
	case unix.AF_INET6:
		if len(b) >= 24 {
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port), true
		}
	}
	return netip.AddrPort{}, false
}

func (n *Listener) add(d facts.Denial) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, old := range n.denials {
		if old == d {
			return
		}
	}
	if len(n.denials) >= Max {
		n.more++
		return
	}
	n.denials = append(n.denials, d)
}

// Take returns the denials since it was last asked, and how many more there were.
func (n *Listener) Take() ([]facts.Denial, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, more := n.denials, n.more
	n.denials, n.more = nil, 0
	return d, more
}

// Close ends the listening. The sandbox must be over.
func (n *Listener) Close() {
	if n.fd >= 0 {
		_ = unix.Close(n.fd)
		n.fd = -1
		return
	}
	n.stop()
}
