package a2apeer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/strictjson"
)

// agent is a peer whose answers to SendMessage and GetTask a test chooses.
func agent(t *testing.T, sent, got func(w http.ResponseWriter) string) (*Conn, *atomic.Int32) {
	t.Helper()
	var canceled atomic.Int32
	var own string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/agent-card.json" {
			_, _ = fmt.Fprintf(w, `{"name":"x","skills":[{"id":"s"}],"capabilities":{"streaming":true},"supportedInterfaces":[{"url":%q,`+
				`"protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, own+"/rpc")
			return
		}
		b, _ := io.ReadAll(r.Body)
		v, err := strictjson.Parse(b)
		if err != nil || r.Header.Get("A2A-Version") != "1.0" {
			t.Errorf("%s %v", b, r.Header)
		}
		answer := `{}`
		switch method, _ := v.Member("method").Text(); method {
		case "SendMessage", "SendStreamingMessage":
			answer = sent(w)
		case "GetTask":
			answer = got(w)
		case "CancelTask":
			canceled.Add(1)
		}
		if answer != "" {
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, v.Member("id").Raw(), answer)
		}
	}))
	t.Cleanup(s.Close)
	own = s.URL
	rt, err := mcphttp.Transport(s.URL, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Options: mcphttp.Options{URL: s.URL, Transport: rt}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, &canceled
}

func (c *Conn) say(ctx context.Context) (strictjson.Value, error) {
	return c.Call(ctx, "tools/call", func(int64) any {
		return map[string]any{"name": "s", "arguments": map[string]any{"message": "hi"}}
	}, nil)
}

const working = `{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}`

// TestHostile: what is not the answer of A2A to this request is an error, and no redirect is followed.
func TestHostile(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	plain := func(s string) func(http.ResponseWriter) string { return func(http.ResponseWriter) string { return s } }
	done := `{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"parts":[{"text":"fine"},{"raw":"AA==",` +
		`"mediaType":"image/png"},{"data":{"a":1}},{"url":"http://x"}]}]}`
	for why, row := range map[string]struct {
		sent, got func(http.ResponseWriter) string
		want      string // in the result; empty: an error
	}{
		"control":            {plain(working), plain(done), "fine"},
		"a direct message":   {plain(`{"message":{"parts":[{"text":"direct"}]}}`), plain(``), "direct"},
		"no task":            {plain(`{}`), plain(done), ""},
		"a task without id":  {plain(`{"task":{"status":{"state":"TASK_STATE_WORKING"}}}`), plain(done), ""},
		"a state of its own": {plain(`{"task":{"id":"t","status":{"state":"DONE"}}}`), plain(done), ""},
		"another task":       {plain(working), plain(strings.Replace(done, `"t"`, `"u"`, 1)), ""},
		"a name twice":       {plain(`{"task":{"id":"t","id":"u"}}`), plain(done), ""},
		"an endless answer":  {plain(`{"task":"` + strings.Repeat("x", maxAnswer) + `"}`), plain(done), ""},
		"a rejected task":    {plain(strings.Replace(working, "WORKING", "REJECTED", 1)), plain(done), "ended as TASK_STATE_REJECTED"},
		"a redirect elsewhere": {func(w http.ResponseWriter) string {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return ""
		}, plain(done), ""},
	} {
		c, _ := agent(t, row.sent, row.got)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		v, err := c.say(ctx)
		cancel()
		if row.want == "" && err == nil || row.want != "" && (err != nil || !strings.Contains(string(v.Raw()), row.want)) {
			t.Errorf("%s: %.300s, %v", why, v.Raw(), err)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// TestHostileStream: an event that is not one of the task, or that is not strict, ends the call with an error. A stream that
// breaks off is followed by the task.
func TestHostileStream(t *testing.T) {
	for why, row := range map[string]struct{ events, want string }{
		"control":         {`{"task":{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}}`, "fine"},
		"it breaks off":   {`{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}`, "fine"},
		"a message":       {`{"message":{"parts":[{"text":"direct"}]}}`, "direct"},
		"none":            {``, ""},
		"of another task": {`{"task":{"id":"t"}}|{"statusUpdate":{"taskId":"u","status":{"state":"TASK_STATE_COMPLETED"}}}`, ""},
		"a name twice":    {`{"task":{"id":"t","id":"t"}}`, ""},
		"without an id":   {`{"task":{"status":{"state":"TASK_STATE_WORKING"}}}`, ""},
	} {
		streamed := func(w http.ResponseWriter) string {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range strings.Split(row.events, "|") {
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", e)
			}
			return ""
		}
		c, _ := agent(t, streamed, func(http.ResponseWriter) string {
			return `{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"parts":[{"text":"fine"}]}]}`
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		v, err := c.Call(ctx, "tools/call", func(int64) any {
			return map[string]any{"name": "s", "arguments": map[string]any{"message": "hi"}}
		}, func(float64, float64) {})
		cancel()
		if row.want == "" && err == nil || row.want != "" && (err != nil || !strings.Contains(string(v.Raw()), row.want)) {
			t.Errorf("%s: %.300s, %v", why, v.Raw(), err)
		}
	}
}

// TestGivenUp: a call that is given up cancels its task.
func TestGivenUp(t *testing.T) {
	plain := func(s string) func(http.ResponseWriter) string { return func(http.ResponseWriter) string { return s } }
	c, canceled := agent(t, plain(working), plain(`{"id":"t","status":{"state":"TASK_STATE_WORKING"}}`))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if v, err := c.say(ctx); err == nil {
		t.Errorf("%s", v.Raw())
	}
	for end := time.Now().Add(10 * time.Second); canceled.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the task was not canceled")
		}
	}
}

// FuzzCard: a card is taken only for the scheme, host and port of its peer.
func FuzzCard(f *testing.F) {
	f.Add(`{"supportedInterfaces":[{"url":"https://a.example/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`)
	f.Add(`{"supportedInterfaces":[{"url":"https://a.example@b.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`)
	f.Add(`{"protocolVersion":"0.3.0","url":"https://b.example/","additionalInterfaces":[{"url":"https://a.example/","transport":"JSONRPC"}]}`)
	c, err := New(Options{Options: mcphttp.Options{URL: "https://a.example"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := strictjson.Parse([]byte(s))
		if err != nil {
			return
		}
		k, err := c.checked(v)
		if err != nil {
			return
		}
		if r, err := http.NewRequest("POST", k.at, nil); err != nil || r.Host != "a.example" || r.URL.Scheme != "https" {
			t.Errorf("%q is taken", k.at)
		}
		_ = k.tools()
	})
}
