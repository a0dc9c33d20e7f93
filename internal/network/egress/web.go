package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// web proxies HTTP to one host, plain or, with inside, within the TLS that the sandbox makes with waldo. It parses,
// checks and writes every request anew, so that the checked request is the sent one; this also holds for later
// requests on the connection.
func (s *Server) web(c net.Conn, to Target, inside *tls.Config) {
	s.serveHTTP(c, inside, func(w http.ResponseWriter, r *http.Request) {
		t, why := originTarget(r, to)
		s.forward(w, r, t, why)
	})
}

// proxy serves a connection to the proxy: CONNECT, and plain HTTP with the whole URL.
func (s *Server) proxy(c net.Conn) {
	s.serveHTTP(c, nil, func(w http.ResponseWriter, r *http.Request) {
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
		if why == nil && (t.Host != to.Host || t.Port != to.Port || t.Scheme != to.Scheme) {
			why = refuse("http.host", "the request is for another host or scheme than the connection")
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
	return to, to.setPath(r.RequestURI)
}

// forward judges one request and carries it, or answers it with the refusal.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, t Target, why *Refusal) {
	if why == nil {
		why = s.judge(r, t)
	}
	if why == nil {
		if with := s.policy.reply(r.Method, t); with != nil {
			s.renew(w, r, t, with)
			return
		}
	}
	var use injection
	if why == nil {
		use, why = s.inject(r, &t)
		defer s.held.give(use.held)
	}
	if up := r.Header.Get("Upgrade"); up != "" && !strings.EqualFold(up, "websocket") {
		r.Header.Del("Upgrade") // the connection stays one that is read request by request
	}
	if why != nil {
		s.answerRefusal(w, t.Host, t.Port, methodOf(r), why)
		return
	}
	defer s.flying.Add(-1)
	if s.flying.Add(1) > int64(s.limits.Conns) {
		s.answerRefusal(w, t.Host, t.Port, methodOf(r), refuse("limit.conns", "too many requests at a time"))
		return
	}
	pack, keeps := s.keeps(r, t, use)
	if keeps && s.kept(w, t, pack) {
		return
	}
	a := s.attempts.began(t.Host, t.Port, methodOf(r))
	p := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = t.url(), t.Authority() // the checked target, nothing from the request itself
			if _, ok := p.Out.Header["User-Agent"]; !ok {
				p.Out.Header.Set("User-Agent", "")
			}
			if keeps {
				// a sandbox has no influence on a shared cache entry
				p.Out.Header = http.Header{"User-Agent": {""}, "Accept-Encoding": {"identity"}}
			}
			use.add(p.Out)
			if p.Out.Body != nil {
				if !use.quoted() {
					p.Out.Body = s.watch(p.Out.Body)
				}
				p.Out.Body = &counted{p.Out.Body, a.out, s, t}
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if err := use.unveil(resp); err != nil {
				return err
			}
			if f, ok := s.policy.pack(t); ok && r.Method == http.MethodGet && resp.StatusCode/100 == 2 {
				s.attempts.fetched(f, false)
			}
			if keeps {
				s.keep(t, resp)
			}
			in := counted{resp.Body, a.in, s, t}
			if both, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
				resp.Body = &countedBoth{use.body(&in, resp), both, a.out, s}
				return nil
			}
			resp.Body = use.body(&in, resp)
			return nil
		},
		Transport: s.transport, FlushInterval: -1, BufferPool: buffers{}, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			var why *Refusal
			if errors.As(err, &why) {
				s.answerRefusal(w, t.Host, t.Port, methodOf(r), why)
				return
			}
			s.attempts.failed(t.Host, t.Port, methodOf(r), err)
			http.Error(w, "waldo: the host could not be reached", http.StatusBadGateway)
		},
	}
	p.ServeHTTP(final{w}, r)
}

