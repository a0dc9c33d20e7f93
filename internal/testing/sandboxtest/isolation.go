//go:build linux

package sandboxtest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// testRefused: a profile that forgets something closes a door.
func (s *suite) testRefused(t *testing.T) {
	rows := []struct {
		why  string
		harm func(p *sandbox.Profile)
	}{
		{"no wall-clock limit", func(p *sandbox.Profile) { p.Limits.Wall = 0 }},
		{"no limit of processor time", func(p *sandbox.Profile) { p.Limits.CPU = 0 }},
		{"no limit of memory", func(p *sandbox.Profile) { p.Limits.Memory = 0 }},
		{"no limit of processes", func(p *sandbox.Profile) { p.Limits.Pids = 0 }},
		{"no limit of open files", func(p *sandbox.Profile) { p.Limits.Files = 0 }},
		{"no limit of disk", func(p *sandbox.Profile) { p.Limits.Disk = 0 }},
		{"no limit of inodes", func(p *sandbox.Profile) { p.Limits.Inodes = 0 }},
		{"no limit of output", func(p *sandbox.Profile) { p.Limits.Output = 0 }},
		{"a limit below zero", func(p *sandbox.Profile) { p.Limits.Memory = -1 }},
		{"a tmpfs without a size", func(p *sandbox.Profile) { p.Tmpfs[0].Bytes = 0 }},
		{"a tmpfs without a limit of inodes", func(p *sandbox.Profile) { p.Tmpfs[0].Inodes = 0 }},
		{"a writable mount has no bound", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/usr", Target: "/mnt", Writable: true}}
		}},
		{"a mount over what the sandbox is made of", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/usr", Target: "/etc/x"}}
		}},
		{"a mount over the root", func(p *sandbox.Profile) { p.Mounts = []sandbox.Mount{{Source: "/usr", Target: "/"}} }},
		{"a target with .. in it", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/usr", Target: "/mnt/../etc"}}
		}},
		{"a relative target", func(p *sandbox.Profile) { p.Tmpfs[0].Target = "tmp" }},
		{"every file of this machine", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/", Target: "/mnt"}}
		}},
		{"every file of this machine by another name", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/proc/self/root", Target: "/mnt"}}
		}},
		{"a source that is not there", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/nonexistent/waldo", Target: "/mnt"}}
		}},
		{"a device as a source", func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/dev/zero", Target: "/mnt"}}
		}},
		{"hosts without an egress server", func(p *sandbox.Profile) { p.Network.Hosts = []string{"example.com"} }},
		{"a template that is not there", func(p *sandbox.Profile) { p.Template.Name = "" }},
		{"an empty profile", func(p *sandbox.Profile) { *p = sandbox.Profile{} }},
	}
	control := s.start(t, Profile())
	_ = control
	for _, r := range rows {
		p := Profile()
		r.harm(&p)
		b, err := s.driver.Start(context.Background(), p)
		if err == nil {
			b.Close()
			t.Errorf("%s: started", r.why)
		} else if root := "every file of this machine"; strings.HasPrefix(r.why, root) && !strings.Contains(err.Error(), root) {
			t.Errorf("%s: refused as %q", r.why, err)
		}
	}
}

// A question is code for a sandbox and the output that it must give. A level that does not promise its class gives
// less.
type question struct{ class, why, code, want, less string }

