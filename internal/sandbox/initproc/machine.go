//go:build linux && (amd64 || arm64)

package initproc

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/initvm"
)

// CtlFD is the machine's end of the socket to waldo.
const CtlFD = 3

// RecordSize is the size of a report of the machine: kind, three words, and a struct rusage.
const RecordSize = 4*8 + int(unsafe.Sizeof(unix.Rusage{}))

// The kinds of record.
const (
	RecFailed = iota + 1 // a step failed: its address, its errno
	RecPID               // PID 1 of the sandbox was made: its number for waldo
	RecPlaces            // with it come the overlays of mounts, then descriptors of the volumes
	RecFiles             // with it come the sockets of the egress
	RecNotice            // with it comes the listener of the filter
	RecReady             // the sandbox is prepared
	RecNotRun            // the command could not be executed, for the failures reported before
	RecNote              // a check of Probe succeeded: 0, its result
	RecExit              // the command ended: 0, status, usage of all that ended
)

// Record is a report of the machine.
type Record struct {
	Kind, A, B, C uint64
	Usage         unix.Rusage
}

func parseRecord(b []byte) (r Record, err error) {
	if len(b) != RecordSize {
		return r, fmt.Errorf("a record of %d bytes, not %d", len(b), RecordSize)
	}
	le := binary.LittleEndian
	r.Kind, r.A, r.B, r.C = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	_, err = binary.Decode(b[32:], le, &r.Usage)
	return r, err
}

// The address where every boot list reports a failure, and the one where it ends the process.
const (
	dieAddr = BootBase
	Gone    = dieAddr + StepSize
)

// NewBoot returns what every boot list begins with.
func NewBoot() *List {
	l := &List{}
	// ignored: without a waldo it has no reader
	l.Ignore("report a failure", unix.SYS_WRITE, CtlFD, FailureAddr, RecordSize)
	l.Call("end", unix.SYS_EXIT_GROUP, 253)
	return l
}

// boot is the list that a machine of its own starts with: take a program from waldo and walk it. One for a
// sandbox is begun by initProgram.
var boot = sync.OnceValue(func() *List {
	l := NewBoot()
	l.TakeProgram("take a program", ProgramBase, initvm.At(Gone))
	l.MakeInit(initvm.Target{}, initvm.At(Gone))
	l.Entry = len(l.Steps)
	l.clone(joinFlags, initvm.Target{}, initvm.At(Gone), initvm.To(bootSteps+2))
	return l
})

// joinFlags are the namespaces that a command has of its own where it shares the others.
const joinFlags = unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_PARENT |
	unix.Signal(unix.SIGCHLD)

// joinProgram has a machine join the user and network namespace that come after it. If processes are shared, PID 1
// of the machine's own PID namespace prepares the sandbox, and HandOn makes the process that enters the shared one.
// Otherwise PID 1 gets a PID namespace of its own.
func joinProgram(processes bool) []byte {
	var l List
	l.Call("close the machine", unix.SYS_CLOSE_RANGE, CtlFD+1, 0xffffffff, 0)
	l.TakeDescriptors(2, initvm.At(Gone))
	l.Call("join the user namespace", unix.SYS_SETNS, CtlFD+1, unix.CLONE_NEWUSER)
	l.Call("join the network namespace", unix.SYS_SETNS, CtlFD+2, unix.CLONE_NEWNET)
	if !processes {
		l.Call("a PID namespace", unix.SYS_UNSHARE, unix.CLONE_NEWPID)
	}
	last := l.Call("close the namespaces", unix.SYS_CLOSE_RANGE, CtlFD+1, 0xffffffff, 0)
	l.Steps[last].Next = initvm.At(BootBase + uint64(boot().Entry)*StepSize)
	return l.LinkAt(ProgramBase)
}

// bootSteps are the steps of the boot list before those that make PID 1.
const bootSteps = 4

const (
	bootEntry = BootBase + 2*StepSize
	initEntry = BootBase + bootSteps*StepSize
)

// initProgram is the program that has a machine make PID 1 of a sandbox.
var initProgram = sync.OnceValue(func() []byte {
	var l List
	l.Call("go on", unix.SYS_GETPID)
	l.Steps[0].Next = initvm.At(initEntry)
	return l.LinkAt(ProgramBase)
})

// takeProgram appends steps that read a length and as many bytes from waldo to base, and then go
// there. An end of the socket goes to gone.
func (l *List) TakeProgram(name string, base uint64, gone initvm.Target) {
	head := len(l.Steps)
	size := initvm.InStep(head+1, 3) // the length is an argument of the next step
	l.Call(name, unix.SYS_RECVFROM, CtlFD, size, 8, unix.MSG_WAITALL, 0, 0)
	l.Steps[head].Equal, l.Steps[head].Same = l.Structure(initvm.Num(8)), initvm.To(head+1)
	l.Call(name, unix.SYS_RECVFROM, CtlFD, base, 0, unix.MSG_WAITALL, 0, 0)
	l.Steps[head+1].Equal, l.Steps[head+1].Same = size, initvm.At(base)
	for i := head; i <= head+1; i++ {
		l.Steps[i].Next, l.Steps[i].Fail = gone, gone
	}
}

// MaxFiles is how many descriptors a machine may be started with.
const MaxFiles = 64

// bootOf returns the first list in the executable of every machine.
func bootOf() initvm.Boot {
	return initvm.Boot{Entry: bootEntry, At: BootBase, Steps: boot().LinkAt(BootBase), Failed: RecFailed,
		Room: MemoryEnd - DataBase}
}
func Machine() (*os.File, error) { return initvm.File(bootOf()) }
