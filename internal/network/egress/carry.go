package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a client may take for its first words.
const patience = 15 * time.Second

// tls carries a TLS connection whose server name is the host that it is made to, after looking at
// the certificate of the address that it is carried to.
func (s *Server) tls(f *first, host string, port uint16) {
	_ = f.Conn.SetReadDeadline(time.Now().Add(patience))
	name, more, why := serverName(f.head)
	for why == nil && more {
		if !f.more() {
			why = refuse("tls", "the ClientHello does not come")
			break
		}
		name, more, why = serverName(f.head)
	}
	if why == nil && name != host {
		why = refuse("tls.name", "the server name is not the host that the connection is for")
	}
	if why != nil {
		s.attempts.refused(host, port, why)
		reset(f.Conn)
		return
	}
	if s.inside(host, port) {
		_ = f.Conn.SetReadDeadline(time.Time{})
		s.intercept(f, host, port)
		return
	}
	s.plain(f, host, port)
}

// plain dials and carries bytes both ways.
func (s *Server) plain(f *first, host string, port uint16) {
	if why := s.pace.request(); why != nil {
		s.attempts.refused(host, port, why)
		reset(f.Conn)
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*patience)
	defer cancel()
	out, err := s.dialer.Dial(ctx, host, port)
	if err == nil && len(f.head) > 0 && f.head[0] == recordHandshake {
		if why := s.certs.check(ctx, s.dialer, host, out.RemoteAddr()); why != nil {
			_ = out.Close()
			err = why
		}
	}
	if err != nil {
		s.attempts.failed(host, port, "", err)
		reset(f.Conn)
		return
	}
	defer out.Close()
	a := s.attempts.began(host, port, "")
	_ = f.Conn.SetDeadline(time.Time{})
	if len(f.head) > 0 {
		if firstWords(f.head) != isTLS && s.marks.in(f.head) {
			s.attempts.refused(host, port, errPlaceholder)
			reset(f.Conn)
			return
		}
		k, err := out.Write(f.head)
		a.out(int64(k))
		if err != nil {
			return
		}
	}
	s.splice(f, out, a)
}

// late reads the first words of a client that let the server speak first, and sends them on. Those
// that would have been judged had they come earlier are refused: they wait for no server.
func (s *Server) late(f *first, out net.Conn, a *attempt) bool {
	for f.silent() && kindOf(a.port) == isAny {
		sent := len(f.head)
		_ = f.Conn.SetReadDeadline(time.Now().Add(s.limits.Idle))
		if f.more(); firstWords(f.head) != isAny || f.silent() && len(f.head) > maxOpening {
			s.attempts.refused(a.host, a.port, refuse("late", "TLS and HTTP are spoken at once or not at all"))
			return false
		}
		if s.marks.in(f.head) {
			s.attempts.refused(a.host, a.port, errPlaceholder)
			return false
		}
		k, err := out.Write(f.head[sent:])
		a.out(int64(k))
		if err != nil || k == 0 {
			return false
		}
	}
	return true
}

// chunk is how many bytes move between two looks at the limits.
const chunk = 4 << 20

// splice relays the client's bytes after its first message, and the host's answer.
func (s *Server) splice(f *first, out net.Conn, a *attempt) {
	words := s.words(f)
	s.both(f.Conn, out, words, func() bool {
		if s.late(f, out, a) {
			if w, ok := words.(*watched); ok {
				w.keep(f.head)
			}
			return true
		}
		closeWrite(out)
		if !f.eof {
			_, _ = f.Conn.Close(), out.Close()
		}
		return false
	}, a)
}

// both relays in both directions until both end, the connection is idle too long, or the sandbox's byte limit is
// reached. Once begin returns true, the sandbox's bytes are read from words. Between two TCP connections the kernel
// splices the bytes.
func (s *Server) both(in, out net.Conn, words io.Reader, begin func() bool, a *attempt) {
	var moved atomic.Int64
	moved.Store(time.Now().UnixNano())
	var wait sync.WaitGroup
	half := func(to, from net.Conn, said io.Reader, count func(int64)) {
		for left := s.left(); left > 0; left = s.left() {
			_ = from.SetReadDeadline(time.Now().Add(s.limits.Idle))
			n, err := io.CopyN(to, said, s.pace.step(min(chunk, left)))
			count(n)
			if n > 0 {
				moved.Store(time.Now().UnixNano())
				s.pace.bytes(s.ctx, int(n))
			}
			idle := errors.Is(err, os.ErrDeadlineExceeded) && time.Since(time.Unix(0, moved.Load())) < s.limits.Idle
			if err != nil && !idle {
				if errors.Is(err, io.EOF) {
					closeWrite(to)
					return
				}
				if errors.Is(err, errPlaceholder) {
					s.attempts.refused(a.host, a.port, errPlaceholder)
				}
				break
			}
		}
		_, _ = in.Close(), out.Close()
	}
	wait.Go(func() {
		if begin() {
			half(out, in, words, a.out)
		}
	})
	half(in, out, out, a.in)
	wait.Wait()
}

// words is the sandbox's byte stream on a connection. If it could send a placeholder in plain text, the stream is
// scanned; f.head has been sent.
func (s *Server) words(f *first) io.Reader {
	if s.marks == nil || firstWords(f.head) == isTLS {
		return f.Conn
	}
	w := &watched{ReadCloser: f.Conn, m: s.marks}
	w.keep(f.head)
	return w
}

// closeWrite ends what goes to the other side. A connection without halves, such as one in memory, is
// closed: its reader would wait for the end until the call's time is over.
func closeWrite(c net.Conn) {
	if t, ok := c.(interface{ CloseWrite() error }); ok {
		_ = t.CloseWrite()
		return
	}
	_ = c.Close()
}

// certificates remembers which hosts have shown a certificate of theirs at which address.
type certificates struct {
	mu   sync.Mutex
	good map[string]time.Time
}

// lasting is how long one look at a certificate holds.
const lasting = 5 * time.Minute

// check verifies the certificate that an address shows for a host, so that the address must belong to the host even
// if the client does not verify it. The client makes its own handshake besides.
func (c *certificates) check(ctx context.Context, d *Dialer, host string, at net.Addr) *Refusal {
	key := host + " " + at.String()
	c.mu.Lock()
	fine := time.Now().Before(c.good[key])
	c.mu.Unlock()
	if fine {
		return nil
	}
	to, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return refuse("tls.certificate", "the certificate could not be looked at")
	}
	conn, err := d.connect(ctx, to)
	if err != nil {
		return refuse("tls.certificate", "the certificate could not be looked at")
	}
	defer conn.Close()
	shown := false
	t := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: d.Roots, MinVersion: tls.VersionTLS12,
		// called after the chain and the name were verified
		VerifyConnection: func(tls.ConnectionState) error { shown = true; return nil }})
	// a server that requires a client certificate can fail the handshake after it has shown its own
	if err := t.HandshakeContext(ctx); err != nil && !shown {
		var bad *tls.CertificateVerificationError
		if errors.As(err, &bad) {
			return refuse("tls.certificate", "the certificate is not one of the host's: "+bad.Err.Error())
		}
		return refuse("tls.certificate", "no certificate was shown")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.good == nil {
		c.good = map[string]time.Time{}
	}
	c.good[key] = time.Now().Add(lasting)
	return nil
}
