package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/frontend/bridge"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/sandbox/guest"
	"waldo/internal/testing/pipelinetest"
)

// desk is a pipeline with a few tools, which records the calls.
type desk struct {
	mu    sync.Mutex
	asked []call.Call
	now   int // calls being answered
	most  int // the most at once
}

func (d *desk) atOnce() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

func (d *desk) call(ctx context.Context, c call.Call) (call.Result, error) {
	d.mu.Lock()
	d.asked = append(d.asked, c)
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	defer func() { d.mu.Lock(); d.now--; d.mu.Unlock() }()
	r := call.Result{CallID: c.ID, DecisionID: "d_1", Status: facts.OK, Facts: facts.New()}
	r.Facts.SideEffect = facts.None
	structured := func(s string) {
		v, err := strictjson.Parse([]byte(s))
		if err != nil {
			panic(err)
		}
		r.Structured, r.Content = v, []call.Content{call.Text(s)}
	}
	if c.Args.Values()["later"] == true {
		time.Sleep(100 * time.Millisecond)
	}
	switch c.Capability {
	case "crm.get":
		structured(`{"id":7,"title":"Ada","owner":{"email":"[EMAIL_1]","tags":["a","b"]},"items":[1,2,3]}`)
	case "crm.list":
		structured(`{"rows":[{"n":1,"Status":"pending"},{"n":2,"Status":"done"},{"n":3,"Status":"pending"}],"total":3}`)
	case "crm.text":
		r.Content = []call.Content{call.Text("plain words")}
	case "crm.array":
		structured(`{"result":[{"a":1},{"a":2}]}`)
	case "crm.slow": // until most of ten are asked at once
		for end := time.Now().Add(10 * time.Second); d.atOnce() < 8 && ctx.Err() == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		structured(`{"ok":true}`)
	case "crm.echo":
		structured(string(c.Args.Raw()))
	case "crm.fails":
		r.Status, r.IsError, r.Content = facts.Failed, true, []call.Content{call.Text("no such customer")}
	case "crm.delete":
		r.Status, r.IsError = facts.Denied, true
		r.Why = []call.Reason{{Code: "contract.deny", Text: "never", File: "/etc/secret/waldo.yaml", Line: 3}}
	case "crm.ask":
		if c.ApprovalID == "a_9" {
			structured(`{"done":true}`)
			break
		}
		r.Status, r.IsError, r.ApprovalID = facts.Waiting, true, "a_9"
	case "crm.broken":
		return call.Result{DecisionID: "d_2"}, errors.New("disk /var/secret full")
	default:
		r.Status, r.IsError = facts.Denied, true
		r.Why = []call.Reason{{Code: "contract.absent", Text: "no contract for " + string(c.Capability)}}
	}
	return r, nil
}

var toolNames = []string{"crm.array", "crm.ask", "crm.broken", "crm.create-issue", "crm.delete", "crm.echo",
	"crm.fails", "crm.get", "crm.list", "crm.slow", "crm.text"}

func (d *desk) tools(call.Call) []call.Tool {
	var out []call.Tool
	for _, n := range toolNames {
		out = append(out, call.Tool{Capability: call.Capability(n), Server: "crm", Description: "does " + n + "\nand more"})
	}
	return out
}

func (d *desk) bridge(t *testing.T) *bridge.Bridge {
	b := bridge.New("test", &pipelinetest.Program{
		Has:    d.tools(call.Call{}),
		OnCall: d.call,
		OnCheck: func(c call.Call, t call.Tool) *call.Reason {
			if t.Capability == "crm.get" && c.Args.Values()["id"] == "seven" {
				return &call.Reason{Code: "args.schema", Text: "id must be a number"}
			}
			return nil
		},
	}, budget.New(budget.Limits{Memory: 32 << 20, Each: 100, Wait: time.Minute}))
	return b
}

type ran struct {
	stdout, stderr string
	exit           int
	effect         facts.SideEffect
}