// aboutProgram are those about the process itself.
func aboutProgram(bounding string) []question {
	return []question{
		{"identity", "the user is not root", `print(os.getuid() > 0, os.getgid() > 0)`, "True True", ""},
		{"identity", "no group of the launcher's", `print(os.getgroups() in ([], [os.getgid()]) or os.getgroups())`,
			"True", ""},
		{
			"identity", "no capability in any set",
			`h = (ctypes.c_uint32 * 2)(0x20080522, 0); d = (ctypes.c_uint32 * 6)(); libc.capget(h, d); print(list(d),` +
				` [c for c in range(41) if libc.prctl(47, 1, c, 0, 0) == 1])`, "[0, 0, 0, 0, 0, 0] []", "",
		},
		{"bounding set", "no capability to be had again", `print([c for c in range(41) if libc.prctl(23, c, 0, 0, 0) == 1])`,
			"[]", bounding},
		{"identity", "no new privileges", `print(libc.prctl(39, 0, 0, 0, 0))`, "1", ""},
		{"identity", "a filter of system calls", `print(libc.prctl(21, 0, 0, 0, 0))`, "2", ""},
		{"contents of files", "no descriptor above 2", `print(opened(3))`, "[]", ""},
		{"contents of files", "only the given environment", `print(sorted(k for k in os.environ if k != "LC_CTYPE"))`,
			"['HOME', 'LANG', 'OUT', 'PATH']", "['HOME', 'LANG', 'OUT', 'PATH', 'TMPDIR']"},
		{"identity", "a session of its own", `print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())`,
			"True True", ""},
		{"contents of files", "no terminal", `attempt(lambda: os.open("/dev/tty", os.O_RDWR))`,
			"refused ENOENT|refused ENXIO", "refused EACCES|refused ENXIO"},
		{"identity", "the default umask", `print(oct(os.umask(0)))`, "0o22", ""},
		{"signals and tracing", "every signal has its default action",
			`print([s for s in range(1, 32) if signal.getsignal(s) == signal.SIG_IGN and s not in (signal.SIGPIPE,` +
				` signal.SIGXFSZ)])`, "[]", ""},
		{"signals and tracing", "no signal is blocked", `print(signal.pthread_sigmask(signal.SIG_BLOCK, []))`, "set()", ""},
	}
}

// aboutPlace are those about its network, its files and the processes beside it.
func aboutPlace(port int, host string) []question {
	const noSockets = "refused EPERM"
	return []question{
		{"network", "only loopback", `print(socket.if_nameindex())`, "[(1, 'lo')]", noSockets},
		{"network", "no way to the internet", `s = socket.socket(); attempt(lambda: s.connect(("192.0.2.1", 80)))`,
			"refused ENETUNREACH", noSockets},
		{"network", "no way to the metadata service",
			`s = socket.socket(); attempt(lambda: s.connect(("169.254.169.254", 80)))`, "refused ENETUNREACH", noSockets},
		{"network", "the host's loopback is another", `s = socket.socket(); attempt(lambda: s.connect(("127.0.0.1", ` +
			itoa(port) + `)))`, "refused ECONNREFUSED", noSockets},
		{
			"own loopback", "its own loopback works",
			`a = socket.create_server(("127.0.0.1", 0)); print(bool(socket.create_connection(a.getsockname())))`,
			"True", noSockets,
		},
		{"contents of files", "the root is read-only", `attempt(lambda: open("/x", "w"))`,
			"refused EROFS|refused EACCES", ""},
		{"contents of files", "/usr is read-only", `attempt(lambda: open("/usr/x", "w"))`,
			"refused EROFS|refused EACCES", ""},
		{"contents of files", "/etc is read-only", `attempt(lambda: open("/etc/passwd", "a"))`,
			"refused EROFS|refused EACCES", ""},
		{"contents of files", "/dev is read-only", `attempt(lambda: open("/dev/x", "w"))`,
			"refused EROFS|refused EACCES", ""},
		{"names of files", "/dev has no disk", `print(sorted(os.listdir("/dev")))`,
			"['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'urandom', 'zero']" +
				// gVisor's own, each served by its kernel
				"|['char', 'fd', 'full', 'fuse', 'net', 'null', 'ptmx', 'pts', 'random', 'shm', 'stderr', 'stdin', 'stdout', " +
				"'tty', 'urandom', 'zero']", "refused EACCES"},
		{
			"contents of files", "/dev/null works",
			`print(open("/dev/null", "w").write("x"), open("/dev/zero", "rb").read(1), len(open("/dev/urandom", "rb").read(4)))`,
			"1 b'\\x00' 4", "",
		},
		{"names of files", "no shadow file", `attempt(lambda: open("/etc/shadow"))`, "refused ENOENT", "refused EACCES"},
		{"names of files", "no machine id", `attempt(lambda: open("/etc/machine-id"))`, "refused ENOENT", "refused EACCES"},
		{
			"names of files", "no home folders",
			`print([d for d in ("/root", "/home", "/var", "/opt", "/srv", "/mnt", "/run") if os.path.isdir(d) and ` +
				`os.listdir(d)])`, "[]", "refused EACCES",
		},
		{"names of files", "no sysfs of the host's",
			`print(os.path.isdir("/sys") and (os.path.exists("/proc/gvisor") or os.listdir("/sys"),` +
				` os.path.exists("/sys/devices/virtual/dmi"), os.path.exists("/sys/block/vda")))`,
			"False|(True, False, False)", "refused EACCES"}, // gVisor has a made-up one
		{"host name", "another host name", `print(os.uname().nodename)`, "waldo", host},
		{"contents of files", "no kernel settings", `attempt(lambda: open("/proc/sys/kernel/core_pattern", "w"))`,
			"refused ENOENT|refused EROFS|refused EACCES", ""},
		{"processes out of sight", "no word of the host's mounts",
			`print([l for l in open("/proc/self/mountinfo") if "/dev/" in l.split(" - ")[-1] or "dir=" in l])`,
			"[]", "refused EACCES"},
		{"processes out of sight", "no word of the host's cgroups",
			`print(set(l.strip().split(":")[2] for l in open("/proc/self/cgroup")) <= {"/"})`, "True", "refused EACCES"},
		{"processes out of sight", "few processes in sight",
			`print(len([p for p in os.listdir("/proc") if p.isdigit()]) <= 2)`, "True", "refused EACCES"},
		{"processes out of sight", "process 1 cannot be looked into", `attempt(lambda: os.readlink("/proc/1/exe"))`,
			"refused EACCES|refused ENOENT|refused EPERM", "refused EACCES"},
		{"signals and tracing", "process 1 cannot be killed", `os.kill(1, 9); print("alive")`,
			"alive|refused EPERM|", "refused EPERM"},
		{"identity", "no core files", `print(resource.getrlimit(resource.RLIMIT_CORE))`, "(0, 0)", ""},
		{"processes of the sandbox alone", "a limit of processes",
			`print(resource.getrlimit(resource.RLIMIT_NPROC)[1] <= 100)`, "True", "True|False"},
		{"identity", "a limit of open files", `print(resource.getrlimit(resource.RLIMIT_NOFILE))`, "(256, 256)", ""},
		{"disk of the whole sandbox", "a limit of file size", `print(resource.getrlimit(resource.RLIMIT_FSIZE))`,
			"(16777216, 16777216)", ""},
		{
			"metadata of files", "no setuid",
			`open(TMP+"/s", "w"); os.chmod(TMP+"/s", 0o4755); print(bool(os.statvfs(TMP).f_flag & os.ST_NOSUID))`,
			"True", "refused EPERM",
		},
		{"metadata of files", "no devices", `attempt(lambda: os.mknod(TMP+"/d", 0o20600, os.makedev(1, 3)))`,
			"refused EPERM", ""},
		{"identity", "no becoming another user", `attempt(lambda: os.setresuid(0, 0, 0))`,
			"refused EINVAL|refused EPERM", ""},
		{"identity", "no new user namespace",
			`attempt(lambda: call(272 if os.uname().machine == "x86_64" else 97, 0x10000000))`, "refused EPERM", ""},
		{"folders at their names", "the working folder", `print(os.getcwd()[-10:], os.getcwd() == "/workspace")`,
			"/workspace True", "/workspace False"},
	}
}

