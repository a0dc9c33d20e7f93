package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Whether a frame goes out at once, in part or through the queue: each arrives whole, and those of one
// sender in their order.
func TestFramesStayWholeAndInOrder(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if blocking {
			w.Fd() // as standard output is
		}
		c := New(strings.NewReader(""), w, Options{})
		go func() { _ = c.write() }()
		const senders, frames = 8, 200
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for n := range frames {
					// some longer than the pipe takes at once
					params := map[string]any{"s": s, "n": n, "x": strings.Repeat("x", 37*n*s)}
					if err := c.Tell(context.Background(), "note", params); err != nil {
						t.Error(err)
					}
				}
			})
		}
		next := [senders]int{}
		in := NewReader(&slow{r: r}, 0)
		for range senders * frames {
			line, err := in.Next()
			if err != nil {
				t.Fatal(err)
			}
			m, fault := Parse(line)
			if fault != nil {
				t.Fatalf("blocking %v: %.80q: %v", blocking, line, fault)
			}
			var s, n int
			if m.Param("s").Decode(&s) != nil || m.Param("n").Decode(&n) != nil || n != next[s] {
				t.Fatalf("blocking %v: frame %d of sender %d came when %d should", blocking, n, s, next[s])
			}
			next[s]++
		}
		wg.Wait()
		c.Close()
		r.Close()
		w.Close()
	}
}

// slow reads a little at a time.
type slow struct {
	r io.Reader
	n int
}

func (s *slow) Read(b []byte) (int, error) {
	if s.n++; s.n%64 == 0 {
		time.Sleep(time.Millisecond)
	}
	return s.r.Read(b[:min(len(b), 4000)])
}

// A send to a side that does not read ends with its context, for every kind of pipe.
func TestSendToOneWhoDoesNotRead(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if blocking {
			w.Fd()
		}
		c := New(strings.NewReader(""), w, Options{})
		go func() { _ = c.write() }()
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		for n := 0; err == nil && n < 10_000; n++ {
			err = c.Tell(ctx, "note", map[string]any{"x": fmt.Sprint(strings.Repeat("x", 3000), n)})
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("blocking %v: %v", blocking, err)
		}
		r.Close()
		c.Close()
		w.Close()
	}
}
