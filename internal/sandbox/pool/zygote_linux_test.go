//go:build linux && (amd64 || arm64)

package pool_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
)

// places prints what all sandboxes from one interpreter share.
const places = "print(hash('a'), [l.split('-')[0] for l in open('/proc/self/maps') if 'libc' in l])"

// TestForked: sandboxes come from one interpreter, and those of another domain from another.
func TestForked(t *testing.T) {
	d, p := newPool(t, 4), python(t)
	one, again := run(t, d, p, places).Stdout, run(t, d, p, places).Stdout
	if one != again {
		t.Errorf("control: two sandboxes of one domain come from one interpreter: %s and %s", one, again)
	}
	p.Prestart = ahead(t, guest.Python, "/usr/bin/python3")
	p.Prestart.Domain = "another"
	f := run(t, d, p, places)
	if f.Stdout == one {
		t.Error("a sandbox of another domain came from the same interpreter")
	}
	if f.Usage.CPUMS <= 0 && os.Geteuid() == 0 {
		t.Errorf("the processor time of a forked sandbox is not counted: %+v", f.Usage)
	}
}

// TestForkedNothingKept: the memory of a command does not hold data that its sandbox was made with. The control
// is data that the command itself has.
func TestForkedNothingKept(t *testing.T) {
	d, p := newPool(t, 1), python(t)
	f := run(t, d, p, `
control = "".join(["in memory", " of the job"])
halves = {"control": (b"in memory", b" of the job"), "program": (b"size=1m,", b"nr_inodes=1k")}
found = dict.fromkeys(halves, 0)
for line in open("/proc/self/maps"):
    start, end = (int(n, 16) for n in line.split()[0].split("-"))
    with open("/proc/self/mem", "rb") as mem:
        mem.seek(min(start, 1 << 48))
        try: text = mem.read(end - start)
        except OSError: continue  # [vvar], [vsyscall]
    for name, (one, two) in halves.items():
        at = text.find(one)
        while at >= 0:
            found[name] += text[at + len(one):at + len(one) + len(two)] == two
            at = text.find(one, at + 1)
print(found["control"] > 0, found["program"])`)
	if f.Stdout != "True 0\n" {
		t.Errorf("%s%s", f.Stdout, f.Stderr)
	}
}

// TestForkedLikeExecuted: the command finds itself as one that was executed does.
func TestForkedLikeExecuted(t *testing.T) {
	const look = `
import os, sys, signal, threading, resource
for s in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGUSR1):
    print(s.name, signal.getsignal(s))
status = dict(l.rstrip("\n").split(":\t", 1) for l in open("/proc/self/status") if ":\t" in l and len(l.split(":\t", 1)) == 2)
for k in ("SigIgn", "SigCgt", "SigBlk", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups", "PPid", "Umask", "Threads"):
    print(k, status[k])
print(os.getpid(), threading.get_native_id(), threading.main_thread().native_id, os.getppid(), os.getsid(0) == os.getpid())
print(sorted(os.environ.items()), sys.argv, os.getcwd(), sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1])
print([resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")])
print(os.stat("/proc/self/maps").st_uid, os.access("/proc/1/maps", os.R_OK), os.path.exists("/proc/1"))
print([os.readlink("/proc/self/ns/" + n).split(":")[0] for n in sorted(os.listdir("/proc/self/ns"))])
try: signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt: print("interrupted")
r, w = os.pipe(); os.close(r)
try: os.write(w, b"x")
except BrokenPipeError: print("broken pipe")
lock = threading.RLock()
with lock: pass
t = threading.Thread(target=lambda: print(threading.get_native_id() != os.getpid())); t.start(); t.join()
print(len(os.sched_getaffinity(0)), open("/proc/self/setgroups").read())
import subprocess; print(subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout.split())`
	// as a shell tells what it starts in the background
	for _, ignored := range []os.Signal{syscall.SIGUSR2, syscall.SIGINT} {
		signal.Ignore(ignored)
		defer signal.Reset(ignored)
		p := python(t)
		forked := run(t, newPool(t, 1), p, look)
		p = python(t)
		p.Prestart.Zygote = ""
		executed := run(t, newPool(t, 1), p, look)
		if forked.Stdout != executed.Stdout || !strings.Contains(forked.Stdout, "broken pipe") ||
			!strings.Contains(forked.Stdout, " deny\n") ||
			!strings.Contains(forked.Stdout, "interrupted") {
			t.Errorf("while waldo ignores %v: forked:\n%s%s\nexecuted:\n%s%s", ignored, forked.Stdout, forked.Stderr,
				executed.Stdout, executed.Stderr)
		}
	}
}

