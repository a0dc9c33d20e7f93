package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// person answers what it is asked, with answer, after wait.
type person struct {
	answer string
	wait   chan struct{} // nil: at once
	mute   bool          // it announced no support for requests
	mu     sync.Mutex
	asked  []string
	logged []string
}

func (p *person) Abilities() call.Abilities {
	if p.mute {
		return call.Abilities{}
	}
	v, _ := strictjson.Parse([]byte(`{"form":{},"url":{}}`))
	o, _ := strictjson.Parse([]byte(`{}`))
	return call.Abilities{Elicitation: v, Sampling: o, Roots: o, Log: "info"}
}

func (p *person) Ask(
	ctx context.Context, server string, asked map[string]call.Question,
) (map[string]strictjson.Value, error) {
	out := map[string]strictjson.Value{}
	p.mu.Lock()
	for key, q := range asked {
		p.asked = append(p.asked, server+" "+q.Method+" "+string(q.Params.Raw()))
		v, err := strictjson.Parse([]byte(p.answer))
		if err != nil {
			return nil, &call.Fault{Code: -1, Message: p.answer}
		}
		out[key] = v
	}
	p.mu.Unlock()
	if p.wait != nil {
		select {
		case <-p.wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, nil
}

func (p *person) Log(server, level string, params strictjson.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logged = append(p.logged, level)
}

func (p *person) count() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.asked) }

const accept = `{"action":"accept","content":{"name":"Ann"},"_meta":{"x":1},"more":true}`

// nosy is a legacy server that asks the given questions during a call, one after the other, and answers with the
// replies.
func nosy(questions ...string) func(*bufio.Scanner, io.Writer) {
	return func(in *bufio.Scanner, out io.Writer) {
		var caller json.RawMessage
		var heard []string
		next := 0
		step := func() {
			if next < len(questions) {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":"q%d",%s}`+"\n", next, questions[next])
				next++
				return
			}
			b, _ := json.Marshal(strings.Join(heard, "|"))
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", caller, b)
			heard, next = nil, 0
		}
		for in.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
				Result json.RawMessage
				Error  struct{ Message string }
			}
			if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
				continue
			}
			switch m.Method {
			case "":
				if m.Error.Message != "" {
					heard = append(heard, "error: "+m.Error.Message)
				} else {
					heard = append(heard, string(m.Result))
				}
				step()
			case "initialize":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},`+
					`"logging":{}},"serverInfo":{"name":"nosy","version":"1"}}}`+"\n", m.ID)
			case "tools/list":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"tools":%s}}`+"\n", m.ID, echoTool)
			case "tools/call":
				caller = m.ID
				step()
			case "logging/setLevel":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
			default:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
			}
		}
	}
}

// asking is a manager of one server with the questions that the operator allows.
func asking(t *testing.T, a contract.Asks, serve func(*bufio.Scanner, io.Writer)) (*Manager, *fakes) {
	t.Helper()
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": serve})
	m := manager(t, f, Options{})
	m.servers["s"].cfg.Asks = a
	return m, f
}

const form = `"method":"elicitation/create","params":{"message":"name?","requestedSchema":{"type":"object",` +
	`"properties":{"name":{"type":"string"}}},"task":{},"_meta":{"a":1}}`

func elicitation(params string) string {
	return `"method":"elicitation/create","params":` + params
}

