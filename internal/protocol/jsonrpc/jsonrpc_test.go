package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/protocol/strictjson"
)

func TestParse(t *testing.T) {
	for _, row := range []struct {
		frame string
		code  int
		why   string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, 0, "a request"},
		{`{"jsonrpc":"2.0","method":"ping"}`, 0, "a notification"},
		{`{"jsonrpc":"2.0","id":"a","result":{}}`, 0, "an answer"},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}`, 0, "an error answer"},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x"}}`, 0, "an error to a request that could not be read"},
		{`{"jsonrpc":"2.0","error":{"code":-1,"message":"x"}}`, 0, "the same without an id"},
		{`{"jsonrpc":"2.0","id":null,"result":{}}`, CodeInvalid, "a result to nobody"},
		{`{"jsonrpc":"2.0","id":1,"METHOD":"tools/call","method":"ping"}`, 0,
			"names match exactly, so METHOD is another name"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, 0, "null params are no params"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, CodeParse,
			"a name twice: two readers could read two methods"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"read","name":"delete"}}`, CodeParse,
			"a name twice, further in"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, CodeParse, "two on a line"},
		{"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, CodeParse, "a byte order mark"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"` + "\xff" + `"}}`, CodeParse, "invalid UTF-8"},
		{`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}`,
			CodeParse, "nested too deep"},
		{`hello world`, CodeParse, "a log line"},
		{`{"id":1,"method":"ping"}`, CodeInvalid, "no version"},
		{`{"jsonrpc":2.0,"id":1,"method":"ping"}`, CodeInvalid, "the version is a string"},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, CodeInvalid, "null is no id"},
		{`{"jsonrpc":"2.0","id":true,"method":"ping"}`, CodeInvalid, "a boolean is no id"},
		{`{"jsonrpc":"2.0","id":[],"method":"ping"}`, CodeInvalid, "an array is no id"},
		{`{"jsonrpc":"2.0","id":1,"method":null}`, CodeInvalid, "null is no method"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":5}`, CodeInvalid, "params are an object"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, CodeInvalid, "both a result and an error"},
		{`{"jsonrpc":"2.0","id":1}`, CodeInvalid, "neither"},
		{`{"jsonrpc":"2.0","result":{}}`, CodeInvalid, "an answer to nothing"},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, CodeInvalid, "a batch"},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 1100) + `","method":"ping"}`, CodeInvalid, "a long id"},
		{`true`, CodeInvalid, "a boolean"},
	} {
		t.Run(row.why, func(t *testing.T) {
			_, fault := Parse([]byte(row.frame))
			got := 0
			if fault != nil {
				got = fault.Code
			}
			if got != row.code {
				t.Errorf("%.100s: code %d, want %d", row.frame, got, row.code)
			}
		})
	}
}

// A frame is one line for every content, so no argument can start another message. Numbers and strings keep their
// spelling.
func TestFramesAreOneLine(t *testing.T) {
	raw := "{\"a\":\n9007199254740993,\r\n\t\"b\": \"\\u003c<\\/x\"}"
	v, err := strictjson.Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Request(strictjson.Value{}, "m", v)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(b, []byte("\n")) != 1 || bytes.ContainsRune(b, '\r') {
		t.Errorf("more than one line: %q", b)
	}
	if !bytes.Contains(b, []byte(`{"a":9007199254740993,"b":"\u003c<\/x"}`)) {
		t.Errorf("changed on the way: %s", b)
	}
}

// A frame that Parse accepts parses to the same message after it was written again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1e3,"method":"x","params":{"a":[1,2]}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"\u0000","method":"\u0000"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, fault := Parse(b)
		if fault != nil || m.Method == "" {
			return
		}
		var params any
		if !m.Params.IsZero() {
			params = m.Params
		}
		again, err := Request(m.ID, m.Method, params)
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		n, fault := Parse(bytes.TrimSuffix(again, []byte("\n")))
		if fault != nil || n.Method != m.Method || !bytes.Equal(n.ID.Raw(), m.ID.Raw()) ||
			bytes.Count(again, []byte("\n")) != 1 {
			t.Fatalf("%q became %q: %v", b, again, fault)
		}
	})
}

