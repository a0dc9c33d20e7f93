//go:build linux

package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// here returns this machine's cgroups, if this user may bound memory and processes with them.
func here(t testing.TB) *Host {
	t.Helper()
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	if !h.Memory() || !h.Pids() {
		t.Skipf("this user has no cgroup with memory and pids here: %s", strings.Join(h.why, "; "))
	}
	return h
}

// inGroup runs a shell in the group: the shell joins before it becomes the command.
func inGroup(g *Group, script string) *exec.Cmd {
	join := ""
	cmd := exec.Command("sh")
	for _, fd := range g.JoinFDs {
		dup, err := syscall.Dup(fd)
		if err != nil {
			panic(err)
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(dup), "join"))
		join += "echo 0 >&" + string(rune('2'+len(cmd.ExtraFiles))) + "; "
	}
	if g.CloneFD >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.CloneFD}
	}
	cmd.Args = []string{"sh", "-c", join + script}
	return cmd
}

func group(t testing.TB, h *Host, l Limits) *Group {
	t.Helper()
	g, err := h.New("test", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestForkBombIsBounded(t *testing.T) {
	h := here(t)
	const bomb = `n=0; while [ $n -lt 60 ]; do sleep 2 & n=$((n+1)); done 2>/dev/null; wait`
	free := group(t, h, Limits{Memory: 256 << 20, Pids: 200})
	if err := inGroup(free, bomb).Run(); err != nil {
		t.Fatalf("control: %v", err)
	}
	if u := free.Usage(); u.PidsPeak < 60 || u.PidsDenied != 0 {
		t.Fatalf("control: %+v", u)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	g := group(t, h, Limits{Memory: 256 << 20, Pids: 20})
	_ = inGroup(g, bomb).Run()
	if u := g.Usage(); u.PidsPeak > 20 || u.PidsDenied == 0 {
		t.Errorf("bounded to 20: %+v", u)
	}
}

func TestMemoryBombIsKilled(t *testing.T) {
	h := here(t)
	const eat = `exec python3 -c 'b = bytearray(96 << 20); print(len(b))'`
	free := group(t, h, Limits{Memory: 256 << 20, Pids: 20})
	if out, err := inGroup(free, eat).Output(); err != nil || strings.TrimSpace(string(out)) != "100663296" {
		t.Fatalf("control: %q, %v", out, err)
	}
	if u := free.Usage(); u.MemoryPeak < 96<<20 || u.OOMKills != 0 || u.CPU <= 0 {
		t.Fatalf("control: %+v", u)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	g := group(t, h, Limits{Memory: 64 << 20, Pids: 20})
	err := inGroup(g, eat).Run()
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("over the limit: %v, want SIGKILL", err)
	}
	if u := g.Usage(); u.OOMKills != 1 || u.MemoryPeak > 64<<20 {
		t.Errorf("over the limit: %+v", u)
	}
}

func TestJoinByNumber(t *testing.T) {
	h := here(t)
	g := group(t, h, Limits{Memory: 64 << 20, Pids: 20})
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{g.dir(memory), g.dir(pids)} {
		if got := strings.TrimSpace(read(d, "cgroup.procs")); got != strconv.Itoa(cmd.Process.Pid) {
			t.Errorf("%s holds %q", d, got)
		}
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("after Kill: %v", err)
	}
	if err := g.Join(cmd.Process.Pid); err == nil {
		t.Error("a process that is no more joined")
	}
}

func TestProcessorsAreBounded(t *testing.T) {
	h := here(t)
	if !h.CPUs() || !h.Times() {
		t.Skip("no cpu controller for this user")
	}
	const spin = `timeout 1 sh -c 'while :; do :; done'; true`
	g := group(t, h, Limits{Memory: 64 << 20, Pids: 20, MilliCPU: 200})
	began := time.Now()
	if err := inGroup(g, spin).Run(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began) // more than a second where the machine is busy
	if u := g.Usage(); u.CPU > took*45/100 || u.CPU < 10*time.Millisecond {
		t.Errorf("a fifth of a processor for %v used %v", took, u.CPU)
	}
}

func TestKillReachesWhatRanAway(t *testing.T) {
	h := here(t)
	for _, by := range []string{"cgroup.kill", "the list"} {
		host := *h
		if by == "the list" {
			host.unified, host.in2 = "", nil // as on a machine without version 2
			if !host.Memory() || !host.Pids() {
				continue
			}
		}
		g := group(t, &host, Limits{Memory: 64 << 20, Pids: 50})
		cmd := inGroup(g,
			`for i in 1 2 3; do setsid sh -c 'trap "" TERM INT HUP; sleep 300 & sleep 300' & done; echo up; wait`)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); number(read(g.dir(pids), "pids.current")) < 10 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		if n := number(read(g.dir(pids), "pids.current")); n < 10 {
			t.Fatalf("control: %d processes", n)
		}
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, cmd)
		for end := time.Now().Add(time.Minute); read(g.dir(pids), "pids.current") != "0"; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("by %s: %s processes left", by, read(g.dir(pids), "pids.current"))
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestKillOutrunsForks lets chains of processes run, each of which lives only to make the next.
func TestKillOutrunsForks(t *testing.T) {
	host := *here(t)
	host.unified, host.in2 = "", nil // without cgroup.kill
	if !host.Memory() || !host.Pids() {
		t.Skip("this machine has only version 2, where cgroup.kill does it")
	}
	g := group(t, &host, Limits{Memory: 256 << 20, Pids: 30000} /* the dead count until they are reaped */)
	cmd := inGroup(g, `exec python3 -c 'import os
for i in range(16):
    if os.fork() == 0: break
else: os._exit(os.write(1, b"up") * 0)
while True:
    if os.fork(): os._exit(0)'`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, cmd)
	// A dead process leaves the list, reaped or not. A process that escaped continues to fork.
	for end := time.Now().Add(30 * time.Second); read(g.dir(pids), "cgroup.procs") !=
		""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("processes %q are left", read(g.dir(pids), "cgroup.procs"))
		}
	}
	gone(t, g)
}

// waitFor waits a little for a command that must end now.
func waitFor(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the command still runs")
		_ = cmd.Process.Kill()
	}
}

