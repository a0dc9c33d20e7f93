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

	"waldo/internal/executor/upstream/eras"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// olden is a host that speaks a legacy revision and declares what can says.
type olden struct {
	*person
	can    string
	modern bool
}

func (o olden) Abilities() call.Abilities {
	v, _ := strictjson.Parse([]byte(o.can))
	m, _ := v.Members()
	return call.Abilities{Elicitation: m["elicitation"], Sampling: m["sampling"], Roots: m["roots"], Legacy: !o.modern}
}

// dual is a server that speaks both eras, as go-sdk's do: its tool asks by a request, which the modern revision
// forbids. Its answer lists the announced capabilities and the replies. With refuses, it only claims to.
func dual(refuses bool) func(*bufio.Scanner, io.Writer) {
	return func(in *bufio.Scanner, out io.Writer) {
		var caller json.RawMessage
		var told string
		for in.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
				Result json.RawMessage
				Params struct{ Capabilities json.RawMessage }
			}
			if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
				continue
			}
			text := ""
			switch {
			case m.Method == "server/discover":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28",`+
					`"2025-11-25"],"capabilities":{"tools":{}}}}`+"\n", m.ID)
			case m.Method == "initialize" && refuses:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not today"}}`+"\n", m.ID)
			case m.Method == "initialize":
				told = string(m.Params.Capabilities)
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},`+
					`"serverInfo":{"name":"dual","version":"1"}}}`+"\n", m.ID)
			case m.Method == "tools/list":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":%s}}`+"\n", m.ID, echoTool)
			case m.Method == "tools/call" && told != "":
				caller = m.ID
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":"q",%s}`+"\n", form)
				continue
			case m.Method == "tools/call":
				caller, text = m.ID, "cannot be sent while serving 2026-07-28"
			case m.Method == "":
				text = "told " + told + " heard " + string(m.Result)
			default:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
			}
			if text != "" {
				b, _ := json.Marshal(text)
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", caller, b)
			}
		}
	}
}

// A legacy host gets its questions on a server that speaks both eras. A modern host, or a host without questions,
// uses the modern session.
func TestALegacyHostKeepsItsQuestions(t *testing.T) {
	const lost = "cannot be sent while serving 2026-07-28"
	form := contract.Asks{Form: true, Sampling: true}
	for _, row := range []struct {
		why     string
		asks    contract.Asks
		host    olden
		refuses bool
		want    string
	}{
		{"a legacy host", form, olden{can: `{"elicitation":{}}`}, false,
			`told {"elicitation":{"form":{}}} heard {"action":"accept","content":{"name":"Ann"}}`},
		{"another, which samples", form, olden{can: `{"elicitation":{},"sampling":{}}`}, false,
			`told {"elicitation":{"form":{}},"sampling":{}} heard {"action":"accept","content":{"name":"Ann"}}`},
		{"control: a modern host", form, olden{can: `{"elicitation":{}}`, modern: true}, false, lost},
		{"control: a legacy host that answers nothing", form, olden{can: `{}`}, false, lost},
		{"control: a server that may not ask", contract.Asks{}, olden{can: `{"elicitation":{}}`}, false, lost},
		{"control: a server that only says so", form, olden{can: `{"elicitation":{}}`}, true, lost},
	} {
		m, f := asking(t, row.asks, dual(row.refuses))
		row.host.person = &person{answer: accept}
		for range 2 {
			o := execute(t, call.WithHost(context.Background(), row.host), m,
				decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
			if text(o) != row.want {
				t.Errorf("%s: %s", row.why, text(o))
			}
		}
		if n := f.starts["s"].Load(); n > 2 && !row.refuses {
			t.Errorf("%s: %d starts for two calls", row.why, n)
		}
	}
}

// A legacy server gets the capabilities of the call's host, and no others, so that its tools know which questions are
// possible. Calls without a host go to the server of the last call.
func TestALegacyServerIsToldWhatTheHostAnswers(t *testing.T) {
	m, f := asking(t, contract.Asks{Form: true, Sampling: true}, func(in *bufio.Scanner, out io.Writer) {
		legacyOnly, w := io.Pipe()
		go func() { dual(false)(bufio.NewScanner(legacyOnly), out); legacyOnly.Close() }()
		for in.Scan() {
			line := in.Text()
			line = strings.Replace(line, "server/discover", "no/such", 1)
			fmt.Fprintln(w, line)
		}
		w.Close()
	})
	ask := func(can string) string {
		ctx := context.Background()
		if can != "" {
			ctx = call.WithHost(ctx, olden{person: &person{answer: accept}, can: can, modern: true})
		}
		told, _, _ := strings.Cut(text(execute(t, ctx, m,
			decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))), " heard")
		return told
	}
	for _, row := range [][2]string{
		{`{"sampling":{}}`, `told {"sampling":{}}`},
		{``, `told {"sampling":{}}`}, // the session of the call before
		{`{"elicitation":{"form":{},"url":{}}}`, `told {"elicitation":{"form":{}}}`},
		{`{"elicitation":{},"sampling":{}}`, `told {"elicitation":{"form":{}},"sampling":{}}`},
		{`{}`, `told {}`},
	} {
		if got := ask(row[0]); got != row[1] {
			t.Errorf("%s: %s", row[0], got)
		}
	}
	if n := f.starts["s"].Load(); n != 5 { // one for the list, one for each of four
		t.Errorf("%d starts", n)
	}
	for i := range 2 * maxReplicas { // a stranger that declares something else each time has no more processes than that
		ask(fmt.Sprintf(`{"elicitation":{%q:{}},"sampling":{%q:{}}}`, []string{"form", "url"}[i%2],
			[]string{"tools", "x"}[i/2%2]))
	}
	if n := len(m.servers["s"].replicas); n > maxReplicas {
		t.Errorf("%d replicas", n)
	}
}

