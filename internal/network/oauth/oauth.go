// Package oauth gets tokens for servers that waldo calls, from the authorization servers that they name (MCP
// 2026-07-28 basic/authorization): by a person with a browser, or with a client's own secret. A server's metadata is
// untrusted: each address is checked before use, a token is requested for one server alone, and an issuer gets only
// credentials that it issued itself.
package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// ErrLogin is in the chain of an error that a person can mend by logging in.
var ErrLogin = errors.New("a person has to log in")

// Store persists the state of one server's login, sealed.
type Store interface {
	Load() ([]byte, error) // nil: nothing is stored
	Save([]byte) error
}

// Config is the operator's configuration of one login.
type Config struct {
	Grant    string // authorization_code or client_credentials
	ClientID string // empty: the metadata document, or waldo registers itself
	Secret   func() (string, error)
	Metadata string
	Scopes   []string
	Issuer   string
	Key      func() (string, error) // the client's private key, for private_key_jwt
	DPoP     string                 // required, never, or else: used where the issuer offers it
}

// Client gets and stores the token for one server. Server, HTTP and Store are required.
type Client struct {
	Server  string // its url
	Config  Config
	HTTP    http.RoundTripper // see remote.Transport
	Store   Store
	Learned func(value string) error // told of each secret value before it is used
	Name    string                   // ours, said to who registers clients

	// Browser shows a page to a person, who can log in there; nil: no person is present. Port is the port on this
	// machine for the redirect; 0: any.
	Browser func(ctx context.Context, page string) error
	Port    int

	mu     sync.Mutex
	loaded bool
	kept   stored
	issued time.Time // when this process got the token
	nonces sync.Map  // the newest DPoP nonce, by origin
}

