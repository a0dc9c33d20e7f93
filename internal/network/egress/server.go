package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/network/egress/interceptca"
	"waldo/internal/network/egress/pkgcache"
	"waldo/internal/network/egress/postgres"
	"waldo/internal/sandbox"
)

// Server serves the egress of one sandbox: names, connections, and a proxy for programs that use one. Make it with
// NewServer and pass Serve to the sandbox's profile.
type Server struct {
	dialer    *Dialer
	policy    *Policy
	limits    Limits
	names     *names
	transport *http.Transport
	certs     certificates
	attempts  attempts
	pace      pace
	held      room
	flying    atomic.Int64 // requests that are being carried
	creds     []Credential
	cache     *pkgcache.Cache
	marks     *marks          // nil: the sandbox has no placeholder
	authority *interceptca.CA // nil: no TLS is looked into
	databases map[Target]*postgres.Broker
	configs   sync.Map // host → *tls.Config of intercepted hosts
	http      *http.Server
	handed    chan net.Conn

	mu        sync.Mutex
	conns     map[net.Conn]bool
	over      bool
	began     time.Time // of the minute that is being counted
	fresh     int       // connections in it
	endpoints []io.Closer
	ctx       context.Context // until Close
	stop      func()
	wait      sync.WaitGroup
}

// Options configure a sandbox's egress beside its rules.
type Options struct {
	Credentials []Credential
	Cache       *pkgcache.Cache // caches package files between runs; nil: no cache
}

// NewServer returns a server for one sandbox. The dialer's policy is the sandbox's.
func NewServer(d *Dialer, o Options) (*Server, error) {
	d.Sandbox = true
	s := &Server{
		dialer: d, policy: d.Policy, limits: d.Policy.Limits.complete(), transport: d.Transport(), conns: map[net.Conn]bool{},
		creds: o.Credentials, cache: o.Cache, marks: newMarks(o.Credentials), handed: make(chan net.Conn),
	}
	for _, c := range s.creds {
		if err := c.check(); err != nil {
			return nil, err
		}
		if why := s.policy.Classify(c.Host, c.Port); why != nil {
			return nil, fmt.Errorf("secret %s: %s: %s", c.Name, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), why.Text)
		}
	}
	if domains := s.domains(); len(domains) > 0 {
		var err error
		if s.authority, err = interceptca.New(domains); err != nil {
			return nil, fmt.Errorf("egress: %w", err)
		}
	}
	if err := s.newDatabases(); err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.names = newNames(d.Policy, s.limits.Names)
	if s.marks != nil {
		s.names.marks, s.attempts.safe = s.marks, s.marks.out
	}
	s.pace.limits, s.http = s.limits, s.newWeb()
	return s, nil
}

// Fence has connections write nothing once alive is false. It comes before Serve.
func (s *Server) Fence(alive func() bool) { s.dialer.Alive = alive }

// Trust returns the certificate that programs in the sandbox must trust, in PEM; nil: none.
func (s *Server) Trust() []byte {
	if s.authority == nil {
		return nil
	}
	return s.authority.PEM()
}

// Serve takes the sockets of a sandbox and returns at once. Close of the returned value ends every connection and
// waits until no traffic of the sandbox remains.
func (s *Server) Serve(w sandbox.Egress) io.Closer {
	s.endpoints = []io.Closer{w.Names, w.Proxy}
	s.wait.Go(func() {
		s.names.serve(w.Names, func(name string) {
			s.attempts.refused(name, 0, refuse("name", "no rule names this host"))
		})
	})
	s.wait.Go(func() { _ = s.http.Serve(handed{s}) })
	s.wait.Go(func() { s.accept(w.Proxy, s.proxy) })
	for _, l := range w.TCP {
		s.endpoints = append(s.endpoints, l)
		s.wait.Go(func() { s.accept(l, s.direct) })
	}
	return s
}

// Ports returns the ports on which the sandbox reaches egress.
func (s *Server) Ports() []uint16 { return s.policy.Ports() }

// Close ends everything, once.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		s.wait.Wait()
		return nil
	}
	s.over = true
	s.stop()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	var errs []error
	for _, c := range s.endpoints {
		errs = append(errs, c.Close())
	}
	errs = append(errs, s.http.Close())
	s.wait.Wait()
	s.transport.CloseIdleConnections()
	return errors.Join(errs...)
}

// accept hands each connection to serve, within the limits.
func (s *Server) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || s.ended() {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors, perhaps
			continue
		}
		if why := s.admit(c); why != nil {
			host, port := s.where(c)
			s.attempts.refused(host, port, why)
			reset(c)
			continue
		}
		s.wait.Go(func() {
			defer s.forget(c)
			serve(c)
		})
	}
}

// errSpent ends what would go beyond the limit of bytes.
var errSpent = refuse("limit.bytes", "the sandbox has sent and received all that it may")

// left is how many bytes may still move.
func (s *Server) left() int64 { return s.limits.Bytes - s.attempts.all.Load() }