// A program that ends over initialize though it says that it takes legacy sessions is asked in the modern revision.
func TestAServerThatEndsOverALegacySession(t *testing.T) {
	m, _ := asking(t, contract.Asks{Form: true}, func(in *bufio.Scanner, out io.Writer) {
		r, w := io.Pipe()
		go func() {
			for in.Scan() && !strings.Contains(in.Text(), `"initialize"`) {
				fmt.Fprintln(w, in.Text())
			}
			_ = w.Close()
		}()
		dual(false)(bufio.NewScanner(r), out)
	})
	host := olden{person: &person{answer: accept}, can: `{"elicitation":{}}`}
	got := ""
	for begin := time.Now(); !strings.HasPrefix(got, "cannot be sent") &&
		time.Since(begin) < time.Minute; time.Sleep(100 * time.Millisecond) {
		got = text(execute(t, call.WithHost(context.Background(), host), m,
			decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read})))
	}
	if !strings.HasPrefix(got, "cannot be sent") {
		t.Error(got)
	}
}

// memoryStore is a store that outlives its managers.
type memoryStore struct{ m sync.Map }

func (s *memoryStore) Get(_ context.Context, bucket, name string) (string, bool, error) {
	v, ok := s.m.Load(bucket + name)
	text, _ := v.(string)
	return text, ok, nil
}

func (s *memoryStore) Put(_ context.Context, bucket, name, value string) error {
	s.m.Store(bucket+name, value)
	return nil
}

