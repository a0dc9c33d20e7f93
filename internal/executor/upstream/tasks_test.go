package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// tasker is a legacy server whose tool is offered as a task only; the task completes at the second poll. Requests go
// to heard; the arguments choose the behaviour of its task.
func tasker(heard func(method, params string)) func(*bufio.Scanner, io.Writer) {
	return func(in *bufio.Scanner, out io.Writer) {
		looks, how := 0, ""
		for in.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
				Params json.RawMessage
			}
			if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
				continue
			}
			heard(m.Method, string(m.Params))
			task := func(id, status string) string {
				return `{"taskId":"` + id + `","status":"` + status +
					`","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":50}`
			}
			result := ""
			switch m.Method {
			case "initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},` +
					`"serverInfo":{"name":"tasker","version":"1"}}`
			case "tools/list":
				result = `{"tools":[{"name":"long","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`
			case "tools/call":
				looks, how = 0, string(m.Params)
				if !strings.Contains(how, `"task":{"ttl":`) {
					fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"the tool must be called as a task"}}`+
						"\n", m.ID)
					continue
				}
				result = `{"task":` + task("t-1", "working") + `}`
			case "tasks/get":
				looks++
				switch {
				case strings.Contains(how, "foreign"):
					result = task("t-2", "completed")
				case strings.Contains(how, "odd"):
					result = task("t-1", "dreaming")
				case strings.Contains(how, "forever") || looks < 2:
					result = task("t-1", "working")
				default:
					result = task("t-1", "completed")
				}
			case "tasks/result":
				result = `{"content":[{"type":"text","text":"done at last"}],` +
					`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}}`
			case "tasks/cancel":
				result = task("t-1", "cancelled")
			default:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
				continue
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		}
	}
}

// A tool offered as a task only is called as one: the call ends with the result of the task. A task with another id,
// or in an unknown state, is not an answer; a task whose call ends is cancelled.
func TestTasksOfLegacyServers(t *testing.T) {
	var mu sync.Mutex
	var log []string
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": tasker(func(method, params string) {
		mu.Lock()
		defer mu.Unlock()
		if log = append(log, method); method == "tasks/cancel" {
			log = append(log, params)
		}
	})})
	m := manager(t, f, Options{})
	do := func(args string, timeout time.Duration) (string, facts.Facts) {
		o := execute(t, context.Background(), m,
			decision(t, "s.long", args, contract.Contract{Mode: contract.Write, Timeout: timeout}))
		return text(o), o.Facts
	}
	if got, fa := do(`{}`, time.Minute); got != "done at last" || fa.SideEffect != facts.Confirmed ||
		fa.Status != facts.OK {
		t.Errorf("%q %+v", got, fa)
	}
	for how, want := range map[string]string{
		"foreign": "it speaks of another task", "odd": "its task is in no known state",
	} {
		if got, fa := do(`{"a":"`+how+`"}`, time.Minute); !strings.Contains(got, want) || fa.SideEffect != facts.Unknown ||
			fa.Status != facts.Failed {
			t.Errorf("%s: %q %+v", how, got, fa)
		}
	}
	if got, fa := do(`{"a":"forever"}`, 2*time.Second); fa.Status != facts.Timeout || fa.SideEffect != facts.Unknown {
		t.Errorf("forever: %q %+v", got, fa)
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		all := strings.Join(log, " ")
		mu.Unlock()
		if strings.Contains(all, `tasks/cancel {"taskId":"t-1"}`) {
			return
		}
	}
	t.Errorf("the task was not cancelled: %q", log)
}

// modernTasker is a modern server that makes a task of a call if the request takes tasks; the task asks once.
func modernTasker(heard func(method, params string)) func(*bufio.Scanner, io.Writer) {
	return func(in *bufio.Scanner, out io.Writer) {
		answered := false
		for in.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
				Params json.RawMessage
			}
			if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
				continue
			}
			heard(m.Method, string(m.Params))
			result := ""
			switch m.Method {
			case "server/discover":
				result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},` +
					`"extensions":{"io.modelcontextprotocol/tasks":{}}},"serverInfo":{"name":"t","version":"1"}}`
			case "tools/list":
				result = `{"resultType":"complete","tools":[{"name":"long","inputSchema":{"type":"object"}}]}`
			case "tools/call":
				if result = `{"resultType":"complete","content":[{"type":"text",` +
					`"text":"at once"}]}`; strings.Contains(string(m.Params), `"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
					result = `{"resultType":"task","taskId":"t-1","status":"working","ttlMs":null,"pollIntervalMs":10}`
				}
			case "tasks/get":
				result = `{"resultType":"complete","taskId":"t-1","status":"input_required",` +
					`"inputRequests":{"n":{"method":"elicitation/create","params":{"message":"name?",` +
					`"requestedSchema":{"type":"object","properties":{}}}}}}`
				if answered {
					result = `{"resultType":"complete","taskId":"t-1","status":"completed","result":{"content":[{"type":"text",` +
						`"text":"done at last"}]}}`
				}
			case "tasks/update":
				answered = strings.Contains(string(m.Params), `"n":{"action":"accept"`)
				result = `{"resultType":"complete"}`
			case "tasks/cancel":
				result = `{"resultType":"complete"}`
			default:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
				continue
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		}
	}
}

// A modern server may make a task of a call. The task's questions go to the host; without one that answers, the task is
// cancelled.
func TestTasksOfModernServers(t *testing.T) {
	var mu sync.Mutex
	var log []string
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": modernTasker(func(method, params string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, method)
	})})
	m := New(map[string]contract.Server{"s": {Command: []string{"s"}, Asks: contract.Asks{Form: true}}},
		Options{Launcher: f, Probe: 30 * time.Second})
	defer m.Close()
	p := &person{answer: `{"action":"accept","content":{}}`}
	d := decision(t, "s.long", `{}`, contract.Contract{Mode: contract.Write, Timeout: time.Minute})
	o := execute(t, call.WithHost(context.Background(), p), m, d)
	if text(o) != "done at last" || o.Facts.Status != facts.OK || o.Facts.SideEffect != facts.Confirmed ||
		len(p.asked) != 1 {
		t.Errorf("%q %+v %v", text(o), o.Facts, p.asked)
	}
	f = launchers(map[string]func(*bufio.Scanner, io.Writer){"s": modernTasker(func(method, params string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, method)
	})})
	m = manager(t, f, Options{})
	o = execute(t, context.Background(), m, d)
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(text(o), "the operator does not let this server ask") || o.Facts.SideEffect != facts.Unknown ||
		log[len(log)-1] != "tasks/cancel" {
		t.Errorf("%q %+v %v", text(o), o.Facts, log)
	}
}
