package jsonrpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestOnlySoManyMessages(t *testing.T) {
	_, write, read, _ := pipe(t, Options{
		Request:       func(context.Context, Message) (any, error) { return nil, nil },
		Inline:        func(string) bool { return true },
		AnswerInvalid: true, MaxMessages: 2,
	})
	for i := range 2 {
		write(`{"jsonrpc":"2.0","id":` + itoa(i) + `,"method":"x"}`)
		if got := read(); !strings.Contains(got, `"result"`) {
			t.Fatalf("control: message %d: %s", i, got)
		}
	}
	write(`{"jsonrpc":"2.0","id":2,"method":"x"}`)
	if got := read(); !strings.Contains(got, "more than 2 messages") {
		t.Errorf("the third: %s", got)
	}
}

func TestErrorsSayNothingOfTheInside(t *testing.T) {
	_, write, read, _ := pipe(t, Options{
		Request: func(context.Context, Message) (any, error) { return nil, errors.New("open /hidden: denied") },
	})
	write(`{"jsonrpc":"2.0","id":1,"method":"x"}`)
	if got := read(); !strings.Contains(got, "the request failed") || strings.Contains(got, "hidden") {
		t.Errorf("%s", got)
	}
}

func TestAnAnswerBeyondAMessageIsNotSent(t *testing.T) {
	_, write, read, _ := pipe(t, Options{
		Request: func(_ context.Context, m Message) (any, error) {
			if m.Method == "short" {
				return "x", nil
			}
			return strings.Repeat("x", MaxFrame), nil
		},
	})
	write(`{"jsonrpc":"2.0","id":1,"method":"short"}`)
	if got := read(); !strings.Contains(got, `"result":"x"`) {
		t.Errorf("control: %s", got)
	}
	write(`{"jsonrpc":"2.0","id":1,"method":"long"}`)
	if got := read(); !strings.Contains(got, "ask for less") {
		t.Errorf("%.100s", got)
	}
}

// Wait is exact: a request that it does not wait for never begins, though its frame was read.
func TestNoRequestBeginsOnceAllWasWaitedFor(t *testing.T) {
	r, w := io.Pipe()
	began := make(chan struct{}, 2)
	c := New(r, io.Discard, Options{
		Request: func(context.Context, Message) (any, error) { began <- struct{}{}; return nil, nil },
		Inline:  func(string) bool { return true },
	})
	go func() { _ = c.Serve(t.Context()) }()
	say := func() { _, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"method":"x"}`+"\n") }
	say()
	<-began // control
	c.Wait()
	say()
	say() // it is read once the one before was dealt with
	select {
	case <-began:
		t.Error("a request began after the wait")
	case <-time.After(20 * time.Millisecond):
	}
	_ = w.Close()
}

func TestOnlySoManyQuestionsWait(t *testing.T) {
	var p Pending
	first, second := p.Add(2, nil), p.Add(2, nil)
	if first == nil || second == nil || first.N == second.N {
		t.Fatalf("control: %v %v", first, second)
	}
	if w := p.Add(2, nil); w != nil {
		t.Errorf("a third waits as %d", w.N)
	}
	p.Drop(first)
	if w := p.Add(2, nil); w == nil || w.N == first.N {
		t.Errorf("after one was dropped: %v", w)
	}
}
