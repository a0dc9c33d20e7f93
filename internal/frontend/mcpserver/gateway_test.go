package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/demo/helpdesk"
	"waldo/internal/executor/upstream"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/catalogtest"
	"waldo/internal/testing/pipelinetest"
)

func parse(t testing.TB, s string) strictjson.Value {
	t.Helper()
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// desk is a pipeline for tests: it records its calls and answers by the capability's name.
type desk struct {
	t       testing.TB
	mu      sync.Mutex
	calls   []call.Call
	release chan struct{}
	ended   chan error
}

func (d *desk) last() call.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) == 0 {
		return call.Call{}
	}
	return d.calls[len(d.calls)-1]
}

func (d *desk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

const approvalID = "a_aaaaaaaaaaaaaaaaaaaaaaaaaa"

func (d *desk) call(ctx context.Context, c call.Call) (call.Result, error) {
	d.mu.Lock()
	d.calls = append(d.calls, c)
	d.mu.Unlock()
	f := facts.New()
	f.Status, f.SideEffect, f.CallID, f.DecisionID = facts.OK, facts.None, c.ID, "d_1"
	r := call.Result{
		CallID: c.ID, DecisionID: "d_1", Status: facts.OK, Facts: f, Content: []call.Content{call.Text("fine")},
	}
	switch c.Capability {
	case "s.own":
		r.Structured = parse(d.t, `{"n":9007199254740993,"status":"ok"}`)
		r.Content = append(r.Content, call.Content{
			Type: "image", Raw: parse(d.t, `{"type":"image","data":"aGk=","mimeType":"image/png"}`),
		})
	case "s.masked":
		r.Facts.Masked = 3
	case "s.bare":
		r.Structured, r.Content = parse(d.t, `{"n":1}`), nil
	case "s.empty":
		r.Content = []call.Content{call.Text("")}
	case "s.wait":
		if c.ApprovalID == "" {
			r.Status, r.Facts.Status, r.IsError, r.ApprovalID, r.Content = facts.Waiting, facts.Waiting, true, approvalID, nil
		}
	case "s.slow":
		if p := call.Progress(ctx); p != nil {
			p(1, 3, "")
			p(1, 3, "") // it does not grow
		}
		select {
		case <-d.release:
		case <-ctx.Done():
			d.ended <- ctx.Err()
			return r, ctx.Err()
		}
	case "s.broken":
		return call.Result{}, errors.New("open /var/lib/waldo/secret-path: no space left")
	case "s.timeout":
		wall := facts.LimitWall
		r.Status, r.Facts.Status, r.IsError = facts.Timeout, facts.Timeout, true
		r.Facts.TimedOut, r.Facts.Limit, r.Facts.SideEffect, r.Facts.Usage.WallMS = true, &wall, facts.Unknown, 8000
	case "s.echo", "run_python":
	default:
		r.Status, r.Facts.Status, r.IsError, r.Content = facts.Denied, facts.Denied, true, nil
		r.Why = []call.Reason{{Code: "contract.absent", Text: "no contract speaks of it", File: "waldo.yaml", Line: 3}}
	}
	return r, nil
}

func tools(t testing.TB) map[string]catalog.Source {
	var list []call.Tool
	for _, name := range []string{
		"own", "wait", "slow", "broken", "timeout", "echo", "hidden", "bare", "empty", "masked",
	} {
		input := `{"type":"object"}`
		if name == "echo" {
			input = `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`
		}
		list = append(list, call.Tool{Capability: call.Capability("s." + name), Description: "Does " + name + ".",
			Input:  parse(t, input),
			Output: parse(t, `{"type":"object"}`), Annotations: parse(t, `{"readOnlyHint":true}`),
			Digest: strictjson.Digest([]byte(name))})
	}
	return map[string]catalog.Source{"s": func(context.Context) ([]call.Tool, error) { return list, nil }}
}

func options(t testing.TB, d *desk) Options {
	cat := catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{Seen: func(c call.Capability) bool {
			return c != "s.hidden" && c != "s.nothing" && (strings.HasPrefix(string(c), "s.") || c == "run_python")
		}},
		Texts:    catalogtest.Words{},
		Builtins: catalog.Builtins(),
		Sources:  tools(t),
	})
	t.Cleanup(cat.Close)
	return Options{Version: "1", Catalogue: cat, Drain: time.Second,
		Pipeline: &pipelinetest.Pipeline{OnCall: d.call, OnMode: func(c call.Capability, _ strictjson.Value) (contract.Mode, int) {
			if c == "s.echo" {
				return contract.Read, 1
			}
			return contract.HighRisk, 3
		}}}
}

