//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"strings"
	"testing"
	"time"

	"waldo/internal/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/sandboxtest"
)

// waits starts a box with a Python that runs the script that it reads after its head.
func waits(t *testing.T, head string) (*box, sandbox.Command) {
	t.Helper()
	p := sandboxtest.Profile()
	p.Ahead = &sandbox.Ahead{Argv: []string{"python3", "-I", "-S", "-c", "import sys\nsys.stdin.readline()\nexec(sys.stdin.read())"}, Env: []string{"PATH=/usr/bin:/bin"}, Head: head}
	one, err := New(Options{}).Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close() })
	if err := one.(*box).Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	return one.(*box), sandbox.Command{Argv: p.Ahead.Argv, Env: p.Ahead.Env}
}

// TestStraight: a short command is run in one thread, and whatever else a command does is told as of
// any other.
func TestStraight(t *testing.T) {
	if host, err := cgroups(); err != nil || !host.Pids() || !host.Memory() || !host.Times() {
		t.Skip("nothing counts for a box here: no command is run in one thread")
	}
	const head = "head\n"
	for _, row := range []struct {
		name, script   string
		stdout, stderr string
		status         facts.Status
		code           int
		held           bool
		denied         string
		serves         bool // somebody had to listen after all
	}{
		{name: "short", script: "print(1)", stdout: "1\n", status: facts.OK, held: true},
		{name: "fails", script: "sys.stderr.write('no'); sys.exit(3)", stderr: "no", status: facts.Failed, code: 3, held: true},
		{name: "asks for what it may not", script: "import os\ntry: os.unshare(0x10000000)\nexcept (AttributeError, OSError): import ctypes; ctypes.CDLL(None).unshare(0x10000000)\nprint(2)", stdout: "2\n", status: facts.OK, held: true, denied: "unshare"},
		{name: "writes more than a pipe holds", script: "sys.stdout.write('x' * 300000)", stdout: strings.Repeat("x", 300000), status: facts.OK, held: true},
		{name: "closes its streams", script: "import os; os.write(1, b'3'); os.close(1); os.close(2); os._exit(4)", stdout: "3", status: facts.Failed, code: 4, held: true},
		{name: "takes its time", script: "import time; print(1, flush=True); time.sleep(0.06); print(2); sys.exit(5)", stdout: "1\n2\n", status: facts.Failed, code: 5, held: true, serves: true},
		{name: "leaves another behind", script: "import os\nif not os.fork():\n import time; time.sleep(60)\nprint(1)", stdout: "1\n", status: facts.OK, serves: true},
		{name: "is killed", script: "import os; print(1, flush=True); os.kill(os.getpid(), 9)", stdout: "1\n", status: facts.Failed, code: -9, serves: true},
		{name: "writes without end", script: "while True: sys.stdout.write('y' * 60000)", status: facts.Failed, code: -9, serves: true},
	} {
		t.Run(row.name, func(t *testing.T) {
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
			if b.held != row.held || (b.notice.FD() < 0) != row.serves {
				t.Errorf("held %v, somebody listens %v", b.held, b.notice.FD() < 0)
			}
			if row.status == facts.OK || row.code > 0 { // the box is as good as before
				c.Stdin, c.Argv = nil, []string{"echo", "again"}
				if f, err := b.Run(context.Background(), c); err != nil || f.Stdout != "again\n" {
					t.Errorf("again: %q %v", f.Stdout, err)
				}
			}
		})
	}
}

// TestEndedWhileWaiting: a command that ended before it had a job gets none.
func TestEndedWhileWaiting(t *testing.T) {
	b, _ := waits(t, "head\n")
	p := b.profile
	if err := b.Adopt(p); err != nil {
		t.Fatalf("control: %v", err)
	}
	p.Ahead = &sandbox.Ahead{Argv: []string{"sh", "-c", "read head; sleep 0.2; exit 3"}, Env: []string{"PATH=/usr/bin:/bin"}, Head: "head\n"}
	one, err := New(Options{}).Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	w := one.(*box)
	if err := w.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = w.Adopt(p); err != nil {
			return
		}
	}
	t.Error("a command that has ended was given a job")
}

// TestAdoptOnce: a box in which something ran is given to no other job, with a command ahead or without.
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
		b *box
		c sandbox.Command
	}{{ahead, c}, {without.(*box), sandbox.Command{Argv: []string{"echo", "1"}, Env: []string{"PATH=/usr/bin:/bin"}}}} {
		p := row.b.profile
		p.ID, p.Limits.Output = "s_adopted", 77
		if err := row.b.Adopt(p); err != nil {
			t.Fatalf("control: %v", err)
		}
		f, err := row.b.Run(context.Background(), row.c)
		if err != nil || f.Stdout != "1\n" || f.Sandbox.ID != "s_adopted" {
			t.Errorf("%v %+v", err, f)
		}
		if err := row.b.Adopt(p); err == nil {
			t.Error("a box in which something ran was given to another job")
		}
	}
}
