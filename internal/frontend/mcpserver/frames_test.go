package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/testing/corpus"
	"waldo/internal/testing/pipelinetest"
)

// talk writes frames to a server and reads its answers line by line.
type talk struct {
	t     testing.TB
	in    io.WriteCloser
	lines chan []byte
}

func converse(t testing.TB, o Options) *talk {
	in, out := start(t, o)
	k := &talk{t, in, make(chan []byte, 100)}
	go func() {
		r := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				close(k.lines)
				return
			}
			k.lines <- line
		}
	}()
	return k
}

func (k *talk) write(frame string) {
	k.t.Helper()
	if _, err := io.WriteString(k.in, frame+"\n"); err != nil {
		k.t.Fatalf("writing %.80q: %v", frame, err)
	}
}

type answer struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct{ Code int }
	Method string
}

func (k *talk) read() answer {
	k.t.Helper()
	select {
	case line := <-k.lines:
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			k.t.Fatalf("%q: %v", line, err)
		}
		return a
	case <-time.After(time.Minute):
		k.t.Fatal("no answer")
	}
	return answer{}
}

// after writes a frame and a ping, and returns the answers to the frame: those before the ping's,
// and one more if the frame asks for an answer that takes its time.
func (k *talk) after(frame string) []answer {
	k.t.Helper()
	m, fault := jsonrpc.Parse([]byte(frame))
	k.write(frame)
	k.write(`{"jsonrpc":"2.0","id":"are you there","method":"ping"}`)
	var out []answer
	for alive := false; !alive || fault == nil && m.IsRequest() && len(out) == 0; {
		a := k.read()
		if string(a.ID) != `"are you there"` {
			out = append(out, a)
			continue
		}
		if a.Error != nil {
			k.t.Fatalf("after %.80q the ping gets error %d", frame, a.Error.Code)
		}
		alive = true
	}
	return out
}

func TestFrames(t *testing.T) {
	d := newDesk(t)
	k := converse(t, options(t, d))
	k.write(`{"jsonrpc":"2.0","id":0,"method":"tools/list"}`) // a script need not open a session
	if a := k.read(); a.Error != nil {
		t.Fatalf("tools/list: %+v", a)
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	for _, row := range []struct {
		frame string
		code  int // 0: a result; 1: no answer
		why   string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, -32602, "initialize without members"},
		{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01","capabilities":{},` +
				`"clientInfo":{"name":"x","version":"1"}}}`, 0, "an unknown revision gets the newest legacy one",
		},
		{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
				`"clientInfo":{"name":"x","version":"1"}}}`, -32600, "a second initialize",
		},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, 1, "a notification has no answer"},
		{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"s__echo","arguments":{"message":"x"}}}`, 1,
			"a call without an id is not carried out"},
		{`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`, 0, "a modern question"},
		{`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}`, -32601, "a modern question without its revision"},
		{
			`{"jsonrpc":"2.0","id":1,"method":"tools/list",` +
				`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01",` +
				`"io.modelcontextprotocol/clientCapabilities":{}}}}`, -32022, "a revision from the future",
		},
		{
			`{"jsonrpc":"2.0","id":1,"method":"tools/list",` +
				`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, -32602,
			"a modern request without capabilities",
		},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + meta + `}}`, -32601, "ping was removed"},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + meta + `}}`, -32601, "and so was initialize"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"../../etc/passwd"}}`, -32602,
			"a cursor that is a path"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":` + `"` + strings.Repeat("x", 100_000) + `"}}`,
			-32602, "a giant cursor"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":5}}`, -32602, "a cursor that is a number"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","arguments":[]}}`, -32602,
			"arguments that are a list"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","arguments":"x"}}`, -32602,
			"arguments that are a text"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","arguments":{"message":"` +
			strings.Repeat("x", 5<<20) + `"}}}`, -32602, "arguments of 5 MiB"},
		{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","name":"s__own",` +
				`"arguments":{"message":"x"}}}`, -32700, "a name twice",
		},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}`, -32602, "a call of nothing"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s\u0000echo"}}`, -32602, "NUL in a name"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__nothing"}}`, 0,
			"what no contract speaks of is denied on record"},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}`, -32601,
			"resources are not offered"},
		{`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`, -32601, "a server does not sample"},
		{`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`, -32601,
			"a modern method in a legacy request"},
		{strings.Repeat("x", 17<<20), -32700, "a line of 17 MiB"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"`, -32700, "half a frame"},
	} {
		t.Run(row.why, func(t *testing.T) {
			k.t = t
			before := d.count()
			answers := k.after(row.frame)
			got := 1
			if len(answers) == 1 {
				if got = 0; answers[0].Error != nil {
					got = answers[0].Error.Code
				}
			}
			if got != row.code {
				t.Errorf("answer %d, want %d: %+v", got, row.code, answers)
			}
			if row.code != 0 && d.count() != before {
				t.Error("it was carried out")
			}
		})
	}
}