// pipeline returns the double that a test's options have.
func pipeline(o *Options) *pipelinetest.Pipeline { return o.Pipeline.(*pipelinetest.Pipeline) }

// consent returns that of questions, and gives the options one if they have none.
func consent(o *Options) *pipelinetest.Consent {
	if o.Consent == nil {
		o.Consent = &pipelinetest.Consent{}
	}
	return o.Consent.(*pipelinetest.Consent)
}

func newDesk(t testing.TB) *desk {
	return &desk{t: t, release: make(chan struct{}), ended: make(chan error, 1)}
}

// me is on the other side of every server here.
var me = Who{Session: "n_1", Principal: "os:1000"}

// start serves a new server on pipes until the test is over.
func start(t testing.TB, o Options) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	return serve(t, New(o))
}

// serve serves a server on pipes until the test is over.
func serve(t testing.TB, d *Server) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(context.Background(), inR, outW, me) }()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the server does not close")
		}
	})
	return inW, outR
}

// client joins the official SDK's client to a server, in the revision given.
func client(t testing.TB, o Options, revision string, co *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connect(t, New(o), revision, co)
}

// connect joins the official SDK's client to this server.
func connect(t testing.TB, d *Server, revision string, co *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	in, out := serve(t, d)
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, co).Connect(context.Background(),
		&mcp.IOTransport{Reader: out, Writer: in}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func say(r *mcp.CallToolResult) string {
	var out []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			out = append(out, t.Text)
		} else {
			out = append(out, fmt.Sprintf("%T", c))
		}
	}
	return strings.Join(out, "|")
}

var allRevisions = []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// The official SDK's client sees one and the same server in every revision of MCP.
func TestWithTheSDKInEveryRevision(t *testing.T) {
	for _, revision := range allRevisions {
		t.Run(revision, func(t *testing.T) {
			d := newDesk(t)
			s := client(t, options(t, d), revision, nil)
			defer s.Close()
			if got := s.InitializeResult(); got.ProtocolVersion != revision || got.ServerInfo.Name != "waldo" {
				t.Errorf("agreed on %s with %+v", got.ProtocolVersion, got.ServerInfo)
			}
			list, err := s.ListTools(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				if tool.Annotations.ReadOnlyHint != (tool.Name == "s__echo" || tool.Name == "search_tools") {
					t.Errorf("%s: the hint is the server's, not the contract's", tool.Name)
				}
				if tool.OutputSchema != nil {
					t.Errorf("%s: promises what a redacted result need not keep", tool.Name)
				}
			}
			if got := strings.Join(names, " "); got != "run_code run_python s__bare s__broken s__echo s__empty s__masked "+
				"s__own s__slow s__timeout s__wait search_tools" {
				t.Errorf("listed %s", got)
			}
			r, err := s.CallTool(context.Background(), &mcp.CallToolParams{
				Name: "s__echo", Arguments: map[string]any{"message": "hi"},
			})
			if err != nil || say(r) != "fine" || r.IsError {
				t.Fatalf("%v %+v", err, r)
			}
			c := d.last()
			if c.Capability != "s.echo" || c.Channel != "mcp" || c.Session != "n_1" || c.Principal != "os:1000" ||
				!id.Is(id.Call, c.ID) || c.Depth != 0 || c.Parent != "" {
				t.Errorf("the call: %+v", c)
			}
			if c.ToolDigest != strictjson.Digest([]byte("echo")) {
				t.Errorf("digest of the definition: %s", c.ToolDigest)
			}
			if f := told(r); r.Meta["waldo/decision_id"] != "d_1" || f["decision_id"] != "d_1" || f["timed_out"] != nil ||
				r.StructuredContent != nil {
				t.Errorf("facts: %v %v", r.Meta, r.StructuredContent)
			}
			if _, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "s__nope"}); code(err) != -32602 {
				t.Errorf("a tool that is not there: %v", err)
			}
		})
	}
}

