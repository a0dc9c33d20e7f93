package jsonrpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A malformed answer fails the request that it was meant for, if that is known, and no other.
func TestMalformedResponses(t *testing.T) {
	const both, one, none = "two wait", "one waits", ""
	for _, row := range []struct {
		why, frame string
		fails      string // the first request: another waits beside it, except in the rows where it waits alone
	}{
		{"a name twice", `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`, both},
		{"the id behind it", `{"result":{"a":1,"a":2},"jsonrpc":"2.0","id":1}`, both},
		{"no UTF-8", `{"jsonrpc":"2.0","id":1,"result":"` + "\xff" + `"}`, both},
		{"too deep", `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, both},
		{"broken off", `{"jsonrpc":"2.0","id":1,"result":{"a`, both},
		{"no number of JSON", `{"jsonrpc":"2.0","id":1,"result":NaN}`, both},
		{"no version", `{"id":1,"result":{}}`, both},
		{"neither result nor error", `{"jsonrpc":"2.0","id":1}`, both},
		{"both", `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, both},
		{"the id as a text", `{"jsonrpc":"2.0","id":"1","result":{}}`, both},
		{"the same id twice", `{"jsonrpc":"2.0","id":1,"id":1,"result":{}}`, both},
		{"an error to nobody, twice", `{"jsonrpc":"2.0","id":null,"error":{},"error":{}}`, one},
		{"a result to nobody", `{"jsonrpc":"2.0","result":{}}`, one},
		{"two ids", `{"jsonrpc":"2.0","id":1,"id":7,"result":{}}`, none},
		{"an id that nobody has", `{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}`, none},
		{"their own request", `{"jsonrpc":"2.0","id":1,"method":"x","params":5}`, none},
		{"their own request, the id first", `{"id":1,"jsonrpc":"2.0","params":{"a":1,"a":2},"method":"x"}`, none},
		{"a log line", `hello {"id":1}`, none},
		{"a log line in JSON", `{"level":"info","msg":"a","msg":"b"}`, none},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"result":{}}]`, both},
		{"a line of an answer that is spread over several", `"jsonrpc" : "2.0",`, one},
		{"the first line of it, or of anything", `{`, none},
		{"another object over several lines", `jsonrpc: '2.0',`, none},
		{"a text about it", `"jsonrpc"`, none},
		{"a mark before it", "\ufeff" + `{"jsonrpc":"2.0","id":1,"result":{}}`, both},
		{"a batch of numbers", `[1,2]`, none},
	} {
		t.Run(row.why, func(t *testing.T) {
			t.Parallel()
			for _, others := range []bool{false, true} {
				c, write, read, stop := pipe(t, Options{})
				defer stop()
				first, second := make(chan error, 1), make(chan error, 1)
				ask := func(method string, got chan error) {
					go func() { _, err := c.Call(context.Background(), method, nil, nil); got <- err }()
					read()
				}
				ask("m", first)
				standing := make(chan error, 1)
				ask("subscriptions/listen", standing)
				if others {
					ask("m", second)
				}
				write(row.frame)
				fails := row.fails == both || row.fails == one && !others
				if !fails {
					write(`{"jsonrpc":"2.0","id":1,"result":{}}`)
				}
				select {
				case err := <-first:
					var malformed *MalformedResponse
					if errors.As(err, &malformed) != fails || !fails && err != nil {
						t.Errorf("others wait: %v; got %v", others, err)
					}
				case <-time.After(time.Minute):
					t.Fatalf("others wait: %v; it still waits", others)
				}
				if others {
					write(`{"jsonrpc":"2.0","id":3,"result":{}}`)
					if err := <-second; err != nil {
						t.Errorf("the other request: %v", err)
					}
				}
				write(`{"jsonrpc":"2.0","id":2,"result":{}}`)
				if err := <-standing; err != nil {
					t.Errorf("the one that stands: %v", err)
				}
			}
		})
	}
}

// An error without an id is the answer to the request that waits alone, and to none of two.
func TestErrorsToNobody(t *testing.T) {
	const frame = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`
	c, write, read, stop := pipe(t, Options{})
	defer stop()
	got := make(chan error, 2)
	ask := func() {
		go func() { _, err := c.Call(context.Background(), "m", nil, nil); got <- err }()
		read()
	}
	ask()
	write(frame)
	var fault *Error
	if err := <-got; !errors.As(err, &fault) || fault.Message != "what?" {
		t.Errorf("alone: %v", err)
	}
	ask()
	ask()
	write(frame)
	for _, id := range []string{"2", "3"} {
		write(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
		if err := <-got; err != nil {
			t.Errorf("one of two: %v", err)
		}
	}
}

// Every frame fails at most the request whose id it holds, and is never taken for an answer.
func FuzzSpoil(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"a":1,"a":2}}`))
	f.Add([]byte(`{"result":"` + "\xff" + `","id":"2"}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		var p Pending
		waiting := []*Waiting{p.Add(0, nil), p.Add(0, nil)}
		p.FailMalformed(frame, Errorf(CodeParse, "malformed"), 0)
		failed := 0
		for _, w := range waiting {
			select {
			case m := <-w.Answer:
				failed++
				if m.Fault() == nil || !strings.Contains(string(frame), w.key) && !strings.Contains(string(frame), `\u`) {
					t.Errorf("%q answered %s: %v", frame, w.key, m.Fault())
				}
			default:
			}
		}
		if failed > 1 {
			t.Errorf("%q failed %d requests", frame, failed)
		}
	})
}
