//go:build unix

package reliability

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/core/session"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// The variables that make this test binary a waldo that makes one call.
const (
	waldoIn  = "RELIABILITY_TEST_WALDO" // the folder of its configuration
	callWith = "RELIABILITY_TEST_CALL"  // the call, as a ordered in JSON
)

func TestMain(m *testing.M) {
	app.Child()
	switch {
	case len(os.Args) == 3 && os.Args[1] == "oracle":
		oracle(os.Args[2])
	case len(os.Args) > 5 && os.Args[1] == "between":
		between(os.Args[2], os.Args[3], os.Args[4], os.Args[5:])
	case os.Getenv(waldoIn) != "":
		if err := child(os.Getenv(waldoIn)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// oracle is an MCP server that counts: each effect is a line of the file effects. An argument says how the first call
// with a title ends; later ones end well, and all do once there is a file calm.
func oracle(dir string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct {
					Title, How string
					Request    string `json:"request_id"`
					ID         int
				}
			}
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		var result any
		a := m.Params.Arguments
		switch m.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "oracle", "version": "1"}}
		case "tools/list":
			result = map[string]any{"tools": []any{tool("create", "title", "how"), tool("find", "title"), tool("delete", "id"),
				tool("create_once", "title", "how", "request_id")}}
		case "tools/call":
			result = answer(dir, m.Params.Name, a.Title, a.How, a.Request, a.ID)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", m.ID)
			continue
		}
		b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		fmt.Println(string(b))
	}
}

// tool defines a tool. An argument request_id is required.
func tool(name string, args ...string) any {
	properties, required := map[string]any{}, []string{}
	for _, a := range args {
		properties[a] = map[string]any{"type": []string{"string", "integer"}}
		if a == "request_id" {
			required = append(required, a)
		}
	}
	return map[string]any{"name": name, "description": name, "inputSchema": map[string]any{"type": "object",
		"properties": properties, "required": required}}
}

