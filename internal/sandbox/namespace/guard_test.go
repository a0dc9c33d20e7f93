//go:build linux && (amd64 || arm64)

package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/testing/sandboxtest"
)

var env = []string{"PATH=/usr/bin:/bin"}

func start(t *testing.T, p sandbox.Profile) sandbox.Sandbox {
	t.Helper()
	b, err := namespace.New(namespace.Options{}).Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func run(t *testing.T, b sandbox.Sandbox, argv ...string) facts.Facts {
	t.Helper()
	f, err := b.Run(context.Background(), sandbox.Command{Argv: argv, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// find returns the status file of the process whose command line holds the mark.
func find(mark string) (pid, status string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, _ := os.ReadFile(f)
		if strings.HasPrefix(string(b), "sleep\x00") && strings.Contains(string(b), mark) {
			dir := filepath.Dir(f)
			s, _ := os.ReadFile(dir + "/status")
			return filepath.Base(dir), string(s)
		}
	}
	return "", ""
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	within(t, time.Minute, what, cond)
}

func within(t *testing.T, most time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Errorf("%s: not within %v", what, most)
}

func field(status, name string) []string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// TestHostUser: outside, a sandbox belongs to a user of its own. As root's it would be bound by no limit of
// processes, and root's files would be its.
func TestHostUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: a sandbox belongs to the user who starts it")
		return
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{7}); err != nil { // the launcher's; the sandbox must not have it
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setgroups(groups) }()
	seen := map[string]bool{}
	for i := range 3 {
		mark := fmt.Sprintf("%d.%d", 1000+i, os.Getpid())
		b := start(t, sandboxtest.Profile())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.Run(context.Background(), sandbox.Command{Argv: []string{"sleep", mark}, Env: env})
		}()
		var status string
		await(t, "the command", func() bool { _, status = find(mark); return status != "" })
		uid, gid := field(status, "Uid"), field(status, "Gid")
		if len(uid) != 4 || uid[0] != uid[1] || uid[0] != uid[2] || uid[0] != uid[3] || len(uid[0]) != 10 || seen[uid[0]] {
			t.Errorf("host user %q: want one of its own from 0x70000000 on", uid)
		}
		_, ppid := find(mark)
		if init := field(ppid, "PPid"); len(init) != 1 {
			t.Fatalf("%q", ppid)
		} else if n, err := strconv.Atoi(init[0]); err != nil {
			t.Fatal(err)
		} else if session, err := unix.Getsid(n); err != nil || session != n {
			t.Errorf("PID 1 of the sandbox, %d, is of session %d: %v", n, session, err)
		}
		one, err := os.ReadFile("/proc/" + strings.Join(field(ppid, "PPid"), "") + "/status")
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd":     "0000000000000000",
			"NoNewPrivs": "1", "Seccomp": "2", "Uid": uid[0]} {
			if got := field(string(one), name); len(got) == 0 || got[0] != want {
				t.Errorf("PID 1 of the sandbox has %s %q, want %s", name, got, want)
			}
		}
		if len(gid) != 4 || len(gid[0]) != 10 || len(field(status, "Groups")) != 0 {
			t.Errorf("host group %q, groups %q", gid, field(status, "Groups"))
		}
		seen[uid[0]] = true
		b.Close()
		<-done
		if pid, _ := find(mark); pid != "" {
			t.Errorf("process %s outlived its sandbox", pid)
		}
	}
}

// TestDiesWithWaldo: a waldo that is killed leaves no process of its sandboxes.
func TestDiesWithWaldo(t *testing.T) {
	const key = "WALDO_TEST_MARK"
	if mark := os.Getenv(key); mark != "" {
		b := start(t, sandboxtest.Profile())
		go func() { // on any thread: it can end before waldo does
			_, _ = b.Run(context.Background(), sandbox.Command{Argv: []string{"sh", "-c",
				"setsid sleep " + mark + " & sleep " + mark}, Env: env})
		}()
		time.Sleep(time.Minute)
		return
	}
	mark := fmt.Sprintf("777.%d", os.Getpid())
	c := exec.Command("/proc/self/exe", "-test.run", "^TestDiesWithWaldo$")
	c.Env = append(os.Environ(), key+"="+mark)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the command (control)", func() bool { pid, _ := find(mark); return pid != "" })
	_ = c.Process.Kill()
	_ = c.Wait()
	defer func() { // where the guard is off, the test cleans up itself
		for pid, _ := find(mark); pid != ""; pid, _ = find(mark) {
			if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, syscall.SIGKILL) != nil {
				return
			}
		}
	}()
	// soon: another waldo of this machine that starts would end it too, when it sweeps
	within(t, 5*time.Second, "the end of the command", func() bool { pid, _ := find(mark); return pid == "" })
}

