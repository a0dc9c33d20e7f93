package bridge

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/pipelinetest"
)

// A pipeline that records the calls it receives.
type fixture struct {
	mu       sync.Mutex
	calls    []call.Call
	refused  []call.Call
	do       func(ctx context.Context, c call.Call) (call.Result, error)
	tools    []string
	messages *budget.Gate
	arrive   func(ctx context.Context) context.Context
}

func (h *fixture) pipeline() *pipelinetest.Program {
	var tools []call.Tool
	for _, n := range h.tools {
		tools = append(tools, call.Tool{
			Capability: call.Capability(n), Server: "s", Title: "T", Description: "D", Digest: "sha256:" + n,
		})
	}
	return &pipelinetest.Program{
		Has: tools, OnArrive: h.arrive,
		OnCall: func(ctx context.Context, c call.Call) (call.Result, error) {
			h.mu.Lock()
			h.calls = append(h.calls, c)
			h.mu.Unlock()
			if h.do != nil {
				return h.do(ctx, c)
			}
			r := call.Result{
				CallID: c.ID, DecisionID: "d_x", Status: facts.OK, Content: []call.Content{call.Text("done")}, Facts: facts.New(),
			}
			r.Facts.SideEffect = facts.None
			return r, nil
		},
		OnResult: func(_ context.Context, _ call.Call, n int, approvalID string) (call.Result, error) {
			return call.Result{Status: facts.Waiting, ApprovalID: fmt.Sprintf("a_%d%s", n, approvalID)}, nil
		},
		OnRefuse: func(_ context.Context, c call.Call, why call.Reason) (call.Result, error) {
			h.mu.Lock()
			h.refused = append(h.refused, c)
			h.mu.Unlock()
			f := facts.New()
			f.SideEffect = facts.None
			return call.Result{
				CallID: c.ID, DecisionID: "d_no", Status: facts.Denied, IsError: true, Facts: f, Why: []call.Reason{why},
			}, nil
		},
	}
}

func (h *fixture) count() int { h.mu.Lock(); defer h.mu.Unlock(); return len(h.calls) }

func (h *fixture) call(n int) call.Call { h.mu.Lock(); defer h.mu.Unlock(); return h.calls[n] }

// memory is enough for the long requests of a test.
func memory() *budget.Gate {
	return budget.New(budget.Limits{Memory: 32 << 20, Each: 100, Wait: 100 * time.Millisecond})
}

// peer is the sandbox's end of a bridge.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	stop func() facts.SideEffect
}

func open(t *testing.T, h *fixture) *peer {
	t.Helper()
	b := New("test", h.pipeline(), cmp.Or(h.messages, memory()))
	ours, theirs := pipe(t)
	stop := sync.OnceValue(b.Open(context.Background(),
		call.Call{ID: "c_run", Session: "n_s", Principal: "os:7", Depth: 3}, ours, nil))
	t.Cleanup(func() { stop(); _ = theirs.Close() })
	return &peer{t, theirs, bufio.NewReaderSize(theirs, 1<<20), stop}
}

// pipe connects two ends over a Unix socket, which, unlike net.Pipe, holds what is not yet read.
func pipe(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func (b *peer) say(s string) {
	b.t.Helper()
	if _, err := io.WriteString(b.conn, s+"\n"); err != nil {
		b.t.Fatal(err)
	}
}

// hear reads one answer.
func (b *peer) hear() map[string]any {
	b.t.Helper()
	_ = b.conn.SetReadDeadline(time.Now().Add(time.Minute))
	line, err := b.in.ReadBytes('\n')
	if err != nil {
		b.t.Fatalf("no answer: %v", err)
	}
	var m map[string]any
	if err := json.Unmarshal(line, &m); err != nil {
		b.t.Fatalf("%q: %v", line, err)
	}
	return m
}

// closed fails unless the bridge has ended.
func (b *peer) closed() {
	b.t.Helper()
	_ = b.conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, b.in); err != nil && !errors.Is(err, net.ErrClosed) &&
		!strings.Contains(err.Error(), "reset") {
		b.t.Fatalf("the bridge is still open: %v", err)
	}
}

