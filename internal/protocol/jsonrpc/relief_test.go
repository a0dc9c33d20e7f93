package jsonrpc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A request that is not answered yet holds up none that comes after it, though the goroutine that reads has
// taken it on itself.
func TestASlowAnswerHoldsNobodyUp(t *testing.T) {
	next := make(chan struct{})
	_, write, read, stop := pipe(t, Options{Request: func(_ context.Context, m Message) (any, error) {
		switch m.Method {
		case "first":
			<-next
		case "second":
			defer close(next)
		}
		return struct{}{}, nil
	}})
	defer stop()
	time.Sleep(5 * patience) // the connection is not new
	write(`{"jsonrpc":"2.0","id":1,"method":"first"}`)
	time.Sleep(5 * patience) // it is being answered
	go write(`{"jsonrpc":"2.0","id":2,"method":"second"}`)
	for range 2 {
		if got := read(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`) {
			t.Fatal(got)
		}
	}
}

// lone is a reader that notices when two read at once.
type lone struct {
	io.Reader
	in, twice atomic.Int32
}

func (l *lone) Read(b []byte) (int, error) {
	if l.in.Add(1) > 1 {
		l.twice.Add(1)
	}
	defer l.in.Add(-1)
	return l.Reader.Read(b)
}

// However long answers take, one goroutine reads at a time, and each request is answered once.
func TestOneReadsAtATime(t *testing.T) {
	ask, in := io.Pipe()
	out, say := io.Pipe()
	r := &lone{Reader: ask}
	c := New(r, say, Options{Drain: time.Minute, Request: func(_ context.Context, m Message) (any, error) {
		var n int
		if err := m.ID.Decode(&n); err != nil {
			return nil, err
		}
		time.Sleep(time.Duration(n%9) * patience / 4) // to both sides of it
		return struct{}{}, nil
	}})
	served := make(chan error, 1)
	go func() { served <- c.Serve(context.Background()); say.Close() }()
	const many = 400
	go func() {
		for n := range many {
			fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"x"}`+"\n", n)
			if n%3 == 0 {
				time.Sleep(patience)
			}
		}
		in.Close()
	}()
	seen := map[string]int{}
	for s := bufio.NewScanner(out); s.Scan(); {
		seen[s.Text()]++
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if len(seen) != many || r.twice.Load() > 0 {
		t.Errorf("%d answers of %d; %d times two read at once", len(seen), many, r.twice.Load())
	}
	for answer, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", answer, n)
		}
	}
}