// stored is the stored state of one server.
type stored struct {
	Issuer   string    `json:"issuer,omitempty"`
	Client   client    `json:"client"`
	Access   string    `json:"access,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	Asked    []string  `json:"asked,omitempty"`  // scopes of the token
	Wanted   []string  `json:"wanted,omitempty"` // scopes that the server has asked for since
	Token    string    `json:"token_endpoint,omitempty"`
	Resource string    `json:"resource,omitempty"`

	Key *jose.JSONWebKey `json:"dpop_key,omitempty"` // the private key that the tokens are bound to
}

// client is who waldo is to one issuer.
type client struct {
	ID       string `json:"id,omitempty"`
	Secret   string `json:"secret,omitempty"`
	Method   string `json:"method,omitempty"`   // how the secret is shown at the token endpoint
	Redirect string `json:"redirect,omitempty"` // as registered

	Key *jose.JSONWebKey `json:"key,omitempty"` // private, of a client that registered itself with private_key_jwt
}

// early is how long before its end a token is renewed.
const early = 30 * time.Second

// Token returns the token to send, renewed shortly before it expires, or "" without a login.
func (c *Client) Token(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return "", err
	}
	if c.kept.Access == "" || c.kept.Expires.IsZero() || time.Until(c.kept.Expires) > early {
		return c.kept.Access, nil
	}
	if c.kept.Refresh != "" {
		if err := c.refresh(ctx); err != nil {
			return "", err
		}
	}
	return c.kept.Access, nil // though it be over: the server's refusal says what it wants
}

// Refused gets another token after a refusal, if possible: by renewal, with the client's own secret, or through a
// person. It requests more scopes if the server names some that the token lacks. It gives up on a refusal that names
// nothing new.
func (c *Client) Refused(ctx context.Context, token string, resp *http.Response) (again bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return false, err
	}
	if token == c.kept.Access {
		c.loaded = false // somebody may have logged in elsewhere
		if err := c.load(); err != nil {
			return false, err
		}
	}
	if token != c.kept.Access && c.kept.Access != "" {
		return true, nil // another call has got a new one meanwhile
	}
	ch := challenged(resp.Header)
	more := union(c.kept.Asked, ch.scopes)
	switch {
	case resp.StatusCode == http.StatusForbidden && (!ch.bearer || len(more) == len(c.kept.Asked)):
		return false, nil
	case resp.StatusCode == http.StatusUnauthorized && token != "" && time.Since(c.issued) < 5*time.Second &&
		len(more) == len(c.kept.Asked):
		return false, nil // it refuses what was only just issued for it
	}
	if resp.StatusCode == http.StatusForbidden {
		c.kept.Wanted = more
	} else if token != "" && c.kept.Refresh != "" && len(more) == len(c.kept.Asked) {
		if err := c.refresh(ctx); err == nil {
			return true, nil
		}
	}
	if err := c.authorize(ctx, ch); err != nil {
		return false, errors.Join(err, c.save())
	}
	return true, nil
}

// Login asks the server what it wants, and gets a token for it through a person.
func (c *Client) Login(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(); err != nil {
		return err
	}
	ch, err := c.ask(ctx)
	if err != nil {
		return err
	}
	return c.authorize(ctx, ch)
}

// authorize gets a token from the issuer that the server names. The lock is held.
func (c *Client) authorize(ctx context.Context, ch challenge) error {
	if c.Config.Grant != "client_credentials" && c.Browser == nil {
		return ErrLogin
	}
	r, err := c.resource(ctx, ch)
	if err != nil {
		return err
	}
	m, err := c.metadata(ctx, r)
	if err != nil {
		return err
	}
	if c.kept.Issuer != m.Issuer { // nothing that another issuer gave goes to this one
		if c.kept.Issuer != "" && c.Config.ClientID != "" && c.Config.Issuer == "" {
			return fmt.Errorf("the server names another issuer than the client was used with: %.200q, before %.200q; "+
				"write oauth: {issuer: …} if that is meant", m.Issuer, c.kept.Issuer)
		}
		c.kept = stored{Issuer: m.Issuer, Wanted: c.kept.Wanted}
	}
	if err := c.bind(m, r); err != nil {
		return err
	}
	c.kept.Token, c.kept.Resource = m.Token, r.Resource
	scopes := c.scopes(ch, r, m)
	if c.Config.Grant == "client_credentials" {
		return c.credentials(ctx, m, scopes)
	}
	return c.consent(ctx, m, scopes)
}

// bind has the tokens bound to a key of this login where the issuer offers that (RFC 9449). A login that was bound
// stays bound: an issuer that no longer offers it gets no request.
func (c *Client) bind(m metadata, r resource) error {
	offered := slices.Contains(m.DPoP, "ES256") && c.Config.DPoP != "never"
	if !offered && (c.kept.Key != nil || c.Config.DPoP == "required" || r.Bound) {
		return errors.New("the issuer does not offer DPoP with ES256, which this login needs: no token without it is " +
			"requested")
	}
	if !offered || c.kept.Key != nil {
		return nil
	}
	key, err := newKey()
	c.kept.Key, c.kept.Access, c.kept.Refresh = key, "", ""
	return err
}

// scopes chooses the token's scopes: the operator's, else those of the server's challenge, else those of its
// metadata, and always those of earlier requests.
func (c *Client) scopes(ch challenge, r resource, m metadata) []string {
	out := c.Config.Scopes
	switch {
	case len(out) > 0:
	case len(ch.scopes) > 0:
		out = ch.scopes
	default:
		out = r.Scopes
	}
	out = union(union(c.kept.Asked, c.kept.Wanted), out)
	if len(out) > 0 && c.Config.Grant != "client_credentials" && slices.Contains(m.Scopes, "offline_access") {
		out = union(out, []string{"offline_access"}) // so that the token can be renewed
	}
	return out
}

// maxScopes bounds the scopes of a request; further scopes of a server are dropped.
const maxScopes = 64

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) && len(out) < maxScopes {
			out = append(out, s)
		}
	}
	return out
}

func (c *Client) load() error {
	if c.loaded {
		return nil
	}
	b, err := c.Store.Load()
	if err != nil {
		return err
	}
	var k stored
	if b != nil {
		if err := json.Unmarshal(b, &k); err != nil {
			return errors.New("the stored login cannot be read: log in again")
		}
	}
	switch {
	case c.Config.DPoP == "never" && k.Key != nil:
		k.Key, k.Access, k.Refresh = nil, "", ""
	case c.Config.DPoP == "required" && k.Key == nil:
		k.Access, k.Refresh = "", ""
	}
	for _, s := range []string{k.Access, k.Refresh, k.Client.Secret} {
		if err := c.learn(s); err != nil {
			return err
		}
	}
	c.kept, c.loaded = k, true
	return nil
}

func (c *Client) save() error {
	b, err := json.Marshal(c.kept)
	if err != nil {
		return err
	}
	return c.Store.Save(b)
}

func (c *Client) learn(value string) error {
	if value == "" || c.Learned == nil {
		return nil
	}
	return c.Learned(value)
}

// challenge is the parsed WWW-Authenticate header (RFC 6750 §3, RFC 9449 §7.1, RFC 9728 §5.1).
type challenge struct {
	bearer   bool // or DPoP
	code     string
	metadata string
	scopes   []string
}

func challenged(h http.Header) challenge {
	var c challenge
	for _, line := range h.Values("WWW-Authenticate") {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "DPoP") || len(line) > 8<<10 {
			continue
		}
		c.bearer = true
		for name, value := range params(rest) {
			switch strings.ToLower(name) {
			case "error":
				c.code = value
			case "resource_metadata":
				c.metadata = value
			case "scope":
				for _, s := range strings.Fields(value) {
					if scope(s) {
						c.scopes = union(c.scopes, []string{s})
					}
				}
			}
		}
	}
	return c
}

// params reads name="value" pairs up to the first malformed one.
func params(s string) map[string]string {
	out := map[string]string{}
	for {
		name, rest, ok := strings.Cut(strings.TrimLeft(s, " ,\t"), "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t\",") {
			return out
		}
		rest = strings.TrimLeft(rest, " \t")
		var value strings.Builder
		if quoted, is := strings.CutPrefix(rest, `"`); is {
			i := 0
			for ; i < len(quoted) && quoted[i] != '"'; i++ {
				if quoted[i] == '\\' && i+1 < len(quoted) {
					i++
				}
				value.WriteByte(quoted[i])
			}
			if i == len(quoted) {
				return out // it does not end
			}
			s = quoted[i+1:]
		} else {
			end := strings.IndexAny(rest, ", \t")
			if end < 0 {
				end = len(rest)
			}
			value.WriteString(rest[:end])
			s = rest[end:]
		}
		if _, twice := out[name]; !twice {
			out[name] = value.String()
		}
	}
}

// scope reports whether s is one scope (RFC 6749 §3.3).
func scope(s string) bool {
	return s != "" && len(s) <= 256 &&
		!strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}
