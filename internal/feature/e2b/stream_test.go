package e2b

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func quiet() *process {
	return &process{pid: 1, begun: make(chan struct{}), over: make(chan struct{}), kill: func() {},
		listeners: map[*listener]struct{}{}, ended: event{map[string]any{"end": map[string]any{"exitCode": 0}}}}
}

// followed serves the stream of a process.
func followed(t *testing.T, p *process, slow, every time.Duration) *httptest.Server {
	t.Helper()
	left := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		l, leave := p.follow()
		defer leave()
		out := &sender{w: w, c: http.NewResponseController(w), every: every, slow: slow}
		_ = out.finish(p.tail(l, out, r, 0))
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// TestSlowStream: a client that takes nothing loses its stream after its time, and the process goes on.
func TestSlowStream(t *testing.T) {
	const slow = 200 * time.Millisecond
	p := quiet()
	s := followed(t, p, slow, time.Hour)
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	if _, err := bufio.NewReader(c).ReadByte(); err != nil { // it follows
		t.Fatal(err)
	}
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for range 2000 { // 128 MB: more than any buffer between
			_, _ = output{p, "stdout"}.Write(make([]byte, maxPiece))
		}
	}()
	select {
	case <-wrote:
	case <-time.After(time.Minute):
		t.Fatal("the process waits for a client that takes nothing")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.listeners) != 0 {
		t.Error("the client follows still")
	}
}

// TestStreamToTheEnd: a client that reads gets all of the output in order, pings while there is none, and the end.
func TestStreamToTheEnd(t *testing.T) {
	p := quiet()
	s := followed(t, p, time.Minute, 20*time.Millisecond)
	done := make(chan string)
	go func() {
		r, err := http.Post(s.URL, "", nil)
		if err != nil {
			done <- err.Error()
			return
		}
		defer r.Body.Close()
		var text strings.Builder
		_, _ = bufio.NewReader(r.Body).WriteTo(&text)
		done <- text.String()
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(p.listeners)
		p.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not follow")
		}
	}
	_, _ = output{p, "stdout"}.Write([]byte("first"))
	time.Sleep(100 * time.Millisecond)
	_, _ = output{p, "stdout"}.Write([]byte("second"))
	close(p.over)
	text, at := <-done, 0
	for _, want := range []string{`"start":{"pid":1}`, "Zmlyc3Q=", `"keepalive":{}`, "c2Vjb25k", `"end":{"exitCode":0}`,
		"\x02\x00\x00\x00\x02{}"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is not behind the others in %q", want, text)
		}
		at += i
	}
}
