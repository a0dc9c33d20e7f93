//go:build linux

package attack

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/testing/sandboxtest"
)

// TestAttacks runs the attacks with one step each: an action that works outside must fail in the sandbox with the
// exact error.
func TestAttacks(t *testing.T) {
	dir := t.TempDir()
	canary := filepath.Join(dir, "canary")
	if err := os.WriteFile(canary, []byte("CANARY"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	name := fmt.Sprintf("waldo-attack-%d", os.Getpid())
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	path := filepath.Join(dir, "socket")
	unix, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	victim := exec.Command("sleep", "300")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	pid := fmt.Sprint(victim.Process.Pid)
	t.Setenv("WALDO_ATTACK_SECRET", "CANARY")

	leaked, err := os.Open(canary) // left open, so that every child inherits it
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Dup3(int(leaked.Fd()), 33, 0); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(33)

	// An outside answer with the prefix "root:" applies to root only; an ordinary user has no control to compare.
	rows := []struct {
		why, code string
		args      []string
		outside   string
		inside    string
	}{
		{"read a file of the host", `attempt(lambda: open(sys.argv[1]).read())`, []string{canary},
			"ok CANARY", "refused ENOENT"},
		{"read it through a symlink", `os.symlink(sys.argv[1], "l"); attempt(lambda: open("l").read())`, []string{canary},
			"ok CANARY", "refused ENOENT"},
		{
			"read it through the root of process 1",
			`attempt(lambda: open("/proc/%s/root" % (1 if os.getpid() < 10 else "self") + sys.argv[1]).read())`,
			[]string{canary}, "ok CANARY", "refused ENOENT",
		},
		{"read the shadow file's folder", `attempt(lambda: os.stat("/etc/shadow").st_size > 0)`, nil,
			"ok True", "refused ENOENT"},
		{"list the host's root", `attempt(lambda: "boot" in os.listdir("/") or "root" in os.listdir("/"))`, nil,
			"ok True", "ok False"},
		{
			"connect to a service on the host's loopback",
			`attempt(lambda: bool(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 3)))`, []string{port}, "ok True",
			"refused ECONNREFUSED",
		},
		{"connect to an abstract socket", `s = socket.socket(socket.AF_UNIX); attempt(lambda: s.connect("\0" + sys.argv[1]))`,
			[]string{name}, "ok None", "refused ECONNREFUSED|refused EPERM"},
		{
			"connect to a socket in the filesystem",
			`s = socket.socket(socket.AF_UNIX); attempt(lambda: s.connect(sys.argv[1]))`, []string{path},
			"ok None", "refused ENOENT",
		},
		{"signal a process of the host", `attempt(lambda: os.kill(int(sys.argv[1]), 0))`, []string{pid},
			"ok None", "refused ESRCH"},
		{"see the processes of the host", `attempt(lambda: os.path.exists("/proc/" + sys.argv[1]))`, []string{pid},
			"ok True", "ok False"},
		{"read the launcher's environment", `attempt(lambda: os.environ.get("WALDO_ATTACK_SECRET"))`, nil,
			"ok CANARY", "ok None"},
		{"new user namespace", `attempt(lambda: syscall(NR["unshare"], 0x10000000))`, nil, "ok 0", "refused EPERM"},
		{
			"io_uring, which makes calls no filter sees",
			`b = ctypes.create_string_buffer(120); attempt(lambda: syscall(NR["io_uring_setup"], 4, b) > 0)`, nil,
			"ok True", "refused EPERM",
		},
		{"keyring of the session", `attempt(lambda: syscall(NR["keyctl"], 0, -3, 1) > 0)`, nil, "ok True", "refused EPERM"},
		{"MPTCP", `attempt(lambda: bool(socket.socket(2, 1, 262)))`, nil, "ok True", "refused EPROTONOSUPPORT"},
		{"netlink for audit, dirty upper bits", `attempt(lambda: syscall(NR["socket"], (1 << 40) | 16, 3, 9) > 0)`, nil,
			"ok True", "refused EAFNOSUPPORT"},
		{
			"attributes that stop cleaning up",
			`import fcntl; f = open("x", "w"); attempt(lambda: fcntl.ioctl(f, 0x40086602, (0).to_bytes(8, "little")) and 0)`,
			nil, "ok", "refused EPERM",
		},
		{"memory the kernel cannot see", `attempt(lambda: syscall(NR["memfd_secret"], 0) > 0)`, nil,
			"ok True|refused ENOSYS", "refused EPERM"},
		{"addresses without randomness", `attempt(lambda: syscall(NR["personality"], 0x40000) >= 0)`, nil,
			"ok True", "refused EPERM"},
		{"trace a child", `
p = os.fork()
if p == 0: time.sleep(300); os._exit(0)
attempt(lambda: syscall(NR["ptrace"], 0x4206, p, 0, 0))
os.kill(p, 9)`, nil, "ok 0", "refused EPERM"},
		{
			"write to /usr",
			`attempt(lambda: open("/usr/waldo-attack", "w").close()); os.path.exists("/usr/waldo-attack") and ` +
				`os.unlink("/usr/waldo-attack")`, nil, "root:ok None", "refused EROFS",
		},
		{
			"write to /etc",
			`attempt(lambda: open("/etc/waldo-attack", "w").close()); os.path.exists("/etc/waldo-attack") and ` +
				`os.unlink("/etc/waldo-attack")`, nil, "root:ok None", "refused EROFS",
		},
		{
			"write to /dev",
			`attempt(lambda: open("/dev/waldo-attack", "w").close()); os.path.exists("/dev/waldo-attack") and ` +
				`os.unlink("/dev/waldo-attack")`, nil, "root:ok None", "refused EROFS",
		},
		{"write to kernel settings", `attempt(lambda: open("/proc/sys/kernel/core_pattern", "r+").close())`, nil,
			"root:ok None", "refused ENOENT"},
		{
			"any capability", `print("ok", any(int(l.split()[1], 16) for l in open("/proc/self/status") if ` +
				`l.startswith("Cap")))`, nil, "root:ok True", "ok False",
		},
		{"any descriptor beyond the three", `
r = []
for n in range(3, 256):
    try: os.fstat(n); r.append(n)
    except OSError: pass
print("ok", len(r) > 0)`, nil, "ok True", "ok False"},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			want, roots := strings.CutPrefix(r.outside, "root:")
			if !roots || os.Geteuid() == 0 {
				if got := outside(t, r.code, r.args...); !oneOf(got, want) {
					t.Fatalf("control: %q, want %q: the next line would prove nothing", got, want)
				}
			}
			f := inside(t, profile(), r.code, r.args...)
			if got := strings.TrimSpace(f.Stdout); !oneOf(got, r.inside) {
				t.Errorf("%q, want %q (%s, %s)", got, r.inside, f.Status, f.Stderr)
			}
		})
	}
}