// Which questions a server can ask, how they are shown, and the answers that return.
func TestPermittedQuestions(t *testing.T) {
	all := contract.Asks{Form: true, URL: true, Sampling: true, HostRoots: true}
	for _, row := range []struct {
		why      string
		asks     contract.Asks
		question string
		answer   string
		heard    string // by the server
		shown    string // to the person; empty: nothing
	}{
		{"a form, with the server's name and without what is not of the protocol", all, form, accept,
			`{"action":"accept","content":{"name":"Ann"}}`,
			`s elicitation/create {"message":"The server \"s\" asks, not waldo: name?","requestedSchema":{"type":"object",` +
				`"properties":{"name":{"type":"string"}}}}`},
		{"a form without the operator's word", contract.Asks{URL: true}, form, accept,
			"error: the operator does not let this server ask for elicitation/create", ""},
		{"mute: a form that the host does not show", all, form, accept,
			"error: the agent's host does not answer elicitation/create", ""},
		{"mute: sampling that the host does not do", all, `"method":"sampling/createMessage","params":{"messages":[]}`,
			accept, "error: the agent's host does not answer", ""},
		{"a declined form brings no content", all, form, `{"action":"decline","content":{"name":"Ann"}}`,
			`{"action":"decline"}`, "s elicitation/create"},
		{"an answer that is none", all, form, `{"action":"perhaps"}`, "error: there was no answer that fits",
			"s elicitation/create"},
		{
			"a form for a password", all,
			elicitation(`{"message":"m","requestedSchema":{"type":"object","properties":{"Password":{"type":"string"}}}}`),
			accept, "error: a form must not ask for a secret", "",
		},
		{
			"a field that is titled so", all,
			elicitation(`{"message":"m","requestedSchema":{"type":"object","properties":{"x":{"type":"string",` +
				`"title":"API key"}}}}`), accept, "error: a form must not ask for a secret", "",
		},
		{"a form without a schema", all, elicitation(`{"message":"m"}`), accept,
			"error: requestedSchema must be the schema of an object", ""},
		{"an address in full", all, elicitation(`{"mode":"url","message":"m","url":"https://a.example/x?y=1"}`),
			`{"action":"accept"}`, `{"action":"accept"}`,
			`s elicitation/create {"message":"The server \"s\" asks, not waldo: m\nThe whole address is ` +
				`https://a.example/x?y=1","mode":"url","url":"https://a.example/x?y=1"}`},
		{"an address without the operator's word", contract.Asks{Form: true},
			elicitation(`{"mode":"url","message":"m","url":"https://a.example/"}`), accept,
			"error: the operator does not let", ""},
		{"an address that runs", all, elicitation(`{"mode":"url","message":"m","url":"javascript:alert(1)"}`), accept,
			"error: the address is not one", ""},
		{"an address in the clear", all, elicitation(`{"mode":"url","message":"m","url":"http://a.example/"}`), accept,
			"error: the address is not one", ""},
		{
			"an address with a user that looks like a host", all,
			elicitation(`{"mode":"url","message":"m","url":"https://bank.example@evil.example/"}`), accept,
			"error: the address is not one", "",
		},
		{
			"an address with letters that look like others", all,
			elicitation(`{"mode":"url","message":"m","url":"https://b\u0430nk.example/"}`), accept,
			"error: the address is not one", "",
		},
		{"an unknown mode", all, elicitation(`{"mode":"brain","message":"m"}`), accept,
			"error: this client does not offer", ""},
		{"sampling, without other servers' context", all,
			`"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"includeContext":"allServers","tools":[],` +
				`"metadata":{"a":1}}`,
			`{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m","_meta":{}}`,
			`{"content":{"type":"text","text":"hi"},"model":"m","role":"assistant"}`,
			`s sampling/createMessage {"maxTokens":5,"messages":[]}`},
		{"sampling without the operator's word", contract.Asks{Form: true},
			`"method":"sampling/createMessage","params":{"messages":[]}`, accept, "error: the operator does not let", ""},
		{"the folders of the host", all, `"method":"roots/list"`, `{"roots":[{"uri":"file:///a"}]}`,
			`{"roots":[{"uri":"file:///a"}]}`, "s roots/list {}"},
		{"the folders of the operator", contract.Asks{Roots: []string{"/srv/a b"}}, `"method":"roots/list"`, accept,
			`{"roots":[{"name":"a b","uri":"file:///srv/a%20b"}]}`, ""},
		{"folders without the operator's word", contract.Asks{Form: true}, `"method":"roots/list"`, accept,
			"error: the operator does not let", ""},
		{"anything else", all, `"method":"tasks/list"`, accept, "error: this client does not offer", ""},
		{"the host's own no", all, form, "no JSON: the host says no", "error: the host refused: no JSON",
			"s elicitation/create"},
	} {
		t.Run(row.why, func(t *testing.T) {
			p := &person{answer: row.answer, mute: strings.HasPrefix(row.why, "mute")}
			m, _ := asking(t, row.asks, nosy(row.question))
			o := execute(t, call.WithHost(context.Background(), p), m,
				decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
			if !strings.HasPrefix(text(o), row.heard) {
				t.Errorf("the server heard %s", text(o))
			}
			got := strings.Join(p.asked, "\n")
			if !strings.HasPrefix(got, row.shown) || (row.shown == "") != (got == "") {
				t.Errorf("the person saw %s", got)
			}
		})
	}
}

// A server that asks without end gets a refusal.
func TestALoopOfQuestionsEnds(t *testing.T) {
	var many []string
	for range maxAsks + 1 {
		many = append(many, form)
	}
	p := &person{answer: accept}
	m, _ := asking(t, contract.Asks{Form: true}, nosy(many...))
	o := execute(t, call.WithHost(context.Background(), p), m,
		decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
	if p.count() != maxAsks || !strings.HasSuffix(text(o), "error: at most 10 questions are passed on in one call") {
		t.Errorf("asked %d times: %s", p.count(), text(o))
	}
	loop := func(in *bufio.Scanner, out io.Writer) { // a modern one, which asks by answering
		for in.Scan() {
			var r request
			_ = json.Unmarshal(in.Bytes(), &r)
			result := `{"resultType":"input_required","inputRequests":{"q":{` + form + `}},"requestState":"s"}`
			switch r.Method {
			case "server/discover":
				result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,` +
					`"cacheScope":"private"}`
			case "tools/list":
				result = `{"resultType":"complete","tools":` + echoTool + `}`
			case "tools/call":
			default:
				continue
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
		}
	}
	for answer, want := range map[string]string{
		accept: "at most 10 questions", `{"action":"cancel"}`: "the person declined",
	} {
		p = &person{answer: answer}
		m, _ = asking(t, contract.Asks{Form: true}, loop)
		o = execute(t, call.WithHost(context.Background(), p), m,
			decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
		if !strings.Contains(text(o), want) || o.Facts.Status != facts.Failed || o.Facts.SideEffect != facts.Unknown {
			t.Errorf("%s: asked %d times: %s %+v", answer, p.count(), text(o), o.Facts)
		}
	}
}

// A server that asks and then ends has begun the call: its effect is not known, though the answer was not sent.
func TestEndAfterAQuestion(t *testing.T) {
	for ends, want := range map[bool]facts.SideEffect{false: facts.Confirmed, true: facts.Unknown} { // false: the control
		answered := make(chan struct{})
		loop := func(in *bufio.Scanner, out io.Writer) {
			for calls := 0; in.Scan(); {
				var r request
				_ = json.Unmarshal(in.Bytes(), &r)
				result := `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`
				switch r.Method {
				case "server/discover":
					result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,` +
						`"cacheScope":"private"}`
				case "tools/list":
					result = `{"resultType":"complete","tools":` + echoTool + `}`
				case "tools/call":
					if calls++; calls == 1 {
						result = `{"resultType":"input_required","inputRequests":{"q":{` + form + `}},"requestState":"s"}`
					}
				default:
					continue
				}
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
				if calls == 1 {
					time.AfterFunc(200*time.Millisecond, func() { close(answered) }) // the end is seen before
				}
				if ends && calls > 0 {
					return
				}
			}
		}
		m, _ := asking(t, contract.Asks{Form: true}, loop)
		p := &person{answer: accept, wait: answered}
		o := execute(t, call.WithHost(context.Background(), p), m,
			decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
		if o.Facts.SideEffect != want || p.count() != 1 {
			t.Errorf("ends: %v, asked %d times: %s %+v", ends, p.count(), text(o), o.Facts)
		}
	}
}

// While one call waits for a person the next one has a process of its own, and the clock of the first call pauses.
func TestACallThatWaitsBlocksNoOther(t *testing.T) {
	p := &person{answer: accept, wait: make(chan struct{})}
	m, f := asking(t, contract.Asks{Form: true}, nosy(form))
	slow := make(chan call.Outcome, 1)
	d := decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read, Timeout: 2 * time.Second})
	go func() { slow <- execute(t, call.WithHost(context.Background(), p), m, d) }()
	for p.count() == 0 {
		select {
		case <-slow: // a busy machine has taken its time before it could ask
			go func() { slow <- execute(t, call.WithHost(context.Background(), p), m, d) }()
		case <-time.After(time.Millisecond):
		}
	}
	quick := &person{answer: accept}
	o := execute(t, call.WithHost(context.Background(), quick), m,
		decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
	if text(o) != `{"action":"accept","content":{"name":"Ann"}}` || quick.count() != 1 || p.count() != 1 {
		t.Errorf("the next call: %s, asked %d and %d times", text(o), quick.count(), p.count())
	}
	time.Sleep(2500 * time.Millisecond) // longer than the call may run
	close(p.wait)
	if o := <-slow; text(o) != `{"action":"accept","content":{"name":"Ann"}}` {
		t.Errorf("the call that waited: %s", text(o))
	}
	if n := f.starts["s"].Load(); n != 3 { // one for the era, one for each call under way
		t.Logf("%d processes", n)
	}
	o = execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
	if !strings.Contains(text(o), "the agent's host does not answer") {
		t.Errorf("a call without a host: %s", text(o))
	}
}

