package egress

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"
)

// web carries plain HTTP to one host. Every request is read, judged and written anew, so that what
// is judged is what goes out; a second request on the connection is judged as the first.
func (s *Server) web(c net.Conn, to Target) {
	s.serveHTTP(c, func(w http.ResponseWriter, r *http.Request) {
		t, why := originTarget(r, to)
		s.forward(w, r, t, why)
	})
}

// proxy serves a connection to the proxy: CONNECT, and plain HTTP with the whole URL.
func (s *Server) proxy(c net.Conn) {
	s.serveHTTP(c, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			s.connect(w, r)
			return
		}
		t, why := ParseURL(r.RequestURI)
		if why == nil && t.Scheme != "http" {
			why = refuse("proxy", "TLS goes through CONNECT")
		}
		s.forward(w, r, t, why)
	})
}

// originTarget reads where a request on a connection to a host goes: there and nowhere else.
func originTarget(r *http.Request, to Target) (Target, *Refusal) {
	if strings.HasPrefix(r.RequestURI, "http://") {
		t, why := ParseURL(r.RequestURI)
		if why == nil && (t.Host != to.Host || t.Port != to.Port) {
			why = refuse("http.host", "the request is for another host than the connection")
		}
		return t, why
	}
	host, port, why := parseAuthority(r.Host, to.Port)
	switch {
	case why != nil:
		return to, why
	case host != to.Host || port != to.Port:
		return to, refuse("http.host", "the Host header is not the host that the connection is for")
	case r.Method == http.MethodConnect || !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*":
		return to, refuse("http", "no request is written so")
	}
	to.Path = r.RequestURI
	return to, nil
}

// forward judges one request and carries it, or answers it with the refusal.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, t Target, why *Refusal) {
	if why == nil {
		why = s.policy.request(r.Method, t)
	}
	if up := r.Header.Get("Upgrade"); up != "" && !strings.EqualFold(up, "websocket") {
		r.Header.Del("Upgrade") // the connection stays one that is read request by request
	}
	if why != nil {
		host, port := t.Host, t.Port
		if host == "" {
			host = "an unreadable address"
		}
		s.attempts.refused(host, port, why)
		w.Header().Set("Connection", "close")
		http.Error(w, "waldo: "+why.Error(), http.StatusForbidden)
		return
	}
	a := s.attempts.began(t.Host, t.Port)
	p := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))), t.Authority()
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			if _, ok := p.Out.Header["User-Agent"]; !ok {
				p.Out.Header.Set("User-Agent", "")
			}
			if p.Out.Body != nil {
				p.Out.Body = &counted{p.Out.Body, a.out, s}
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			in := counted{resp.Body, a.in, s}
			if both, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
				resp.Body = &countedBoth{in, both, a.out}
				return nil
			}
			resp.Body = &in
			return nil
		},
		Transport: s.transport, FlushInterval: -1, BufferPool: buffers{}, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.attempts.failed(t.Host, t.Port, err)
			http.Error(w, "waldo: the host could not be reached", http.StatusBadGateway)
		},
	}
	p.ServeHTTP(w, r)
}

// counted counts a body as it passes, and ends it where the box has had all it may have.
type counted struct {
	io.ReadCloser
	count func(n int64)
	s     *Server
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.count(int64(n))
	if c.s.spent() {
		return n, errSpent
	}
	return n, err
}

// countedBoth counts a websocket.
type countedBoth struct {
	counted
	both io.ReadWriteCloser
	out  func(n int64)
}

func (c *countedBoth) Write(b []byte) (int, error) {
	if c.s.spent() {
		return 0, errSpent
	}
	n, err := c.both.Write(b)
	c.out(int64(n))
	return n, err
}

// connect answers CONNECT and carries the connection as if it had been made to the host itself.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	host, port, why := ParseAuthority(r.RequestURI)
	if why == nil {
		why = s.policy.Classify(host, port)
	}
	if why == nil && (r.ContentLength > 0 || len(r.TransferEncoding) > 0) {
		why = refuse("proxy", "CONNECT has no body")
	}
	if why != nil {
		if host == "" {
			host = "an unreadable address"
		}
		s.attempts.refused(host, port, why)
		w.Header().Set("Connection", "close")
		http.Error(w, "waldo: "+why.Error(), http.StatusForbidden)
		return
	}
	c, b, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	early := make([]byte, b.Reader.Buffered())
	_, _ = io.ReadFull(b.Reader, early)
	_ = c.SetDeadline(time.Time{})
	s.carry(&first{Conn: c.(*once).Conn, head: early}, host, port)
}

// serveHTTP serves one connection until it is over.
func (s *Server) serveHTTP(c net.Conn, h http.HandlerFunc) {
	o := &once{Conn: c, over: make(chan struct{})}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: patience, IdleTimeout: s.limits.Idle, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true,
	}
	_ = srv.Serve(&oneListener{c: o})
	<-o.over
}

// once is the one connection of an http.Server.
type once struct {
	net.Conn
	end  sync.Once
	over chan struct{}
}

func (o *once) Close() error {
	err := o.Conn.Close()
	o.end.Do(func() { close(o.over) })
	return err
}

type oneListener struct{ c *once }

func (l *oneListener) Accept() (net.Conn, error) {
	if c := l.c; c != nil {
		l.c = nil
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// buffers are large: a body is copied through them.
type buffers struct{}

var pool = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

func (buffers) Get() []byte  { return *pool.Get().(*[]byte) }
func (buffers) Put(b []byte) { pool.Put(&b) }
