package a2a

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/repo"
)

// wire are JSON values that waldo sent, each after the type of A2A that it must be.
type wire struct {
	mu  sync.Mutex
	all []string
}

func (w *wire) add(kind, text string) {
	var line bytes.Buffer
	if json.Compact(&line, []byte(text)) != nil {
		line.WriteString(text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, kind+"\t"+line.String())
}

// judge has the published .proto of A2A 1.0 judge the values, by strict protojson: no unknown member, none missing. It
// returns how many of each type there were.
func (w *wire) judge(t *testing.T) map[string]int {
	t.Helper()
	program, found := repo.Cache(t, "judges", "a2a-judge")
	if !found {
		t.Skip("the judge of a2a-go is not built: run scripts/setup-judges.sh")
	}
	controls := []string{"Task\t" + `{"id":"x","status":{"state":"TASK_STATE_WORKING"},"kind":"task"}`, "Task\t" +
		`{"id":"x"}`}
	lines := append(controls, w.all...)
	c := exec.CommandContext(t.Context(), program)
	c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := c.Output()
	verdicts := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(verdicts) != len(lines) {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := map[string]int{}
	for i, v := range verdicts {
		kind, _, _ := strings.Cut(lines[i], "\t")
		switch seen[kind]++; {
		case i == 0 && !strings.Contains(v, "unknown field"), i == 1 && !strings.Contains(v, "is required"):
			t.Errorf("control: %s", v)
		case i > 1 && v != kind+": ok":
			t.Errorf("%s\n%s", v, lines[i])
		}
	}
	return seen
}

// events adds the data of a stream of events.
func (w *wire) events(t *testing.T, stream string, rpc bool) {
	t.Helper()
	for line := range strings.Lines(stream) {
		data, is := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if is && rpc {
			var r struct{ Result json.RawMessage }
			if err := json.Unmarshal([]byte(data), &r); err != nil {
				t.Fatal(err)
			}
			data = string(r.Result)
		}
		if is {
			w.add("StreamResponse", data)
		}
	}
}

// TestServerOnTheWire: all that the server sends is of the published types.
func TestServerOnTheWire(t *testing.T) {
	b, w := newBench(t, ""), &wire{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.add("StreamResponse", string(body))
	}))
	t.Cleanup(receiver.Close)
	b.inside = "127.0.0.1"
	get := func(kind, method, path, body string) string {
		resp, out := b.do(method, path, body)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", path, resp.StatusCode, out)
		}
		w.add(kind, out)
		return out
	}
	rpc := func(kind, method, params string) json.RawMessage {
		result, code := b.rpc(method, params)
		if code != 0 {
			t.Fatalf("%s: %d", method, code)
		}
		w.add(kind, string(result))
		return result
	}
	get("AgentCard", "GET", "/.well-known/agent-card.json", "")
	get("AgentCard", "GET", "/a2a/extendedAgentCard", "")
	get("SendMessageResponse", "POST", "/a2a/message:send", message("t.echo", "x"))
	var made struct{ Task Task }
	if err := json.Unmarshal(rpc("SendMessageResponse", "SendMessage", message("t.note", "x")), &made); err != nil {
		t.Fatal(err)
	}
	config := rpc("TaskPushNotificationConfig", "CreateTaskPushNotificationConfig", fmt.Sprintf(
		`{"taskId":%q,"url":%q,"token":"tok","authentication":{"scheme":"Bearer","credentials":"c"}}`, made.Task.ID,
		receiver.URL))
	var named PushConfig
	if err := json.Unmarshal(config, &named); err != nil {
		t.Fatal(err)
	}
	get("TaskPushNotificationConfig", "GET", "/a2a/tasks/"+made.Task.ID+"/pushNotificationConfigs/"+named.ID, "")
	rpc("ListTaskPushNotificationConfigsResponse", "ListTaskPushNotificationConfigs", `{"taskId":"`+made.Task.ID+`"}`)
	b.answer(true)
	b.until(made.Task.ID, Completed)
	get("Task", "GET", "/a2a/tasks/"+made.Task.ID, "")
	rpc("ListTasksResponse", "ListTasks", `{"includeArtifacts":true,"historyLength":1}`)
	_, stream := b.do("POST", "/a2a/message:stream", message("t.echo", "x"))
	w.events(t, stream, false)
	_, stream = b.do("POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":`+message("t.note", "x")+`}`)
	w.events(t, stream, true)
	asked := b.send(message("t.note", "y"))
	get("Task", "POST", "/a2a/tasks/"+asked.ID+":cancel", "{}")
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		w.mu.Lock()
		pushed := strings.Contains(strings.Join(w.all, "\n"), "StreamResponse\t{\"task\":{\"id\":\""+made.Task.ID)
		w.mu.Unlock()
		if pushed {
			break
		}
	}
	for kind, n := range w.judge(t) {
		t.Logf("%d of %s", n, kind)
	}
}

// TestClientOnTheWire: all that waldo sends to a peer is of the published types, by both bindings.
func TestClientOnTheWire(t *testing.T) {
	b, w := newBench(t, ""), &wire{}
	kinds := map[string]string{"SendMessage": "SendMessageRequest", "SendStreamingMessage": "SendMessageRequest",
		"GetTask": "GetTaskRequest", "CancelTask": "CancelTaskRequest", "GetExtendedAgentCard": "GetExtendedAgentCardRequest",
		"message:send": "SendMessageRequest", "message:stream": "SendMessageRequest"}
	for _, binding := range []string{"JSONRPC", "HTTP+JSON"} {
		var own string
		s := proxy(t, b, func(_, body string) string {
			if binding != "JSONRPC" {
				body = strings.ReplaceAll(body, `"JSONRPC"`, `"GRPC"`)
			}
			return strings.ReplaceAll(body, b.url, own)
		})
		pass := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			var m struct {
				Method string
				Params json.RawMessage
			}
			if r.URL.Path == "/a2a" && json.Unmarshal(body, &m) == nil {
				w.add(kinds[m.Method], string(m.Params))
			} else if kind := kinds[strings.TrimPrefix(r.URL.Path, "/a2a/")]; kind != "" {
				w.add(kind, string(body))
			}
			pass.ServeHTTP(out, r)
		})
		own = s.URL
		a := caller(t, b, s.URL, "")
		r := a.call("t.echo", map[string]any{"arguments": map[string]any{"text": "x"}})
		talk, _ := r.Structured.Member("context_id").Text()
		a.call("t.echo", map[string]any{"arguments": map[string]any{"text": "y"}, "context_id": talk})
		b.answerSoon(true)
		a.call("t.note", map[string]any{"message": "x"})
		a.ctx = call.WithProgress(t.Context(), func(float64, float64, string) {})
		a.call("t.echo", map[string]any{"message": "x"})
	}
	if seen := w.judge(t); seen["SendMessageRequest"] < 6 || seen["GetTaskRequest"] == 0 {
		t.Errorf("%v", seen)
	}
}

func TestPartsOfContents(t *testing.T) {
	odd := `{"type":"resource","resource":{"uri":"file:///o.txt","blob":"no base64"}}`
	for content, want := range map[string]string{
		`{"type":"image","data":"aGk=","mimeType":"image/png"}`: `{"raw":"aGk=","mediaType":"image/png"}`,
		`{"type":"resource_link","uri":"https://a.example/b.txt","name":"n.txt"}`: `{"url":"https://a.example/b.txt",` +
			`"filename":"n.txt"}`,
		`{"type":"resource","resource":{"uri":"file:///o.bin","blob":"aGk="}}`: `{"raw":"aGk=","filename":"o.bin"}`,
		`{"type":"resource","resource":{"uri":"file:///o.txt","text":"hi"}}`:   `{"text":"hi","filename":"o.txt"}`,
		odd: `{"data":` + odd + `,"mediaType":"application/json"}`,
	} {
		raw, err := strictjson.Parse([]byte(content))
		if err != nil {
			t.Fatal(err)
		}
		kind, _ := raw.Member("type").Text()
		p, ok := part(call.Content{Type: kind, Raw: raw})
		if b, err := json.Marshal(p); !ok || err != nil || string(b) != want {
			t.Errorf("%s: %s %v", content, b, err)
		}
	}
}