func code(m map[string]any) int {
	if e, ok := m["error"].(map[string]any); ok {
		return int(e["code"].(float64))
	}
	return 0
}

func TestACallWalksThePipeline(t *testing.T) {
	h := &fixture{tools: []string{"crm.get"}}
	b := open(t, h)
	b.say(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"crm__get",` +
		`"arguments":{"id":9007199254740993},"waldo/approval_id":"a_1"}}`)
	m := b.hear()
	meta := m["result"].(map[string]any)["_meta"].(map[string]any)
	if m["id"] != "a" || meta["waldo/decision_id"] != "d_x" || meta["waldo/side_effect"] != "none" {
		t.Errorf("%v", m)
	}
	c := h.call(0)
	if c.Capability != "crm.get" || c.Channel != "bridge" || c.Parent != "c_run" || c.Depth != 4 || c.Session != "n_s" ||
		c.Principal != "os:7" ||
		c.ApprovalID != "a_1" || c.ToolDigest != "sha256:crm.get" || string(c.Args.Raw()) != `{"id":9007199254740993}` {
		t.Errorf("%+v", c)
	}
}

// TestWholeResults: a result of the longest text and structured content of a server reaches the code.
func TestWholeResults(t *testing.T) {
	long := strings.Repeat(`"`, jsonrpc.MaxFrame-100) // each has an escape
	v, err := strictjson.Parse([]byte(`{"a":"` + strings.Repeat("x", jsonrpc.MaxFrame-100) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, &fixture{tools: []string{"crm.get"}, do: func(context.Context, call.Call) (call.Result, error) {
		return call.Result{Status: facts.OK, Content: []call.Content{call.Text(long)}, Structured: v, Facts: facts.New()}, nil
	}})
	b.say(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"crm.get","arguments":{}}}`)
	m := b.hear()
	r, ok := m["result"].(map[string]any)
	if !ok || len(r["content"].([]any)[0].(map[string]any)["text"].(string)) != len(long) || r["structuredContent"] == nil {
		t.Errorf("%.300v", m)
	}
}

// TestRunCode: run_code is a call of the capability that its language names, one deeper than the run.
func TestRunCode(t *testing.T) {
	h := &fixture{tools: []string{"run_python", "run_javascript"}}
	b := open(t, h)
	b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"1",` +
		`"language":"javascript","args":["a"]}}}`)
	b.hear()
	if c := h.call(0); c.Capability != "run_javascript" ||
		string(c.Args.Value().Canonical()) != `{"args":["a"],"code":"1"}` || c.Depth != 4 || c.ToolDigest == "" {
		t.Errorf("%+v", c)
	}
	for _, args := range []string{`{}`, `{"code":"1","language":"perl"}`, `{"language":"python"}`} {
		b.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_code","arguments":` + args + `}}`)
		if m := b.hear(); code(m) != jsonrpc.CodeParams {
			t.Errorf("%s: %v", args, m)
		}
	}
	if h.count() != 1 {
		t.Errorf("%d calls", h.count())
	}
}