// TestOrphans: a run ends with its command. Processes left behind, in a session of their own or holding the output,
// are killed and not waited for.
func TestOrphans(t *testing.T) {
	b := start(t, sandboxtest.Profile())
	began := time.Now()
	f := run(t, b, "sh", "-c", "sleep 300 & setsid sleep 300 & exit 3")
	if f.ExitCode == nil || *f.ExitCode != 3 || time.Since(began) > 50*time.Second {
		t.Errorf("exit %v signal %v after %v, want exit 3 at once", f.ExitCode, f.Signal, time.Since(began))
	}
	if f := run(t, b, "sh", "-c", "ls -d /proc/[0-9]* | wc -l"); strings.TrimSpace(f.Stdout) > "3" {
		t.Errorf("the next command sees %s processes", f.Stdout)
	}
}

// TestNoUserNamespaces: if the kernel refuses user namespaces, the error names the failed step, a hint says how to
// allow them, and no process is left. A user namespace around the test causes the refusal, so the machine's setting
// is unchanged.
func TestNoUserNamespaces(t *testing.T) {
	const key = "WALDO_TEST_NO_USER_NAMESPACES"
	if os.Getenv(key) == "" {
		if os.Geteuid() != 0 {
			t.Log("not root: a namespace around the test would hold one user only")
			return
		}
		c := exec.Command("/proc/self/exe", "-test.run", "^TestNoUserNamespaces$")
		c.Env = append(os.Environ(), key+"=1")
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			GidMappingsEnableSetgroups: true}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	d := namespace.New(namespace.Options{})
	b, err := d.Start(context.Background(), sandboxtest.Profile())
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	b.Close()
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	_, err = d.Start(context.Background(), sandboxtest.Profile())
	var h interface{ Hint() string }
	if !errors.As(err, &h) || !strings.Contains(h.Hint(), "user.max_user_namespaces") ||
		!strings.HasSuffix(err.Error(), "make namespaces: no space left on device") {
		t.Errorf("%v", err)
	}
	if report := d.Probe(context.Background()); report.OK || report.Abilities[0].OK ||
		!strings.Contains(report.Abilities[0].Hint, "user.max_user_namespaces") {
		t.Errorf("probe: %v %+v", report.OK, report.Abilities)
	}
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + host.Prefix() + "*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	tasks, err := filepath.Glob("/proc/self/task/*/children") // the machine is the child of a thread of its own
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no list of child processes: %v", err)
	}
	for _, f := range tasks {
		if b, _ := os.ReadFile(f); len(b) > 0 {
			t.Errorf("child processes are left: %s", b)
		}
	}
}

// TestClocks: commands that would end by themselves in two seconds are ended before.
func TestClocks(t *testing.T) {
	for _, r := range []struct {
		why, code string
		tighten   func(*sandbox.Limits)
		want      facts.Limit
	}{
		{"the wall clock", "import time; time.sleep(2)", func(l *sandbox.Limits) { l.Wall = 200 * time.Millisecond },
			facts.LimitWall},
		{"processor time, of which the kernel's own limit counts whole seconds",
			"import time\nwhile time.process_time() < 1: pass",
			func(l *sandbox.Limits) { l.CPU = 200 * time.Millisecond }, facts.LimitCPU},
	} {
		p := sandboxtest.Profile()
		r.tighten(&p.Limits)
		f := run(t, start(t, p), "python3", "-c", r.code)
		for tries := 1; !f.TimedOut && tries < 3; tries++ { // waldo may have had no turn meanwhile
			f = run(t, start(t, p), "python3", "-c", r.code)
		}
		if f.Limit == nil || *f.Limit != r.want || !f.TimedOut || f.Signal == nil || *f.Signal != "SIGKILL" {
			t.Errorf("%s: limit %v status %s", r.why, f.Limit, f.Status)
		}
	}
}

// TestMounts: the sandbox's own list of mounts is empty; it would name the host's disks and folders.
func TestMounts(t *testing.T) {
	control, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || len(control) == 0 {
		t.Fatalf("control: %v, %d bytes", err, len(control))
	}
	b := start(t, sandboxtest.Profile())
	f := run(t, b, "sh", "-c",
		"cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats; ls -d /proc/self/mountinfo; ls /proc | grep -v "+
			"'^[0-9]'")
	if want := "/proc/self/mountinfo\nself\nthread-self\n"; f.Stdout != want {
		t.Errorf("got %q, want %q", f.Stdout, want)
	}
}

// TestNamespaces: a sandbox shares no namespace with the host.
func TestNamespaces(t *testing.T) {
	b := start(t, sandboxtest.Profile())
	for _, kind := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} {
		outside, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		f := run(t, b, "readlink", "/proc/self/ns/"+kind)
		if inside := strings.TrimSpace(f.Stdout); !strings.HasPrefix(inside, kind+":[") || inside == outside {
			t.Errorf("%s namespace: %q inside, %q outside", kind, inside, outside)
		}
	}
}

// TestFine tests guards of this driver that attacks do not reach, because others come first: each must work alone.
func TestFine(t *testing.T) {
	b := start(t, sandboxtest.Profile())
	data, zero := "(536870912, 536870912)", "ENODEV" // where no cgroup bounds memory
	for _, a := range namespace.New(namespace.Options{}).Probe(context.Background()).Abilities {
		if a.Name == "cgroup memory" && a.OK {
			data, zero = "(-1, -1)", "mapped"
		}
	}
	for _, r := range []struct{ why, code, want string }{
		{"every secure bit is set and locked", `print(hex(libc.prctl(27, 0, 0, 0, 0)))`, "0xef"},
		{"the stack", `print(resource.getrlimit(resource.RLIMIT_STACK))`, "(8388608, 8388608)"},
		{"memory of one process", `print(resource.getrlimit(resource.RLIMIT_DATA))`, data},
		{"locked memory", `print(resource.getrlimit(resource.RLIMIT_MEMLOCK))`, "(65536, 65536)"},
		{"message queues", `print(resource.getrlimit(12))`, "(65536, 65536)"},
		{"pending signals", `print(resource.getrlimit(11))`, "(256, 256)"},
		{"processor time of one process", `print(resource.getrlimit(resource.RLIMIT_CPU))`, "(61, 61)"},
		{"groups cannot be left", `print(open("/proc/self/setgroups").read())`, "deny"},
		{"no signal is blocked or ignored", `print([l.split()[1] for l in open("/proc/self/status") if l[:6] in ("SigBlk", ` +
			`"SigIgn")])`, "['0000000000000000', '0000000001001000']"}, // Python ignores SIGPIPE and SIGXFSZ
		{"memory that no limit of a process bounds", `import errno, mmap
try: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096); print("mapped")
except OSError as e: print(errno.errorcode[e.errno])`, zero},
		{"devices are read-only, no setuid, no programs",
			`print([d for d in ("null", "zero", "full", "random", "urandom") if os.statvfs("/dev/" + d).f_flag & 11 != 11])`,
			"[]"},
		{"times of a device, which every user may write to, stay (EROFS)", `try: os.utime("/dev/null"); print("changed")
except OSError as e: print(e.errno)`, "30"},
		{"nothing of PID 1 in sight", `print(os.path.exists("/proc/1"), os.path.exists("/proc/self"))`, "False True"},
		{"nothing of the host's root in sight", `print(os.path.exists("/old"))`, "False"},
		{"read-only, no setuid, no devices",
			`print([d for d in ("/", "/usr", "/etc/alternatives") if os.path.isdir(d) and os.statvfs(d).f_flag & 7 != 7])`,
			"[]"},
		{"no setuid, no devices",
			`print([d for d in ("/tmp", "/dev/shm", "/workspace/output", "/proc") if os.statvfs(d).f_flag & 6 != 6])`, "[]"},
	} {
		f := run(t, b, "python3", "-c", "import ctypes, os, resource\nlibc = ctypes.CDLL(None)\n"+r.code)
		if got := strings.TrimSpace(f.Stdout); got != r.want {
			t.Errorf("%s: got %q, want %q %s", r.why, got, r.want, f.Stderr)
		}
	}
}

// TestDenials: the facts list exactly the refused attempts of a command.
func TestDenials(t *testing.T) {
	const code = `
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(family, *address):
    try: socket.socket(family).connect(address)
    except OSError as e: print(e.errno)
attempt(socket.AF_INET, "192.0.2.1", 443)
attempt(socket.AF_INET, "127.0.0.1", 9)
attempt(socket.AF_INET6, "2001:db8::1", 80)
for i in range(3): attempt(socket.AF_INET, "192.0.2.1", 443)
print(libc.unshare(0), ctypes.get_errno())`
	b := start(t, sandboxtest.Profile())
	f := run(t, b, "python3", "-c", code)
	if want := "101\n111\n101\n101\n101\n101\n-1 1\n"; f.Stdout != want { // ENETUNREACH, ECONNREFUSED, EPERM
		t.Errorf("got %q, want %q %s", f.Stdout, want, f.Stderr)
	}
	want := []facts.Denial{{Kind: "network", What: "192.0.2.1:443", Errno: "ENETUNREACH"},
		{Kind: "network", What: "[2001:db8::1]:80", Errno: "ENETUNREACH"}, {Kind: "syscall", What: "unshare", Errno: "EPERM"}}
	if !slices.Equal(f.Denials, want) || !slices.Equal(f.Seen, []string{"network", "syscall"}) {
		t.Errorf("denials %v (seen %v), want %v", f.Denials, f.Seen, want)
	}
	if !slices.Equal(f.Network.Denied, []string{"192.0.2.1:443", "[2001:db8::1]:80"}) {
		t.Errorf("network denied %q", f.Network.Denied)
	}
	if f := run(t, b, "true"); len(f.Denials) != 0 {
		t.Errorf("the next command is told of %v", f.Denials)
	}
	flood := "import socket\nfor i in range(300):\n  try: socket.socket().connect(('192.0.2.%d' % (i % 250), 80 + i))\n" +
		"  except OSError: pass"
	if f := run(t, b, "python3", "-c", flood); len(f.Denials) != 100 || len(f.Warnings) == 0 {
		t.Errorf("%d denials, warnings %q", len(f.Denials), f.Warnings)
	}
}

// TestLandlock: a domain holds every process of the sandbox. The kernel stacks at most 16, so one that is already
// held can add 15.
func TestLandlock(t *testing.T) {
	const code = `
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
n = 0
attr = ctypes.create_string_buffer(struct.pack("QQQ", 0, 0, 3))
while n < 20:
    fd = libc.syscall(444, attr, 24, 0)
    if fd < 0: print("no landlock"); break
    if libc.syscall(446, fd, 0) != 0: break
    os.close(fd)
    n += 1
print(n)`
	control, err := exec.Command("python3", "-c", "import ctypes; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"+code).Output()
	if err != nil || string(control) != "16\n" {
		t.Logf("this kernel has no Landlock of ABI 6: %q %v", control, err)
		return
	}
	if f := run(t, start(t, sandboxtest.Profile()), "python3", "-c", code); f.Stdout != "15\n" {
		t.Errorf("%s%s more domains: want 15", f.Stdout, f.Stderr)
	}
}

// TestBlockedSignals: a waldo that was started with a signal blocked does not block it in its sandboxes. The control is
// a command beside them.
func TestBlockedSignals(t *testing.T) {
	const key = "WALDO_TEST_BLOCKED"
	const look = `print([l.split()[1] for l in open("/proc/self/status") if l[:6] == "SigBlk"])`
	if os.Getenv(key) == "" {
		c := exec.Command("python3", "-c", "import os, signal; signal.pthread_sigmask(0, {12}); "+
			"os.execv('/proc/self/fd/3', ['test', '-test.run', '^TestBlockedSignals$'])")
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer self.Close()
		c.Env, c.ExtraFiles = append(os.Environ(), key+"=1"), []*os.File{self}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if out, err := exec.Command("python3", "-c", look).Output(); err != nil || string(out) != "['0000000000000800']\n" {
		t.Fatalf("control: %q %v", out, err)
	}
	if f := run(t, start(t, sandboxtest.Profile()), "python3", "-c", look); f.Stdout != "['0000000000000000']\n" {
		t.Errorf("%q %q", f.Stdout, f.Stderr)
	}
}

// TestCommandsRefused: a command that the kernel could not take unchanged is an error of waldo's.
func TestCommandsRefused(t *testing.T) {
	b := start(t, sandboxtest.Profile())
	for _, r := range []struct {
		why string
		c   sandbox.Command
	}{
		{"no command", sandbox.Command{}},
		{"an empty command", sandbox.Command{Argv: []string{""}}},
		{"a NUL would cut the argument short", sandbox.Command{Argv: []string{"true", "a\x00b"}}},
		{"a NUL in the environment", sandbox.Command{Argv: []string{"true"}, Env: []string{"A=\x00"}}},
		{"a NUL in the folder", sandbox.Command{Argv: []string{"true"}, Dir: "/tmp\x00"}},
		{"a relative folder", sandbox.Command{Argv: []string{"true"}, Dir: "tmp"}},
	} {
		if f, err := b.Run(context.Background(), r.c); err == nil {
			t.Errorf("%s: ran: %+v", r.why, f)
		}
	}
	if f := run(t, b, "sh", "-c", "exit 5"); *f.ExitCode != 5 { // the sandbox still works
		t.Errorf("exit %d", *f.ExitCode)
	}
	run(t, b, "sh", "-c", "cp /usr/bin/true /tmp/mine")
	for path, want := range map[string]int{"/usr/bin:/tmp": 0, ".:": 127} { // the current folder is never looked into
		f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"mine"}, Env: []string{"PATH=" + path},
			Dir: "/tmp"})
		if err != nil || *f.ExitCode != want {
			t.Errorf("PATH=%s: %v exit %v, want %d", path, err, *f.ExitCode, want)
		}
	}
	long := strings.Repeat("x", 100<<10)
	if f := run(t, b, "sh", "-c", "echo ${#1}", "sh", long); f.Stdout != fmt.Sprintln(len(long)) {
		t.Errorf("a long argument: %q %q", f.Stdout, f.Stderr)
	}
	var many []string
	for range 40 {
		many = append(many, long)
	}
	if f := run(t, b, append([]string{"true"}, many...)...); *f.ExitCode != 126 ||
		!strings.Contains(f.Stderr, "argument list too long") {
		t.Errorf("too long a list: %v %q", *f.ExitCode, f.Stderr)
	}
	if _, err := b.Run(context.Background(), sandbox.Command{Argv: append(many, many...)}); err == nil {
		t.Error("more than fits into the machine ran")
	}
	if f := run(t, b, "true"); *f.ExitCode != 0 {
		t.Errorf("after what was refused: exit %d", *f.ExitCode)
	}
}

// TestManyAtOnce: sandboxes do not hold each other up or mix up what they report.
func TestManyAtOnce(t *testing.T) {
	d := namespace.New(namespace.Options{})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			b, err := d.Start(context.Background(), sandboxtest.Profile())
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			for j := range 3 {
				f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"sh", "-c",
					fmt.Sprintf("echo %d-%d; exit %d", i, j, i+j)}, Env: env})
				if err != nil || f.Stdout != fmt.Sprintf("%d-%d\n", i, j) || *f.ExitCode != i+j {
					t.Errorf("%d-%d: %v %q", i, j, err, f.Stdout)
				}
			}
		})
	}
	wg.Wait()
}

// TestCgroupsRemoved: no sandbox leaves a cgroup, and an ended waldo's are swept by the next.
func TestCgroupsRemoved(t *testing.T) {
	prefix, err := cgroup.PrefixOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	mine := func() (n int) {
		for _, depth := range []string{"", "*/", "*/*/"} {
			all, _ := filepath.Glob("/sys/fs/cgroup/" + depth + prefix + "*")
			n += len(all)
		}
		return n
	}
	before := mine() // of sandboxes of other tests
	d := namespace.New(namespace.Options{})
	b, err := d.Start(context.Background(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && mine() <= before {
		t.Error("control: a sandbox of root has no cgroup")
	}
	run(t, b, "sh", "-c", "sleep 60 &")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := mine(); n > before {
		t.Errorf("%d cgroups left", n-before)
	}
}

// TestManyDescriptors: a waldo with many open files starts sandboxes like any other.
func TestManyDescriptors(t *testing.T) {
	for range 150 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if b := start(t, sandboxtest.Profile()); *run(t, b, "true").ExitCode != 0 {
			t.Fatal("true failed")
		}
	}
}

// TestFilesAreMemory: files in volumes count as memory of the sandbox, with a cgroup or without one. Files that were
// there before do not count.
func TestFilesAreMemory(t *testing.T) {
	p := sandboxtest.Profile()
	p.Limits.Memory, p.Limits.Disk = 60<<20, 50<<20
	for i := range p.Tmpfs {
		p.Tmpfs[i].Bytes = p.Limits.Disk
	}
	seed := t.TempDir()
	if err := errors.Join(os.Chmod(seed, 0o755),
		os.WriteFile(filepath.Join(seed, "before"), make([]byte, 40<<20), 0o644)); err != nil {
		t.Fatal(err)
	}
	p.Tmpfs[1].Seed = seed
	b := start(t, p)
	fill := func(mb int) facts.Facts {
		return run(t, b, "/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/zero > %s/f; sleep 0.5", mb<<20, p.Tmpfs[0].Target))
	}
	if f := fill(30); f.Status != facts.OK {
		t.Errorf("30 MB beside 40 that were there: %s, limit %v: %s", f.Status, f.Limit, f.Stderr)
	}
	b = start(t, p)
	if f := run(t, b, "/bin/sh", "-c",
		fmt.Sprintf("for d in %s /dev/shm; do head -c 45000000 /dev/zero > $d/f; done; sleep 30",
			p.Tmpfs[0].Target)); f.Status != facts.OOM {
		t.Errorf("90 MB in files of a sandbox that may have 60: %s", f.Status)
	}
}
