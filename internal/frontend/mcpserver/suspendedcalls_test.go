package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// asker is a pipeline whose calls ask the host; rounds is the number of questions.
type asker struct {
	rounds int
	hang   bool // after the questions, until it is ended
	hangs  func()
	mu     sync.Mutex
	ended  []error // of the questions
}

func (a *asker) call(ctx context.Context, c call.Call) (call.Result, error) {
	f := facts.New()
	f.Status = facts.OK
	r := call.Result{CallID: c.ID, Status: facts.OK, Facts: f}
	for range a.rounds {
		v, err := strictjson.Parse([]byte(`{"message":"name?"}`))
		if err != nil {
			return r, err
		}
		got, err := call.HostOf(ctx).Ask(ctx, "s", map[string]call.Question{"q": {Method: "elicitation/create", Params: v}})
		if err != nil {
			a.mu.Lock()
			a.ended = append(a.ended, err)
			a.mu.Unlock()
			return r, err
		}
		r.Content = append(r.Content, call.Text(string(got["q"].Raw())))
	}
	if a.hang {
		a.hangs()
		<-ctx.Done()
		a.mu.Lock()
		a.ended = append(a.ended, ctx.Err())
		a.mu.Unlock()
	}
	return r, nil
}

func (a *asker) over() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ended)
}

// lines is a link without a reader.
type lines struct{}

func (lines) Notify(string, any) bool                 { return true }
func (lines) Tell(context.Context, string, any) error { return nil }
func (lines) Call(context.Context, string, func(int64) any, func(float64, float64)) (strictjson.Value, error) {
	return strictjson.Value{}, errors.New("a modern client takes no requests")
}

