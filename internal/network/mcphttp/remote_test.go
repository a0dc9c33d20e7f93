package mcphttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// connect makes a connection to a server that is a function.
func connect(t *testing.T, h http.HandlerFunc, o Options) *Conn {
	t.Helper()
	srv := httptest.NewServer(h)
	o.URL = srv.URL + "/mcp"
	rt, err := Transport(o.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Transport = rt
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Serve(context.Background()); close(done) }()
	t.Cleanup(func() {
		c.Close()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("the connection does not end")
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	return c
}

type asked struct {
	ID     json.RawMessage
	Method string
	Params map[string]json.RawMessage
	Result json.RawMessage
	Error  *jsonrpc.Error
}

func read(r *http.Request) asked {
	var a asked
	_ = json.NewDecoder(r.Body).Decode(&a)
	return a
}

func reply(w http.ResponseWriter, id json.RawMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// stream opens a stream and returns a function that sends an event.
func stream(w http.ResponseWriter) func(format string, a ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return func(format string, a ...any) {
		fmt.Fprintf(w, format, a...)
		w.(http.Flusher).Flush()
	}
}

func call(t *testing.T, c *Conn, method string, params map[string]any) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	v, err := c.Call(ctx, method, func(int64) any { return params }, nil)
	return string(v.Raw()), err
}

func TestAnswers(t *testing.T) {
	fault := &jsonrpc.Error{}
	for _, row := range []struct {
		why   string
		serve func(w http.ResponseWriter, id json.RawMessage)
		want  string // the result, or the topic of the error
		sent  bool   // with an error: it may have arrived
		is    any    // an error in the chain
	}{
		{"control: one object", func(w http.ResponseWriter, id json.RawMessage) { reply(w, id, `{"a":1}`) },
			`{"a":1}`, false, nil},
		{"control: a stream", func(w http.ResponseWriter, id json.RawMessage) {
			stream(w)(": hello\r\n\r\nid: 1\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":%s,\"result\":{}}\r\n\r\n", id)
		}, `{}`, false, nil},
		{"an error inside a 400 is the server's own", func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no"}}`, id)
		}, "-32022", true, &fault},
		{"a 400 of something else", func(w http.ResponseWriter, id json.RawMessage) { http.Error(w, "no", 400) },
			"HTTP status 400", true, nil},
		{"a 500 may have done it", func(w http.ResponseWriter, id json.RawMessage) { http.Error(w, "no", 500) },
			"HTTP status 500", true, nil},
		{"HTML", func(w http.ResponseWriter, id json.RawMessage) { fmt.Fprint(w, "<html>") },
			"an answer of the type", true, nil},
		{
			"an answer to another request", func(w http.ResponseWriter, id json.RawMessage) {
				reply(w, json.RawMessage("77"), `{}`)
			}, "an answer to another request", true, nil,
		},
		{"the id as a string", func(w http.ResponseWriter, id json.RawMessage) {
			reply(w, json.RawMessage(`"`+string(id)+`"`), `{}`)
		}, "an answer to another request", true, nil},
		{"a request in place of an answer", func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"method":"x"}`, id)
		}, "an answer to another request", true, nil},
		{"a name twice", func(w http.ResponseWriter, id json.RawMessage) { reply(w, id, `{"a":1,"a":2}`) },
			"cannot be read: not one strict JSON value", true, nil},
		{"too deep", func(w http.ResponseWriter, id json.RawMessage) {
			reply(w, id, strings.Repeat("[", 300)+strings.Repeat("]", 300))
		}, "cannot be read: not one strict JSON value", true, nil},
		{"two answers: the first counts", func(w http.ResponseWriter, id json.RawMessage) {
			send := stream(w)
			send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"n\":1}}\n\n"+
				"data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"n\":2}}\n\n", id, id)
		}, `{"n":1}`, false, nil},
		{"wrong ids on a stream are stepped over", func(w http.ResponseWriter, id json.RawMessage) {
			send := stream(w)
			send("data: {\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}\n\ndata: nonsense\n\n"+
				"data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"n\":2}}\n\n", id)
		}, `{"n":2}`, false, nil},
		{"an answer on a stream that is no message", func(w http.ResponseWriter, id json.RawMessage) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"a\":1,\"a\":2}}\n\n", id)
		}, "cannot be read: not one strict JSON value", true, nil},
		{"one that does not say whose it is", func(w http.ResponseWriter, id json.RawMessage) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"what?\"}}\n\n")
		}, "JSON-RPC error -32700: what?", true, &fault},
		{"the same inside a 400", func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}`)
		}, "no session", true, &fault},
		{"a result to nobody", func(w http.ResponseWriter, id json.RawMessage) { reply(w, json.RawMessage("null"), `{}`) },
			"cannot be read: an id is", true, nil},
		{"a stream that ends without an answer", func(w http.ResponseWriter, id json.RawMessage) {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n", id)
		}, "broke off", true, nil},
		{"a body without an end", func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			flood(w, `{"jsonrpc":"2.0","id":1,"result":"`, "a")
		}, "an answer of more than 16777216 bytes", true, nil},
		{"a line without an end", func(w http.ResponseWriter, id json.RawMessage) {
			stream(w)
			flood(w, "data: ", "a")
		}, "an event of more than 16777216 bytes", true, nil},
		{"an event without an end", func(w http.ResponseWriter, id json.RawMessage) {
			stream(w)
			flood(w, "", "data: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n")
		}, "an event of more than 16777216 bytes", true, nil},
		{"events without an end", func(w http.ResponseWriter, id json.RawMessage) {
			stream(w)
			flood(w, "", ": "+strings.Repeat("a", 4000)+"\n\n")
		}, "sends more than is read", true, nil},
		{"a head without an end", func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("X", strings.Repeat("a", 1<<20))
		}, "header", true, nil},
		{"it hangs up", func(w http.ResponseWriter, id json.RawMessage) { panic(http.ErrAbortHandler) }, "EOF", true, nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			t.Parallel()
			var posts atomic.Int64
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				posts.Add(1)
				row.serve(w, read(r).ID)
			}, Options{})
			got, err := call(t, c, "tools/call", nil)
			if err == nil {
				if got != row.want {
					t.Errorf("got %s, wanted %s", got, row.want)
				}
				return
			}
			if !strings.Contains(err.Error(), row.want) || errors.Is(err, jsonrpc.ErrNotSent) == row.sent ||
				row.is != nil && !errors.As(err, row.is) {
				t.Errorf("got %v, wanted %s, arrived %v", err, row.want, row.sent)
			}
			if n := posts.Load(); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