func answer(dir, name, title, how, request string, number int) any {
	effects := filepath.Join(dir, "effects")
	b, _ := os.ReadFile(effects)
	done := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	say := func(v any) any {
		text, _ := json.Marshal(v)
		return map[string]any{"content": []any{map[string]any{"type": "text", "text": string(text)}}, "structuredContent": v}
	}
	count := 0
	for _, line := range done {
		if strings.HasPrefix(line, title+" ") {
			count++
		}
	}
	switch name {
	case "find":
		return say(map[string]any{"total": count})
	case "delete":
		line := fmt.Sprintf("deleted-%d \n", number)
		_ = os.WriteFile(effects, append(b, line...), 0o600)
		return say(map[string]any{"deleted": number})
	}
	marker := filepath.Join(dir, "seen-"+title)
	_, err := os.Stat(marker)
	_ = os.WriteFile(marker, nil, 0o600)
	_, calm := os.Stat(filepath.Join(dir, "calm"))
	first := errors.Is(err, os.ErrNotExist) && calm != nil
	step := func(at string) {
		switch {
		case !first:
		case how == "die_"+at:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case how == "hang_"+at:
			time.Sleep(time.Hour)
		case how == "slow_"+at:
			time.Sleep(500 * time.Millisecond)
		case how == "kill_waldo_"+at:
			text, _ := os.ReadFile(filepath.Join(dir, "waldo-"+title))
			pid, err := strconv.Atoi(string(text))
			if err != nil {
				os.Exit(1)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
			select {}
		}
	}
	step("before")
	if known := request != "" && strings.Contains(string(b), title+" "+request+"\n"); !known {
		f, _ := os.OpenFile(effects, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		_, _ = fmt.Fprintf(f, "%s %s\n", title, request)
		_ = f.Close()
	}
	step("after")
	if how == "error" {
		return map[string]any{"isError": true, "content": []any{map[string]any{"type": "text", "text": "locked"}}}
	}
	return say(map[string]any{"id": len(done), "title": title})
}

// ordered is a call that a test orders, and where its waldo kills itself.
type ordered struct {
	Capability, Key string
	Args            map[string]any
	KillAt          string
}

// contracts are the capabilities of the tests. The timeout is short: tests let the oracle hang.
const contracts = `version: 1
servers:
  s: {command: [%[1]q, oracle, %[2]q], placement: outside}
capabilities:
  s.find: {mode: read, approval: none}
  s.delete: {mode: write, approval: none}
  s.create: {mode: write, approval: none, timeout_seconds: 2%[3]s}
  s.create_once: {mode: write, approval: none, timeout_seconds: 2%[3]s}
`

// bench is a folder with a configuration, its state, and what the oracle has counted.
type bench struct{ dir string }

// newBench writes a configuration whose s.create has more keys.
func newBench(t testing.TB, keys string) bench {
	t.Helper()
	b := bench{t.TempDir()}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if keys != "" {
		keys = ", " + keys
	}
	text := fmt.Sprintf(contracts, me, b.dir, keys)
	if err := os.WriteFile(filepath.Join(b.dir, "waldo.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

const settles = `settle: {by: s.find, args: {title: args.title}, happened: "result.total > 0.0", within: 1s}`

// effects counts the effects of a title.
func (b bench) effects(t *testing.T, title string) (n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, title+" ") {
			n++
		}
	}
	return n
}

// open opens waldo.
func (b bench) open(ctx context.Context) (*app.App, error) {
	state := filepath.Join(b.dir, "state")
	return app.New(ctx, app.Options{State: state, Openers: []app.Opener{open}, Version: "test",
		Source: configfile.Source{Config: filepath.Join(b.dir, "waldo.yaml"), State: state, Say: func(string) {}}})
}

// waldo opens waldo for a test.
func (b bench) waldo(t testing.TB) *app.App {
	t.Helper()
	h, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// make makes a call.
func (o ordered) make(ctx context.Context, h *app.App) (call.Result, error) {
	n, err := h.OpenSession()
	if err != nil {
		return call.Result{}, err
	}
	defer h.Sessions.Close(n.ID)
	return o.in(ctx, h, n)
}

// in makes a call in a session.
func (o ordered) in(ctx context.Context, h *app.App, n session.Info) (call.Result, error) {
	args, err := call.ArgsOf(o.Args)
	if err != nil {
		return call.Result{}, err
	}
	c := call.Call{ID: id.New(id.Call), Capability: call.Capability(o.Capability), Args: args, Session: n.ID,
		Principal: n.Principal, Channel: "cli", Key: o.Key}
	if why := h.Prepare(ctx, &c); why != nil {
		return call.Result{}, fmt.Errorf("%s: %s", why.Code, why.Text)
	}
	return h.Call(ctx, c)
}

// create orders s.create.
func create(title, how, key string) ordered {
	return ordered{Capability: "s.create", Key: key, Args: map[string]any{"title": title, "how": how}}
}

func (o ordered) must(t *testing.T, h *app.App) call.Result {
	t.Helper()
	r, err := o.make(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dying kills its waldo at one step of a tracked call.
type dying struct {
	broker.Effects
	at string
}

func (d dying) die(at string) {
	if d.at == at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (d dying) Begin(ctx context.Context, dec policy.Decision, args call.Args) (
	call.Args, *call.Result, *call.Reason, error,
) {
	d.die("decided")
	a, r, why, err := d.Effects.Begin(ctx, dec, args)
	d.die("begun")
	return a, r, why, err
}

func (d dying) End(ctx context.Context, dec policy.Decision, r call.Result, answered bool) (call.Result, bool, error) {
	d.die("answered")
	r, open, err := d.Effects.End(ctx, dec, r, answered)
	d.die("stored")
	return r, open, err
}

func (d dying) Lost(ctx context.Context, dec policy.Decision, r call.Result, answered bool) (string, error) {
	d.die("lost")
	return d.Effects.Lost(ctx, dec, r, answered)
}

func (d dying) Recorded(ctx context.Context, callID string) error {
	d.die("recorded")
	return d.Effects.Recorded(ctx, callID)
}

// pidFile names the process that makes the call, for the oracle to kill.
func (o ordered) pidFile(dir string) string {
	return filepath.Join(dir, fmt.Sprint("waldo-", o.Args["title"]))
}

// child makes the one call that a variable orders.
func child(dir string) error {
	h, err := bench{dir}.open(context.Background())
	if err != nil {
		return err
	}
	defer h.Close()
	var o ordered
	if err := json.Unmarshal([]byte(os.Getenv(callWith)), &o); err != nil {
		return err
	}
	if err := os.WriteFile(o.pidFile(dir), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	defer os.Remove(o.pidFile(dir))
	h.Broker.Effects = dying{h.Effects, o.KillAt}
	_, err = o.make(context.Background(), h)
	return err
}

// killed has another waldo make a call, and waits until it is killed.
func (b bench) killed(t *testing.T, o ordered) {
	t.Helper()
	out, err := b.child(t, o)
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("control: it was not killed: %v\n%s", err, out)
	}
}

// child has another waldo make a call, and waits until it ends.
func (b bench) child(t *testing.T, o ordered) ([]byte, error) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), me)
	c.Env = append(os.Environ(), waldoIn+"="+b.dir, callWith+"="+string(text))
	out, err := c.CombinedOutput()
	_ = os.Remove(o.pidFile(b.dir)) // of a process that has ended
	return out, err
}
