package mcphttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"waldo/internal/model/hostrule"
)

// plain makes HTTP/1.1 requests without TLS that carry a message to one server on this machine. The calling goroutine
// writes and reads each request: http.Transport wakes two more for each. The row "HTTP, 1, read" of BENCHMARKS.md pays
// for it: a call adds a sixth less at the median. All other requests go to http.Transport.
type plain struct {
	*http.Transport
	host   string        // of the server, as its URL has it
	addr   string        // as it is dialled
	places chan struct{} // taken by the requests under way

	mu    sync.Mutex
	idle  []*kept     // connections, the last used at the end
	sweep *time.Timer // closes idle connections; nil if not set
	due   time.Time   // of sweep
}

// unended is how long a server may take to end a stream after its answer; then the connection is closed.
const unended = time.Second

// maxPlain is how long a body may be: a server may answer a longer one before it has read all of it.
const maxPlain = 64 << 10

// swift makes the messages to a server on loopback without TLS cheaper, and changes nothing else.
func swift(u *url.URL, t *http.Transport) http.RoundTripper {
	if u.Scheme != "http" || !hostrule.Loopback(u.Hostname()) || strings.Contains(u.Host, "%") {
		return t
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "80")
	}
	return &plain{Transport: t, host: u.Host, addr: addr, places: make(chan struct{}, maxConns)}
}

// kept is one connection.
type kept struct {
	net.Conn
	in   *bufio.Reader
	left int64 // bytes that may still be read of a head; below 0: it is read, and bounds are its reader's
	used time.Time
	body io.Reader // of the answer before, whose end was not read; nil: it was
	now  bool      // Read waits for nothing
}

var (
	errHead   = errors.New("an answer with a header of more bytes than are read")
	errNotNow = errors.New("nothing has arrived")
)

// Read satisfies io.Reader.
func (k *kept) Read(b []byte) (int, error) {
	if k.now {
		n, err := receive(k.Conn, b, 0)
		if err == nil && n == 0 {
			err = io.EOF
		}
		return n, err
	}
	if k.left < 0 {
		return k.Conn.Read(b)
	}
	if k.left == 0 {
		return 0, errHead
	}
	n, err := k.Conn.Read(b[:min(int64(len(b)), k.left)])
	k.left -= int64(n)
	return n, err
}

// RoundTrip satisfies http.RoundTripper.
func (p *plain) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" || req.URL.Host != p.host || req.Body == nil || req.ContentLength <= 0 ||
		req.ContentLength > maxPlain {
		return p.Transport.RoundTrip(req)
	}
	frame, err := written(req)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	select {
	case p.places <- struct{}{}:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	for {
		k, again, err := p.conn(req.Context())
		var resp *http.Response
		sent := false
		if err == nil {
			resp, sent, err = p.exchange(k, req, frame)
		}
		if err == nil {
			return resp, nil // its place is given back at the end of its body
		}
		if sent || !again || req.Context().Err() != nil {
			<-p.places
			return nil, err
		}
	}
}

// ours are the framing headers, which only this transport writes.
var ours = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true, "Connection": true,
	"Upgrade": true, "Expect": true,
}

// written returns the bytes of a request.
func written(req *http.Request) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", req.Method, req.URL.RequestURI(),
		req.URL.Host, req.ContentLength)
	if err := req.Header.WriteSubset(&b, ours); err != nil { // which lets no line break into a value
		return nil, err
	}
	b.WriteString("\r\n")
	if n, err := b.ReadFrom(req.Body); err != nil || n != req.ContentLength {
		return nil, errors.Join(errors.New("the body is not as long as was said"), err)
	}
	return b.Bytes(), nil
}

// exchange writes a request and reads the head of its answer. It reports whether anything was written.
func (p *plain) exchange(k *kept, req *http.Request, frame []byte) (resp *http.Response, sent bool, err error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = k.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if err != nil {
			stop()
			_ = k.Close()
			err = errors.Join(ctx.Err(), err)
		}
	}()
	n, err := k.Write(frame)
	if n > 0 {
		if t := httptrace.ContextClientTrace(ctx); t != nil && t.WroteHeaders != nil {
			t.WroteHeaders()
		}
	}
	if err != nil {
		return nil, n > 0, err
	}
	k.left = p.MaxResponseHeaderBytes
	for resp == nil || resp.StatusCode/100 == 1 {
		if resp, err = http.ReadResponse(k.in, req); err != nil && k.left == 0 {
			return nil, true, errHead // for any reason that the server ended it
		} else if err != nil {
			return nil, true, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, true, errors.New("the server wants to speak another protocol")
		}
	}
	k.left = -1
	rest := resp.Body
	body := &answered{ReadCloser: rest, end: func(how ending) {
		again := stop() && !resp.Close
		switch {
		case again && how == readWhole && k.in.Buffered() == 0:
			p.keep(k, nil)
		case again && how == leftEarly && resp.ContentLength < 0:
			p.keep(k, rest)
		default:
			_ = k.Close()
		}
		<-p.places
	}}
	if resp.ContentLength == 0 {
		body.over(readWhole)
	}
	resp.Body = body
	return resp, true, nil
}