// An error that wants a person to open addresses first keeps them where the operator lets the server
// ask so, and all of them are sound.
func TestAddressesToOpenFirst(t *testing.T) {
	fault := func(address string) string {
		return `{"code":-32042,"message":"sign in first","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"` +
			address + `","message":"m"}]}}`
	}
	for _, row := range []struct {
		why, answer string
		asks        contract.Asks
		kept        bool
	}{
		{"control: the operator lets it, and the address is sound", fault("https://a.example/in"),
			contract.Asks{URL: true}, true},
		{"control: another error", `{"code":-32602,"message":"no","data":{"a":1}}`, contract.Asks{}, true},
		{"without the operator's word", fault("https://a.example/in"), contract.Asks{Form: true}, false},
		{"an address that runs", fault("javascript:alert(1)"), contract.Asks{URL: true}, false},
		{"no addresses", `{"code":-32042,"message":"sign in first","data":{}}`, contract.Asks{URL: true}, false},
	} {
		m, _ := asking(t, row.asks, func(in *bufio.Scanner, out io.Writer) {
			for in.Scan() {
				var r request
				_ = json.Unmarshal(in.Bytes(), &r)
				switch r.Method {
				case "server/discover":
					fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],`+
						`"capabilities":{"tools":{}}}}`+"\n", r.ID)
				case "tools/list":
					fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"tools":%s}}`+"\n", r.ID, echoTool)
				case "tools/call":
					fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":%s}`+"\n", r.ID, row.answer)
				}
			}
		})
		o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
		if (o.Fault != nil) != row.kept || o.Facts.Status != facts.Failed {
			t.Errorf("%s: %+v", row.why, o.Fault)
		}
	}
}