func (s *Server) spent() bool { return s.left() <= 0 }

func (s *Server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// admit counts a new connection.
func (s *Server) admit(c net.Conn) *Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.began) > time.Minute {
		s.began, s.fresh = now, 0
	}
	s.fresh++
	switch {
	case s.over:
		return refuse("over", "the sandbox is being closed")
	case len(s.conns) >= s.limits.Conns:
		return refuse("limit.conns", "too many connections at a time")
	case s.fresh > s.limits.PerMin:
		return refuse("limit.rate", "too many new connections in a minute")
	case s.spent():
		return errSpent
	}
	s.conns[c] = true
	return nil
}

func (s *Server) forget(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// ownLoopback is where programs look for a server of this machine. The ports of rules are taken there by egress, so that
// the sandbox's own loopback leads to this machine's at those that a rule names, and to nothing at the others.
var ownLoopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// where returns the host and port of a sandbox's connection: the name of its local address, or the address itself.
func (s *Server) where(c net.Conn) (string, uint16) {
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return "", 0
	}
	if name := s.names.name(at.Addr()); name != "" {
		return name, at.Port()
	}
	if at.Addr().Unmap() == ownLoopback {
		return "localhost", at.Port()
	}
	return at.Addr().Unmap().String(), at.Port()
}

// direct serves a connection that the sandbox made to a name's address.
func (s *Server) direct(c net.Conn) {
	at, _ := netip.ParseAddrPort(c.LocalAddr().String())
	host, port := s.where(c)
	if s.names.name(at.Addr()) == "" && host != "localhost" {
		s.attempts.refused(host, port, refuse("address", "no name stands for this address"))
		reset(c)
		return
	}
	s.carry(&first{Conn: c}, host, port)
}

// carry decides on a connection by its first bytes, and connects it to the host.
func (s *Server) carry(c *first, host string, port uint16) {
	why := s.policy.Classify(host, port)
	if s.marks.in([]byte(host)) {
		why = errPlaceholder
	}
	if why != nil {
		s.attempts.refused(host, port, why)
		reset(c.Conn)
		return
	}
	if b := s.databases[Target{Host: host, Port: port}]; b != nil {
		s.enter(c, b, host, port)
		return
	}
	kind, why := s.kind(c, host, port)
	switch {
	case why != nil:
		s.attempts.refused(host, port, why)
		reset(c.Conn)
	case kind == isTLS:
		s.tls(c, host, port)
	case kind == isHTTP:
		c.head = bytes.TrimLeft(c.head, "\r\n") // empty lines before a request (RFC 9112 §2.2)
		s.web(c, Target{Scheme: "http", Host: host, Port: port}, nil)
	default:
		s.plain(c, host, port)
	}
}

// kind decides the protocol of a connection: by its port, or else by its first bytes. If rules look at requests, or
// the host has an injected secret, only HTTP, over TLS or plain, is accepted.
func (s *Server) kind(f *first, host string, port uint16) (portKind, *Refusal) {
	if k := kindOf(port); k != isAny {
		return k, nil
	}
	wait, looked := listening, s.owned(host) || s.inside(host, port)
	if looked {
		wait = patience
	}
	_ = f.Conn.SetReadDeadline(time.Now().Add(wait))
	for f.more() && firstWords(f.head) == isAny && f.opening() {
	}
	_ = f.Conn.SetReadDeadline(time.Time{})
	k := firstWords(f.head)
	if k == isAny && looked {
		return k,
			refuse("words",
				"rules look at requests to this host, or a secret belongs to it: it is spoken to in TLS or HTTP alone")
	}
	return k, nil
}

// listening is how long a client is waited for that may be one that lets the server speak first.
const listening = 200 * time.Millisecond

// first is a connection whose first bytes have been read and are given out again.
type first struct {
	net.Conn
	head []byte
	eof  bool
}

// more reads more of the first bytes.
func (f *first) more() bool {
	b := make([]byte, 16<<10)
	n, err := f.Conn.Read(b)
	f.head = append(f.head, b[:n]...)
	var late net.Error
	f.eof = err != nil && !(errors.As(err, &late) && late.Timeout())
	return err == nil && len(f.head) < 2*maxHello+1
}

// maxOpening is how many bytes are read of a line, or of empty lines, to tell what a client speaks.
const maxOpening = 16 << 10

// silent reports whether the client has said nothing yet, or empty lines alone.
func (f *first) silent() bool { return len(bytes.TrimLeft(f.head, blanks)) == 0 }

// opening reports whether the first bytes may be the begin of a line of text.
func (f *first) opening() bool {
	return len(f.head) < maxOpening &&
		!bytes.ContainsFunc(bytes.TrimLeft(f.head, blanks), func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') })
}

func (f *first) Read(b []byte) (int, error) {
	if len(f.head) > 0 {
		n := copy(b, f.head)
		f.head = f.head[n:]
		return n, nil
	}
	return f.Conn.Read(b)
}

// reset ends a connection so that the client hears of it at once.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
