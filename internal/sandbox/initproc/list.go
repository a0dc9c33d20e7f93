//go:build linux && (amd64 || arm64)

package initproc

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/userns"
)

// The layout of the machine's memory. The header is the address of the first step and the record of the last
// failure. The boot list follows, then the areas for a program that prepares a sandbox and for the job in it.
const (
	CodeBase    = initvm.CodeBase
	DataBase    = initvm.DataBase
	HandlerAddr = DataBase + 0x100 // for an interpreter's signal actions
	BootBase    = DataBase + 0x200
	ProgramBase = DataBase + 0x2000
	ProgramMax  = 1 << 20
	JobBase     = ProgramBase + ProgramMax
	JobMax      = 5 << 20 // Linux takes 2 MiB of arguments and environment at most
	MemoryEnd   = JobBase + JobMax
	FailureAddr = initvm.FailureAddr
	StepSize    = initvm.StepSize
)

// List is a program for the machine of a sandbox.
type List struct{ initvm.Program }

// LinkAt lays the list out at base; a step that fails and says nothing else ends the process.
func (l *List) LinkAt(base uint64) []byte { return l.Link(base, dieAddr) }

// Optional makes the last step one whose failure is reported without ending the list.
func (l *List) Optional() {
	i := len(l.Steps) - 1
	l.Steps[i].Next = initvm.To(i + 2)
	l.Steps[i].Fail = initvm.To(i + 1)
	l.Call("note", unix.SYS_WRITE, CtlFD, initvm.Num(uint64(FailureAddr)), RecordSize)
}

// Record puts an empty record of a kind into the data.
func (l *List) Record(kind uint64) initvm.Value {
	rec := l.Structure(initvm.Num(kind), initvm.Num(0), initvm.Num(0), initvm.Num(0))
	l.Bytes(make([]byte, RecordSize-32))
	return rec
}

// UserNSHint marks a step that needs user namespaces: its error gets a hint.
const UserNSHint = "user namespaces"

// MakeInit appends the making of PID 1. It is waldo's own child (CLONE_PARENT), so that waldo reaps it, and
// when it is reaped everything else in the sandbox is dead. The process that made it reports that it is made,
// or goes to failed. PID 1 takes the descriptors and the program of its sandbox from waldo.
func (l *List) MakeInit(failed, made initvm.Target) {
	const flags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_PARENT | unix.Signal(unix.SIGCHLD)
	l.clone(flags, failed, made, initvm.To(len(l.Steps)+2))
	// Descriptors that waldo inherited are not close-on-exec.
	l.Call("close what waldo inherited", unix.SYS_CLOSE_RANGE, CtlFD+1, 0xffffffff, 0)
	l.TakeDescriptors(MaxFiles, initvm.At(Gone))
	l.TakeProgram("take the sandbox's program", ProgramBase, initvm.At(Gone))
}

// HandOn appends the making of a process in the PID namespace of a descriptor, which goes on with the list in place of
// the one that makes it. It is waldo's own child, too, and waits until waldo knows of it.
func (l *List) HandOn() {
	l.clone(unix.CLONE_PARENT|unix.Signal(unix.SIGCHLD), initvm.Target{}, initvm.At(Gone), initvm.To(len(l.Steps)+2))
	l.Hear()
}

// clone appends the creation of a process that continues at child. Its parent reports the child's number.
func (l *List) clone(flags unix.Signal, failed, made, child initvm.Target) {
	rec := l.Record(RecPID)
	clone := l.Call("make namespaces", unix.SYS_CLONE, uint64(flags), 0, 0, 0, 0)
	l.Hint(UserNSHint)
	l.Steps[clone].Store = rec.Plus(8)
	l.Steps[clone].Equal = l.Structure(initvm.Num(0))
	l.Steps[clone].Fail, l.Steps[clone].Same = failed, child
	report := l.Call("report PID 1", unix.SYS_WRITE, CtlFD, rec, RecordSize)
	l.Steps[report].Next, l.Steps[report].Fail = made, made
}

// TakeDescriptors appends a recvmsg whose descriptors, most of them at most, land at the lowest free.
func (l *List) TakeDescriptors(most int, gone initvm.Target) {
	one := l.Structure(initvm.Num(0))
	iov := l.Structure(one, initvm.Num(1))
	// the kernel sets it to the received size: three or four need the same
	room := unix.CmsgSpace(4 * most)
	// struct msghdr
	head := l.Structure(initvm.Num(0), initvm.Num(0), iov, initvm.Num(1), l.Bytes(make([]byte, room)), initvm.Num(room),
		initvm.Num(0))
	i := l.Call("take descriptors", unix.SYS_RECVMSG, CtlFD, head, 0)
	l.Steps[i].Equal, l.Steps[i].Same = l.Structure(initvm.Num(1)), initvm.To(i+1)
	l.Steps[i].Next, l.Steps[i].Fail = gone, gone
}

// SendFiles appends the sending of n descriptors from first on, with a record.
func (l *List) SendFiles(what string, kind uint64, first, n int) {
	control := binary.LittleEndian.AppendUint64(nil, uint64(16+4*n)) // struct cmsghdr
	control = binary.LittleEndian.AppendUint32(control, unix.SOL_SOCKET)
	control = binary.LittleEndian.AppendUint32(control, unix.SCM_RIGHTS)
	for i := range n {
		control = binary.LittleEndian.AppendUint32(control, uint32(first+i))
	}
	iov := l.Structure(l.Record(kind), initvm.Num(RecordSize))
	// struct msghdr
	head := l.Structure(initvm.Num(0), initvm.Num(0), iov, initvm.Num(1), l.Bytes(control), initvm.Num(len(control)),
		initvm.Num(0))
	l.Call("send "+what, unix.SYS_SENDMSG, CtlFD, head, 0)
}

// Hear appends a wait for one byte from waldo.
func (l *List) Hear() {
	hear := l.Call("hear from waldo", unix.SYS_RECVFROM, CtlFD, l.Bytes(make([]byte, 8)), 1, unix.MSG_WAITALL, 0, 0)
	l.Steps[hear].Equal, l.Steps[hear].Same = l.Structure(initvm.Num(1)), initvm.To(hear+1)
	l.Steps[hear].Next = initvm.At(Gone)
}

// Index returns the step that a record of failure is about.
func (l *List) Index(r Record, base uint64) (int, bool) {
	i := (r.A - base) / StepSize
	if r.Kind != RecFailed || r.A < base || i >= uint64(len(l.Steps)) {
		return 0, false
	}
	return int(i), true
}

// StepError is the failure of one step.
type StepError struct {
	Step  string // its name
	Errno unix.Errno
}

// Error names the step and the reason.
func (e *StepError) Error() string { return "namespace: " + e.Step + ": " + e.Errno.Error() }

// Unwrap returns the reason.
func (e *StepError) Unwrap() error { return e.Errno }

// Failure says in words what a record of failure says.
func (l *List) Failure(r Record, base uint64) error {
	i, ok := l.Index(r, base)
	if !ok {
		return fmt.Errorf("namespace: the sandbox reports %d %#x %d", r.Kind, r.A, r.B)
	}
	errno := unix.Errno(r.B)
	var err error = &StepError{l.Steps[i].Name, errno}
	h := l.Steps[i].Hint
	// in a namespace of one's own, only a security module says that
	if h == UserNSHint || l.Steps[i].NR == unix.SYS_MOUNT && errno == unix.EACCES {
		h = userns.Hint(errno)
	}
	if h != "" {
		err = sandbox.WithHint(err, h)
	}
	return err
}
