package upstream

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/demo/helpdesk"
	"waldo/internal/executor/upstream/outside"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/protocol/strictjson"
)

// fakes starts servers that are functions: each gets its own pipes, and Kill breaks them.
type fakes struct {
	serve  map[string]func(in *bufio.Scanner, out io.Writer)
	starts map[string]*atomic.Int64
	share  func() ([]string, error) // of every process; nil: none shares
}

func launchers(serve map[string]func(in *bufio.Scanner, out io.Writer)) *fakes {
	f := &fakes{serve: serve, starts: map[string]*atomic.Int64{}}
	for name := range serve {
		f.starts[name] = &atomic.Int64{}
	}
	return f
}

func (f *fakes) Launch(_ context.Context, s contract.Server, _ call.Session) (Process, error) {
	serve := f.serve[s.Name]
	if serve == nil {
		return Process{}, errors.New("no such program")
	}
	f.starts[s.Name].Add(1)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		lines := bufio.NewScanner(inR)
		lines.Buffer(nil, 64<<20)
		serve(lines, outW)
		_, _ = inR.Close(), outW.Close()
	}()
	var once sync.Once
	killed := make(chan struct{})
	kill := func() {
		once.Do(func() { _, _ = inR.Close(), outW.CloseWithError(io.ErrClosedPipe); close(killed) })
	}
	wait := func() error {
		select {
		case <-gone:
		case <-killed:
		}
		return nil
	}
	return Process{
		Stdin: inW, Stdout: outR, Wait: wait, Kill: kill, Sandbox: facts.Sandbox{Driver: "fake"}, Share: f.share,
	}, nil
}

// request is one message that a fake server reads.
type request struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments json.RawMessage
		Cursor    string
		RequestID json.RawMessage `json:"requestId"`
		Meta      map[string]any  `json:"_meta"`
	}
}

// legacy is a server of 2025-11-25 with the tools given; calls are answered by call, "" not at all.
func legacy(tools string, answer func(r request, out io.Writer) string) func(*bufio.Scanner, io.Writer) {
	return func(in *bufio.Scanner, out io.Writer) {
		for in.Scan() {
			var r request
			if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
				continue
			}
			var result string
			switch r.Method {
			case "initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`
			case "tools/list":
				result = `{"tools":` + tools + `}`
			case "tools/call":
				if result = answer(r, out); result == "" {
					continue
				}
			default:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", r.ID)
				continue
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
		}
	}
}

const (
	echoTool = `[{"name":"echo","description":"Says it again.","inputSchema":{"type":"object"}}]`
	fine     = `{"content":[{"type":"text","text":"fine"}]}`
)

func answers(result string) func(request, io.Writer) string {
	return func(request, io.Writer) string { return result }
}

func manager(t *testing.T, f *fakes, o Options) *Manager {
	t.Helper()
	servers := map[string]contract.Server{}
	for name := range f.serve {
		servers[name] = contract.Server{Command: []string{name}}
	}
	o.Launcher = f
	if o.Probe == 0 {
		o.Probe = 30 * time.Second // as long as a busy machine may take: every server here answers
	}
	m := New(servers, o)
	t.Cleanup(func() {
		done := make(chan struct{})
		go func() { _ = m.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			buf := make([]byte, 1<<16)
			t.Errorf("servers are still running:\n%s", buf[:runtime.Stack(buf, true)])
		}
	})
	return m
}

// decision is an allowed call as the pipeline makes it.
func decision(t *testing.T, cap, args string, c contract.Contract) policy.Decision {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	c.Transport = contract.MCP
	if c.Timeout == 0 {
		c.Timeout = 50 * time.Second
	}
	return policy.Decision{
		ID: id.New(id.Decision), Effect: policy.Allow, Contract: c,
		Call: call.Call{ID: id.New(id.Call), Capability: call.Capability(cap), Args: a},
	}
}

// A placeholder for the digest of a tool that was never shown.
const nobody = "nobody"

// shown is the digest of the tool that a decision is about, as the list of tools has it.
func shown(m *Manager, d policy.Decision) string {
	server, _, _ := strings.Cut(string(d.Call.Capability), ".")
	s := m.servers[cmp.Or(d.Contract.Server, server)]
	if s == nil {
		return ""
	}
	def, _ := s.find(context.Background(), d)
	if def == nil {
		return ""
	}
	return def.tool.Digest
}

