//go:build linux && (amd64 || arm64)

package confined

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
	"waldo/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) {
	Main()
	if len(os.Args) > 1 && os.Args[1] == "behind" {
		fmt.Fprintln(os.Stderr, sandboxtest.BehindMain(os.Args[2:], exec.LookPath))
		os.Exit(99)
	}
	os.Exit(m.Run())
}

func python(code string) sandbox.Command {
	return sandbox.Command{Argv: []string{"python3", "-I", "-S", "-c", code}, Env: []string{"PATH=/usr/bin:/bin"}}
}

// start makes a sandbox, or passes on a kernel that says itself that it cannot.
func start(t *testing.T, p sandbox.Profile) sandbox.Sandbox {
	t.Helper()
	b, err := New(Options{MilliCPU: 1000}).Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestSuite(t *testing.T) { sandboxtest.Run(t, New(Options{MilliCPU: 1000})) }

func TestKilled(t *testing.T) {
	sandboxtest.Killed(t, "TestKilled", func() sandbox.Driver { return New(Options{}) })
}

// TestSignals: signals that waldo ignores, as under nohup, have their default action in its commands.
func TestSignals(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if text, err := exec.Command("python3", "-I", "-c", "import signal; print(signal.getsignal(1))").Output(); err !=
		nil || string(text) != "1\n" {
		t.Fatalf("control: %q %v", text, err)
	}
	f, err := start(t, sandboxtest.Profile()).Run(t.Context(), python("import signal; print(signal.getsignal(1))"))
	if err != nil || f.Stdout != "0\n" {
		t.Errorf("%v %q %q", err, f.Stdout, f.Stderr)
	}
}

// TestAsOrdinaryUser runs the suite and the attacks again as a user with no capabilities, where this
// was started by root.
func TestAsOrdinaryUser(t *testing.T) {
	sandboxtest.AsOrdinaryUser(t, "TestSuite", "TestHeld", "TestEnds", "TestProbe", "TestKilled")
}

func TestProbe(t *testing.T) {
	r := New(Options{MilliCPU: 1000}).Probe(context.Background())
	if !r.OK {
		t.Fatalf("%+v", r)
	}
}

// TestHeld tries each promised class. A row prints "held", or the thing that it could do.
func TestHeld(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(file, 0o666)
	b := start(t, sandboxtest.Profile())
	const head = "import os,socket,resource,signal\nfile=%FILE%\ndef no(f):\n try: f(); print('could')\n" +
		" except (OSError,ValueError): print('held')\n"
	for _, r := range []struct{ why, code, want string }{
		{"its own folder can be written (control)", "no(lambda: open('own','w'))", "could\n"},
		{"a pair of connected sockets (control)", "no(lambda: socket.socketpair())", "could\n"},
		{"network: TCP", "no(lambda: socket.socket())", "held\n"},
		{"network: a Unix socket has the host's names", "no(lambda: socket.socket(socket.AF_UNIX))", "held\n"},
		{"network: a pair of datagram sockets could send to any name",
			"no(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))", "held\n"},
		{"contents: reading", "no(lambda: open(file))", "held\n"},
		{"contents: writing", "no(lambda: open(file,'a'))", "held\n"},
		{"contents: cutting", "no(lambda: os.truncate(file,0))", "held\n"},
		{"contents: /proc", "no(lambda: open('/proc/self/status'))", "held\n"},
		{"metadata: mode", "no(lambda: os.chmod('own',0o600))", "held\n"},
		{"metadata: times", "no(lambda: os.utime('own'))", "held\n"},
		{"its own file's mode (control)", "no(lambda: os.fchmod(os.open('own',os.O_RDWR),0o700))", "could\n"},
		{"a set-id file by its mode", "no(lambda: os.fchmod(os.open('own',os.O_RDWR),0o4755))", "held\n"},
		{"a set-id file as it is made", "no(lambda: os.open('new',os.O_CREAT|os.O_RDWR,0o2755))", "held\n"},
		{"a set-id file as a node", "no(lambda: os.mknod('node',0o104755))", "held\n"},
		{"descriptors of waldo's", "no(lambda: os.fstat(3))", "held\n"},
		{"signals", "no(lambda: os.kill(os.getppid(),0))", "held\n"},
		{"limits of another process", "no(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE))", "held\n"},
		{"its own limits (control)", "no(lambda: resource.prlimit(0, resource.RLIMIT_CORE))", "could\n"},
		{"priority of others of the same user", "no(lambda: os.setpriority(os.PRIO_USER,0,5))", "held\n"},
	} {
		f, err := b.Run(context.Background(), python(strings.Replace(head, "%FILE%", strconv.Quote(file), 1)+r.code))
		if err != nil || f.Stdout != r.want {
			t.Errorf("%s: %q %q %v", r.why, f.Stdout, f.Stderr, err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "x" {
		t.Errorf("the host's file is %q (%v)", got, err)
	}
}

// TestEnds: limits, and processes that the command leaves behind.
func TestEnds(t *testing.T) {
	limit := func(l facts.Limit) *facts.Limit { return &l }
	for _, r := range []struct {
		why, code string
		change    func(*sandbox.Profile)
		status    facts.Status
		limit     *facts.Limit
	}{
		{"nothing in the way (control)", "print(1)", func(*sandbox.Profile) {}, facts.OK, nil},
		{"wall clock", "import time; time.sleep(300)", func(p *sandbox.Profile) { p.Limits.Wall = 500 * time.Millisecond },
			facts.Timeout, limit(facts.LimitWall)},
		{"processor time", "while True: pass", func(p *sandbox.Profile) { p.Limits.CPU = 300 * time.Millisecond },
			facts.Timeout, limit(facts.LimitCPU)},
		{"many small files", "n=0\nwhile True:\n open('f%d'%n,'wb').write(b'x'*65536); n+=1",
			func(p *sandbox.Profile) { p.Limits.Disk = 1 << 20 }, facts.Failed, limit(facts.LimitDisk)},
		{"an orphan in a session of its own ends with the command",
			"import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0: time.sleep(300)", func(*sandbox.Profile) {},
			facts.OK, nil},
	} {
		p := sandboxtest.Profile()
		r.change(&p)
		began := time.Now()
		f, err := start(t, p).Run(context.Background(), python(r.code))
		same := (f.Limit == nil) == (r.limit == nil) && (f.Limit == nil || *f.Limit == *r.limit)
		if err != nil || f.Status != r.status || !same {
			t.Errorf("%s: %s %v %q %v", r.why, f.Status, f.Limit, f.Stderr, err)
		}
		if d := time.Since(began); d > 50*time.Second {
			t.Errorf("%s: took %s", r.why, d)
		}
	}
}

// TestCounted: a command is counted and held from where it begins, and not waldo in its place, which has more
// processes and memory than it may.
func TestCounted(t *testing.T) {
	p := sandboxtest.Profile()
	p.Limits.Pids, p.Limits.Memory = 1, 20<<20
	b := start(t, p)
	for range 5 {
		f, err := b.Run(t.Context(), python("import time; time.sleep(0.3)"))
		if err != nil || f.Status != facts.OK || f.Usage.PidsPeak != 1 || f.Usage.MemoryPeak <= 0 ||
			f.Usage.MemoryPeak > 20<<20 {
			t.Errorf("%v %s, %d processes, %d bytes, limit %v: %s", err, f.Status, f.Usage.PidsPeak, f.Usage.MemoryPeak,
				f.Limit, f.Stderr)
		}
	}
}

// TestFilledUnseen: a command that fills its sandbox and ends between two measurements is reported as having
// filled it.
func TestFilledUnseen(t *testing.T) {
	p := probeProfile()
	b := start(t, p).(*instance)
	for _, want := range []bool{false, true} {
		r := &run{sandbox: b, out: &stdio.Capture{}, err: &stdio.Capture{}}
		f := r.facts(t.Context(), sandbox.Command{}, report{}, volume.Scan(b.places), time.Millisecond)
		if got := f.Limit != nil && *f.Limit == facts.LimitDisk && f.Status == facts.Failed; got != want || !want &&
			f.Status != facts.OK {
			t.Errorf("its folders full %t: limit %v, status %s", want, f.Limit, f.Status)
		}
		if err := os.WriteFile(b.here("/tmp")+"/f", make([]byte, p.Limits.Disk+1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefuse: profiles that need namespaces are refused.
func TestRefuse(t *testing.T) {
	for _, r := range []struct {
		why    string
		abi    int
		change func(*sandbox.Profile)
		ok     bool
	}{
		{"as it is (control)", needABI, func(*sandbox.Profile) {}, true},
		{"a Landlock that leaves signals alone", needABI - 1, func(*sandbox.Profile) {}, false},
		{"another root", needABI, func(p *sandbox.Profile) { p.Template = sandbox.Template{Name: "x", Dir: "/srv/x"} },
			false},
		{"a folder at another name", needABI,
			func(p *sandbox.Profile) { p.Mounts = []sandbox.Mount{{Source: "/srv/a", Target: "/srv/b"}} }, false},
		{"hosts", needABI, func(p *sandbox.Profile) {
			p.Network = sandbox.Network{Hosts: []string{"example.com"}, Ports: []uint16{443},
				Serve: func(sandbox.Egress) io.Closer { return nil }}
		}, false},
		{"processes that other commands share", needABI,
			func(p *sandbox.Profile) { p.Share = &sandbox.Share{Dir: "/srv/a"} }, false},
		{"a writable folder", needABI, func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/srv/a", Target: "/srv/a", Writable: true}}
		}, false},
		{"a folder that hides a file", needABI, func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/srv/a", Target: "/srv/a", Hidden: []string{".env"}}}
		}, false},
		{"a folder that hides nothing (control)", needABI, func(p *sandbox.Profile) {
			p.Mounts = []sandbox.Mount{{Source: "/srv/a", Target: "/srv/a"}}
		}, true},
		{"no limit of memory", needABI, func(p *sandbox.Profile) { p.Limits.Memory = 0 }, false},
	} {
		p := sandboxtest.Profile()
		r.change(&p)
		if err := refuse(p, r.abi); (err == nil) != r.ok {
			t.Errorf("%s: %v", r.why, err)
		}
	}
}

// TestPinned checks the number of processors of a sandbox that is limited to one. A machine with one processor
// shows nothing.
func TestPinned(t *testing.T) {
	b := start(t, sandboxtest.Profile())
	var out strings.Builder
	c := python("import os; print(len(os.sched_getaffinity(0)))")
	c.Stdout = &out
	if _, err := b.Run(context.Background(), c); err != nil || out.String() != "1\n" {
		t.Errorf("a sandbox of one processor may use %q of this machine's %d: %v", out.String(), runtime.NumCPU(), err)
	}
}
