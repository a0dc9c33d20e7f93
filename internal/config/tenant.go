package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"waldo/internal/config/outline"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

const byIdentity = "internal/frontend/mcpserver/identity"

var tenant = &mapping[contract.Tenant]{
	name: "tenant", title: "a tenant",
	doc: "One of several organisations that share a waldo. Where a tenant is written, a principal without one is " +
		"refused.\n" +
		"[tenants.md](../tenants.md) describes tenants.",
	example: "gateway: {url: https://waldo.example.com/mcp}\n" +
		"tenants:\n  acme: {issuer: https://login.acme.example}\n  lab: {principals: [\"token:lab\"]}\n" +
		"capabilities:\n  run_python: {transport: sandboxed_exec, mode: write, approval: none, tenants: [acme, lab]}\n",
	begin: func(p *parser, e field, _ *contract.Tenant) {
		if !isLabel(e.Name) {
			p.Fail(e.Key, "value.name", "letters, digits, - and _, beginning with a letter", "a tenant cannot be named %q",
				contract.Cut(e.Name, 40))
		}
	},
	keys: []key[contract.Tenant]{
		{"issuer", address(func(t *contract.Tenant) *string { return &t.Issuer.Issuer }),
			"none", "The https address of an issuer, to the letter: all that it signs tokens for belong to the tenant.",
			byIdentity},
		{"jwks", address(func(t *contract.Tenant) *string { return &t.Issuer.JWKS }),
			"the address in the issuer's metadata", "The address of the issuer's keys.", byIdentity},
		{"scopes", texts(func(t *contract.Tenant) *[]string { return &t.Issuer.Scopes }),
			"none", "Scopes that a token of the issuer must have, every one.", byIdentity},
		{"claims", leaf(outline.Shape{Name: "claims to texts", Schema: outline.MapOf(textSchema)}, (*parser).claims,
			func(t *contract.Tenant) *map[string]string { return &t.Claims }),
			"none", "Claims of the tokens of gateway.auth.oidc, every one with its value, as in org: acme.", byIdentity},
		{"principals", texts(func(t *contract.Tenant) *[]string { return &t.Principals }),
			"none", "Principals by name, as in token:ci, oidc:alice, hook:deploy, agent:waldo or os:1000.", byIdentity},
	},
	check: func(p *parser, e field, t *contract.Tenant, at map[string]field) {
		if isMapping(e.Val) && t.Issuer.Issuer == "" && len(t.Claims) == 0 && len(t.Principals) == 0 {
			p.Fail(e.Key, "key.missing", "as in issuer: https://login.acme.example",
				"a tenant needs issuer, claims or principals")
		}
		for _, who := range t.Principals {
			kind, name, _ := strings.Cut(who, ":")
			if !slices.Contains([]string{"os", "oidc", "token", "hook", "agent"}, kind) || name == "" {
				p.Fail(at["principals"].Val, "value.name", "as in token:ci", "%q is not a principal", contract.Cut(who, 80))
			}
		}
	},
}

// claims reads claims, whose names can be URLs, and their values.
func (p *parser) claims(f field) map[string]string {
	out := map[string]string{}
	for _, e := range p.Entries(f) {
		out[e.Name] = p.Text(e)
	}
	return out
}

// tenantsOf are the tenants of a capability, a server or a secret.
func tenantsOf[T any](absent, doc string, at func(*T) *[]string) key[T] {
	return key[T]{"tenants", texts(at), absent, doc, "internal/core/policy"}
}

// tenant reads one entry of tenants.
func (p *parser) tenant(e field) {
	t := contract.Tenant{At: p.At(e.Key)}
	tenant.read(p, e, &t)
	if p.cfg.Gateway.Tenants == nil {
		p.cfg.Gateway.Tenants = contract.Tenants{}
	}
	p.cfg.Gateway.Tenants[e.Name] = t
}