// gone waits until the machine's reaper has taken the dead.
func gone(t *testing.T, g *Group) {
	t.Helper()
	for end := time.Now().Add(time.Minute); read(g.dir(pids), "pids.current") != "0" && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

func TestCloseEndsWhatIsLeft(t *testing.T) {
	h := here(t)
	g, err := h.New("left", Limits{Memory: 64 << 20, Pids: 20})
	if err != nil {
		t.Fatal(err)
	}
	cmd := inGroup(g, "exec sleep 300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err == nil || err.Error() != "signal: killed" {
			t.Errorf("the process ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the process still runs")
		_ = cmd.Process.Kill()
	}
}

func TestSweepOnThisMachine(t *testing.T) {
	h := here(t)
	dead := *h
	dead.prefix = h.names.prefix("1", "1") // process 1 began at another tick
	g, err := dead.New("orphan", Limits{Memory: 64 << 20, Pids: 20})
	if err != nil {
		t.Fatal(err)
	}
	cmd := inGroup(g, "sleep 300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go cmd.Wait()
	live := group(t, h, Limits{Memory: 64 << 20, Pids: 20})
	names, err := h.Sweep()
	if err != nil || !slices.Contains(names, dead.prefix+"orphan") ||
		slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, h.prefix) }) {
		t.Errorf("swept %q, %v", names, err)
	}
	if live.dir(pids) == "" || read(live.dir(pids), "pids.max") != "20" {
		t.Error("our own group is gone")
	}
	for _, fd := range append(g.JoinFDs, g.CloneFD, g.UnifiedFD) {
		if fd >= 0 {
			syscall.Close(fd)
		}
	}
}

func TestNothingIsLeft(t *testing.T) {
	h := here(t)
	count := func() (n int) {
		for _, d := range []string{h.unified, h.v1[memory], h.v1[pids], h.v1[cpu]} {
			if d != "" {
				m, _ := filepath.Glob(d + "/" + h.prefix + "*")
				n += len(m)
			}
		}
		fds, _ := os.ReadDir("/proc/self/fd")
		return n*1000 + len(fds)
	}
	before := count()
	for range 50 {
		g, err := h.New("leak", Limits{Memory: 64 << 20, Pids: 20, MilliCPU: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if err := inGroup(g, "true").Run(); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// inGroup's copies of the descriptors are closed by their finalizers. So the test checks folders and a
	// generous number of descriptors only.
	if after := count(); after/1000 != before/1000 {
		t.Errorf("%d folders left", after/1000-before/1000)
	}
}

func TestReportHere(t *testing.T) {
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range h.Report() {
		if !a.OK && a.Hint == "" {
			t.Errorf("%s failed without a hint: %s", a.Name, a.What)
		}
		t.Logf("%-22s %v %s", a.Name, a.OK, a.What)
	}
	if (h.has(memory) > 0) != h.Report()[0].OK {
		t.Error("the report and the host differ on memory")
	}
}

func BenchmarkGroup(b *testing.B) {
	h := here(b)
	for b.Loop() {
		g, err := h.New("bench", Limits{Memory: 64 << 20, Pids: 20, MilliCPU: 1000})
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestForkedGroup: with version 1 controllers only, a process that was not born in its group is limited and
// counted without version 2. It can be frozen and ended all the same.
func TestForkedGroup(t *testing.T) {
	h := here(t)
	g, err := h.NewForked("forked", Limits{Memory: 64 << 20, Pids: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	if alone := h.has(memory) == 1 && h.has(pids) == 1 && h.has(cpu) == 1 &&
		h.v1[cpuacc] != ""; (g.unified == "") != (alone || h.unified == "") {
		t.Errorf("version 1 does everything: %v; the version 2 group is %q", alone, g.unified)
	}
	count := filepath.Join(t.TempDir(), "count")
	cmd := inGroup(g, "while :; do echo; done >"+count+" & while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	counted := func() int64 {
		info, err := os.Stat(count)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	for end := time.Now().Add(time.Minute); counted() == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if h.Times() && g.CPU() == 0 {
		t.Error("its processor time is not counted")
	}
	if h.unified != "" {
		if err := g.Freeze(true); err != nil {
			t.Fatal(err)
		}
		before, used := counted(), g.CPU()
		time.Sleep(100 * time.Millisecond)
		if after := counted(); after != before {
			t.Errorf("a stopped group counts from %d to %d", before, after)
		}
		if err := g.Freeze(false); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); counted() == before && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		if counted() == before {
			t.Error("control: a group that goes on does not")
		}
		if g.CPU() < used {
			t.Errorf("its processor time went back from %v to %v", used, g.CPU())
		}
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("after Kill: %v", err)
	}
}
