package runner

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/frontend/bridge"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/storage/workspace"
	"waldo/internal/testing/pipelinetest"
)

// real is a runner with real sandboxes and a bridge that answers crm.get. It skips the test if the machine has no
// sandboxes.
func real(t testing.TB) (*Runner, string) {
	t.Helper()
	d := namespace.New(namespace.Options{})
	if rep := d.Probe(context.Background()); !rep.OK {
		if os.Getenv("CI") != "" {
			t.Fatalf("no sandboxes here: %+v", rep)
		}
		t.Skipf("this machine gives no namespace sandboxes; `waldo doctor` says why: %+v", rep)
	}
	r := worker(nil)
	r.Drivers = map[string]sandbox.Driver{"namespace": d}
	tool := call.Tool{Capability: "crm.get"}
	b := bridge.New("test", &pipelinetest.Program{
		Has: []call.Tool{tool},
		OnCall: func(_ context.Context, c call.Call) (call.Result, error) {
			v, err := strictjson.Parse([]byte(`{"title":"Ada"}`))
			f := facts.New()
			f.SideEffect = facts.Confirmed
			return call.Result{Status: facts.OK, Structured: v, Facts: f}, err
		},
	}, budget.New(budget.Limits{Memory: 32 << 20, Each: 100, Wait: time.Minute}))
	r.Bridge = bridged(func(
		ctx context.Context, run call.Call, conn net.Conn, _ *call.Suspension,
	) func() facts.SideEffect {
		return b.Open(ctx, run, conn, nil)
	})
	r.Means.(*means).servers = []string{"crm"}
	root, ident := t.TempDir(), id.New(id.Workspace)
	r.Means.(*means).workspace = func(call.Session) (*workspace.Workspace, error) { return workspace.Open(root, ident) }
	return r, filepath.Join(root, ident)
}

func do(t *testing.T, r *Runner, capability call.Capability, field, code string) call.Outcome {
	t.Helper()
	a, err := call.ArgsOf(map[string]any{field: code})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := allowed(t, capability, string(a.Raw()), func(c *contract.Contract) { c.Filesystem = contract.WorkspaceOnly })
	out, err := r.Execute(context.Background(), g)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestInARealSandbox(t *testing.T) {
	r, dir := real(t)
	for _, row := range []struct {
		why, capability, code, want string
		exit                        int
		effect                      facts.SideEffect
	}{
		{"python", "run_python", "print(6*7)", "42", 0, facts.None},
		{"python with a tool", "run_python", "print(crm.get(id=1).title)", "Ada", 0, facts.Confirmed},
		{
			"python, gathered", "run_python",
			"import asyncio\nr = await asyncio.gather(*[crm.get(id=i) for i in range(50)])\nprint(len(r))",
			"50", 0, facts.Confirmed,
		},
		{
			"a tool works where a socket does not", "run_python",
			"import socket\ntry: socket.create_connection(('192.0.2.1', 80), 1)\nexcept OSError as e: print(e.errno)\n" +
				"print(crm.get().title)", "101\nAda", 0, facts.Confirmed,
		},
		{"python fails", "run_python", "1/0", "", 1, facts.None},
		{"a program that python starts has no bridge", "run_python",
			"import subprocess, sys, os\nos.fstat(3)\nprint(subprocess.run([sys.executable, '-c', 'import os; os.fstat(3)'], " +
				"stderr=subprocess.DEVNULL, close_fds=False).returncode)", "1", 0, facts.None},
		{"javascript", "run_javascript", "console.log((await crm.get({})).title)", "Ada", 0, facts.Confirmed},
		{"typescript", "run_typescript", "const n: number = 6 * 7; console.log(n)", "42", 0, facts.None},
		{"shell", "run_shell", "echo a; exit 3", "a", 3, facts.None},
		{
			"output is written under its old name", "run_python",
			"open('.workspace/old.txt', 'w').write('x'); workspace.write('new.json', {'a': 1}); print(workspace.list())",
			"['new.json', 'old.txt']", 0, facts.None,
		},
		{"the next run sees it", "run_python", "print(workspace.read('old.txt'), workspace.list())",
			"x ['new.json', 'old.txt']", 0, facts.None},
		{"and so does another language", "run_javascript", "console.log(workspace.read_json('new.json').a)",
			"1", 0, facts.None},
		{"a script takes a megabyte", "run_python", "x = '" + strings.Repeat("y", 1<<20-100) + "'\nprint(len(x))",
			fmt.Sprint(1<<20 - 100), 0, facts.None},
	} {
		t.Run(row.why, func(t *testing.T) {
			field := "code"
			if row.capability == "run_shell" {
				field = "command"
			}
			out := do(t, r, call.Capability(row.capability), field, row.code)
			f := out.Facts
			if f.ExitCode == nil || *f.ExitCode != row.exit || f.SideEffect != row.effect ||
				(row.want != "" && strings.TrimSpace(f.Stdout) != row.want) {
				t.Errorf("%+v", f)
			}
		})
	}
	if b, err := os.ReadFile(filepath.Join(dir, "output/new.json")); err != nil || string(b) != "{\n  \"a\": 1\n}\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestATimeoutInARealSandbox(t *testing.T) {
	r, _ := real(t)
	r.Default.Wall = 500 * time.Millisecond
	ask := func() call.Outcome {
		return do(t, r, "run_python", "code", "import time\nprint('begun', flush=True)\ntime.sleep(60)")
	}
	out := ask()
	for out.Facts.TimedOut && out.Facts.Stdout == "" && r.Default.Wall < 10*time.Second { // a busy machine begins later
		r.Default.Wall *= 4
		out = ask()
	}
	if f := out.Facts; f.Status != facts.Timeout || !f.TimedOut || f.Usage.WallMS < 500 ||
		!strings.HasPrefix(f.Stdout, "begun") || !strings.Contains(out.Content[0].Text, "Terminated by timeout after ") {
		t.Errorf("%+v\n%s", f, out.Content[0].Text)
	}
}
