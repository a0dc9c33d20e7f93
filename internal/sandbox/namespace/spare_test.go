//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/sandboxtest"
	"waldo/internal/sandbox/stage"
)

// waitSpares waits until n are ready.
func waitSpares(t *testing.T, s *spares, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		got := len(s.ready)
		s.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d spares are ready, not %d", got, n)
		}
	}
}

// TestSpares: a box made of a spare is one of its own, with what every box has; a spare that died is
// not used, and none is left when the driver is closed.
func TestSpares(t *testing.T) {
	d := New(Options{MilliCPU: 1000, Spares: 2})
	one := func() (string, int) {
		b, err := d.Start(context.Background(), sandboxtest.Profile())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		own := b.(*box)
		var out strings.Builder
		f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"/bin/sh", "-c", "readlink /proc/self/ns/net /proc/self/ns/user /proc/self/ns/pid; id -u; cat /proc/self/cgroup | grep -v :/$"}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out})
		if err != nil || f.Stderr != "" || f.Usage.CPUMS <= 0 || f.Usage.MemoryPeak <= 0 && own.host.Memory() {
			t.Fatalf("%v %q %+v", err, f.Stderr, f.Usage)
		}
		return out.String(), own.init.Pid
	}
	before, _ := one()
	lines := strings.Split(strings.TrimSpace(before), "\n")
	if len(lines) != 4 || lines[3] != "1000" {
		t.Fatalf("control: a box from nothing: %q", lines)
	}
	waitSpares(t, d.spares, 2)
	pid := d.spares.ready[0].stage.Init.Pid
	seen := map[string]bool{before: true}
	if out, init := one(); init != pid || seen[out] {
		t.Errorf("the box is not the spare's: %d, %d, %q", init, pid, out)
	} else {
		seen[out] = true
	}
	waitSpares(t, d.spares, 2)
	if out, _ := one(); seen[out] {
		t.Errorf("two boxes in the same namespaces: %q", out)
	}
	waitSpares(t, d.spares, 2)
	first, second := d.spares.ready[0].stage.Init, d.spares.ready[1].stage.Init.Pid
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	for stage.Silent(d.spares.ready[0].stage.FD) == nil {
		time.Sleep(time.Millisecond)
	}
	if _, init := one(); init != second {
		t.Errorf("a spare that had died was not passed over: %d, not %d", init, second)
	}
	waitSpares(t, d.spares, 2)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if left := common.Children(os.Getpid()); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSparesConformance holds boxes made of spares to the suite of every driver.
func TestSparesConformance(t *testing.T) {
	d := New(Options{MilliCPU: 1000, Spares: 4})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	sandboxtest.Run(t, steady{d, t})
}

// steady has as many spares before and after each box.
type steady struct {
	*Driver
	t *testing.T
}

func (s steady) Start(ctx context.Context, p sandbox.Profile) (sandbox.Box, error) {
	b, err := s.Driver.Start(ctx, p)
	s.spares.mu.Lock()
	asked := s.spares.making || len(s.spares.ready) > 0
	s.spares.mu.Unlock()
	if asked { // also where one was taken in vain
		waitSpares(s.t, s.spares, s.spares.most)
	}
	return b, err
}

// TestPlans: a program that was made is used again for a box that is the same, and for no other.
func TestPlans(t *testing.T) {
	b := func(harm func(s *setup)) *setup {
		s := &setup{profile: sandboxtest.Profile(), uid: 1, gid: 2, files: 3, tasks: 1, firstTree: landlockFD + 1}
		s.profile.Tmpfs = append([]sandbox.Tmpfs(nil), s.profile.Tmpfs...)
		harm(s)
		return s
	}
	var p plans
	same := p.of(b(func(*setup) {}))
	if p.of(b(func(*setup) {})) != same {
		t.Error("control: the same set-up has another program")
	}
	for i, harm := range []func(s *setup){
		func(s *setup) { s.uid = 3 }, func(s *setup) { s.gid = 3 }, func(s *setup) { s.mapped = true }, func(s *setup) { s.forked = true },
		func(s *setup) { s.counted = true }, func(s *setup) { s.landlock = true }, func(s *setup) { s.files = 2 }, func(s *setup) { s.tasks = 0 },
		func(s *setup) { s.profile.Hostname = "other" }, func(s *setup) { s.profile.Network.Ports = []uint16{443} },
		func(s *setup) { s.profile.Limits.Disk++ }, func(s *setup) { s.profile.Limits.Inodes++ },
		func(s *setup) { s.profile.Tmpfs[0].Target += "x" }, func(s *setup) { s.profile.Tmpfs[0].Bytes++ }, func(s *setup) { s.profile.Tmpfs[0].Inodes++ },
		func(s *setup) { s.profile.Template = sandbox.Template{Dir: "/srv"} }, func(s *setup) { s.links = []common.Link{{Name: "bin", Target: "usr/bin"}} },
		func(s *setup) {
			s.mounts = []shown{{Mount: sandbox.Mount{Source: "/usr", Target: "/workspace/input"}, folder: true}}
		},
	} {
		one := p.of(b(harm))
		if one == same {
			t.Errorf("%d: another set-up has the same program", i)
		}
	}
	if len(p.kept) > plansMost {
		t.Errorf("%d are kept", len(p.kept))
	}
	for i := range 2 * plansMost {
		p.of(b(func(s *setup) { s.profile.Hostname = fmt.Sprint(i) }))
	}
	if len(p.kept) > plansMost {
		t.Errorf("%d are kept", len(p.kept))
	}
	old := p.of(b(func(*setup) {}))
	old.made = old.made.Add(-planAge)
	if p.of(b(func(*setup) {})) == old {
		t.Error("an old program is used")
	}
}