func execute(t *testing.T, ctx context.Context, m *Manager, d policy.Decision) call.Outcome {
	t.Helper()
	switch d.Call.ToolDigest {
	case "":
		d.Call.ToolDigest = shown(m, d)
	case nobody:
		d.Call.ToolDigest = ""
	}
	g, why := grant.Issue(d, nil, d.Call.Args)
	if why != nil {
		t.Fatal(why)
	}
	o, err := m.Execute(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// late executes a call that times out after its server has received it. If a busy machine lets the time pass before
// that, the call is repeated, with more time.
func late(t *testing.T, m *Manager, d policy.Decision, heard *atomic.Int64) call.Outcome {
	t.Helper()
	for before := heard.Load(); ; d.Contract.Timeout *= 3 {
		o := execute(t, context.Background(), m, d)
		if heard.Load() > before || d.Contract.Timeout > 20*time.Second {
			return o
		}
	}
}

// mute makes a call that its server reads and does not answer, and that lasts until the test has ended. Waiting for
// it would take longer than any call can.
func mute(t *testing.T, m *Manager, capability string, heard *atomic.Int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	before, ended := heard.Load(), make(chan call.Outcome, 1)
	go func() {
		ended <- execute(t, ctx, m, decision(t, capability, `{}`, contract.Contract{Timeout: time.Hour}))
	}()
	t.Cleanup(func() {
		cancel()
		if o := <-ended; o.Facts.Status != facts.Cancelled {
			t.Errorf("a call that is not answered: %q %s", text(o), o.Facts.Status)
		}
	})
	for heard.Load() == before {
		time.Sleep(time.Millisecond)
	}
}

func text(o call.Outcome) string {
	var out []string
	for _, c := range o.Content {
		out = append(out, c.Text)
	}
	return strings.Join(out, "|")
}

func TestExecuteJudgesTheAnswer(t *testing.T) {
	read, write := contract.Contract{Mode: contract.Read}, contract.Contract{Mode: contract.Write}
	for _, row := range []struct {
		why    string
		c      contract.Contract
		answer string // the result
		want   string
		status facts.Status
		effect facts.SideEffect
	}{
		{"a clean read has no effect", read, fine, "fine", facts.OK, facts.None},
		{"a clean write is confirmed", write, fine, "fine", facts.OK, facts.Confirmed},
		{"high risk is the default, and no read", contract.Contract{}, fine, "fine", facts.OK, facts.Confirmed},
		{"a write that its tool answered with an error is confirmed", write,
			`{"content":[{"type":"text","text":"no"}],"isError":true}`, "no", facts.Failed, facts.Confirmed},
		{"a read that its tool answered with an error has no effect", read,
			`{"content":[{"type":"text","text":"no"}],"isError":true}`, "no", facts.Failed, facts.None},
		{"the error of a waldo that does not know is no answer", write,
			`{"content":[],"isError":true,"_meta":{"waldo/facts":{"side_effect":"unknown"}}}`, "", facts.Failed, facts.Unknown},
		{"the error of a waldo whose tool answered is one", write,
			`{"content":[],"isError":true,"_meta":{"waldo/facts":{"side_effect":"confirmed"}}}`, "", facts.Failed,
			facts.Confirmed},
		{"a word for true is no false", write, `{"content":[],"isError":"false"}`, "", facts.Failed, facts.Confirmed},
		{"a server does not say for itself that it only reads", write, `{"content":[],"isError":true,"readOnlyHint":true}`,
			"", facts.Failed, facts.Confirmed},
		{
			"a result that is no object", write, `"fine"`,
			"the server's answer is not a result of a tool; whether it took effect is not known: look before trying again",
			facts.Failed, facts.Unknown,
		},
		{
			"content that is no list", write, `{"content":"fine"}`,
			"the server's answer is not a result of a tool; whether it took effect is not known: look before trying again",
			facts.Failed, facts.Unknown,
		},
		{"a text without text", write, `{"content":[{"type":"text"}]}`,
			"the server's answer is not a result of a tool; whether it took effect is not known: look before trying again",
			facts.Failed, facts.Unknown},
		{
			"a question instead of an answer", write,
			`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}`,
			"the server asks for more before it answers: the operator does not let this server ask for elicitation/create",
			facts.Failed, facts.Unknown,
		},
		{"a task instead of an answer", write, `{"resultType":"task","taskId":"1"}`,
			"the server wants more than an answer to this call; that is not supported", facts.Failed, facts.Unknown},
		{"a task that calls itself nothing", write, `{"task":{"taskId":"1","status":"working"}}`,
			"the server's answer is not a result of a tool; whether it took effect is not known: look before trying again",
			facts.Failed, facts.Unknown},
		{"structure alone is an answer", write, `{"structuredContent":{"n":1}}`, "", facts.OK, facts.Confirmed},
		{
			"a page that is called an image", read,
			`{"content":[{"type":"image","mimeType":"text/html","data":"PHNjcmlwdD4="}]}`,
			"[what is no image and was called one was left out]", facts.OK, facts.None,
		},
		{"a sound that is not in base64", read, `{"content":[{"type":"audio","mimeType":"audio/wav","data":"<script>"}]}`,
			"[what is no audio and was called one was left out]", facts.OK, facts.None},
		{"content of an unknown type", read, `{"content":[{"type":"hologram","x":1},{"type":"text","text":"b"}]}`,
			"[content of an unknown type was left out]|b", facts.OK, facts.None},
	} {
		t.Run(row.why, func(t *testing.T) {
			m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, answers(row.answer))}),
				Options{})
			o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, row.c))
			if text(o) != row.want || o.Facts.Status != row.status || o.Facts.SideEffect != row.effect ||
				o.IsError != (row.status != facts.OK) {
				t.Errorf("got %q %s %s", text(o), o.Facts.Status, o.Facts.SideEffect)
			}
			if o.Facts.Usage.WallMS <= 0 || o.Facts.Limits.WallMS != 50000 || o.Facts.Sandbox.Driver != "fake" ||
				o.Trust != call.Untrusted {
				t.Errorf("facts: %+v trust %s", o.Facts, o.Trust)
			}
		})
	}
}