// A question outside of any call is refused.
func TestQuestionsBelongToACall(t *testing.T) {
	heard := make(chan string, 1)
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": func(in *bufio.Scanner, out io.Writer) {
		for in.Scan() {
			if strings.Contains(in.Text(), `"id":"stray"`) {
				heard <- in.Text()
				continue
			}
			var r request
			if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
				continue
			}
			switch r.Method {
			case "initialize":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},`+
					`"serverInfo":{"name":"x","version":"1"}}}`+"\n", r.ID)
			case "tools/list":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`+"\n"+`{"jsonrpc":"2.0","id":"stray",%s}`+"\n",
					r.ID, form)
			default:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", r.ID)
			}
		}
	}})
	m := manager(t, f, Options{})
	m.servers["s"].cfg.Asks = contract.Asks{Form: true}
	if _, err := m.Tools(context.Background(), "s"); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-heard:
		if !strings.Contains(got, "nobody can say which call") {
			t.Errorf("got %s", got)
		}
	case <-time.After(time.Minute):
		t.Error("no answer")
	}
}

// A question ends with its call, however the call ends: the host closes the dialog, and the server gets an error.
func TestQuestionsEndWithTheirCall(t *testing.T) {
	heard, asked, under := make(chan string, 1), make(chan bool, 2), make(chan bool, 2)
	m, _ := asking(t, contract.Asks{Form: true}, odd("", func(r request, out io.Writer) string {
		ident, result := "q1", "refusal"
		if strings.Contains(string(r.Params.Arguments), "answers") { // the first question can be under way still
			ident, result = "q2", fine
		}
		fmt.Fprintln(out, `{"jsonrpc":"2.0","id":"`+ident+`",`+form+`}`)
		<-asked // else there may be no call any more when the question comes
		under <- true
		return result
	}))
	for _, how := range []string{"cancelled", "answers"} {
		p := &person{answer: `{"action":"accept","content":{}}`, wait: make(chan struct{})}
		ctx, cancel := context.WithCancel(call.WithHost(context.Background(), watched{p, heard, asked}))
		if how == "cancelled" {
			go func() { <-under; cancel() }()
		}
		execute(t, ctx, m, decision(t, "s.odd", `{"a":"`+how+`"}`, contract.Contract{Mode: contract.Write}))
		select {
		case got := <-heard:
			if got != "context canceled" {
				t.Errorf("%s: the question ended with %s", how, got)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the question stands though its call is over", how)
		}
		cancel()
	}
}

// watched is a host that tells how a question to it ended.
type watched struct {
	*person
	heard chan string
	asked chan bool
}

func (w watched) Ask(
	ctx context.Context, server string, asked map[string]call.Question,
) (map[string]strictjson.Value, error) {
	w.asked <- true
	out, err := w.person.Ask(ctx, server, asked)
	w.heard <- fmt.Sprint(err)
	return out, err
}

// A server that floods its log is cut, and messages below the wanted level are dropped.
func TestLogsAreLimited(t *testing.T) {
	p := &person{}
	m, _ := asking(t, contract.Asks{}, legacy(echoTool, func(r request, out io.Writer) string {
		for range 10 * maxLogs {
			fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}`)
			fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"x"}}`)
		}
		fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"`+
			strings.Repeat("x", maxLog)+`"}}`)
		return fine
	}))
	execute(t, call.WithHost(context.Background(), p), m,
		decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.logged); n < maxLogs || n > 3*maxLogs || strings.Contains(strings.Join(p.logged, " "), "debug") {
		t.Errorf("%d messages", n)
	}
}