// retry makes a tools/call of a modern client; more are further parameters.
func retry(t testing.TB, tool, args, more string) jsonrpc.Message {
	t.Helper()
	m, fault := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool +
		`","arguments":` + args + more +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`))
	if fault != nil {
		t.Fatal(fault)
	}
	return m
}

// answerOf answers a request as the front ends do: at the end of the work on it, or early.
func answerOf(ctx context.Context, s *Session, m jsonrpc.Message, link Link) (any, error) {
	type end struct {
		result any
		err    error
	}
	ends := make(chan end, 2)
	go func() {
		early := false
		result, err := s.Answer(jsonrpc.WithEarly(ctx, func(result any, err error) {
			early = true
			ends <- end{result, err}
		}), m, link)
		if !early {
			ends <- end{result, err}
		}
	}()
	e := <-ends
	return e.result, e.err
}

// ask makes a call and returns its requestState, or the other result.
func ask(t testing.TB, s *Session, m jsonrpc.Message) (state, other string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := answerOf(ctx, s, m, lines{})
	var fault *jsonrpc.Error
	if errors.As(err, &fault) {
		return "", fmt.Sprintf("%d %s", fault.Code, fault.Data.Raw())
	}
	if err != nil {
		return "", err.Error()
	}
	b, _ := json.Marshal(got)
	var r struct {
		Kind    string                     `json:"resultType"`
		State   string                     `json:"requestState"`
		Asked   map[string]json.RawMessage `json:"inputRequests"`
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Kind == "input_required" {
		if string(r.Asked["q"]) != `{"method":"elicitation/create","params":{"message":"name?"}}` {
			t.Errorf("asked %s", b)
		}
		return r.State, ""
	}
	var text []string
	for _, c := range r.Content {
		text = append(text, c.Text)
	}
	return "", strings.Join(text, "|")
}

func parking(t testing.TB, a *asker, change func(*Options)) (*Server, *Session) {
	t.Helper()
	o := options(t, newDesk(t))
	pipeline(&o).OnCall = a.call
	if change != nil {
		change(&o)
	}
	d := New(o)
	s := d.Session(me, lines{})
	t.Cleanup(s.Close)
	return d, s
}

const yes = `{"action":"accept","content":{"name":"Ann"}}`

func with(state string, answers string) string {
	return `,"inputResponses":{` + answers + `},"requestState":"` + state + `"`
}

// A requestState is good for one retry of the same request by the same principal, in time.
func TestRequestState(t *testing.T) {
	code := func(c string) string { return `-32602 {"code":"` + c + `"}` }
	for _, row := range []struct {
		why  string
		want string
		try  func(t *testing.T, d *Server, s *Session, state string, late func()) string
	}{
		{"control: the same request comes back with the answer", yes,
			func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
				_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
				return got
			}},
		{"control: white space and the order of names are no difference", yes,
			func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
				_, got := ask(t, s, retry(t, "s__slow", `{ "a" : 1.0 }`, with(state, `"q":`+yes)))
				return got
			}},
		{"a second time", code("state.used"), func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
			ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
			_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
			return got
		}},
		{"other arguments", code("state.request"), func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
			_, got := ask(t, s, retry(t, "s__slow", `{"a":2}`, with(state, `"q":`+yes)))
			return got
		}},
		{"another tool", code("state.request"), func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
			_, got := ask(t, s, retry(t, "s__own", `{"a":1}`, with(state, `"q":`+yes)))
			return got
		}},
		{"somebody else", code("state.principal"), func(t *testing.T, d *Server, _ *Session, state string, _ func()) string {
			other := d.Session(Who{Session: "n_2", Principal: "os:1001"}, lines{})
			defer other.Close()
			_, got := ask(t, other, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
			return got
		}},
		{"too late", code("state.expired"), func(t *testing.T, _ *Server, s *Session, state string, late func()) string {
			late()
			_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
			return got
		}},
		{"with something appended", code("state.forged"),
			func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
				_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state+"-TAMPERED", `"q":`+yes)))
				return got
			}},
		{"of another waldo", code("state.forged"), func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
			st, _, _ := s.d.suspended.seal.open(state)
			_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(newSealer(nil).pair(st), `"q":`+yes)))
			return got
		}},
		{"that is no text", code("state.forged"), func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
			_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, `,"requestState":{}`))
			return got
		}},
		{"after its call has gone", code("state.gone"),
			func(t *testing.T, d *Server, s *Session, state string, _ func()) string {
				d.suspended.cancelSession(s)
				_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
				return got
			}},
		{"without the answer: it is asked again, and the old state is spent", code("state.used"),
			func(t *testing.T, _ *Server, s *Session, state string, _ func()) string {
				again, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"other":{},"q":12345`)))
				if again == "" || again == state {
					t.Fatalf("not asked again: %s", got)
				}
				if _, got = ask(t, s, retry(t, "s__slow", `{"a":1}`, with(again, `"q":`+yes))); got != yes {
					t.Errorf("with the new state: %s", got)
				}
				_, got = ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
				return got
			}},
	} {
		t.Run(row.why, func(t *testing.T) {
			var mu sync.Mutex
			shift := time.Duration(0)
			d, s := parking(t, &asker{rounds: 1}, func(o *Options) {
				o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(shift) }
			})
			state, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, ""))
			if state == "" {
				t.Fatalf("not asked: %s", got)
			}
			if got := row.try(t, d, s, state,
				func() { mu.Lock(); defer mu.Unlock(); shift = 11 * time.Minute }); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}