func TestExecuteKeepsBlocksAndStructure(t *testing.T) {
	image := `{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"priority":1}}`
	m := manager(t,
		launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(r request, _ io.Writer) string {
			return `{"content":[` + image + `],"structuredContent":{"n":9007199254740993,"args":` +
				string(r.Params.Arguments) + `}}`
		})}), Options{})
	o := execute(t, context.Background(), m,
		decision(t, "s.echo", `{"a": 9007199254740993, "b":"\u00e9"}`,
			contract.Contract{Mode: contract.Read, Trust: "partial"}))
	if len(o.Content) != 1 || string(o.Content[0].Raw.Raw()) != image || o.Trust != call.Partial {
		t.Errorf("content: %+v", o)
	}
	if got := string(o.Structured.Raw()); got != `{"n":9007199254740993,"args":{"a":9007199254740993,"b":"\u00e9"}}` {
		t.Errorf("structured: %s", got)
	}
}

func TestExecuteRefuses(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner,
		io.Writer){"s": legacy(`[{"name":"echo","inputSchema":{}},{"name":"e\nvil","inputSchema":{}},{"name":"two",`+
		`"inputSchema":{}},{"name":"two","inputSchema":{"a":1}},{"name":"deep","inputSchema":`+
		strings.Repeat(`{"properties":`, 250)+`{}`+strings.Repeat(`}`, 250)+`}]`, answers(fine))})
	m := manager(t, f, Options{})
	tools, err := m.Tools(context.Background(), "s")
	if err != nil || len(tools) != 1 { // what one definition is takes no other away
		t.Fatalf("%v %v", tools, err)
	}
	changed := decision(t, "s.echo", `{}`, contract.Contract{})
	changed.Call.ToolDigest = "sha256:other"
	same := decision(t, "s.echo", `{}`, contract.Contract{})
	same.Call.ToolDigest = tools[0].Digest
	renamed := decision(t, "tickets.new", `{}`, contract.Contract{Server: "s", Tool: "echo"})
	unseen := decision(t, "s.echo", `{}`, contract.Contract{})
	unseen.Call.ToolDigest = nobody
	for _, row := range []struct {
		why  string
		d    policy.Decision
		want string
	}{
		{"no such server", decision(t, "x.echo", `{}`, contract.Contract{}), "upstream.unbound"},
		{"no such tool", decision(t, "s.nope", `{}`, contract.Contract{}), "upstream.no_tool"},
		{"a name that is no name", decision(t, "s.e\nvil", `{}`, contract.Contract{}), "tool.name"},
		{"a schema that nests too deep", decision(t, "s.deep", `{}`, contract.Contract{}), "tool.deep"},
		{"a name that two tools have", decision(t, "s.two", `{}`, contract.Contract{}), "tool.twice"},
		{"another definition than was shown", changed, "upstream.changed"},
		{"a tool that was shown to nobody", unseen, "upstream.unseen"},
		{"control: the definition that was shown", same, "fine"},
		{"control: a capability under a name of the operator's", renamed, "fine"},
	} {
		t.Run(row.why, func(t *testing.T) {
			o := execute(t, context.Background(), m, row.d)
			if !strings.HasPrefix(text(o), row.want) {
				t.Errorf("got %q, want %q", text(o), row.want)
			}
			if row.want != "fine" && (o.Facts.Status != facts.Denied || o.Facts.SideEffect != facts.None || !o.IsError) {
				t.Errorf("facts: %+v", o.Facts)
			}
		})
	}
	if _, err := m.Execute(context.Background(), new(grant.Grant)); !errors.Is(err, grant.ErrSpent) {
		t.Errorf("a grant that was never issued: %v", err)
	}
}