func TestReader(t *testing.T) {
	r := NewReader(strings.NewReader("\n  \r\none\n"+strings.Repeat("x", 101)+"\ntwo\n"+strings.Repeat("y", 100)), 101)
	for _, want := range []string{"one", "", "two", strings.Repeat("y", 100)} {
		line, err := r.Next()
		if want == "" {
			if !errors.Is(err, ErrTooLong) {
				t.Fatalf("a long line: %q %v", line, err)
			}
			if err := r.Skip(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil || string(line) != want {
			t.Fatalf("%q %v, want %q", line, err, want)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// endless is a line that hardly ends, and counts what was taken of it.
type endless struct{ taken atomic.Int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.taken.Load() > 100<<20 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = 'x'
	}
	e.taken.Add(int64(len(b)))
	return len(b), nil
}

func TestAnEndlessLineEndsTheConnection(t *testing.T) {
	e := &endless{}
	err := New(e, io.Discard, Options{}).Serve(context.Background())
	if !errors.Is(err, ErrTooLong) {
		t.Errorf("error: %v", err)
	}
	if n := e.taken.Load(); n > MaxFrame+1<<20 {
		t.Errorf("took %d bytes", n)
	}
}

// pipe joins a connection under test to a test that writes and reads lines by hand.
func pipe(t *testing.T, o Options) (c *Conn, write func(string), read func() string, stop func()) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	late := time.AfterFunc(time.Minute, func() { _ = outW.CloseWithError(errors.New("nothing came")) })
	t.Cleanup(func() { late.Stop() })
	c = New(inR, outW, o)
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(context.Background()) }()
	lines := NewReader(outR, 0)
	write = func(s string) {
		if _, err := io.WriteString(inW, s+"\n"); err != nil {
			t.Errorf("writing: %v", err)
		}
	}
	read = func() string {
		b, err := lines.Next()
		if err != nil {
			return "error: " + err.Error()
		}
		return string(b)
	}
	stop = func() {
		_ = inW.Close()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the connection did not end")
		}
		_ = outR.Close()
	}
	return c, write, read, stop
}

func TestCancelledRequestsAreNotAnswered(t *testing.T) {
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	_, write, read, stop := pipe(t, Options{Request: func(ctx context.Context, m Message) (any, error) {
		if m.Method == "quick" {
			return map[string]int{"n": 1}, nil
		}
		begun <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return "late", nil
	}})
	defer stop()
	write(`{"jsonrpc":"2.0","id":7,"method":"slow"}`)
	<-begun
	write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
	write(`{"jsonrpc":"2.0","id":7,"method":"slow"}`)
	if got := read(); !strings.Contains(got, "belongs to a request") {
		t.Errorf("an id twice: %s", got)
	}
	write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	if err := <-ended; err != context.Canceled {
		t.Errorf("the request ended with %v", err)
	}
	for i := range 20 { // an answer that is sent by chance is sent sooner or later
		id := itoa(100 + i)
		write(`{"jsonrpc":"2.0","id":` + id + `,"method":"slow"}`)
		<-begun
		write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		<-ended
	}
	write(`{"jsonrpc":"2.0","id":9,"method":"quick"}`)
	if got := read(); got != `{"jsonrpc":"2.0","id":9,"result":{"n":1}}` {
		t.Errorf("the next answer: %s", got)
	}
}

func TestCallKeepsAnswersApart(t *testing.T) {
	c, write, read, stop := pipe(t, Options{})
	defer stop()
	write(`{"jsonrpc":"2.0","id":1,"result":"early"}`) // before it was asked
	write(`{"jsonrpc":"2.0","id":4,"method":"sync"}`)
	read()
	type reply struct {
		v   strictjson.Value
		err error
	}
	got := make(chan reply, 1)
	steps := make(chan float64, 10)
	go func() {
		v, err := c.Call(context.Background(), "m", nil, func(done, _ float64) { steps <- done })
		got <- reply{v, err}
	}()
	if asked := read(); asked != `{"jsonrpc":"2.0","id":1,"method":"m"}` {
		t.Fatalf("asked %s", asked)
	}
	write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`)
	write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}`)
	write(`{"jsonrpc":"2.0","id":2,"result":"another id"}`)
	write(`{"jsonrpc":"2.0","id":1.0,"result":"right"}`)
	write(`{"jsonrpc":"2.0","id":1,"result":"again"}`)
	write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":3}}`)
	if r := <-got; r.err != nil || string(r.v.Raw()) != `"right"` {
		t.Errorf("answer %s %v", r.v.Raw(), r.err)
	}
	write(`{"jsonrpc":"2.0","id":5,"method":"sync"}`)
	read()
	if len(steps) != 1 || <-steps != 2 {
		t.Error("progress of another request, or of one that was over")
	}
}

