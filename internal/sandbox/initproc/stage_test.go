//go:build linux && (amd64 || arm64)

package initproc

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/initvm"
)

// TestImage: the executable is one that the kernel takes, and no page of it is both writable and
// executable.
func TestImage(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(initvm.Image(bootOf())))
	if err != nil {
		t.Fatal(err)
	}
	if f.Entry != CodeBase+0x1000 || f.Type != elf.ET_EXEC || len(f.Progs) != 3 {
		t.Errorf("entry %#x type %v programs %d", f.Entry, f.Type, len(f.Progs))
	}
	for _, p := range f.Progs {
		if p.Flags&elf.PF_W != 0 && p.Flags&elf.PF_X != 0 {
			t.Errorf("segment at %#x is writable and executable", p.Vaddr)
		}
		if p.Type == elf.PT_LOAD && p.Off%p.Align != p.Vaddr%p.Align {
			t.Errorf("segment at %#x is not congruent to its offset %#x", p.Vaddr, p.Off)
		}
	}
	if n := len(initvm.Code()); n < 50 || n > 300 {
		t.Errorf("the machine has %d bytes", n)
	}
}

// TestSealed: the program that every sandbox starts from cannot be changed.
func TestSealed(t *testing.T) {
	f, err := Machine()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: %v, want EPERM", err)
	}
	if err := f.Truncate(1); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate: %v, want EPERM", err)
	}
}

// wordAt reads 8 bytes of a linked list at an address.
func wordAt(b []byte, base, addr uint64) uint64 { return binary.LittleEndian.Uint64(b[addr-base:]) }

func TestLink(t *testing.T) {
	var l List
	first := l.Call("first", 1, "text", 7)
	l.Hint("what to do")
	second := l.Call("second", 2, 0)
	l.Result(first, second, 0)
	l.Steps[second].Equal, l.Steps[second].Same = l.Structure(initvm.Num(5)), initvm.To(first)
	l.Call("may fail", 3)
	l.Optional()
	const base = 0x1000
	b := l.LinkAt(base)
	if got := wordAt(b, base, base+8); string(b[got-base:got-base+5]) != "text\x00" {
		t.Errorf("the text is not at %#x", got)
	}
	if got := wordAt(b, base, base+56); got != base+StepSize+8 {
		t.Errorf("the result goes to %#x", got)
	}
	if got := wordAt(b, base, base+StepSize+72); got != base {
		t.Errorf("same goes to %#x", got)
	}
	if got := wordAt(b, base, base+80); got != base+StepSize {
		t.Errorf("next goes to %#x", got)
	}
	if got := wordAt(b, base, base+88); got != dieAddr {
		t.Errorf("fail goes to %#x", got)
	}
	if next, fail := wordAt(b, base, base+2*StepSize+80), wordAt(b, base, base+2*StepSize+88); next != base+4*StepSize ||
		fail != base+3*StepSize {
		t.Errorf("the optional step goes to %#x and %#x", next, fail)
	}
	err := l.Failure(Record{Kind: RecFailed, A: base, B: uint64(unix.EPERM)}, base)
	var h interface{ Hint() string }
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "first") || !errors.As(err, &h) ||
		h.Hint() != "what to do" {
		t.Errorf("the failure says %q", err)
	}
	if err := l.Failure(Record{Kind: RecFailed, A: 5, B: 1}, base); !strings.Contains(err.Error(), "0x5") {
		t.Errorf("a failure from nowhere says %q", err)
	}
}

// FuzzRecord: every record from a sandbox names a step of the list, or no step.
func FuzzRecord(f *testing.F) {
	f.Add(make([]byte, RecordSize))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if (err == nil) != (len(b) == RecordSize) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		var l List
		l.Call("only", 1)
		if i, ok := l.Index(r, ProgramBase); ok && (i != 0 || r.Kind != RecFailed) {
			t.Errorf("step %d of 1", i)
		}
		if l.Failure(r, ProgramBase) == nil {
			t.Error("a failure is no error")
		}
	})
}

// TestEndsUnheard: a machine whose waldo is gone while it prepares a sandbox ends. PID 1 of a sandbox has no
// default action of SIGPIPE, so here that is ignored.
func TestEndsUnheard(t *testing.T) {
	file, err := Machine()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var l List
	ignored := append([]byte{1}, make([]byte, 31)...) // struct sigaction with SIG_IGN
	l.Call("ignore", unix.SYS_RT_SIGACTION, int(unix.SIGPIPE), ignored, 0, 8)
	l.Call("wait for the end", unix.SYS_RECVFROM, CtlFD, l.Bytes(make([]byte, 8)), 1, unix.MSG_WAITALL, 0, 0)
	l.Call("fail", unix.SYS_CHDIR, "/nowhere/at/all")
	s, err := Spawn(file, os.Geteuid(), os.Getegid())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(l.LinkAt(ProgramBase)); err != nil {
		t.Fatal(err)
	}
	s.Ctl.Close()
	late := time.AfterFunc(time.Minute, func() { _ = s.Init.Kill() })
	defer late.Stop()
	state, err := s.Init.Wait()
	if err != nil || state.ExitCode() != 253 {
		t.Errorf("%v %v, want an exit with 253", state, err)
	}
}
