package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/catalogtest"
	"waldo/internal/testing/pipelinetest"
)

// desk is a pipeline for tests.
type desk struct {
	mu      sync.Mutex
	calls   []call.Call
	release chan struct{}
	ended   chan error
	begun   chan struct{}
}

func (d *desk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

func (d *desk) last() call.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[len(d.calls)-1]
}

func (d *desk) call(ctx context.Context, c call.Call) (call.Result, error) {
	d.mu.Lock()
	d.calls = append(d.calls, c)
	d.mu.Unlock()
	r := call.Result{
		CallID: c.ID, DecisionID: "d_1", Status: facts.OK, Facts: facts.New(), Content: []call.Content{call.Text("fine")},
	}
	switch c.Capability {
	case "s.mistake":
		panic("a mistake")
	case "s.slow":
		if p := call.Progress(ctx); p != nil {
			p(1, 2, "")
		}
		d.begun <- struct{}{}
		select {
		case <-d.release:
		case <-ctx.Done():
			d.ended <- ctx.Err()
			return r, ctx.Err()
		}
	case "s.chatty":
		p := call.Progress(ctx)
		for i := range 3 {
			p(float64(i+1), 3, "")
			time.Sleep(110 * time.Millisecond)
		}
	}
	return r, nil
}

// A complete HTTP server for tests.
type fixture struct {
	t    testing.TB
	url  string // of the MCP endpoint
	addr string
	desk *desk
	cat  *catalog.Catalogue
	web  *Server
	stop func() // as by SIGTERM, and waits for the end
	mu   sync.Mutex
	list []call.Tool
}

// tokens are who the tests' clients are.
func tokens(r *http.Request) (call.Principal, *Refusal) {
	switch r.Header.Get("Authorization") {
	case "", "Bearer one":
		return "token:one", nil
	case "Bearer two":
		return "token:two", nil
	case "Bearer three":
		return "token:three", nil
	}
	return "", &Refusal{Status: 401, Challenge: "Bearer", Why: "no"}
}

func open(t testing.TB, l Limits, change ...func(*mcpserver.Options)) *fixture {
	t.Helper()
	h := &fixture{
		t: t, desk: &desk{release: make(chan struct{}), ended: make(chan error, 10), begun: make(chan struct{}, 100)},
	}
	for _, name := range []string{"echo", "slow", "chatty", "mistake"} {
		in, err := strictjson.Parse([]byte(`{"type":"object"}`))
		if err != nil {
			t.Fatal(err)
		}
		h.list = append(h.list, call.Tool{
			Capability: call.Capability("s." + name), Description: "Does " + name + ".", Input: in,
			Digest: strictjson.Digest([]byte(name)),
		})
	}
	h.cat = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{Allowed: func(cap call.Capability, v catalog.Viewer) bool {
			return cap != "s.mistake" || v.Principal != "token:two"
		}},
		Texts: catalogtest.Words{},
		Sources: map[string]catalog.Source{"s": func(context.Context) ([]call.Tool, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.list, nil
		}},
	})
	serves := mcpserver.Options{Version: "1", Catalogue: h.cat, Pipeline: &pipelinetest.Pipeline{OnCall: h.desk.call}}
	for _, f := range change {
		f(&serves)
	}
	o := Options{Server: mcpserver.New(serves),
		Identify: tokens, Limits: l,
		Open:  func(p call.Principal) (call.Session, error) { return call.Session("n_" + p), nil },
		Hosts: []string{"localhost", "127.0.0.1", "::1"}, Origins: []string{"https://console.example.com"}}
	h.web = New(o)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = listener.Addr().String()
	h.url = "http://" + h.addr + "/mcp"
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.web.Serve(ctx, listener) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the server does not close")
		}
		h.cat.Close()
	})
	t.Cleanup(h.stop)
	return h
}