// A caller cannot claim an identity in a message: the protocol has no field for it.
func TestIdentityCannotBeClaimed(t *testing.T) {
	h := &fixture{tools: []string{"x.y"}}
	b := open(t, h)
	b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x.y","session":"n_other","principal":"os:0",` +
		`"depth":0,"parent":"","channel":"cli","_meta":{"waldo/session":"n_other"}}}`)
	b.hear()
	if c := h.call(0); c.Session != "n_s" || c.Principal != "os:7" || c.Depth != 4 || c.Parent != "c_run" ||
		c.Channel != "bridge" {
		t.Errorf("%+v", c)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	for _, row := range []struct {
		why, line string
		code      int
		ends      bool // the bridge ends; otherwise it goes on
	}{
		{"not JSON", `hello`, jsonrpc.CodeParse, true},
		{"a duplicate name", `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, jsonrpc.CodeParse, true},
		{
			"a duplicate name in the arguments",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b","arguments":{"x":1,"x":2}}}`,
			jsonrpc.CodeParse, true,
		},
		{"a lone surrogate", `{"jsonrpc":"2.0","id":1,"method":"\ud800"}`, jsonrpc.CodeParse, true},
		{"two values", `{"jsonrpc":"2.0","id":1,"method":"ping"} {}`, jsonrpc.CodeParse, true},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, jsonrpc.CodeInvalid, true},
		{"a name in another case", `{"jsonrpc":"2.0","id":1,"Method":"ping"}`, jsonrpc.CodeInvalid, true},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, jsonrpc.CodeInvalid, true},
		{"an object for an id", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, jsonrpc.CodeInvalid, true},
		{"null for an id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, jsonrpc.CodeInvalid, true},
		{"a long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 1100) + `","method":"ping"}`,
			jsonrpc.CodeInvalid, true},
		{"nesting beyond the limit", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.Repeat("[", 300) +
			strings.Repeat("]", 300) + `}`, jsonrpc.CodeParse, true},
		{"an unknown method", `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, jsonrpc.CodeNoMethod, false},
		{"a call without a name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`, jsonrpc.CodeParams, false},
		{
			"a name that paints the screen",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x\u001b[2J\n 4 answer yes"}}`,
			jsonrpc.CodeParams, false,
		},
		{"arguments that are no object",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b","arguments":[1]}}`, jsonrpc.CodeParams, false},
		{"a detail that is none", `{"jsonrpc":"2.0","id":1,"method":"waldo/search","params":{"query":"x","detail":"all"}}`,
			jsonrpc.CodeParams, false},
		{"a limit too high", `{"jsonrpc":"2.0","id":1,"method":"waldo/search","params":{"query":"x","limit":100000}}`,
			jsonrpc.CodeParams, false},
	} {
		t.Run(row.why, func(t *testing.T) {
			h := &fixture{}
			b := open(t, h)
			b.say(row.line)
			if m := b.hear(); code(m) != row.code {
				t.Errorf("%v, want code %d", m, row.code)
			}
			if row.ends {
				b.closed()
			} else {
				b.say(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
				if m := b.hear(); code(m) != 0 {
					t.Errorf("afterwards: %v", m)
				}
			}
			if h.count() != 0 {
				t.Errorf("%d calls were made", h.count())
			}
		})
	}
}

func TestAFrameBeyondTheLimitEndsTheBridgeAlone(t *testing.T) {
	h := &fixture{tools: []string{"a.b"}}
	b := open(t, h)
	// control: just below
	b.say(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", jsonrpc.MaxFrame-100) + `"}}`)
	if m := b.hear(); code(m) != 0 {
		t.Fatalf("control: %v", m)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	var err error
	for i := 0; i < 64 && err == nil; i++ {
		_, err = b.conn.Write(chunk)
	}
	if err == nil {
		t.Error("64 MiB without a newline were taken")
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*jsonrpc.MaxFrame {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
	b2 := open(t, h)
	b2.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	b2.hear()
}

func TestOnlySoManyCallsAtOnce(t *testing.T) {
	release := make(chan struct{})
	h := &fixture{tools: []string{"a.b"}}
	h.do = func(ctx context.Context, c call.Call) (call.Result, error) {
		<-release
		return call.Result{Status: facts.OK}, nil
	}
	b := open(t, h)
	for i := range MaxInFlight + 5 {
		b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a.b"}}`, i))
	}
	for range 5 {
		if m := b.hear(); code(m) != jsonrpc.CodeBusy {
			t.Errorf("%v", m)
		}
	}
	b.say(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if m := b.hear(); code(m) != jsonrpc.CodeInvalid {
		t.Errorf("an id in use: %v", m)
	}
	close(release)
	for range MaxInFlight {
		if m := b.hear(); code(m) != 0 {
			t.Errorf("%v", m)
		}
	}
	if n := h.count(); n != MaxInFlight {
		t.Errorf("%d calls, want %d", n, MaxInFlight)
	}
}

