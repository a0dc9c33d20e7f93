package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/frontend/mcpserver/tasks"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// fakePipeline is a pipeline: the argument do says what becomes of a call.
type fakePipeline struct {
	mu       sync.Mutex
	calls    []call.Call
	ended    int           // how many calls saw their context end
	let      chan struct{} // ends the calls that wait
	approved chan struct{} // closed once the person agrees
}

func newFakePipeline() *fakePipeline {
	return &fakePipeline{let: make(chan struct{}), approved: make(chan struct{})}
}

func (p *fakePipeline) call(ctx context.Context, c call.Call) (call.Result, error) {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	f := facts.New()
	f.Status = facts.OK
	r := call.Result{CallID: c.ID, Status: facts.OK, Facts: f, Content: []call.Content{call.Text("done")}}
	switch c.Args.Values()["do"] {
	case "deny":
		return call.Result{
			CallID: c.ID, Status: facts.Denied, IsError: true, Why: []call.Reason{{Code: "contract.absent"}},
		}, nil
	case "long":
		call.BecameTask(ctx)
		fallthrough
	case "wait":
		select {
		case <-p.let:
		case <-ctx.Done():
			p.mu.Lock()
			p.ended++
			p.mu.Unlock()
			return call.Result{
				CallID: c.ID, Status: facts.Cancelled, IsError: true,
				Content: []call.Content{call.Text("whether it took effect is not known")},
			}, nil
		}
	case "ask":
		v, _ := strictjson.Parse([]byte(`{"message":"name?"}`))
		got, err := call.HostOf(ctx).Ask(ctx, "s", map[string]call.Question{"q": {Method: "elicitation/create", Params: v}})
		if err != nil {
			return r, err
		}
		r.Content = []call.Content{call.Text(string(got["q"].Raw()))}
	case "approve":
		if c.ApprovalID == "" {
			return call.Result{CallID: c.ID, Status: facts.Waiting, IsError: true, ApprovalID: "a_1"}, nil
		}
	}
	return r, nil
}

func (p *fakePipeline) count() (calls, ended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls), p.ended
}

// reached waits until n calls have begun.
func (p *fakePipeline) reached(t testing.TB, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if got, _ := p.count(); got >= n {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%d calls, not %d", got, n)
		}
	}
}

func (p *fakePipeline) await(ctx context.Context, _ string) error {
	select {
	case <-p.approved:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// person is the link to a client: it answers questions, and records each notice.
type person struct {
	mu   sync.Mutex
	told []string
}

func (l *person) Notify(method string, params any) bool {
	b, _ := json.Marshal(params)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, method+" "+string(b))
	return true
}

func (l *person) Tell(_ context.Context, method string, params any) error {
	l.Notify(method, params)
	return nil
}

func (l *person) Call(
	_ context.Context, method string, params func(int64) any, _ func(float64, float64),
) (strictjson.Value, error) {
	l.Notify(method, params(1))
	return strictjson.Parse([]byte(yes))
}

func (l *person) heard() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.told, "\n")
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":%s}`

// withTasks are the capabilities of a modern client that takes tasks and questions.
const withTasks = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// request makes a request. The params are members of an object; caps are those of a modern client, or empty.
func request(t testing.TB, s *Session, link Link, method, params, caps string) (map[string]any, *jsonrpc.Error) {
	t.Helper()
	if caps != "" {
		params = strings.TrimPrefix(params+","+fmt.Sprintf(modernMeta, caps), ",")
	}
	m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`))
	if fault != nil {
		t.Fatal(fault)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := answerOf(ctx, s, m, link)
	if errors.As(err, &fault) {
		return nil, fault
	}
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(got)
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out, nil
}

// legacySession is a session of a client of 2025-11-25.
func legacySession(t testing.TB, d *Server, who Who, link Link) *Session {
	t.Helper()
	s := d.Session(who, link)
	t.Cleanup(s.Close)
	got, fault := request(t, s, link, "initialize",
		`"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}`, "")
	if fault != nil || got["capabilities"].(map[string]any)["tasks"] == nil {
		t.Fatalf("%v %v", got, fault)
	}
	s.HandleNotification(jsonrpc.Message{Method: "notifications/initialized"})
	return s
}

func serverOf(t testing.TB, p *fakePipeline, change func(*Options)) *Server {
	t.Helper()
	o := options(t, newDesk(t))
	pipeline(&o).OnCall, consent(&o).OnAwait = p.call, p.await
	o.TaskAfter = time.Hour
	if change != nil {
		change(&o)
	}
	return New(o)
}

