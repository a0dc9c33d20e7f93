package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"waldo/internal/model/hostrule"
	"waldo/internal/protocol/strictjson"
)

// maxBody is how many bytes of an answer of an authorization server are read.
const maxBody = 1 << 20

// resource is a server's protected resource metadata (RFC 9728 §2).
type resource struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
	Bound    bool     `json:"dpop_bound_access_tokens_required"`
	old      bool     // it says nothing: a server of 2025-03-26
}

// metadata is an issuer's metadata (RFC 8414 §2, OpenID Connect Discovery 1.0 §3).
type metadata struct {
	Issuer    string   `json:"issuer"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Register  string   `json:"registration_endpoint"`
	Scopes    []string `json:"scopes_supported"`
	PKCE      []string `json:"code_challenge_methods_supported"`
	Methods   []string `json:"token_endpoint_auth_methods_supported"`
	DPoP      []string `json:"dpop_signing_alg_values_supported"`
	Document  bool     `json:"client_id_metadata_document_supported"`
	NamesIss  bool     `json:"authorization_response_iss_parameter_supported"`
}

var errAbsent = errors.New("not found")

// ask makes a request without a token, to hear what the server wants.
func (c *Client) ask(ctx context.Context) (challenge, error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"server/discover",` +
		`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Server, strings.NewReader(body))
	if err != nil {
		return challenge{}, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"server/discover"}}
	resp, err := c.HTTP.RoundTrip(req)
	if err != nil {
		return challenge{}, err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		return challenge{}, nil // it wants a token for some calls alone, or says so elsewhere
	}
	return challenged(resp.Header), nil
}

// resource reads what the server says of itself: where its refusal points, else where RFC 9728 §3.1
// puts it.
func (c *Client) resource(ctx context.Context, ch challenge) (resource, error) {
	server, err := url.Parse(c.Server)
	if err != nil {
		return resource{}, err
	}
	origin := server.Scheme + "://" + server.Host
	places := []string{origin + "/.well-known/oauth-protected-resource"}
	if p := strings.TrimSuffix(server.Path, "/"); p != "" {
		places = slices.Insert(places, 0, places[0]+p)
	}
	if ch.metadata != "" {
		places = []string{ch.metadata}
	}
	for _, place := range places {
		var r resource
		switch err := c.get(ctx, place, &r); {
		case errors.Is(err, errAbsent):
			continue
		case err != nil:
			return r, fmt.Errorf("read the server's authorization metadata: %w", err)
		case !covers(r.Resource, server):
			return r, fmt.Errorf("the server's metadata names another resource, %.200q: no token is requested", r.Resource)
		case len(r.Servers) == 0:
			return r, errors.New("the server names no authorization server")
		}
		r.Scopes = slices.DeleteFunc(r.Scopes, func(s string) bool { return !scope(s) })
		return r, nil
	}
	if ch.metadata != "" {
		return resource{}, errors.New("the server points to a description of its authorization that is not there")
	}
	return resource{Resource: "", Servers: []string{origin}, old: true}, nil
}

// covers reports whether a resource is the server itself or a prefix of its URL.
func covers(r string, server *url.URL) bool {
	u, err := url.Parse(r)
	if err != nil || !strings.EqualFold(u.Scheme, server.Scheme) || !strings.EqualFold(u.Host, server.Host) ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return false
	}
	outer, inner := strings.TrimSuffix(path.Clean("/"+u.Path), "/"), strings.TrimSuffix(path.Clean("/"+server.Path), "/")
	return inner == outer || strings.HasPrefix(inner, outer+"/")
}

// metadata reads what the issuer says of itself, at the places of RFC 8414 §3 and OpenID Connect,
// and refuses one that calls itself by another name or cannot do PKCE.
func (c *Client) metadata(ctx context.Context, r resource) (metadata, error) {
	issuer := r.Servers[0]
	if want := c.Config.Issuer; want != "" {
		if !slices.Contains(r.Servers, want) {
			return metadata{}, fmt.Errorf("the server names other issuers than oauth.issuer: %.200q", r.Servers)
		}
		issuer = want
	}
	u, err := c.safe(issuer)
	if err != nil {
		return metadata{}, fmt.Errorf("the issuer: %w", err)
	}
	origin, p := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.Path, "/")
	places := []string{
		origin + "/.well-known/oauth-authorization-server" + p, origin + "/.well-known/openid-configuration" + p,
	}
	if p != "" {
		places = append(places, origin+p+"/.well-known/openid-configuration")
	}
	for _, place := range places {
		var m metadata
		if err := c.get(ctx, place, &m); errors.Is(err, errAbsent) {
			continue
		} else if err != nil {
			return m, fmt.Errorf("read the issuer's metadata: %w", err)
		}
		return m, c.check(m, issuer, r)
	}
	if r.old { // MCP 2025-03-26 basic/authorization, fallback
		return metadata{
			Issuer: issuer, Authorize: origin + "/authorize", Token: origin + "/token", Register: origin + "/register",
		}, nil
	}
	return metadata{}, errors.New("the issuer does not describe itself")
}

func (c *Client) check(m metadata, issuer string, r resource) error {
	if m.Issuer != issuer && !(r.old && strings.TrimSuffix(m.Issuer, "/") == issuer) {
		return fmt.Errorf("the issuer calls itself %.200q, and the server calls it %.200q", m.Issuer, issuer)
	}
	if c.Config.Grant != "client_credentials" {
		if !slices.Contains(m.PKCE, "S256") {
			return errors.New("the issuer does not say that it checks PKCE with S256")
		}
		if _, err := c.safe(m.Authorize); err != nil {
			return fmt.Errorf("authorization_endpoint: %w", err)
		}
	}
	if _, err := c.safe(m.Token); err != nil {
		return fmt.Errorf("token_endpoint: %w", err)
	}
	return nil
}

// safe reads an address that somebody else has given: https, or http where waldo and the server
// both are on this machine.
func (c *Client) safe(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("not an address")
	}
	server, err := url.Parse(c.Server)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && hostrule.Loopback(u.Hostname()) && hostrule.Loopback(server.Hostname())) {
		return nil, fmt.Errorf("%.200q is not https", address)
	}
	return u, nil
}

// get reads a JSON document. It follows no redirect.
func (c *Client) get(ctx context.Context, address string, out any) error {
	if _, err := c.safe(address); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	status, err := c.do(req, out)
	if err == nil && status != http.StatusOK {
		if status/100 == 4 {
			return errAbsent
		}
		return fmt.Errorf("HTTP status %d", status)
	}
	return err
}

// do makes a request and reads its answer where that is a success, or an error of OAuth.
func (c *Client) do(req *http.Request, out any) (int, error) {
	resp, v, err := c.send(req, nil)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode/100 != 2 {
		b, _ := io.ReadAll(resp.Body) // is in memory
		return resp.StatusCode, refusal(b)
	}
	if v.Decode(out) != nil {
		return 0, errors.New("the answer is not what was asked for")
	}
	return resp.StatusCode, nil
}

// send makes a request, with a proof where key is given, and reads all of its answer. A success is one strict JSON
// value. It follows no redirect.
func (c *Client) send(req *http.Request, key *jose.JSONWebKey) (resp *http.Response, v strictjson.Value, err error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", c.Name)
	req.Header.Set("Accept", "application/json")
	if key != nil {
		resp, err = c.prove(req, "", key)
	} else {
		resp, err = c.HTTP.RoundTrip(req)
	}
	if err != nil {
		return nil, v, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, v, err
	case len(b) > maxBody:
		return nil, v, fmt.Errorf("an answer of more than %d bytes", maxBody)
	case resp.StatusCode/100 == 2:
		if v, err = strictjson.Parse(b); err != nil {
			return nil, v, errors.New("the answer is not JSON")
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return resp, v, nil
}

// issuing is the transport of x/oauth2 to a token endpoint.
type issuing struct{ c *Client }

// RoundTrip satisfies http.RoundTripper. The answer's kind is JSON: x/oauth2 reads text as a form.
func (i issuing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, _, err := i.c.send(req, i.c.kept.Key)
	if err == nil {
		resp.Header.Set("Content-Type", "application/json")
	}
	return resp, err
}

// Error is an error of OAuth (RFC 6749 §5.2).
type Error struct{ Code string }

// Error returns the code.
func (e *Error) Error() string { return "the issuer refused: " + e.Code }

// refusal reads an error of OAuth; nil where the body holds none.
func refusal(b []byte) error {
	v, err := strictjson.Parse(b)
	if err != nil {
		return nil
	}
	m, _ := v.Members()
	if code, ok := m["error"].Text(); ok && scope(code) {
		return &Error{code}
	}
	return nil
}