// The next waldo starts a legacy-only server in a legacy revision, without a request that would end it. An updated
// server is started in the modern revision, and a dual one still is.
func TestErasAreRemembered(t *testing.T) {
	kept := &memoryStore{}
	ends := func(in *bufio.Scanner, out io.Writer) { // over a question that it does not know
		r, w := io.Pipe()
		go func() {
			for in.Scan() && !strings.Contains(in.Text(), "server/discover") {
				fmt.Fprintln(w, in.Text())
			}
			_ = w.Close()
		}()
		legacy(echoTool, answers(fine))(bufio.NewScanner(r), out)
	}
	for i, want := range []int64{2, 1, 1} {
		f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": ends})
		m := manager(t, f, Options{Eras: eras.New(kept, time.Now)})
		if o := execute(t, context.Background(), m,
			decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read})); text(o) != "fine" {
			t.Errorf("%d: %s", i, text(o))
		}
		if n := f.starts["s"].Load(); n != want {
			t.Errorf("%d: started %d times, want %d", i, n, want)
		}
	}
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": dual(true)}) // same command, without initialize
	for range 2 {
		m := manager(t, f, Options{Eras: eras.New(kept, time.Now)})
		_, _ = m.Tools(context.Background(), "s")
		if st := m.Status(); st[0].Revision != "2026-07-28" {
			t.Errorf("updated: %+v", st)
		}
	}
	kept = &memoryStore{}
	f = launchers(map[string]func(*bufio.Scanner, io.Writer){"s": dual(false)})
	for range 2 {
		m := manager(t, f, Options{Eras: eras.New(kept, time.Now)})
		m.servers["s"].cfg.Asks = contract.Asks{Form: true}
		host := olden{person: &person{answer: accept}, can: `{"elicitation":{}}`}
		execute(t, call.WithHost(context.Background(), host), m,
			decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read}))
		if o := execute(t, call.WithHost(context.Background(), olden{person: host.person, can: host.can, modern: true}), m,
			decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read})); !strings.HasPrefix(text(o), "cannot be sent") {
			t.Errorf("a modern host after a legacy one has no modern session: %s", text(o))
		}
		if eras.New(kept, time.Now).Legacy(context.Background(), lockfile.Command(m.servers["s"].cfg)) {
			t.Error("a dual server is remembered as a legacy one")
		}
	}
}

// TestUnansweredQuestionsOfOnePrincipal: a principal that answers no question takes three quarters of the processes of
// a server. Another principal has its answers meanwhile, and further calls of the first are refused with the reason.
func TestUnansweredQuestionsOfOnePrincipal(t *testing.T) {
	m, _ := asking(t, contract.Asks{Form: true}, nosy(form))
	with := func(who call.Principal, h call.Host, timeout time.Duration) call.Outcome {
		d := decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Read, Timeout: timeout})
		d.Call.Principal = who
		return execute(t, call.WithHost(context.Background(), h), m, d)
	}
	silent := &person{answer: accept, wait: make(chan struct{})}
	var calls sync.WaitGroup
	for range maxReplicas * 3 / 4 {
		calls.Go(func() { with("os:1", silent, 50*time.Second) })
	}
	for silent.count() < maxReplicas*3/4 {
		time.Sleep(time.Millisecond)
	}
	o := with("os:1", &person{answer: accept}, 300*time.Millisecond)
	if !strings.Contains(text(o), "three quarters of the sessions are in use by calls of this principal. "+
		"The call was not made.") {
		t.Errorf("the next of the same principal: %s", text(o))
	}
	var others sync.WaitGroup
	for range maxReplicas / 2 {
		others.Go(func() {
			if o := with("os:2", &person{answer: accept}, 50*time.Second); !strings.HasPrefix(text(o), `{"action":"accept"`) {
				t.Errorf("of another principal: %s", text(o))
			}
		})
	}
	others.Wait()
	m.servers["s"].owner = "w_own" // control: a server of one session alone has no other principal
	if o := with("os:1", &person{answer: accept}, 50*time.Second); !strings.HasPrefix(text(o), `{"action":"accept"`) {
		t.Errorf("control: %s", text(o))
	}
	m.servers["s"].owner = ""
	close(silent.wait)
	calls.Wait()
	if o := with("os:1", &person{answer: accept}, 50*time.Second); !strings.HasPrefix(text(o), `{"action":"accept"`) {
		t.Errorf("afterwards: %s", text(o))
	}
}
