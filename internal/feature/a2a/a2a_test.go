package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/executor/direct"
	"waldo/internal/feature/agent"
	"waldo/internal/feature/rest"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
)

// bench is a waldo that serves three tools: echo reads, note writes, and slow takes its time.
type bench struct {
	t      *testing.T
	h      *app.App
	url    string
	state  string
	token  string
	noted  *atomic.Int32
	names  *names
	inside string // the receiver that the operator names as one of the own network
	stop   func()
}

// names are what names of receivers stand for, one answer after the other; the last one stays.
type names struct {
	mu  sync.Mutex
	all []string
}

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.all) == 0 {
		return nil, errors.New("no such name")
	}
	a := netip.MustParseAddr(n.all[0])
	if len(n.all) > 1 {
		n.all = n.all[1:]
	}
	return []netip.Addr{a}, nil
}

const oneString = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`

// toolbox are the tools of a bench.
func toolbox(noted *atomic.Int32) app.Toolbox {
	return func(app.Kit) []direct.Tool {
		tool := func(name string, run func(ctx context.Context, text string) (string, facts.SideEffect)) direct.Tool {
			return direct.Tool{Tool: call.Define(call.Capability(name), "", "The tool "+name+".", oneString),
				Run: func(ctx context.Context, d policy.Decision) (call.Outcome, error) {
					text, _ := d.Call.Args.Values()["text"].(string)
					say, effect := run(ctx, text)
					return direct.Done(effect, call.Text(say)), nil
				}}
		}
		return []direct.Tool{
			tool("t.echo", func(_ context.Context, s string) (string, facts.SideEffect) { return "echo " + s, facts.None }),
			tool("t.note", func(_ context.Context, s string) (string, facts.SideEffect) {
				noted.Add(1)
				return "noted " + s, facts.Confirmed
			}),
			tool("t.write", func(_ context.Context, s string) (string, facts.SideEffect) {
				killHere("in the call")
				return "wrote " + s, facts.Confirmed
			}),
			tool("t.read", func(_ context.Context, s string) (string, facts.SideEffect) {
				killHere("in the call")
				return "read " + s, facts.None
			}),
			tool("t.hidden", func(_ context.Context, s string) (string, facts.SideEffect) { return s, facts.None }),
			tool("t.slow", func(ctx context.Context, s string) (string, facts.SideEffect) {
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Second):
				}
				return s, facts.None
			}),
		}
	}
}

const contracts = `version: 1
internal: [push.test]
gateway: {auth: {tokens: {ann: %q, bob: %q}}%s}
capabilities:
  exec: {mode: write, approval: none}
  t.echo: {transport: direct, mode: read, approval: none, a2a: {expose: true}}
  t.slow: {transport: direct, mode: read, approval: none, a2a: {expose: true}}
  t.note: {transport: direct, mode: write, approval: always, a2a: {expose: true}}
  t.ruled: deny
  t.hidden: {transport: direct, mode: read, approval: none}
