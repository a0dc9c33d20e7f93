//go:build linux && (amd64 || arm64)

package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
)

// cellOf runs code in the interpreter of a name, for an agent's session.
func cellOf(t *testing.T, r *Runner, agent call.Session, name, code string, hosts ...string) call.Outcome {
	t.Helper()
	return cellBy(t, r, "os:1", agent, name, code, hosts...)
}

// cellBy runs code in the interpreter of a name, for a principal.
func cellBy(
	t *testing.T, r *Runner, whose call.Principal, agent call.Session, name, code string, hosts ...string,
) call.Outcome {
	t.Helper()
	a, err := call.ArgsOf(map[string]any{"code": code, "session": name})
	if err != nil {
		t.Fatal(err)
	}
	d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Allow,
		Call: call.Call{ID: id.New(id.Call), Capability: "run_python", Args: a, Session: agent, Principal: whose}}
	d.Contract.Filesystem, d.Contract.Network.Allow = contract.WorkspaceOnly, hosts
	g, why := grant.Issue(d, nil, a)
	if why != nil {
		t.Fatal(why)
	}
	out, err := r.Execute(context.Background(), g)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// staying is a runner with real sandboxes that supports resident Pythons.
func staying(t *testing.T) (*Runner, string) {
	t.Helper()
	r, files := real(t)
	r.Sessions = 3
	t.Cleanup(func() { _ = r.Close() })
	return r, files
}

func TestVariablesStay(t *testing.T) {
	r, _ := staying(t)
	for _, row := range []struct{ why, code, stdout, stderr string }{
		{"a variable", "x = 40", "", ""},
		{"it is there in the next call, and a last expression shows itself", "x + 2", "42\n", ""},
		{"what is printed comes back with its own call", "print('a'); x = x + 1", "a\n", ""},
		{"a function and an import", "import math\ndef f(): return math.floor(x)", "", ""},
		{"they are there too", "f()", "41\n", ""},
		{"an error is told with the cell's own line", "y = 1\n1/0", "", "line 2, in <module>\n    1/0"},
		{"after an error all is there", "(x, y)", "(41, 1)\n", ""},
		{"a syntax error", "x = = 1", "", "SyntaxError"},
		{"await at the top level", "import asyncio\nawait asyncio.sleep(0)\nx", "41\n", ""},
		{"leaving is no end", "import sys; sys.exit(3)", "", ""},
		{"leaving with a word", "sys.exit('gone')", "", "gone\n"},
		{"x outlives it", "x", "41\n", ""},
		{"what a program writes that it starts", "import os\n_ = os.system('echo sub; echo err >&2')", "sub\n", "err\n"},
		{"no input", "input()", "", "EOFError"},
		{"lone surrogates", "print('\\ud800')", "", "UnicodeEncodeError"},
	} {
		out := cellOf(t, r, "n_1", "work", row.code)
		if out.Facts.Stdout != row.stdout || !strings.Contains(out.Facts.Stderr, row.stderr) {
			t.Errorf("%s: stdout %q stderr %q %v", row.why, out.Facts.Stdout, out.Facts.Stderr, out.Facts.Warnings)
		}
		if failed := row.stderr != "" && row.stderr != "err\n" ||
			row.why == "leaving is no end"; failed != (out.Facts.Status == facts.Failed) {
			t.Errorf("%s: status %s", row.why, out.Facts.Status)
		}
		if code := out.Facts.ExitCode; row.why == "leaving is no end" && (code == nil || *code != 3) {
			t.Errorf("%s: %v", row.why, code)
		}
	}
}

func TestInterpretersAreApart(t *testing.T) {
	r, _ := staying(t)
	cellOf(t, r, "n_1", "work", "x = 1")
	if out := cellOf(t, r, "n_1", "work", "x"); out.Facts.Stdout != "1\n" {
		t.Fatalf("control: %q", out.Facts.Stdout)
	}
	for _, row := range []struct {
		why   string
		agent call.Session
		name  string
	}{{"another name", "n_1", "other"}, {"another agent's session", "n_2", "work"}} {
		if out := cellOf(t, r, row.agent, row.name, "x"); !strings.Contains(out.Facts.Stderr, "NameError") {
			t.Errorf("%s: %q", row.why, out.Facts.Stdout)
		}
	}
	if out := cellOf(t, r, "n_3", "work", "x"); out.Facts.Status != facts.Denied ||
		!strings.Contains(strings.Join(out.Facts.Warnings, ""), "session.limit") {
		t.Errorf("more than may stay: %s %v", out.Facts.Status, out.Facts.Warnings)
	}
	for _, name := range []string{"../x", "", "a b", strings.Repeat("a", 65)} {
		if out := cellOf(t, r, "n_1", name, "1"); out.Facts.Status != facts.Denied {
			t.Errorf("the name %q: %s", name, out.Facts.Status)
		}
	}
	r.Sessions = 0
	if out := cellOf(t, r, "n_1", "new", "1"); out.Facts.Status != facts.Denied ||
		!strings.Contains(out.Facts.Warnings[0], "session.absent") {
		t.Errorf("where none may stay: %s %v", out.Facts.Status, out.Facts.Warnings)
	}
}