const metaText = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{}}`

// patient waits longer than anything here takes.
var patient = http.Client{Timeout: 2 * time.Minute}

// ask makes a POST and returns its answer. Headers are pairs.
func (h *fixture) ask(body string, headers ...string) (int, http.Header, string) {
	h.t.Helper()
	r, err := http.NewRequest("POST", h.url, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		switch headers[i] {
		case "Host":
			r.Host = headers[i+1]
		case "method":
			r.Method = headers[i+1]
		default:
			r.Header[http.CanonicalHeaderKey(headers[i])] = append(r.Header[http.CanonicalHeaderKey(headers[i])], headers[i+1])
			if headers[i] == "Content-Type" || headers[i] == "Accept" {
				r.Header.Set(headers[i], headers[i+1])
			}
		}
	}
	res, err := patient.Do(r)
	if err != nil {
		h.t.Error(err)
		return 0, http.Header{}, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Error(err)
	}
	return res.StatusCode, res.Header, string(b)
}

// modern makes a modern request with the headers that go with it, and those given besides.
func (h *fixture) modern(method, params string, headers ...string) (int, http.Header, string) {
	h.t.Helper()
	if params != "" {
		params += ","
	}
	all := append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}, headers...)
	return h.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, params, metaText), all...)
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// legacy opens a legacy session and returns its id.
func (h *fixture) legacy(headers ...string) string {
	h.t.Helper()
	status, header, body := h.ask(hello, headers...)
	id := header.Get("Mcp-Session-Id")
	if status != 200 || len(id) < 20 {
		h.t.Fatalf("initialize: %d %s", status, body)
	}
	if status, _, body := h.ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		append(headers, "Mcp-Session-Id", id)...); status != 202 || body != "" {
		h.t.Fatalf("initialized: %d %s", status, body)
	}
	return id
}

func code(body string) int {
	var m struct{ Error struct{ Code int } }
	if json.Unmarshal([]byte(body), &m) != nil {
		return 1
	}
	return m.Error.Code
}

const echo = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"s__echo","arguments":{}}}`

// The client of the official SDK, over HTTP, in every revision that streamable HTTP has.
func TestWithTheSDK(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		t.Run(revision, func(t *testing.T) {
			h := open(t, Limits{})
			steps := make(chan float64, 10)
			told := make(chan struct{}, 10)
			c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					steps <- r.Params.Progress
				},
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} }})
			s, err := c.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: h.url},
				&mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := s.InitializeResult().ProtocolVersion; got != revision {
				t.Errorf("agreed on %s", got)
			}
			list, err := s.ListTools(context.Background(), nil)
			if err != nil || len(list.Tools) != 5 {
				t.Fatalf("%v: %v", list, err)
			}
			r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "s__echo"})
			if err != nil || r.IsError {
				t.Fatalf("%v %v", r, err)
			}
			if got := h.desk.last(); got.Principal != "token:one" || got.Session != "n_token:one" || got.Channel != "mcp" {
				t.Errorf("the call: %+v", got)
			}
			if _, err = s.CallTool(context.Background(),
				&mcp.CallToolParams{Name: "s__chatty", Meta: mcp.Meta{"progressToken": "x"}}); err != nil {
				t.Fatal(err)
			}
			for want := range 3 {
				select {
				case got := <-steps:
					if got != float64(want+1) {
						t.Errorf("progress %v", got)
					}
				case <-time.After(time.Minute):
					t.Fatal("no progress")
				}
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { _, _ = s.CallTool(ctx, &mcp.CallToolParams{Name: "s__slow"}); close(done) }()
			<-h.desk.begun
			cancel()
			select {
			case err := <-h.desk.ended:
				if err != context.Canceled {
					t.Errorf("the pipeline saw %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("a cancelled call goes on")
			}
			<-done
			h.mu.Lock()
			h.list = h.list[:2]
			h.mu.Unlock()
			h.cat.Invalidate("s")
			select {
			case <-told:
			case <-time.After(time.Minute):
				t.Error("nobody told the client that the list is another")
			}
		})
	}
}