// asIs leaves a text as it is.
type asIs struct{}

func (asIs) Clean(text string) string { return text }

func (asIs) Part(text string) bool { return strings.Contains(text, "hunter2hunter2") }

func (asIs) Window(text string, start, end int, _, _ bool) string { return text[max(0, start):end] }

// TestNamesWithSecrets: a tool or prompt whose name holds a part of a secret is not offered and cannot be called.
func TestNamesWithSecrets(t *testing.T) {
	list := `[{"name":"echo","inputSchema":{}},{"name":"x_hunter2hunter2_y","inputSchema":{}}]`
	m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(list, answers(fine))}),
		Options{Cleaner: asIs{}})
	tools, err := m.Tools(t.Context(), "s")
	if err != nil || len(tools) != 1 || tools[0].Capability != "s.echo" {
		t.Errorf("%v %v", tools, err)
	}
	o := execute(t, t.Context(), m, decision(t, "s.x_hunter2hunter2_y", `{}`, contract.Contract{}))
	if o.Refused == nil || o.Refused.Code != "tool.name" {
		t.Errorf("%+v", o.Refused)
	}
	if o := execute(t, t.Context(), m, decision(t, "s.echo", `{}`, contract.Contract{})); o.Refused != nil {
		t.Errorf("control: %+v", o.Refused)
	}
}

// TestUnseenUntilListed: the call that finds a server back, whose list nobody had, can be made again at once. One of a
// tool that was left out of a known list cannot.
func TestUnseenUntilListed(t *testing.T) {
	m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, answers(fine))}), Options{})
	for _, again := range []int{1, 0} {
		d := decision(t, "s.echo", `{}`, contract.Contract{})
		d.Call.ToolDigest = nobody
		o := execute(t, t.Context(), m, d)
		if o.Refused == nil || o.Refused.Code != "upstream.unseen" || o.Refused.RetryAfter != again {
			t.Errorf("%+v, want one after %d s", o.Refused, again)
		}
	}
}

// An answer to a call that nests too deep is refused, not cut.
func TestADeepAnswerIsMalformed(t *testing.T) {
	deep := `{"content":[],"structuredContent":` + strings.Repeat(`{"a":`, 250) + `1` + strings.Repeat(`}`, 250) + `}`
	m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, answers(deep))}), Options{})
	o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{}))
	if o.Facts.Status != facts.Failed || strings.Contains(text(o), strictjson.TooDeep) {
		t.Errorf("%q: %+v", text(o), o.Facts)
	}
}

// A server that dies over a call is started again for the next one. A read may be tried again where
// the contract says so; a write never is.
func TestDeath(t *testing.T) {
	for _, row := range []struct {
		why    string
		c      contract.Contract
		calls  int64
		status facts.Status
		effect facts.SideEffect
		want   string
	}{
		{
			"a write is not repeated, whatever the contract says",
			contract.Contract{Mode: contract.Write, Retry: contract.Retry{Max: 3, On: []string{"unavailable"}}}, 1, facts.Failed,
			facts.Unknown, "whether it took effect is not known",
		},
		{"a read is not repeated without a contract's word", contract.Contract{Mode: contract.Read}, 1, facts.Failed,
			facts.None, "nothing was changed"},
		{"a read is not repeated after another failure than named",
			contract.Contract{Mode: contract.Read, Retry: contract.Retry{Max: 3, On: []string{"timeout"}}}, 1, facts.Failed,
			facts.None, "nothing was changed"},
		{
			"a read is repeated as often as the contract says",
			contract.Contract{Mode: contract.Read, Retry: contract.Retry{Max: 1}}, 2, facts.Failed, facts.None,
			"nothing was changed",
		},
		{"a read that succeeds the third time", contract.Contract{Mode: contract.Read, Retry: contract.Retry{Max: 2}}, 3,
			facts.OK, facts.None, "fine"},
	} {
		t.Run(row.why, func(t *testing.T) {
			var calls atomic.Int64
			f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": func(in *bufio.Scanner, out io.Writer) {
				r, w := io.Pipe()
				go func() {
					for in.Scan() {
						fmt.Fprintln(w, in.Text())
					}
					_ = w.Close()
				}()
				legacy(echoTool, func(_ request, out io.Writer) string {
					if calls.Add(1) >= 3 {
						return fine
					}
					fmt.Fprint(out, `{"jsonrpc":"2.0","id":3,"resu`) // half a line, and it is gone
					_ = r.Close()
					return ""
				})(bufio.NewScanner(r), out)
			}})
			m := manager(t, f, Options{})
			o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, row.c))
			if calls.Load() != row.calls || o.Facts.Status != row.status || o.Facts.SideEffect != row.effect ||
				!strings.Contains(text(o), row.want) {
				t.Errorf("%d calls, %q %s %s", calls.Load(), text(o), o.Facts.Status, o.Facts.SideEffect)
			}
			calls.Store(5)
			if o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{})); text(o) != "fine" {
				t.Errorf("the next call: %q", text(o))
			}
			if n := f.starts["s"].Load(); n != min(row.calls, 2)+1 {
				t.Errorf("started %d times", n)
			}
		})
	}
}

