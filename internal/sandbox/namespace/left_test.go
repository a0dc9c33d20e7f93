//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"os"
	"testing"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/userns"
	"waldo/internal/testing/sandboxtest"
)

// TestNothingLeftOfFork: if a zygote has begun a sandbox that gets no cgroup, no process of it is left, not even a
// dead PID 1.
func TestNothingLeftOfFork(t *testing.T) {
	d := New(Options{MilliCPU: 1000})
	defer d.Close()
	p := sandboxtest.Profile()
	argv, head, err := guest.Start{Lang: guest.Python, Warm: true}.Command()
	if err != nil {
		t.Fatal(err)
	}
	p.Prestart = &sandbox.Prestart{Argv: append([]string{"/usr/bin/python3"}, argv...),
		Env: []string{"PATH=/usr/bin:/bin"}, Prelude: head, Zygote: guest.Start{Lang: guest.Python}.Zygote()}
	if err := d.Ready(context.Background(), p); err != nil {
		t.Fatal(err)
	}
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