// After a restart of waldo, a retry gets the status of the call: from the audit log if recorded there, otherwise from
// the contract. It gets it once, and only for its own request and principal.
func TestAPastRequestState(t *testing.T) {
	kept := &[32]byte{1}
	code := func(c string) string { return `-32602 {"code":"` + c + `"}` }
	told := func(effect string) string {
		return `-32602 {"call_id":"CALL","code":"state.restarted","side_effect":"` + effect + `"}`
	}
	type try func(t *testing.T, d *Server, s *Session, state string) string
	same := func(t *testing.T, _ *Server, s *Session, state string) string {
		_, got := ask(t, s, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
		return got
	}
	for _, row := range []struct {
		why, want string
		mode      contract.Mode
		fate      func(context.Context, string) (facts.SideEffect, bool)
		key       *[32]byte
		try       try
	}{
		{"a call that may have acted", told("unknown"), contract.Write, nil, kept, same},
		{"a call that cannot act", told("none"), contract.Read, nil, kept, same},
		{"a call that ended without effect", told("none"), contract.Write,
			func(context.Context, string) (facts.SideEffect, bool) { return facts.None, true }, kept, same},
		{"a call that took effect", told("confirmed"), contract.Write,
			func(context.Context, string) (facts.SideEffect, bool) { return facts.Confirmed, true }, kept, same},
		{"a call whose end is not in the log", told("unknown"), contract.Write,
			func(context.Context, string) (facts.SideEffect, bool) { return facts.None, false }, kept, same},
		{"a waldo of another state directory", code("state.forged"), contract.Write, nil, &[32]byte{2}, same},
		{"a waldo without a key", code("state.forged"), contract.Write, nil, nil, same},
		{"other arguments", code("state.request"), contract.Write, nil, kept,
			func(t *testing.T, _ *Server, s *Session, state string) string {
				_, got := ask(t, s, retry(t, "s__slow", `{"a":2}`, with(state, `"q":`+yes)))
				return got
			}},
		{"somebody else", code("state.principal"), contract.Write, nil, kept,
			func(t *testing.T, d *Server, _ *Session, state string) string {
				other := d.Session(Who{Session: "n_2", Principal: "os:1001"}, lines{})
				defer other.Close()
				_, got := ask(t, other, retry(t, "s__slow", `{"a":1}`, with(state, `"q":`+yes)))
				return got
			}},
		{"a second time", code("state.used"), contract.Write, nil, kept,
			func(t *testing.T, d *Server, s *Session, state string) string {
				same(t, d, s, state)
				return same(t, d, s, state)
			}},
	} {
		t.Run(row.why, func(t *testing.T) {
			mode := func(call.Capability, strictjson.Value) (contract.Mode, int) { return row.mode, row.mode.Danger() }
			before, s := parking(t, &asker{rounds: 1}, func(o *Options) { o.StateKey, pipeline(o).OnMode = kept, mode })
			state, _ := ask(t, s, retry(t, "s__slow", `{"a":1}`, ""))
			was, _, ok := before.suspended.seal.open(state)
			if !ok {
				t.Fatal("control: it is not open")
			}
			after, now := parking(t, &asker{rounds: 1}, func(o *Options) {
				o.StateKey, pipeline(o).OnMode, pipeline(o).OnSideEffect = row.key, mode, row.fate
			})
			if got := row.try(t, after, now, state); got != strings.Replace(row.want, "CALL", was.Call, 1) {
				t.Errorf("got %s, want %s", got, row.want)
			}
			_, mixed, _ := strings.Cut(state, ".")
			if got := same(t, before, s, "AAAA."+mixed); got != code("state.forged") {
				t.Errorf("half of it where the call stands: %s", got)
			}
			if got := same(t, before, s, state+"A"); got != code("state.forged") {
				t.Errorf("with something appended: %s", got)
			}
			if got := same(t, before, s, state); got != yes {
				t.Errorf("control: where the call stands: %s", got)
			}
		})
	}
}

// An answer answers the question that was put, not a later one of the same name; one that came before
// the question saves a round.
func TestRounds(t *testing.T) {
	_, s := parking(t, &asker{rounds: 2}, nil)
	first, _ := ask(t, s, retry(t, "s__slow", `{}`, ""))
	second, got := ask(t, s, retry(t, "s__slow", `{}`, with(first, `"q":`+yes)))
	if second == "" || second == first {
		t.Fatalf("the second question was not put: %s", got)
	}
	if _, got := ask(t, s, retry(t, "s__slow", `{}`, with(second, `"q":{"action":"decline"}`))); got != yes+
		`|{"action":"decline"}` {
		t.Errorf("got %s", got)
	}
	_, s = parking(t, &asker{rounds: 2}, nil)
	if state, got := ask(t, s, retry(t, "s__slow", `{}`, `,"inputResponses":{"q":`+yes+`}`)); state == "" {
		t.Errorf("an answer to the first question answered the second: %s", got)
	}
	_, s = parking(t, &asker{rounds: 1}, nil)
	if _, got := ask(t, s, retry(t, "s__slow", `{}`, `,"inputResponses":{"q":`+yes+`,"extra":{}}`)); got != yes {
		t.Errorf("an answer that came with the request: %s", got)
	}
}

// A suspended call that its client abandons expires and does not block other calls.
func TestAbandonedCalls(t *testing.T) {
	var a *asker
	var s *Session
	var states []string
	for park, late := 300*time.Millisecond, true; late; park *= 5 {
		a, states = &asker{rounds: 1}, nil
		_, s = parking(t, a, func(o *Options) { o.Park = park })
		begin := time.Now()
		for i := range maxSuspendedEach {
			state, got := ask(t, s, retry(t, "s__slow", fmt.Sprintf(`{"a":%d}`, i), ""))
			if state == "" {
				t.Fatalf("call %d: %s", i, got)
			}
			states = append(states, state)
		}
		_, more := ask(t, s, retry(t, "s__slow", `{}`, ""))
		if late = time.Since(begin) > park; late {
			continue // on a busy machine, the first of them is given up by now
		}
		if !strings.HasPrefix(more, "-32000") {
			t.Errorf("one more than may be parked: %s", more)
		}
	}
	if _, got := ask(t, s, retry(t, "s__slow", `{}`, `,"inputResponses":{"q":`+yes+`}`)); got != yes {
		t.Errorf("a call that need not be parked: %s", got)
	}
	for begin := time.Now(); a.over() < maxSuspendedEach+1 &&
		time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
	}
	if n := a.over(); n != maxSuspendedEach+1 {
		t.Errorf("%d calls were ended", n)
	}
	if _, got := ask(t, s, retry(t, "s__slow", `{"a":0}`, with(states[0], `"q":`+yes))); got !=
		`-32602 {"code":"state.expired"}` {
		t.Errorf("after its time: %s", got)
	}
	if state, got := ask(t, s, retry(t, "s__slow", `{}`, "")); state == "" {
		t.Errorf("there is room again: %s", got)
	}
}

