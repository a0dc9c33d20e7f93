//go:build linux && (amd64 || arm64)

package pool_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
	"waldo/internal/testing/sandboxtest"
)

var env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "OUT=/workspace/output"}

// ahead is the interpreter that a profile of the tests starts with.
func ahead(t testing.TB, lang guest.Lang, exe string) *sandbox.Prestart {
	t.Helper()
	argv, head, err := guest.Start{Lang: lang, Warm: true}.Command()
	if err != nil {
		t.Fatal(err)
	}
	return &sandbox.Prestart{Argv: append([]string{exe}, argv...), Env: env, Prelude: head,
		Zygote: guest.Start{Lang: lang}.Zygote(), Domain: "test"}
}

// job is the command that the waiting interpreter of a is for.
func job(t testing.TB, a *sandbox.Prestart, code string, args ...string) sandbox.Command {
	t.Helper()
	stdin, err := guest.Script{Lang: guest.Python, Code: []byte(code), Args: args}.Job()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Command{Argv: a.Argv, Env: a.Env, Stdin: guest.Stdin(a.Prelude, stdin, nil)}
}

func python(t testing.TB) sandbox.Profile {
	p := sandboxtest.Profile()
	p.Prestart = ahead(t, guest.Python, "/usr/bin/python3")
	return p
}

func newPool(t testing.TB, most int) *pool.Driver {
	t.Helper()
	return newServed(t, most, 0)
}

// newServed is newPool with namespaces made ahead, as waldo serve has them.
func newServed(t testing.TB, most, ready int) *pool.Driver {
	t.Helper()
	d := pool.New(namespace.New(namespace.Options{MilliCPU: 1000, Prewarm: ready}),
		pool.Options{Most: most, Failed: func(err error) { t.Errorf("behind the runs: %v", err) }})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the pool: %v", err)
		}
	})
	return d
}

// filled waits until n sandboxes are ready for the profile.
func filled(t testing.TB, d *pool.Driver, p sandbox.Profile, n int) {
	t.Helper()
	d.Keep(p, n)
	for end := time.Now().Add(time.Minute); d.Ready(p) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d sandboxes are ready, not %d", d.Ready(p), n)
		}
	}
}

// run runs code in a sandbox that was waiting.
func run(t testing.TB, d *pool.Driver, p sandbox.Profile, code string, args ...string) facts.Facts {
	t.Helper()
	filled(t, d, p, 1)
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f, err := b.Run(context.Background(), job(t, p.Prestart, code, args...))
	if err != nil {
		t.Fatal(err)
	}
	if !f.Sandbox.Warm {
		t.Error("control: the sandbox was not warm")
	}
	return f
}

// warm makes the suite use the pool: each sandbox comes from it, and each Python program runs in a copy of a
// zygote that waited there.
type warm struct {
	*pool.Driver
	t    *testing.T
	runs *atomic.Int32
}

func (w warm) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	p.Prestart = ahead(w.t, guest.Python, "/usr/bin/python3")
	if refused, err := w.Driver.Driver.Start(ctx, p); err != nil {
		return nil, err // a profile that the driver refuses cold can never be ready
	} else if err := refused.Close(); err != nil {
		return nil, err
	}
	if len(p.Mounts) == 0 {
		filled(w.t, w.Driver, p, 1)
	}
	b, err := w.Driver.Start(ctx, p)
	return warmSandbox{b, w, p}, err
}

type warmSandbox struct {
	sandbox.Sandbox
	w warm
	p sandbox.Profile
}

func (b warmSandbox) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	a := b.p.Prestart
	if i := slices.Index(c.Argv, "-c"); i > 0 && c.Argv[0] == "python3" && slices.Equal(c.Env, env) && c.Dir == "" &&
		c.Direct == nil {
		j := job(b.w.t, a, c.Argv[i+1], c.Argv[i+2:]...)
		if c.Stdin != nil {
			j.Stdin = io.MultiReader(j.Stdin, c.Stdin)
		}
		c.Argv, c.Stdin = j.Argv, j.Stdin
	}
	f, err := b.Sandbox.Run(ctx, c)
	if f.Sandbox.Warm {
		b.w.runs.Add(1)
	}
	return f, err
}

// TestConformance holds sandboxes from the pool to the suite of every driver.
func TestConformance(t *testing.T) {
	var runs atomic.Int32
	sandboxtest.Run(t, warm{newPool(t, 16), t, &runs})
	if n := runs.Load(); n < 30 {
		t.Errorf("only %d runs were warm", n)
	}
}