// checkTenants refuses what two tenants would share, and names of tenants that are not defined.
func (p *parser) checkTenants() {
	all := p.cfg.Gateway.Tenants
	taken := map[string]string{}
	if p.cfg.Gateway.OIDC != nil {
		taken["issuer "+p.cfg.Gateway.OIDC.Issuer] = "gateway.auth.oidc"
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		var own []string
		if t.Issuer.Issuer != "" {
			own = append(own, "issuer "+t.Issuer.Issuer)
		} else if t.Issuer.JWKS != "" || len(t.Issuer.Scopes) > 0 {
			p.against(t.At, "key.missing", "write issuer", "jwks and scopes of tenant "+name+" belong to an issuer")
		}
		if len(t.Claims) > 0 {
			own = append(own, fmt.Sprint("claims ", t.Claims))
			if p.cfg.Gateway.OIDC == nil {
				p.against(t.At, "tenant.issuer", "as in gateway: {auth: {oidc: {issuer: https://login.example.com}}}",
					"tenant "+name+" has claims, and no issuer of gateway.auth.oidc signs them")
			}
		}
		for _, who := range t.Principals {
			own = append(own, "principal "+who)
		}
		for _, one := range own {
			if other, twice := taken[one]; twice && other != name {
				p.against(t.At, "tenant.twice", "leave it to one of them", other+" and tenant "+name+" both have "+one)
			}
			taken[one] = name
		}
		if t.Issuer.Issuer != "" && p.cfg.Gateway.URL == "" {
			p.against(t.At, "listen.name", "as in gateway: {url: https://waldo.example.com/mcp}",
				"a token of an issuer is for one address, which must be known")
		}
	}
	p.checkLists()
}

// checkLists checks the tenants of capabilities, servers and secrets.
func (p *parser) checkLists() {
	lists := map[string][]string{}
	for _, c := range p.cfg.Contracts {
		lists["capability "+c.Pattern] = c.Tenants
		p.defined(c.At, c.Tenants)
	}
	for name, s := range p.cfg.Servers {
		lists["server "+name] = s.Tenants
		p.defined(s.At, s.Tenants)
		if p.meet(s) && (!s.PerSession && !s.Peer || s.Data != "") {
			p.against(s.At, "tenant.shared", "write per_session: true, without data; or a server with tenants for each",
				"tenants would meet in one process or the lasting data of server "+name)
		}
	}
	for _, s := range p.cfg.Secrets {
		p.defined(s.At, s.Tenants)
	}
	for _, use := range p.cfg.SecretUses {
		p.ownSecret(use, lists)
	}
}

// meet reports whether more than one tenant can call a server.
func (p *parser) meet(s contract.Server) bool {
	n := 0
	for name := range p.cfg.Gateway.Tenants {
		who := call.Principal("").In(name)
		if (len(s.Tenants) == 0 || contract.Includes(s.Tenants, who)) &&
			slices.ContainsFunc(p.cfg.Contracts, func(c contract.Contract) bool {
				of := c.Resolve(representative(c.Pattern), p.cfg).Server
				every := contract.Pattern(c.Pattern).Meets(contract.Pattern(s.Name + ".*"))
				return !c.Denied && contract.Includes(c.Tenants, who) && (of == s.Name || c.Server == "" && every)
			}) {
			n++
		}
	}
	return n > 1
}

func (p *parser) defined(at contract.Position, tenants []string) {
	for _, name := range tenants {
		if _, ok := p.cfg.Gateway.Tenants[name]; !ok && name != contract.AnyTenant {
			p.against(at, "tenant.unknown", "define it under tenants",
				fmt.Sprintf("no tenant %q is defined", contract.Cut(name, 40)))
		}
	}
}

// ownSecret refuses the use of a secret by a capability or a server of a tenant that cannot have it.
func (p *parser) ownSecret(use contract.SecretUse, lists map[string][]string) {
	tenants, is := lists[use.By]
	if !is || len(p.cfg.Gateway.Tenants) == 0 {
		return
	}
	if len(tenants) == 0 || slices.Contains(tenants, contract.AnyTenant) {
		tenants = slices.Sorted(maps.Keys(p.cfg.Gateway.Tenants))
	}
	for _, name := range tenants {
		if p.cfg.Withholds(use.Ref, call.Principal("").In(name)) {
			p.against(use.At, "secret.tenant", "name the tenants of the secret in tenants of "+use.By,
				fmt.Sprintf("%s is for tenant %s too, which cannot have this secret", use.By, name))
			return
		}
	}
}

// warnTenants warns of a tenant without a contract, and of a contract without a tenant.
func (p *parser) warnTenants() {
	if len(p.cfg.Gateway.Tenants) == 0 {
		return
	}
	served := map[string]bool{}
	for _, c := range p.cfg.Contracts {
		for _, name := range c.Tenants {
			served[name] = served[name] || !c.Denied
		}
		if !c.Denied && len(c.Tenants) == 0 {
			p.Warn(c.At, "tenant.none", `as in tenants: [NAME], or tenants: ["*"] for every tenant`,
				"%q names no tenant: no tenant can call it", c.Pattern)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Gateway.Tenants)) {
		if !served[name] && !served[contract.AnyTenant] {
			p.Warn(p.cfg.Gateway.Tenants[name].At, "tenant.unused", "name it in tenants of a capability",
				"no contract names tenant %q: each of its calls is denied", name)
		}
	}
}
