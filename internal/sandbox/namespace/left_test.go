//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/userns"
	"waldo/internal/testing/sandboxtest"
)

// withZygote returns a driver and a profile whose sandboxes it forks.
func withZygote(t *testing.T) (*Driver, sandbox.Profile) {
	t.Helper()
	d, p := New(Options{MilliCPU: 1000}), sandboxtest.Profile()
	t.Cleanup(func() { _ = d.Close() })
	argv, head, err := guest.Start{Lang: guest.Python, Warm: true}.Command()
	if err != nil {
		t.Fatal(err)
	}
	p.Prestart = &sandbox.Prestart{Argv: append([]string{"/usr/bin/python3"}, argv...),
		Env: []string{"PATH=/usr/bin:/bin"}, Prelude: head, Zygote: guest.Start{Lang: guest.Python}.Zygote()}
	if err := d.Ready(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	return d, p
}

// TestForkedSharesNothing: the first command of a forked sandbox begins with PID 1's memory, and does not run while PID
// 1 has it too. Here PID 1 leaves it for a program that never lets the command go on; in the control, for waldo's own.
func TestForkedSharesNothing(t *testing.T) {
	never := initproc.NewBoot()
	never.Entry = never.Call("wait for ever", unix.SYS_PPOLL, 0, 0, 0, 0, 0)
	image, err := initvm.File(initvm.Boot{Entry: initproc.BootBase + uint64(never.Entry)*initproc.StepSize,
		At: initproc.BootBase, Steps: never.LinkAt(initproc.BootBase), Failed: initproc.RecFailed,
		Room: initproc.MemoryEnd - initproc.DataBase})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	d, p := withZygote(t)
	for _, leaves := range []bool{true, false} {
		patience := time.Minute
		if !leaves {
			d.machine, patience = func() (*os.File, error) { return image, nil }, 3*time.Second
		}
		b, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		forked := b.(*instance)
		if err := forked.Warm(ctx); (err == nil) != leaves || !forked.Forked() {
			t.Errorf("PID 1 has left the memory: %v; forked: %v; the command: %v", leaves, forked.Forked(), err)
		}
		cancel()
		if command := procstat.Children(forked.init.Pid); len(command) != 1 {
			t.Errorf("control: PID 1 has made the processes %v", command)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingLeftOfFork: if a zygote has begun a sandbox that gets no cgroup, no process of it is left, not even a
// dead PID 1.
func TestNothingLeftOfFork(t *testing.T) {
	d, p := withZygote(t)
	k, _ := kindOf(p)
	z := d.zygotes.Get(k)
	host, err := d.cgroups()
	if z == nil || err != nil {
		t.Fatal(z, err)
	}
	before := len(procstat.Children(os.Getpid()))
	for _, l := range []cgroup.Limits{{Memory: 1 << 30, Pids: 8}, {}} {
		uid, gid, err := userns.OutsideIDs()
		if err != nil {
			t.Fatal(err)
		}
		s, g, _, err := begin(nil, host, z, uid, gid, l)
		if (err == nil) != (l.Pids > 0) {
			t.Fatalf("limits %+v: %v", l, err)
		}
		if err == nil { // control
			if err := s.HandOver(); err != nil || len(procstat.Children(os.Getpid())) != before+1 {
				t.Errorf("PID 1 is not there: %v", err)
			}
			_, _ = s.Close(), g.Close()
		}
		time.Sleep(100 * time.Millisecond) // a zygote that gets the message this late
		if left := len(procstat.Children(os.Getpid())) - before; left != 0 {
			t.Errorf("limits %+v: %d processes are left", l, left)
		}
	}
}