// TestSessionsAreSharedOut: a principal that has none gets one, at the cost of the longest idle one of the principal that
// has the most. None gets more than the others have.
func TestSessionsAreSharedOut(t *testing.T) {
	r, _ := staying(t)
	limited := func(out call.Outcome) bool { return out.Refused != nil && out.Refused.Code == "session.limit" }
	for _, name := range []string{"s0", "s1", "s2", "s0"} { // s1 is the longest idle one
		if out := cellBy(t, r, "a", "n_a", name, "x = 1"); out.Facts.Status != facts.OK {
			t.Fatalf("control: %s: %+v", name, out.Facts)
		}
	}
	if out := cellBy(t, r, "a", "n_a", "s3", "1"); !limited(out) {
		t.Errorf("one more of the principal that has all: %+v", out.Facts)
	}
	if out := cellBy(t, r, "b", "n_b", "mine", "x = 2"); out.Facts.Status != facts.OK {
		t.Errorf("the first one of another principal: %+v", out.Facts)
	}
	if out := cellBy(t, r, "b", "n_b", "second", "1"); !limited(out) {
		t.Errorf("more than the others have: %+v", out.Facts)
	}
	for _, name := range []string{"s0", "s2"} {
		if out := cellBy(t, r, "a", "n_a", name, "x"); strings.TrimSpace(out.Facts.Stdout) != "1" {
			t.Errorf("%s was not the longest idle one and is gone: %q", name, out.Facts.Stderr)
		}
	}
	if out := cellBy(t, r, "a", "n_a", "s1", "x"); !limited(out) {
		t.Errorf("the longest idle one is there still: %+v", out.Facts)
	}
}

// held is a driver whose sandboxes of one principal start when the test lets them.
type held struct {
	sandbox.Driver
	whose      string
	began, let chan struct{}
}

func (h *held) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	if p.Owner == h.whose {
		close(h.began)
		<-h.let
	}
	return h.Driver.Start(ctx, p)
}

// TestAStartDelaysItsOwnSessionAlone: while the interpreter of one principal starts, another principal gets its own. A
// second call for the first one waits for the start, and so does the end of its session.
func TestAStartDelaysItsOwnSessionAlone(t *testing.T) {
	r, _ := staying(t)
	h := &held{r.Drivers["namespace"], "a", make(chan struct{}), make(chan struct{})}
	r.Drivers["namespace"] = h
	slow, other := make(chan call.Outcome, 2), make(chan call.Outcome, 1)
	go func() { slow <- cellBy(t, r, "a", "n_a", "s0", "x = 1") }()
	<-h.began
	go func() { slow <- cellBy(t, r, "a", "n_a", "s0", "1") }()
	go func() { other <- cellBy(t, r, "b", "n_b", "mine", "print(2)") }()
	select {
	case out := <-other:
		if strings.TrimSpace(out.Facts.Stdout) != "2" {
			t.Errorf("the other principal: %+v", out.Facts)
		}
	case <-time.After(time.Minute):
		t.Error("the other principal waits for the start")
	}
	if len(slow) > 0 {
		t.Error("control: the start does not wait")
	}
	ended := make(chan error)
	go func() { ended <- r.End("n_b") }()
	if err := <-ended; err != nil { // the end of another session does not wait
		t.Error(err)
	}
	close(h.let)
	for range 2 {
		if out := <-slow; out.Facts.Status != facts.OK {
			t.Errorf("a call of the slow one: %+v", out)
		}
	}
	if out := cellBy(t, r, "a", "n_a", "s0", "print(x)"); strings.TrimSpace(out.Facts.Stdout) != "1" {
		t.Errorf("the variable of the first call: %+v", out.Facts)
	}
}