// oneOf reports whether got is one of the wanted, which "|" separates. "ok" alone takes any ok.
func oneOf(got, wanted string) bool {
	for _, w := range strings.Split(wanted, "|") {
		if got == w || w == "ok" && strings.HasPrefix(got, "ok") {
			return true
		}
	}
	return false
}

// TestNoRoute connects to an address of this machine that is not loopback.
func TestNoRoute(t *testing.T) {
	ip := ""
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			ip = n.IP.String()
		}
	}
	if ip == "" {
		t.Skip("this machine has no address but loopback")
	}
	l, err := net.Listen("tcp4", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	const connect = `attempt(lambda: bool(socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)))`
	if got := outside(t, connect, ip, port); got != "ok True" {
		t.Fatalf("control: %q", got)
	}
	if got := strings.TrimSpace(inside(t, profile(), connect, ip, port).Stdout); got != "refused ENETUNREACH" {
		t.Errorf("%q, want ENETUNREACH", got)
	}
}

func TestForkBomb(t *testing.T) {
	const bomb = `
n = 0
try:
    while n < 300:
        if os.fork() == 0: time.sleep(300); os._exit(0)
        n += 1
except OSError as e: print("refused", errno.errorcode[e.errno], n)
else: print("ok", n)
sys.stdout.flush(); os.kill(0, 9)`
	cmd := exec.Command("setsid", append([]string{"--wait"}, control("-c", preamble+bomb).Args...)...)
	if out, _ := cmd.CombinedOutput(); strings.TrimSpace(string(out)) != "ok 300" {
		t.Fatalf("control: %q", out)
	}
	p := profile()
	f := inside(t, p, bomb)
	var n int
	if _, err := fmt.Sscanf(f.Stdout, "refused EAGAIN %d", &n); err != nil || n < 20 || int64(n) >= p.Limits.Pids {
		t.Errorf("%q (%s, %s), want a refusal before %d", f.Stdout, f.Status, f.Stderr, p.Limits.Pids)
	}
	if f.Usage.PidsPeak > p.Limits.Pids {
		t.Errorf("%d processes at one time", f.Usage.PidsPeak)
	}
}

