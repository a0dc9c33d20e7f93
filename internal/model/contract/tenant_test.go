package contract

import (
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/secret"
)

// TestSpelling: no subject of an issuer can be spelled as a principal of a tenant.
func TestSpelling(t *testing.T) {
	for p, want := range map[call.Principal][2]string{
		"acme/oidc:ann":      {"acme", "oidc:ann"},
		"acme/oidc:beta/ann": {"acme", "oidc:beta/ann"},
		"oidc:acme/oidc:ann": {"", "oidc:acme/oidc:ann"},
		"oidc:a/b":           {"", "oidc:a/b"},
		"os:1":               {"", "os:1"},
		"":                   {"", ""},
	} {
		if p.Tenant() != want[0] || string(p.Local()) != want[1] {
			t.Errorf("%s: %q %q", p, p.Tenant(), p.Local())
		}
		if again := p.In("beta"); again.Tenant() != "beta" || again.Local() != p.Local() {
			t.Errorf("%s in beta: %s", p, again)
		}
	}
}

// TestHolds: a principal holds in the tenant that the configuration gives it, and in no other.
func TestHolds(t *testing.T) {
	all := Tenants{"acme": {Issuer: Issuer{Issuer: "https://a"}}, "beta": {Claims: map[string]string{"org": "b"}},
		"lab": {Principals: []string{"token:ci", "oidc:lee"}}}
	for p, want := range map[call.Principal]bool{
		"acme/oidc:ann": true, "beta/oidc:ann": true, "lab/token:ci": true, "lab/oidc:lee": true, "lab/oidc:ann": false,
		"acme/token:ci": false, "token:ci": false, "oidc:ann": false, "gone/oidc:ann": false, "": false, "os:0": false,
	} {
		if all.Holds(p) != want {
			t.Errorf("%s: %t", p, !want)
		}
	}
	none := Tenants(nil)
	if !none.Holds("os:0") || !none.Holds("oidc:a/b") || none.Holds("acme/oidc:ann") {
		t.Error("without tenants, the principals without one hold")
	}
	for want, claims := range map[call.Principal]map[string]any{
		"beta/oidc:x": {"org": []any{"a", "b"}}, "oidc:x": {"org": "a"}, "oidc:y": nil,
	} {
		if got := all.Claimed(want.Local(), claims); got != want {
			t.Errorf("%v: %s", claims, got)
		}
	}
	if got := all.Claimed("oidc:lee", map[string]any{"org": "b"}); got != "oidc:lee" {
		t.Errorf("claimed by two: %s", got)
	}
}

// TestWithholds: a secret with tenants is withheld from others, also by its place or by another name.
func TestWithholds(t *testing.T) {
	c := &Config{Secrets: map[string]Secret{
		"key":   {Tenants: []string{"acme"}, Spec: secret.Spec{From: "env:KEY"}},
		"alias": {Spec: secret.Spec{From: "env:KEY"}}, "free": {Spec: secret.Spec{From: "env:FREE"}}}}
	for ref, want := range map[secret.Ref]bool{"key": true, "env:KEY": true, "alias": true, "free": false,
		"env:FREE": false} {
		if c.Withholds(ref, "beta/oidc:x") != want || c.Withholds(ref, "acme/oidc:x") {
			t.Errorf("%s", ref)
		}
	}
}
