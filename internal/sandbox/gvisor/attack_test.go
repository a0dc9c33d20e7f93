//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/testing/sandboxtest"
)

func mkfifo(name string) error { return unix.Mkfifo(name, 0o600) }

func start(t *testing.T, d *Driver) *instance {
	t.Helper()
	b, err := d.Start(context.Background(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b.(*instance)
}

// TestDenials: the facts list refusals of the sandbox's kernel by kind, with the error.
func TestDenials(t *testing.T) {
	b := start(t, driver(t))
	f, err := b.Run(context.Background(), sandbox.Command{Env: env, Argv: []string{"python3", "-I", "-S", "-c", `
import os, socket, ctypes
for f in (lambda: open("/usr/denied", "w"), lambda: os.mkdir("/etc/denied"), lambda: socket.socket().connect(("192.0.2.1", 80)),
          lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 443)), lambda: os.setuid(0)):
    try: f(); print("not refused")
    except OSError as e: pass
libc = ctypes.CDLL(None)
libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000011, 0, 0, 0, 0)
for i in range(1000):
    try: open("/usr/flood-%d" % i, "w")
    except OSError: pass
`}})
	if err != nil || f.Stdout != "" || *f.ExitCode != 0 {
		t.Fatalf("%v %+v", err, f)
	}
	for _, want := range []facts.Denial{
		{Kind: "filesystem", What: "openat /usr/denied", Errno: "EACCES"},
		{Kind: "filesystem", What: "mkdir /etc/denied", Errno: "EROFS"},
		{Kind: "network", What: "192.0.2.1:80", Errno: "ENETUNREACH"},
		{Kind: "network", What: "[2001:db8::1]:443", Errno: "ENETUNREACH"},
		{Kind: "syscall", What: "setuid", Errno: "EPERM"},
		{Kind: "syscall", What: "mount", Errno: "EPERM"},
		{Kind: "syscall", What: "clone", Errno: "EPERM"},
	} {
		if !slices.Contains(f.Denials, want) {
			t.Errorf("not told: %+v", want)
		}
	}
	if len(f.Denials) > 64 {
		t.Errorf("%d denials", len(f.Denials))
	}
	if t.Failed() {
		t.Logf("told: %+v", f.Denials)
	}
	if want := []string{"192.0.2.1:80", "[2001:db8::1]:443"}; !slices.Equal(f.Network.Denied, want) {
		t.Errorf("network denied %q", f.Network.Denied)
	}
	if f, err := b.Run(context.Background(), sandbox.Command{Env: env, Argv: []string{"true"}}); err != nil ||
		len(f.Denials) != 0 {
		t.Errorf("the next command was refused nothing, and is told of %+v %v", f.Denials, err)
	}
}

// TestKernelOfItsOwn: with a control outside, requests to the sandbox's kernel do not reach this machine's.
func TestKernelOfItsOwn(t *testing.T) {
	b := start(t, driver(t))
	listener, err := net.Listen("unix", "@waldo-gvisor-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if c, err := net.Dial("unix", listener.Addr().String()); err != nil {
		t.Fatalf("control: %v", err)
	} else {
		c.Close()
	}
	code := fmt.Sprintf(`
import os, socket
print(os.uname().release, os.path.exists("/proc/%d"))
try: socket.socket(socket.AF_UNIX).connect("\0waldo-gvisor-test-%d"); print("CONNECTED")
except OSError as e: print("refused", e.errno)
`, os.Getpid(), os.Getpid())
	f, err := b.Run(context.Background(), sandbox.Command{Env: env, Argv: []string{"python3", "-I", "-S", "-c", code}})
	if want := "4.19.0-gvisor False\nrefused 111\n"; err != nil || f.Stdout != want { // ECONNREFUSED
		t.Errorf("%v got %q, want %q", err, f.Stdout, want)
	}
}

// TestWhoRunsIt: every process of a sandbox belongs to one user who is not root, and as root to a user of the
// sandbox's own.
func TestWhoRunsIt(t *testing.T) {
	d := driver(t)
	b := start(t, d)
	done := make(chan error)
	up, w := io.Pipe()
	go func() {
		_, err := b.Run(context.Background(), sandbox.Command{Env: env,
			Argv: []string{"sh", "-c", "echo up; exec sleep 60"}, Stdout: w})
		_ = w.Close()
		done <- err
	}()
	_, _ = up.Read(make([]byte, 3))
	all := append(tree2(b.init.Pid), b.init.Pid)
	if len(all) < 3 {
		t.Errorf("only processes %v: gVisor's kernel and its file server must be among them", all)
	}
	for _, pid := range all {
		st, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(st)) {
			if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
				for _, id := range strings.Fields(ids) {
					if id != strconv.Itoa(b.uid) || id == "0" {
						t.Errorf("process %d runs as %s, not %d", pid, id, b.uid)
					}
				}
			}
		}
	}
	other := start(t, d)
	if os.Geteuid() == 0 && other.uid == b.uid {
		t.Error("two sandboxes have one user")
	}
	_ = b.Close()
	<-done
}

