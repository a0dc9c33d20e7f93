package identity

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"waldo/internal/model/hostrule"
)

// OIDC accepts a token that an issuer signed for this resource (OAuth 2.1 resource server; RFC 9068 access tokens).
// Issuer and Audience are required.
type OIDC struct {
	Issuer   string           // as in the token, to the letter
	Audience string           // which a token must name (RFC 8707): our own URL
	JWKS     string           // where the issuer's keys are; "": as the issuer's own metadata says
	Scopes   []string         // each of which a token must have
	Client   *http.Client     // nil: one of its own
	Now      func() time.Time // nil: time.Now

	mu      sync.Mutex
	keys    jose.JSONWebKeySet
	fetched time.Time // when keys came
	tried   time.Time // when they were last asked for
}

const (
	leeway   = time.Minute      // between our clock and the issuer's
	fresh    = 10 * time.Minute // time until the keys are fetched again
	stale    = 24 * time.Hour   // how long they are used where the issuer does not answer
	patience = 30 * time.Second // between two questions to the issuer, however many tokens name a key that is not known
	maxKeys  = 256 << 10        // bytes of an issuer's answer
)

// algorithms are those that a token may be signed with: with a public key, and none that is broken.
// The key that is used decides with the token's own word for it, never that word alone.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

var (
	errToken = errors.New("the token is not valid here")
	errScope = errors.New("the token lacks a scope")
	errNonce = errors.New("the token is of another login")
)

// claims are what is read of a token besides the registered ones.
type claims struct {
	jwt.Claims
	Scope string `json:"scope"`
	Nonce string `json:"nonce"`
	Party string `json:"azp"`

	all map[string]any
}

// issuerOf returns the issuer that a token names, unverified; empty: it names none.
func issuerOf(token string) string {
	var c jwt.Claims
	if t, err := jwt.ParseSigned(token, algorithms); err == nil {
		_ = t.UnsafeClaimsWithoutVerification(&c) // none is named then
	}
	return c.Issuer
}

// verify returns the claims of a token, errScope, or an error that says no more to the client.
func (o *OIDC) verify(ctx context.Context, token string) (claims, error) {
	c, err := o.verified(ctx, token)
	if err != nil {
		return claims{}, err
	}
	have := strings.Fields(c.Scope)
	for _, s := range o.Scopes {
		if !slices.Contains(have, s) {
			return claims{}, errScope
		}
	}
	return c, nil
}

// verified returns the claims of a token that the issuer signed for the audience, and that is in its time.
func (o *OIDC) verified(ctx context.Context, token string) (c claims, err error) {
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return c, errToken
	}
	key, err := o.key(ctx, t.Headers[0].KeyID)
	if err != nil {
		return c, err
	}
	if key.Algorithm != "" && key.Algorithm != t.Headers[0].Algorithm {
		return c, errToken
	}
	if err := t.Claims(key.Key, &c, &c.all); err != nil {
		return c, errToken
	}
	want := jwt.Expected{Issuer: o.Issuer, AnyAudience: jwt.Audience{o.Audience}, Time: o.now()}
	if c.Expiry == nil || c.Subject == "" || len(c.Subject) > 255 || c.ValidateWithLeeway(want, leeway) != nil {
		return c, errToken
	}
	if strings.ContainsFunc(c.Subject, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return c, errToken // it is to be read in logs and by approvers
	}
	return c, nil
}

func (o *OIDC) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// key returns the issuer's key with that id. It fetches the key set for an unknown id, since issuers rotate keys, but
// not more often than patience allows.
func (o *OIDC) key(ctx context.Context, id string) (jose.JSONWebKey, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	age := o.now().Sub(o.fetched)
	key, ok := o.find(id)
	if (!ok || age > fresh) && o.now().Sub(o.tried) >= patience {
		o.tried = o.now()
		if set, err := o.fetch(ctx); err == nil {
			o.keys, o.fetched, age = set, o.now(), 0
			key, ok = o.find(id)
		}
	}
	if !ok || age > stale {
		return key, errToken
	}
	return key, nil
}

// find returns the public signing key of that id; without one there must be no choice.
func (o *OIDC) find(id string) (jose.JSONWebKey, bool) {
	var found []jose.JSONWebKey
	for _, k := range o.keys.Keys {
		if k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") && (id == "" || k.KeyID == id) {
			found = append(found, k)
		}
	}
	if len(found) != 1 {
		return jose.JSONWebKey{}, false
	}
	return found[0], true
}