// A client that closes in the middle of a frame leaves nothing running. Its earlier requests are still answered.
func TestHalfAFrameAndTheEnd(t *testing.T) {
	d := newDesk(t)
	inR, inW := io.Pipe()
	var out bytes.Buffer
	ended := make(chan error, 1)
	o := options(t, d)
	o.Drain = 30 * time.Second
	go func() { ended <- New(o).Serve(context.Background(), inR, &out, me) }()
	_, _ = io.WriteString(inW, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo",`+
		`"arguments":{"message":"x"}}}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/ca`)
	_ = inW.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server stays open")
	}
	if !strings.Contains(out.String(), `"id":1`) || !strings.Contains(out.String(), `"code":-32700`) || d.count() != 1 {
		t.Errorf("answers: %s, %d calls", out.String(), d.count())
	}
}

// A client that leaves ends what it had under way.
func TestTheEndOfTheClientEndsItsCalls(t *testing.T) {
	d := newDesk(t)
	o := options(t, d)
	o.Drain = 50 * time.Millisecond
	k := converse(t, o)
	k.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow","_meta":{"progressToken":7}}}`)
	if a := k.read(); a.Method != "notifications/progress" {
		t.Fatalf("%+v", a)
	}
	_ = k.in.Close()
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		t.Error("the call goes on")
	}
}

// Two clients use the same id: each server has its own.
func TestSameIDOnTwoConnections(t *testing.T) {
	one, two := newDesk(t), newDesk(t)
	a, b := converse(t, options(t, one)), converse(t, options(t, two))
	for _, k := range []*talk{a, b} {
		k.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__slow","_meta":{"progressToken":1}}}`)
		k.read() // progress: the call is under way
	}
	b.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	<-two.ended
	close(one.release)
	if got := a.read(); got.Error != nil || string(got.ID) != "1" {
		t.Errorf("the other server: %+v", got)
	}
}

type frameRow struct {
	ID, Class, Expect, Why string
	Input                  struct {
		Frame string
		B64   string `json:"frame_b64"`
	}
}

// The corpus of frames: each is answered as its row expects, and the server survives every one.
func TestCorpus(t *testing.T) {
	d := newDesk(t)
	k := converse(t, options(t, d))
	ran := 0
	for _, row := range corpus.Rows[frameRow](t, "mcp.jsonl", "rpc", "frame-json", "frame-json-args") {
		frame := row.Input.Frame
		if row.Input.B64 != "" {
			b, err := base64.StdEncoding.DecodeString(row.Input.B64)
			if err != nil {
				t.Fatal(err)
			}
			frame = string(b)
		}
		ran++
		if strings.Contains(frame, `"initialize"`) {
			k = converse(t, options(t, d)) // a session is opened once
		}
		if row.Class == "frame-json-args" {
			frame = strings.Replace(frame, `"name":"echo"`, `"name":"s__bare"`, 1) // one that takes any arguments
		}
		before := len(d.calls)
		answers := k.after(frame)
		why := judge(row.Expect, frame, answers)
		if row.Class == "frame-json-args" && why == "" {
			why = preserved(row.Expect, frame, d.calls[before:])
		}
		if why != "" {
			t.Errorf("%s (%s): %s; expected %s", row.ID, row.Why, why, row.Expect)
		}
	}
	for _, c := range d.calls {
		if c.ApprovalID != "" || c.Principal != "os:1000" {
			t.Errorf("a frame has spoken for itself: %+v", c)
		}
	}
	t.Logf("%d frames", ran)
	if ran < corpus.Least(t, 50, 150) {
		t.Errorf("only %d frames were found", ran)
	}
}

