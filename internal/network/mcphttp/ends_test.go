package mcphttp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// answers makes a connection to a server that counts its connections and answers each call on a stream. after says
// what the server does with the stream once the answer is out.
func answers(t *testing.T, after func(w http.ResponseWriter, r *http.Request)) (c *Conn, conns *atomic.Int32) {
	t.Helper()
	conns = &atomic.Int32{}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := read(r)
		if a.Method != "tools/call" {
			http.NotFound(w, r)
			return
		}
		stream(w)("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", a.ID)
		after(w, r)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	rt, err := Transport(srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = New(Options{URL: srv.URL, Transport: rt}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, conns
}

// A stream that the server ends after its answer leaves its connection for the next call.
func TestStreamLeavesItsConnection(t *testing.T) {
	c, conns := answers(t, func(http.ResponseWriter, *http.Request) {})
	for range 10 {
		if _, err := call(t, c, "tools/call", map[string]any{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // the server's end arrives
	}
	if n := conns.Load(); n > 3 {
		t.Errorf("%d connections for 10 calls, wanted 1, and at most 3", n)
	}
}

// A stream that does not end, or goes on, is closed, and no call waits for it.
func TestStreamThatGoesOnIsClosed(t *testing.T) {
	for why, more := range map[string]bool{"silent": false, "a flood": true} {
		t.Run(why, func(t *testing.T) {
			over := make(chan struct{})
			c, _ := answers(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(over)
				for more && r.Context().Err() == nil {
					fmt.Fprintf(w, ": %01000d\n\n", 0)
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			})
			begun := time.Now()
			if _, err := call(t, c, "tools/call", map[string]any{}); err != nil || time.Since(begun) > 10*time.Second {
				t.Fatal(err, time.Since(begun))
			}
			select {
			case <-over:
			case <-time.After(20 * time.Second):
				t.Error("the stream is still open")
			}
		})
	}
}

// A call that is given up ends its request, although the request outlives the call's context after an answer.
func TestGivenUpCallEndsItsRequest(t *testing.T) {
	begun, over := make(chan struct{}), make(chan struct{})
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		if a := read(r); a.Method == "tools/call" {
			stream(w)(": wait\n\n")
			close(begun)
			<-r.Context().Done()
			close(over)
			return
		}
		http.NotFound(w, r)
	}, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-begun; cancel() }()
	if _, err := c.Call(ctx, "tools/call", func(int64) any { return nil }, nil); err == nil {
		t.Error("a call that was given up has an answer")
	}
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Error("the request goes on")
	}
}