`

func newBench(t *testing.T, extra string) *bench {
	t.Helper()
	return newBenchWith(t, contracts, extra)
}

// newBenchWith is newBench under other contracts.
func newBenchWith(t *testing.T, contracts, extra string) *bench {
	t.Helper()
	ann, annHash := identity.NewToken()
	_, bobHash := identity.NewToken()
	b := &bench{t: t, state: filepath.Join(t.TempDir(), "state"), token: ann, noted: &atomic.Int32{}, names: &names{}}
	file := filepath.Join(filepath.Dir(b.state), "waldo.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, contracts, annHash, bobHash, extra), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(file)
	t.Cleanup(func() { b.stop() })
	return b
}

// start opens waldo and serves, until b.stop.
func (b *bench) start(file string) {
	b.t.Helper()
	cfg, err := configfile.Source{Config: file}.Load(b.state)
	if err != nil {
		b.t.Fatal(err)
	}
	cfg.File = "" // which nobody has to trust
	h, err := app.New(context.Background(), app.Options{State: b.state, Cfg: cfg, Version: "1",
		Openers: []app.Opener{func(h *app.App) (app.Running, error) {
			return open(h, b.names, func(host string) bool { return host == b.inside })
		}, agent.Feature.Open, rest.Feature.Open}, Tools: []app.Toolbox{toolbox(b.noted)}, Warm: 0})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	at, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- h.ServeHTTP(ctx, "127.0.0.1:0", nil, false, func(a net.Addr) { at <- a }) }()
	select {
	case a := <-at:
		b.url = "http://" + a.String()
	case err := <-ended:
		b.t.Fatal(err)
	}
	b.h = h
	b.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		if err := h.Close(); err != nil {
			b.t.Error(err)
		}
		b.stop = func() {}
	}
}

// file is the configuration of the bench.
func (b *bench) file() string { return filepath.Join(filepath.Dir(b.state), "waldo.yaml") }

// killHere ends this process where a test wants it.
var killHere = func(string) {}

// do sends one HTTP request. Headers are NAME, VALUE, …
func (b *bench) do(method, path, body string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("A2A-Version", "1.0")
	r.Header.Set("Authorization", "Bearer "+b.token)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(out)
}

// rpc calls one method and returns its result, or the code of its error.
func (b *bench) rpc(method, params string) (result json.RawMessage, code int) {
	b.t.Helper()
	_, body := b.do("POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	var r struct {
		Result json.RawMessage
		Error  struct {
			Code int
			Data []struct{ Reason string }
		}
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		b.t.Fatalf("%s: %v in %q", method, err, body)
	}
	if r.Error.Code != 0 && (len(r.Error.Data) != 1 || r.Error.Data[0].Reason == "") {
		b.t.Errorf("%s: an error without its reason: %s", method, body)
	}
	return r.Result, r.Error.Code
}

var messages atomic.Int64

// message is a message for a skill with its one argument.
func message(skill, text string) string {
	return fmt.Sprintf(`{"message":{"messageId":"m%d","role":"ROLE_USER","metadata":{"skill":%q},"parts":[{"text":%q}]}}`,
		messages.Add(1), skill, text)
}

// send sends a message and returns its task.
func (b *bench) send(message string) (t Task) {
	b.t.Helper()
	result, code := b.rpc("SendMessage", message)
	var r struct{ Task Task }
	if err := json.Unmarshal(result, &r); err != nil || code != 0 || r.Task.ID == "" {
		b.t.Fatalf("%s: %d %v %s", message, code, err, result)
	}
	return r.Task
}

func (b *bench) task(id string) (t Task, code int) {
	b.t.Helper()
	result, code := b.rpc("GetTask", `{"id":"`+id+`"}`)
	if code == 0 {
		if err := json.Unmarshal(result, &t); err != nil {
			b.t.Fatal(err)
		}
	}
	return t, code
}

// until waits until a task has a state.
func (b *bench) until(id string, s State) Task {
	b.t.Helper()
	var t Task
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if t, _ = b.task(id); t.Status.State == s {
			return t
		}
	}
	b.t.Fatalf("the task is %s, and was to be %s: %s", t.Status.State, s, said(t))
	return t
}

func said(t Task) string {
	if t.Status.Message == nil || len(t.Status.Message.Parts) == 0 {
		return ""
	}
	return *t.Status.Message.Parts[0].Text
}

// answer has a person answer the one open question.
func (b *bench) answer(yes bool) {
	b.t.Helper()
	open, err := b.h.Approvals.Pending(b.t.Context())
	if err != nil || len(open) != 1 {
		b.t.Fatalf("%d questions: %v", len(open), err)
	}
	b.say(open, yes)
}

// answerAll has a person agree to each open question.
func (b *bench) answerAll() {
	b.t.Helper()
	open, err := b.h.Approvals.Pending(b.t.Context())
	if err != nil || len(open) == 0 {
		b.t.Fatalf("%d questions: %v", len(open), err)
	}
	b.say(open, true)
}

func (b *bench) say(open []approval.Question, yes bool) {
	b.t.Helper()
	k, ctx := b.h.Approvals, b.t.Context()
	if all, err := k.Approvers(ctx); err != nil || len(all) == 0 {
		if _, err := k.Enroll(ctx, "carol", nil, secret.NewValue("correct horse battery"), nil); err != nil {
			b.t.Fatal(err)
		}
	}
	by, err := k.Unseal("carol", secret.NewValue("correct horse battery"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, q := range open {
		if err := k.Answer(ctx, by, q, yes, ""); err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestTask: a message becomes a call of its skill. The task has the result, the facts and its messages.
func TestTask(t *testing.T) {
	b := newBench(t, "")
	done := b.send(message("t.echo", "hello"))
	if done.Status.State != Completed || len(done.Artifacts) != 1 || *done.Artifacts[0].Parts[0].Text != "echo hello" ||
		len(done.History) != 1 || done.Metadata["waldo/side_effect"] != "none" || done.Metadata["waldo/call_id"] == "" {
		t.Errorf("%+v", done)
	}
	if again, code := b.task(done.ID); code != 0 || again.Status.State != Completed {
		t.Errorf("%d %+v", code, again)
	}
	for why, row := range map[string]struct {
		params string
		code   int
	}{
		"a skill that is not exposed": {message("t.hidden", "x"), -32602},
		"no skill":                    {message("", "x"), -32602},
		"arguments that do not fit":   {`{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"data":[1]}],"metadata":{"skill":"t.echo"}}}`, -32602},
		"no parts":                    {`{"message":{"messageId":"n","role":"ROLE_USER","parts":[]}}`, -32602},
		"the agent's role":            {`{"message":{"messageId":"n","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`, -32602},
		"a file":                      {`{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"url":"https://x"}]}}`, -32005},
		"two contents":                {`{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"text":"x","data":1}]}}`, -32602},
		"a task that ended": {`{"message":{"messageId":"n","taskId":"` + done.ID +
			`","role":"ROLE_USER","parts":[{"text":"x"}]}}`, -32004},
		"an unknown task": {`{"message":{"messageId":"n","taskId":"t_x","role":"ROLE_USER","parts":[{"text":"x"}]}}`, -32001},
		"a tenant":        {`{"tenant":"x","message":{"messageId":"n","role":"ROLE_USER","parts":[{"text":"x"}]}}`, -32602},
	} {
		if _, code := b.rpc("SendMessage", row.params); code != row.code {
			t.Errorf("%s: %d, want %d", why, code, row.code)
		}
	}
	if bad := b.send(`{"message":{"messageId":"bad","role":"ROLE_USER","parts":[{"data":{"skill":"t.echo","arguments":{"x":1}}}]}}`); bad.Status.State != Rejected ||
		!strings.Contains(said(bad), "args.schema") {
		t.Errorf("arguments beyond the schema: %+v", bad)
	}
}

