// Package identity authenticates an HTTP request. It accepts a token that the operator issued, a token that an OIDC
// issuer signed, or the local user at the other end of a loopback connection. Every other request is refused.
package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Options say who is let in. With neither Tokens nor OIDC it is the user of that uid alone, over a
// connection within this machine.
type Options struct {
	Tokens map[string]string // name to hash, as NewToken gives it
	OIDC   *OIDC
	UID    int    // of the user that waldo runs as
	URL    string // of the MCP endpoint, as clients know it; needed with OIDC

	Tenants contract.Tenants
	Issuers map[string]*OIDC // of tenants, by tenant
}

// Identify returns who a request comes from, or the answer to it. It satisfies web.Options.
func (o *Options) Identify(r *http.Request) (call.Principal, *web.Refusal) {
	who, refusal := o.Who(r)
	if refusal == nil && !o.Tenants.Holds(who) {
		return "", &web.Refusal{Status: http.StatusForbidden,
			Why: "tenant.absent: the configuration gives this caller no tenant"}
	}
	return who, refusal
}

// Who is Identify for the operator's own pages, which a principal without a tenant can use.
func (o *Options) Who(r *http.Request) (call.Principal, *web.Refusal) {
	if len(o.Tokens) == 0 && !o.issues() {
		return o.local(r)
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", o.refuse(http.StatusUnauthorized, "", "a token is needed")
	}
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return "", o.refuse(http.StatusUnauthorized, "invalid_request", "the Authorization header is not Bearer and a token")
	}
	if name := o.named(token); name != "" {
		return o.Tenants.Of(call.Principal("token:" + name)), nil
	}
	if !o.issues() {
		return "", o.refuse(http.StatusUnauthorized, "invalid_token", "the token is not known")
	}
	who, err := o.signed(r.Context(), token)
	switch {
	case err == errScope:
		return "", o.refuse(http.StatusForbidden, "insufficient_scope", "the token lacks a scope")
	case err != nil:
		return "", o.refuse(http.StatusUnauthorized, "invalid_token", "the token is not valid here")
	}
	return who, nil
}

// issues reports whether tokens of an issuer are accepted.
func (o *Options) issues() bool { return o.OIDC != nil || len(o.Issuers) > 0 }

// signed verifies a token with the keys of the issuer that it names. The tenant is that of the issuer; of the shared
// issuer, that of the claims.
func (o *Options) signed(ctx context.Context, token string) (call.Principal, error) {
	if name := issuerOf(token); len(o.Issuers) > 0 {
		for tenant, own := range o.Issuers {
			if own.Issuer == name {
				c, err := own.verify(ctx, token)
				return call.Principal("oidc:" + c.Subject).In(tenant), err
			}
		}
	}
	if o.OIDC == nil {
		return "", errToken
	}
	c, err := o.OIDC.verify(ctx, token)
	return o.Tenants.Claimed(call.Principal("oidc:"+c.Subject), c.all), err
}

// local accepts the user that waldo runs as, and no other user of this machine.
func (o *Options) local(r *http.Request) (call.Principal, *web.Refusal) {
	uid, err := web.Peer(r)
	if err != nil {
		return "", &web.Refusal{Status: http.StatusForbidden, Why: "who is at the other end cannot be told: " + err.Error()}
	}
	if uid != o.UID {
		return "", &web.Refusal{
			Status: http.StatusForbidden, Why: "another user of this machine is not let in without a token",
		}
	}
	return o.Tenants.Of(call.Principal(fmt.Sprintf("os:%d", uid))), nil
}

// named returns the name of a token, or "" if the token is unknown. It compares with every token in constant time.
func (o *Options) named(token string) string {
	hash, found := []byte(Hash(token)), ""
	for name, known := range o.Tokens {
		if subtle.ConstantTimeCompare(hash, []byte(known)) == 1 {
			found = name
		}
	}
	return found
}

// refuse makes the answer of RFC 6750 §3, which for OIDC says where to get a token (RFC 9728 §5.1).
func (o *Options) refuse(status int, code, why string) *web.Refusal {
	challenge := "Bearer"
	var parts []string
	if o.issues() {
		parts = append(parts, fmt.Sprintf("resource_metadata=%q", metadataURL(o.URL)))
		if o.OIDC != nil && len(o.OIDC.Scopes) > 0 {
			parts = append(parts, fmt.Sprintf("scope=%q", strings.Join(o.OIDC.Scopes, " ")))
		}
	}
	if code != "" {
		parts = append(parts, fmt.Sprintf("error=%q", code))
	}
	if len(parts) > 0 {
		challenge += " " + strings.Join(parts, ", ")
	}
	return &web.Refusal{Status: status, Challenge: challenge, Why: why}
}

// maxToken is how many bytes a token may have.
const maxToken = 8 << 10

// NewToken makes a token and the hash that the operator stores. The token holds 256 random bits, so an attacker
// cannot guess it from its plain hash.
func NewToken() (token, hash string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	token = "waldo_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
	return token, Hash(token)
}

// Hash returns what the operator keeps of a token: "sha256:" and 64 hexadecimal digits.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:])
}