func TestOnlySoManyBytesAtOnce(t *testing.T) {
	release := make(chan struct{})
	h := &fixture{tools: []string{"a.b"}}
	h.do = func(ctx context.Context, c call.Call) (call.Result, error) {
		<-release
		return call.Result{Status: facts.OK}, nil
	}
	b := open(t, h)
	big := strings.Repeat("x", call.MaxArgs-100)
	for i := range 5 {
		b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a.b","arguments":{"x":"%s"}}}`,
			i, big))
	}
	if m := b.hear(); code(m) != jsonrpc.CodeBusy || m["id"] != 4.0 {
		t.Errorf("%v", m)
	}
	close(release)
	for range 4 {
		if m := b.hear(); code(m) != 0 {
			t.Errorf("%v", m)
		}
	}
	b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"a.b","arguments":{"x":"%s"}}}`,
		big))
	if m := b.hear(); code(m) != 0 {
		t.Errorf("the place was not freed: %v", m)
	}
}

// TestLongRequestsNeedRoom: a long request takes its part of the memory that all bridges share while it is answered. One
// without room is refused, and short ones go on.
func TestLongRequestsNeedRoom(t *testing.T) {
	h := &fixture{tools: []string{"a.b"}, messages: memory()}
	b := open(t, h)
	ask := func(size int) int {
		b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b","arguments":{"x":"%s"}}}`,
			strings.Repeat("x", size)))
		return code(b.hear())
	}
	over, err := h.messages.Enter(t.Context(), "another", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(100 << 10); got != jsonrpc.CodeBusy {
		t.Errorf("a long request without room: %d", got)
	}
	if got := ask(1 << 10); got != 0 {
		t.Errorf("control: a short request: %d", got)
	}
	over()
	for range 3 {
		if got := ask(20<<10 + 80<<10); got != 0 {
			t.Errorf("control: with room: %d", got)
		}
	}
	if over, err := h.messages.Enter(t.Context(), "another", 32<<20); err != nil {
		t.Errorf("an answered request holds its part: %v", err)
	} else {
		over()
	}
}

func TestASandboxThatDoesNotReadIsOwedLittle(t *testing.T) {
	h := &fixture{tools: []string{"a.b"}}
	big := strings.Repeat("x", 1<<20)
	h.do = func(context.Context, call.Call) (call.Result, error) {
		return call.Result{Status: facts.OK, Content: []call.Content{call.Text(big)}}, nil
	}
	b := open(t, h)
	_ = b.conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
	for i := range 2000 {
		if _, err := fmt.Fprintf(b.conn, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a.b"}}`+"\n",
			i); err != nil {
			break // the bridge stopped taking: as good
		}
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if n := h.count(); n > MaxInFlight+2 {
			t.Fatalf("%d calls were made for a sandbox that reads no answer, want at most %d", n, MaxInFlight+2)
		}
	}
}

func TestErrorsSayNothingOfTheInside(t *testing.T) {
	for why, do := range map[string]func(context.Context, call.Call) (call.Result, error){
		"an error": func(context.Context, call.Call) (call.Result, error) {
			return call.Result{DecisionID: "d_1"}, errors.New("open /var/lib/hidden: denied")
		},
		"a panic": func(context.Context, call.Call) (call.Result, error) { panic("hidden state") },
	} {
		h := &fixture{tools: []string{"a.b"}, do: do}
		b := open(t, h)
		b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b"}}`)
		m := b.hear()
		if text := fmt.Sprint(m); code(m) != jsonrpc.CodeInternal || strings.Contains(text, "hidden") {
			t.Errorf("%s: %v", why, m)
		}
		if e := b.stop(); e != facts.Unknown {
			t.Errorf("%s: effect %v, want unknown", why, e)
		}
	}
}