// A request whose headers and body differ is refused: an intermediary could have used either.
func TestHeadersAndBody(t *testing.T) {
	h := open(t, Limits{})
	name := []string{"Mcp-Name", "s__echo"}
	for _, row := range []struct {
		why     string
		params  string
		headers []string
		status  int
		code    int
	}{
		{"the control: they agree", `"name":"s__echo"`, name, 200, 0},
		{"the name encoded", `"name":"s__echo"`, []string{"Mcp-Name", "=?base64?c19fZWNobw==?="}, 200, 0},
		{"another name", `"name":"s__echo"`, []string{"Mcp-Name", "s__slow"}, 400, -32020},
		{"another name, encoded", `"name":"s__echo"`, []string{"Mcp-Name", "=?base64?c19fc2xvdw==?="}, 400, -32020},
		{"bad base64", `"name":"s__echo"`, []string{"Mcp-Name", "=?base64?c19fZWNobw?="}, 400, -32020},
		{"no name", `"name":"s__echo"`, nil, 400, -32020},
		{"two names", `"name":"s__echo"`, []string{"Mcp-Name", "s__echo", "Mcp-Name", "s__slow"}, 400, 1},
		{"a parameter that no tool asks for", `"name":"s__echo"`, append([]string{"Mcp-Param-Tenant", "a"}, name...),
			400, -32020},
		{"two logins", `"name":"s__echo"`,
			append([]string{"Authorization", "Bearer one", "Authorization", "Bearer two"}, name...), 400, 1},
		{"a delegation where none is read", `"name":"s__echo"`, append([]string{"Waldo-Delegation", ""}, name...), 400, 1},
		{"two methods", `"name":"s__echo"`, append([]string{"Mcp-Method", "tools/list"}, name...), 400, 1},
		{"two revisions", `"name":"s__echo"`, append([]string{"Mcp-Protocol-Version", "2025-11-25"}, name...), 400, 1},
	} {
		before := h.desk.count()
		status, _, body := h.modern("tools/call", row.params, row.headers...)
		if status != row.status || code(body) != row.code {
			t.Errorf("%s: %d %s", row.why, status, body)
		}
		if row.status != 200 && h.desk.count() != before {
			t.Errorf("%s: it was carried out", row.why)
		}
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + metaText + `}}`
	for _, row := range []struct {
		why     string
		body    string
		headers []string
		status  int
		code    int
	}{
		{"another method", list, []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call"}, 400, -32020},
		{"no method", list, []string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32020},
		{"no revision in the headers", list, []string{"Mcp-Method", "tools/list"}, 400, -32020},
		{"a legacy revision in the headers", list, []string{"MCP-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/list"},
			400, -32020},
		{"no revision in the body", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			[]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, -32602},
		{"no capabilities", strings.Replace(list, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1),
			[]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, -32602},
		{"a revision from the future", strings.Replace(list, "2026-07-28", "2027-01-01", 1),
			[]string{"MCP-Protocol-Version", "2027-01-01", "Mcp-Method", "tools/list"}, 400, -32022},
		{"a legacy revision that there never was", `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			[]string{"MCP-Protocol-Version", "1999-01-01"}, 400, -32600},
		{"an answer from a modern client", `{"jsonrpc":"2.0","id":1,"result":{}}`,
			[]string{"MCP-Protocol-Version", "2026-07-28"}, 400, -32600},
		{"a method of the legacy era", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + metaText + `}}`,
			[]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "ping"}, 404, -32601},
		{"initialize in the modern era", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + metaText + `}}`,
			[]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "initialize"}, 404, -32601},
		{"two readings", `{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}`, nil, 400, -32700},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, nil, 400, -32600},
		{"a legacy request without a session", echo, nil, 400, 1},
		{"text", echo, []string{"Content-Type", "text/plain"}, 415, 1},
		{"an answer that nobody takes", echo, []string{"Accept", "text/html"}, 406, 1},
		{"GET without a session", "", []string{"method", "GET"}, 405, 1},
		{"PUT", "", []string{"method", "PUT"}, 405, 1},
		{"a name with a line break", echo, []string{"Content-Type", "application/json; charset=utf-8"}, 400, 1},
	} {
		if status, _, body := h.ask(row.body, row.headers...); status != row.status || code(body) != row.code {
			t.Errorf("%s: %d %s", row.why, status, body)
		}
	}
	if status, _, body := h.modern("tools/call", `"name":"s__slow"`, "Mcp-Name", "s__echo"); status != 400 {
		t.Errorf("%d %s", status, body)
	}
	close(h.desk.release)
	if status, _, body := h.modern("tools/call", `"name":"s__slow"`, "Mcp-Name", "s__slow"); status != 200 ||
		!strings.Contains(body, "fine") {
		t.Errorf("after all of these: %d %s", status, body)
	}
}

// A page of another site, or a name that a stranger's DNS has bound to this machine, gets nothing.
func TestStrangers(t *testing.T) {
	h := open(t, Limits{})
	for _, row := range []struct {
		why     string
		headers []string
		status  int
	}{
		{"the control: a program", nil, 200},
		{"by another name of ours", []string{"Host", "localhost:1234"}, 200},
		{"a page of our own", []string{"Origin", "http://" + h.addr}, 200},
		{"rebinding", []string{"Host", "evil.example.com"}, 403},
		{"rebinding with our port", []string{"Host", "evil.example.com" + h.addr[strings.LastIndex(h.addr, ":"):]}, 403},
		{"rebinding, and a page of the same name",
			[]string{"Host", "evil.example.com", "Origin", "http://evil.example.com"}, 403},
		{"a name that begins as ours", []string{"Host", "localhost.evil.example.com"}, 403},
		{"another site's page", []string{"Origin", "https://evil.example.com"}, 403},
		{"a page in a frame without an origin", []string{"Origin", "null"}, 403},
		{"another server of this machine", []string{"Origin", "http://127.0.0.1:1"}, 403},
	} {
		status, _, body := h.ask(hello, row.headers...)
		if status != row.status {
			t.Errorf("%s: %d %s", row.why, status, body)
		}
	}
}

// A session belongs to its creator: for every other principal it does not exist.
func TestSessionTheft(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy("Authorization", "Bearer one")
	for _, row := range []struct {
		why, token, id string
		status         int
	}{
		{"the control: the owner", "Bearer one", id, 200},
		{"somebody else with the id", "Bearer two", id, 404},
		{"nobody's id", "Bearer one", "AAAAAAAAAAAAAAAAAAAAAAAAAA", 404},
		{"an unknown token", "Bearer four", id, 401},
	} {
		before := h.desk.count()
		if status, _, body := h.ask(echo, "Authorization", row.token, "Mcp-Session-Id", row.id); status != row.status {
			t.Errorf("%s: %d %s", row.why, status, body)
		}
		if row.status != 200 && h.desk.count() != before {
			t.Errorf("%s: it was carried out", row.why)
		}
	}
	for _, method := range []string{"GET", "DELETE"} {
		if status, _, _ := h.ask("", "method", method, "Authorization", "Bearer two", "Mcp-Session-Id", id); status != 404 {
			t.Errorf("%s of another's session: %d", method, status)
		}
	}
	if status, _, _ := h.ask("", "method", "DELETE", "Authorization", "Bearer one", "Mcp-Session-Id", id); status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	if status, _, _ := h.ask(echo, "Authorization", "Bearer one", "Mcp-Session-Id", id); status != 404 {
		t.Errorf("after DELETE: %d", status)
	}
}

// Idle sessions end, and the oldest makes room for a principal that has too many.
func TestSessionsEnd(t *testing.T) {
	h := open(t, Limits{Each: 2, Spare: time.Nanosecond})
	one, two := h.legacy(), h.legacy()
	other := h.legacy("Authorization", "Bearer two")
	if status, _, _ := h.ask(echo, "Mcp-Session-Id", one); status != 200 {
		t.Fatal(status)
	}
	three := h.legacy() // two was idle for longest
	for id, want := range map[string]int{one: 200, two: 404, three: 200} {
		if status, _, _ := h.ask(echo, "Mcp-Session-Id", id); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
	if status, _, _ := h.ask(echo, "Mcp-Session-Id", other, "Authorization", "Bearer two"); status != 200 {
		t.Errorf("another principal's session made room: %d", status)
	}
	h.web.sweep(time.Now().Add(time.Hour - time.Minute))
	if status, _, _ := h.ask(echo, "Mcp-Session-Id", one); status != 200 {
		t.Errorf("before its time: %d", status)
	}
	late, ended := time.Now().Add(time.Hour+time.Minute), func() bool {
		h.web.mu.Lock()
		defer h.web.mu.Unlock()
		return h.web.sessions[one] == nil
	}
	for end := time.Now().Add(time.Minute); !ended() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.web.sweep(late) // the last answer can still be in flight, and its session is not idle
	}
	if status, _, _ := h.ask(echo, "Mcp-Session-Id", one); status != 404 {
		t.Errorf("after its time: %d", status)
	}
}

func TestLimits(t *testing.T) {
	h := open(t, Limits{Body: 1000, InFlight: 2, Conns: 20, Held: 2500})
	quick := open(t, Limits{Read: 300 * time.Millisecond, Stranger: time.Hour}) // no stranger is swept away
	t.Run("a message too long", func(t *testing.T) {
		if status, _, _ := h.ask(strings.Repeat(" ", 990) + `{}`); status != 400 {
			t.Errorf("the control: %d", status)
		}
		if status, _, _ := h.ask(strings.Repeat(" ", 1001)); status != 413 {
			t.Errorf("%d", status)
		}
	})
	half := func(sent string, good func(answer []byte, err error) bool) {
		t.Helper()
		var b []byte
		var err error
		for range 3 { // a busy machine may not come so far in the server's time
			c, dialed := net.Dial("tcp", quick.addr)
			if dialed != nil {
				t.Fatal(dialed)
			}
			fmt.Fprint(c, sent)
			_ = c.SetReadDeadline(time.Now().Add(9 * time.Second)) // less than a server's time otherwise
			b, err = io.ReadAll(c)
			c.Close()
			if good(b, err) {
				return
			}
		}
		t.Errorf("%q %v", b, err)
	}
	t.Run("a message that never comes", func(t *testing.T) {
		half("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
			func(b []byte, _ error) bool { return bytes.Contains(b, []byte(" 408 ")) })
	})
	t.Run("headers that never end", func(t *testing.T) {
		half("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: ", func(_ []byte, err error) bool { return err == nil })
	})
	t.Run("headers too long", func(t *testing.T) {
		c, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 37<<10))
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 431 {
			t.Errorf("%v %v", res, err)
		}
	})
	t.Run("too much at once", func(t *testing.T) {
		id := h.legacy()
		var wait sync.WaitGroup
		for i := range 2 {
			wait.Go(func() {
				h.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"s__slow"}}`, i),
					"Mcp-Session-Id", id)
			})
		}
		<-h.desk.begun
		<-h.desk.begun
		if status, _, body := h.ask(echo, "Mcp-Session-Id", id); status != 503 || code(body) != -32000 {
			t.Errorf("%d %s", status, body)
		}
		h.desk.release <- struct{}{}
		h.desk.release <- struct{}{}
		wait.Wait()
		if status, _, _ := h.ask(echo, "Mcp-Session-Id", id); status != 200 {
			t.Errorf("afterwards: %d", status)
		}
	})
}