// A server sees the client capabilities that the operator allows. Its copy of the client's _meta has the trace
// position only.
func TestWhatServersAreTold(t *testing.T) {
	said := make(chan string, 10)
	serve := func(in *bufio.Scanner, out io.Writer) {
		for in.Scan() {
			var r request
			_ = json.Unmarshal(in.Bytes(), &r)
			result := fine
			switch r.Method {
			case "server/discover":
				result = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
			case "tools/list":
				result = `{"tools":` + echoTool + `}`
			case "tools/call":
				b, _ := json.Marshal(r.Params.Meta)
				said <- string(b)
			default:
				continue
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
		}
	}
	m, _ := asking(t, contract.Asks{Form: true, Sampling: true}, serve)
	d := decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read})
	d.Call.Trace = call.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "a=b"}
	execute(t, call.WithHost(context.Background(), &person{}), m, d)
	want := `{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"sampling":{}},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"waldo","version":""},"io.modelcontextprotocol/logLevel":"info",` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=b","waldo/timeout_ms":N}`
	if got := regexp.MustCompile(`_ms":\d+`).ReplaceAllString(<-said, `_ms":N`); got != want {
		t.Errorf("told\n%s", got)
	}
	execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
	if got := <-said; strings.Contains(got, "elicitation") || strings.Contains(got, "trace") ||
		strings.Contains(got, "logLevel") {
		t.Errorf("without a host: %s", got)
	}
}
