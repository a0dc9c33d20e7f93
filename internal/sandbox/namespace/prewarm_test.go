//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/mount"
	"waldo/internal/sandbox/prewarm"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/zygote"
	"waldo/internal/testing/sandboxtest"
)

// ready returns the inits that are ready, oldest first.
func ready(s *prewarm.Keep[*zygote.Zygote, *prewarmed]) (all []*prewarmed) {
	for _, one := range s.All() {
		all = append(all, one)
	}
	return all
}

// waitPrewarmed waits until n are ready.
func waitPrewarmed(t *testing.T, s *prewarm.Keep[*zygote.Zygote, *prewarmed], n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got := len(ready(s))
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d ready are ready, not %d", got, n)
		}
	}
}

// TestPrewarm: a sandbox of a prewarmed init is separate and complete. An init that died is not used, and none is
// left when the driver is closed.
func TestPrewarm(t *testing.T) {
	d := New(Options{MilliCPU: 1000, Prewarm: 2})
	one := func() (string, int) {
		b, err := d.Start(context.Background(), sandboxtest.Profile())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		own := b.(*instance)
		var out strings.Builder
		f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"/bin/sh", "-c",
			"readlink /proc/self/ns/net /proc/self/ns/user /proc/self/ns/pid; id -u; cat /proc/self/cgroup | grep -v :/$"},
			Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out})
		if err != nil || f.Stderr != "" || f.Usage.CPUMS <= 0 || f.Usage.MemoryPeak <= 0 && own.host.Memory() {
			t.Fatalf("%v %q %+v", err, f.Stderr, f.Usage)
		}
		return out.String(), own.init.Pid
	}
	before, _ := one()
	lines := strings.Split(strings.TrimSpace(before), "\n")
	if len(lines) != 4 || lines[3] != "1000" {
		t.Fatalf("control: a sandbox from nothing: %q", lines)
	}
	waitPrewarmed(t, d.ready, 2)
	pid := ready(d.ready)[1].stage.Init.Pid // the youngest goes first
	seen := map[string]bool{before: true}
	if out, init := one(); init != pid || seen[out] {
		t.Errorf("the sandbox is not the prewarmed's: %d, %d, %q", init, pid, out)
	} else {
		seen[out] = true
	}
	waitPrewarmed(t, d.ready, 2)
	if out, _ := one(); seen[out] {
		t.Errorf("two sandboxes in the same namespaces: %q", out)
	}
	waitPrewarmed(t, d.ready, 2)
	second, first := ready(d.ready)[0].stage.Init.Pid, ready(d.ready)[1].stage
	if err := first.Init.Kill(); err != nil {
		t.Fatal(err)
	}
	for initproc.Silent(first.FD) == nil {
		time.Sleep(time.Millisecond)
	}
	if _, init := one(); init != second {
		t.Errorf("a prewarmed that had died was not passed over: %d, not %d", init, second)
	}
	waitPrewarmed(t, d.ready, 2)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if left := procstat.Children(os.Getpid()); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestPrewarmConformance holds sandboxes of prewarmed inits to the suite of every driver.
func TestPrewarmConformance(t *testing.T) {
	d := New(Options{MilliCPU: 1000, Prewarm: 4})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	sandboxtest.Run(t, steady{d, t, &atomic.Bool{}})
}

// steady has as many inits ready before and after each sandbox.
type steady struct {
	*Driver
	t     *testing.T
	asked *atomic.Bool // for a sandbox that is made of a prewarmed init
}

func (s steady) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	b, err := s.Driver.Start(ctx, p)
	if err == nil && p.Share == nil {
		s.asked.Store(true)
	}
	if s.asked.Load() { // also if a taken one was unusable
		waitPrewarmed(s.t, s.ready, s.options.Prewarm)
	}
	return b, err
}