// TestMain also serves as "sandbox -- COMMAND", for the runner of the probes.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "sandbox" {
		code, err := sandboxMain(os.Args[3:])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 125
		}
		os.Exit(code)
	}
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		fmt.Println("pool: the tests need /usr/bin/python3")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestEnds: how a waiting command ended, however it went about it. The status is the kernel's.
func TestEnds(t *testing.T) {
	d, p := newPool(t, 2), python(t)
	for _, r := range []struct {
		why, code string
		exit      int
		signal    string
		stdout    string
	}{
		{"it says how", "import sys; print(1); sys.exit(7)", 7, "", "1\n"},
		{"a child that ends first ends nothing", "import os, time\nif not os.fork(): os._exit(5)\nos.wait(); print('on')",
			0, "", "on\n"},
		{"a child that outlives it has no say",
			"import os, time\nif not os.fork():\n  time.sleep(.2); os._exit(5)\nprint('first')", 0, "", "first\n"},
		{"a child that ends while its parent has ended without a word", `
import os, ctypes
r, w = os.pipe()
if not os.fork():
    os.close(w); os.read(r, 1); os._exit(5)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 9)`, 9, "", ""},
		{"a thread ends it",
			"import os, threading, time\nthreading.Thread(target=lambda: os._exit(4)).start(); time.sleep(60)", 4, "", ""},
		{"a signal ends it", "import os; os.kill(os.getpid(), 15)", 0, "SIGTERM", ""},
		{"a program in its place ends", "import os; print('x', flush=True); os.execv('/bin/sh', ['sh', '-c', 'exit 6'])", 6,
			"", "x\n"},
		{"all it wrote is there", "import sys; sys.stdout.write('y' * 60000)", 0, "", strings.Repeat("y", 60000)},
	} {
		t.Run(r.why, func(t *testing.T) {
			for _, f := range []facts.Facts{run(t, d, p, r.code), hurried(t, d, p, r.code)} {
				signal := ""
				if f.Signal != nil {
					signal = *f.Signal
				}
				if signal != r.signal || signal == "" && (f.ExitCode == nil || *f.ExitCode != r.exit) || f.Stdout != r.stdout {
					t.Errorf("exit %v signal %q stdout %.40q, want %d %q %.40q: %s", f.ExitCode, signal, f.Stdout, r.exit, r.signal,
						r.stdout, f.Stderr)
				}
			}
		})
	}
}

// hurried runs code in a sandbox that is forked for it, because no such sandbox can be ready.
func hurried(t testing.TB, d *pool.Driver, p sandbox.Profile, code string) facts.Facts {
	t.Helper()
	p.Mounts = []sandbox.Mount{{Source: "/usr/share", Target: "/workspace/input"}}
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f, err := b.Run(context.Background(), job(t, p.Prestart, code))
	if err != nil || !f.Sandbox.Warm {
		t.Fatalf("not forked: %v %+v", err, f)
	}
	return f
}

// TestOneJob: a job does not find files or processes of the one before, and no sandbox is used twice.
func TestOneJob(t *testing.T) {
	d, p := newPool(t, 2), python(t)
	const look = `
import os, builtins, sys
print(os.listdir('/tmp'), os.listdir('/workspace/output'), os.listdir('/dev/shm'), hasattr(builtins, 'left'), os.environ.get('LEFT'), sorted(p for p in os.listdir('/proc') if p.isdigit()))
builtins.left = 1; os.environ['LEFT'] = '1'
for place in ('/tmp', '/workspace/output', '/dev/shm'): open(place + '/left', 'w')
if not os.fork():
    import time; time.sleep(60)
`
	first := run(t, d, p, look)
	for range 4 {
		if f := run(t, d, p, look); f.Stdout != first.Stdout || !strings.HasPrefix(f.Stdout, "[] [] [] False None") {
			t.Errorf("%q, and the first %q: %s", f.Stdout, first.Stdout, f.Stderr)
		}
	}
}