func TestMemoryBomb(t *testing.T) {
	const bomb = `
try:
    b = bytearray(192 << 20)
    print("ok", len(b) >> 20)
except MemoryError: print("refused MemoryError")`
	if got := outside(t, bomb); got != "ok 192" {
		t.Fatalf("control: %q", got)
	}
	p := profile()
	if f := inside(t, p, bomb); f.Stdout != "ok 192\n" {
		t.Fatalf("control: with %d bytes: %q %q", p.Limits.Memory, f.Stdout, f.Stderr)
	}
	p.Limits.Memory = 96 << 20
	f := inside(t, p, bomb)
	switch {
	case f.Stdout == "refused MemoryError\n": // no cgroup for this user: each process has its limit
		if len(f.Warnings) == 0 {
			t.Error("memory is bounded for each process only, and no warning says so")
		}
	case f.Status != facts.OOM || !f.OOMKilled || f.Limit == nil || *f.Limit != facts.LimitMemory:
		t.Errorf("%s, oom %v, limit %v, %q", f.Status, f.OOMKilled, f.Limit, f.Stdout)
	}
}

// TestSharedMemory fills memory that no process is charged for: shared anonymous maps, /dev/zero and memfds. Without
// a cgroup that counts them they are refused.
func TestSharedMemory(t *testing.T) {
	const fill = `
import mmap
n, keep = 0, []
try:
    for i in range(12):
        if sys.argv[1] == "anonymous": m = mmap.mmap(-1, 16 << 20)
        elif sys.argv[1] == "zero": m = mmap.mmap(os.open("/dev/zero", os.O_RDWR), 16 << 20)
        else:
            f = os.memfd_create("x"); os.ftruncate(f, 16 << 20); m = mmap.mmap(f, 16 << 20)
        for j in range(0, 16 << 20, 4096): m[j] = 1
        keep.append(m)
        n += 16
    print("ok", n)
except OSError as e: print("refused", errno.errorcode[e.errno], n)`
	refusals := map[string]string{"anonymous": "refused EPERM 0", "zero": "refused ENODEV 0", "memfd": "refused EPERM 0"}
	for kind, refusal := range refusals {
		if got := outside(t, fill, kind); got != "ok 192" {
			t.Fatalf("control: %s: %q", kind, got)
		}
		p := profile()
		p.Limits.Memory = 96 << 20
		f := inside(t, p, fill, kind)
		if got := strings.TrimSpace(f.Stdout); got != refusal && f.Status != facts.OOM {
			t.Errorf("%s: %q, %s; want %q or an end for memory", kind, got, f.Status, refusal)
		}
	}
	if got := strings.TrimSpace(inside(t, profile(), `print(open("/dev/zero", "rb").read(4))`).Stdout); got !=
		`b'\x00\x00\x00\x00'` {
		t.Errorf("/dev/zero reads as %s", got)
	}
}