func flood(w io.Writer, first, again string) {
	again = strings.Repeat(again, 1+(64<<10)/len(again))
	_, err := io.WriteString(w, first)
	for err == nil {
		_, err = io.WriteString(w, again)
	}
}

// A legacy server: it gives a session, asks on the stream of a call, says things on a stream of its
// own, forgets the session, and has its stream taken up again.
func TestLegacy(t *testing.T) {
	var mu sync.Mutex
	var log []string
	note := func(format string, a ...any) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, fmt.Sprintf(format, a...))
	}
	var forgotten atomic.Bool
	answered, cancelled := make(chan asked, 1), make(chan asked, 1)
	said, hangs := make(chan jsonrpc.Message, 9), make(chan bool, 1)
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			note("DELETE %s", r.Header.Get("Mcp-Session-Id"))
			return
		}
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "" {
			send := stream(w)
			send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
			<-r.Context().Done()
			return
		}
		if r.Method == http.MethodGet {
			stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"after\":%q}}\n\n", r.Header.Get("Last-Event-ID"))
			return
		}
		a := read(r)
		note("%s session=%q revision=%q method=%q", a.Method, r.Header.Get("Mcp-Session-Id"),
			r.Header.Get("MCP-Protocol-Version"), r.Header.Get("Mcp-Method"))
		if forgotten.Load() {
			http.Error(w, "who?", http.StatusNotFound)
			return
		}
		switch a.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "abc")
			reply(w, a.ID, `{}`)
		case "ask":
			send := stream(w)
			send("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}\n\n")
			got := <-answered
			send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", a.ID, got.Result)
		case "break":
			stream(w)("id: e7\nretry: 10\ndata:\n\n")
		case "hang":
			hangs <- true
			<-r.Context().Done()
		case "notifications/cancelled":
			cancelled <- a
		case "":
			answered <- a
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}, Options{Handlers: jsonrpc.Options{
		Request: func(_ context.Context, m jsonrpc.Message) (any, error) {
			return map[string]any{"pong": m.Method, "of": m.Of}, nil
		},
		Notify: func(m jsonrpc.Message) { said <- m },
	}})
	if _, err := call(t, c, "initialize", nil); err != nil {
		t.Fatal(err)
	}
	c.Speak("2025-11-25")
	c.Notify("notifications/initialized", nil)
	if m := <-said; m.Method != "notifications/tools/list_changed" || m.Of != 0 {
		t.Errorf("%+v", m)
	}
	if got, err := call(t, c, "ask", nil); err != nil || got != `{"of":2,"pong":"ping"}` {
		t.Errorf("asked on the stream of a call: %s %v", got, err)
	}
	if got, err := call(t, c, "break", nil); err != nil || got != `{"after":"e7"}` {
		t.Errorf("taken up again: %s %v", got, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-hangs; cancel() }()
	if _, err := c.Call(ctx, "hang", nil, nil); !errors.Is(err, context.Canceled) || errors.Is(err, jsonrpc.ErrNotSent) {
		t.Errorf("a call without an answer: %v", err)
	}
	if a := <-cancelled; string(a.Params["requestId"]) != "4" {
		t.Errorf("cancelled: %s", a.Params)
	}
	forgotten.Store(true)
	if _, err := call(t, c, "tools/call", nil); !errors.Is(err, ErrForgotten) || errors.Is(err, jsonrpc.ErrNotSent) {
		t.Errorf("a forgotten session: %v", err)
	}
	<-c.Done()
	if _, err := call(t, c, "tools/call", nil); !errors.Is(err, jsonrpc.ErrClosed) || !errors.Is(err, jsonrpc.ErrNotSent) {
		t.Errorf("after the end: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []string{
		`initialize session="" revision="" method=""`,
		`notifications/initialized session="abc" revision="2025-11-25" method=""`,
	} {
		if log[i] != want {
			t.Errorf("request %d: %s, wanted %s", i, log[i], want)
		}
	}
	for _, l := range log {
		if strings.HasPrefix(l, "DELETE") {
			t.Errorf("leave is taken of a session that is gone: %s", l)
		}
	}
}

// HTTP+SSE of 2024-11-05: one stream that says where messages go, and carries every answer.
// TestAddressesOfServers: a connection is made to an http or https address without a user alone.
func TestAddressesOfServers(t *testing.T) {
	for at, good := range map[string]bool{"https://a.example.com/mcp": true, "http://127.0.0.1:1/mcp": true,
		"https:///mcp": false, "/mcp": false,
		"file://a.example.com/mcp": false, "https://u:p@a.example.com/mcp": false, "https://u@a.example.com/mcp": false,
		"%": false} {
		if c, err := New(Options{URL: at}); (err == nil) != good || err == nil && c == nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// TestSessionIDs: a session id that cannot stand in a header is ignored.
func TestSessionIDs(t *testing.T) {
	for id, good := range map[string]bool{
		"a": true, "!~": true, strings.Repeat("a", 4096): true, strings.Repeat("a", 4097): false, "a b": false, "a\tb": false,
		"a\x7f": false, "\u00e9": false, "a\r\nX: y": false,
	} {
		if got := sessionID(http.Header{"Mcp-Session-Id": {id}}); (got == id) != good || !good && got != "" {
			t.Errorf("%.20q: %.20q", id, got)
		}
	}
}

func TestOldServer(t *testing.T) {
	for _, row := range []struct{ why, endpoint, want string }{
		{"control: the same server", "/messages?session=1", ""},
		{"another server", "http://127.0.0.1:1/messages", "the stream leads to another server"},
		{"no address", "", "does not say where messages go"},
		{"a user in the address", "http://u@HOST/messages", "the stream leads to another server"},
		{"another event", "/messages\nevent: message", "does not say where messages go"},
	} {
		t.Run(row.why, func(t *testing.T) {
			out := make(chan string, 9)
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet && r.URL.Path == "/mcp":
					send := stream(w)
					send("event: endpoint\ndata: %s\n\n", strings.ReplaceAll(row.endpoint, "HOST", r.Host))
					for {
						select {
						case s := <-out:
							send("event: message\ndata: %s\n\n", s)
						case <-r.Context().Done():
							return
						}
					}
				case r.Method == http.MethodPost && r.URL.Path == "/messages":
					if a := read(r); a.ID != nil {
						out <- fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"method":%q}}`, a.ID, a.Method)
					}
					w.WriteHeader(http.StatusAccepted)
				default:
					http.Error(w, "no", http.StatusMethodNotAllowed)
				}
			}, Options{})
			got, err := call(t, c, "initialize", nil)
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("%s %v", got, err)
				}
				return
			}
			if err != nil || got != `{"method":"initialize"}` {
				t.Fatalf("%s %v", got, err)
			}
			c.Notify("notifications/initialized", nil)
			if got, err := call(t, c, "tools/list", nil); err != nil || got != `{"method":"tools/list"}` {
				t.Errorf("%s %v", got, err)
			}
		})
	}
}

func TestModernHeaders(t *testing.T) {
	heads := make(chan http.Header, 9)
	tools := `{"tools":[{"name":"w\u00e9","inputSchema":{"properties":{"region":{"type":"string",` +
		`"x-mcp-header":"Region"},"deep":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}},"b":{"type":"boolean",` +
		`"x-mcp-header":"B"}}}}]}`
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		a := read(r)
		heads <- r.Header
		if a.Method == "tools/list" {
			reply(w, a.ID, tools)
			return
		}
		reply(w, a.ID, `{}`)
	}, Options{})
	c.Speak(jsonrpc.Modern)
	for _, row := range []struct {
		why, method string
		params      map[string]any
		want        map[string]string
	}{
		{"a list", "tools/list", nil, map[string]string{
			"Mcp-Method": "tools/list", "Mcp-Name": "", "Mcp-Protocol-Version": jsonrpc.Modern,
		}},
		{"arguments are mirrored", "tools/call", map[string]any{
			"name": "w\u00e9", "arguments": map[string]any{"region": " us\n", "deep": map[string]any{"n": 7}, "b": false},
		},
			map[string]string{
				"Mcp-Name": "=?base64?d8Op?=", "Mcp-Param-Region": "=?base64?IHVzCg==?=", "Mcp-Param-N": "7",
				"Mcp-Param-B": "false",
			}},
		{"what is absent or null is left out", "tools/call", map[string]any{
			"name": "w\u00e9", "arguments": map[string]any{"region": nil},
		},
			map[string]string{"Mcp-Param-Region": "", "Mcp-Param-N": "", "Mcp-Param-B": ""}},
		{"a value that looks encoded is encoded", "tools/call", map[string]any{
			"name": "w\u00e9", "arguments": map[string]any{"region": "=?base64?x?="},
		},
			map[string]string{"Mcp-Param-Region": "=?base64?PT9iYXNlNjQ/eD89?="}},
		{"a resource", "resources/read", map[string]any{"uri": "file:///a"}, map[string]string{"Mcp-Name": "file:///a"}},
		{"a prompt", "prompts/get", map[string]any{"name": "p"}, map[string]string{"Mcp-Name": "p", "Mcp-Session-Id": ""}},
	} {
		if _, err := call(t, c, row.method, row.params); err != nil {
			t.Fatal(err)
		}
		h := <-heads
		for k, v := range row.want {
			if h.Get(k) != v {
				t.Errorf("%s: %s is %q, wanted %q", row.why, k, h.Get(k), v)
			}
		}
	}
}

// An invalid header is refused before anything is sent, and never rewritten.
func TestHeadersThatAreNone(t *testing.T) {
	for _, row := range []struct {
		value string
		ok    bool
	}{
		{"control", true}, {"a\tb", true}, {"\u00e9", true}, {"", true}, {"a\r\nX-Other: b", false}, {"a\nb", false},
		{"a\rb", false}, {"a\n", false}, {"a\x00b", false}, {"a\x1b", false}, {"a\x7f", false},
	} {
		for what, o := range map[string]Options{
			"header": {Header: func() (http.Header, error) { return http.Header{"X-Key": {row.value}}, nil }},
			"token":  {Auth: fixedToken(row.value)},
		} {
			got := make(chan string, 9)
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				got <- r.Header.Get("X-Key") + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				reply(w, read(r).ID, `{}`)
			}, o)
			_, err := call(t, c, "tools/list", nil)
			switch {
			case row.ok && (err != nil || <-got != row.value):
				t.Errorf("%s: %q is not sent as it is: %v", what, row.value, err)
			case !row.ok && (!errors.Is(err, jsonrpc.ErrNotSent) ||
				!strings.Contains(err.Error(), "holds a line break or another control character") || len(got) > 0):
				t.Errorf("%s: %q: %v, the server has seen %d requests", what, row.value, err, len(got))
			case !row.ok && strings.Contains(err.Error(), row.value):
				t.Errorf("%s: the error tells the value: %v", what, err)
			}
		}
	}
}

type fixedToken string

func (f fixedToken) Token(context.Context) (string, error) { return string(f), nil }

func (fixedToken) Refused(context.Context, string, *http.Response) (bool, error) { return false, nil }

func TestHeaderMarks(t *testing.T) {
	for _, row := range []struct {
		why, schema string
		ok          bool
	}{
		{"control: none", `{"type":"object"}`, true},
		{"control: a nested one", `{"properties":{"a":{"properties":{"b":{"type":"string","x-mcp-header":"B"}}}}}`, true},
		{"control: an argument of that name", `{"properties":{"x-mcp-header":{"type":"string"}}}`, true},
		{"empty", `{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, false},
		{"a line break", `{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nX: y"}}}`, false},
		{"no text", `{"properties":{"a":{"type":"string","x-mcp-header":1}}}`, false},
		{"a number", `{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, false},
		{"an object", `{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`, false},
		{
			"twice but for case", `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string",` +
				`"x-mcp-header":"a"}}}`, false,
		},
		{
			"in the elements of a list", `{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`,
			false,
		},
		{"in a choice", `{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}`, false},
		{"in a definition", `{"$defs":{"a":{"type":"string","x-mcp-header":"A"}}}`, false},
		{"at the root", `{"x-mcp-header":"A"}`, false},
	} {
		v, err := strictjson.Parse([]byte(row.schema))
		if err != nil {
			t.Fatal(err)
		}
		if err := Headers(v); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}

// static is a token that never changes.
type static struct{ token string }

func (s static) Token(context.Context) (string, error) { return s.token, nil }
func (s static) Refused(context.Context, string, *http.Response) (again bool, e error) {
	return true, nil
}

// TestStatusesThatAskForATokenAlone: another status than 401 and 403 costs no new token.
func TestStatusesThatAskForATokenAlone(t *testing.T) {
	for status, want := range map[int]bool{
		200: false, 400: false, 404: false, 429: false, 500: false, 401: true, 403: true,
	} {
		auth := &counted{}
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			if a := read(r); status == 200 {
				reply(w, a.ID, `{}`)
				return
			}
			http.Error(w, "no", status)
		}, Options{Auth: auth})
		_, _ = call(t, c, "x", nil)
		if got := auth.refused.Load() > 0; got != want {
			t.Errorf("%d: another token was asked for: %v", status, got)
		}
	}
}

// counted counts the refusals of its token.
type counted struct{ refused atomic.Int64 }

func (*counted) Token(context.Context) (string, error) { return "t", nil }

func (c *counted) Refused(context.Context, string, *http.Response) (bool, error) {
	c.refused.Add(1)
	return false, nil
}

// A redirect is followed within the server alone, with the message; the token goes nowhere else.
func TestRedirects(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for _, row := range []struct {
		why, to string
		code    int
		want    string
	}{
		{"control: within the server", "/other", 307, ""},
		{"another server", other.URL, 307, "a redirect to another server is not followed"},
		{"the message would be dropped", "/other", 302, "a redirect that drops the message is not followed"},
		{"round and round", "/mcp", 308, "too many redirects"},
		{"to a file", "file:///etc/passwd", 307, "a redirect to another server is not followed"},
	} {
		t.Run(row.why, func(t *testing.T) {
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" {
					reply(w, read(r).ID, `{}`)
					return
				}
				http.Redirect(w, r, row.to, row.code)
			}, Options{Auth: static{"t"}})
			_, err := call(t, c, "x", nil)
			if row.want == "" && err == nil {
				_, err = call(t, c, "tools/call", nil) // at the new place
			}
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%v", err)
			}
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

// A redirect of a tool call is not followed: the server could have acted before it.
func TestRedirectOfACall(t *testing.T) {
	var acts atomic.Int64
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		acts.Add(1)
		http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
	}, Options{})
	var s *Status
	if _, err := call(t, c, "tools/call", nil); !errors.As(err, &s) || s.Code != 307 || acts.Load() != 1 {
		t.Errorf("%v after %d requests", err, acts.Load())
	}
}