// A server that exits before the next call may have ended in between: a read is retried on a new one. A write is not.
func TestDeathBetweenCalls(t *testing.T) {
	for _, row := range []struct {
		why    string
		mode   contract.Mode
		calls  int64
		want   string
		effect facts.SideEffect
	}{
		{"a read is asked again", contract.Read, 3, "fine", facts.None},
		{"a write is not", contract.Write, 2, "whether it took effect is not known", facts.Unknown},
	} {
		t.Run(row.why, func(t *testing.T) {
			var calls atomic.Int64
			m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){"s": func(in *bufio.Scanner, out io.Writer) {
				r, w := io.Pipe()
				go func() {
					for in.Scan() {
						fmt.Fprintln(w, in.Text())
					}
					_ = w.Close()
				}()
				legacy(echoTool, func(request, io.Writer) string {
					if calls.Add(1) == 2 {
						_ = r.Close()
						return ""
					}
					return fine
				})(bufio.NewScanner(r), out)
			}}), Options{})
			d := decision(t, "s.echo", `{}`, contract.Contract{Mode: row.mode})
			if o := execute(t, context.Background(), m, d); text(o) != "fine" {
				t.Fatalf("control: %q", text(o))
			}
			o := execute(t, context.Background(), m, d)
			if calls.Load() != row.calls || !strings.Contains(text(o), row.want) || o.Facts.SideEffect != row.effect {
				t.Errorf("%d calls: %q %s", calls.Load(), text(o), o.Facts.SideEffect)
			}
		})
	}
}