func TestDiskFill(t *testing.T) {
	const fill = `
b = b"x" * (1 << 20); n = 0
f = open(sys.argv[1] + "/waldo-attack-fill", "wb", buffering=0)
try:
    for i in range(40):
        f.write(b)
        n += 1
    print("ok", n)
except OSError as e: print("refused", errno.errorcode[e.errno], n)
os.unlink(f.name)`
	if got := outside(t, fill, t.TempDir()); got != "ok 40" {
		t.Fatalf("control: %q", got)
	}
	p := profile()
	for i := range p.Tmpfs {
		p.Tmpfs[i].Bytes = 16 << 20
		p.Tmpfs[i].Inodes = 100
	}
	for _, place := range p.Tmpfs {
		f := inside(t, p, fill, place.Target)
		if got := strings.TrimSpace(f.Stdout); got != "refused ENOSPC 15" && got != "refused ENOSPC 16" {
			t.Errorf("%s: %q (%s)", place.Target, got, f.Stderr)
		}
	}
	const many = `
n = 0
try:
    for i in range(300):
        open(sys.argv[1] + "/waldo-attack-%d" % i, "w").close()
        n += 1
    print("ok", n)
except OSError as e: print("refused", errno.errorcode[e.errno])`
	if got := outside(t, many, t.TempDir()); got != "ok 300" {
		t.Fatalf("control: %q", got)
	}
	for _, place := range p.Tmpfs {
		if got := strings.TrimSpace(inside(t, p, many, place.Target).Stdout); got != "refused ENOSPC" {
			t.Errorf("%s: files without end: %q", place.Target, got)
		}
	}
}

func TestTimeWithoutEnd(t *testing.T) {
	rows := []struct {
		why, code string
		limit     facts.Limit
	}{
		{"a busy loop", `
while True: pass`, facts.LimitCPU},
		{"a busy loop in many processes", `
for i in range(8):
    if os.fork() == 0: break
while True: pass`, facts.LimitCPU},
		{"a sleep that hears no signal", `
import signal
for s in range(1, 32):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
time.sleep(300)`, facts.LimitWall},
		{"a child in its own session", `
if os.fork() == 0: os.setsid(); time.sleep(300)
time.sleep(300)`, facts.LimitWall},
		{"a stopped parent", `
import signal
os.kill(os.getppid(), signal.SIGSTOP)
time.sleep(300)`, facts.LimitWall},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			p := profile()
			if r.limit == facts.LimitCPU { // on a busy machine a little work takes long
				p.Limits.CPU = 300 * time.Millisecond
			} else {
				p.Limits.Wall = 1500 * time.Millisecond
			}
			began := time.Now()
			f := inside(t, p, r.code)
			if took := time.Since(began); took > p.Limits.Wall+time.Minute {
				t.Errorf("took %v", took)
			}
			if f.Status != facts.Timeout || !f.TimedOut || f.Limit == nil || *f.Limit != r.limit {
				t.Errorf("%s, timed out %v, limit %v, %+v; %s", f.Status, f.TimedOut, f.Limit != nil && *f.Limit == r.limit,
					f.Usage, f.Stderr)
			}
		})
	}
}