func interpreter(t *testing.T, l guest.Lang) string {
	t.Helper()
	names := []string{"/usr/bin/python3", "/usr/local/bin/python3"}
	if l != guest.Python {
		names = []string{"/usr/bin/node", "/usr/local/bin/node"}
	}
	for _, n := range names {
		if _, err := os.Stat(n); err == nil {
			return n
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("no interpreter for %s", l)
	}
	t.Skipf("no interpreter for %s in /usr/bin or /usr/local/bin: install it to run this test", l)
	return ""
}

// run runs a script as the sandbox would: its own interpreter, descriptor 3, nothing else.
func run(t *testing.T, d *desk, s guest.Script, stdin string) ran {
	t.Helper()
	cold := start(t, d, s, stdin, false)
	if d == nil { // calls that a desk counts would count twice
		if warm := start(t, d, s, stdin, true); warm.stdout != cold.stdout || warm.exit != cold.exit ||
			warm.stderr != cold.stderr {
			t.Errorf("an interpreter that got ready first: %+v, and without: %+v", warm, cold)
		}
	}
	return cold
}

// start runs a script in an interpreter that gets ready first or not.
func start(t *testing.T, d *desk, s guest.Script, stdin string, warm bool) ran {
	t.Helper()
	exe := interpreter(t, s.Lang)
	argv, head, err := guest.Start{Lang: s.Lang, Warm: warm}.Command()
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Job()
	if err != nil {
		t.Fatal(err)
	}
	const most = 5 * time.Minute // 200 MB of calls take five seconds of two processors, and a busy machine has none
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, argv...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + cmd.Dir, "LANG=C.UTF-8"}
	cmd.Stdin = io.MultiReader(strings.NewReader(head), job, strings.NewReader(stdin))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	stop := func() facts.SideEffect { return facts.None }
	if d != nil {
		ours, theirs := socketpair(t)
		defer theirs.Close()
		cmd.ExtraFiles = []*os.File{theirs}
		stop = d.bridge(t).Open(ctx, call.Call{ID: "c_run", Session: "n_1", Principal: "os:1", Depth: 1}, ours, nil)
	}
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v; it took longer than %v: %v", err, most, ctx.Err() != nil)
	}
	return ran{out.String(), errs.String(), cmd.ProcessState.ExitCode(), stop()}
}

func socketpair(t *testing.T) (net.Conn, *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	return conn, theirs
}

// same fails unless the script printed want and ended with exit.
func same(t *testing.T, r ran, exit int, want string) {
	t.Helper()
	if r.exit != exit || strings.TrimSpace(r.stdout) != strings.TrimSpace(want) {
		t.Errorf("exit %d, want %d\nstdout:\n%s\nwant:\n%s\nstderr:\n%s", r.exit, exit, r.stdout, want, r.stderr)
	}
}

func TestCommandRefuses(t *testing.T) {
	for why, s := range map[string]guest.Script{
		"an unknown language":        {Lang: "cobol"},
		"a script over the limit":    {Lang: guest.Python, Code: make([]byte, guest.MaxScript+1)},
		"an argument with NUL":       {Lang: guest.Python, Args: []string{"a\x00b"}},
		"a name with NUL":            {Lang: guest.Python, Name: "a\x00b"},
		"an argument without UTF-8 ": {Lang: guest.Python, Args: []string{"\xff"}},
	} {
		if _, _, err := s.Command(); err == nil {
			t.Errorf("%s was taken", why)
		}
	}
	if _, _, err := (guest.Script{Lang: guest.Python, Code: make([]byte, guest.MaxScript)}).Command(); err != nil {
		t.Errorf("control: a script of exactly the limit: %v", err)
	}
}

func args(t *testing.T, c call.Call) string {
	t.Helper()
	b, err := json.Marshal(c.Args)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s", c.Capability, b)
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func scan(line string, out ...any) (int, error) { return fmt.Sscan(line, out...) }
