package egress

import (
	"net/http"
	"slices"
	"strings"
)

// canonical returns the name of a header as servers compare it. For CGI and its successors some read each character but
// letters and digits as the same: X.Method is X_METHOD there.
func canonical(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(c rune) rune {
		if '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			return c
		}
		return '-'
	}, name))
}

// overrides are headers by which some servers take a request for one of another method or path.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Method", "X-Original-Method", "X-Forwarded-Method",
	"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Rewrite-Uri", "X-Override-Url", "X-Forwarded-Uri", "X-Forwarded-Path", "X-Forwarded-Prefix",
	"X-Envoy-Original-Path", "X-Http-Path-Override", "X-Path-Override", "X-Real-Url", "X-Real-Uri", "Destination"}

// override returns the header or parameter by which a request may be taken for another one; "": none.
func override(r *http.Request, t Target) string {
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for name := range h {
			if slices.Contains(overrides, canonical(name)) {
				return name
			}
		}
	}
	_, query, _ := strings.Cut(t.Path, "?")
	for piece := range strings.FieldsFuncSeq(query, separates) {
		if plainName(parameter(piece)) == "_method" {
			return "_method"
		}
	}
	return ""
}

// identities are headers, and parameters of a query, by which clients say who they are.
// The parameters are written as plainName returns them.
var (
	identities = []string{"Authorization", "Cookie", "Cookie2", "X-Authorization", "Authentication", "X-Auth", "Token", "X-Token", "Private-Token", "Job-Token", "Deploy-Token", "Api-Key", "X-Api-Key", "X-Api-Token", "X-Access-Token",
		"X-Auth-Token", "X-Auth-Key", "X-Vault-Token", "X-Gitlab-Token", "X-Goog-Api-Key", "X-Amz-Security-Token", "Ocp-Apim-Subscription-Key",
		"X-Shopify-Access-Token", "Dd-Api-Key", "Dd-Application-Key"}
	identifying = []string{"access_token", "private_token", "job_token", "oauth_token", "auth_token", "api_key", "apikey", "client_secret",
		"x_amz_signature", "x_amz_credential", "x_amz_security_token", "x_goog_signature", "x_goog_credential"}
)

// anonymous strips the client's own credentials from a request. At a host with an injected secret only that secret
// may authenticate: otherwise the sandbox could carry data out under its own account.
func anonymous(r *http.Request, t *Target) {
	for name := range r.Header {
		if slices.Contains(identities, canonical(name)) {
			delete(r.Header, name)
		}
	}
	t.withoutParameters(func(name string) bool { return slices.Contains(identifying, plainName(name)) })
}
