//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/testing/sandboxtest"
)

// TestWholeProc: a session has processors and memory in /proc, as its limits are, and nothing else of the machine: what
// is not of processes is waldo's own text or empty, and cannot be written or uncovered. One control is a sandbox of code,
// which has no such names; the other is this machine, whose files are not empty.
func TestWholeProc(t *testing.T) {
	run := func(session bool, script string) string {
		p := sandboxtest.Profile()
		p.Terminals = session
		b, err := New(Options{}).Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		got, _ := shell(t, b, script)
		return got
	}
	const read = `cat /proc/cpuinfo /proc/meminfo /proc/stat /proc/sys/kernel/pid_max /proc/uptime; echo "own: $(cat /proc/self/comm)"`
	if got := run(false, read); strings.Contains(got, "MemTotal") || !strings.Contains(got, "No such file") {
		t.Errorf("control: %s", got)
	}
	got := run(true, read)
	for _, want := range []string{"processor\t: 0\n", "MemTotal:         524288 kB\n", "cpu0 0 ", "\n4194304\n", "own: cat"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	for _, name := range []string{"version", "vmstat", "sys/kernel/random/boot_id", "sys/kernel/hostname"} {
		if b, err := os.ReadFile("/proc/" + name); err != nil || len(b) == 0 {
			t.Errorf("control: %s: %v", name, err)
		}
	}
	const attack = `cd /proc; for f in $(find . -path './[0-9]*' -prune -o -path './self' -prune -o -path './thread-self' -prune -o -type f -size +0 -print |
sort); do echo "text $f"; done
for f in $(find . -path './[0-9]*' -prune -o -type f -print | grep -v -E '^./(self|thread-self)'); do [ -n "$(head -c1 $f | tr -d '\0')" ] && echo "reads $f"; done
for f in sys/kernel/pid_max cpuinfo sysrq-trigger version sys/new fs/new; do (echo 1 > $f) 2>/dev/null && echo "wrote $f"; done
for f in cpuinfo sys version; do umount $f 2>/dev/null && echo "uncovered $f"; mv $f x 2>/dev/null && echo "moved $f"; done; true`
	var want strings.Builder
	for _, kind := range []string{"text", "reads"} {
		for _, name := range []string{"cpuinfo", "loadavg", "meminfo", "stat", "sys/kernel/osrelease", "sys/kernel/ostype",
			"sys/kernel/overflowgid", "sys/kernel/overflowuid", "sys/kernel/pid_max", "sys/vm/overcommit_memory", "uptime"} {
			want.WriteString(kind + " ./" + name + "\n")
		}
	}
	got = run(true, strings.Replace(attack, "done\nfor f in sys", "done | sort\nfor f in sys", 1))
	if got != strings.TrimSpace(want.String()) {
		t.Errorf("got\n%s\nwant\n%s", got, want.String())
	}
}

// TestSessionProcessors: a session may use all processors, also where sandboxes are ready, as its /proc/cpuinfo says. The
// control is a sandbox of code, which has one.
func TestSessionProcessors(t *testing.T) {
	d := New(Options{MilliCPU: 1000, Prewarm: 1})
	defer d.Close()
	for _, session := range []bool{false, true, false, true} {
		p := sandboxtest.Profile()
		p.Terminals = session
		b, err := d.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if got := processors(t, b.(*instance)); (got == "all") != session {
			t.Errorf("terminals %t: it may use %s", session, got)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// processors returns what bounds the processors of a sandbox: its group, or else those that it is pinned to.
func processors(t *testing.T, b *instance) string {
	if !b.host.CPUs() {
		var all, own unix.CPUSet
		if err := errors.Join(unix.SchedGetaffinity(0, &all), unix.SchedGetaffinity(b.init.Pid, &own)); err != nil {
			t.Fatal(err)
		}
		if all.Count() == 1 {
			t.Skip("this machine has one processor, and no cgroup bounds its use")
		}
		if all == own {
			return "all"
		}
		return fmt.Sprintf("%d processors", own.Count())
	}
	for _, fd := range append([]int{b.group.UnifiedFD}, b.group.JoinFDs...) {
		at, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) // -1: nowhere
		for _, name := range []string{"cpu.max", "cpu.cfs_quota_us"} {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(at), name))
			if first, _, _ := strings.Cut(strings.TrimSpace(string(text)), " "); err == nil && (first == "max" || first == "-1") {
				return "all"
			} else if err == nil {
				return first + " µs of 100,000"
			}
		}
	}
	t.Fatal("no group of the sandbox has a bound on processors to read")
	return ""
}
