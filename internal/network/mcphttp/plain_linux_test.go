package mcphttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// raw is a server that runs serve for each connection, and counts them.
func raw(t *testing.T, serve func(c net.Conn, in *bufio.Reader)) (url string, conns *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	conns = &atomic.Int32{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go func() { defer c.Close(); serve(c, bufio.NewReader(c)) }()
		}
	}()
	return "http://" + l.Addr().String() + "/mcp", conns
}

// ask posts a word and returns what is answered.
func ask(ctx context.Context, rt http.RoundTripper, url, word string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(word))
	if err != nil {
		return "", err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// echo answers a request with its content.
func echo(c net.Conn, in *bufio.Reader, form string) bool {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	b, _ := io.ReadAll(r.Body)
	_, err = fmt.Fprintf(c, form, len(b), b)
	return err == nil
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"

func transport(t *testing.T, url string) http.RoundTripper {
	t.Helper()
	rt, err := Transport(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func TestPlainKeepsItsConnection(t *testing.T) {
	for form, want := range map[string]int32{
		ok: 1,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s":            1,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n":              1,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s":                    5,
		"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 0\r\n": 5, // more than an answer
	} {
		url, conns := raw(t, func(c net.Conn, in *bufio.Reader) {
			for echo(c, in, form) {
			}
		})
		rt := transport(t, url)
		for n := range 5 {
			word := fmt.Sprint("word ", n)
			if got, err := ask(context.Background(), rt, url, word); err != nil || got != word {
				t.Fatalf("%q: %q %v", form, got, err)
			}
			time.Sleep(time.Millisecond) // unsolicited bytes have arrived
		}
		if conns.Load() != want {
			t.Errorf("%q: %d connections, wanted %d", form, conns.Load(), want)
		}
	}
}

// Only a server on loopback is asked without net/http.
func TestPlainIsForLoopback(t *testing.T) {
	for url, want := range map[string]bool{"http://127.0.0.1:1/mcp": true, "http://localhost/mcp": true,
		"http://[::1]:1/mcp":  true,
		"http://10.0.0.1/mcp": false, "http://mcp.example.com/mcp": false, "http://localhost.example.com/mcp": false,
		"https://127.0.0.1/mcp": false} {
		if _, is := transport(t, url).(*plain); is != want {
			t.Errorf("%s: %v", url, is)
		}
	}
}

// Bytes that a server sends before a request are not taken as the answer.
func TestPlainTakesNoAnswerAhead(t *testing.T) {
	heard, forged := make(chan bool, 1), make(chan bool, 1)
	url, conns := raw(t, func(c net.Conn, in *bufio.Reader) {
		for echo(c, in, ok) {
			<-heard
			fmt.Fprintf(c, ok, 6, "forged")
			forged <- true
		}
	})
	rt := transport(t, url)
	for n := range 3 {
		if got, err := ask(context.Background(), rt, url, "asked"); err != nil || got != "asked" {
			t.Fatalf("%q %v", got, err)
		}
		heard <- true
		<-forged
		if conns.Load() != int32(n+1) {
			t.Errorf("%d connections after %d requests", conns.Load(), n+1)
		}
	}
}

// A connection that the server has closed is not used again; a request that was written is not
// written twice.
func TestPlainAndAServerThatCloses(t *testing.T) {
	closed := make(chan bool, 3)
	url, _ := raw(t, func(c net.Conn, in *bufio.Reader) { echo(c, in, ok); c.Close(); closed <- true })
	rt := transport(t, url)
	for range 3 {
		if got, err := ask(context.Background(), rt, url, "x"); err != nil || got != "x" {
			t.Fatalf("%q %v", got, err)
		}
		<-closed
	}
	var seen atomic.Int32
	url, conns := raw(t, func(c net.Conn, in *bufio.Reader) {
		if echo(c, in, ok) {
			if r, err := http.ReadRequest(in); err == nil {
				_, _ = io.ReadAll(r.Body)
				seen.Add(1) // and closes
			}
		}
	})
	rt = transport(t, url)
	if _, err := ask(context.Background(), rt, url, "first"); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(context.Background(), rt, url, "second"); err == nil || seen.Load() != 1 || conns.Load() != 1 {
		t.Errorf("%v; the request came %d times over %d connections", err, seen.Load(), conns.Load())
	}
}

func TestPlainBounds(t *testing.T) {
	for what, flood := range map[string]string{
		"one endless head":   "X: " + strings.Repeat("x", 1000) + "\r\n",
		"heads without end":  "\r\nHTTP/1.1 102 Processing\r\n",
		"a line without end": strings.Repeat("x", 1000),
	} {
		wrote := make(chan int, 1)
		url, _ := raw(t, func(c net.Conn, in *bufio.Reader) {
			_, _ = http.ReadRequest(in)
			n, _ := io.WriteString(c, "HTTP/1.1 102 Processing\r\n")
			for n < 64<<20 {
				m, err := io.WriteString(c, flood)
				if n += m; err != nil {
					break
				}
			}
			wrote <- n
		})
		_, err := ask(context.Background(), transport(t, url), url, "x")
		if !errors.Is(err, errHead) {
			t.Errorf("%s: %v", what, err)
		}
		if n := <-wrote; n >= 64<<20 {
			t.Errorf("%s: all of it was read", what)
		}
	}
}

// TestPlainSpeaksOneProtocol: an answer that switches to another protocol is an error.
func TestPlainSpeaksOneProtocol(t *testing.T) {
	for head, want := range map[string]string{"200 OK": "", "101 Switching Protocols": "wants to speak another protocol"} {
		url, _ := raw(t, func(c net.Conn, in *bufio.Reader) {
			_, _ = http.ReadRequest(in)
			_, _ = io.WriteString(c, "HTTP/1.1 "+head+"\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nok")
		})
		if _, err := ask(context.Background(), transport(t, url), url, "x"); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", head, err)
		}
	}
}

func TestPlainEndsWithItsContext(t *testing.T) {
	for what, begin := range map[string]string{
		"before the head": "", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
	} {
		url, _ := raw(t, func(c net.Conn, in *bufio.Reader) {
			_, _ = http.ReadRequest(in)
			_, _ = io.WriteString(c, begin)
			_, _ = in.ReadByte() // until the client goes
		})
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		at := time.Now()
		_, err := ask(ctx, transport(t, url), url, "x")
		cancel()
		if err == nil || time.Since(at) > 30*time.Second {
			t.Errorf("%s: %v after %v", what, err, time.Since(at))
		}
	}
}

// At most so many requests are under way at one server at once, and the next goes on where one has ended.
func TestPlainHoldsItsConnections(t *testing.T) {
	begun := make(chan struct{})
	url, conns := raw(t, func(c net.Conn, in *bufio.Reader) {
		<-begun
		for echo(c, in, ok) {
		}
	})
	rt := transport(t, url)
	const more = 4
	done := make(chan error)
	for range maxConns + more {
		go func() { _, err := ask(context.Background(), rt, url, "x"); done <- err }()
	}
	for end := time.Now().Add(time.Minute); conns.Load() < maxConns && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // those beyond would have come
	if n := conns.Load(); n != maxConns {
		t.Errorf("%d connections, wanted %d", n, maxConns)
	}
	late, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := ask(late, rt, url, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	close(begun)
	for range maxConns + more {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// Each framing header appears once, for any headers of the operator.
func TestPlainSaysOnceHowLongItIs(t *testing.T) {
	heads := make(chan string, 1)
	url, _ := raw(t, func(c net.Conn, in *bufio.Reader) {
		head := ""
		for !strings.HasSuffix(head, "\r\n\r\n") {
			s, err := in.ReadString('\n')
			if err != nil {
				break
			}
			head += s
		}
		heads <- head
		_, _ = fmt.Fprintf(c, ok, 1, "x")
	})
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("word"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"X-Control": {"is\r\nsent"}, "Content-Length": {"0"}, "Transfer-Encoding": {"chunked"}, "Host": {"elsewhere"},
		"Connection": {"X-Control"},
	}
	resp, err := transport(t, url).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	_, rest, _ := strings.Cut(<-heads, "\r\n")
	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	if want := "Host: " + host + "\r\nContent-Length: 4\r\nX-Control: is  sent\r\n\r\n"; rest != want {
		t.Errorf("%q, wanted %q", rest, want)
	}
}

// leave posts a word and leaves the answer after its first bytes, as the reader of a stream does.
func leave(t *testing.T, rt http.RoundTripper, url, word string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(word))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != word {
		t.Fatalf("%q %v", b, err)
	}
	resp.Body.(leaver).Leave()
	_ = resp.Body.Close()
}

// A stream that is left at its answer gives its connection to the next request once it has ended, and only then.
func TestPlainLeavesAStream(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"
	for rest, want := range map[string]int32{
		"0\r\n\r\n":               1,
		"0\r\nTrailer: x\r\n\r\n": 1,
		"4\r\nmore\r\n":           4, // it goes on
		"4\r\nmore\r\n0\r\n\r\n":  4, // it went on
		"0\r\n\r\n" + ok[:20]:     4, // more than an answer
		"x\r\n\r\n":               4,
		"0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong": 4,
		"": 4, // its end does not come in time
	} {
		left, heard := make(chan bool, 1), make(chan bool, 1)
		url, conns := raw(t, func(c net.Conn, in *bufio.Reader) {
			for echo(c, in, head) {
				<-left // or the client reads the rest with the answer
				_, _ = io.WriteString(c, rest)
				heard <- true
			}
		})
		rt := transport(t, url)
		for n := range 4 {
			leave(t, rt, url, fmt.Sprint("word ", n))
			left <- true
			<-heard
		}
		if conns.Load() != want {
			t.Errorf("%q: %d connections, wanted %d", rest, conns.Load(), want)
		}
	}
	// one that ends later is used by a later request
	first, ends, ended := atomic.Bool{}, make(chan bool), make(chan bool)
	url, conns := raw(t, func(c net.Conn, in *bufio.Reader) {
		for echo(c, in, head) {
			if first.CompareAndSwap(false, true) {
				<-ends
				_, _ = io.WriteString(c, "0\r\n\r\n")
				ended <- true
			}
		}
	})
	rt := transport(t, url)
	leave(t, rt, url, "one")
	leave(t, rt, url, "two")
	ends <- true
	<-ended
	leave(t, rt, url, "three")
	if conns.Load() != 2 {
		t.Errorf("%d connections, wanted 2", conns.Load())
	}
}

// A stream that does not end after its answer is closed.
func TestPlainClosesAStreamThatDoesNotEnd(t *testing.T) {
	closed := make(chan bool, 1)
	url, _ := raw(t, func(c net.Conn, in *bufio.Reader) {
		echo(c, in, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n")
		_, _ = in.ReadByte()
		closed <- true
	})
	leave(t, transport(t, url), url, "word")
	select {
	case <-closed:
	case <-time.After(20 * time.Second): // well before IdleConnTimeout
		t.Error("it is still open")
	}
}

// FuzzPlain states: any bytes of a server are read as net/http reads them or refused, and none are taken for the
// answer to the next request.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{
		fmt.Sprintf(ok, 2, "{}"), fmt.Sprintf(ok, 1, "{}"), fmt.Sprintf(ok, 3, "{}"), fmt.Sprintf(ok, 0, ""),
		fmt.Sprintf(ok, 2, "{}") + fmt.Sprintf(ok, 6, "forged"),
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n" +
			"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: " +
			"2\r\n\r\n{}",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nto the end", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end",
		"HTTP/1.1 200\r\n A: b\r\n\r\n", "HTTP/2.0 200 OK\nA:b\n\nx", "HTTP/1.1 0x1 no\r\n\r\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, answer []byte, stays bool) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if !stays {
			got, own := sent(ctx, swift, answer, false)
			want, theirs := sent(ctx, func(_ *url.URL, t *http.Transport) http.RoundTripper { return t }, answer, false)
			if own == nil && (theirs != nil || got != want) {
				t.Errorf("read as %q, by net/http as %q %v", got, want, theirs)
			}
			if theirs == nil && own != nil && !strings.HasPrefix(want, "101 ") {
				t.Errorf("refused: %v; net/http reads %q", own, want)
			}
			return
		}
		if _, err := sent(ctx, swift, answer, true); err != nil {
			t.Error(err)
		}
	})
}

// sent makes a request to a server that answers the first with the given bytes and every other with its content. It
// returns the answer in a line. If the connection stays open, a second request must be answered correctly.
func sent(
	ctx context.Context, with func(*url.URL, *http.Transport) http.RoundTripper, answer []byte, stays bool,
) (string, error) {
	var first atomic.Bool
	one, cancel := context.WithCancel(ctx)
	defer cancel()
	serve := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		if first.CompareAndSwap(false, true) {
			r, err := http.ReadRequest(in)
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if err == nil {
				_, err = c.Write(answer)
			}
			if stays { // not before: on a busy machine the next request would be this server's first
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			if err != nil || !stays {
				return
			}
		}
		for echo(c, in, ok) {
		}
	}
	t := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: 30 * time.Second,
		MaxIdleConnsPerHost: 2,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			var ends [2]net.Conn
			for i, fd := range pair {
				file := os.NewFile(uintptr(fd), "end")
				if ends[i], err = net.FileConn(file); err != nil {
					return nil, err
				}
				_ = file.Close()
			}
			go serve(ends[1])
			return ends[0], nil
		}}
	defer t.CloseIdleConnections()
	u := &url.URL{Scheme: "http", Host: "localhost"}
	rt := with(u, t)
	req, err := http.NewRequestWithContext(one, http.MethodPost, "http://localhost/", strings.NewReader("asked"))
	if err != nil {
		return "", err
	}
	said := ""
	resp, err := rt.RoundTrip(req)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		said = fmt.Sprintf("%d %q %v %d %v %q %v", resp.StatusCode, resp.Status, resp.Header, resp.ContentLength,
			resp.TransferEncoding, body, resp.Trailer)
	}
	if !stays {
		return said, err
	}
	if p, is := rt.(*plain); is {
		defer func() {
			for _, k := range p.idle {
				_ = k.Close()
			}
		}()
	}
	if again, err := ask(ctx, rt, "http://localhost/", "again"); err != nil || again != "again" {
		return "", fmt.Errorf("after it: %q %v", again, err)
	}
	return "", nil
}