// A client that leaves ends what it has parked, and one that cancels the retry what goes on.
func TestLeavingEndsSuspendedCalls(t *testing.T) {
	wait := func(a *asker) {
		for begin := time.Now(); a.over() < 1 && time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		}
		if a.over() != 1 {
			t.Errorf("%d calls ended", a.over())
		}
	}
	a := &asker{rounds: 1}
	d, s := parking(t, a, nil)
	ask(t, s, retry(t, "s__slow", `{}`, ""))
	s.Close()
	wait(a)
	if len(d.suspended.open) != 0 {
		t.Error("it is still parked")
	}
	a = &asker{rounds: 1, hang: true}
	_, s = parking(t, a, nil)
	state, _ := ask(t, s, retry(t, "s__slow", `{}`, ""))
	ctx, cancel := context.WithCancel(context.Background())
	a.hangs = cancel
	if _, err := s.Answer(ctx, retry(t, "s__slow", `{}`, with(state, `"q":`+yes)),
		lines{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wait(a)
}

// A panic in a call that may be parked ends that call and no other.
func TestAPanicEndsItsCallAlone(t *testing.T) {
	_, s := parking(t, &asker{}, func(o *Options) {
		pipeline(o).OnCall = func(context.Context, call.Call) (call.Result, error) { panic("a mistake of ours") }
	})
	for range 2 {
		if _, got := ask(t, s, retry(t, "s__slow", `{}`, "")); !strings.HasPrefix(got, "-32603") {
			t.Errorf("got %s", got)
		}
	}
}

// A client that has said that it answers nothing is asked nothing.
func TestNobodyToAsk(t *testing.T) {
	a := &asker{rounds: 1}
	_, s := parking(t, a, nil)
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow",
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
	if state, _ := ask(t, s, m); state != "" || a.over() != 1 {
		t.Errorf("asked %q, %d ended", state, a.over())
	}
}

// One key seals many states: each has a nonce of its own, which is not left at zero.
func TestNonces(t *testing.T) {
	s, seen := newSealer(&[32]byte{1}), map[string]bool{}
	for range 100 {
		for half := range strings.SplitSeq(s.pair(state{Round: "r"}), ".") {
			b, err := base64.RawURLEncoding.DecodeString(half)
			if err != nil || len(b) < chacha20poly1305.NonceSizeX {
				t.Fatal(half, err)
			}
			nonce := string(b[:chacha20poly1305.NonceSizeX])
			if seen[nonce] || strings.Count(nonce, "\x00") > 8 {
				t.Fatalf("nonce %x is used twice, or not filled", nonce)
			}
			seen[nonce] = true
		}
	}
	if len(seen) != 200 {
		t.Errorf("control: %d nonces", len(seen))
	}
}

// FuzzRequestState: the sealer opens only complete sealed texts of its own. The text is sealed within the execution,
// since each process of the fuzzer has its own keys: an input from outside would not open in another process.
func FuzzRequestState(f *testing.F) {
	s, stranger := newSealer(&[32]byte{1}), newSealer(&[32]byte{2})
	f.Add("r", "os:1", "", uint16(0), uint16(0))       // as it is
	f.Add("r", "os:1", "x", uint16(0), uint16(0))      // with something before
	f.Add("r", "os:1", "x", uint16(9999), uint16(0))   // and behind
	f.Add("r", "os:1", "", uint16(9999), uint16(1))    // without its end
	f.Add("r", "os:1", "A", uint16(7), uint16(1))      // with a letter exchanged
	f.Add("", "", ".", uint16(120), uint16(80))        // without the middle
	f.Add("r", "os:1", "AAAA", uint16(200), uint16(4)) // with the other half spoilt
	f.Fuzz(func(t *testing.T, round, who, put string, at, cut uint16) {
		if len(round)+len(who) > 1000 {
			return
		}
		in := state{
			Round: strings.ToValidUTF8(round, ""), Principal: call.Principal(strings.ToValidUTF8(who, "")), Expires: int64(cut),
		}
		sealed := s.pair(in)
		if out, past, ok := s.open(sealed); !ok || past || out != in {
			t.Fatalf("%+v opens as %+v, %v", in, out, ok)
		}
		i := min(int(at), len(sealed))
		text := sealed[:i] + put + sealed[min(i+int(cut), len(sealed)):]
		if out, past, ok := s.open(text); ok != (text == sealed) || past || ok && out != in {
			t.Fatalf("%q, which was %q, opens as %+v, %v, %v", text, sealed, out, past, ok)
		}
		live, behind, _ := strings.Cut(sealed, ".")
		later := newSealer(s.kept) // the waldo after this one has the kept key, and another of its own
		in.Run = s.run
		if out, past, ok := later.open(sealed); !ok || !past || out != in {
			t.Fatalf("%+v opens later as %+v, %v, %v", in, out, past, ok)
		}
		_, part, _ := strings.Cut(text, ".")
		if out, _, ok := later.open(text); ok != (part == behind) || ok && out != in {
			t.Fatalf("%q, which was %q, opens later as %+v, %v", text, sealed, out, ok)
		}
		for _, bad := range []string{live, live + "." + live, behind + "." + live, behind} {
			if out, _, ok := s.open(bad); ok {
				t.Fatalf("%q opens as %+v", bad, out)
			}
		}
		if out, _, ok := stranger.open(text); ok {
			t.Fatalf("%q opens with other keys as %+v", text, out)
		}
	})
}

// A front end that waits for the end of the work asks nothing of its client; with the control, it is asked.
func TestNoEarlyAnswer(t *testing.T) {
	a := &asker{rounds: 1}
	_, s := parking(t, a, nil)
	if state, other := ask(t, s, retry(t, "s__slow", `{}`, "")); state == "" {
		t.Fatalf("control: %s", other)
	}
	got, err := s.Answer(t.Context(), retry(t, "s__slow", `{}`, ""), lines{})
	if b, _ := json.Marshal(got); err != nil || !strings.Contains(string(b), `"isError":true`) {
		t.Errorf("%s %v", b, err)
	}
}

// A call ends when its client cancels it, before it was parked too.
func TestACancelledCallEnds(t *testing.T) {
	begun, ended := make(chan bool, 1), make(chan bool, 1)
	_, s := parking(t, &asker{}, func(o *Options) {
		pipeline(o).OnCall = func(ctx context.Context, _ call.Call) (call.Result, error) {
			begun <- true
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			ended <- ctx.Err() != nil
			return call.Result{}, ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-begun; cancel() }()
	if _, err := answerOf(ctx, s, retry(t, "s__slow", `{}`, ""), lines{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if !<-ended {
		t.Error("it went on")
	}
}