// TestHeld: messages under way reserve memory. A message beyond the whole, or beyond half of it for one principal, is
// refused.
func TestHeld(t *testing.T) {
	h := open(t, Limits{Body: 1000, Held: 2500})
	long := hello + strings.Repeat(" ", 600)
	begin := func(who string, held int64) {
		t.Helper()
		c, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", who)
		h.waitHeld(held)
	}
	begin("one", 1000)
	for _, row := range []struct {
		why, who, body string
		want           int
	}{
		{"control: a short one", "one", hello, 200},
		{"beyond the share of its principal", "one", long, 503},
		{"control: of another principal", "two", long, 200},
	} {
		if status, header, _ := h.ask(row.body, "Authorization", "Bearer "+row.who); status != row.want || status == 503 &&
			header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, want %d", row.why, status, row.want)
		}
	}
	h.waitHeld(1000) // an answer goes out before its room is free again
	begin("two", 2000)
	if status, _, _ := h.ask(hello, "Authorization", "Bearer three"); status != 200 {
		t.Errorf("control: a short one of a third principal: %d", status)
	}
	if status, _, _ := h.ask(long, "Authorization", "Bearer three"); status != 503 {
		t.Errorf("beyond the whole: %d", status)
	}
}

// TestHeldMore: the cost of a message beyond its size counts against the whole and the share of its principal. A
// message alone is always admitted.
func TestHeldMore(t *testing.T) {
	for _, row := range []struct {
		why              string
		held, mine, more int64
		want             bool
	}{
		{"alone", 1000, 1000, 9000, true},
		{"there is room", 1500, 500, 500, true},
		{"beyond the whole", 2000, 100, 501, false},
		{"up to the whole", 2000, 100, 500, true},
		{"beyond the share of its principal", 1200, 1200, 51, false},
		{"up to the share", 1200, 1200, 50, true},
	} {
		s := &Server{
			o: Options{Limits: Limits{Body: 1000, Held: 2500}}, held: row.held,
			heldBy: map[call.Principal]int64{"one": row.mine},
		}
		if got := s.holdMore("one", row.more); got != row.want {
			t.Errorf("%s: %v", row.why, got)
		}
		if grown := s.held - row.held; grown != map[bool]int64{true: row.more}[row.want] ||
			s.heldBy["one"]-row.mine != grown {
			t.Errorf("%s: %d more are reserved", row.why, grown)
		}
	}
}