func code(err error) int64 {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// told are the facts that stand beside a result.
func told(r *mcp.CallToolResult) map[string]any {
	f, _ := r.Meta["waldo/facts"].(map[string]any)
	return f
}

func TestResults(t *testing.T) {
	d := newDesk(t)
	s := client(t, options(t, d), "2025-11-25", nil)
	defer s.Close()
	ask := func(t *testing.T, name, args string) *mcp.CallToolResult {
		t.Helper()
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("an upstream's structure stays its own, and the facts stand beside it", func(t *testing.T) {
		r := ask(t, "s__own", `{}`)
		if b, _ := json.Marshal(r.StructuredContent); !strings.Contains(string(b), `"status":"ok"`) ||
			strings.Contains(string(b), "decision_id") {
			t.Errorf("structured: %s", b)
		}
		if told(r)["decision_id"] != "d_1" || say(r) != "fine|*mcp.ImageContent" {
			t.Errorf("meta: %v, content %s", r.Meta, say(r))
		}
	})
	t.Run("what is no structure of the tool's own is not given as one", func(t *testing.T) {
		for tool, args := range map[string]string{"run_python": `{"code":"print(1)"}`, "s__echo": `{"message":"hi"}`,
			"s__hidden": `{}`,
			"s__wait":   `{"a":9}`, "s__broken": `{}`, "s__timeout": `{}`, "search_tools": `{"query":"echo"}`} {
			r := ask(t, tool, args)
			if r.StructuredContent != nil {
				t.Errorf("%s: %v", tool, r.StructuredContent)
			}
			if _, ok := r.Content[0].(*mcp.TextContent); !ok || told(r)["call_id"] == nil && tool != "search_tools" {
				t.Errorf("%s: no text first, or no facts: %s %v", tool, say(r), r.Meta)
			}
		}
	})
	t.Run("a structure alone is readable, and nothing at all is said", func(t *testing.T) {
		r := ask(t, "s__bare", `{}`)
		if b, _ := json.Marshal(r.StructuredContent); say(r) != string(b) || string(b) != `{"n":1}` {
			t.Errorf("%s %v", say(r), r.StructuredContent)
		}
		if r := ask(t, "s__masked", `{}`); !strings.HasPrefix(say(r),
			"fine|waldo: values masked or given as tokens in this answer: 3.") || told(r)["masked"] != 3.0 {
			t.Errorf("%q %v", say(r), told(r))
		}
		if r := ask(t, "s__empty", `{}`); say(r) != "(no output)" || r.IsError {
			t.Errorf("%q", say(r))
		}
	})
	t.Run("a denial is a result with reasons", func(t *testing.T) {
		r := ask(t, "s__hidden", `{}`)
		if !r.IsError || !strings.Contains(say(r), "contract.absent: no contract speaks of it (waldo.yaml:3)") ||
			!strings.Contains(say(r), "Decision d_1") {
			t.Errorf("%s", say(r))
		}
		if b, _ := json.Marshal(r.Meta["waldo/reasons"]); !strings.Contains(string(b), `"code":"contract.absent"`) {
			t.Errorf("reasons: %s", b)
		}
		if d.last().Capability != "s.hidden" {
			t.Error("the attempt is not on record")
		}
	})
	t.Run("a call that waits says for what, and quotes it the next time", func(t *testing.T) {
		r := ask(t, "s__wait", `{"a":1}`)
		if !r.IsError || !strings.Contains(say(r), "waldo approve "+approvalID) || r.Meta["waldo/approval_id"] != approvalID {
			t.Errorf("%s %v", say(r), r.Meta)
		}
		if ask(t, "s__wait", `{"a":2}`); d.last().ApprovalID != "" {
			t.Error("an approval is quoted for other arguments")
		}
		if r := ask(t, "s__wait", `{ "a" : 1.0 }`); d.last().ApprovalID != approvalID || say(r) != "fine" {
			t.Errorf("the second time: %q %s", d.last().ApprovalID, say(r))
		}
		if ask(t, "s__wait", `{"a":1}`); d.last().ApprovalID != "" {
			t.Error("an approval that was used is quoted again")
		}
	})
	t.Run("a client may quote an approval, and claim nothing else", func(t *testing.T) {
		p := &mcp.CallToolParams{
			Name: "s__wait", Meta: mcp.Meta{"waldo/approval_id": approvalID, "approved": true, "waldo/principal": "os:0"},
		}
		if _, err := s.CallTool(context.Background(), p); err != nil || d.last().ApprovalID != approvalID ||
			d.last().Principal != "os:1000" {
			t.Errorf("%v %+v", err, d.last())
		}
		p.Meta = mcp.Meta{"waldo/approval_id": "x' OR 1=1"}
		if _, err := s.CallTool(context.Background(), p); err != nil || d.last().ApprovalID != "" {
			t.Errorf("what has not the form of an id: %v %+v", err, d.last())
		}
	})
	t.Run("an error of waldo's own says nothing of itself", func(t *testing.T) {
		r := ask(t, "s__broken", `{}`)
		b, _ := json.Marshal(r)
		if !r.IsError || strings.Contains(string(b), "secret-path") || !strings.Contains(say(r), d.last().ID) {
			t.Errorf("%s", b)
		}
	})
	t.Run("what became of a call that ran out of time", func(t *testing.T) {
		if r := ask(t, "s__timeout", `{}`); !strings.Contains(say(r),
			"ended as timeout at the limit on wall after 8.0 s; side effect: unknown") {
			t.Errorf("%s", say(r))
		}
	})
	t.Run("arguments that do not fit never enter the pipeline", func(t *testing.T) {
		before := d.count()
		for _, args := range []string{`{}`, `{"message":1}`} {
			if r := ask(t, "s__echo", args); !r.IsError || !strings.Contains(say(r), "do not fit the tool") {
				t.Errorf("%s: %s", args, say(r))
			}
		}
		if d.count() != before {
			t.Error("they did")
		}
	})
	t.Run("search", func(t *testing.T) {
		before := d.count()
		r := ask(t, "search_tools", `{"query":"echo","detail":"full"}`)
		b := say(r)
		if !strings.HasPrefix(b, `{"tools":[{"name":"s__echo","capability":"s.echo"`) ||
			!strings.Contains(b, "inputSchema") || strings.Contains(b, "hidden") {
			t.Errorf("%s", b)
		}
		if d.count() != before {
			t.Error("a question about the list went through the pipeline")
		}
	})
}

func TestCancellationAndProgress(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			d := newDesk(t)
			steps := make(chan float64, 10)
			s := client(t, options(t, d), revision,
				&mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					steps <- r.Params.Progress
				}})
			defer s.Close()
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() {
				_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "s__slow", Meta: mcp.Meta{"progressToken": "tok"}})
				done <- err
			}()
			if n := <-steps; n != 1 {
				t.Errorf("progress %v", n)
			}
			cancel()
			if err := <-d.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the pipeline saw %v", err)
			}
			<-done
			if len(steps) != 0 {
				t.Error("progress that does not grow was told")
			}
		})
	}
}