// testIsolation tests from inside. Each answer is exact: a refusal for another reason proves nothing.
func (s *suite) testIsolation(t *testing.T) {
	leaked, err := os.Open("/etc/passwd") // not closed on exec
	if err != nil {
		t.Fatal(err)
	}
	defer leaked.Close()
	for number := 6; number < 80; number++ { // wherever there is room
		var st syscall.Stat_t
		if syscall.Fstat(number, &st) == syscall.EBADF && syscall.Dup3(int(leaked.Fd()), number, 0) == nil {
			defer syscall.Close(number)
		}
	}
	t.Setenv("WALDO_CANARY", "1")
	signal.Ignore(syscall.SIGUSR1) // as nohup does with another: it would be inherited
	defer signal.Reset(syscall.SIGUSR1)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port

	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	bounding := "[]"
	if os.Geteuid() != 0 { // only root can make it smaller
		bounding = fmt.Sprint(slices.Collect(bounds()))
		bounding = strings.ReplaceAll(bounding, " ", ", ")
	}
	b := s.start(t, Profile())
	for _, r := range append(aboutProgram(bounding), aboutPlace(port, host)...) {
		f := run(t, b, python(r.code))
		want := s.answer(r.class, r.want, r.less)
		if got := said(f); !slices.Contains(strings.Split(want, "|"), got) {
			t.Errorf("%s: %s: got %q, want %q %s", r.class, r.why, got, want, f.Stderr)
		}
	}
	p := Profile()
	for i := range 10 {
		p.Tmpfs = slices.Insert(p.Tmpfs, 1, sandbox.Tmpfs{Target: "/workspace/more" + itoa(i), Bytes: 1 << 20, Inodes: 10})
	}
	s.written(t, s.start(t, p))
}

