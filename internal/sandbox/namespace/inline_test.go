//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/testing/sandboxtest"
)

// waits starts a sandbox with a Python that runs the script that it reads after its head.
func waits(t *testing.T, head string) (*instance, sandbox.Command) {
	t.Helper()
	p := sandboxtest.Profile()
	p.Prestart = &sandbox.Prestart{Argv: []string{"python3", "-I", "-S", "-c",
		"import sys\nsys.stdin.readline()\nexec(sys.stdin.read())"}, Env: []string{"PATH=/usr/bin:/bin"}, Prelude: head}
	return warmed(t, p), sandbox.Command{Argv: p.Prestart.Argv, Env: p.Prestart.Env}
}

// warmed returns a sandbox whose command waits.
func warmed(t *testing.T, p sandbox.Profile) *instance {
	t.Helper()
	one, err := New(Options{}).Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close() })
	b := one.(*instance)
	if err := b.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	return b
}

// inlineRow is a command that waits for its job, the job, and its results.
type inlineRow struct {
	name, script   string
	stdout, stderr string
	status         facts.Status
	code           int
	held           bool
	denied         string
	serves         bool // the listener's goroutine had to run after all
}

// TestStraight: a short command runs in one thread, and its facts are those of any other command.
func TestStraight(t *testing.T) {
	if host, err := cgroups(); err != nil || !host.Pids() || !host.Memory() || !host.Times() {
		t.Skip("nothing counts for a sandbox here: no command is run in one thread")
	}
	for _, row := range []inlineRow{
		{name: "short", script: "print(1)", stdout: "1\n", status: facts.OK, held: true},
		{name: "fails", script: "sys.stderr.write('no'); sys.exit(3)", stderr: "no", status: facts.Failed, code: 3,
			held: true},
		{name: "asks for what it may not", script: "import os\ntry: os.chroot('/')\nexcept OSError: print(2)",
			stdout: "2\n", status: facts.OK, held: true, denied: "chroot"},
		{name: "writes more than a pipe holds", script: "sys.stdout.write('x' * 300000)",
			stdout: strings.Repeat("x", 300000), status: facts.OK, held: true},
		{name: "closes its streams", script: "import os; os.write(1, b'3'); os.close(1); os.close(2); os._exit(4)",
			stdout: "3", status: facts.Failed, code: 4, held: true},
		{name: "takes its time", script: "import time; print(1, flush=True); time.sleep(0.06); print(2); sys.exit(5)",
			stdout: "1\n2\n", status: facts.Failed, code: 5, held: true, serves: true},
		{name: "leaves another behind", script: "import os\nif not os.fork():\n import time; time.sleep(60)\nprint(1)",
			stdout: "1\n", status: facts.OK, serves: true},
		{name: "is killed", script: "import os; print(1, flush=True); os.kill(os.getpid(), 9)", stdout: "1\n",
			status: facts.Failed, code: -9, serves: true},
		{name: "writes without end", script: "while True: sys.stdout.write('y' * 60000)", status: facts.Failed, code: -9,
			serves: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			served := row.try(t)
			// a busy machine takes longer than until the first look
			for tries := 1; served && !row.serves && tries < 30; tries++ {
				served = row.try(t)
			}
			if served != row.serves {
				t.Errorf("somebody had to listen: %v", served)
			}
		})
	}
}

// try runs the job in a sandbox of its own and reports whether the listener's goroutine had to run.
func (row inlineRow) try(t *testing.T) (served bool) {
	const head = "head\n"
	b, c := waits(t, head)
	b.profile.Limits.Output = 1 << 19
	if b.notice.FD() < 0 {
		t.Fatal("somebody listens to a command that waits")
	}
	c.Stdin = strings.NewReader(head + row.script)
	f, err := b.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	code := 0
	if f.ExitCode != nil {
		code = *f.ExitCode
	} else if f.Signal != nil && *f.Signal == "SIGKILL" {
		code = -9
	}
	if row.name == "writes without end" {
		if f.Limit == nil || *f.Limit != facts.LimitOutput {
			t.Errorf("the limit is %v", f.Limit)
		}
	} else if f.Stdout != row.stdout || f.Stderr != row.stderr {
		t.Errorf("wrote %.40q %.200q", f.Stdout, f.Stderr)
	}
	if f.Status != row.status || code != row.code || !f.Sandbox.Warm {
		t.Errorf("%v %d %v", f.Status, code, f.Sandbox.Warm)
	}
	if row.denied != "" && (len(f.Denials) != 1 || f.Denials[0].What != row.denied) {
		t.Errorf("denied: %v", f.Denials)
	}
	if b.held != row.held {
		t.Errorf("held %v", b.held)
	}
	served = b.notice.FD() < 0
	if row.status == facts.OK || row.code > 0 { // the sandbox is as good as before
		c.Stdin, c.Argv = nil, []string{"echo", "again"}
		if f, err := b.Run(context.Background(), c); err != nil || f.Stdout != "again\n" {
			t.Errorf("again: %q %v", f.Stdout, err)
		}
	}
	return served
}

