//go:build linux && (amd64 || arm64)

package namespace

import (
	"encoding/binary"
	"fmt"

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
	stepSize    = 12 * 8
)

// value is an argument of a step: a number, the address of some data, or the address of a field
// of a step, where the result of an earlier call is put.
type value struct {
	kind valueKind
	n    uint64
	word int
}

type valueKind uint8

const (
	number valueKind = iota
	inData
	inStep
)

func num[T ~int | ~int32 | ~uint32 | ~uint64 | ~uintptr](n T) value { return value{n: uint64(n)} }

// target says where the machine goes on: at the step of an index, or at an address.
type target struct {
	index   int
	address uint64
	set     bool
}

func to(index int) target      { return target{index: index, set: true} }
func at(address uint64) target { return target{address: address, set: true} }

// step is one system call. A call that fails goes to fail; one whose result equals the word at
// equal goes to same; any other goes to next. Targets that are not set: fail ends the process
// with a report, next is the step after this one.
type step struct {
	name, hint       string
	nr               uintptr
	args             [6]value
	store, equal     value
	same, next, fail target
}

// list is a program for the machine: steps and the data that they point to.
type list struct {
	steps []step
	data  []byte
	words []word
	entry int    // the step to start at
	die   target // where a failing step goes that says nothing else
}

// add appends a step and returns its index.
func (l *list) add(s step) int {
	l.steps = append(l.steps, s)
	return len(l.steps) - 1
}

// call appends a system call that must succeed. Arguments are numbers, strings, bytes or values.
func (l *list) call(name string, nr uintptr, args ...any) int {
	s := step{name: name, nr: nr}
	for i, a := range args {
		s.args[i] = l.value(a)
	}
	return l.add(s)
}

// ignore appends a system call that may fail without anybody hearing of it.
func (l *list) ignore(name string, nr uintptr, args ...any) int {
	i := l.call(name, nr, args...)
	l.steps[i].fail = to(i + 1)
	return i
}

// hint tells a person what to do when the last step fails.
func (l *list) hint(s string) { l.steps[len(l.steps)-1].hint = s }

// optional makes the last step one whose failure is reported, and goes on.
func (l *list) optional() {
	i := len(l.steps) - 1
	l.steps[i].next = to(i + 2)
	l.steps[i].fail = to(i + 1)
	l.call("note", unix.SYS_WRITE, ctlFD, num(uint64(failureAddr)), recordSize)
}

// result puts the result of step from where step index to has its argument n.
func (l *list) result(from, to, n int) {
	l.steps[from].store = value{kind: inStep, n: uint64(to), word: 1 + n}
}

func (l *list) value(a any) value {
	switch v := a.(type) {
	case value:
		return v
	case int:
		return num(v)
	case uint64:
		return num(v)
	case uintptr:
		return num(v)
	case string:
		return l.bytes(append([]byte(v), 0))
	case []byte:
		return l.bytes(v)
	}
	panic(fmt.Sprintf("namespace: a step cannot take a %T", a))
}

// bytes puts b into the data, aligned to 8, and returns its address.
func (l *list) bytes(b []byte) value {
	for len(l.data)%8 != 0 {
		l.data = append(l.data, 0)
	}
	at := len(l.data)
	l.data = append(l.data, b...)
	return value{kind: inData, n: uint64(at)}
}

// structure puts 8-byte words, numbers and addresses, into the data and returns its address.
func (l *list) structure(v ...value) value {
	at := l.bytes(make([]byte, 8*len(v)))
	for i, w := range v {
		l.words = append(l.words, word{at: int(at.n) + 8*i, value: w})
	}
	return at
}

// record puts an empty record of a kind into the data.
func (l *list) record(kind uint64) value {
	rec := l.structure(num(kind), num(0), num(0), num(0))
	l.bytes(make([]byte, recordSize-32))
	return rec
}

// word is 8 bytes of the data that hold an address, which is known when the list is linked.
type word struct {
	at    int
	value value
}

// strings puts a NULL-terminated array of strings into the data, as execve takes it.
func (l *list) strings(ss []string) value {
	var v []value
	for _, s := range ss {
		v = append(v, l.value(s))
	}
	return l.structure(append(v, num(0))...)
}

// link lays the list out at base: steps first, so that base is where it starts.
func (l *list) link(base uint64) []byte {
	dataAt := base + uint64(len(l.steps))*stepSize
	addr := func(v value) uint64 {
		switch v.kind {
		case inData:
			return dataAt + v.n
		case inStep:
			return base + v.n*stepSize + uint64(v.word)*8
		}
		return v.n
	}
	for _, w := range l.words {
		binary.LittleEndian.PutUint64(l.data[w.at:], addr(w.value))
	}
	goTo := func(t target, otherwise uint64) uint64 {
		switch {
		case !t.set:
			return otherwise
		case t.address != 0:
			return t.address
		}
		return base + uint64(t.index)*stepSize
	}
	var out []byte
	put := func(n uint64) { out = binary.LittleEndian.AppendUint64(out, n) }
	for i, s := range l.steps {
		after := base + uint64(i+1)*stepSize
		put(uint64(s.nr))
		for _, a := range s.args {
			put(addr(a))
		}
		put(addr(s.store))
		put(addr(s.equal))
		put(goTo(s.same, after))
		put(goTo(s.next, after))
		put(goTo(s.fail, goTo(l.die, dieAddr)))
	}
	return append(out, l.data...)
}