// ending says how the reading of a body ended.
type ending int

const (
	brokenOff ending = iota // closed before its end
	leftEarly               // its reader has all that it wants, and the server is about to end it
	readWhole               // read to its end
)

// answered is the body of an answer, whose connection is used again once the body has ended.
type answered struct {
	io.ReadCloser
	end  func(how ending)
	once sync.Once
}

func (a *answered) over(how ending) { a.once.Do(func() { a.end(how) }) }

// Read satisfies io.Reader.
func (a *answered) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if err == io.EOF {
		a.over(readWhole)
	} else if err != nil {
		a.over(brokenOff)
	}
	return n, err
}

// Close satisfies io.Closer. It may be called while somebody reads.
func (a *answered) Close() error {
	a.over(brokenOff)
	return nil
}

// Leave ends the reading of a stream that the server ends now. Servers send the end of a stream a moment after the
// answer: it is not waited for here, and the next request looks whether it has come.
func (a *answered) Leave() { a.over(leftEarly) }

// conn returns a connection, and whether it was used before: one that the server has closed meanwhile
// may take a request's bytes and lose them, but where it takes none another may be tried.
func (p *plain) conn(ctx context.Context) (*kept, bool, error) {
	for k := p.take(); k != nil; k = p.take() {
		if time.Since(k.used) < p.IdleConnTimeout && (k.body == nil || k.ended()) && silent(k.Conn) {
			return k, true, nil
		}
		_ = k.Close()
	}
	c, err := p.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, false, err
	}
	k := &kept{Conn: c}
	k.in = bufio.NewReader(k)
	return k, false, nil
}

// take takes the last used connection that is not in the middle of an answer.
func (p *plain) take() *kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if k := p.idle[i]; k.body == nil || k.in.Buffered() > 0 || !silent(k.Conn) {
			p.idle = slices.Delete(p.idle, i, i+1)
			return k
		}
	}
	return nil
}

// ended reports whether the answer before has ended, and nothing came after it.
func (k *kept) ended() bool {
	k.now = true
	n, err := k.body.Read(make([]byte, 1))
	k.now, k.body = false, nil
	return n == 0 && err == io.EOF && k.in.Buffered() == 0
}

// silent reports whether a connection that waits is still open and holds nothing unasked.
func silent(c net.Conn) bool {
	_, err := receive(c, make([]byte, 1), unix.MSG_PEEK)
	return err == errNotNow
}

// receive reads what has arrived, without waiting: errNotNow where nothing has.
func receive(c net.Conn, b []byte, flags int) (n int, err error) {
	s, is := c.(syscall.Conn)
	if !is {
		return 0, errors.ErrUnsupported
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, err
	}
	fault := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), b, flags|unix.MSG_DONTWAIT) })
	switch {
	case fault != nil:
		return 0, fault
	case err == unix.EAGAIN:
		return 0, errNotNow
	}
	return max(n, 0), err
}

// keep takes a connection back, and with it the rest of an answer.
func (p *plain) keep(k *kept, rest io.Reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= p.MaxIdleConnsPerHost {
		_ = k.Close()
		return
	}
	k.used, k.body = time.Now(), rest
	p.idle = append(p.idle, k)
	p.plan()
}

// plan sets the time of the next look at idle connections. The caller holds the lock.
func (p *plain) plan() {
	due := p.idle[0].used.Add(p.IdleConnTimeout)
	for _, k := range p.idle {
		if soon := k.used.Add(unended); k.body != nil && soon.Before(due) {
			due = soon
		}
	}
	switch {
	case p.sweep == nil:
		p.sweep = time.AfterFunc(time.Until(due), p.clean)
	case due.Before(p.due):
		p.sweep.Reset(time.Until(due))
	default:
		return
	}
	p.due = due
}

// clean closes connections that were idle for IdleConnTimeout, and those whose answer does not end.
func (p *plain) clean() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep = nil
	p.idle = slices.DeleteFunc(p.idle, func(k *kept) bool {
		idle := time.Since(k.used)
		over := idle >= p.IdleConnTimeout || k.body != nil && idle >= unended && !k.ended()
		if over {
			_ = k.Close()
		}
		return over
	})
	if len(p.idle) > 0 {
		p.plan()
	}
}