// TestOwnChance: no two sandboxes share any seed of chance. Sandboxes that are started one by one share neither
// the seed of hashes nor the places of memory.
func TestOwnChance(t *testing.T) {
	const chance = "import os, random, secrets, ssl, tempfile, uuid\nprint(random.random())\n" +
		"print(random.getstate()[1][:3])\nprint(os.urandom(8))\nprint(ssl.RAND_bytes(8))\nprint(secrets.token_hex())\n" +
		"print(uuid.uuid4())\nprint(uuid.uuid1())\nprint(tempfile.mktemp())\ntry:\n import numpy\n" +
		" print(numpy.random.rand(), numpy.random.default_rng().random())\nexcept ImportError: print(os.urandom(9))\n"
	const places = "print(hash('a'))\nprint([l.split('-')[0] for l in open('/proc/self/maps') if 'libc' in l or " +
		"'stack' in l])"
	for _, r := range []struct {
		why, code string
		forked    bool
		answers   int
	}{
		{"from one interpreter", chance, true, 9},
		{"each from its own", chance + places, false, 11},
	} {
		d, p := newPool(t, 3), python(t)
		if !r.forked {
			p.Prestart.Zygote = ""
		}
		seen := map[string]bool{}
		for range 5 {
			f := run(t, d, p, r.code)
			for _, line := range strings.Split(strings.TrimSpace(f.Stdout), "\n") {
				if seen[line] {
					t.Errorf("%s: %s was there before", r.why, line)
				}
				seen[line] = true
			}
		}
		if len(seen) != 5*r.answers {
			t.Errorf("%s: %d different answers, not %d: %v", r.why, len(seen), 5*r.answers, seen)
		}
	}
}

