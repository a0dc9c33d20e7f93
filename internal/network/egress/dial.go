package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"waldo/internal/model/hostrule"
	"waldo/internal/network/loopback"
)

// Resolver returns the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to the destinations that a policy allows. It resolves a name once, checks each address, and
// connects to a checked address, so that DNS rebinding has no effect.
type Dialer struct {
	Policy   *Policy
	Resolver Resolver                                                       // nil: the machine's own
	Connect  func(ctx context.Context, to netip.AddrPort) (net.Conn, error) // nil: TCP
	// authorities for hosts' certificates; nil: the machine's own
	Roots *x509.CertPool
	// for resolving and connecting together; 0: 15 s
	Patience time.Duration
	// it dials for code in a sandbox, as NewServer sets it. No port of this machine where a waldo process listens is
	// reached: such a connection would count as this user's
	Sandbox bool
	// Alive is false once the run must have ended: then its connections write no more. nil: they do until they close
	Alive func() bool
}

// fenced is a connection of a run that can be over before somebody closes it, as after a pause of this process.
type fenced struct {
	net.Conn
	alive func() bool
}

func (c fenced) Write(b []byte) (int, error) {
	if !c.alive() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c fenced) CloseWrite() error {
	closeWrite(c.Conn)
	return nil
}

const maxAddresses = 8 // of one name are tried

// Dial connects to a host and port. A refusal comes back as *Refusal.
func (d *Dialer) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if why := d.Policy.Classify(host, port); why != nil {
		return nil, why
	}
	patience := d.Patience
	if patience <= 0 {
		patience = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var last error = refuse("name", "the name stands for no address")
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		a = a.Unmap()
		if why := d.Policy.Address(host, port, a); why != nil {
			return nil, why // one bad address spoils the name: an honest one has none
		}
	}
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		c, err := d.connect(ctx, netip.AddrPortFrom(a.Unmap(), port))
		if err == nil && d.Alive != nil {
			c = fenced{c, d.Alive}
		}
		if err == nil {
			return c, nil
		}
		last = err
	}
	return nil, last
}

func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if hostrule.Normal(host) == "localhost" {
		// without a resolver (RFC 6761 §6.3)
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	var r Resolver = net.DefaultResolver
	if d.Resolver != nil {
		r = d.Resolver
	}
	addrs, err := r.LookupNetIP(ctx, "ip", host+".") // absolute: no search list of this machine's
	if err != nil {
		return nil, fmt.Errorf("resolving: %w", err)
	}
	return addrs, nil
}

func (d *Dialer) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if d.Connect != nil {
		return d.Connect(ctx, to)
	}
	if why := d.ours(to); why != nil {
		return nil, why
	}
	var n net.Dialer
	n.SetMultipathTCP(false)
	c, err := n.DialContext(ctx, "tcp", to.String())
	if why := d.ours(to); why != nil && err == nil { // it has begun to listen meanwhile
		_ = c.Close()
		return nil, why
	}
	return c, err
}

// ours returns an error if a sandbox would reach a waldo process at an address of loopback.
func (d *Dialer) ours(to netip.AddrPort) error {
	if a := to.Addr(); d.Sandbox && (a.IsLoopback() || a.IsUnspecified()) && loopback.Ours(to.Port()) {
		return refuse("own", "waldo itself listens on this port of this machine")
	}
	return nil
}

// String returns the URL of a target.
func (t Target) String() string { return t.Scheme + "://" + t.Authority() + t.Path }

// Authority returns the target's host and port; the port is left out where the scheme implies it.
func (t Target) Authority() string {
	if t.Scheme == "http" && t.Port == 80 || t.Scheme == "https" && t.Port == 443 {
		if strings.Contains(t.Host, ":") {
			return "[" + t.Host + "]"
		}
		return t.Host
	}
	return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
}

// Transport returns an http.RoundTripper whose connections go through the dialer. It follows no
// redirect, uses no proxy of the environment, keeps no cookie and unpacks nothing.
func (d *Dialer) Transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, port, why := ParseAuthority(addr)
			if why != nil {
				return nil, why
			}
			return d.Dial(ctx, host, port)
		},
		TLSClientConfig:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: d.Roots},
		ForceAttemptHTTP2:  true,
		DisableCompression: true,
		// A silent server is given up, and heads are bounded; the caller bounds the body.
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		IdleConnTimeout: time.Minute, WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10,
	}
}