// TestAReplyWithoutRoom: the reply of a cell draws on waldo's own memory. One that finds no room is dropped, with the
// reason, and its interpreter goes on.
func TestAReplyWithoutRoom(t *testing.T) {
	r, _ := staying(t)
	r.Work = budget.New(budget.Limits{Memory: 8 << 20, Share: 8 << 20, Each: 10, Wait: 10 * time.Millisecond})
	cellOf(t, r, "n_1", "work", "x = 41").Release()
	over, err := r.Work.Enter(t.Context(), "another", 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	out := cellOf(t, r, "n_1", "work", "x += 1; print(x)")
	if out.Facts.Stdout != "" || !slices.ContainsFunc(out.Facts.Warnings, func(w string) bool { return strings.HasPrefix(w, "memory.busy:") }) {
		t.Errorf("without room: %q %q", out.Facts.Stdout, out.Facts.Warnings)
	}
	over()
	out = cellOf(t, r, "n_1", "work", "print(x)")
	if out.Facts.Stdout != "42\n" {
		t.Errorf("control: with room: %q %q", out.Facts.Stdout, out.Facts.Warnings)
	}
	if _, err := r.Work.Enter(t.Context(), "another", 8<<20); err == nil {
		t.Error("a reply holds nothing until its result is made")
	}
	out.Release()
}

func TestEachCellHasItsOwnLimits(t *testing.T) {
	r, files := staying(t)
	r.Most.Output = 1000
	cellOf(t, r, "n_1", "work", "x = 1; open('/workspace/output/kept', 'w').write('here')")
	out := cellOf(t, r, "n_1", "work", "print('z' * 5000)")
	if len(out.Facts.Stdout) != 1000 || !out.Facts.Truncated.Stdout {
		t.Errorf("%d bytes, truncated %v", len(out.Facts.Stdout), out.Facts.Truncated.Stdout)
	}
	began, whole := time.Now(), r.Most.Wall
	r.Most.Wall = 2 * time.Second
	out = cellOf(t, r, "n_1", "work", "while True: pass")
	r.Most.Wall = whole
	if out.Facts.Status != facts.Timeout || out.Facts.Limit == nil || *out.Facts.Limit != facts.LimitWall ||
		time.Since(began) > min(whole, 50*time.Second) {
		t.Errorf("%s after %v", out.Facts.Status, time.Since(began))
	}
	if b, err := os.ReadFile(filepath.Join(files, "output/kept")); string(b) != "here" {
		t.Errorf("what was written before is not kept: %q %v", b, err)
	}
	if out := cellOf(t, r, "n_1", "work", "x"); !strings.Contains(out.Facts.Stderr, "NameError") {
		t.Errorf("the interpreter outlived its time: %q", out.Facts.Stdout)
	}
	if out := cellOf(t, r, "n_1", "work", "a = bytearray(10**9)"); out.Facts.Status == facts.OK {
		t.Errorf("a gigabyte: %s", out.Facts.Status)
	}
	out = cellOf(t, r, "n_1", "dies", "import os; os._exit(7)")
	if out.Facts.Status != facts.Failed ||
		!slices.ContainsFunc(out.Facts.Warnings, func(w string) bool { return strings.Contains(w, "has ended") }) {
		t.Errorf("%s %v", out.Facts.Status, out.Facts.Warnings)
	}
}

// noting is a driver that records the type of the sandboxes that it starts.
type noting struct {
	sandbox.Driver
	types []string
}

func (n *noting) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	b, err := n.Driver.Start(ctx, p)
	n.types = append(n.types, fmt.Sprintf("%T", b))
	return b, err
}