// TestLostSession: however a server says that it has forgotten a session, the connection ends. A server that answers a
// ping has not.
func TestLostSession(t *testing.T) {
	fault := `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Session not found"}`
	for _, row := range []struct {
		why, body   string
		code        int
		alive, lost bool
	}{
		{"404 without a body", "", 404, false, true},
		{"404 with text", "who?", 404, false, true},
		{"404 with a JSON-RPC error, id null", fault + `,"id":null}`, 404, false, true},
		{"404 with a JSON-RPC error, id of the request", fault + `,"id":2}`, 404, false, true},
		{"404 with a JSON-RPC error, another id", fault + `,"id":"server-error"}`, 404, false, true},
		{"404 with a JSON-RPC error, no id", fault + `}`, 404, false, true},
		{"400 with a JSON-RPC error", fault + `,"id":2}`, 400, false, true},
		{"400 with text", "No valid session ID provided", 400, false, true},
		{"control: 400 of a server that answers a ping", fault + `,"id":2}`, 400, true, false},
		{"control: 500", fault + `,"id":2}`, 500, true, false},
	} {
		t.Run(row.why, func(t *testing.T) {
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				a := read(r)
				if a.Method == "initialize" {
					w.Header().Set("Mcp-Session-Id", "abc")
				}
				if a.Method == "initialize" || a.Method == "ping" && row.alive {
					reply(w, a.ID, `{}`)
					return
				}
				if strings.HasPrefix(row.body, "{") {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(row.code)
				fmt.Fprint(w, row.body)
			}, Options{})
			if _, err := call(t, c, "initialize", nil); err != nil {
				t.Fatal(err)
			}
			_, err := call(t, c, "tools/call", nil)
			if errors.Is(err, ErrForgotten) != row.lost || err == nil || (c.ctx.Err() != nil) != row.lost {
				t.Errorf("%v", err)
			}
			var fault *jsonrpc.Error
			if !row.lost && (!errors.As(err, &fault) || fault.Message != "Session not found") {
				t.Errorf("the server's own error: %v", err)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "30": 30 * time.Second, "-1": 0, "1.5": 0, "soon": 0, "99999999": longestAfter,
		"Tue, 24 Nov 2026 12:01:00 GMT": time.Minute, "Tue, 24 Nov 2026 11:00:00 GMT": 0,
		"Tue, 24 Nov 2099 12:01:00 GMT": longestAfter,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A token that is refused again and again is not asked for without an end.
func TestRefusalsEnd(t *testing.T) {
	var n atomic.Int64
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		if r.Header.Get("Authorization") != "Bearer t" {
			t.Errorf("Authorization: %q", r.Header.Get("Authorization"))
		}
		http.Error(w, "no", http.StatusUnauthorized)
	}, Options{Auth: static{"t"}})
	_, err := call(t, c, "x", nil)
	var s *Status
	if !errors.As(err, &s) || s.Code != 401 || n.Load() != 1+maxRefusals {
		t.Errorf("%v after %d", err, n.Load())
	}
}

// names answers with a test's fixed addresses.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) (out []netip.Addr, err error) {
	for _, a := range n[strings.TrimSuffix(host, ".")] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

func TestAddresses(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.URL, "http://"), ":")
	defer func(r any) {
		resolver = r.(interface {
			LookupNetIP(context.Context, string, string) ([]netip.Addr, error)
		})
	}(resolver)
	resolver = names{"evil.example.com": {"169.254.169.254"}, "mixed.example.com": {"93.184.216.34", "127.0.0.1"},
		"me.example.com": {"127.0.0.1"}, "crm.example.com": {"10.0.0.1"}, "crm6.example.com": {"fd00:ec2::254"}}
	for _, row := range []struct {
		why, addr, named, want string
	}{
		{"control: the address in the URL", "127.0.0.1:" + port, "127.0.0.1", ""},
		{"control: this machine by its name", "localhost:" + port, "localhost", ""},
		{"control: another door of this machine", "127.0.0.1:" + port, "localhost", ""},
		{"this machine, from a server elsewhere", "127.0.0.1:" + port, "mcp.example.com",
			"not an address that the operator has named"},
		{"this machine by name, from a server elsewhere", "localhost:" + port, "mcp.example.com",
			"not an address that the operator has named"},
		{"metadata, from a server here", "169.254.169.254:80", "127.0.0.1", "not an address that the operator has named"},
		{"a name that stands for metadata", "evil.example.com:80", "evil.example.com", "egress.address"},
		{"a name that stands for this machine", "me.example.com:" + port, "me.example.com", "egress.address"},
		{"a name with one bad address", "mixed.example.com:80", "mixed.example.com", "egress.address"},
		{"a name that stands for a private address", "crm.example.com:80", "crm.example.com", "egress.address"},
	} {
		t.Run(row.why, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			conn, err := dial(ctx, row.addr, row.named, nil)
			if err == nil {
				_ = conn.Close()
			}
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%v", err)
			}
		})
	}
	inside := func(string) bool { return true }
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := dial(ctx, "crm.example.com:80", "crm.example.com", inside); err != nil &&
		strings.Contains(err.Error(), "egress.") {
		t.Errorf("an internal name: %v", err)
	}
	if _, err := dial(t.Context(), "crm6.example.com:80", "crm6.example.com", inside); err == nil ||
		!strings.Contains(err.Error(), "egress.") {
		t.Errorf("metadata behind an internal name: %v", err)
	}
}