// TestProcessors spins in four processes; the sandbox can use one CPU.
func TestProcessors(t *testing.T) {
	const spin = `
import resource
try: os.sched_setaffinity(0, range(os.cpu_count())) # take back what the sandbox was held to
except OSError: pass
end = time.monotonic() + 1.5; began = time.monotonic(); kids = []
for i in range(4):
    p = os.fork()
    if p == 0:
        while time.monotonic() < end: pass
        os._exit(0)
    kids.append(p)
for p in kids: os.waitpid(p, 0)
u = resource.getrusage(resource.RUSAGE_CHILDREN)
print((u.ru_utime + u.ru_stime) / (time.monotonic() - began))`
	used := func(text string) (n float64) {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return n
	}
	free := 0.0
	for range 3 {
		free = max(free, used(outside(t, spin)))
	}
	if free < 1.3 {
		t.Skipf("control: this machine is too busy or too small to give four processes more than %.2f processors", free)
	}
	for range 3 {
		f := inside(t, profile(), spin)
		if n := used(f.Stdout); n > 1.25 {
			t.Errorf("%.2f processors used in the sandbox, %.2f outside", n, free)
		}
	}
}

func TestOrphansEnd(t *testing.T) {
	tag := fmt.Sprintf("3%09d", os.Getpid())
	const daemon = `
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
time.sleep(0.3); print("ok")`
	cmd := control("-c", preamble+daemon, tag)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	control := sleepers(t, tag)
	for end := time.Now().Add(time.Minute); len(control) == 0 && time.Now().Before(end); control = sleepers(t, tag) {
		time.Sleep(10 * time.Millisecond)
	}
	if len(control) != 1 {
		t.Fatalf("control: %d daemons outside", len(control))
	}
	for _, p := range control {
		_ = p.Kill()
	}
	for len(sleepers(t, tag)) > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	f := inside(t, profile(), daemon, tag)
	if f.Stdout != "ok\n" || f.Status != facts.OK {
		t.Errorf("%s: %q %q", f.Status, f.Stdout, f.Stderr)
	}
	if took := time.Since(began); took > 50*time.Second { // it would for as long as the run may take
		t.Errorf("an orphan that holds stdout kept the run for %v", took)
	}
	if left := sleepers(t, tag); len(left) > 0 {
		t.Errorf("%d processes of the sandbox outlive it", len(left))
	}
}

// sleepers finds the processes that run "sleep TAG".
func sleepers(t *testing.T, tag string) (out []*os.Process) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && string(b) == "sleep\x00"+tag+"\x00" {
			var pid int
			fmt.Sscanf(f, "/proc/%d/", &pid)
			if p, err := os.FindProcess(pid); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}

func TestFlood(t *testing.T) {
	const flood = `
b = b"x" * 65536
for i in range(int(sys.argv[1])): os.write(int(sys.argv[2]), b)`
	p := profile()
	for fd, name := range map[string]string{"1": "stdout", "2": "stderr"} {
		f := inside(t, p, flood, "3", fd)
		kept, cut := f.Stdout, f.Truncated.Stdout
		if fd == "2" {
			kept, cut = f.Stderr, f.Truncated.Stderr
		}
		if len(kept) != 3*65536 || cut || f.Status != facts.OK {
			t.Fatalf("control: %s: %d bytes kept, truncated %v, %s", name, len(kept), cut, f.Status)
		}
		f = inside(t, p, flood, "100", fd)
		kept, cut = f.Stdout, f.Truncated.Stdout
		if fd == "2" {
			kept, cut = f.Stderr, f.Truncated.Stderr
		}
		if int64(len(kept)) != p.Limits.Output || !cut || f.Usage.OutputBytes != 100*65536 {
			t.Errorf("%s: %d bytes kept, truncated %v, %d counted", name, len(kept), cut, f.Usage.OutputBytes)
		}
		f = inside(t, p, flood, "1000000", fd)
		if f.Limit == nil || *f.Limit != facts.LimitOutput {
			t.Errorf("%s: a flood of 64 GB ended by %v, %s", name, f.Limit, f.Status)
		}
	}
}

