// Package remote says how waldo connects and authenticates to servers at a url: addresses, headers, bearer tokens,
// OAuth.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"waldo/internal/executor/launch"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/network/mcphttp"
	"waldo/internal/network/oauth"
	"waldo/internal/storage/secretstore"
)

// Dialer connects to the servers of one configuration that have a url.
type Dialer struct {
	Internal []string // names that can resolve to private addresses
	Secret   func(secret.Ref) (secret.Value, error)
	Safe     func() *secretstore.Store                   // holds the logins
	Learned  func(name secret.Ref, v secret.Value) error // called with each token before its use
}

// Options say where a server can be reached and how waldo authenticates to it.
func (d *Dialer) Options(_ context.Context, s contract.Server) (mcphttp.Options, error) {
	rt, err := d.Transport(s)
	if err != nil {
		return mcphttp.Options{}, err
	}
	o := mcphttp.Options{Transport: rt}
	o.Made, _ = d.Made(s) // an error: no session is interchangeable with this one
	switch {
	case s.Auth.OAuth != nil:
		login := d.Login(s, rt)
		o.Auth, o.Transport = hinting{login, s.Name}, login.Transport()
	case s.Auth.Bearer != "":
		o.Auth = bearer(func() (secret.Value, error) { return d.Secret(s.Auth.Bearer) })
	}
	if len(s.Auth.Headers) > 0 {
		o.Header = func() (http.Header, error) { return headers(s.Auth.Headers, d.Secret) }
	}
	return o, nil
}

// Made returns a digest of the secrets that waldo sends to a server. It fails for a server with OAuth, whose token can
// change at any time.
func (d *Dialer) Made(s contract.Server) (string, error) {
	if s.Auth.OAuth != nil {
		return "", errors.New("the token of OAuth can change at any time")
	}
	sent := []string{}
	for name, ref := range s.Auth.Headers {
		v, err := d.Secret(ref)
		if err != nil {
			return "", err
		}
		sent = append(sent, name+": "+v.Reveal())
	}
	if s.Auth.Bearer != "" {
		v, err := d.Secret(s.Auth.Bearer)
		if err != nil {
			return "", err
		}
		sent = append(sent, "Bearer "+v.Reveal())
	}
	return launch.Digest(sent), nil
}

// Transport dials the addresses that a server's url can resolve to.
func (d *Dialer) Transport(s contract.Server) (http.RoundTripper, error) {
	return mcphttp.Transport(s.URL, d.inside())
}

// inside reports which names can resolve to private addresses.
func (d *Dialer) inside() func(host string) bool {
	rules, err := egress.ParseRules(d.Internal)
	return func(host string) bool {
		for _, r := range rules {
			if err == nil && r.Host.Match(host) {
				return true
			}
		}
		return false
	}
}

// headers fetches the secrets that are sent as headers. It refuses one that would break the header section.
func headers(refs map[string]secret.Ref, get func(secret.Ref) (secret.Value, error)) (http.Header, error) {
	out := http.Header{}
	for name, ref := range refs {
		v, err := get(ref)
		if err != nil {
			return nil, err
		}
		if strings.ContainsFunc(v.Reveal(), func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("secret %s cannot be sent as the header %s: it holds more than visible ASCII", ref, name)
		}
		out.Set(name, v.Reveal())
	}
	return out, nil
}

// bearer is a token from the secret sources.
type bearer func() (secret.Value, error)

// Token satisfies mcphttp.Authorizer.
func (b bearer) Token(context.Context) (string, error) {
	v, err := b()
	if err == nil && strings.ContainsFunc(v.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the bearer token cannot be sent: it holds more than visible ASCII")
	}
	return v.Reveal(), err
}

// Refused satisfies mcphttp.Authorizer: there is another token only if the secret has changed since.
func (b bearer) Refused(ctx context.Context, token string, _ *http.Response) (bool, error) {
	now, err := b.Token(ctx)
	return err == nil && now != token, err
}

// login stores the tokens of a server among waldo's own secrets, sealed.
type login struct {
	safe   func() *secretstore.Store
	server string
}

const loginPrefix = "oauth-"

func (l login) name() string { return loginPrefix + l.server[:min(len(l.server), 57)] }

// IsLogin reports whether a stored secret is the login of a server.
func IsLogin(name string) bool { return strings.HasPrefix(name, loginPrefix) }

// Load satisfies oauth.Store.
func (l login) Load() ([]byte, error) {
	s := l.safe()
	if !s.Has(l.name()) {
		return nil, nil
	}
	v, err := s.Get(l.name())
	return []byte(v.Reveal()), err
}

// Save satisfies oauth.Store.
func (l login) Save(b []byte) error {
	s := l.safe()
	if !s.HasKey() {
		s.Keyring = nil // a key file: the operator did not ask for the keyring
	}
	return s.Set(l.name(), secret.NewValue(string(b)))
}

// Login returns what gets the tokens of a server.
func (d *Dialer) Login(s contract.Server, rt http.RoundTripper) *oauth.Client {
	o := s.Auth.OAuth
	c := &oauth.Client{Server: s.URL, HTTP: rt, Store: login{d.Safe, s.Name}, Name: "waldo", Config: oauth.Config{
		Grant: o.Grant, ClientID: o.ClientID, Metadata: o.Metadata, Scopes: o.Scopes, Issuer: o.Issuer,
		Secret: d.reveal(o.Secret), Key: d.reveal(o.Key), DPoP: o.DPoP}}
	c.Learned = func(value string) error {
		return d.Learned(secret.Ref(loginPrefix+s.Name), secret.NewValue(value))
	}
	return c
}

// reveal reads a secret each time; nil without a reference.
func (d *Dialer) reveal(ref secret.Ref) func() (string, error) {
	if ref == "" {
		return nil
	}
	return func() (string, error) {
		v, err := d.Secret(ref)
		return v.Reveal(), err
	}
}

// hinting adds to an error the command that logs in.
type hinting struct {
	*oauth.Client
	server string
}

// Refused satisfies mcphttp.Authorizer.
func (t hinting) Refused(ctx context.Context, token string, resp *http.Response) (bool, error) {
	again, err := t.Client.Refused(ctx, token, resp)
	if errors.Is(err, oauth.ErrLogin) {
		err = fmt.Errorf("%w: waldo login %s", err, t.server)
	}
	return again, err
}
