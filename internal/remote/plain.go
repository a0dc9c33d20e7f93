package remote

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
	"strings"
	"sync"
	"time"
)

// plain makes requests of HTTP/1.1 without TLS that carry a message, as a server on this machine is
// spoken to. Each is written and read by the goroutine that makes it: http.Transport has two more for
// each connection, and waking them cost more than the request. Everything else is left to it.
type plain struct {
	*http.Transport

	mu    sync.Mutex
	idle  map[string][]*kept // by address, the last used at the end
	sweep *time.Timer        // closes those that nobody uses; nil: none is idle
	room  map[string]chan struct{}
}

// maxPlain is how long a body may be: a server may answer a longer one before it has read all of it.
const maxPlain = 64 << 10

// kept is one connection.
type kept struct {
	net.Conn
	in   *bufio.Reader
	left int64 // bytes that may still be read of a head; below 0: it is read, and bounds are its reader's
	used time.Time
	free func() // gives its place among MaxConnsPerHost back
}

var errHead = errors.New("an answer with a header of more bytes than are read")

// Read satisfies io.Reader.
func (k *kept) Read(b []byte) (int, error) {
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

func (k *kept) close() {
	_ = k.Conn.Close()
	k.free()
}

// RoundTrip satisfies http.RoundTripper.
func (p *plain) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" || req.Body == nil || req.ContentLength <= 0 || req.ContentLength > maxPlain || strings.Contains(req.URL.Host, "%") {
		return p.Transport.RoundTrip(req)
	}
	frame, err := written(req)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	addr := req.URL.Host
	if req.URL.Port() == "" {
		addr = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	for {
		k, again, err := p.conn(req.Context(), addr)
		if err != nil {
			return nil, err
		}
		resp, sent, err := p.exchange(k, addr, req, frame)
		if err == nil || sent || !again || req.Context().Err() != nil {
			return resp, err
		}
	}
}

// written returns the bytes of a request.
func written(req *http.Request) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", req.Method, req.URL.RequestURI(), req.URL.Host, req.ContentLength)
	if err := req.Header.Write(&b); err != nil { // which lets no line break into a value
		return nil, err
	}
	b.WriteString("\r\n")
	if n, err := b.ReadFrom(req.Body); err != nil || n != req.ContentLength {
		return nil, errors.Join(errors.New("the body is not as long as was said"), err)
	}
	return b.Bytes(), nil
}

// exchange writes a request and reads the head of its answer. It reports whether anything was written.
func (p *plain) exchange(k *kept, addr string, req *http.Request, frame []byte) (resp *http.Response, sent bool, err error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = k.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if err != nil {
			stop()
			k.close()
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
	for {
		if resp, err = http.ReadResponse(k.in, req); err != nil && k.left == 0 {
			return nil, true, errHead // whatever it takes the cut for
		} else if err != nil {
			return nil, true, err
		}
		if resp.StatusCode/100 != 1 {
			break
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, true, errors.New("the server wants to speak another protocol")
		}
	}
	k.left = -1
	body := &answered{ReadCloser: resp.Body, end: func(whole bool) {
		if stop() && whole && !resp.Close && k.in.Buffered() == 0 {
			p.keep(addr, k)
			return
		}
		k.close()
	}}
	if resp.ContentLength == 0 {
		body.over(true)
	}
	resp.Body = body
	return resp, true, nil
}

// answered is the body of an answer, whose connection is used again once it was read to its end.
type answered struct {
	io.ReadCloser
	mu    sync.Mutex
	end   func(whole bool)
	ended bool
}

func (a *answered) over(whole bool) {
	a.mu.Lock()
	ended := a.ended
	a.ended = true
	a.mu.Unlock()
	if !ended {
		a.end(whole)
	}
}

// Read satisfies io.Reader.
func (a *answered) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if err != nil {
		a.over(err == io.EOF)
	}
	return n, err
}

// Close satisfies io.Closer. It may be called while somebody reads.
func (a *answered) Close() error {
	a.over(false)
	return nil
}

// conn returns a connection, and whether it was used before: one that the server has closed meanwhile
// may take a request's bytes and lose them, but where it takes none another may be tried.
func (p *plain) conn(ctx context.Context, addr string) (*kept, bool, error) {
	for {
		p.mu.Lock()
		var k *kept
		if all := p.idle[addr]; len(all) > 0 {
			k, p.idle[addr] = all[len(all)-1], all[:len(all)-1]
		}
		places := p.room[addr]
		if places == nil {
			places = make(chan struct{}, p.MaxConnsPerHost)
			if p.room == nil {
				p.room = map[string]chan struct{}{}
			}
			p.room[addr] = places
		}
		p.mu.Unlock()
		if k != nil {
			if time.Since(k.used) < p.IdleConnTimeout && silent(k.Conn) {
				return k, true, nil
			}
			k.close()
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		c, err := p.DialContext(ctx, "tcp", addr)
		if err != nil {
			<-places
			return nil, false, err
		}
		k = &kept{Conn: c, free: sync.OnceFunc(func() { <-places })}
		k.in = bufio.NewReader(k)
		return k, false, nil
	}
}

// keep takes a connection back.
func (p *plain) keep(addr string, k *kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle[addr]) >= p.MaxIdleConnsPerHost {
		k.close()
		return
	}
	if p.idle == nil {
		p.idle = map[string][]*kept{}
	}
	k.used = time.Now()
	p.idle[addr] = append(p.idle[addr], k)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(p.IdleConnTimeout, p.clean)
	}
}

// clean closes what nobody has used for as long as IdleConnTimeout.
func (p *plain) clean() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep = nil
	for addr, all := range p.idle {
		for len(all) > 0 && time.Since(all[0].used) >= p.IdleConnTimeout {
			all[0].close()
			all = all[1:]
		}
		p.idle[addr] = all
		if len(all) > 0 && p.sweep == nil {
			p.sweep = time.AfterFunc(p.IdleConnTimeout, p.clean)
		}
	}
}

// CloseIdleConnections is what http.Client asks for.
func (p *plain) CloseIdleConnections() {
	p.Transport.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, all := range p.idle {
		for _, k := range all {
			k.close()
		}
		delete(p.idle, addr)
	}
}