// holds returns the reserved bytes.
func (h *fixture) holds() int64 {
	h.web.mu.Lock()
	defer h.web.mu.Unlock()
	return h.web.held
}

// waitHeld waits until so many bytes are reserved.
func (h *fixture) waitHeld(want int64) {
	h.t.Helper()
	for end := time.Now().Add(5 * time.Second); h.holds() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("%d bytes are reserved, want %d", h.holds(), want)
		}
	}
}

// TestHeldOfUnknownSize: a message of unknown size reserves the most only until it was read.
func TestHeldOfUnknownSize(t *testing.T) {
	h := open(t, Limits{Body: 100_000, Held: 150_000})
	id := h.legacy()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow"}}`
	// no Content-Length
	r, err := http.NewRequest("POST", "http://"+h.addr+"/mcp", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {id},
	}
	done := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			res.Body.Close()
		}
		done <- err
	}()
	<-h.desk.begun
	if got := h.holds(); got == 0 || got > 10_000 {
		t.Errorf("%d bytes are reserved for a call of %d", got, len(body))
	}
	close(h.desk.release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	h.waitHeld(0)
}

// An id stands for one request until it is answered.
func TestIDTwice(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy()
	slow := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow"}}`
	answered := make(chan int, 1)
	go func() { status, _, _ := h.ask(slow, "Mcp-Session-Id", id); answered <- status }()
	<-h.desk.begun
	if status, _, body := h.ask(strings.Replace(echo, `"id":7`, `"id":1.0`, 1), "Mcp-Session-Id", id); status != 400 ||
		code(body) != -32600 {
		t.Errorf("%d %s", status, body)
	}
	close(h.desk.release)
	if status := <-answered; status != 200 {
		t.Errorf("the first: %d", status)
	}
}