// TestAssign: the parts of a profile that belong to one job come with the job.
func TestAssign(t *testing.T) {
	d, p := newPool(t, 2), python(t)
	filled(t, d, p, 1)
	seed := t.TempDir()
	if err := os.WriteFile(seed+"/given", []byte("seed"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.ID, p.Tmpfs[1].Seed, p.Limits.Output = "s_own", seed, 5
	var f facts.Facts
	// a busy machine comes so far later
	for p.Limits.Wall = 300 * time.Millisecond; len(f.Files.Written) == 0 &&
		p.Limits.Wall < 10*time.Second; p.Limits.Wall *= 5 {
		filled(t, d, p, 1)
		f = run(t, d, p, "print(open('/workspace/output/given').read() + '1234', flush=True)\nopen('/workspace/output/new', "+
			"'w')\nimport time; time.sleep(60)")
	}
	if f.Stdout != "seed1" || !f.Truncated.Stdout || !f.TimedOut || f.Sandbox.ID != "s_own" ||
		!slices.Equal(f.Files.Written, []string{"/workspace/output/new"}) {
		t.Errorf("%+v: %s", f, f.Stderr)
	}
	p.Tmpfs[1].Seed = "/nonexistent"
	filled(t, d, p, 2)
	if _, err := d.Start(context.Background(), p); err == nil {
		t.Error("started without the job's files")
	}
	p.Tmpfs[1].Seed, p.Limits.Wall = "", 0
	filled(t, d, p, 2)
	if _, err := d.Start(context.Background(), p); err == nil {
		t.Error("started without a limit of time")
	}
}

// TestNotTheJob: a command that is not the one that waits runs cold in the same sandbox, and the waiting one is
// gone.
func TestNotTheJob(t *testing.T) {
	d, p := newPool(t, 2), python(t)
	for _, r := range []struct {
		why, want string
		harm      func(c *sandbox.Command)
	}{
		{"another program", "1\n", func(c *sandbox.Command) {
			c.Argv = []string{"sh", "-c", "set -- /proc/[0-9]*; echo $#"}
		}},
		{"another environment", "1\n", func(c *sandbox.Command) { c.Env = append(slices.Clone(c.Env), "A=b") }},
		{"another head", "3\n", func(c *sandbox.Command) {
			_, head, _ := guest.Start{Lang: guest.Python}.Command()
			stdin, _ := guest.Script{Lang: guest.Python, Code: []byte("print(3)")}.Job()
			c.Stdin = io.MultiReader(strings.NewReader(head), stdin)
		}},
	} {
		filled(t, d, p, 1)
		b, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		c := job(t, p.Prestart, "import os; print(len([p for p in os.listdir('/proc') if p.isdigit()]))")
		r.harm(&c)
		f, err := b.Run(context.Background(), c)
		if err != nil || f.Sandbox.Warm || f.Stdout != r.want {
			t.Errorf("%s: %v warm %v %q %s", r.why, err, f.Sandbox.Warm, f.Stdout, f.Stderr)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDead: a sandbox that died while it waited is never handed out.
func TestDead(t *testing.T) {
	d, p := newPool(t, 1), python(t)
	p.Prestart.Argv = []string{"/bin/sh", "-c", "read x; exit 0"}
	p.Prestart.Prelude, p.Prestart.Zygote = "now\n", ""
	var f facts.Facts
	warm := true
	for wait := 50 * time.Millisecond; warm && wait < 20*time.Second; wait *= 5 { // on a busy machine it dies later
		filled(t, d, p, 1)
		time.Sleep(wait)
		b, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		f, err = b.Run(context.Background(), sandbox.Command{Argv: p.Prestart.Argv, Env: env,
			Stdin: strings.NewReader("now\nthen\n")})
		if err != nil {
			t.Fatal(err)
		}
		warm = f.Sandbox.Warm
	}
	if warm || f.ExitCode == nil || *f.ExitCode != 0 {
		t.Errorf("%+v", f)
	}
}

// TestBridge: the waiting command has its bridge as descriptor 3, and nothing else.
func TestBridge(t *testing.T) {
	d, p := newPool(t, 1), python(t)
	p.Prestart.Bridge = true
	filled(t, d, p, 1)
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ours := b.Abilities().Bridge()
	if ours == nil {
		t.Fatal("no bridge")
	}
	defer ours.Close()
	if b.Abilities().Bridge() != nil {
		t.Error("the bridge came twice")
	}
	go func() { _, _ = ours.WriteString("over the bridge") }()
	f, err := b.Run(context.Background(), job(t, p.Prestart,
		"import os; print(os.read(3, 100).decode(), [n for n in range(4, 200) if os.path.exists('/proc/self/fd/%d' % n)])"))
	if err != nil || !f.Sandbox.Warm || f.Stdout != "over the bridge []\n" {
		t.Errorf("%v %q %s", err, f.Stdout, f.Stderr)
	}
}

// TestBridgeOfAnother: who has taken the bridge gets no other command without one.
func TestBridgeOfAnother(t *testing.T) {
	d, p := newPool(t, 1), python(t)
	p.Prestart.Bridge = true
	filled(t, d, p, 1)
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer b.Abilities().Bridge().Close()
	if f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"true"}, Env: env}); err == nil {
		t.Errorf("ran without its bridge: %+v", f)
	}
}

// TestNothingRunsAfter: when the facts are returned, no process in the sandbox runs any more, so files do not
// change while they are copied out.
func TestNothingRunsAfter(t *testing.T) {
	d, p := newPool(t, 1), python(t)
	for _, r := range []struct{ why, code string }{
		{"a child that outlives its parent", `
import os, time
if not os.fork():
    while True:
        open('/workspace/output/late', 'a').write('x'); time.sleep(.001)
time.sleep(.05)`},
		{"a thread beside the one that ends it all", `
import os, threading, time
def late():
    while True: open('/workspace/output/late', 'a').write('x'); time.sleep(.001)
threading.Thread(target=late, daemon=True).start()
time.sleep(.05)
os._exit(0)`},
		{"a thread that the one which ends it all does not keep from running", `
import ctypes, threading, time
def late():
    while True: open('/workspace/output/late', 'a').write('x'); time.sleep(.001)
threading.Thread(target=late, daemon=True).start()
time.sleep(.05)
ctypes.CDLL(None)._exit(0)`},
		{"a handler of a signal that comes after the end", `
import ctypes, os, signal
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def late(n):
    os.close(os.open('/workspace/output/late', os.O_CREAT | os.O_WRONLY))
ctypes.CDLL(None).signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, .05)
os._exit(0)`},
	} {
		filled(t, d, p, 1)
		b, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.Run(context.Background(), job(t, p.Prestart, r.code))
		if err != nil || f.ExitCode == nil || *f.ExitCode != 0 || !f.Sandbox.Warm {
			t.Fatalf("control: %s: %v %+v", r.why, err, f)
		}
		size := func() (n int64) {
			dir := t.TempDir()
			if _, err := b.Export("/workspace/output", dir); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(dir + "/late")
			if err != nil {
				return -1
			}
			return st.Size()
		}
		before := size()
		time.Sleep(150 * time.Millisecond)
		if after := size(); after != before {
			t.Errorf("%s: %d bytes, and later %d", r.why, before, after)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOrdinaryUser runs the tests again as a user without capabilities, usually without cgroups.
func TestOrdinaryUser(t *testing.T) {
	sandboxtest.AsOrdinaryUser(t, "TestEnds", "TestOneJob", "TestOwnChance", "TestAssign", "TestNotTheJob", "TestDead",
		"TestBridge", "TestNothingRunsAfter", "TestForked", "TestForkedNothingKept", "TestForkedLikeExecuted",
		"TestForkedAtOnce", "TestZygoteEnds")
}
