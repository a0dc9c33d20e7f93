package oauth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// patience is how long a person may take.
const patience = 10 * time.Minute

// consent gets a token through a person: a page of the issuer, which leads back to this machine.
func (c *Client) consent(ctx context.Context, m metadata, scopes []string) error {
	l, err := c.listen()
	if err != nil {
		return fmt.Errorf("waiting for the page to lead back: %w", err)
	}
	defer l.Close()
	redirect := fmt.Sprintf("http://127.0.0.1:%d/callback", l.Addr().(*net.TCPAddr).Port)
	if err := c.become(ctx, m, redirect, scopes); err != nil {
		return err
	}
	verifier, state := oauth2.GenerateVerifier(), rand.Text()
	asked := oauth2.Config{
		ClientID: c.kept.Client.ID, RedirectURL: redirect, Scopes: scopes,
		Endpoint: oauth2.Endpoint{AuthURL: plainPage(m.Authorize)},
	}
	more := []oauth2.AuthCodeOption{
		oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("resource", c.resourceID()),
	}
	if c.kept.Key != nil { // the code is bound to the key too (RFC 9449 §10)
		more = append(more, oauth2.SetAuthURLParam("dpop_jkt", thumbprint(c.kept.Key)))
	}
	code, err := c.wait(ctx, l, m, state, asked.AuthCodeURL(state, more...))
	if err != nil {
		return err
	}
	return c.token(ctx, m.Token, scopes, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {redirect}, "code_verifier": {verifier},
	})
}