// When a server's tools change, a client that has seen the list gets a notification in the form of its revision.
func TestChangesOfTheListAreTold(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			d := newDesk(t)
			o := options(t, d)
			var mu sync.Mutex
			list := []call.Tool{{Capability: "x.a", Input: parse(t, `{}`), Digest: "1"}}
			o.Catalogue = catalog.New(catalog.Options{
				Contracts: catalogtest.Rules[catalog.Viewer]{},
				Sources: map[string]catalog.Source{"x": func(context.Context) ([]call.Tool, error) {
					mu.Lock()
					defer mu.Unlock()
					return list, nil
				}},
			})
			defer o.Catalogue.Close()
			told := make(chan struct{}, 10)
			s := client(t, o, revision,
				&mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
					told <- struct{}{}
				}})
			defer s.Close()
			if _, err := s.ListTools(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			list = []call.Tool{{Capability: "x.a", Input: parse(t, `{}`), Digest: "2"}}
			mu.Unlock()
			o.Catalogue.Invalidate("x")
			select {
			case <-told:
			case <-time.After(time.Minute):
				t.Fatal("nobody told the client")
			}
			if _, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "x__a"}); err != nil ||
				d.last().ToolDigest != "1" {
				t.Errorf("a call by a client that has seen the old definition: %v %+v", err, d.last())
			}
			if _, err := s.ListTools(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "x__a"}); err != nil ||
				d.last().ToolDigest != "2" {
				t.Errorf("and by one that has seen the new one: %v %+v", err, d.last())
			}
		})
	}
}