// Two messages on one connection before the first is answered: each gets its own answer, in order.
func TestPipelined(t *testing.T) {
	h := open(t, Limits{})
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\n\r\n%s", len(hello), hello)
	}
	r := bufio.NewReader(c)
	ids := map[string]bool{}
	for range 2 {
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		ids[res.Header.Get("Mcp-Session-Id")] = true
	}
	if len(ids) != 2 {
		t.Errorf("%d sessions", len(ids))
	}
}

// A client that is gone ends what it asked for in the modern era, and not in the legacy one, where
// losing a connection means nothing.
func TestGone(t *testing.T) {
	h := open(t, Limits{})
	leave := func(body string, headers ...string) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		r, _ := http.NewRequestWithContext(ctx, "POST", h.url, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		go func() {
			<-h.desk.begun
			cancel()
		}()
		if res, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
	leave(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow",`+metaText+`}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "s__slow")
	select {
	case <-h.desk.ended:
	case <-time.After(time.Minute):
		t.Error("modern: the call goes on")
	}
	id := h.legacy()
	leave(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow"}}`, "Mcp-Session-Id", id)
	select {
	case <-h.desk.ended:
		t.Error("legacy: the call was ended")
	case <-time.After(300 * time.Millisecond):
	}
	if status, _, _ := h.ask(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		"Mcp-Session-Id", id); status != 202 {
		t.Errorf("cancelled: %d", status)
	}
	select {
	case <-h.desk.ended:
	case <-time.After(time.Minute):
		t.Error("legacy: a cancelled call goes on")
	}
}

// A silent stream carries comments, so that clients see it alive; a long answer becomes a stream.
func TestKeepAlive(t *testing.T) {
	h := open(t, Limits{KeepAlive: 50 * time.Millisecond})
	go func() {
		<-h.desk.begun
		time.Sleep(time.Second)
		close(h.desk.release)
	}()
	_, header, body := h.modern("tools/call", `"name":"s__slow"`, "Mcp-Name", "s__slow")
	if header.Get("Content-Type") != "text/event-stream" || strings.Count(body, ":\n\n") < 2 ||
		!strings.Contains(body, "event: message\ndata: {") || !strings.Contains(body, "fine") {
		t.Errorf("%v %s", header, body)
	}
}

// A shutdown completes the answers in progress, accepts nothing new, and ends streams.
func TestDrain(t *testing.T) {
	h := open(t, Limits{Drain: time.Minute})
	id := h.legacy()
	streams := make(chan string, 2)
	for _, r := range []func() (int, http.Header, string){
		func() (int, http.Header, string) { return h.ask("", "method", "GET", "Mcp-Session-Id", id) },
		func() (int, http.Header, string) {
			return h.modern("subscriptions/listen", `"notifications":{"toolsListChanged":true}`)
		},
	} {
		go func() { _, _, b := r(); streams <- b }()
	}
	answered := make(chan string, 1)
	go func() {
		_, _, b := h.modern("tools/call", `"name":"s__slow"`, "Mcp-Name", "s__slow")
		answered <- b
	}()
	<-h.desk.begun
	time.Sleep(100 * time.Millisecond)
	ended := make(chan struct{})
	go func() { h.stop(); close(ended) }()
	status := 0
	for end := time.Now().Add(10 * time.Second); status != 503 &&
		time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		status, _, _ = h.ask(echo, "Mcp-Session-Id", id)
	}
	if status != 503 {
		t.Errorf("while it ends: %d", status)
	}
	close(h.desk.release)
	if b := <-answered; !strings.Contains(b, "fine") {
		t.Errorf("what was being answered: %s", b)
	}
	for range 2 {
		<-streams
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the server goes on")
	}
}

// A page of an origin that was named may read the answers, and no other.
func TestPages(t *testing.T) {
	h := open(t, Limits{})
	for origin, want := range map[string]string{
		"https://console.example.com": "https://console.example.com", "http://" + h.addr: "", "": "",
	} {
		headers := []string{}
		if origin != "" {
			headers = []string{"Origin", origin}
		}
		status, header, _ := h.ask(hello, headers...)
		if got := header.Get("Access-Control-Allow-Origin"); status != 200 || got != want {
			t.Errorf("%q: %d %q", origin, status, got)
		}
	}
	status, header, _ := h.ask("", "method", "OPTIONS", "Origin", "https://console.example.com",
		"Access-Control-Request-Method", "POST", "Authorization", "Bearer nobody")
	if status != 204 || !strings.Contains(header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("the question before: %d %v", status, header)
	}
	if status, header, _ := h.ask("", "method", "OPTIONS", "Origin", "https://evil.example.com",
		"Access-Control-Request-Method", "POST"); status != 403 || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another page's: %d %v", status, header)
	}
}

// A mistake of waldo's own ends the request that it is in, and nothing else.
func TestMistake(t *testing.T) {
	h := open(t, Limits{})
	id := h.legacy()
	status, _, body := h.ask(strings.Replace(echo, "s__echo", "s__mistake", 1), "Mcp-Session-Id", id)
	if status != 500 || code(body) != -32603 || strings.Contains(body, "a mistake") {
		t.Errorf("%d %s", status, body)
	}
	if status, _, _ := h.ask(echo, "Mcp-Session-Id", id); status != 200 {
		t.Errorf("the next: %d", status)
	}
}

func TestHealth(t *testing.T) {
	h := open(t, Limits{})
	r, _ := http.NewRequest("GET", "http://"+h.addr+"/readyz", nil)
	r.Host = "10.1.2.3:7676"
	if res, err := patient.Do(r); err != nil || res.StatusCode != 200 {
		t.Errorf("by number: %v %v", res, err)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/": 404, "/mcp/": 404, "/../etc/passwd": 404,
	} {
		res, err := http.Get("http://" + h.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

// A GET without a session that is not the beginning of HTTP+SSE is refused at once, with where that begins.
func TestOldSSE(t *testing.T) {
	h := open(t, Limits{})
	for path, want := range map[string]int{"/mcp": 405, "/sse": 404} {
		r, _ := http.NewRequest("GET", "http://"+h.addr+path, nil)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("MCP-Protocol-Version", "2025-11-25")
		r.Header.Set("Authorization", "Bearer one")
		res, err := patient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want || path == "/sse" && !strings.Contains(string(b), "begin with a GET of /mcp") {
			t.Errorf("%s: %d %q", path, res.StatusCode, b)
		}
	}
}

// Each principal sees the tools that it may use, in either era, also where another's were listed just now.
func TestListsArePerPrincipal(t *testing.T) {
	h := open(t, Limits{})
	for _, token := range []string{"one", "two", "one"} {
		who := []string{"Authorization", "Bearer " + token}
		_, _, modern := h.modern("tools/list", "", who...)
		_, _, legacy := h.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			append(who, "Mcp-Session-Id", h.legacy(who...))...)
		for era, got := range map[string]string{"modern": modern, "legacy": legacy} {
			if !strings.Contains(got, "s__echo") || strings.Contains(got, "s__mistake") != (token == "one") {
				t.Errorf("%s, token %s: %s", era, token, got)
			}
		}
	}
}