// made makes a legacy task, and returns its id.
func made(t testing.TB, s *Session, do string) string {
	t.Helper()
	got, fault := request(t, s, lines{}, "tools/call",
		`"name":"s__slow","arguments":{"do":"`+do+`"},"task":{"ttl":60000}`, "")
	if fault != nil {
		t.Fatal(fault)
	}
	task, _ := got["task"].(map[string]any)
	id, _ := task["taskId"].(string)
	if id == "" || task["ttl"] != 60000.0 || got["content"] != nil {
		t.Fatalf("%v", got)
	}
	return id
}

// until waits until a task has a state.
func until(t testing.TB, s *Session, id, caps, want string) map[string]any {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, fault := request(t, s, lines{}, "tasks/get", `"taskId":"`+id+`"`, caps)
		if fault != nil {
			t.Fatal(fault)
		}
		if got["status"] == want {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%v, not %s", got, want)
		}
	}
}

// In lean mode the tools that call another run as tasks; the search answers at once.
func TestATaskInLeanMode(t *testing.T) {
	p, l := newFakePipeline(), &person{}
	s := legacySession(t, serverOf(t, p, func(o *Options) { o.Lean = true }), me, l)
	listed, _ := request(t, s, l, "tools/list", "", "")
	var list struct {
		Tools []struct {
			Name      string
			Execution *struct{ TaskSupport string }
		}
	}
	b, _ := json.Marshal(listed)
	if err := json.Unmarshal(b, &list); err != nil || len(list.Tools) != 3 {
		t.Fatalf("%s %v", b, err)
	}
	for _, tool := range list.Tools {
		if takes := tool.Execution != nil &&
			tool.Execution.TaskSupport == "optional"; takes != (tool.Name != "search_tools") {
			t.Errorf("%s: %v", tool.Name, tool.Execution)
		}
	}
	if _, fault := request(t, s, l, "tools/call", `"name":"search_tools","arguments":{"query":"x"},"task":{}`,
		""); fault == nil {
		t.Error("a search became a task")
	}
	got, fault := request(t, s, l, "tools/call",
		`"name":"call_tool","arguments":{"name":"s__slow","arguments":{"do":"wait"}},"task":{"ttl":60000}`, "")
	if fault != nil {
		t.Fatal(fault)
	}
	task, _ := got["task"].(map[string]any)
	id, _ := task["taskId"].(string)
	until(t, s, id, "", "working")
	close(p.let)
	until(t, s, id, "", "completed")
	if got, fault = request(t, s, l, "tasks/result", `"taskId":"`+id+`"`, ""); fault != nil || got["content"] == nil {
		t.Errorf("%v %v", got, fault)
	}
}

// A legacy host gets a task, its states, and its result as often as it asks; the call is made once.
func TestATaskOfALegacyHost(t *testing.T) {
	p, l := newFakePipeline(), &person{}
	s := legacySession(t, serverOf(t, p, nil), me, l)
	listed, _ := request(t, s, l, "tools/list", "", "")
	if b, _ := json.Marshal(listed); !strings.Contains(string(b), `"execution":{"taskSupport":"optional"}`) {
		t.Errorf("%s", b)
	}
	id := made(t, s, "wait")
	until(t, s, id, "", "working")
	close(p.let)
	for range 2 {
		got, fault := request(t, s, l, "tasks/result", `"taskId":"`+id+`"`, "")
		b, _ := json.Marshal(got)
		if fault != nil || !strings.Contains(string(b), `"text":"done"`) ||
			!strings.Contains(string(b), `"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}`) {
			t.Errorf("%s %v", b, fault)
		}
	}
	until(t, s, id, "", "completed")
	if n, _ := p.count(); n != 1 {
		t.Errorf("%d calls", n)
	}
	list, _ := request(t, s, l, "tasks/list", "", "")
	if all, _ := list["tasks"].([]any); len(all) != 1 || all[0].(map[string]any)["taskId"] != id {
		t.Errorf("%v", list)
	}
	if h := l.heard(); !strings.Contains(h, `notifications/tasks/status {`) ||
		!strings.Contains(h, `"status":"completed"`) {
		t.Errorf("told %s", h)
	}
	if _, fault := request(t, s, l, "tools/call", `"name":"search_tools","arguments":{"query":"x"},"task":{}`,
		""); fault == nil || fault.Code != jsonrpc.CodeNoMethod {
		t.Errorf("search_tools as a task: %v", fault)
	}
}