// TestSmallPipe: a job that its pipe does not take at once delays the run at most until the limits, and arrives.
func TestSmallPipe(t *testing.T) {
	const head = "head\n"
	long := strings.NewReader(head + "print('done')\n#" + strings.Repeat("x", 20_000))
	small := func(b *instance) {
		conn, err := b.waiting.In.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 4096) }); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, c := waits(t, head)
	small(b)
	c.Stdin = long
	if f, err := b.Run(context.Background(), c); err != nil || f.Stdout != "done\n" || !f.Sandbox.Warm {
		t.Errorf("control: %v %+v", err, f)
	}
	p := sandboxtest.Profile()
	p.Limits.Wall = 300 * time.Millisecond
	p.Prestart = &sandbox.Prestart{Argv: []string{"sh", "-c", "read head; sleep 300"}, Env: []string{"PATH=/usr/bin:/bin"},
		Prelude: head}
	one := warmed(t, p)
	small(one)
	late := time.AfterFunc(time.Minute, func() { _ = one.init.Kill() })
	defer late.Stop()
	c.Argv, c.Env, c.Stdin = p.Prestart.Argv, p.Prestart.Env, strings.NewReader(head+strings.Repeat("x", 20_000))
	if f, err := one.Run(context.Background(), c); err != nil || f.Status != facts.Timeout {
		t.Errorf("a job that nobody reads: %v %+v", err, f)
	}
}

// TestEndedWhileWaiting: a command that ended before it had a job gets none.
func TestEndedWhileWaiting(t *testing.T) {
	b, _ := waits(t, "head\n")
	p := b.profile
	if err := b.Assign(p); err != nil {
		t.Fatalf("control: %v", err)
	}
	p.Prestart = &sandbox.Prestart{Argv: []string{"sh", "-c", "read head; sleep 0.2; exit 3"},
		Env: []string{"PATH=/usr/bin:/bin"}, Prelude: "head\n"}
	w := warmed(t, p)
	asked := func() bool { // or, if the listener cannot report that, has ended
		return w.notice != nil && w.notice.FD() >= 0 && initproc.Silent(w.notice.FD()) != nil ||
			initproc.Silent(w.stage.FD) != nil
	}
	for end := time.Now().Add(time.Minute); !asked(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("control: it does not end")
		}
	}
	if w.Assign(p) == nil {
		t.Error("a command that has ended was given a job")
	}
}

// TestAdoptOnce: a sandbox in which something ran is given to no other job, with a command ahead or without.
func TestAdoptOnce(t *testing.T) {
	ahead, c := waits(t, "head\n")
	c.Stdin = strings.NewReader("head\nprint(1)")
	p := sandboxtest.Profile()
	without, err := New(Options{}).Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close()
	for _, row := range []struct {
		b *instance
		c sandbox.Command
	}{{ahead, c}, {without.(*instance),
		sandbox.Command{Argv: []string{"echo", "1"}, Env: []string{"PATH=/usr/bin:/bin"}}}} {
		p := row.b.profile
		p.ID, p.Limits.Output = "s_adopted", 77
		if err := row.b.Assign(p); err != nil {
			t.Fatalf("control: %v", err)
		}
		f, err := row.b.Run(context.Background(), row.c)
		if err != nil || f.Stdout != "1\n" || f.Sandbox.ID != "s_adopted" {
			t.Errorf("%v %+v", err, f)
		}
		if err := row.b.Assign(p); err == nil {
			t.Error("a sandbox in which something ran was given to another job")
		}
	}
}
