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

// A client that has its answer can ask again at once: the place is free before the answer is written, at once or
// through the queue. An answer that cannot be written holds its place.
func TestAPlaceIsFreeWhenItsAnswerIsSeen(t *testing.T) {
	for _, direct := range []bool{true, false} {
		r, in := io.Pipe()
		first, began, seen := make(chan struct{}), make(chan string, 2), make(chan bool, 1)
		write := func(b []byte) int {
			if !strings.Contains(string(b), `"id":1,"result"`) {
				return len(b)
			}
			_, _ = io.WriteString(in, `{"jsonrpc":"2.0","id":2,"method":"next"}`+"\n")
			select {
			case <-began:
				seen <- true
			case <-time.After(5 * time.Second):
				seen <- false
			}
			return len(b)
		}
		c := New(r, writer(write), Options{MaxInFlight: 1, Request: func(_ context.Context, m Message) (any, error) {
			if m.Method == "first" {
				<-first
			} else {
				began <- m.Method
			}
			return nil, nil
		}})
		if direct {
			c.at = write
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Serve(t.Context()) }()
		_, _ = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"first"}`+"\n")
		time.Sleep(5 * patience) // another goroutine reads on
		close(first)
		if !<-seen {
			t.Errorf("direct %v: a client that has its answer was refused its next request", direct)
		}
		_ = in.Close()
		<-ended
	}
	c := New(strings.NewReader(""), io.Discard, Options{})
	c.held, c.at = 1, func([]byte) int { return 0 }
	if c.tryWrite(outgoing{frame: []byte("x"), answer: true}) || c.held != 1 {
		t.Errorf("an answer that was not written holds %d places", c.held)
	}
}

type writer func(b []byte) int

func (w writer) Write(b []byte) (int, error) { return w(b), nil }