func TestTimeoutAndCancellation(t *testing.T) {
	told := make(chan string, 10)
	var heard atomic.Int64
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": func(in *bufio.Scanner, out io.Writer) {
		r, w := io.Pipe()
		go func() {
			for in.Scan() {
				if strings.Contains(in.Text(), "cancelled") {
					told <- in.Text()
				}
				fmt.Fprintln(w, in.Text())
			}
			_ = w.Close()
		}()
		legacy(echoTool, func(r request, out io.Writer) string {
			if strings.Contains(string(r.Params.Arguments), "chatty") {
				fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			}
			if strings.Contains(string(r.Params.Arguments), "fine") {
				return fine
			}
			heard.Add(1)
			return ""
		})(bufio.NewScanner(r), out)
	}})
	m := manager(t, f, Options{})
	short := contract.Contract{Mode: contract.Write, Timeout: 100 * time.Millisecond}
	if o := execute(t, context.Background(), m,
		decision(t, "s.echo", `{"a":"fine"}`, contract.Contract{})); text(o) != "fine" {
		t.Fatalf("control: %q", text(o))
	}
	o := late(t, m, decision(t, "s.echo", `{"a":"chatty"}`, short), &heard)
	if o.Facts.Status != facts.Timeout || !o.Facts.TimedOut || o.Facts.Limit == nil || *o.Facts.Limit != facts.LimitWall ||
		o.Facts.SideEffect != facts.Unknown {
		t.Errorf("timeout: %+v", o.Facts)
	}
	if s := <-told; !strings.Contains(s, `"requestId":`) {
		t.Errorf("told the server: %s", s)
	}
	if f.starts["s"].Load() != 1 {
		t.Error("a server that still talks was ended over one slow call")
	}
	ctx, cancel := context.WithCancel(context.Background())
	before := heard.Load()
	go func() {
		for heard.Load() == before {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	o = execute(t, ctx, m, decision(t, "s.echo", `{"a":"chatty"}`, contract.Contract{}))
	if o.Facts.Status != facts.Cancelled || o.Facts.SideEffect != facts.Unknown {
		t.Errorf("cancelled: %+v", o.Facts)
	}
	<-told
	if o = late(t, m, decision(t, "s.echo", `{"a":"silent"}`, short), &heard); o.Facts.Status != facts.Timeout {
		t.Errorf("silent: %+v", o.Facts)
	}
	if o := execute(t, context.Background(), m, decision(t, "s.echo", `{"a":"fine"}`, contract.Contract{})); text(o) !=
		"fine" || f.starts["s"].Load() != 2 {
		t.Errorf("after silence: %q, %d starts", text(o), f.starts["s"].Load())
	}
}

// One server's behaviour affects no other, and its memory is separate from ours.
func TestOneServerDoesNotReachAnother(t *testing.T) {
	var heard [6]atomic.Int64
	forever := func(n int, chunk string) func(*bufio.Scanner, io.Writer) {
		return legacy(echoTool, func(_ request, out io.Writer) string {
			for heard[n].Add(1); ; {
				if _, err := io.WriteString(out, chunk); err != nil {
					return ""
				}
			}
		})
	}
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){
		"good":    legacy(echoTool, answers(fine)),
		"endless": forever(0, strings.Repeat("x", 1<<20)),
		"flood":   forever(1, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}`+"\n"),
		"logs":    forever(2, "hello world\n"),
		"asks":    forever(3, `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`+"\n"),
		"deaf":    legacy(echoTool, func(request, io.Writer) string { heard[4].Add(1); select {} }),
		"mute":    legacy(echoTool, func(request, io.Writer) string { heard[5].Add(1); return "" }),
	})
	m := manager(t, f, Options{})
	mute(t, m, "mute.echo", &heard[5])
	short := contract.Contract{Timeout: 700 * time.Millisecond}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for n, name := range []string{"endless", "flood", "logs", "asks", "deaf"} {
		d, want := decision(t, name+".echo", `{}`, short), facts.Timeout
		if name == "endless" { // it ends by its size, however long a busy machine takes
			d, want = decision(t, name+".echo", `{}`, contract.Contract{}), facts.Failed
		}
		wg.Go(func() {
			o := late(t, m, d, &heard[n])
			stopped := strings.Contains(text(o), "sent messages without pause") // TestFlood judges when
			if (o.Facts.Status != want && !stopped) || o.Facts.SideEffect != facts.Unknown {
				t.Errorf("%s: %q %s", name, text(o), o.Facts.Status)
			}
		})
	}
	for range 50 {
		if o := execute(t, context.Background(), m, decision(t, "good.echo", `{}`, contract.Contract{})); text(o) != "fine" {
			t.Fatalf("good: %q", text(o))
		}
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 100<<20 {
		t.Errorf("%d MiB are held", held>>20)
	}
}

// A log line before the answer, an answer to another id, two answers: none of it is taken for the answer.
func TestNoiseIsNotTheAnswer(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(r request, out io.Writer) string {
		fmt.Fprintln(out, "hello world")
		fmt.Fprintln(out, `{"jsonrpc":"2.0","id":424242,"result":{"content":[{"type":"text","text":"wrong id"}]}}`)
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"method":"nobody/asks","params":[]}`+"\n", r.ID)
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, fine)
		return `{"content":[{"type":"text","text":"again"}]}`
	})})
	m := manager(t, f, Options{})
	for range 3 {
		if o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{})); text(o) != "fine" {
			t.Errorf("got %q", text(o))
		}
	}
}