// FuzzEvents: for any stream, an event's data holds only lines of the stream, and reading ends.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "id: 1\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\n", ":c\n\n\ndata:\n\n",
		"retry: 99999999999\n\n", "data",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		in := newEvents(strings.NewReader(s), 1<<20)
		total := 0
		for {
			ev, err := in.next()
			if err != nil {
				return
			}
			total += len(ev.data)
			if total > len(s) {
				t.Fatalf("%d bytes out of %d", total, len(s))
			}
			if ev.retry < 0 || strings.ContainsAny(ev.id, "\n\x00") {
				t.Fatalf("%+v", ev)
			}
			for line := range strings.SplitSeq(string(ev.data), "\n") {
				if !strings.Contains(s, line) {
					t.Fatalf("%q is not in %q", line, s)
				}
			}
		}
	})
}

// A session begins once the stream for the server's requests is open: a request before that is lost.
func TestTheStreamIsOpenBeforeACall(t *testing.T) {
	for tries := 1; callsEarly(t); tries++ { // on a busy machine the stream may take longer than a call waits for it
		if tries == 3 {
			t.Fatal("a call came before the stream was open")
		}
	}
}

// callsEarly reports whether a call came before the stream was open.
func callsEarly(t *testing.T) bool {
	var open atomic.Bool
	early := make(chan bool, 1)
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			time.Sleep(200 * time.Millisecond)
			open.Store(true)
			stream(w)(": here\n\n")
			<-r.Context().Done()
			return
		}
		switch a := read(r); a.Method {
		case "initialize":
			reply(w, a.ID, `{}`)
		case "tools/call":
			early <- !open.Load()
			reply(w, a.ID, `{}`)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}, Options{})
	if _, err := call(t, c, "initialize", nil); err != nil {
		t.Fatal(err)
	}
	c.Notify("notifications/initialized", nil)
	if _, err := call(t, c, "tools/call", nil); err != nil {
		t.Fatal(err)
	}
	return <-early
}

// The place in a trace of _meta is in the head too, in either era; without one there is none, whatever arguments say.
func TestTraceHeaders(t *testing.T) {
	const parent, state = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "k=v"
	heads := make(chan http.Header, 9)
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		a := read(r)
		heads <- r.Header
		reply(w, a.ID, `{}`)
	}, Options{})
	for _, revision := range []string{"2025-11-25", jsonrpc.Modern} {
		c.Speak(revision)
		for _, row := range []struct {
			params        map[string]any
			parent, state string
		}{
			{map[string]any{"name": "x", "_meta": map[string]any{"traceparent": parent, "tracestate": state}}, parent, state},
			{map[string]any{"name": "x", "arguments": map[string]any{"traceparent": parent}}, "", ""},
		} {
			if _, err := call(t, c, "tools/call", row.params); err != nil {
				t.Fatal(err)
			}
			if h := <-heads; h.Get("traceparent") != row.parent || h.Get("tracestate") != row.state {
				t.Errorf("%s %v: %q %q", revision, row.params, h.Get("traceparent"), h.Get("tracestate"))
			}
		}
	}
}
