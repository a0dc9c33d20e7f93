package fetch

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/temoto/robotstxt"

	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
)

// client speaks HTTP through an egress, as a program in a sandbox does that uses its proxy. It has no other way out.
type client struct {
	egress *sandboxegress.Egress
	rules  *egress.Policy // for early, better texts; the egress decides
	http   *http.Transport
	pipe   *pipe
	facts  facts.Facts // of the network alone
}

func newClient(e *sandboxegress.Egress) (*client, error) {
	rules, err := egress.ParseRules(e.Hosts)
	if err != nil {
		return nil, err
	}
	c := &client{egress: e, rules: &egress.Policy{Rules: rules}, pipe: newPipe(), facts: facts.New()}
	e.Server.Serve(sandbox.Egress{Names: silence{c.pipe.done}, Proxy: c.pipe})
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ours := e.Server.Trust(); ours != nil {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			return nil, err
		}
		config.RootCAs.AppendCertsFromPEM(ours)
	}
	proxy := &url.URL{Scheme: "http", Host: "waldo.invalid:3128"}
	c.http = &http.Transport{
		Proxy:           func(*http.Request) (*url.URL, error) { return proxy, nil },
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return c.pipe.dial(ctx) },
		TLSClientConfig: config, DisableCompression: true, DisableKeepAlives: true,
		TLSHandshakeTimeout: 15 * time.Second, MaxResponseHeaderBytes: maxHeader,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, r *http.Response) error {
			if r.StatusCode == http.StatusOK {
				return nil
			}
			line, _ := bufio.NewReader(io.LimitReader(r.Body, 1000)).ReadString('\n')
			return refusal(line)
		},
	}
	return c, nil
}

// refusal reads the refusal of an egress's proxy: "waldo: egress.host: no rule names this host".
func refusal(line string) *egress.Refusal {
	code, text, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "waldo: "), ": ")
	if !ok || !strings.HasPrefix(code, "egress.") {
		return &egress.Refusal{Code: "egress.connect", Text: "the host could not be reached"}
	}
	return &egress.Refusal{Code: code, Text: text}
}

func (c *client) close() error {
	c.http.CloseIdleConnections()
	return c.egress.End()
}

// judge reads a URL as the egress will, and says why a request does not go out.
func (c *client) judge(method, at string) (egress.Target, *egress.Refusal) {
	t, why := egress.ParseURL(at)
	if why != nil {
		return t, why
	}
	if !plain(method) && !named(c.egress.Hosts, method, t.Host) {
		host := t.Host
		if t.Port != 80 && t.Port != 443 {
			host = net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
		}
		return t, &egress.Refusal{Code: "egress.request", Text: "the contract's network does not name " + method +
			" for this host, as in \"" + method + " " + host + "/path\""}
	}
	return t, c.rules.Judge(method, at)
}

func (c *client) sameHost(a, b string) bool {
	x, why := egress.ParseURL(a)
	y, why2 := egress.ParseURL(b)
	return why == nil && why2 == nil && x.Host == y.Host && x.Port == y.Port && x.Scheme == y.Scheme
}

// do makes one request and reads the answer within the bounds.
func (c *client) do(
	ctx context.Context, method, at string, header http.Header, body string, most int,
) (*answer, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, at, content)
	if err != nil {
		return nil, &egress.Refusal{Code: "egress.url.parsers", Text: "parsers read this URL in different ways"}
	}
	r.Header = header
	r.Header.Set("User-Agent", "waldo")
	r.Header.Set("Accept-Encoding", "gzip")
	resp, err := c.http.RoundTrip(r)
	if err == nil {
		defer resp.Body.Close()
	}
	if why := c.refused(); why != nil {
		return nil, why
	}
	if err != nil {
		return nil, err
	}
	got := &answer{Response: resp, url: at}
	got.body, got.cut, err = readBody(resp, most)
	return got, err
}

// texts are those of refusals that the egress only counts, because the connection was already open.
var texts = map[string]string{
	"egress.address":     "the name stands for an address that is not public",
	"egress.own":         "waldo itself listens on this port of this machine",
	"egress.name":        "the name stands for no address",
	"egress.connect":     "the host could not be reached",
	"egress.resolve":     "the name was not found",
	"egress.limit.bytes": "the network's limit of bytes is used up",
}

// refused returns why the egress has ended a request; nil: it has not. Its own record counts, and not the status,
// which a host could forge.
func (c *client) refused() error {
	known := len(c.facts.Network.Attempts)
	c.egress.Report(&c.facts)
	for _, a := range c.facts.Network.Attempts[known:] {
		if a.Why == "" {
			continue
		}
		text := texts[a.Why]
		if text == "" {
			text = "the contract's network does not let this request out"
		}
		why := &egress.Refusal{Code: a.Why, Text: text + " (" + a.Host + ")"}
		if a.Allowed {
			return &unreached{why}
		}
		return why
	}
	return nil
}

// unreached is a request that was allowed and did not reach its host.
type unreached struct{ why *egress.Refusal }

func (u *unreached) Error() string { return u.why.Text }

// robots asks a host's robots.txt whether a URL may be fetched (RFC 9309): an absent file allows, one that cannot be
// read does not.
func (c *client) robots(ctx context.Context, at string) *call.Reason {
	t, why := c.judge(http.MethodGet, at)
	if why != nil {
		return &call.Reason{Code: why.Code, Text: why.Text}
	}
	path := t.Path
	t.Path = "/robots.txt"
	no := &call.Reason{Code: "fetch.robots", Text: "robots.txt of the host does not allow this path, or cannot be read"}
	got, err := c.do(ctx, http.MethodGet, t.String(), http.Header{}, "", 512<<10)
	if err != nil {
		return no
	}
	rules, err := robotstxt.FromStatusAndBytes(got.StatusCode, got.body)
	if err != nil || !rules.TestAgent(path, "waldo") {
		return no
	}
	return nil
}

// errEncoding is a body in an encoding that was not asked for.
var errEncoding = errors.New("the body has an encoding that waldo does not read")

func decompress(encoding string, r io.Reader) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return r, nil
	case "gzip", "x-gzip":
		b := bufio.NewReader(r)
		if _, err := b.Peek(1); errors.Is(err, io.EOF) {
			return b, nil // of HEAD, 204 and 304
		}
		return gzip.NewReader(b)
	case "deflate":
		return zlib.NewReader(r)
	}
	return nil, fmt.Errorf("%w: %q", errEncoding, encoding)
}

// pipe is a listener whose connections are in memory.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	end   sync.Once
}

func newPipe() *pipe { return &pipe{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipe) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error   { p.end.Do(func() { close(p.done) }); return nil }
func (p *pipe) Addr() net.Addr { return &net.TCPAddr{} }

// silence is a socket of DNS that is never asked.
type silence struct{ done chan struct{} }

func (s silence) ReadFrom([]byte) (int, net.Addr, error)  { <-s.done; return 0, nil, net.ErrClosed }
func (silence) WriteTo(b []byte, _ net.Addr) (int, error) { return len(b), nil }
func (silence) Close() error                              { return nil }
func (silence) LocalAddr() net.Addr                       { return &net.UDPAddr{} }
func (silence) SetDeadline(time.Time) error               { return nil }
func (silence) SetReadDeadline(time.Time) error           { return nil }
func (silence) SetWriteDeadline(time.Time) error          { return nil }
