package notice

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/facts"
	"waldo/internal/sandbox/seccomp"
)

// refusedCalls are those refused calls that are told of, each answered with EPERM as by the
// filter itself. A program that makes one means something by it.
var refusedCalls = []string{"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "bpf", "perf_event_open",
	"userfaultfd", "add_key", "request_key", "keyctl", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot",
	"move_mount", "open_tree", "fsopen", "open_by_handle_at", "reboot", "kexec_load", "init_module", "finit_module",
	"swapon", "settimeofday", "clock_settime", "sethostname", "io_uring_setup"}

// Max is how many denials of one command are told; the rest is counted.
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

// Listener hears from the kernel of calls in a box that the filter hands over (seccomp_unotify(2)):
// refused calls, and connect, which goes on to the kernel. It decides nothing: what a box may do
// is the namespaces' and the filter's.
type Listener struct {
	listener *os.File
	done     chan struct{}
	names    map[uint32]string

	mu      sync.Mutex
	denials []facts.Denial
	more    int
	onExit  func(pid, status int) (hold bool)
	held    uint64 // the notification of a held process; 0: none is
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

// Listen answers until the last process of the box is gone.
func Listen(listener *os.File) *Listener {
	n := &Listener{listener: listener, done: make(chan struct{}), names: map[uint32]string{}}
	for _, name := range append(Calls(), callOfExit, callOfEnd) {
		if nr, ok := seccomp.Host().Number(name); ok {
			n.names[nr] = name
		}
	}
	go func() {
		defer close(n.done)
		n.serve()
	}()
	return n
}

func (n *Listener) serve() {
	conn, err := n.listener.SyscallConn()
	if err != nil {
		return
	}
	for {
		var ask notification
		var e unix.Errno
		gone := false
		err := conn.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if k, err := unix.Poll(p, 0); err != nil || k == 0 {
				return false
			}
			if gone = p[0].Revents&unix.POLLIN == 0; gone {
				return true // POLLHUP: nobody is left to ask
			}
			_, _, e = unix.Syscall(unix.SYS_IOCTL, fd, notifRecv, uintptr(unsafe.Pointer(&ask)))
			return true
		})
		if err != nil || gone {
			return
		}
		if e == 0 { // otherwise who asked has died since
			n.answer(conn.Control, ask)
		}
	}
}

func (n *Listener) answer(control func(func(uintptr)) error, ask notification) {
	reply := response{id: ask.id, errno: -int32(unix.EPERM)}
	name := n.names[uint32(ask.nr)]
	if name == callOfExit || name == callOfEnd {
		if n.hold(ask, name) {
			return
		}
		reply.errno, reply.flags = 0, goOn
	} else if name == callOfConnect {
		reply.errno, reply.flags = 0, goOn
		if to, ok := destination(ask); ok {
			n.add(facts.Denial{Kind: "network", What: to, Errno: unix.ErrnoName(unix.ENETUNREACH)})
		}
	} else {
		n.add(facts.Denial{Kind: "syscall", What: name, Errno: unix.ErrnoName(unix.EPERM)})
	}
	send(control, reply)
}

func send(control func(func(uintptr)) error, reply response) {
	_ = control(func(fd uintptr) {
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, notifSend, uintptr(unsafe.Pointer(&reply)))
	})
}

// OnExit has f asked about every process that is about to end, or asks for it, by the thread that does,
// as waldo numbers it, and its status from 0 to 255. Where f says so the process is held: it runs no
// more code until Release. A nil f lets all of them go.
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

// Release lets a held process go on. One that only asked for its end must have been killed by then.
func (n *Listener) Release() {
	n.mu.Lock()
	id := n.held
	n.held = 0
	n.mu.Unlock()
	if conn, err := n.listener.SyscallConn(); err == nil && id != 0 {
		send(conn.Control, response{id: id, flags: goOn})
	}
}

// destination reads the address of a connect from the memory of who asks, and reports whether it
// is outside the box. It may be changed under our eyes: it is for the record only.
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

// Close ends the listening. The box must be over.
func (n *Listener) Close() {
	_ = n.listener.Close()
	<-n.done
}
