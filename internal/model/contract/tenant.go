package contract

import (
	"slices"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/secret"
)

// AnyTenant in a list of tenants stands for every one.
const AnyTenant = "*"

// Tenant is one of several organisations that share a waldo. Each of its fields adds principals.
type Tenant struct {
	At         Position
	Issuer     Issuer            // every token that it signs is of the tenant; Issuer.Issuer empty: none
	Claims     map[string]string // of tokens of gateway.auth.oidc; each must have its value; empty: none
	Principals []string          // by name, as in token:ci
}

// Tenants are the tenants by name. Without one, no principal has a tenant.
type Tenants map[string]Tenant

// Of returns a principal in the tenant that names it, or as it is.
func (t Tenants) Of(p call.Principal) call.Principal {
	for name, one := range t {
		if slices.Contains(one.Principals, string(p)) {
			return p.In(name)
		}
	}
	return p
}

// Claimed returns the principal of a token of the shared issuer in its tenant: by its name or by its claims. If no
// tenant, or more than one, claims it, the principal has none.
func (t Tenants) Claimed(p call.Principal, claims map[string]any) call.Principal {
	var found []string
	for name, one := range t {
		has := len(one.Claims) > 0
		for claim, want := range one.Claims {
			list, many := claims[claim].([]any)
			has = has && (claims[claim] == any(want) || many && slices.Contains(list, any(want)))
		}
		if has || slices.Contains(one.Principals, string(p)) {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return p
	}
	return p.In(found[0])
}

// Holds reports whether a principal is one that the configuration in force gives its tenant. Without tenants these are
// the principals without one.
func (t Tenants) Holds(p call.Principal) bool {
	one, ok := t[p.Tenant()]
	if !ok {
		return len(t) == 0 && p.Tenant() == ""
	}
	local := string(p.Local())
	return strings.HasPrefix(local, "oidc:") && (one.Issuer.Issuer != "" || len(one.Claims) > 0) ||
		slices.Contains(one.Principals, local)
}

// Includes reports whether a list of tenants names the tenant of a principal.
func Includes(tenants []string, p call.Principal) bool {
	return slices.Contains(tenants, AnyTenant) || slices.Contains(tenants, p.Tenant())
}

// Withholds reports whether a secret is not for the tenant of a principal. One place is one secret, by whatever name.
func (c *Config) Withholds(ref secret.Ref, p call.Principal) bool {
	for name, s := range c.Secrets {
		if len(s.Tenants) > 0 && c.place(secret.Ref(name)) == c.place(ref) && !Includes(s.Tenants, p) {
			return true
		}
	}
	return false
}

// place returns the place of a secret with a name, or the reference itself.
func (c *Config) place(ref secret.Ref) secret.Ref {
	if from := c.Secrets[string(ref)].Spec.From; from != "" {
		return from
	}
	return ref
}
