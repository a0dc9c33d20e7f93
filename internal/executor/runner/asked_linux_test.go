package runner

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/storage/workspace"
)

// TestKeptResults: kept results reach no sandbox but that of the call that names them.
func TestKeptResults(t *testing.T) {
	r, _ := real(t)
	ws, err := r.Means.Workspace("")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	name, err := ws.Spill("c_x-stdout.txt", "txt", bytes.Repeat([]byte("kept\n"), 20_000))
	if err != nil {
		t.Fatal(err)
	}
	for range 40 { // more than one volume of the sandbox holds
		if _, err := ws.Spill("other", "txt", make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	r.Default.Disk = 16 << 20
	out := do(t, r, "run_python", "code", "import os; print(os.path.exists('/workspace/spill'), os.listdir('/workspace/output'))")
	if got := strings.TrimSpace(out.Facts.Stdout); got != "False []" {
		t.Errorf("a call that names none: %q %+v", got, out.Facts)
	}
	for capability, code := range map[call.Capability]string{
		"run_python": "import os; print(os.listdir('/workspace/spill'), len(open('/workspace/spill/" + name + "').read()))",
		"run_shell":  "ls /workspace/spill; wc -c </workspace/spill/" + name,
	} {
		field := map[call.Capability]string{"run_python": "code", "run_shell": "command"}[capability]
		out := do(t, r, capability, field, code)
		if s := out.Facts.Stdout; !strings.Contains(s, name) || !strings.Contains(s, "100000") || strings.Contains(s, "other-") {
			t.Errorf("%s: %q %+v", capability, s, out.Facts)
		}
	}
}

// TestFilesDoNotFit: a session whose files fit into no sandbox gets the reason in time, also with sandboxes ready.
func TestFilesDoNotFit(t *testing.T) {
	r, _ := real(t)
	ws, err := r.Means.Workspace("")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	for _, name := range []string{"a", "b"} {
		if err := ws.Put(workspace.Output, name, bytes.NewReader(make([]byte, 3<<20)), 3<<20); err != nil {
			t.Fatal(err)
		}
	}
	if out := do(t, r, "run_python", "code", "print(1)"); out.Refused != nil {
		t.Fatalf("control: %+v", out.Refused)
	}
	r.Default.Disk = 4 << 20
	began := time.Now()
	g, _ := allowed(t, "run_python", `{"code":"print(1)"}`, func(c *contract.Contract) { c.Filesystem = contract.WorkspaceOnly })
	out, err := r.Execute(context.Background(), g)
	if err != nil || out.Refused == nil || out.Refused.Code != "workspace.full" || out.Facts.SideEffect != facts.None {
		t.Errorf("%+v %v", out, err)
	}
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// TestOwnTimeout: an agent gives its code less time than the contract, never more.
func TestOwnTimeout(t *testing.T) {
	r, _ := real(t)
	for _, row := range []struct {
		why, args string
		contract  time.Duration
		status    facts.Status
		refused   string
	}{
		{"less", `{"code":"import time; time.sleep(30)","timeout_s":0.5}`, 20 * time.Second, facts.Timeout, ""},
		{"of a shell", `{"command":"sleep 30","timeout_s":0.5}`, 20 * time.Second, facts.Timeout, ""},
		{"never more", `{"code":"import time; time.sleep(30)","timeout_s":1e300}`, time.Second, facts.Timeout, ""},
		{"control: enough", `{"code":"print(1)","timeout_s":15}`, 20 * time.Second, facts.OK, ""},
		{"zero", `{"code":"print(1)","timeout_s":0}`, 20 * time.Second, facts.Denied, "args.invalid"},
		{"a text", `{"code":"print(1)","timeout_s":"9"}`, 20 * time.Second, facts.Denied, "args.invalid"},
	} {
		capability := call.Capability("run_python")
		if strings.Contains(row.args, "command") {
			capability = "run_shell"
		}
		g, _ := allowed(t, capability, row.args, func(c *contract.Contract) { c.Timeout = row.contract })
		began := time.Now()
		out, err := r.Execute(context.Background(), g)
		if err != nil || out.Facts.Status != row.status || time.Since(began) > 15*time.Second ||
			(out.Refused != nil) != (row.refused != "") || out.Refused != nil && out.Refused.Code != row.refused {
			t.Errorf("%s: %v %+v %v", row.why, out.Facts.Status, out.Refused, err)
		}
	}
}

// untold closes nothing.
// TestOutputAsProgress: the output of a run, and of a cell of a session, is reported while it runs; so is that of the
// programs that it starts.
func TestOutputAsProgress(t *testing.T) {
	r, _ := staying(t)
	for _, session := range []string{"", `,"session":"work"`} {
		told(t, r, session, `import time\nprint('begun', flush=True)\ntime.sleep(2)\nprint('done')`)
		told(t, r, session, `import os, subprocess\n_ = subprocess.run(['sh', '-c', 'echo begun; sleep 2; echo done'])`+
			`\ntry:\n    os.wait()\nexcept ChildProcessError:\n    pass\nelse:\n    print('a strange child')`)
	}
}

func told(t *testing.T, r *Runner, session, code string) {
	t.Helper()
	first := make(chan string, 100)
	ctx := call.WithProgress(context.Background(), func(_, _ float64, text string) { first <- text })
	g, _ := allowed(t, "run_python", `{"code":"`+code+`"`+session+`}`,
		func(c *contract.Contract) {})
	done := make(chan call.Outcome, 1)
	go func() {
		out, err := r.Execute(ctx, g)
		if err != nil {
			t.Error(err)
		}
		done <- out
	}()
	select {
	case text := <-first:
		if text != "begun\n" {
			t.Errorf("%q", text)
		}
	case out := <-done:
		t.Errorf("the run ended before its output was told: %+v", out.Facts)
		return
	}
	if out := <-done; out.Facts.Stdout != "begun\ndone\n" {
		t.Errorf("%q", out.Facts.Stdout)
	}
}
