//go:build linux && (amd64 || arm64)

package namespace

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

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/machine"
)

// TestImage: the executable is one that the kernel takes, and no page of it is both writable and
// executable.
func TestImage(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(machine.Image(bootOf())))
	if err != nil {
		t.Fatal(err)
	}
	if f.Entry != codeBase+0x1000 || f.Type != elf.ET_EXEC || len(f.Progs) != 3 {
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
	if n := len(machine.Code()); n < 50 || n > 300 {
		t.Errorf("the machine has %d bytes", n)
	}
}

// TestSealed: nobody can change the program that every box starts from.
func TestSealed(t *testing.T) {
	f, err := machineFile()
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
	var l list
	first := l.Call("first", 1, "text", 7)
	l.Hint("what to do")
	second := l.Call("second", 2, 0)
	l.Result(first, second, 0)
	l.Steps[second].Equal, l.Steps[second].Same = l.Structure(machine.Num(5)), machine.To(first)
	l.Call("may fail", 3)
	l.optional()
	const base = 0x1000
	b := l.link(base)
	if got := wordAt(b, base, base+8); string(b[got-base:got-base+5]) != "text\x00" {
		t.Errorf("the text is not at %#x", got)
	}
	if got := wordAt(b, base, base+56); got != base+stepSize+8 {
		t.Errorf("the result goes to %#x", got)
	}
	if got := wordAt(b, base, base+stepSize+72); got != base {
		t.Errorf("same goes to %#x", got)
	}
	if got := wordAt(b, base, base+80); got != base+stepSize {
		t.Errorf("next goes to %#x", got)
	}
	if got := wordAt(b, base, base+88); got != dieAddr {
		t.Errorf("fail goes to %#x", got)
	}
	if next, fail := wordAt(b, base, base+2*stepSize+80), wordAt(b, base, base+2*stepSize+88); next != base+4*stepSize || fail != base+3*stepSize {
		t.Errorf("the optional step goes to %#x and %#x", next, fail)
	}
	err := l.failure(record{kind: recFailed, a: base, b: uint64(unix.EPERM)}, base)
	var h interface{ Hint() string }
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "first") || !errors.As(err, &h) || h.Hint() != "what to do" {
		t.Errorf("the failure says %q", err)
	}
	if err := l.failure(record{kind: recFailed, a: 5, b: 1}, base); !strings.Contains(err.Error(), "0x5") {
		t.Errorf("a failure from nowhere says %q", err)
	}
}

// FuzzRecord: whatever comes from a box, a record names a step of the list or none.
func FuzzRecord(f *testing.F) {
	f.Add(make([]byte, recordSize))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if (err == nil) != (len(b) == recordSize) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		var l list
		l.Call("only", 1)
		if i, ok := l.index(r, programBase); ok && (i != 0 || r.kind != recFailed) {
			t.Errorf("step %d of 1", i)
		}
		if l.failure(r, programBase) == nil {
			t.Error("a failure is no error")
		}
	})
}

// TestEndsUnheard: a machine whose waldo is gone while it prepares a box ends. PID 1 of a box has
// no default action of SIGPIPE, so here that is ignored.
func TestEndsUnheard(t *testing.T) {
	file, err := machineFile()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var l list
	ignored := append([]byte{1}, make([]byte, 31)...) // struct sigaction with SIG_IGN
	l.Call("ignore", unix.SYS_RT_SIGACTION, int(unix.SIGPIPE), ignored, 0, 8)
	l.Call("wait for the end", unix.SYS_RECVFROM, ctlFD, l.Bytes(make([]byte, 8)), 1, unix.MSG_WAITALL, 0, 0)
	l.Call("fail", unix.SYS_CHDIR, "/nowhere/at/all")
	s, err := spawn(file, os.Geteuid(), os.Getegid(), -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.send(l.link(programBase)); err != nil {
		t.Fatal(err)
	}
	s.ctl.Close()
	late := time.AfterFunc(5*time.Second, func() { _ = s.init.Kill() })
	defer late.Stop()
	state, err := s.init.Wait()
	if err != nil || state.ExitCode() != 253 {
		t.Errorf("%v %v, want an exit with 253", state, err)
	}
}

func TestWorse(t *testing.T) {
	for _, r := range []struct {
		why        string
		a, b, want error
	}{
		{"the first is taken", nil, unix.ENOENT, unix.ENOENT},
		{"that it may not be executed says more than that it is not there", unix.EACCES, unix.ENOENT, unix.EACCES},
		{"and does so later", unix.ENOENT, unix.EACCES, unix.EACCES},
		{"a folder in PATH that is a file says nothing", unix.ENOTDIR, unix.ENOEXEC, unix.ENOEXEC},
	} {
		if got := worse(r.a, r.b); got != r.want {
			t.Errorf("%s: %v", r.why, got)
		}
	}
}

// TestKindOf: only what runs in this machine's own root, by its path, is forked, and nobody's from
// what another's is forked from.
func TestKindOf(t *testing.T) {
	profile := func(harm func(p *sandbox.Profile)) sandbox.Profile {
		p := sandbox.Profile{Template: sandbox.Template{Name: "host"}, Ahead: &sandbox.Ahead{Argv: []string{"/usr/bin/python3"}, Zygote: "head", Domain: "a"}}
		harm(&p)
		return p
	}
	own, ok := kindOf(profile(func(*sandbox.Profile) {}))
	if !ok {
		t.Fatal("control: what can be forked is not")
	}
	for _, r := range []struct {
		why  string
		ok   bool
		harm func(p *sandbox.Profile)
	}{
		{"another root", false, func(p *sandbox.Profile) { p.Template = sandbox.Template{Name: "own", Dir: "/srv/own"} }},
		{"a program that is looked for", false, func(p *sandbox.Profile) { p.Ahead.Argv[0] = "python3" }},
		{"no arguments", false, func(p *sandbox.Profile) { p.Ahead.Argv = nil }},
		{"no word of a zygote", false, func(p *sandbox.Profile) { p.Ahead.Zygote = "" }},
		{"no command ahead", false, func(p *sandbox.Profile) { p.Ahead = nil }},
		{"another domain", true, func(p *sandbox.Profile) { p.Ahead.Domain = "b" }},
		{"another program", true, func(p *sandbox.Profile) { p.Ahead.Argv = append(p.Ahead.Argv, "-v") }},
	} {
		if k, ok := kindOf(profile(r.harm)); ok != r.ok || k == own {
			t.Errorf("%s: %v %+v", r.why, ok, k)
		}
	}
}