// A denied call is a failed task whose result is the denial, once on record.
func TestATaskOfADeniedCall(t *testing.T) {
	p := newFakePipeline()
	s := legacySession(t, serverOf(t, p, nil), me, lines{})
	id := made(t, s, "deny")
	v := until(t, s, id, "", "failed")
	got, fault := request(t, s, lines{}, "tasks/result", `"taskId":"`+id+`"`, "")
	if fault != nil || got["isError"] != true ||
		!strings.Contains(fmt.Sprint(v["statusMessage"]), "denied. contract.absent") {
		t.Errorf("%v %v %v", got, fault, v)
	}
	if n, _ := p.count(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// Only the session that made a task can see, await, answer or cancel it.
func TestAnothersTask(t *testing.T) {
	p := newFakePipeline()
	d := serverOf(t, p, nil)
	s := legacySession(t, d, me, lines{})
	id := made(t, s, "wait")
	stranger := legacySession(t, d, Who{Session: "n_2", Principal: "os:1001"}, lines{})
	tenant := legacySession(t, d, Who{Session: "n_3", Principal: me.Principal.In("beta")}, lines{})
	same := legacySession(t, d, me, lines{}) // another session of the same principal
	for who, o := range map[string]*Session{
		"another principal": stranger, "another tenant": tenant, "another session": same,
	} {
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			if _, fault := request(t, o, lines{}, method, `"taskId":"`+id+`"`, ""); fault == nil ||
				string(fault.Data.Raw()) != `{"code":"task.unknown"}` {
				t.Errorf("%s: %s: %v", who, method, fault)
			}
		}
		if list, _ := request(t, o, lines{}, "tasks/list", "", ""); len(list["tasks"].([]any)) != 0 {
			t.Errorf("%s lists %v", who, list)
		}
		if _, fault := request(t, o, lines{}, "tasks/update", `"taskId":"`+id+`","inputResponses":{}`,
			withTasks); fault == nil || fault.Code != jsonrpc.CodeParams {
			t.Errorf("%s: update: %v", who, fault)
		}
	}
	until(t, s, id, "", "working")
	if _, ended := p.count(); ended != 0 {
		t.Error("the call was cancelled")
	}
}

// Cancelling a task cancels its call. The task stays cancelled, its result says what is known, and after its end there
// is nothing to cancel. The end of the session cancels the rest, which is on record once Settle returns.
func TestCancelledTasks(t *testing.T) {
	p := newFakePipeline()
	d := serverOf(t, p, nil)
	s := legacySession(t, d, me, lines{})
	id := made(t, s, "wait")
	p.reached(t, 1)
	got, fault := request(t, s, lines{}, "tasks/cancel", `"taskId":"`+id+`"`, "")
	if fault != nil || got["status"] != "cancelled" {
		t.Errorf("%v %v", got, fault)
	}
	got, fault = request(t, s, lines{}, "tasks/result", `"taskId":"`+id+`"`, "")
	if b, _ := json.Marshal(got); fault != nil || !strings.Contains(string(b), "whether it took effect is not known") {
		t.Errorf("%s %v", b, fault)
	}
	if _, fault = request(t, s, lines{}, "tasks/cancel", `"taskId":"`+id+`"`, ""); fault == nil ||
		string(fault.Data.Raw()) != `{"code":"task.ended"}` {
		t.Errorf("twice: %v", fault)
	}
	if _, ended := p.count(); ended != 1 {
		t.Errorf("%d calls ended", ended)
	}
	made(t, s, "wait")
	p.reached(t, 2)
	s.Close()
	d.Settle()
	if _, ended := p.count(); ended != 2 {
		t.Error("the end of the session did not cancel its task")
	}
}

// One principal cannot have more tasks than its share.
func TestFloodsOfTasks(t *testing.T) {
	p := newFakePipeline()
	s := legacySession(t, serverOf(t, p, func(o *Options) { o.Tasks = tasks.Limits{Each: 2} }), me, lines{})
	made(t, s, "wait")
	made(t, s, "wait")
	_, fault := request(t, s, lines{}, "tools/call", `"name":"s__slow","arguments":{},"task":{}`, "")
	if fault == nil || fault.Code != jsonrpc.CodeBusy || !strings.Contains(fault.Message, "gateway.limits.tasks_each") {
		t.Errorf("%v", fault)
	}
	if n, _ := p.count(); n > 2 {
		t.Errorf("%d calls", n)
	}
	if got, fault := request(t, s, lines{}, "tools/call", `"name":"s__slow","arguments":{}`, ""); fault != nil ||
		got["content"] == nil {
		t.Errorf("without a task: %v %v", got, fault)
	}
}

// A question of the server makes the task input_required. A legacy client gets it while it waits for the result.
func TestQuestionsOfALegacyTask(t *testing.T) {
	p, l := newFakePipeline(), &person{}
	s := legacySession(t, serverOf(t, p, nil), me, l)
	id := made(t, s, "ask")
	until(t, s, id, "", "input_required")
	got, fault := request(t, s, l, "tasks/result", `"taskId":"`+id+`"`, "")
	if b, _ := json.Marshal(got); fault != nil || !strings.Contains(string(b), `Ann`) {
		t.Errorf("%s %v", b, fault)
	}
	if h := l.heard(); !strings.Contains(h,
		`elicitation/create {"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}},"message":"name?"}`) {
		t.Errorf("asked %s", h)
	}
}

// A task waits for a human's approval, says so, and goes on with it by itself.
func TestATaskWaitsForApproval(t *testing.T) {
	for _, caps := range []string{"", withTasks} {
		p := newFakePipeline()
		d := serverOf(t, p, nil)
		var s *Session
		var id string
		if caps == "" {
			s = legacySession(t, d, me, lines{})
			id = made(t, s, "approve")
		} else {
			s = d.Session(me, lines{})
			got, fault := request(t, s, lines{}, "tools/call", `"name":"s__slow","arguments":{"do":"approve"}`, caps)
			if id, _ = got["taskId"].(string); fault != nil || got["resultType"] != "task" {
				t.Fatalf("%v %v", got, fault)
			}
			t.Cleanup(s.Close)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if v := until(t, s, id, caps, "working"); strings.Contains(fmt.Sprint(v["statusMessage"]), "waldo approve a_1") {
				break
			} else if time.Now().After(end) {
				t.Fatal(v)
			}
		}
		close(p.approved)
		until(t, s, id, caps, "completed")
		p.mu.Lock()
		if len(p.calls) != 2 || p.calls[1].ApprovalID != "a_1" || p.calls[0].ID == p.calls[1].ID {
			t.Errorf("%+v", p.calls)
		}
		p.mu.Unlock()
	}
}

// A modern client that declares the extension gets a task for a call that takes long, or that its server makes a task
// of, and none for others. The result is part of the task.
func TestATaskOfAModernHost(t *testing.T) {
	p := newFakePipeline()
	d := serverOf(t, p, func(o *Options) { o.TaskAfter = 50 * time.Millisecond })
	s := d.Session(me, lines{})
	defer s.Close()
	params := func(do string) string { return `"name":"s__slow","arguments":{"do":"` + do + `"},"task":{"ttl":1}` }
	if got, fault := request(t, s, lines{}, "tools/call", params("now"), withTasks); fault != nil ||
		got["resultType"] != "complete" {
		t.Errorf("at once: %v %v", got, fault)
	}
	var ids []string
	for _, do := range []string{"wait", "long"} {
		got, fault := request(t, s, lines{}, "tools/call", params(do), withTasks)
		if fault != nil || got["resultType"] != "task" || got["status"] != "working" || got["ttlMs"] != 3600_000.0 ||
			got["task"] != nil {
			t.Fatalf("%s: %v %v", do, got, fault)
		}
		ids = append(ids, got["taskId"].(string))
	}
	close(p.let)
	for _, id := range ids {
		got := until(t, s, id, withTasks, "completed")
		if b, _ := json.Marshal(got["result"]); !strings.Contains(string(b), `"text":"done"`) ||
			strings.Contains(string(b), "related-task") || got["resultType"] != "complete" {
			t.Errorf("%s", b)
		}
		if _, fault := request(t, s, lines{}, "tasks/cancel", `"taskId":"`+id+`"`, withTasks); fault != nil {
			t.Errorf("cancel after the end: %v", fault)
		}
	}
	if n, _ := p.count(); n != 3 {
		t.Errorf("%d calls", n)
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		_, fault := request(t, s, lines{}, method, `"taskId":"`+ids[0]+`"`, `{}`)
		if fault == nil || fault.Code != jsonrpc.CodeCapability ||
			string(fault.Data.Raw()) != `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}` {
			t.Errorf("%s undeclared: %v", method, fault)
		}
	}
	for _, method := range []string{"tasks/result", "tasks/list"} {
		if _, fault := request(t, s, lines{}, method, `"taskId":"`+ids[0]+`"`, withTasks); fault == nil ||
			fault.Code != jsonrpc.CodeNoMethod {
			t.Errorf("%s: %v", method, fault)
		}
	}
}

// A client that does not declare the extension waits for its result, however long that takes.
func TestNoTaskUndeclared(t *testing.T) {
	p := newFakePipeline()
	s := serverOf(t, p, func(o *Options) { o.TaskAfter = time.Millisecond }).Session(me, lines{})
	defer s.Close()
	time.AfterFunc(100*time.Millisecond, func() { close(p.let) })
	for _, caps := range []string{`{}`, `{"elicitation":{}}`} {
		if got, fault := request(t, s, lines{}, "tools/call", `"name":"s__slow","arguments":{"do":"long"}`,
			caps); fault != nil || got["resultType"] != "complete" {
			t.Errorf("%s: %v %v", caps, got, fault)
		}
	}
}

// Questions before a call is a task are those of its request; later ones are the task's.
func TestQuestionsOfAModernTask(t *testing.T) {
	p := newFakePipeline()
	d := serverOf(t, p, nil)
	s := d.Session(me, lines{})
	defer s.Close()
	got, fault := request(t, s, lines{}, "tools/call", `"name":"s__slow","arguments":{"do":"ask"}`, withTasks)
	if fault != nil || got["resultType"] != "input_required" || got["taskId"] != nil {
		t.Errorf("%v %v", got, fault)
	}
	pipeline(&d.o).OnCall = func(ctx context.Context, c call.Call) (call.Result, error) {
		call.BecameTask(ctx)
		return p.call(ctx, c)
	}
	got, fault = request(t, s, lines{}, "tools/call", `"name":"s__slow","arguments":{"do":"ask"}`, withTasks)
	id, _ := got["taskId"].(string)
	if fault != nil || got["resultType"] != "task" || got["requestState"] != nil {
		t.Fatalf("%v %v", got, fault)
	}
	v := until(t, s, id, withTasks, "input_required")
	if b, _ := json.Marshal(v["inputRequests"]); string(b) != `{"q1":{"method":"elicitation/create",`+
		`"params":{"message":"name?"}}}` {
		t.Errorf("%s", b)
	}
	if ack, fault := request(t, s, lines{}, "tasks/update", `"taskId":"`+id+`","inputResponses":{"q1":`+yes+`}`,
		withTasks); fault != nil || ack["resultType"] != "complete" || ack["taskId"] != nil {
		t.Errorf("%v %v", ack, fault)
	}
	v = until(t, s, id, withTasks, "completed")
	if b, _ := json.Marshal(v); !strings.Contains(string(b), "Ann") {
		t.Errorf("%s", b)
	}
}

// A modern client hears of its own tasks, as it asks.
func TestTaskNotifications(t *testing.T) {
	p, l := newFakePipeline(), &person{}
	d := serverOf(t, p, nil)
	s, other := d.Session(me, lines{}), d.Session(Who{Session: "n_2", Principal: "os:1001"}, lines{})
	defer other.Close()
	got, _ := request(t, s, lines{}, "tools/call", `"name":"s__slow","arguments":{"do":"long"}`, withTasks)
	id, _ := got["taskId"].(string)
	listen := `"notifications":{"taskIds":["` + id + `"]}`
	if _, fault := request(t, s, l, "subscriptions/listen", listen, `{}`); fault == nil ||
		fault.Code != jsonrpc.CodeCapability {
		t.Errorf("undeclared: %v", fault)
	}
	foreign := &person{}
	if _, fault := request(t, other, foreign, "subscriptions/listen", listen, withTasks); fault != nil ||
		strings.Contains(foreign.heard(), id) {
		t.Errorf("another's: %v %s", fault, foreign.heard())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		request(t, s, l, "subscriptions/listen", listen, withTasks)
	}()
	for end := time.Now().Add(time.Minute); !strings.Contains(l.heard(), `"status":"working"`) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	close(p.let)
	until(t, s, id, withTasks, "completed")
	for end := time.Now().Add(time.Minute); !strings.Contains(l.heard(), `"status":"completed"`) &&
		time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.Close()
	<-done
	if h := l.heard(); !strings.Contains(h, `"taskIds":["`+id+`"]`) || !strings.Contains(h, "notifications/tasks {") ||
		!strings.Contains(h, `"text":"done"`) {
		t.Errorf("%s", h)
	}
}
