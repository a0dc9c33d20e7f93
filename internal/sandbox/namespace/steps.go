//go:build linux && (amd64 || arm64)

package namespace

import (
	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/machine"
)

// The layout of the machine's memory. The header is the word where the machine starts and the
// record of the last failure; after it stands the boot list; then come the areas for a program
// that prepares a box and for the job that runs in it.
const (
	codeBase    = machine.CodeBase
	dataBase    = machine.DataBase
	handlerAddr = dataBase + 0x100 // what an interpreter does about the signals in handled
	bootBase    = dataBase + 0x200
	programBase = dataBase + 0x2000
	programMax  = 1 << 20
	jobBase     = programBase + programMax
	jobMax      = 5 << 20 // Linux takes 2 MiB of arguments and environment at most
	memoryEnd   = jobBase + jobMax
	failureAddr = machine.FailureAddr
	stepSize    = machine.StepSize
)

// list is a program for the machine of a box.
type list struct{ machine.List }

func (l *list) link(base uint64) []byte { return l.Link(base, dieAddr) }

// optional makes the last step one whose failure is reported, and goes on.
func (l *list) optional() {
	i := len(l.Steps) - 1
	l.Steps[i].Next = machine.To(i + 2)
	l.Steps[i].Fail = machine.To(i + 1)
	l.Call("note", unix.SYS_WRITE, ctlFD, machine.Num(uint64(failureAddr)), recordSize)
}

// record puts an empty record of a kind into the data.
func (l *list) record(kind uint64) machine.Value {
	rec := l.Structure(machine.Num(kind), machine.Num(0), machine.Num(0), machine.Num(0))
	l.Bytes(make([]byte, recordSize-32))
	return rec
}