// TestExportFollowsNothing plants links and special files that an export must not follow.
func TestExportFollowsNothing(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("CANARY"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := sb(t, profile())
	f, err := b.Run(context.Background(), python(`
os.chdir("/workspace/output")
open("plain", "w").write("plain")
os.mkdir("folder"); open("folder/deep", "w").write("deep")
os.symlink(sys.argv[1], "link"); os.symlink(os.path.dirname(sys.argv[1]), "linked"); os.symlink("/proc/self/environ", "environ")
os.mkfifo("fifo"); socket.socket(socket.AF_UNIX).bind("socket")
open("setuid", "w").write("x")
try: os.chmod("setuid", 0o6777)
except PermissionError: pass # where something is mounted below /usr, the filter refuses it
for i in range(200): os.mkdir("d" * 100); os.chdir("d" * 100)
print("ok")`, canary))
	if err != nil || f.Stdout != "ok\n" {
		t.Fatalf("%v %q %q", err, f.Stdout, f.Stderr)
	}
	out := t.TempDir()
	if _, err := b.Export("/workspace/output", out); err != nil {
		t.Logf("export says: %.200v", err)
	}
	for name, want := range map[string]string{"plain": "plain", "folder/deep": "deep"} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("control: %s: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"link", "linked", "environ", "fifo", "socket"} {
		if info, err := os.Lstat(filepath.Join(out, name)); err == nil {
			t.Errorf("%s came out as %v", name, info.Mode())
		}
	}
	if info, err := os.Lstat(filepath.Join(out, "setuid")); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("setuid came out: %v", info.Mode())
	}
}

// TestSandboxesAreApart runs two sandboxes at once, and one searches for the other.
func TestSandboxesAreApart(t *testing.T) {
	one, two := sb(t, profile()), sb(t, profile())
	const plant = `
open("/tmp/planted", "w").write("x")
s = socket.socket(socket.AF_UNIX); s.bind("\0planted"); s.listen()
i = socket.socket(); i.bind(("127.0.0.1", 4567)); i.listen()
try: syscall(NR["shmget"], 4567, 4096, 0o1666)
except OSError: pass # where no cgroup counts it there is none
print("ok"); sys.stdout.flush(); sys.stdin.read()`
	const look = `
attempt(lambda: open("/tmp/planted").read())
s = socket.socket(socket.AF_UNIX); attempt(lambda: s.connect("\0planted"))
i = socket.socket(); attempt(lambda: i.connect(("127.0.0.1", 4567)))
attempt(lambda: syscall(NR["shmget"], 4567, 4096, 0))`
	planted := make(chan facts.Facts)
	stay, leave := io.Pipe()
	first := &signalled{ready: make(chan struct{})}
	go func() {
		c := python(plant)
		c.Stdout, c.Stdin = first, stay
		f, _ := one.Run(context.Background(), c)
		planted <- f
	}()
	select {
	case <-first.ready:
	case f := <-planted:
		t.Fatalf("planting: %s %q", f.Status, f.Stderr)
	}
	f, err := two.Run(context.Background(), python(look))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"refused ENOENT", "refused ECONNREFUSED", "refused ECONNREFUSED", "refused ENOENT|refused EPERM"}
	got := strings.Split(strings.TrimSpace(f.Stdout), "\n")
	for i, w := range want {
		if i >= len(got) || !oneOf(got[i], w) {
			t.Errorf("look %d: %q, want %q", i, got, w)
		}
	}
	_ = leave.Close()
	<-planted
}

// signalled reports the first write to it.
type signalled struct {
	ready chan struct{}
	done  bool
}

func (s *signalled) Write(b []byte) (int, error) {
	if !s.done {
		s.done = true
		close(s.ready)
	}
	return len(b), nil
}

// TestAsAnOrdinaryUser runs all of the above without root.
func TestAsAnOrdinaryUser(t *testing.T) {
	sandboxtest.AsOrdinaryUser(t, "TestAttacks", "TestNoRoute", "TestForkBomb", "TestMemoryBomb", "TestSharedMemory",
		"TestDiskFill", "TestTimeWithoutEnd", "TestProcessors", "TestOrphansEnd", "TestFlood", "TestExportFollowsNothing",
		"TestSandboxesAreApart")
}