// When another catalogue is shown, a client that has seen the list is notified, although no server's list changes.
func TestReplacedCataloguesAreTold(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			o := options(t, newDesk(t))
			catalogue := func(name call.Capability) *catalog.Catalogue {
				c := catalog.New(catalog.Options{
					Contracts: catalogtest.Rules[catalog.Viewer]{},
					Builtins:  []call.Tool{{Capability: name, Input: parse(t, `{}`), Digest: "1"}},
				})
				t.Cleanup(c.Close)
				return c
			}
			o.Catalogue = catalogue("before")
			d := New(o)
			told := make(chan struct{}, 10)
			s := connect(t, d, revision,
				&mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
					told <- struct{}{}
				}})
			defer s.Close()
			listed := func() string {
				t.Helper()
				r, err := s.ListTools(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return r.Tools[0].Name
			}
			if got := listed(); got != "before" || len(told) != 0 {
				t.Errorf("control: listed %s, notified %d times", got, len(told))
			}
			d.Replace(catalogue("after"))
			select {
			case <-told:
			case <-time.After(10 * time.Second):
				t.Fatal("the client was not notified")
			}
			if got := listed(); got != "after" {
				t.Errorf("listed %s", got)
			}
		})
	}
}

func TestPagesOfTheList(t *testing.T) {
	var list []call.Tool
	for i := range 1200 {
		list = append(list, call.Tool{Capability: call.Capability(fmt.Sprintf("x.t%04d", i)), Input: parse(t, `{}`)})
	}
	o := options(t, newDesk(t))
	o.Catalogue = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{},
		Sources:   map[string]catalog.Source{"x": func(context.Context) ([]call.Tool, error) { return list, nil }},
	})
	defer o.Catalogue.Close()
	s := client(t, o, "2025-11-25", nil)
	defer s.Close()
	seen := map[string]bool{}
	pages, cursor := 0, ""
	for {
		r, err := s.ListTools(context.Background(), &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, tool := range r.Tools {
			if seen[tool.Name] {
				t.Fatalf("%s twice", tool.Name)
			}
			seen[tool.Name] = true
		}
		if cursor = r.NextCursor; cursor == "" {
			break
		}
	}
	if len(seen) != 1201 || pages != 3 {
		t.Errorf("%d tools on %d pages", len(seen), pages)
	}
}

// From the client of the official SDK, through the server and the list, with a grant, to the example
// server and back.
func TestThroughToAServer(t *testing.T) {
	m := upstream.New(map[string]contract.Server{"helpdesk": {}}, upstream.Options{Launcher: inside{}})
	defer m.Close()
	o := options(t, newDesk(t))
	o.Catalogue = catalog.New(catalog.Options{
		Contracts: catalogtest.Rules[catalog.Viewer]{},
		Texts:     catalogtest.Words{},
		Sources: map[string]catalog.Source{"helpdesk": func(ctx context.Context) ([]call.Tool, error) {
			return m.Tools(ctx, "helpdesk")
		}},
	})
	defer o.Catalogue.Close()
	pipeline(&o).OnCall = func(ctx context.Context, c call.Call) (call.Result, error) {
		d := policy.Decision{
			ID: id.New(id.Decision), Effect: policy.Allow, Call: c, Contract: contract.Contract{
				Mode: contract.Read, Timeout: 5 * time.Second,
			},
		}
		g, why := grant.Issue(d, nil, c.Args)
		if why != nil {
			return call.Result{}, errors.New(why.Code)
		}
		out, err := m.Execute(ctx, g)
		return call.Result{
			CallID: c.ID, DecisionID: d.ID, Status: out.Facts.Status, Content: out.Content, Structured: out.Structured,
			IsError: out.IsError, Facts: out.Facts,
		}, err
	}
	for _, revision := range allRevisions {
		s := client(t, o, revision, nil)
		list, err := s.ListTools(context.Background(), nil)
		if err != nil || len(list.Tools) != 8 {
			t.Fatalf("%d tools: %v", len(list.Tools), err)
		}
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{
			Name: "helpdesk__list_customers", Arguments: map[string]any{"limit": 500},
		})
		if err != nil || r.IsError {
			t.Fatalf("%v %s", err, say(r))
		}
		page, _ := r.StructuredContent.(map[string]any)
		if customers, _ := page["customers"].([]any); len(customers) != 500 || page["total"] != 5000.0 {
			t.Errorf("%d customers of %v", len(customers), page["total"])
		}
		if r, err = s.CallTool(context.Background(),
			&mcp.CallToolParams{Name: "helpdesk__list_customers", Arguments: map[string]any{"limit": 501}}); err != nil ||
			!r.IsError || !strings.Contains(say(r), "/limit: is too large") {
			t.Errorf("a page too long: %v %s", err, say(r))
		}
		_ = s.Close()
	}
}

