package jsonrpc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// A request is answered once: early, where the work on it does so. Its id is free from then on, and the work goes on
// while other requests are answered.
func TestEarlyAnswers(t *testing.T) {
	in, write := io.Pipe()
	read, out := io.Pipe()
	release, over := make(chan bool), make(chan bool, 1)
	c := New(in, out, Options{Request: func(ctx context.Context, m Message) (any, error) {
		if m.Method == "long" {
			Early(ctx)(map[string]any{"early": true}, nil)
			<-release
			over <- ctx.Err() == nil
		}
		return map[string]any{"early": false}, nil
	}})
	served := make(chan error, 1)
	go func() { served <- c.Serve(context.Background()) }()
	answers := bufio.NewScanner(read)
	for n, method := range []string{"long", "short", "short"} {
		go fmt.Fprintf(write, `{"jsonrpc":"2.0","id":1,"method":%q}`+"\n", method) // the same id each time
		if !answers.Scan() || !strings.Contains(answers.Text(), fmt.Sprintf(`"early":%v`, n == 0)) {
			t.Fatalf("%s: %s %v", method, answers.Text(), answers.Err())
		}
	}
	release <- true
	if !<-over {
		t.Error("the work was cancelled with its answer")
	}
	write.Close()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the connection did not end")
	}
	if Early(context.Background()) != nil {
		t.Error("a context without a request can be answered")
	}
}