// said returns a program's output or, if an unexpected errno ended it, that errno.
func said(f facts.Facts) string {
	if _, after, ok := strings.Cut(f.Stderr, "[Errno "); ok && f.Stdout == "" {
		text, _, _ := strings.Cut(after, "]")
		n, _ := strconv.Atoi(text)
		return "refused " + unix.ErrnoName(syscall.Errno(n))
	}
	return strings.TrimSpace(f.Stdout)
}

// bounds lists the capabilities in the bounding set of this process.
func bounds() iter.Seq[int] {
	return func(yield func(int) bool) {
		for c := range 41 {
			if n, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && n == 1 && !yield(c) {
				return
			}
		}
	}
}

// written fails when a file is not seen where it was written: descriptors got mixed up.
func (s *suite) written(t *testing.T, b sandbox.Sandbox) {
	t.Helper()
	f := run(t, b, python(`open(OUT+"/x", "w").write("x")`))
	if !slices.Equal(f.Files.Written, []string{"/workspace/output/x"}) {
		t.Errorf("written: %q", f.Files.Written)
	}
}

// testStreams: standard streams are pipes of the sandbox's own, and end.
func (s *suite) testStreams(t *testing.T) {
	b := s.start(t, Profile())
	c := python(`print(sys.stdin.read().upper()); sys.stderr.write("e")`)
	c.Stdin = strings.NewReader("hello")
	var out strings.Builder
	c.Stdout = &out
	f := run(t, b, c)
	if f.Stdout != "HELLO\n" || f.Stderr != "e" || out.String() != f.Stdout {
		t.Errorf("stdout %q (passed on %q), stderr %q", f.Stdout, out.String(), f.Stderr)
	}
	if f := run(t, b, python(`print(repr(sys.stdin.read()), os.isatty(0), os.isatty(1))`)); f.Stdout !=
		"'' False False\n" {
		t.Errorf("no input: %q %q", f.Stdout, f.Stderr)
	}
	c = python(`os.close(0); print("went")`)
	c.Stdin = endless{}
	if f := run(t, b, c); f.Stdout != "went\n" {
		t.Errorf("input without a reader: %q", f.Stdout)
	}
	bridge, ours, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	c = python(`s = socket.socket(fileno=3); s.sendall(b"through " + s.recv(10)); print([f for f in opened(4) if f != ` +
		`s.fileno()])`)
	c.Bridge = bridge
	if _, err := ours.Write([]byte("bridge")); err != nil {
		t.Fatal(err)
	}
	f = run(t, b, c)
	bridge.Close()
	buf := make([]byte, 100)
	n, _ := ours.Read(buf)
	if string(buf[:n]) != "through bridge" || f.Stdout != "[]\n" {
		t.Errorf("bridge: %q; %s%s", buf[:n], f.Stdout, f.Stderr)
	}
	c = python(`sys.stdout.write("x" * 30_000_000)`)
	c.Serve = true
	var count counter
	c.Stdout = &count
	if f := run(t, b, c); int(count) != 30_000_000 || f.Stdout != "" || f.Limit != nil {
		t.Errorf("a server's output: %d bytes passed on, %d kept, limit %v", count, len(f.Stdout), deref(f.Limit))
	}
	c = python(`sys.stdout.write("heard " + sys.stdin.readline())`)
	said := make(chan string, 1)
	c.Stdin, c.Serve, c.Direct = nil, true, &sandbox.Direct{
		In: func(pipe *os.File) { _, _ = io.WriteString(pipe, "it\n") },
		Out: func(pipe *os.File) {
			b, _ := io.ReadAll(pipe)
			said <- string(b)
		}}
	if f := run(t, b, c); <-said != "heard it\n" || f.Status != facts.OK {
		t.Errorf("a server whose pipes waldo uses itself: %s %s", f.Status, f.Stderr)
	}
}

type counter int

func (c *counter) Write(b []byte) (int, error) { *c += counter(len(b)); return len(b), nil }

type endless struct{}

func (endless) Read(b []byte) (int, error) { time.Sleep(time.Millisecond); return len(b), nil }

func socketpair() (theirs, ours *os.File, err error) {
	p, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(p[0]), "theirs"), os.NewFile(uintptr(p[1]), "ours"), nil
}