// TestPlans: a program that was made is used again for a sandbox that is the same, and for no other.
func TestPlans(t *testing.T) {
	b := func(harm func(s *setup)) *setup {
		s := &setup{profile: sandboxtest.Profile(), uid: 1, gid: 2, files: 3, tasks: 1, firstTree: landlockFD + 1}
		s.profile.Tmpfs = append([]sandbox.Tmpfs(nil), s.profile.Tmpfs...)
		harm(s)
		return s
	}
	var p plans
	of := func(s *setup) *plan {
		t.Helper()
		one, err := p.of(s)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	same := of(b(func(*setup) {}))
	if of(b(func(*setup) {})) != same {
		t.Error("control: the same set-up has another program")
	}
	for i, harm := range []func(s *setup){
		func(s *setup) { s.uid = 3 }, func(s *setup) { s.gid = 3 }, func(s *setup) { s.mapped = true },
		func(s *setup) { s.forked = true },
		func(s *setup) { s.counted = true }, func(s *setup) { s.landlock = true }, func(s *setup) { s.files = 2 },
		func(s *setup) { s.tasks = 0 },
		func(s *setup) { s.profile.Network.Ports = []uint16{443} },
		func(s *setup) { s.profile.Limits.Disk++ }, func(s *setup) { s.profile.Limits.Inodes++ },
		func(s *setup) { s.profile.Tmpfs[0].Target += "x" }, func(s *setup) { s.profile.Tmpfs[0].Bytes++ },
		func(s *setup) { s.profile.Tmpfs[0].Inodes++ },
		func(s *setup) { s.profile.Template = sandbox.Template{Dir: "/srv"} },
		func(s *setup) { s.links = []mount.Link{{Name: "bin", Target: "usr/bin"}} },
		func(s *setup) {
			s.mounts = []shown{{lower: "/usr", target: "/workspace/input"}}
		},
		func(s *setup) { s.mounts = []shown{{lower: "/usr", parts: []part{{"bin", "/mnt", true}}}} },
		func(s *setup) { s.refused = map[string]unix.Errno{"/usr": unix.EINVAL} },
		func(s *setup) { s.profile.Tmpfs[0].Sealed = true },
	} {
		one := of(b(harm))
		if one == same {
			t.Errorf("%d: another set-up has the same program", i)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	folder := shown{lower: "/usr", target: "/shown"}
	seen := []string{b(func(*setup) {}).key(), b(func(s *setup) { s.mounts = []shown{folder} }).key()}
	for i, harm := range []func(m *shown){ // of a folder that both show
		func(m *shown) { m.writable = true }, func(m *shown) { m.writable, m.seals = true, []string{".git"} },
		func(m *shown) { m.writable, m.seals = true, []string{".git", "waldo.yaml"} },
		func(m *shown) { m.hidden = []string{".env"} },
		func(m *shown) { m.whole = true }, func(m *shown) { m.tree = null }, func(m *shown) { m.lower = "/etc" },
		func(m *shown) { m.target = "/other" }, func(m *shown) { m.parts = []part{{"bin", "/mnt", true}} },
		func(m *shown) { m.parts = []part{{"bin", "/mnt", false}} },
		func(m *shown) { m.parts = []part{{"lib", "/mnt", true}} },
	} {
		changed := folder
		harm(&changed)
		other := b(func(s *setup) { s.mounts = []shown{changed} }).key()
		if slices.Contains(seen, other) {
			t.Errorf("folder %d: another set-up has the same program", i)
		}
		seen = append(seen, other)
	}
	for i, harm := range []func(s *setup){
		func(s *setup) { s.joined = true }, func(s *setup) { s.joined, s.tree = true, true },
	} {
		other := b(harm).key()
		if slices.Contains(seen, other) {
			t.Errorf("shared %d: another set-up has the same program", i)
		}
		seen = append(seen, other)
	}
	own := sandbox.Template{Name: "own", Dir: "/srv", UID: 7, GID: 8}
	for _, root := range []sandbox.Template{
		own, {Name: "own", Dir: "/srv", UID: 7, GID: 9}, {Name: "own", Dir: "/srv", UID: 9, GID: 8},
	} {
		other := b(func(s *setup) { s.profile.Template = root }).key()
		if slices.Contains(seen, other) {
			t.Errorf("%+v: another set-up has the same program", root)
		}
		seen = append(seen, other)
	}
	if len(p.kept) > plansMost {
		t.Errorf("%d are kept", len(p.kept))
	}
	for i := range 2 * plansMost {
		of(b(func(s *setup) { s.profile.Limits.Disk = int64(i) }))
	}
	if len(p.kept) > plansMost {
		t.Errorf("%d are kept", len(p.kept))
	}
	old := of(b(func(*setup) {}))
	old.made = old.made.Add(-planAge)
	if of(b(func(*setup) {})) == old {
		t.Error("an old program is used")
	}
}

// TestJoin: a process that was not born in its sandbox's version 2 group is put there.
func TestJoin(t *testing.T) {
	d := New(Options{})
	host, err := d.cgroups()
	if err != nil {
		t.Fatal(err)
	}
	machine, err := d.machine()
	if err != nil {
		t.Fatal(err)
	}
	b := &instance{driver: d, host: host}
	if b.group, err = host.New(cgroup.NewID(), cgroup.Limits{Memory: unlimited, Pids: 8}); err != nil {
		t.Fatal(err)
	}
	if b.stage, err = initproc.Spawn(machine, os.Geteuid(), os.Getegid()); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	there := func() bool {
		own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", b.stage.Init.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(own), "0::/") && strings.Contains(string(own), "waldo-")
	}
	if b.group.UnifiedFD < 0 {
		t.Skip("this user may make no version 2 group here")
	}
	if there() {
		t.Fatal("control: it is in a group before it is put there")
	}
	if err := b.join(); err != nil || !there() {
		t.Errorf("it is not in its group: %v", err)
	}
}

// TestForkedPrewarm: a sandbox made from a zygote's init is forked, and from its own zygote only. Those of an ended
// zygote are not used.
func TestForkedPrewarm(t *testing.T) {
	d := New(Options{MilliCPU: 1000, Prewarm: 2})
	defer d.Close()
	profile := func(domain string) sandbox.Profile {
		p := sandboxtest.Profile()
		argv, head, err := guest.Start{Lang: guest.Python, Warm: true}.Command()
		if err != nil {
			t.Fatal(err)
		}
		p.Prestart = &sandbox.Prestart{Argv: append([]string{"/usr/bin/python3"}, argv...),
			Env: []string{"PATH=/usr/bin:/bin"}, Prelude: head, Zygote: guest.Start{Lang: guest.Python}.Zygote(), Domain: domain}
		return p
	}
	start := func(p sandbox.Profile) *instance {
		if err := d.Ready(context.Background(), p); err != nil {
			t.Fatal(err)
		}
		one, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		b := one.(*instance)
		t.Cleanup(func() { b.Close() })
		if !b.Forked() {
			t.Fatal("not forked")
		}
		return b
	}
	a, other := profile("a"), profile("b")
	first := start(a)
	waitPrewarmed(t, d.ready, 1)
	ahead := ready(d.ready)[0]
	if start(other).stage == ahead.stage {
		t.Error("a sandbox is made of what another domain's zygote made")
	}
	waitPrewarmed(t, d.ready, 2)
	second := start(a)
	if second.stage != ahead.stage {
		t.Error("control: the sandbox is not made of the prewarmed")
	}
	if second.uid == first.uid && os.Geteuid() == 0 {
		t.Error("two sandboxes belong to the same user")
	}
	if err := second.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitPrewarmed(t, d.ready, 2)
	k, _ := kindOf(a)
	if err := d.zygotes.Get(k).Close(); err != nil {
		t.Fatal(err)
	}
	start(other)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		old := false
		for from := range d.ready.All() {
			old = old || from != nil && !from.Usable()
		}
		if !old {
			return
		}
		if time.Now().After(end) {
			t.Fatal("what was made ahead of a zygote that has ended is still there")
		}
	}
}
