package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

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