// tree2 returns the processes below one.
func tree2(pid int) []int {
	var out []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(s); err == nil {
				out = append(append(out, n), tree2(n)...)
			}
		}
	}
	return out
}

// TestKilledWaldo: when waldo is killed, no process of its sandboxes survives.
func TestKilledWaldo(t *testing.T) {
	if os.Getenv("WALDO_TEST_HOLD") != "" {
		d := New(Options{State: os.Getenv("WALDO_TEST_HOLD")})
		d.cgroups = func() (*cgroup.Host, error) { return &cgroup.Host{}, nil } // another waldo would sweep it
		b := start(t, d)
		up, w := io.Pipe()
		go func() {
			_, _ = b.Run(context.Background(), sandbox.Command{Env: env,
				Argv: []string{"sh", "-c", "setsid sleep 300 & echo up; sleep 300"}, Stdout: w})
		}()
		_, _ = up.Read(make([]byte, 3))
		_ = unix.Kill(b.init.Pid, unix.SIGSTOP) // so that it cannot notice waldo's end
		for stopped := false; !stopped; time.Sleep(10 * time.Millisecond) {
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.init.Pid))
			stopped = len(threads) > 0 && !slices.ContainsFunc(threads, func(f string) bool {
				st, _ := os.ReadFile(f)
				return !strings.Contains(string(st), ") T ")
			})
		}
		fmt.Println("sandbox", b.init.Pid)
		select {}
	}
	driver(t)
	c := exec.Command("/proc/self/exe", "-test.run=^TestKilledWaldo$")
	c.Env = append(os.Environ(), "WALDO_TEST_HOLD="+t.TempDir())
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "sandbox %d", &pid)
	}
	all := append(tree2(pid), pid)
	if pid == 0 || len(all) < 3 {
		t.Fatalf("control: processes %v", all)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return !alive(pid) })
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			_ = unix.Kill(pid, unix.SIGKILL) // PID 1, and with it the rest
			t.Fatalf("still running: %v", left)
		}
	}
}

// alive reports whether a process runs; a zombie that waits for its new parent does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return state != "" && state[0] != 'Z' && state[0] != 'X'
}

// TestGroups: the processes of a sandbox cannot read files that root's groups can read.
func TestGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may drop its groups")
	}
	if err := syscall.Setgroups([]int{0, 4242}); err != nil { // control: there is something to drop
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setgroups([]int{0}) }()
	b := start(t, driver(t))
	st, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.init.Pid))
	if err != nil || !strings.Contains(string(st), "\nGroups:\t \n") {
		t.Errorf("%v %s", err, st)
	}
}

// TestOfWaldo: a sandbox's processes have nothing of waldo's environment, and are in a cgroup of their own where there
// is one.
func TestOfWaldo(t *testing.T) {
	t.Setenv("WALDO_CANARY", "sesame")
	b := start(t, driver(t))
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.init.Pid))
	if own := os.Getenv("WALDO_CANARY"); err != nil || own != "sesame" || strings.Contains(string(env), own) {
		t.Errorf("%q %v", env, err)
	}
	if !b.host.Pids() {
		t.Log("no cgroup counts processes here")
	} else if n := b.group.PidsNow(); n == 0 {
		t.Error("no process is in the sandbox's cgroup")
	}
}

// TestOwnMemory: memory that gVisor itself holds for its guest, for files and sockets, counts as the guest's.
// That holds without a cgroup too.
func TestOwnMemory(t *testing.T) {
	const flood = `
import array, os, socket, sys
for _ in range(5):
    if not os.fork(): break
fd = os.open("/dev/null", os.O_RDONLY)
full = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 200))]
keep = []
for n in range(int(sys.argv[1])):
    a, b = socket.socketpair(); keep.append((a, b)); a.setblocking(False)
    try:
        for i in range(200): a.sendmsg([b"x"], full)
    except BlockingIOError: pass
while os.getppid() > 2:
    try: os.wait()
    except ChildProcessError: break
`
	for _, r := range []struct {
		sockets string
		status  facts.Status
	}{{"1", facts.OK}, {"400", facts.OOM}} {
		p := sandboxtest.Profile()
		p.Limits.Memory, p.Limits.Files, p.Limits.CPU, p.Limits.Wall = 64<<20, 1024, 5*time.Minute, 5*time.Minute
		d := driver(t)
		b, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.Run(context.Background(), sandbox.Command{Env: env,
			Argv: []string{"python3", "-I", "-S", "-c", flood, r.sockets}})
		if err != nil || f.Status != r.status {
			t.Errorf("%s sockets: %s, %v, limit %v, peak %d MB: %v %q", r.sockets, f.Status, f.OOMKilled, f.Limit,
				f.Usage.MemoryPeak>>20, err, f.Stderr)
		}
		if r.status == facts.OOM && f.Usage.MemoryPeak < p.Limits.Memory {
			t.Errorf("the facts tell of %d MB", f.Usage.MemoryPeak>>20)
		}
		t.Logf("%s sockets: %s, peak %d MB", r.sockets, f.Status, f.Usage.MemoryPeak>>20)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