// preserved compares the calls that a frame led to with the frame, and returns the difference. A frame that is not
// JSON must lead to no call; valid JSON must lead to one call with the value that was sent.
func preserved(expect, frame string, calls []call.Call) string {
	switch {
	case strings.Contains(frame, `{"a":"b","a":"b"}`) && len(calls) == 0: // valid JSON; waldo refuses a name twice
		return ""
	case expect == "error_and_survive" && len(calls) > 0:
		return fmt.Sprintf("a call with %s", calls[0].Args.Value().Raw())
	case expect != "reply_value_preserved":
		return ""
	case len(calls) != 1:
		return fmt.Sprintf("%d calls", len(calls))
	}
	var sent struct {
		Params struct{ Arguments any }
	}
	var got any
	if json.Unmarshal([]byte(frame), &sent) != nil || json.Unmarshal(calls[0].Args.Value().Raw(), &got) != nil ||
		!reflect.DeepEqual(sent.Params.Arguments, got) {
		return fmt.Sprintf("the call has %s", calls[0].Args.Value().Raw())
	}
	return ""
}

// judge returns what is wrong with the answers to a frame, "" if nothing is.
func judge(expect, frame string, answers []answer) string {
	failed, fine := 0, 0
	for _, a := range answers {
		if a.Error != nil || bytes.Contains(a.Result, []byte(`"isError":true`)) {
			failed++
		} else if a.Method == "" {
			fine++
		}
	}
	switch expect {
	case "error_and_survive":
		if fine > 0 {
			return fmt.Sprintf("%d results", fine)
		}
	case "error", "deny":
		if failed == 0 || fine > 0 {
			return fmt.Sprintf("%d errors, %d results", failed, fine)
		}
	case "result":
		if fine != 1 {
			return "no result"
		}
	case "reply_same_id":
		var m struct{ ID json.RawMessage }
		_ = json.Unmarshal([]byte(frame), &m)
		var x, y any
		if len(answers) != 1 || json.Unmarshal(m.ID, &x) != nil || json.Unmarshal(answers[0].ID, &y) != nil || x != y ||
			m.ID[0] != '"' && string(m.ID) != string(answers[0].ID) {
			return fmt.Sprintf("answers %+v", answers)
		}
	case "ignored", "no_reply":
		if len(answers) != 0 {
			return fmt.Sprintf("%d answers", len(answers))
		}
	case "error_or_first_consistent", "error_or_consistent":
		if failed == 0 {
			return "two readers could have read two things"
		}
	case "negotiated":
		if fine != 1 || !bytes.Contains(answers[0].Result, []byte(`"protocolVersion":"2025-11-25"`)) {
			return fmt.Sprintf("%+v", answers)
		}
	}
	return "" // that the server still answers is all that the other rows ask
}

// The server answers the next ping after any input.
func FuzzFrontEnd(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","arguments":{"message":"x"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"eA"}}`))
	f.Add([]byte("\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\n"))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen",` +
		`"params":{"notifications":{"toolsListChanged":true},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
	cat := catalog.New(catalog.Options{Builtins: catalog.Builtins()})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newDesk(t)
		var out bytes.Buffer
		o := Options{Catalogue: cat, Pipeline: &pipelinetest.Pipeline{OnCall: d.call}, Drain: 20 * time.Millisecond}
		in := io.MultiReader(bytes.NewReader(b),
			strings.NewReader("\n"+`{"jsonrpc":"2.0","id":"are you there","method":"ping"}`+"\n"))
		if err := New(o).Serve(context.Background(), in, &out, me); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), `"id":"are you there","result"`) && !bytes.Contains(b, []byte("are you there")) {
			t.Errorf("after %q: %s", b, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q", line)
			}
		}
	})
}