// TestForkedOutside checks forked sandboxes from outside, as only root can: each belongs to a user of its own,
// and PID 1 has neither the interpreter's memory nor its descriptors.
func TestForkedOutside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root sees PID 1 of a sandbox, and has a user for each")
		return
	}
	d, p := newPool(t, 3), python(t)
	filled(t, d, p, 3)
	users := map[string]bool{}
	sandboxes := children(t, func(same bool, exe string) bool { return !same })
	for _, init := range append(sandboxes, interpreters(t)...) {
		info, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", init.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, uid, _ := strings.Cut(string(info), "\nUid:")
		uid, _, _ = strings.Cut(uid, "\n")
		users[uid] = true
	}
	if len(sandboxes) != 3 || len(users) != 4 || users["\t0\t0\t0\t0"] {
		t.Errorf("%d sandboxes and the zygote belong to %d users: %v", len(sandboxes), len(users), users)
	}
	for _, init := range sandboxes {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", init.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(maps)) {
			if (!strings.HasPrefix(line, "70") || strings.Index(line, "-") != 8) && !strings.Contains(line, "[vsyscall]") {
				t.Errorf("PID 1 has %s", line)
			}
		}
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", init.Pid))
		if err != nil || len(fds) != 5 { // three of /dev/null or the inherited ones, the socket, the tree
			t.Errorf("PID 1 has %d descriptors: %v", len(fds), err)
		}
		for _, fd := range fds {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", init.Pid, fd.Name()))
			if fd.Name() < "3" && !strings.HasPrefix(to, "pipe:") {
				t.Errorf("descriptor %s of PID 1 is %s", fd.Name(), to)
			}
		}
	}
}

// TestForkedAtOnce: when no sandbox is ready, and where none can be, one is forked for the job, from nothing
// and in namespaces that were made ahead.
func TestForkedAtOnce(t *testing.T) {
	d, p := newServed(t, 1, 1), python(t)
	filled(t, d, p, 1)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/given", []byte("mounted"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.Mounts = []sandbox.Mount{{Source: dir, Target: "/workspace/input"}}
	p.Prestart = ahead(t, guest.Python, "/usr/bin/python3")
	p.Prestart.Env = append(slices.Clone(p.Prestart.Env), "OWN=of this job")
	for range 3 {
		b, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.Run(context.Background(), job(t, p.Prestart,
			"import os; print(open('/workspace/input/given').read(), os.environ['OWN'])"))
		if err != nil || !f.Sandbox.Warm || f.Stdout != "mounted of this job\n" || f.Status != facts.OK {
			t.Errorf("%v %+v", err, f)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestZygoteEnds: a zygote that has died is replaced, and its sandboxes continue.
func TestZygoteEnds(t *testing.T) {
	d, p := newPool(t, 1), python(t)
	filled(t, d, p, 1)
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	zygotes := interpreters(t)
	if len(zygotes) != 1 {
		t.Fatalf("control: %d interpreters of waldo's own, not 1", len(zygotes))
	}
	if err := zygotes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if f, err := b.Run(context.Background(), job(t, p.Prestart, "print('on')")); err != nil || f.Stdout != "on\n" {
		t.Errorf("%v %+v", err, f)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		again, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := again.Run(context.Background(), job(t, p.Prestart, "print('again')"))
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || f.Stdout != "again\n" {
			t.Fatalf("%v %+v", err, f)
		}
		if f.Sandbox.Warm && len(interpreters(t)) == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no other took its place")
		}
	}
}

// interpreters are the children of this process that are Python in its own namespaces.
func interpreters(t *testing.T) []*os.Process {
	return children(t, func(same bool, exe string) bool { return same && strings.Contains(exe, "python") })
}

// children are those processes that this one has started and that are not over.
func children(t *testing.T, want func(same bool, exe string) bool) (out []*os.Process) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	own, _ := os.Readlink("/proc/self/ns/pid")
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(text)) {
			its, _ := os.Readlink("/proc/" + pid + "/ns/pid")
			exe, _ := os.Readlink("/proc/" + pid + "/exe")
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			if its == "" || !want(own == its, exe) || strings.Contains(string(stat), ") Z ") {
				continue
			}
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			p, err := os.FindProcess(n)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, p)
		}
	}
	return out
}