func TestReasonsLeaveOutWhereTheContractStands(t *testing.T) {
	h := &fixture{tools: []string{"a.b"}, do: func(context.Context, call.Call) (call.Result, error) {
		return call.Result{
			Status: facts.Denied, IsError: true,
			Why: []call.Reason{{Code: "contract.deny", Text: "no", File: "/home/ann/waldo.yaml", Line: 4}},
		}, nil
	}}
	b := open(t, h)
	b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b"}}`)
	m := b.hear()
	if text := fmt.Sprint(m); !strings.Contains(text, "contract.deny") || strings.Contains(text, "ann") {
		t.Errorf("%v", m)
	}
}

func TestUnknownNamesReachThePipelineToBeRefused(t *testing.T) {
	h := &fixture{tools: []string{"s.create-issue", "s.a-b", "s.a_b", "s.a.b", "s.import"}}
	for asked, want := range map[string]string{
		"s.create_issue":  "s.create-issue", // one tool is spelled so
		"s.a_b":           "s.a_b",          // the exact name wins
		"s.import_":       "s.import",       // a keyword gets an underscore
		"s.nothing":       "s.nothing",
		"s.create-issue":  "s.create-issue",
		"s__create-issue": "s.create-issue",
	} {
		b := open(t, h)
		b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q}}`, asked))
		b.hear()
		if c := h.call(h.count() - 1); string(c.Capability) != want {
			t.Errorf("%s became %s, want %s", asked, c.Capability, want)
		}
	}
	h = &fixture{tools: []string{"s.a-b", "s.a b"}}
	b := open(t, h)
	b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s.a_b"}}`)
	b.hear()
	if c := h.call(0); c.Capability != "s.a_b" || c.ToolDigest != "" {
		t.Errorf("a spelling of two tools chose one: %+v", c)
	}
}

func TestArgumentsThatDoNotFitAreNoCall(t *testing.T) {
	h := &fixture{tools: []string{"a.b"}}
	c := h.pipeline()
	c.OnCheck = func(call.Call, call.Tool) *call.Reason { return &call.Reason{Code: "args.schema", Text: "id: missing"} }
	br := New("", c, memory())
	ours, theirs := pipe(t)
	stop := br.Open(context.Background(), call.Call{}, ours, nil)
	b := &peer{t, theirs, bufio.NewReader(theirs), stop}
	b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b"}}`)
	if text := fmt.Sprint(b.hear()); !strings.Contains(text, "args.schema") || !strings.Contains(text, "d_no") ||
		h.count() != 0 {
		t.Errorf("%s; %d calls", text, h.count())
	}
	if len(h.refused) != 1 || h.refused[0].Capability != "a.b" || h.refused[0].Channel != "bridge" {
		t.Errorf("on record: %+v", h.refused)
	}
	if e := stop(); e != facts.None {
		t.Errorf("effect %v", e)
	}
}

func TestEffectOfARun(t *testing.T) {
	for _, row := range []struct {
		why  string
		each []facts.SideEffect
		want facts.SideEffect
	}{
		{"no call has no effect", nil, facts.None},
		{"reads have none", []facts.SideEffect{facts.None, facts.None}, facts.None},
		{"one write is confirmed", []facts.SideEffect{facts.None, facts.Confirmed, facts.None}, facts.Confirmed},
		{"unknown outweighs confirmed", []facts.SideEffect{facts.Unknown, facts.Confirmed}, facts.Unknown},
	} {
		i := 0
		h := &fixture{tools: []string{"a.b"}}
		h.do = func(context.Context, call.Call) (call.Result, error) {
			f := facts.New()
			f.SideEffect = row.each[i]
			i++
			return call.Result{Status: facts.OK, Facts: f}, nil
		}
		b := open(t, h)
		for n := range row.each {
			b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a.b"}}`, n))
			b.hear()
		}
		if got := b.stop(); got != row.want {
			t.Errorf("%s: %v, want %v", row.why, got, row.want)
		}
	}
}

