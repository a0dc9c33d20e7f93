//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/seccomp"
	"waldo/internal/testing/sandboxtest"
)

// TestHold: only the command's own process, by its first thread, is held.
func TestHold(t *testing.T) {
	p := sandboxtest.Profile()
	p.Prestart = &sandbox.Prestart{Argv: []string{"cat"}, Env: []string{"PATH=/usr/bin:/bin"}, Prelude: "x"}
	b := warmed(t, p)
	if !b.host.Pids() {
		t.Log("nothing counts processes here: nothing is ever held")
		return
	}
	r := &run{sandbox: b, leader: b.waiting.leader}
	if r.leader == 0 {
		t.Fatal("the command's process is not known")
	}
	if r.ends(r.leader+1, 0) {
		t.Error("another process was held")
	}
	if !r.ends(r.leader, 3) {
		t.Error("control: the command was not held")
	}
	if e := r.held.Load(); e == nil || e.status.ExitStatus() != 3 || !e.reported {
		t.Errorf("held with %+v", e)
	}
}

// TestAskedEnd: a command that asks for its end with EndSignal ends there, with that status. It never runs on, even
// if its sandbox is used again. Other processes cannot end it so.
func TestAskedEnd(t *testing.T) {
	p := sandboxtest.Profile()
	env := []string{"PATH=/usr/bin:/bin"}
	p.Prestart = &sandbox.Prestart{Argv: []string{"python3", "-I", "-S", "-c",
		"import sys\nsys.stdin.readline()\nexec(sys.stdin.read())"}, Env: env, Prelude: "head\n"}
	number := int64(seccomp.EndSignal|3) - 1<<32 // as a C int
	for _, row := range []struct {
		why, who string
		warm     bool
		exit     int
		wrote    bool
	}{
		{"the command, which was waiting", "", true, 3, false},
		{"control: nobody listens for one that was not", "", false, 0, true},
		{"a child of it", "if os.fork():\n  os.wait(); open('/tmp/after', 'w'); sys.exit(5)\n", true, 5, true},
		{
			"a thread of it", "import threading\nt = threading.Thread(target=lambda: kill())\nt.start(); t.join(); " +
				"open('/tmp/after', 'w'); os._exit(6)\n", true, 6, true,
		},
	} {
		t.Run(row.why, func(t *testing.T) {
			one, err := New(Options{}).Start(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			defer one.Close()
			b := one.(*instance)
			if row.warm {
				if err := b.Warm(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if row.who == "" && !(b.host.Pids() && b.host.Memory() && b.host.Times()) { // no process is held here
				row.exit, row.wrote = 0, true
			}
			code := fmt.Sprintf("import os, sys\ndef kill():\n  try: os.kill(os.getpid(), %d)\n  except OSError: pass\n"+
				"%skill(); open('/tmp/after', 'w')", number, row.who)
			f, err := b.Run(context.Background(), sandbox.Command{Argv: p.Prestart.Argv, Env: env,
				Stdin: io.MultiReader(strings.NewReader(p.Prestart.Prelude), strings.NewReader(code))})
			if err != nil || f.ExitCode == nil || *f.ExitCode != row.exit {
				t.Fatalf("%v %+v", err, f)
			}
			if out := after(t, b); (out == "after\n") != row.wrote {
				t.Errorf("what ran on left %q", out)
			}
		})
	}
}

// TestAnotherThread: a thread of the job is not taken for one that was there before it and has ended.
func TestAnotherThread(t *testing.T) {
	p := sandboxtest.Profile()
	env := []string{"PATH=/usr/bin:/bin"}
	p.Prestart = &sandbox.Prestart{Argv: []string{"python3", "-I", "-S", "-c",
		"import sys, threading\ngo = threading.Event()\nold = threading.Thread(target=go.wait)\nold.start()\n" +
			"sys.stdin.readline()\nexec(sys.stdin.read())"}, Env: env, Prelude: "head\n"}
	for _, row := range []struct {
		why, code string
		held      bool
	}{
		{"control: the same thread", "", true},
		{
			"another", "import time; go.set(); old.join(); time.sleep(.05); threading.Thread(target=time.sleep, args=(60,), " +
				"daemon=True).start()\n", false,
		},
	} {
		b := warmed(t, p)
		f, err := b.Run(context.Background(), sandbox.Command{Argv: p.Prestart.Argv, Env: env,
			Stdin: io.MultiReader(strings.NewReader(p.Prestart.Prelude), strings.NewReader(row.code+"import os; os._exit(7)"))})
		if err != nil || f.ExitCode == nil || *f.ExitCode != 7 {
			t.Fatalf("%v %+v", err, f)
		}
		if b.held != row.held && b.host.Pids() && b.host.Memory() && b.host.Times() {
			t.Errorf("%s: held %v", row.why, b.held)
		}
	}
}

// TestSlowStart: what a command used before its job came does not shorten the job's processor time, nor change the name
// of what ended it.
func TestSlowStart(t *testing.T) {
	p := sandboxtest.Profile()
	p.Limits.CPU = time.Second
	env := []string{"PATH=/usr/bin:/bin"}
	p.Prestart = &sandbox.Prestart{Argv: []string{"python3", "-I", "-S", "-c",
		"import sys, time\nwhile time.process_time() < 1.7: pass\nsys.stdin.readline()\nexec(sys.stdin.read())"},
		Env: env, Prelude: "head\n"}
	b := warmed(t, p)
	f, err := b.Run(context.Background(), sandbox.Command{Argv: p.Prestart.Argv, Env: env,
		Stdin: io.MultiReader(strings.NewReader(p.Prestart.Prelude), strings.NewReader("while True: pass"))})
	if err != nil {
		t.Fatal(err)
	}
	if f.Status != facts.Timeout || f.Limit == nil || *f.Limit != facts.LimitCPU {
		t.Errorf("the job ended as %s, limit %v, signal %v after %.0f ms", f.Status, f.Limit, f.Signal, f.Usage.CPUMS)
	}
}

// TestThreadAfterTheEnd: the job makes a thread work that the interpreter had before the job. The thread stops when
// the run ends, though the command is held.
func TestThreadAfterTheEnd(t *testing.T) {
	p := sandboxtest.Profile()
	env := []string{"PATH=/usr/bin:/bin"}
	p.Prestart = &sandbox.Prestart{Argv: []string{"python3", "-I", "-S", "-c",
		"import sys, threading\ngo = threading.Event()\njob = None\ndef old():\n  go.wait()\n  job()\n" +
			"threading.Thread(target=old, daemon=True).start()\nsys.stdin.readline()\nexec(sys.stdin.read())"},
		Env: env, Prelude: "head\n"}
	b := warmed(t, p)
	const code = `
import ctypes, os
out = os.open("/workspace/output/more", os.O_CREAT | os.O_WRONLY)
def job():
  while True: os.pwrite(out, b"x", 0) # for ever: it fills nothing
go.set()
while not os.fstat(out).st_size: pass
ctypes.CDLL(None).syscall(%d, 7) # as os._exit, but others go on meanwhile
`
	c := sandbox.Command{Argv: p.Prestart.Argv, Env: env,
		Stdin: io.MultiReader(strings.NewReader(p.Prestart.Prelude),
			strings.NewReader(fmt.Sprintf(code, unix.SYS_EXIT_GROUP)))}
	f, err := b.Run(context.Background(), c)
	if err != nil || f.ExitCode == nil || *f.ExitCode != 7 {
		t.Fatalf("%v %+v", err, f)
	}
	if !b.held && b.host.Pids() && b.host.Memory() && b.host.Times() {
		t.Error("control: the command is not held")
	}
	written := func() int64 {
		for _, place := range b.places {
			var st unix.Stat_t
			if place.Target == "/workspace/output" && unix.Fstatat(int(place.Dir.Fd()), "more", &st, 0) == nil {
				return st.Mtim.Nano()
			}
		}
		return 0
	}
	before, later := written(), int64(-1)
	// a thread on another processor notices it later
	for end := time.Now().Add(10 * time.Second); before != later && time.Now().Before(end); {
		before = written()
		time.Sleep(300 * time.Millisecond)
		later = written()
	}
	if before == 0 || before != later {
		t.Errorf("it has last written at %d, and later at %d", before, later)
	}
	if out := after(t, b); out != "" {
		t.Errorf("the sandbox is not as it was: %q", out)
	}
}

// after lists what is in /tmp of a sandbox that has run a command.
func after(t *testing.T, b *instance) string {
	f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"ls", "/tmp"},
		Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	return f.Stdout
}

// TestFind: only the process that its PID 1 made first is a command that was not known.
func TestFind(t *testing.T) {
	c := exec.Command("unshare", "--user", "--pid", "--fork", "--mount-proc", "sh", "-c", "sleep 60 & sleep 61 & wait")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	var inner []int
	for end := time.Now().Add(time.Minute); len(inner) < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if init := procstat.Children(c.Process.Pid); len(init) == 1 {
			inner = procstat.Children(init[0])
			defer func() { p, _ := os.FindProcess(init[0]); _ = p.Kill() }()
		}
	}
	if len(inner) != 2 || procstat.NSPID(inner[0]) != 2 || procstat.NSPID(inner[1]) != 3 || procstat.NSPID(-1) != 0 {
		t.Fatalf("control: %v", inner)
	}
	for _, r := range []struct {
		pid    int
		forked bool
		found  bool
	}{{inner[0], true, true}, {inner[1], true, false}, {inner[0], false, false}, {os.Getpid(), true, false}} {
		one := &run{sandbox: &instance{forked: r.forked}}
		one.find(r.pid)
		if found := one.leader == r.pid && one.sandbox.leader != nil; found != r.found || one.leader != 0 != r.found {
			t.Errorf("%+v: %v", r, found)
		}
	}
}