// plainPage drops from the address of a page what waldo says itself. AuthCodeURL would leave both, and an issuer's own
// redirect_uri could come first.
func plainPage(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address // check has parsed it
	}
	q := u.Query()
	for _, k := range []string{
		"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method", "resource",
		"dpop_jkt",
	} {
		q.Del(k)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// listen opens the redirect listener, on the registered port if that is free.
func (c *Client) listen() (net.Listener, error) {
	port := c.Port
	if u, err := url.Parse(c.kept.Client.Redirect); port == 0 && err == nil {
		port, _ = strconv.Atoi(u.Port())
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil && c.Port == 0 {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	return l, err
}

// resourceID names the server that a token is for (RFC 8707).
func (c *Client) resourceID() string { return cmp.Or(c.kept.Resource, c.Server) }

// become makes waldo a client of the issuer: as the operator has registered it, by its metadata
// document, or by registering itself, in this order.
func (c *Client) become(ctx context.Context, m metadata, redirect string, scopes []string) error {
	switch {
	case c.Config.ClientID != "":
		return c.registered(m)
	case m.Document && c.Config.Metadata != "":
		c.kept.Client = client{ID: c.Config.Metadata, Method: "none"}
		return nil
	case c.kept.Client.ID != "" && c.kept.Client.Redirect == redirect:
		return nil
	case m.Register != "":
		return c.register(ctx, m, redirect, scopes)
	}
	return errors.New("the issuer has no dynamic registration: register waldo there, and write oauth: {client_id: …}")
}

// registered takes the client that the operator has written.
func (c *Client) registered(m metadata) error {
	c.kept.Client = client{ID: c.Config.ClientID, Method: "none"}
	if c.Config.Key != nil {
		c.kept.Client.Method = "private_key_jwt"
		if !slices.Contains(m.Methods, "private_key_jwt") {
			return errors.New("the issuer does not take private_key_jwt, which oauth.client_key needs")
		}
		return nil
	}
	if c.Config.Secret == nil {
		return nil
	}
	secret, err := c.Config.Secret()
	if err != nil {
		return err
	}
	c.kept.Client.Secret, c.kept.Client.Method = secret, method(m, false)
	return nil
}

// method chooses how a client shows itself at the token endpoint.
func method(m metadata, public bool) string {
	for _, want := range []string{"none", "private_key_jwt", "client_secret_basic", "client_secret_post"} {
		if slices.Contains(m.Methods, want) && (public || strings.HasPrefix(want, "client_secret")) {
			return want
		}
	}
	if public && len(m.Methods) == 0 {
		return "none"
	}
	return "client_secret_basic" // RFC 8414 §2: the default of an absent list
}

// register asks the issuer to take waldo as a client (RFC 7591).
func (c *Client) register(ctx context.Context, m metadata, redirect string, scopes []string) error {
	if _, err := c.safe(m.Register); err != nil {
		return fmt.Errorf("registration_endpoint: %w", err)
	}
	how := method(m, true)
	ask := map[string]any{"client_name": c.Name, "redirect_uris": []string{redirect},
		"grant_types":    []string{"authorization_code", "refresh_token"},
		"response_types": []string{"code"}, "application_type": "native", "token_endpoint_auth_method": how}
	if len(scopes) > 0 {
		ask["scope"] = strings.Join(scopes, " ")
	}
	var key *jose.JSONWebKey
	if how == "private_key_jwt" {
		var err error
		if key, err = newKey(); err != nil {
			return err
		}
		ask["jwks"] = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}}
		ask["token_endpoint_auth_signing_alg"] = key.Algorithm
	}
	if c.kept.Key != nil {
		ask["dpop_bound_access_tokens"] = true
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Register, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	var got struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
	}
	if status, err := c.do(req, &got); err != nil || status/100 != 2 || got.ID == "" {
		return errors.Join(fmt.Errorf("the issuer does not register waldo (HTTP status %d)", status), err)
	}
	if err := c.learn(got.Secret); err != nil {
		return err
	}
	if got.Method == "" {
		got.Method = how
	}
	c.kept.Client = client{ID: got.ID, Secret: got.Secret, Method: got.Method, Redirect: redirect, Key: key}
	return c.save()
}

// wait shows the page and waits for the redirect with a code of this login. The state must be ours, and the issuer
// the expected one (RFC 9207). A request without our state is ignored.
func (c *Client) wait(ctx context.Context, l net.Listener, m metadata, state, page string) (string, error) {
	type end struct {
		code string
		err  error
	}
	ended := make(chan end, 1)
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if r.Method != http.MethodGet || r.URL.Path != "/callback" ||
				subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 {
				http.Error(w, "This is not the login that waldo waits for.", http.StatusBadRequest)
				return
			}
			var e end
			iss, has := q.Get("iss"), q.Has("iss")
			switch {
			case has && iss != m.Issuer || !has && m.NamesIss:
				e.err = errors.New("the answer does not come from the issuer that was asked")
			case q.Has("error"):
				e.err = &Error{strings.Map(plain, q.Get("error"))}
			case q.Get("code") == "":
				e.err = errors.New("the page led back without a code")
			default:
				e.code = q.Get("code")
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if e.err != nil {
				fmt.Fprintln(w, "waldo has not been let in. You can close this page; the terminal says why.")
			} else {
				fmt.Fprintln(w, "waldo has been let in. You can close this page.")
			}
			select {
			case ended <- e:
			default: // a second answer counts for nothing
			}
		})}
	defer srv.Close()
	go func() { _ = srv.Serve(l) }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.Browser(ctx, page); err != nil {
		return "", err
	}
	select {
	case e := <-ended:
		time.Sleep(50 * time.Millisecond) // let the page be written
		return e.code, e.err
	case <-ctx.Done():
		return "", fmt.Errorf("the login page was not completed: %w", ctx.Err())
	}
}

// plain leaves letters, digits and '_' of a code of an error.
func plain(r rune) rune {
	if r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
		return r
	}
	return -1
}

// credentials gets a token with the client's own secret (RFC 6749 §4.4).
func (c *Client) credentials(ctx context.Context, m metadata, scopes []string) error {
	if err := c.registered(m); err != nil {
		return err
	}
	return c.token(ctx, m.Token, scopes, url.Values{"grant_type": {"client_credentials"}})
}

