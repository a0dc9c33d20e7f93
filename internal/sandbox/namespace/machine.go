//go:build linux && (amd64 || arm64)

package namespace

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/machine"
)

// ctlFD is the machine's end of the socket to waldo.
const ctlFD = 3

// recordSize is the size of what the machine reports: kind, three words, and a struct rusage.
const recordSize = 4*8 + int(unsafe.Sizeof(unix.Rusage{}))

// The kinds of record.
const (
	recFailed = iota + 1 // a step failed: its address, its errno
	recPID               // PID 1 of the box was made: its number for waldo
	recPlaces            // with it come descriptors of the writable places
	recWay               // with it come the sockets of the way out
	recNotice            // with it comes the listener of the filter
	recReady             // the box is prepared
	recNotRun            // the command could not be executed, for the failures reported before
	recNote              // a check of Probe succeeded: 0, its result
	recExit              // the command ended: 0, status, usage of all that ended
)

// record is what the machine reports.
type record struct {
	kind, a, b, c uint64
	usage         unix.Rusage
}

func parseRecord(b []byte) (r record, err error) {
	if len(b) != recordSize {
		return r, fmt.Errorf("a record of %d bytes, not %d", len(b), recordSize)
	}
	le := binary.LittleEndian
	r.kind, r.a, r.b, r.c = le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	_, err = binary.Decode(b[32:], le, &r.usage)
	return r, err
}

// Where every boot list reports a failure, and where it ends the process.
const (
	dieAddr  = bootBase
	goneAddr = dieAddr + stepSize
)

// newBoot returns what every boot list begins with.
func newBoot() *list {
	l := &list{}
	l.Ignore("report a failure", unix.SYS_WRITE, ctlFD, failureAddr, recordSize) // nobody hears it where waldo is gone
	l.Call("end", unix.SYS_EXIT_GROUP, 253)
	return l
}

// boot is the list that a machine of its own starts with: take a program from waldo and walk it. One
// for a box is begun by initProgram.
var boot = sync.OnceValue(func() *list {
	l := newBoot()
	l.takeProgram("take a program", programBase, machine.At(goneAddr))
	l.makeInit(machine.Target{}, machine.At(goneAddr))
	return l
})

const (
	bootEntry = bootBase + 2*stepSize
	initEntry = bootEntry + 2*stepSize
)

// initProgram is the program that has a machine make PID 1 of a box.
var initProgram = sync.OnceValue(func() []byte {
	var l list
	l.Call("go on", unix.SYS_GETPID)
	l.Steps[0].Next = machine.At(initEntry)
	return l.link(programBase)
})

// takeProgram appends steps that read a length and as many bytes from waldo to base, and then go
// there. An end of the socket goes to gone.
func (l *list) takeProgram(name string, base uint64, gone machine.Target) {
	head := len(l.Steps)
	size := machine.InStep(head+1, 3) // the length is an argument of the next step
	l.Call(name, unix.SYS_RECVFROM, ctlFD, size, 8, unix.MSG_WAITALL, 0, 0)
	l.Steps[head].Equal, l.Steps[head].Same = l.Structure(machine.Num(8)), machine.To(head+1)
	l.Call(name, unix.SYS_RECVFROM, ctlFD, base, 0, unix.MSG_WAITALL, 0, 0)
	l.Steps[head+1].Equal, l.Steps[head+1].Same = size, machine.At(base)
	for i := head; i <= head+1; i++ {
		l.Steps[i].Next, l.Steps[i].Fail = gone, gone
	}
}

// maxFiles is how many descriptors a machine may be started with.
const maxFiles = 64

// bootOf is what the executable of every machine starts with.
func bootOf() machine.Boot {
	return machine.Boot{Entry: bootEntry, At: bootBase, Steps: boot().link(bootBase), Failed: recFailed, Room: memoryEnd - dataBase}
}
func machineFile() (*os.File, error) { return machine.File(bootOf()) }