func TestRequestsOfServersAreRefused(t *testing.T) {
	replies := make(chan string, 10)
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": func(in *bufio.Scanner, out io.Writer) {
		r, w := io.Pipe()
		go func() {
			for in.Scan() {
				if !strings.Contains(in.Text(), `"method"`) {
					replies <- in.Text()
					continue
				}
				fmt.Fprintln(w, in.Text())
			}
			_ = w.Close()
		}()
		legacy(echoTool, func(r request, out io.Writer) string {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"method":"ping"}`+"\n", r.ID) // the gateway's id
			for i, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"method":%q}`+"\n", 100+i, method)
			}
			return fine
		})(bufio.NewScanner(r), out)
	}})
	m := manager(t, f, Options{})
	if o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{})); text(o) != "fine" {
		t.Errorf("the call: %q", text(o))
	}
	for _, want := range []string{`"result":{}`, "does not offer", "does not offer", "does not offer"} {
		select {
		case got := <-replies:
			if !strings.Contains(got, want) {
				t.Errorf("reply %s, want %s", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no reply")
		}
	}
}

// Servers of every kind are reached: those that know the newest revision, and those that answer it with an error,
// with silence, or by exiting.
func TestAgreement(t *testing.T) {
	modern := func(in *bufio.Scanner, out io.Writer) {
		for in.Scan() {
			var r request
			if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
				continue
			}
			if r.Params.Meta["io.modelcontextprotocol/protocolVersion"] != "2026-07-28" ||
				r.Params.Meta["io.modelcontextprotocol/clientCapabilities"] == nil {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no _meta"}}`+"\n", r.ID)
				continue
			}
			result := map[string]string{
				"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},` +
					`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"1"}}}`,
				"tools/list": `{"resultType":"complete","tools":` + echoTool + `}`,
				"tools/call": `{"resultType":"complete","content":[{"type":"text","text":"fine"}]}`,
			}[r.Method]
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
		}
	}
	first := func(then func(*bufio.Scanner, io.Writer), over func(line string) bool) func(*bufio.Scanner, io.Writer) {
		return func(in *bufio.Scanner, out io.Writer) {
			if !in.Scan() {
				return
			}
			line := in.Text()
			if over(line) {
				return
			}
			r, w := io.Pipe()
			go func() {
				fmt.Fprintln(w, line)
				for in.Scan() {
					fmt.Fprintln(w, in.Text())
				}
				_ = w.Close()
			}()
			then(bufio.NewScanner(r), out)
		}
	}
	old := legacy(echoTool, answers(fine))
	discover := func(line string) bool { return strings.Contains(line, "server/discover") }
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){
		"modern": modern,
		"legacy": old,
		"silent": func(in *bufio.Scanner, out io.Writer) {
			r, w := io.Pipe()
			go func() {
				for in.Scan() {
					if !discover(in.Text()) {
						fmt.Fprintln(w, in.Text())
					}
				}
				_ = w.Close()
			}()
			old(bufio.NewScanner(r), out)
		},
		"slow": func(in *bufio.Scanner, out io.Writer) {
			time.Sleep(1500 * time.Millisecond)
			modern(in, out)
		},
		"ends": first(old, discover),
		"wedged": first(old, func(line string) bool {
			if discover(line) {
				<-t.Context().Done()
			}
			return discover(line)
		}),
	})
	for name, want := range map[string]struct {
		revision string
		starts   int64
		probe    time.Duration // short for the silent
	}{
		"modern": {"2026-07-28", 1, 0}, "slow": {"2026-07-28", 1, time.Second}, "legacy": {"2025-11-25", 1, 0},
		"silent": {"2025-11-25", 1, 2 * time.Second}, "ends": {"2025-11-25", 2, 0},
		"wedged": {"2025-11-25", 2, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manager(t, f, Options{Probe: want.probe})
			if o := execute(t, context.Background(), m,
				decision(t, name+".echo", `{}`, contract.Contract{})); text(o) != "fine" {
				t.Errorf("%q", text(o))
			}
			for _, s := range m.Status() {
				if s.Server == name && s.Revision != want.revision {
					t.Errorf("revision %q", s.Revision)
				}
			}
			if n := f.starts[name].Load(); n != want.starts {
				t.Errorf("started %d times, want %d", n, want.starts)
			}
		})
	}
}

func TestServersThatCannotBeUsed(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){
		"gone": func(*bufio.Scanner, io.Writer) {},
		"odd": func(in *bufio.Scanner, out io.Writer) {
			for in.Scan() {
				var r request
				_ = json.Unmarshal(in.Bytes(), &r)
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"1999-01-01"}}`+"\n", r.ID)
			}
		},
	})
	m := manager(t, f, Options{})
	for _, name := range []string{"gone", "odd"} {
		begun := time.Now()
		for range 5 {
			o := execute(t, context.Background(), m, decision(t, name+".echo", `{}`, contract.Contract{}))
			if o.Facts.Status != facts.Failed || o.Facts.SideEffect != facts.None ||
				!strings.Contains(text(o), "failed to start") {
				t.Errorf("%s: %q %+v", name, text(o), o.Facts)
			}
		}
		if n, moments := f.starts[name].Load(), int64(time.Since(begun)/firstRest); n > 4+2*moments {
			t.Errorf("%s was started %d times in %d moments", name, n, 1+moments)
		}
	}
	if st := m.Status(); st[1].Server != "odd" || !strings.Contains(st[1].Error, "1999-01-01") {
		t.Errorf("status: %+v", st)
	}
}

func TestPages(t *testing.T) {
	page := func(r request) string {
		n := 0
		_, _ = fmt.Sscanf(r.Params.Cursor, "p%d", &n)
		next := fmt.Sprintf(`,"nextCursor":"p%d"`, n+1)
		if n == 3 {
			next = ""
		}
		return fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{}}]%s}`, n, next)
	}
	serve := func(list func(r request) string) func(*bufio.Scanner, io.Writer) {
		return func(in *bufio.Scanner, out io.Writer) {
			for in.Scan() {
				var r request
				if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
					continue
				}
				result := `{"protocolVersion":"2025-06-18","serverInfo":{"name":"x"}}`
				if r.Method == "tools/list" {
					result = list(r)
				}
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
			}
		}
	}
	m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){
		"pages":   serve(page),
		"circle":  serve(func(request) string { return `{"tools":[],"nextCursor":"again"}` }),
		"endless": serve(func(r request) string { return `{"tools":[],"nextCursor":"` + r.Params.Cursor + `x"}` }),
		"none":    serve(func(request) string { return `{}` }),
	}), Options{})
	tools, err := m.Tools(context.Background(), "pages")
	if err != nil || len(tools) != 4 || tools[3].Capability != "pages.t3" {
		t.Errorf("%v %v", tools, err)
	}
	for _, name := range []string{"circle", "endless"} {
		if _, err := m.Tools(context.Background(), name); err == nil || !strings.Contains(err.Error(), "does not end") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Tools(context.Background(), "none"); err == nil ||
		!strings.Contains(err.Error(), "it holds no list of tools") {
		t.Errorf("none: %v", err)
	}
}

