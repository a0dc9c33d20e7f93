package a2apeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/jsonrpc"
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
		if result, other := strings.CutPrefix(answer, "other id "); other {
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"zzz","result":%s}`, result)
		} else if answer != "" {
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
		"another id":         {plain(`other id ` + working), plain(done), ""},
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

// TestSideEffect: a task that waits has done nothing where its agent says so; else it can have acted.
func TestSideEffect(t *testing.T) {
	for task, want := range map[string]string{
		`{"state":"TASK_STATE_COMPLETED"}`:                                                   "",
		`{"state":"TASK_STATE_FAILED"},"metadata":{"waldo/side_effect":"none"}`:              "unknown",
		`{"state":"TASK_STATE_REJECTED"},"metadata":{"waldo/side_effect":"none"}`:            "none",
		`{"state":"TASK_STATE_INPUT_REQUIRED"},"metadata":{"waldo/side_effect":"none"}`:      "none",
		`{"state":"TASK_STATE_INPUT_REQUIRED"},"metadata":{"waldo/side_effect":"confirmed"}`: "unknown",
		`{"state":"TASK_STATE_INPUT_REQUIRED"}`:                                              "unknown",
		`{"state":"TASK_STATE_AUTH_REQUIRED"}`:                                               "unknown",
	} {
		v, err := strictjson.Parse([]byte(`{"id":"t","status":` + task + `}`))
		if err != nil {
			t.Fatal(task, err)
		}
		s, err := stateOf(v)
		if err != nil {
			t.Fatal(task, err)
		}
		r, err := s.result()
		if got, _ := r.Member("_meta").Member(SideEffect).Text(); err != nil || got != want {
			t.Errorf("%s: %q %v", task, got, err)
		}
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
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":%s}\n\n", e)
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

// brokenOff answers a message with a stream that ends before its task does.
func brokenOff(w http.ResponseWriter) string {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":%s}\n\n", working)
	return ""
}

// failing is credentials that end where a test says.
type failing struct{ ended func() bool }

func (f failing) Token(context.Context) (string, error) {
	if f.ended() {
		return "", errors.New("no token")
	}
	return "x", nil
}

func (failing) Refused(context.Context, string, *http.Response) (bool, error) { return false, nil }

func (f failing) header() (http.Header, error) {
	_, err := f.Token(context.Background())
	return nil, err
}

// TestSent: where credentials end after the message was sent, the call was sent. Else a write would be made twice.
func TestSent(t *testing.T) {
	for _, streams := range []bool{false, true} {
		for _, header := range []bool{false, true} {
			for _, early := range []bool{true, false} { // true: the control
				var sent atomic.Bool
				c, _ := agent(t, func(w http.ResponseWriter) string {
					sent.Store(true)
					if streams {
						return brokenOff(w)
					}
					return working
				}, func(http.ResponseWriter) string { return "" })
				f := failing{func() bool { return early || sent.Load() }}
				if header {
					c.o.Header = f.header
				} else {
					c.o.Auth = f
				}
				var progress func(float64, float64)
				if streams {
					progress = func(float64, float64) {}
				}
				_, err := c.Call(t.Context(), "tools/call", func(int64) any {
					return map[string]any{"name": "s", "arguments": map[string]any{"message": "hi"}}
				}, progress)
				if err == nil || !strings.Contains(err.Error(), "no token") || sent.Load() == early ||
					errors.Is(err, jsonrpc.ErrNotSent) != early {
					t.Errorf("streams %v, header %v, early %v: sent %v, %v", streams, header, early, sent.Load(), err)
				}
			}
		}
	}
}

// TestGivenUpAfterStream: a call that is given up while the task of its broken stream is read cancels the task.
func TestGivenUpAfterStream(t *testing.T) {
	for _, give := range []bool{false, true} { // false: the control
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, canceled := agent(t, brokenOff, func(http.ResponseWriter) string {
			if give {
				cancel()
				time.Sleep(100 * time.Millisecond)
			}
			return `{"id":"t","status":{"state":"TASK_STATE_COMPLETED"}}`
		})
		_, err := c.Call(ctx, "tools/call", func(int64) any {
			return map[string]any{"name": "s", "arguments": map[string]any{"message": "hi"}}
		}, func(float64, float64) {})
		if (err != nil) != give || canceled.Load() == 1 != give {
			t.Errorf("given up: %v, canceled %d, %v", give, canceled.Load(), err)
		}
	}
}

// TestStatus: over HTTP+JSON, an agent that is away or busy has not answered, whatever the body says. Others that are not
// 2xx are the agent's error.
func TestStatus(t *testing.T) {
	const says = `{"error":{"code":1,"message":"said by the agent"}}`
	done := strings.Replace(working, "WORKING", "COMPLETED", 1)
	for _, row := range []struct {
		code       int
		kind, body string
		answered   bool
		fault      bool // of the agent
	}{
		{200, "application/json", done, true, false}, // the controls
		{201, "application/json", done, true, false},
		{400, "application/json", says, false, true},
		{404, "application/json", says, false, true},
		{404, "text/html", "<p>", false, false},
		{408, "application/json", says, false, false},
		{429, "application/json", says, false, false},
		{500, "application/json", says, false, false},
		{503, "application/json", done, false, false},
		{503, "text/event-stream", "data: " + done + "\n\n", false, false},
		{503, "text/html", "<p>", false, false},
	} {
		var own string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = fmt.Fprintf(w, `{"name":"x","skills":[{"id":"s"}],"capabilities":{"streaming":true},"supportedInterfaces":`+
					`[{"url":%q,"protocolBinding":"HTTP+JSON","protocolVersion":"1.0"}]}`, own)
				return
			}
			w.Header().Set("Content-Type", row.kind)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(row.code)
			_, _ = io.WriteString(w, row.body)
		}))
		t.Cleanup(s.Close)
		own = s.URL
		for _, progress := range []func(float64, float64){nil, func(float64, float64) {}} {
			c, err := New(Options{Options: mcphttp.Options{URL: own, Transport: http.DefaultTransport}})
			if err != nil {
				t.Fatal(err)
			}
			v, err := c.Call(t.Context(), "tools/call", func(int64) any {
				return map[string]any{"name": "s", "arguments": map[string]any{"message": "hi"}}
			}, progress)
			c.Close()
			var fault *jsonrpc.Error
			var status *mcphttp.Status
			isFault, isStatus := errors.As(err, &fault), errors.As(err, &status)
			if (err == nil) != row.answered || isFault != row.fault || isStatus != (!row.answered && !row.fault) {
				t.Errorf("%d %s: %.200s, %v", row.code, row.kind, v.Raw(), err)
			}
			if isStatus && (status.Code != row.code || status.After != 7*time.Second) {
				t.Errorf("%d %s: %v", row.code, row.kind, status)
			}
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
