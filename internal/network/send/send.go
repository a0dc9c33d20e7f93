// Package send sends a webhook to its receiver, under the rules of egress: public addresses alone, unless the
// operator allows others, and no redirect.
package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"waldo/internal/model/hostrule"
	"waldo/internal/network/egress"
)

// Limits of one try.
const (
	patience = 10 * time.Second // from the lookup of the name to the headers of the answer
	maxAfter = time.Hour        // of Retry-After
)

// Request is one try.
type Request struct {
	URL    string
	Header http.Header
	Body   []byte
	// Private allows http, and addresses that are not public: one that the URL names, or one of a private network
	// behind a name. Link-local addresses and those where clouds hand out credentials stay refused behind a name.
	Private  bool
	Resolver egress.Resolver // nil: the machine's own
}

// Failure is why a webhook was not taken. It holds neither the address nor a text of the receiver.
type Failure struct {
	Why   string
	Again bool          // another try can help
	Gone  bool          // the receiver wants no more webhooks (410)
	After time.Duration // that the receiver asks to wait; 0: it does not say
}

// Error satisfies error.
func (f *Failure) Error() string { return f.Why }

// Target checks the address of a receiver: https, or http with private.
func Target(address string, private bool) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("the address of the receiver is not a URL, as in https://example.com/hooks")
	case u.User != nil || u.Fragment != "":
		return nil, errors.New("the address of a receiver has no user and no fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !private):
		return nil, errors.New("a webhook is sent over https")
	}
	return u, nil
}

// Check returns why a webhook to an address would be refused, by the addresses of its name now. It sends nothing. An
// error is a *Failure.
func Check(ctx context.Context, r Request) error {
	u, d, err := r.dialer()
	if err != nil {
		return err
	}
	d.Connect = func(context.Context, netip.AddrPort) (net.Conn, error) {
		c, other := net.Pipe()
		_ = other.Close()
		return c, nil
	}
	c, err := d.Dial(ctx, u.Hostname(), d.Policy.Rules[0].Ports[0])
	if err == nil {
		return c.Close()
	}
	if refused := (*egress.Refusal)(nil); errors.As(err, &refused) {
		return &Failure{Why: refused.Error()}
	}
	return &Failure{Why: "the name of the receiver cannot be looked up", Again: true}
}

// Post sends a webhook once. An error is a *Failure.
func Post(ctx context.Context, r Request) error {
	u, d, err := r.dialer()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return &Failure{Why: "the address of the receiver is not a URL"}
	}
	for name, values := range r.Header {
		q.Header[name] = values
	}
	q.Header.Set("User-Agent", "waldo")
	t := d.Transport()
	t.DisableKeepAlives, t.MaxResponseHeaderBytes = true, 32<<10
	defer t.CloseIdleConnections()
	a, err := t.RoundTrip(q) // which follows no redirect
	if err != nil {
		if refused := (*egress.Refusal)(nil); errors.As(err, &refused) {
			return &Failure{Why: refused.Error()}
		}
		if ctx.Err() != nil {
			return &Failure{Why: fmt.Sprintf("the receiver did not answer within %v", patience), Again: true}
		}
		return &Failure{Why: "the receiver was not reached: " + cause(err), Again: true}
	}
	_ = a.Body.Close()
	return judge(a.StatusCode, a.Header.Get("Retry-After"))
}

// cause is the last part of an error, without the address.
func cause(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

// judge says what an answer means. retryAfter is a number of seconds, or a time that is not read.
func judge(status int, retryAfter string) error {
	f := &Failure{Why: fmt.Sprintf("the receiver answered %d", status)}
	switch {
	case status/100 == 2:
		return nil
	case status/100 == 3:
		f.Why += ", a redirect, which is not followed"
	case status == http.StatusGone:
		f.Gone = true
	case status/100 == 5, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout,
		status == http.StatusTooEarly:
		f.Again = true
		if n, err := strconv.ParseUint(retryAfter, 10, 31); err == nil {
			f.After = min(time.Duration(n)*time.Second, maxAfter)
		}
	}
	return f
}

// dialer returns the address of a request, and a dialer for it.
func (r Request) dialer() (*url.URL, *egress.Dialer, error) {
	u, err := Target(r.URL, r.Private)
	if err != nil {
		return nil, nil, &Failure{Why: err.Error()}
	}
	d, err := dialerOf(u, r.Private)
	if err != nil {
		return nil, nil, &Failure{Why: err.Error()}
	}
	d.Resolver = r.Resolver
	return u, d, nil
}

// dialerOf returns a dialer for the one host and port of an address.
func dialerOf(u *url.URL, private bool) (*egress.Dialer, error) {
	port := uint64(443)
	if u.Scheme == "http" {
		port = 80
	}
	if p := u.Port(); p != "" {
		var err error
		if port, err = strconv.ParseUint(p, 10, 16); err != nil || port == 0 {
			return nil, errors.New("the address of the receiver has no such port")
		}
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil && !private && egress.Special(a) != "" {
		return nil, errors.New("the address of the receiver is not public: " + egress.Special(a))
	}
	if hostrule.Normal(host) == "localhost" && !private {
		return nil, errors.New("the address of the receiver is not public: this machine")
	}
	p, err := hostrule.ParsePattern(host)
	if err != nil {
		return nil, errors.New("the host of the receiver is not one that can be reached")
	}
	return &egress.Dialer{Patience: patience, Policy: &egress.Policy{Rules: []egress.Rule{{
		Host: p, Ports: []uint16{uint16(port)}, Internal: private}}}}, nil
}