// fetch asks the issuer for its keys.
func (o *OIDC) fetch(ctx context.Context) (set jose.JSONWebKeySet, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // others wait for the same keys
	defer cancel()
	at := o.JWKS
	if at == "" {
		about, err := o.Metadata(ctx)
		if err != nil {
			return set, err
		}
		at = about.JWKS
	}
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err = o.get(ctx, at, &all); err != nil {
		return set, err
	}
	for _, b := range all.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(b) == nil { // a kind of key that is not known here is of no use here (RFC 7517 §5)
			set.Keys = append(set.Keys, k)
		}
	}
	return set, nil
}

// Metadata describes an issuer.
type Metadata struct {
	Issuer    string   `json:"issuer"`
	JWKS      string   `json:"jwks_uri"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Methods   []string `json:"token_endpoint_auth_methods_supported"`
	Names     bool     `json:"authorization_response_iss_parameter_supported"` // it names itself in answers (RFC 9207)
}

// Metadata asks the issuer for its metadata.
func (o *OIDC) Metadata(ctx context.Context) (m Metadata, err error) {
	for _, u := range discovery(o.Issuer) {
		if err = o.get(ctx, u, &m); err == nil {
			break
		}
	}
	if err == nil && m.Issuer != o.Issuer {
		err = errors.New("its metadata names another issuer") // RFC 8414 §3.3
	}
	return m, err
}

// Login is the content of an ID token.
type Login struct {
	Subject string
	Values  []string // of one claim: a text, or a list of texts
	Expires time.Time
}

// Login verifies an ID token for the client that Audience names, and the nonce of its request (OpenID Connect Core
// §3.1.3.7). It returns the values of a claim with the subject.
func (o *OIDC) Login(ctx context.Context, token, nonce, claim string) (Login, error) {
	if len(token) > maxToken {
		return Login{}, errToken
	}
	c, err := o.verified(ctx, token)
	if err != nil {
		return Login{}, err
	}
	if nonce == "" || subtle.ConstantTimeCompare([]byte(c.Nonce), []byte(nonce)) != 1 {
		return Login{}, errNonce
	}
	if c.Party != o.Audience && (c.Party != "" || len(c.Audience) > 1) {
		return Login{}, errToken
	}
	n := Login{Subject: c.Subject, Expires: c.Expiry.Time()}
	list, many := c.all[claim].([]any)
	if !many {
		list = []any{c.all[claim]}
	}
	for _, v := range list {
		if s, ok := v.(string); ok {
			n.Values = append(n.Values, s)
		}
	}
	return n, nil
}

// discovery returns where an issuer describes itself (RFC 8414 §3.1, OpenID Connect Discovery §4).
func discovery(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	path := strings.TrimSuffix(u.Path, "/")
	at := func(p string) string { v := *u; v.Path = p; return v.String() }
	return []string{at("/.well-known/oauth-authorization-server" + path), at(path + "/.well-known/openid-configuration")}
}

// get reads one JSON document of the issuer's. It follows no redirect and takes https alone, or http
// within this machine.
func (o *OIDC) get(ctx context.Context, at string, out any) error {
	if err := Secure(at); err != nil {
		return err
	}
	client := o.Client
	if client == nil {
		client = &http.Client{}
	}
	one := *client
	one.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("it sends elsewhere") }
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	res, err := one.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", at, res.Status)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxKeys)) // the rest is not looked at
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// Secure refuses a URL whose answers others could write: all but https, and http within this machine.
func Secure(at string) error {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%.200q is not the URL of a server", at)
	}
	if u.Scheme == "https" || u.Scheme == "http" && hostrule.Loopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%.200q: https is needed", at)
}

// metadataURL returns where the resource describes itself (RFC 9728 §3.1).
func metadataURL(resource string) string {
	u, err := url.Parse(resource)
	if err != nil {
		return ""
	}
	u.Path = "/.well-known/oauth-protected-resource" + strings.TrimSuffix(u.Path, "/")
	return u.String()
}

// Beside returns the documents that describe the resource to clients (RFC 9728 §3), by path.
func (o *Options) Beside() map[string]http.Handler {
	if !o.issues() {
		return nil
	}
	var servers []string
	if o.OIDC != nil {
		servers = append(servers, o.OIDC.Issuer)
	}
	for _, tenant := range slices.Sorted(maps.Keys(o.Issuers)) {
		servers = append(servers, o.Issuers[tenant].Issuer)
	}
	about := map[string]any{
		"resource": o.URL, "authorization_servers": servers, "bearer_methods_supported": []string{"header"},
	}
	if o.OIDC != nil && len(o.OIDC.Scopes) > 0 {
		about["scopes_supported"] = o.OIDC.Scopes
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(about) // a client that has gone has gone
	})
	all := map[string]http.Handler{"/.well-known/oauth-protected-resource": h}
	if u, err := url.Parse(metadataURL(o.URL)); err == nil {
		all[u.Path] = h
	}
	return all
}
