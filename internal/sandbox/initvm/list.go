//go:build linux && (amd64 || arm64)

package initvm

import (
	"encoding/binary"
	"fmt"
)

// Value is an argument of a step: a number, the address of some data, or the address of a field
// of a step, where the result of an earlier call is put.
type Value struct {
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

// Num is a number without relocation.
func Num[T ~int | ~int32 | ~uint32 | ~uint64 | ~uintptr](n T) Value { return Value{n: uint64(n)} }

// InStep is the address of a word of a step: 0 is the call's number, its arguments follow.
func InStep(index, word int) Value { return Value{kind: inStep, n: uint64(index), word: word} }

// Plus is the address that many bytes after that of some data.
func (v Value) Plus(off uint64) Value { return Value{kind: v.kind, n: v.n + off, word: v.word} }

// Target is the machine's next step: by index, or by address.
type Target struct {
	index   int
	address uint64
	set     bool
}

// To continues at a step.
func To(index int) Target { return Target{index: index, set: true} }

// At continues at an address.
func At(address uint64) Target { return Target{address: address, set: true} }

// Instr is one system call; its result is stored at Store. A call that fails goes to Fail. One whose result
// equals the word at Equal goes to Same. Any other goes to Next. An unset Fail goes to the list's Die; an unset
// Next or Same goes to the step after this one.
type Instr struct {
	Name, Hint       string
	NR               uintptr
	Args             [6]Value
	Store, Equal     Value
	Same, Next, Fail Target
}

// Program is a program for the machine: steps and the data that they point to.
type Program struct {
	Steps []Instr
	data  []byte
	words []word
	Entry int    // the step to start at
	Die   Target // where a failing step goes that says nothing else
}

// Add appends a step and returns its index.
func (l *Program) Add(s Instr) int {
	l.Steps = append(l.Steps, s)
	return len(l.Steps) - 1
}

// Call appends a system call that must succeed. Arguments are numbers, strings, bytes or values.
func (l *Program) Call(name string, nr uintptr, args ...any) int {
	s := Instr{Name: name, NR: nr}
	for i, a := range args {
		s.Args[i] = l.value(a)
	}
	return l.Add(s)
}

// Ignore appends a system call that may fail without anybody hearing of it.
func (l *Program) Ignore(name string, nr uintptr, args ...any) int {
	i := l.Call(name, nr, args...)
	l.Steps[i].Fail = To(i + 1)
	return i
}

// Hint tells a person what to do when the last step fails.
func (l *Program) Hint(s string) { l.Steps[len(l.Steps)-1].Hint = s }

// Result puts the result of step from where step index to has its argument n.
func (l *Program) Result(from, to, n int) {
	l.Steps[from].Store = Value{kind: inStep, n: uint64(to), word: 1 + n}
}

func (l *Program) value(a any) Value {
	switch v := a.(type) {
	case Value:
		return v
	case int:
		return Num(v)
	case uint64:
		return Num(v)
	case uintptr:
		return Num(v)
	case string:
		return l.Bytes(append([]byte(v), 0))
	case []byte:
		return l.Bytes(v)
	}
	panic(fmt.Sprintf("machine: a step cannot take a %T", a))
}

// Bytes puts b into the data, aligned to 8, and returns its address.
func (l *Program) Bytes(b []byte) Value {
	for len(l.data)%8 != 0 {
		l.data = append(l.data, 0)
	}
	at := len(l.data)
	l.data = append(l.data, b...)
	return Value{kind: inData, n: uint64(at)}
}

// Structure puts 8-byte words, numbers and addresses, into the data and returns its address.
func (l *Program) Structure(v ...Value) Value {
	at := l.Bytes(make([]byte, 8*len(v)))
	for i, w := range v {
		l.words = append(l.words, word{at: int(at.n) + 8*i, value: w})
	}
	return at
}

// word is 8 bytes of the data that hold an address, which is known when the list is linked.
type word struct {
	at    int
	value Value
}

// Strings puts a NULL-terminated array of strings into the data, as execve takes it.
func (l *Program) Strings(ss []string) Value {
	var v []Value
	for _, s := range ss {
		v = append(v, l.value(s))
	}
	return l.Structure(append(v, Num(0))...)
}

// StepSize is how many bytes a step takes.
const StepSize = 12 * 8

// Link lays the list out at base: steps first, so that base is where it starts. A step that fails and
// says nothing else goes to die.
func (l *Program) Link(base, die uint64) []byte {
	dataAt := base + uint64(len(l.Steps))*StepSize
	addr := func(v Value) uint64 {
		switch v.kind {
		case inData:
			return dataAt + v.n
		case inStep:
			return base + v.n*StepSize + uint64(v.word)*8
		}
		return v.n
	}
	for _, w := range l.words {
		binary.LittleEndian.PutUint64(l.data[w.at:], addr(w.value))
	}
	goTo := func(t Target, otherwise uint64) uint64 {
		switch {
		case !t.set:
			return otherwise
		case t.address != 0:
			return t.address
		}
		return base + uint64(t.index)*StepSize
	}
	var out []byte
	put := func(n uint64) { out = binary.LittleEndian.AppendUint64(out, n) }
	for i, s := range l.Steps {
		after := base + uint64(i+1)*StepSize
		put(uint64(s.NR))
		for _, a := range s.Args {
			put(addr(a))
		}
		put(addr(s.Store))
		put(addr(s.Equal))
		put(goTo(s.Same, after))
		put(goTo(s.Next, after))
		put(goTo(s.Fail, goTo(l.Die, die)))
	}
	return append(out, l.data...)
}
