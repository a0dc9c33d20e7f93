//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// fake is a machine made of folders: its proc, its hierarchies, and which of its files we may write.
type fake struct {
	t      *testing.T
	dir    string
	closed map[string]bool // files that cannot be written
	busy   map[string]int  // how often removing a folder says EBUSY
}

func newFake(t *testing.T, mountinfo, self string) *fake {
	f := &fake{t: t, dir: t.TempDir(), closed: map[string]bool{}, busy: map[string]int{}}
	pid := fmt.Sprint(os.Getpid())
	f.file("proc/self/mountinfo", strings.ReplaceAll(mountinfo, "@", f.dir))
	f.file("proc/self/cgroup", self)
	f.file("proc/"+pid+"/stat", pid+" (a) b) S "+strings.Repeat("0 ", 18)+"777 0 0")
	if err := os.MkdirAll(f.path("proc/self/ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.file("proc/sys/kernel/random/boot_id", "this start of the machine\n")
	if err := os.Symlink("pid:[42]", f.path("proc/self/ns/pid")); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fake) path(p string) string { return filepath.Join(f.dir, p) }

func (f *fake) file(p, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(p)), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path(p), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// detect detects, on a kernel that makes the named files in every new group.
func (f *fake) detect(files ...string) *Host {
	f.t.Helper()
	h, err := detect(system{
		proc: f.path("proc"),
		mkdir: func(p string) error {
			if err := unix.Mkdir(p, 0o755); err != nil {
				return err
			}
			for _, name := range append(files, "cgroup.procs", "tasks") {
				if err := os.WriteFile(filepath.Join(p, name), nil, 0o644); err != nil {
					return err
				}
			}
			return nil
		},
		rmdir: func(p string) error {
			if f.busy[p]--; f.busy[p] >= 0 {
				return unix.EBUSY
			}
			if _, err := os.Stat(p); err != nil {
				return unix.ENOENT
			}
			return os.RemoveAll(p)
		},
		write: writeExisting,
		may: func(p string) bool {
			_, err := os.Stat(p)
			return err == nil && !f.closed[strings.TrimPrefix(p, f.dir+"/")]
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

const only2 = "30 23 0:26 / @/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

var files2 = []string{"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.kill"}

// user makes the tree of a systemd user session: app.slice belongs to the user, the folders above it do not.
func user(t *testing.T, enabled string) *fake {
	f := newFake(t, only2, "0::/user.slice/user@1000.service/app.slice/term.scope\n")
	f.file("cg/cgroup.controllers", "cpuset cpu io memory pids")
	for _, d := range []string{"cg", "cg/user.slice", "cg/user.slice/user@1000.service",
		"cg/user.slice/user@1000.service/app.slice"} {
		f.file(d+"/cgroup.subtree_control", enabled)
		f.file(d+"/cgroup.procs", "")
	}
	f.file("cg/user.slice/user@1000.service/app.slice/term.scope/cgroup.subtree_control", "")
	f.file("cg/user.slice/user@1000.service/app.slice/term.scope/cgroup.procs", fmt.Sprint(os.Getpid()))
	f.closed["cg"], f.closed["cg/user.slice"] = true, true
	return f
}

func TestVersion2(t *testing.T) {
	f := user(t, "cpu memory pids")
	h := f.detect(files2...)
	base := f.path("cg/user.slice/user@1000.service/app.slice")
	if h.unified != base || h.has(memory) != 2 || !h.Pids() || !h.CPUs() || !h.Times() || !h.Kills() {
		t.Fatalf("found %q with %q: %q", h.unified, h.in2, h.why)
	}
	g, err := h.New("s_abc", Limits{Memory: 1 << 20, Pids: 7, MilliCPU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, h.names.prefix(fmt.Sprint(os.Getpid()), "777")+"s_abc")
	for file, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "memory.oom.group": "1",
		"pids.max": "7", "cpu.max": "150000 100000", "cgroup.kill": ""} {
		if got := read(dir, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	if g.CloneFD < 0 || g.UnifiedFD < 0 || len(g.JoinFDs) != 0 {
		t.Errorf("descriptors %d %d %v", g.CloneFD, g.UnifiedFD, g.JoinFDs)
	}
	for file, text := range map[string]string{"cpu.stat": "usage_usec 1500\nuser_usec 1", "memory.peak": "4096\n", "memory.current": "1024\n",
		"memory.events": "low 0\noom 1\noom_kill 2\n", "pids.peak": "3", "pids.events": "max 4\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if u := g.Usage(); u != (Usage{1500000, 4096, 3, 2, 4}) {
		t.Errorf("usage %+v", u)
	}
	if u := g.Spent(); u != (sandbox.Use{CPU: 1500000, Memory: 1024, Peak: 4096}) {
		t.Errorf("spent %+v", u)
	}
	if err := g.Kill(); err != nil || read(dir, "cgroup.kill") != "1" {
		t.Errorf("kill: %v, cgroup.kill %q", err, read(dir, "cgroup.kill"))
	}
	f.busy[dir] = 3
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the group is still there")
	}
	if err := g.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestVersion2Short(t *testing.T) {
	f := user(t, "cpu") // no memory and pids for groups beneath
	h := f.detect("cgroup.kill")
	if h.Memory() || h.Pids() || !h.Kills() || !h.Times() {
		t.Errorf("without controllers: %+v", h)
	}
	r := h.Report()
	if r[0].OK || !strings.Contains(r[0].Hint, "Delegate=yes") || !strings.Contains(r[0].Hint, "subtree_control") {
		t.Errorf("report: %+v", r[0])
	}
	f = user(t, "cpu memory pids")
	for _, d := range []string{"", "/app.slice", "/app.slice/term.scope"} {
		f.closed["cg/user.slice/user@1000.service"+d] = true
	}
	h = f.detect(files2...)
	if h.unified != "" || h.Memory() || h.Kills() {
		t.Errorf("nothing may be written: %+v", h)
	}
	if g, err := h.New("x", Limits{Memory: 1, Pids: 1}); err != nil || g.CloneFD != -1 {
		t.Errorf("a group of nothing: %+v, %v", g, err)
	}
}

func TestVersion1CPUMountedTwice(t *testing.T) {
	f := newFake(t, "1 2 0:1 / @/m rw - cgroup cgroup rw,memory\n1 2 0:1 / @/c rw - cgroup cgroup rw,cpu,cpuacct\n"+
		"1 2 0:1 /docker/x @/p rw - cgroup cgroup rw,pids\n",
		"3:memory:/own\n2:cpu,cpuacct:/\n1:pids:/docker/x/y\n")
	for _, d := range []string{"m/own", "c", "p/y"} {
		f.file(d+"/cgroup.procs", "")
	}
	h := f.detect("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max", "cpu.cfs_quota_us",
		"cpu.cfs_period_us")
	if h.v1[memory] != f.path("m/own") || h.v1[pids] != f.path("p/y") || h.v1[cpu] != f.path("c") || !h.Times() {
		t.Fatalf("found %v", h.v1)
	}
	g, err := h.New("a", Limits{Memory: 4096, Pids: 2, MilliCPU: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(g.JoinFDs) != 3 || g.CloneFD != -1 {
		t.Errorf("descriptors %d, %v", g.CloneFD, g.JoinFDs)
	}
	if got := read(g.v1[cpu], "cpu.cfs_quota_us"); got != "1000" {
		t.Errorf("quota %q, want the kernel's least", got)
	}
	if got := read(g.v1[memory], "memory.memsw.limit_in_bytes"); got != "4096" {
		t.Errorf("with swap %q", got)
	}
	if err := g.Kill(); err != nil || read(g.v1[pids], "pids.max") != "0" {
		t.Errorf("kill without cgroup.kill: %v, pids.max %q: forks outrun it", err, read(g.v1[pids], "pids.max"))
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	left, _ := filepath.Glob(f.path("*/*/waldo-*"))
	left2, _ := filepath.Glob(f.path("*/waldo-*"))
	if len(left)+len(left2) > 0 {
		t.Errorf("left: %q %q", left, left2)
	}
}

func TestNewRefuses(t *testing.T) {
	f := user(t, "cpu memory pids")
	h := f.detect(files2...)
	rows := []struct {
		why, id string
		l       Limits
	}{
		{"no memory limit", "a", Limits{Pids: 1}},
		{"no pids limit", "a", Limits{Memory: 1}},
		{"less than no processor", "a", Limits{Memory: 1, Pids: 1, MilliCPU: -1}},
		{"no id", "", Limits{Memory: 1, Pids: 1}},
		{"a path for an id", "../x", Limits{Memory: 1, Pids: 1}},
		{"a long id", strings.Repeat("a", 65), Limits{Memory: 1, Pids: 1}},
	}
	for _, r := range rows {
		if _, err := h.New(r.id, r.l); err == nil {
			t.Errorf("%s: taken", r.why)
		}
	}
	// A group whose limit cannot be set is removed.
	h = f.detect("memory.max", "cgroup.kill") // no pids.max
	if _, err := h.New("a", Limits{Memory: 1, Pids: 1}); err == nil {
		t.Error("a group without pids.max is taken")
	}
	if es, _ := filepath.Glob(h.unified + "/waldo-*"); len(es) > 0 {
		t.Errorf("left: %q", es)
	}
}

func TestSweepTakesOnlyTheDead(t *testing.T) {
	f := user(t, "cpu memory pids")
	h := f.detect(files2...)
	f.file("proc/99999/stat", "99999 (x) S "+strings.Repeat("0 ", 18)+"500 0")
	elsewhere := h.names
	elsewhere.space = "pid:[43]"
	dead := h.names.prefix("99997", "1")
	rows := []struct {
		why, name string
		gone      bool
	}{
		{"of a process that is no more", dead + "s_a", true},
		{"of a process whose number is used again", h.names.prefix("99999", "499") + "s_a", true},
		{"of a process that lives", h.names.prefix("99999", "500") + "s_a", false},
		{"of ourselves", h.prefix + "s_a", false},
		{"of another pid namespace", elsewhere.prefix("99997", "1") + "s_a", false},
		{"of somebody else", "docker-abc", false},
		{"of somebody with half our name", strings.TrimSuffix(dead, "-") + "0-s_a", false},
		{"with an id we do not make", dead + "S.a", false},
		{"of somebody with our first word alone", "waldo", false},
		{"of somebody with another first word", "other" + strings.TrimPrefix(dead, "waldo") + "s_a", false},
	}
	for _, r := range rows {
		if err := os.Mkdir(filepath.Join(h.unified, r.name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.file("proc/99998/stat", "garbage")
	if names, err := h.Sweep(); err == nil || len(names) > 0 {
		t.Errorf("with a process that cannot be looked at: %q %v", names, err)
	}
	if err := os.RemoveAll(f.path("proc/99998")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if _, err := os.Stat(filepath.Join(h.unified, r.name)); (err != nil) != r.gone {
			t.Errorf("%s: gone %v, want %v", r.why, err != nil, r.gone)
		}
	}
}

// TestEndOne: a process that is on the list of a group is ended. This process is not, nor one that has left the list
// meanwhile: its number may be a stranger's by then.
func TestEndOne(t *testing.T) {
	dir := t.TempDir()
	for _, row := range []struct {
		list func(pid string) string
		gone bool
	}{{func(string) string { return "1\n" }, false}, {func(pid string) string { return "1\n" + pid + "\n" }, true}} {
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pid := strconv.Itoa(c.Process.Pid)
		self := strconv.Itoa(os.Getpid())
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(self+"\n"+row.list(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		for _, one := range []string{pid, self, "0", "-1", "x"} {
			endOne(dir, one)
		}
		wait := 200 * time.Millisecond
		if row.gone {
			wait = time.Minute
		}
		select {
		case <-ended:
			if !row.gone {
				t.Error("a process that is not on the list was ended")
			}
			continue
		case <-time.After(wait):
			if row.gone {
				t.Error("a process of the list was not ended")
			}
		}
		_ = c.Process.Kill()
		<-ended
	}
}

// TestForbidsBeforeItKills: without cgroup.kill, a group may have no new process before the first of it is ended. The
// control is a group with cgroup.kill, which needs no such bound.
func TestForbidsBeforeItKills(t *testing.T) {
	for _, files := range [][]string{{"pids.max", "cgroup.kill"}, {"pids.max"}} {
		f := newFake(t, only2, "0::/\n")
		dir := f.path("cg/group")
		for _, name := range files {
			f.file("cg/group/"+name, "9")
		}
		c := exec.Command("sleep", "600")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		f.file("cg/group/cgroup.procs", fmt.Sprintln(c.Process.Pid))
		bound := make(chan string, 1)
		go func() {
			_ = c.Wait()
			bound <- read(dir, "pids.max")
			_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o600)
		}()
		h := &Host{sys: system{write: writeExisting}}
		if err := h.kill([]string{dir}); err != nil {
			t.Fatal(err)
		}
		if len(files) > 1 {
			if got := read(dir, "cgroup.kill") + " " + read(dir, "pids.max"); got != "1 9" {
				t.Errorf("control: %q", got)
			}
			_ = c.Process.Kill()
			<-bound
		} else if got := <-bound; got != "0" {
			t.Errorf("when its process ended the group could have %s processes", got)
		}
	}
}

// TestFreezeTakesAll: a group with a process outside the version 2 group is not reported as frozen. Freeze does
// not wait for ever if processes are made faster than they can be moved.
func TestFreezeTakesAll(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	group := func(in string, join int) *Group { // a group whose processes never move
		put("two/cgroup.procs", in)
		fd, err := unix.Open(os.DevNull, join|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return &Group{h: &Host{unified: dir, sys: system{write: writeExisting}}, unified: dir + "/two", moving: true,
			v1: map[string]string{pids: dir + "/one"}, CloneFD: -1, UnifiedFD: fd}
	}
	for _, d := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put("one/cgroup.procs", "7\n9\n")
	put("two/cgroup.freeze", "")
	put("two/cgroup.events", "populated 1\nfrozen 1\n")
	if err := group("9\n8\n7\n", unix.O_WRONLY).Freeze(true); err != nil {
		t.Errorf("control: %v", err)
	}
	closed := group("7\n", unix.O_RDONLY)
	for range 2 {
		if err := closed.Freeze(false); !errors.Is(err, unix.EBADF) {
			t.Errorf("one process cannot join: %v", err)
		}
	}
	began := time.Now()
	if err := group("7\n", unix.O_WRONLY).Freeze(false); err == nil ||
		!strings.Contains(err.Error(), "faster than they can be stopped") || time.Since(began) > 10*inVain {
		t.Errorf("one process is missing: %v after %v", err, time.Since(began))
	}
	if read(dir, "two/cgroup.freeze") != "1" { // of the control
		t.Error("the group was written to")
	}
}

func TestParse(t *testing.T) {
	m := parseMounts([]byte("31 23 0:28 / /sys/fs/cg\\040x rw - cgroup cgroup rw,cpu,cpuacct\nnonsense\n" +
		"1 2 3 4 - cgroup2\n"))
	if len(m) != 1 || m[0].point != "/sys/fs/cg x" || !slices.Contains(m[0].controllers, "cpuacct") {
		t.Errorf("%+v", m)
	}
	rows := []struct{ why, root, group, want string }{
		{"the whole hierarchy is shown", "/", "/a/b", "/cg/a/b"},
		{"a part is shown", "/a", "/a/b", "/cg/b"},
		{"we are outside what is shown", "/a", "/c", "/cg"},
		{"we are above our namespace", "/", "/../..", "/cg"},
		{"a name that only begins alike", "/a", "/ab", "/cg"},
	}
	for _, r := range rows {
		if got := (mount{root: r.root, point: "/cg"}).path(r.group); got != r.want {
			t.Errorf("%s: %q, want %q", r.why, got, r.want)
		}
	}
}

// FuzzMounts states: for every mountinfo and every own cgroup, the group lies beneath the mount.
func FuzzMounts(f *testing.F) {
	f.Add("31 23 0:28 /a /sys/fs/cgroup rw - cgroup2 x rw", "/a/../../b")
	f.Add("31 23 0:28 /.. /c\\057.. rw - cgroup x memory", "/..")
	f.Fuzz(func(t *testing.T, info, group string) {
		for _, m := range parseMounts([]byte(info)) {
			if m.point == "" || m.point[0] != '/' || m.root == "" || m.root[0] != '/' {
				continue // the kernel writes absolute paths
			}
			got, top := m.path("/"+group), filepath.Clean(m.point)
			if got != m.point && got != top && !strings.HasPrefix(got, strings.TrimSuffix(top, "/")+"/") {
				t.Errorf("%q in %+v is %q", group, m, got)
			}
		}
	})
}

// TestNamesTellNothing: the name of a group tells neither the process that made it nor its start, also to one who can
// try all numbers.
func TestNamesTellNothing(t *testing.T) {
	h := user(t, "cpu memory pids").detect(files2...)
	pid := fmt.Sprint(os.Getpid())
	guessed := naming{space: h.names.space}
	if h.prefix != h.names.prefix(pid, "777") || h.prefix == guessed.prefix(pid, "777") {
		t.Errorf("%q follows from the number and the start alone", h.prefix)
	}
}