func TestIdleServersEnd(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, answers(fine))})
	m := New(map[string]contract.Server{"s": {IdleTimeout: 50 * time.Millisecond}},
		Options{Launcher: f, Probe: 30 * time.Second})
	defer m.Close()
	for want := int64(1); want <= 2; want++ {
		if o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{})); text(o) != "fine" {
			t.Fatal(text(o))
		}
		if got := f.starts["s"].Load(); got < want { // it may be idle before the call, too
			t.Errorf("started %d times, want %d", got, want)
		}
		for end := time.Now().Add(time.Minute); m.Status()[0].Running && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
		if m.Status()[0].Running {
			t.Fatal("it is still running")
		}
	}
}

func TestProgress(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(r request, out io.Writer) string {
		b, _ := json.Marshal(r.Params.Meta["progressToken"])
		fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,`+
			`"total":4,"message":"secret"}}`+"\n", b)
		return fine
	})})
	m := manager(t, f, Options{})
	var done, total float64
	ctx := call.WithProgress(context.Background(), func(d, t float64, _ string) { done, total = d, t })
	execute(t, ctx, m, decision(t, "s.echo", `{}`, contract.Contract{}))
	if done != 1 || total != 4 {
		t.Errorf("progress %v of %v", done, total)
	}
}

// A real process of the example server, with its group and its environment. lingers is a server that ignores its
// input. It has left an orphan process in a session of its own, and prints both pids.
var lingers = []string{
	"/bin/sh", "-c", "orphan=$(setsid sleep 1000 >/dev/null 2>&1 & echo $!); echo $$ $orphan; exec sleep 1000",
}

// killedWaldo acts as a waldo that is about to be killed: it starts a server outside any sandbox, prints its pids,
// and waits.
func killedWaldo() {
	p, err := Exec(context.Background(), lingers, nil, "/")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
	fmt.Print(line)
	select {}
}

func TestMain(m *testing.M) {
	outside.Main()
	if os.Getenv("WALDO_TEST_SERVER") == "killed" {
		killedWaldo()
	}
	if os.Getenv("WALDO_TEST_SERVER") == "helpdesk" {
		fmt.Fprintln(os.Stderr, "helpdesk is here, token=hunter2")
		if err := helpdesk.Serve(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type processes struct{ t testing.TB }

func (processes) Launch(ctx context.Context, s contract.Server, _ call.Session) (Process, error) {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	return Exec(ctx, s.Command, env, os.TempDir())
}

func TestRealProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := New(map[string]contract.Server{"helpdesk": {Command: []string{self},
		Env: map[string]string{"WALDO_TEST_SERVER": "helpdesk"}, Placement: "outside"}},
		Options{Launcher: processes{t}, Log: slog.New(slog.DiscardHandler)})
	defer m.Close()
	o := execute(t, context.Background(), m,
		decision(t, "helpdesk.get_customer", `{"id":1}`, contract.Contract{Mode: contract.Read}))
	if o.IsError || !strings.Contains(text(o), "@customer.example") || o.Structured.IsZero() {
		t.Errorf("%q", text(o))
	}
	if len(o.Facts.Warnings) != 1 || !strings.Contains(o.Facts.Warnings[0], "outside any sandbox") {
		t.Errorf("warnings: %v", o.Facts.Warnings)
	}
}

func BenchmarkExecute(b *testing.B) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, answers(fine))})
	m := New(map[string]contract.Server{"s": {}}, Options{Launcher: f})
	defer m.Close()
	a, _ := call.ParseArgs([]byte(`{"a":"` + strings.Repeat("x", 100) + `"}`))
	d := policy.Decision{
		ID: "d_1", Effect: policy.Allow, Contract: contract.Contract{Mode: contract.Read},
		Call: call.Call{Capability: "s.echo", Args: a},
	}
	b.ReportAllocs()
	for b.Loop() {
		g, _ := grant.Issue(d, nil, a)
		if o, err := m.Execute(context.Background(), g); err != nil || o.IsError {
			b.Fatal(err, text(o))
		}
	}
}
