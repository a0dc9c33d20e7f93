package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// Redirect reads a Location header in an answer from a target, and returns where it leads. What
// Go and WHATWG resolve in different ways is refused.
func Redirect(from Target, location string) (Target, *Refusal) {
	bad := refuse("redirect", "the redirect leads nowhere that two parsers agree on")
	switch {
	case location == "" || strings.ContainsAny(location, "\\") || strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return Target{}, bad
	case strings.HasPrefix(location, "//"):
		return ParseURL(from.Scheme + ":" + location)
	case strings.HasPrefix(location, "/") || strings.HasPrefix(location, "?"):
	case strings.Contains(strings.SplitN(location, "/", 2)[0], ":"):
		return ParseURL(location)
	default:
		before, _, _ := strings.Cut(from.Path, "?")
		location = path.Join(path.Dir(before), "/") + "/" + location
	}
	if strings.HasPrefix(location, "?") {
		before, _, _ := strings.Cut(from.Path, "?")
		location = before + location
	}
	location = "/" + strings.TrimLeft(location, "/")
	from.Path, _, _ = strings.Cut(location, "#")
	return from, nil
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

// maxHops is how many redirects are followed.
const maxHops = 5

// Fetch makes a GET request and follows redirects, each judged as if it had been asked for first.
// Headers go to the first host alone. The caller closes the body and bounds what it reads of it.
func (d *Dialer) Fetch(ctx context.Context, rt http.RoundTripper, rawURL string, header http.Header) (*http.Response, error) {
	t, why := d.Policy.ClassifyURL(http.MethodGet, rawURL)
	first := t.Authority()
	for range maxHops + 1 {
		if why != nil {
			return nil, why
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.String(), nil)
		if err != nil {
			return nil, fmt.Errorf("fetch: %w", err)
		}
		if t.Authority() == first && t.Scheme == strings.ToLower(rawURL[:len(t.Scheme)]) {
			req.Header = header.Clone()
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return resp, nil
		}
		_ = resp.Body.Close()
		if t, why = Redirect(t, resp.Header.Get("Location")); why == nil {
			why = d.Policy.request(http.MethodGet, t)
		}
	}
	return nil, refuse("redirect", "more than 5 redirects")
}