func TestCallEndsWithItsContextAndItsConnection(t *testing.T) {
	c, _, read, stop := pipe(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 2)
	go func() { _, err := c.Call(ctx, "m", nil, nil); errs <- err }()
	read()
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotSent) {
		t.Errorf("cancelled: %v", err)
	}
	if got := read(); got != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` {
		t.Errorf("told the other side: %s", got)
	}
	go func() { _, err := c.Call(context.Background(), "m", nil, nil); errs <- err }()
	read()
	stop()
	if err := <-errs; !errors.Is(err, ErrClosed) || errors.Is(err, ErrNotSent) {
		t.Errorf("closed: %v", err)
	}
	if _, err := c.Call(context.Background(), "m", nil, nil); !errors.Is(err, ErrNotSent) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTooMuchInFlightIsRefused(t *testing.T) {
	release := make(chan struct{})
	_, write, read, stop := pipe(t, Options{MaxInFlight: 2, Request: func(ctx context.Context, _ Message) (any, error) {
		<-release
		return nil, nil
	}})
	defer stop()
	for _, id := range []string{"1", "2", "3"} {
		write(`{"jsonrpc":"2.0","id":` + id + `,"method":"m"}`)
	}
	if got := read(); !strings.Contains(got, `"id":3,"error":{"code":-32000`) {
		t.Errorf("the third: %s", got)
	}
	close(release)
	read()
	read()
}

// A client that asks and never reads is held back by its own pipe: nothing piles up here.
func TestAFloodWithoutReadingIsBounded(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	defer outR.Close()
	var begun atomic.Int64
	c := New(inR, outW, Options{MaxInFlight: 200, Request: func(context.Context, Message) (any, error) {
		begun.Add(1)
		return nil, nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(ctx) }()
	var sent atomic.Int64
	go func() {
		for i := range 10_000 {
			if _, err := io.WriteString(inW, `{"jsonrpc":"2.0","id":`+itoa(i)+`,"method":"m"}`+"\n"); err != nil {
				return
			}
			sent.Add(1)
		}
	}()
	time.Sleep(1500 * time.Millisecond) // the reader goes on once a millisecond where one answer waits at a time
	if n := sent.Load(); n > 400 {
		t.Errorf("%d requests were taken from a client that reads nothing", n)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("a stuck output keeps the connection alive")
	}
	_ = inR.Close()
}

func itoa(i int) string { b, _ := json.Marshal(i); return string(b) }

func BenchmarkParse(b *testing.B) {
	frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"helpdesk__create_ticket",` +
		`"arguments":{"customer_id":17,"title":"` + strings.Repeat("a", 60) + `"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, fault := Parse(frame); fault != nil {
			b.Fatal(fault)
		}
	}
}

func TestAClosedConnectionEndsAtOnce(t *testing.T) {
	for range 20 { // the runtime chooses at random among the cases that are ready
		in, _ := io.Pipe() // the other side never speaks and never ends
		c, over := New(in, io.Discard, Options{}), make(chan error, 1)
		go func() { over <- c.Serve(t.Context()) }()
		c.Close()
		select {
		case <-over:
		case <-time.After(500 * time.Millisecond):
			t.Fatal("Serve waits for a writer that has ended")
		}
	}
}