// judge says why a request does not go out.
func (s *Server) judge(r *http.Request, t Target) *Refusal {
	if why := s.policy.request(r.Method, t); why != nil {
		return why
	}
	if t.Scheme == "http" && kindOf(t.Port) == isTLS {
		return refuse("tls", "this port is for TLS and nothing else")
	}
	if s.owned(t.Host) || s.inside(t.Host, t.Port) || s.policy.requestsOnly(t.Host, t.Port) {
		if name := override(r, t); name != "" {
			return refuse("request", "a server may take this for another method or path: "+name)
		}
	}
	return s.pace.request()
}

// answerRefusal records a refusal and says it to the client.
func (s *Server) answerRefusal(w http.ResponseWriter, host string, port uint16, method string, why *Refusal) {
	if host == "" {
		host = "an unreadable address"
	}
	s.attempts.find(host, port, why.Code, method, true)
	w.Header().Set("Connection", "close")
	http.Error(w, "waldo: "+why.Error(), http.StatusForbidden)
}

// final drops informational answers (103), which are not scrubbed.
type final struct{ http.ResponseWriter }

func (f final) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(code)
	}
}

func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// counted counts a body as it passes, and ends it at the sandbox's byte limit.
type counted struct {
	io.ReadCloser
	count func(n int64)
	s     *Server
	t     Target
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.count(int64(n))
	c.s.pace.bytes(c.s.ctx, n)
	if beyond := -c.s.left(); beyond >= 0 {
		c.s.attempts.refused(c.t.Host, c.t.Port, errSpent)
		return int(max(0, int64(n)-beyond)), errSpent
	}
	return n, err
}

// countedBoth counts a websocket.
type countedBoth struct {
	io.ReadCloser
	both io.ReadWriteCloser
	out  func(n int64)
	s    *Server
}

func (c *countedBoth) Write(b []byte) (int, error) {
	if int64(len(b)) > c.s.left() {
		return 0, errSpent
	}
	n, err := c.both.Write(b)
	c.out(int64(n))
	c.s.pace.bytes(c.s.ctx, n)
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
		s.answerRefusal(w, host, port, methodOf(r), why)
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

// serveHTTP serves one connection until it is over; with inside, within TLS.
func (s *Server) serveHTTP(c net.Conn, inside *tls.Config, h http.HandlerFunc) {
	o := &once{Conn: c, over: make(chan struct{}), serve: h}
	var conn net.Conn = o
	if inside != nil {
		conn = tls.Server(o, inside)
	}
	select {
	case s.handed <- conn:
		<-o.over
	case <-s.ctx.Done():
	}
}

// newWeb returns the HTTP server of a sandbox: it gets its connections one by one, each with its own handler.
func (s *Server) newWeb() *http.Server {
	type handler struct{}
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(handler{}).(http.HandlerFunc)(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, handler{}, c.(*once).serve)
		},
		ReadHeaderTimeout: patience, IdleTimeout: s.limits.Idle, MaxHeaderBytes: 64 << 10,
		HTTP2:    &http.HTTP2Config{MaxReceiveBufferPerConnection: maxLooked, MaxReceiveBufferPerStream: maxLooked},
		ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true,
	}
}

// once is a connection that reports its end.
type once struct {
	net.Conn
	serve http.HandlerFunc
	end   sync.Once
	over  chan struct{}
}

func (o *once) Close() error {
	err := o.Conn.Close()
	o.end.Do(func() { close(o.over) })
	return err
}

// handed is the listener of an http.Server that is given its connections.
type handed struct{ s *Server }

func (h handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.s.handed:
		return c, nil
	case <-h.s.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (handed) Close() error   { return nil }
func (handed) Addr() net.Addr { return &net.TCPAddr{} }

// buffers are large: a body is copied through them.
type buffers struct{}

var pool = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

func (buffers) Get() []byte  { return *pool.Get().(*[]byte) }
func (buffers) Put(b []byte) { pool.Put(&b) }
