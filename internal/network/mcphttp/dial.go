package mcphttp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"waldo/internal/model/hostrule"
	"waldo/internal/network/egress"
)

// Transport returns a RoundTripper for a server and for the addresses that it refers to, such as its authorization
// server. It uses no proxy of the environment, no cookies and no decompression. It dials a non-public address only if
// the operator named it: the address in the URL itself, loopback for a local URL, or a private address behind a name
// that internal accepts. It checks every new resolution of a name.
func Transport(server string, internal func(host string) bool) (http.RoundTripper, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	named := u.Hostname()
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return dial(ctx, addr, named, internal)
		},
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: 30 * time.Second,
		MaxIdleConnsPerHost: 64, MaxConnsPerHost: maxConns,
	}, nil
}

// maxConns is how many requests one server is asked at once.
const maxConns = 256

func dial(ctx context.Context, addr, named string, internal func(host string) bool) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	here := net.Dialer{Timeout: 10 * time.Second}
	ip, literal := netip.ParseAddr(host)
	switch {
	case host == "localhost" && hostrule.Loopback(named):
		c, err := here.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			c, err = here.DialContext(ctx, "tcp", net.JoinHostPort("::1", port))
		}
		return c, err
	case literal == nil && (host == named || ip.IsLoopback() && hostrule.Loopback(named) || egress.Special(ip) == ""):
		return here.DialContext(ctx, "tcp", addr)
	case literal == nil || host == "localhost":
		return nil, fmt.Errorf("%s is not an address that the operator has named", host)
	}
	pattern, err := hostrule.ParsePattern(host)
	if err != nil {
		return nil, err
	}
	rule := egress.Rule{Host: pattern, Ports: []uint16{uint16(n)}, Internal: internal != nil && internal(host)}
	d := egress.Dialer{Policy: &egress.Policy{Rules: []egress.Rule{rule}}, Resolver: resolver}
	return d.Dial(ctx, host, uint16(n))
}

// resolver answers for names; tests put their own in its place.
var resolver egress.Resolver = net.DefaultResolver
