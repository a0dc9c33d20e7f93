package identity

import (
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestTwoIssuers: one subject of two issuers is two principals, and a caller without a tenant is refused.
func TestTwoIssuers(t *testing.T) {
	shared, acme, stranger := newIssuer(t), newIssuer(t), newIssuer(t)
	token, hash := NewToken()
	free, freeHash := NewToken()
	o := shared.options()
	o.OIDC.Scopes = nil
	o.Tokens = map[string]string{"ci": hash, "free": freeHash}
	o.Issuers = map[string]*OIDC{"acme": {Issuer: acme.URL, Audience: o.URL}}
	o.Tenants = contract.Tenants{"acme": {Issuer: contract.Issuer{Issuer: acme.URL}},
		"beta":  {Claims: map[string]string{"org": "b"}, Principals: []string{"token:ci"}},
		"gamma": {Claims: map[string]string{"org": "c"}}}
	set := func(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }
	as := func(iss string) func(map[string]any) { return set("iss", iss) }
	for _, row := range []struct {
		why, token string
		who        call.Principal
		status     int
	}{
		{"the tenant's own issuer", acme.token(t, nil), "acme/oidc:alice", 0},
		{"the shared issuer, by a claim", shared.token(t, set("org", "b")), "beta/oidc:alice", 0},
		{"by one of several values", shared.token(t, set("org", []string{"x", "c"})), "gamma/oidc:alice", 0},
		{"a token by name", token, "beta/token:ci", 0},
		{"a subject that is spelled as another tenant's", acme.token(t, set("sub", "x/oidc:alice")),
			"acme/oidc:x/oidc:alice", 0},
		{"a claim that the tenant's issuer signs is of that tenant", acme.token(t, set("org", "b")), "acme/oidc:alice", 0},
		{"no claim", shared.token(t, nil), "", 403},
		{"another claim", shared.token(t, set("org", "x")), "", 403},
		{"the claims of two tenants", shared.token(t, set("org", []string{"b", "c"})), "", 403},
		{"a token without a tenant", free, "", 403},
		{"the shared issuer under the name of the tenant's", shared.token(t, as(acme.URL)), "", 401},
		{"the tenant's issuer under the shared name",
			acme.token(t, func(c map[string]any) { c["iss"], c["org"] = shared.URL, "b" }), "", 401},
		{"an issuer of no tenant", stranger.token(t, set("org", "b")), "", 401},
	} {
		who, refusal := o.Identify(request(t, "Bearer "+row.token))
		if who != row.who || (refusal == nil) != (row.status == 0) || refusal != nil && refusal.Status != row.status {
			t.Errorf("%s: %q %+v", row.why, who, refusal)
		}
		if row.status == 403 && !strings.HasPrefix(refusal.Why, "tenant.absent") {
			t.Errorf("%s: %q", row.why, refusal.Why)
		}
	}
	if who, refusal := o.Who(request(t, "Bearer "+free)); refusal != nil || who != "token:free" {
		t.Errorf("the operator's own token at the console: %q %+v", who, refusal)
	}
}