// refresh renews the token. If the issuer refuses, the login has ended.
func (c *Client) refresh(ctx context.Context) error {
	if c.Config.ClientID != "" && c.Config.Secret != nil {
		secret, err := c.Config.Secret() // it may have changed since
		if err != nil {
			return err
		}
		c.kept.Client.Secret = secret
	}
	err := c.token(ctx, c.kept.Token, c.kept.Asked, url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {c.kept.Refresh},
	})
	var refused *Error
	if errors.As(err, &refused) {
		c.kept.Refresh, c.kept.Access = "", ""
		return errors.Join(ErrLogin, err, c.save())
	}
	return err
}

// token requests a token from the issuer and stores it. It requests it once more if the issuer wants a nonce in the
// proof (RFC 9449 §8): with a new assertion, which is for one use.
func (c *Client) token(ctx context.Context, endpoint string, scopes []string, q url.Values) error {
	if _, err := c.safe(endpoint); err != nil {
		return fmt.Errorf("token_endpoint: %w", err)
	}
	got, err := c.issue(ctx, endpoint, scopes, q)
	var refused *Error
	if errors.As(err, &refused) && refused.Code == "use_dpop_nonce" {
		got, err = c.issue(ctx, endpoint, scopes, q)
	}
	if err != nil {
		return err
	}
	kind := "bearer"
	if c.kept.Key != nil {
		kind = "DPoP"
	}
	if !sendable(got.AccessToken) || !strings.EqualFold(got.TokenType, kind) {
		return fmt.Errorf("the issuer gives no %s token", kind)
	}
	for _, s := range []string{got.AccessToken, got.RefreshToken} {
		if err := c.learn(s); err != nil {
			return err
		}
	}
	c.kept.Access, c.kept.Expires = got.AccessToken, time.Time{}
	if got.Expiry.After(time.Now()) {
		c.kept.Expires = got.Expiry.UTC()
	}
	if got.RefreshToken != "" {
		c.kept.Refresh = got.RefreshToken
	}
	c.kept.Asked, c.kept.Wanted = scopes, nil
	c.issued = time.Now()
	return c.save()
}

// issue makes one request to the token endpoint. Every grant goes through clientcredentials: of x/oauth2's requests it
// alone takes the resource of RFC 8707 at a renewal.
func (c *Client) issue(ctx context.Context, endpoint string, scopes []string, q url.Values) (*oauth2.Token, error) {
	who := c.kept.Client
	q.Set("resource", c.resourceID())
	if q.Get("grant_type") == "refresh_token" {
		scopes = nil // those that were granted, which can be fewer than asked for (RFC 6749 §6)
	}
	ask := clientcredentials.Config{
		ClientID: who.ID, TokenURL: endpoint, Scopes: scopes, EndpointParams: q, AuthStyle: oauth2.AuthStyleInParams,
	}
	switch who.Method {
	case "client_secret_basic":
		ask.ClientSecret, ask.AuthStyle = who.Secret, oauth2.AuthStyleInHeader
	case "client_secret_post":
		ask.ClientSecret = who.Secret
	case "private_key_jwt":
		jwt, err := c.assertion()
		if err != nil {
			return nil, err
		}
		q.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		q.Set("client_assertion", jwt)
	}
	plain := &http.Client{
		Transport: issuing{c}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	got, err := ask.Token(context.WithValue(ctx, oauth2.HTTPClient, plain))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && scope(refused.ErrorCode):
		return nil, &Error{refused.ErrorCode}
	case errors.As(err, &refused):
		return nil, fmt.Errorf("the issuer gives no token (HTTP status %d)", refused.Response.StatusCode)
	}
	return got, err
}

// sendable reports whether s is a bearer token (RFC 6750 §2.1), so that it cannot break a header.
func sendable(s string) bool {
	body := strings.TrimRight(s, "=")
	return body != "" && len(s) <= 16<<10 &&
		strings.Trim(body, "-._~+/0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