// Between calls an interpreter is paused, also in a pooled sandbox: its thread counts only while a cell runs.
func TestBetweenCellsNothingRuns(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		t.Run(fmt.Sprint("pooled ", pooled), func(t *testing.T) {
			r, _ := staying(t)
			if pooled {
				r.Sessions = 20
				p := pool.New(namespace.New(namespace.Options{}), pool.Options{Most: 2, Failed: func(err error) { t.Error(err) }})
				d := &noting{Driver: p}
				r.Drivers = map[string]sandbox.Driver{"namespace": d}
				t.Cleanup(func() { _ = r.Close(); _ = p.Close() })
				for n := 0; !slices.Contains(d.types, "*pool.instance"); n++ {
					if n == 15 {
						t.Fatalf("control: no sandbox comes from the pool: %q", d.types)
					}
					cellOf(t, r, "n_1", fmt.Sprint("work", n), "1")
					time.Sleep(200 * time.Millisecond)
				}
				time.Sleep(time.Second)
			}
			standsStill(t, r)
			if d, ok := r.Drivers["namespace"].(*noting); ok && d.types[len(d.types)-1] != "*pool.instance" {
				t.Errorf("control: the last sandbox is a %s", d.types[len(d.types)-1])
			}
		})
	}
}

func standsStill(t *testing.T, r *Runner) {
	t.Helper()
	cellOf(t, r, "n_1", "work", "import threading, time\nn = [0]\ndef tick():\n while True:\n  n[0] += 1\n"+
		"  time.sleep(0.01)\nthreading.Thread(target=tick, daemon=True).start()\ntime.sleep(0.3)")
	count := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(cellOf(t, r, "n_1", "work", "n[0]").Facts.Stdout))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := count()
	if first == 0 {
		t.Fatal("control: the thread does not count")
	}
	time.Sleep(3 * time.Second)                // three hundred, if it ran
	if second := count(); second > first+200 { // it runs while it is asked, which may take long
		t.Errorf("%d, and three seconds later %d", first, second)
	}
}

func TestFiguresAndTables(t *testing.T) {
	r, _ := staying(t)
	const png = "b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 10"
	for _, row := range []struct{ why, code, kind, text string }{
		{"a picture", "class P:\n def _repr_png_(self): return " + png + "\nP()", "image", ""},
		{"a table", "class T:\n def _repr_html_(self): return '<table></table>'\nT()", "text", "<table></table>"},
		{"what only says that it is a picture", "class F:\n def _repr_png_(self): return b'<svg/>'\nF()", "", ""},
	} {
		out := cellOf(t, r, "n_1", "work", row.code)
		switch {
		case row.kind == "" && len(out.Content) == 1:
		case len(out.Content) != 2 || out.Content[1].Type != row.kind || out.Content[1].Text != row.text:
			t.Errorf("%s: %+v %q", row.why, out.Content, out.Facts.Stderr)
		}
	}
	// The answer is untrusted content: code that forges one gets the forged one as its output.
	out := cellOf(t, r, "n_1", "forged",
		"import os\nfor fd in range(3, 10):\n try: os.write(fd, b'         -1\\n')\n except OSError: pass")
	if out.Facts.Status != facts.Failed {
		t.Errorf("a forged answer: %s", out.Facts.Status)
	}
}

// TestASessionReaches: a Python that stays finds the names of its contract, and each call tells what
// was tried in it.
func TestASessionReaches(t *testing.T) {
	r, _ := staying(t)
	r.Means.(*means).egress = func(_ policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
		rules, err := egress.ParseRules(n.Allow)
		if err != nil {
			return nil, err
		}
		s, err := egress.NewServer(&egress.Dialer{Policy: &egress.Policy{Rules: rules}}, egress.Options{})
		return &sandboxegress.Egress{Server: s, Hosts: n.Allow, Env: []string{"TOKEN=waldo1"}}, err
	}
	for _, row := range []struct{ why, code, stdout, denied string }{
		{"a name that is allowed", "import socket, os\nprint(socket.gethostbyname('api.example.com'), os.environ['TOKEN'])",
			"198.18.0.2 waldo1\n", ""},
		{"one that is not", "try: socket.gethostbyname('evil.example')\nexcept OSError: print('none')",
			"none\n", "evil.example"},
		{"the next call tells nothing of it", "print(1)", "1\n", ""},
	} {
		f := cellOf(t, r, "n_1", "net", row.code, "api.example.com").Facts
		if f.Stdout != row.stdout || strings.Join(f.Network.Denied, " ") != row.denied || f.Network.Policy != "allowed" ||
			f.SideEffect != facts.Unknown {
			t.Errorf("%s: %+v", row.why, f)
		}
	}
	if f := cellOf(t, r, "n_1", "sealed",
		"import socket\nsocket.gethostbyname('api.example.com')").Facts; !strings.Contains(f.Stderr, "gaierror") ||
		f.Network.Policy == "allowed" {
		t.Errorf("without hosts: %+v", f)
	}
}