// TestApproval: while a person is asked, the task wants input. It goes on with the answer, once, also in another waldo.
func TestApproval(t *testing.T) {
	b := newBench(t, "")
	asked := b.send(message("t.note", "one"))
	if asked.Status.State != InputRequired || !strings.Contains(said(asked), "may t.note be called") ||
		b.noted.Load() != 0 {
		t.Fatalf("%+v %s", asked, said(asked))
	}
	b.answer(true)
	done := b.until(asked.ID, Completed)
	if b.noted.Load() != 1 || *done.Artifacts[0].Parts[0].Text != "noted one" ||
		done.Metadata["waldo/side_effect"] != "confirmed" {
		t.Errorf("%+v, noted %d times", done, b.noted.Load())
	}
	refused := b.send(message("t.note", "two"))
	b.answer(false)
	if no := b.until(refused.ID, Rejected); !strings.Contains(said(no), "denied") || b.noted.Load() != 1 {
		t.Errorf("%+v", no)
	}
	later := b.send(message("t.note", "three"))
	b.stop()
	b.start(b.file())
	if now, code := b.task(later.ID); code != 0 || now.Status.State != InputRequired {
		t.Fatalf("after a restart: %d %+v", code, now)
	}
	b.answer(true)
	b.until(later.ID, Completed)
	if b.noted.Load() != 2 {
		t.Errorf("noted %d times", b.noted.Load())
	}
}

// TestCanceledQuestion: who cancels a task withdraws its question. A late yes is refused, an equal message asks anew, and
// a question that another task waits for as well stays.
func TestCanceledQuestion(t *testing.T) {
	b := newBench(t, "")
	first, second := b.send(message("t.note", "x")), b.send(message("t.note", "x"))
	shown, err := b.h.Approvals.Pending(t.Context())
	if err != nil || len(shown) != 1 {
		t.Fatalf("control: equal calls do not share a question: %+v %v", shown, err)
	}
	yes := func() error {
		by, err := b.h.Approvals.Unseal("carol", secret.NewValue("correct horse battery"))
		if err != nil {
			t.Fatal(err)
		}
		return b.h.Approvals.Answer(t.Context(), by, shown[0], true, "")
	}
	_, err = b.h.Approvals.Enroll(t.Context(), "carol", nil, secret.NewValue("correct horse battery"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range []struct {
		task string
		open int
	}{{first.ID, 1}, {second.ID, 0}} {
		if _, code := b.rpc("CancelTask", `{"id":"`+row.task+`"}`); code != 0 {
			t.Fatal(code)
		}
		if open, err := b.h.Approvals.Pending(t.Context()); err != nil || len(open) != row.open {
			t.Errorf("after cancel %d: %d questions are open, want %d: %v", i, len(open), row.open, err)
		}
	}
	var no *approval.Refused
	if err := yes(); !errors.As(err, &no) || no.Reason.Code != "approval.withdrawn" {
		t.Errorf("a late yes: %v", err)
	}
	recorded := 0
	if err := audit.Range(t.Context(), audit.Dir(b.state), 0, 1<<62, func(r audit.Record) error {
		if r.Kind == audit.KindVerdict && strings.Contains(string(r.Body), "the client canceled the task") {
			recorded++
		}
		return nil
	}); err != nil || recorded != 1 {
		t.Errorf("the end of the question is in %d records, want 1: %v", recorded, err)
	}
	again := b.send(message("t.note", "x"))
	asked := shown[0].ID
	if shown, err = b.h.Approvals.Pending(t.Context()); err != nil || len(shown) != 1 || shown[0].ID == asked {
		t.Fatalf("an equal message asks nobody: %+v %v", shown, err)
	}
	if err := yes(); err != nil {
		t.Errorf("control: %v", err)
	}
	b.until(again.ID, Completed)
	if b.noted.Load() != 1 {
		t.Errorf("noted %d times", b.noted.Load())
	}
}
