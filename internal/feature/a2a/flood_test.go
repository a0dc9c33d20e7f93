package a2a

import (
	"encoding/json"
	"flag"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var floodOf = flag.Int("flood", 400, "how many tasks TestFloodAndMCP sends; docs/a2a.md has the numbers of 10000")

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// mcp is a client of the bench over MCP, until the end of the test.
func (b *bench) mcp(as http.RoundTripper) *mcp.ClientSession {
	b.t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(b.t.Context(),
		&mcp.StreamableClientTransport{Endpoint: b.url + "/mcp", HTTPClient: &http.Client{Transport: as}}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

// echoes calls t.echo over MCP, n times, and returns how long each call took, the shortest first.
func echoes(t *testing.T, s *mcp.ClientSession, n int) (took []time.Duration) {
	t.Helper()
	for range n {
		began := time.Now()
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "t__echo", Arguments: map[string]any{"text": "x"}})
		if err != nil || r.IsError {
			t.Fatalf("%+v %v", r, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

// TestFloodAndMCP: the tasks of one principal stay within the bounds, and do not hold up the MCP calls of another.
func TestFloodAndMCP(t *testing.T) {
	b, bob := two(t, "")
	s := b.mcp(bearer(bob))
	before := echoes(t, s, 50)
	var senders sync.WaitGroup
	var sent, taken, refused atomic.Int64
	over := make(chan struct{})
	for range 8 {
		senders.Go(func() {
			for n := sent.Add(1); n <= int64(*floodOf); n = sent.Add(1) {
				skill := "t.slow"
				if n%2 == 0 {
					skill = "t.echo"
				}
				_, code := b.rpc("SendMessage", strings.TrimSuffix(message(skill, "x"),
					"}")+`,"configuration":{"returnImmediately":true}}`)
				switch code {
				case 0:
					taken.Add(1)
				case -32000:
					refused.Add(1)
				default:
					t.Errorf("a message is answered by %d", code)
				}
			}
		})
	}
	go func() { senders.Wait(); close(over) }()
	var during []time.Duration
	for flowing := true; flowing; {
		during = append(during, echoes(t, s, 5)...)
		select {
		case <-over:
			flowing = false
		default:
		}
	}
	slices.Sort(during)
	middle, high := during[len(during)/2], during[len(during)*95/100]
	t.Logf("%d tasks: %d taken, %d refused; MCP calls: median %v before, %v during, 95%% of %d within %v",
		*floodOf, taken.Load(),
		refused.Load(), before[len(before)/2], middle, len(during), high)
	if high > 5*time.Second {
		t.Errorf("MCP calls of another principal take %v", high)
	}
	if refused.Load() == 0 {
		t.Error("control: no task was refused, so the bounds were not reached")
	}
	open := b.total(`{"status":"TASK_STATE_SUBMITTED"}`)
	working := b.total(`{"status":"TASK_STATE_WORKING"}`)
	if open+working > usualEach || working > workersEach || b.total(`{}`) > usualEach+maxKept {
		t.Errorf("%d wait, %d at work, %d in all", open, working, b.total(`{}`))
	}
	result, _ := b.rpc("ListTasks", `{"status":"TASK_STATE_WORKING"}`)
	var l struct{ Tasks []Task }
	if err := json.Unmarshal(result, &l); err != nil {
		t.Fatal(err)
	}
	for _, task := range l.Tasks {
		_, _ = b.rpc("CancelTask", `{"id":"`+task.ID+`"}`) // another takes its place; waldo ends them all
	}
}

// TestAgentsAndMCP: a flood of tasks for the agent takes no more workers than other tasks of its principal, and does not
// hold up the MCP calls or the agent of another.
func TestAgentsAndMCP(t *testing.T) {
	b, bob, model := modelled(t)
	s := b.mcp(bearer(bob))
	before := echoes(t, s, 20)
	for range 2 * usualEach {
		_, _ = b.rpc("SendMessage", strings.TrimSuffix(message("agent:waldo", "think"),
			"}")+`,"configuration":{"returnImmediately":true}}`)
	}
	for end := time.Now().Add(20 * time.Second); len(model.Asked()) < workersEach && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	during := echoes(t, s, 60)
	if high := during[len(during)*95/100]; high > 5*time.Second {
		t.Errorf("MCP calls of another principal take %v", high)
	}
	open, working := b.total(`{"status":"TASK_STATE_SUBMITTED"}`), b.total(`{"status":"TASK_STATE_WORKING"}`)
	t.Logf("MCP calls: median %v before, %v during; %d agents at work, %d tasks wait", before[len(before)/2],
		during[len(during)/2], working, open)
	if working != workersEach || open < usualEach/2 || open+working > usualEach {
		t.Errorf("control: %d wait, %d at work", open, working)
	}
	began := time.Now()
	if done := b.as(bob).send(message("agent:waldo", "t.echo")); done.Status.State != Completed ||
		time.Since(began) > 10*time.Second {
		t.Errorf("the agent of another principal: %s after %v", done.Status.State, time.Since(began))
	}
	for _, state := range []State{Submitted, Working} {
		result, _ := b.rpc("ListTasks", `{"pageSize":100,"status":"`+string(state)+`"}`)
		var l struct{ Tasks []Task }
		if err := json.Unmarshal(result, &l); err != nil {
			t.Fatal(err)
		}
		for _, task := range l.Tasks {
			_, _ = b.rpc("CancelTask", `{"id":"`+task.ID+`"}`)
		}
	}
}

// total is how many tasks a list has in all.
func (b *bench) total(params string) int {
	b.t.Helper()
	result, _ := b.rpc("ListTasks", params)
	var l struct {
		Total int `json:"totalSize"`
	}
	if err := json.Unmarshal(result, &l); err != nil {
		b.t.Fatal(err)
	}
	return l.Total
}

// TestMessageAndCall measures one message of A2A beside one call over MCP, of the same tool, in turns. BENCHMARKS.md has
// the figures.
func TestMessageAndCall(t *testing.T) {
	b, bob := two(t, "")
	s := b.mcp(bearer(bob))
	var calls, messages []time.Duration
	for range *floodOf / 4 {
		calls = append(calls, echoes(t, s, 1)...)
		began := time.Now()
		if done := b.send(message("t.echo", "x")); done.Status.State != Completed {
			t.Fatalf("%+v", done)
		}
		messages = append(messages, time.Since(began))
	}
	slices.Sort(calls)
	slices.Sort(messages)
	at := func(all []time.Duration, percent int) time.Duration {
		return all[len(all)*percent/100].Round(10 * time.Microsecond)
	}
	t.Logf("%d of each: a message p50 %v, p99 %v; a call p50 %v, p99 %v", len(calls), at(messages, 50),
		at(messages, 99), at(calls, 50), at(calls, 99))
}

// TestMessagesOfOneTask: messages to a task that waits stay within the bytes of a task, and a small one is taken after
// them.
func TestMessagesOfOneTask(t *testing.T) {
	b := newBench(t, "")
	asked := b.send(message("t.note", "x"))
	if asked.Status.State != InputRequired {
		t.Fatalf("control: %s", asked.Status.State)
	}
	more := func(text string) int {
		m := message("t.note", text)
		_, code := b.rpc("SendMessage", strings.Replace(m, `{"messageId"`, `{"taskId":"`+asked.ID+`","messageId"`, 1))
		return code
	}
	for range 6 {
		if code := more(strings.Repeat("x", 3<<20)); code != 0 {
			t.Fatalf("a large message: %d", code)
		}
	}
	if code := more("the last"); code != 0 {
		t.Errorf("a small message: %d", code)
	}
	result, code := b.rpc("GetTask", `{"id":"`+asked.ID+`"}`)
	if code != 0 || len(result) > maxTask+4096 || !strings.Contains(string(result), "the last") {
		t.Errorf("%d, %d bytes", code, len(result))
	}
}