func TestACallStillRunningAtTheEndIsUnknown(t *testing.T) {
	hang := make(chan struct{})
	began := make(chan struct{})
	h := &fixture{tools: []string{"a.b"}, do: func(ctx context.Context, c call.Call) (call.Result, error) {
		close(began)
		<-hang // deaf to its context
		return call.Result{}, nil
	}}
	b := open(t, h)
	b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b"}}`)
	<-began
	start := time.Now()
	if got := b.stop(); got != facts.Unknown {
		t.Errorf("%v", got)
	}
	if d := time.Since(start); d > stopWait+30*time.Second {
		t.Errorf("stop took %v", d)
	}
	close(hang)
}

func TestCancellation(t *testing.T) {
	for why, end := range map[string]func(b *peer){
		"the sandbox says so": func(b *peer) {
			b.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		},
		"the sandbox closes its end": func(b *peer) { _ = b.conn.Close() },
		"the sandbox writes garbage": func(b *peer) { b.say(`garbage`) },
		"the run ends":               func(b *peer) { go b.stop() },
	} {
		began, ended := make(chan struct{}), make(chan struct{})
		h := &fixture{tools: []string{"a.b"}, do: func(ctx context.Context, c call.Call) (call.Result, error) {
			close(began)
			<-ctx.Done()
			close(ended)
			return call.Result{Status: facts.Cancelled}, nil
		}}
		b := open(t, h)
		b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a.b"}}`)
		<-began
		end(b)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s: the call goes on", why)
		}
	}
}

func TestListPagesAndSearch(t *testing.T) {
	h := &fixture{}
	for i := range 1200 {
		h.tools = append(h.tools, fmt.Sprintf("s.t%04d", i))
	}
	b := open(t, h)
	seen, cursor := 0, ""
	for page := 0; ; page++ {
		b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":%q}}`, cursor))
		m := b.hear()["result"].(map[string]any)
		for _, tool := range m["tools"].([]any) {
			if want := fmt.Sprintf("s__t%04d", seen); tool.(map[string]any)["name"] != want {
				t.Fatalf("%v, want %s", tool, want)
			}
			seen++
		}
		next, more := m["nextCursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if seen != 1200 {
		t.Errorf("%d tools", seen)
	}
	b.say(`{"jsonrpc":"2.0","id":1,"method":"waldo/search","params":{"query":"t0","detail":"name","limit":2}}`)
	if got := fmt.Sprint(b.hear()["result"]); got != "map[tools:[map[name:s.t0000 server:s] map[name:s.t0001 server:s]]]" {
		t.Errorf("%s", got)
	}
}

// TestAnsweredInOrder: calls of a program whose writes are held are answered in their order, whichever ends first.
func TestAnsweredInOrder(t *testing.T) {
	second, read := make(chan struct{}), make(chan struct{})
	ask := func(arrive func(context.Context) context.Context, until chan struct{}) *peer {
		h := &fixture{tools: []string{"s.x", "s.y"}, arrive: arrive}
		h.do = func(_ context.Context, c call.Call) (call.Result, error) {
			if c.Capability == "s.x" {
				<-until
				time.Sleep(50 * time.Millisecond) // the other answer can only be too early
			} else if until == second {
				close(second)
			}
			return call.Result{CallID: c.ID, Status: facts.OK, Facts: facts.New()}, nil
		}
		b := open(t, h)
		b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s.x"}}`)
		b.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s.y"}}`)
		return b
	}
	type key struct{}
	b := ask(func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }, second)
	if got := fmt.Sprint(b.hear()["id"], b.hear()["id"]); got != "1 2" {
		t.Errorf("held: %s", got)
	}
	b = ask(nil, read)
	if got := b.hear()["id"]; got != 2.0 {
		t.Errorf("control: %v", got)
	}
	close(read)
}