// inside runs the example server in this process.
type inside struct{}

func (inside) Launch(context.Context, contract.Server, call.Session) (upstream.Process, error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	gone := make(chan struct{})
	go func() {
		_ = helpdesk.Serve(inR, outW)
		_ = outW.Close()
		close(gone)
	}()
	return upstream.Process{
		Stdin: inW, Stdout: outR, Wait: func() error { <-gone; return nil },
		Kill: func() { _, _ = inR.Close(), outR.Close() },
	}, nil
}

func BenchmarkCall(b *testing.B) {
	d := &desk{t: b}
	o := options(b, d)
	pipeline(&o).OnCall = func(_ context.Context, c call.Call) (call.Result, error) {
		return call.Result{
			CallID: c.ID, DecisionID: "d_1", Status: facts.OK, Facts: facts.New(), Content: []call.Content{call.Text("fine")},
		}, nil
	}
	in, out := start(b, o)
	frame := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","arguments":{"message":"` +
		strings.Repeat("x", 100) + `"}}}` + "\n"
	buf := make([]byte, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(in, frame); err != nil {
			b.Fatal(err)
		}
		if _, err := out.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// A host hears of a tool's hints what makes it more careful, and nothing that makes it less.
func TestHints(t *testing.T) {
	for _, row := range []struct{ why, server, annotations, read, other string }{
		{"waldo's own, a read by its contract", "", ``, `{"readOnlyHint":true}`, `{"readOnlyHint":false}`},
		{"a server that says nothing", "s", ``, `{"readOnlyHint":false}`, `{"readOnlyHint":false}`},
		{"a server that says that it reads", "s", `{"readOnlyHint":true}`, `{"readOnlyHint":true}`, `{"readOnlyHint":false}`},
		{"a server that says that it writes", "s", `{"readOnlyHint":false}`, `{"readOnlyHint":false}`,
			`{"readOnlyHint":false}`},
		{"what warns passes", "s", `{"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`,
			`{"destructiveHint":true,"idempotentHint":false,"openWorldHint":true,"readOnlyHint":false}`,
			`{"destructiveHint":true,"idempotentHint":false,"openWorldHint":true,"readOnlyHint":false}`},
		{"what reassures does not", "s", `{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`,
			`{"readOnlyHint":false}`, `{"readOnlyHint":false}`},
		{"what cannot be read reassures nobody", "s", `{"readOnlyHint":true,"destructiveHint":"no"}`,
			`{"readOnlyHint":false}`, `{"readOnlyHint":false}`},
	} {
		e := &catalog.Entry{Tool: call.Tool{Capability: "s.a", Server: row.server}}
		if row.annotations != "" {
			e.Annotations = parse(t, row.annotations)
		}
		for mode, want := range map[contract.Mode]string{contract.Read: row.read, contract.Write: row.other} {
			d := &Server{o: Options{Pipeline: &pipelinetest.Pipeline{
				OnMode: func(call.Capability, strictjson.Value) (contract.Mode, int) { return mode, mode.Danger() }}}}
			if got, err := json.Marshal(d.describe(e)["annotations"]); err != nil || string(got) != want {
				t.Errorf("%s, %s: %s, want %s (%v)", row.why, mode, got, want, err)
			}
		}
	}
}
