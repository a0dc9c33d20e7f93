package policy

import (
	"testing"

	"waldo/internal/config"
	"waldo/internal/model/call"
)

const twoTenants = `gateway: {url: "https://w.example/mcp", auth: {oidc: {issuer: "https://login.example"}}}
tenants:
  acme: {issuer: "https://login.acme.example"}
  beta: {claims: {org: beta}}
servers:
  s: {command: [a], per_session: true}
  own: {command: [a], tenants: [acme]}
capabilities:
  s.acme: {mode: read, approval: none, tenants: [acme]}
  s.beta: {mode: read, approval: none, tenants: [beta]}
  s.both: {mode: read, approval: none, tenants: ["*"]}
  s.none: {mode: read, approval: none}
  own.x: {mode: read, approval: none, tenants: ["*"]}
`

// TestTenants: a contract holds for the tenants that it names. The others neither see the tool nor call it.
func TestTenants(t *testing.T) {
	p := compileText(t, twoTenants, everything)
	const ann, bob = "acme/oidc:ann", "beta/oidc:ann" // one subject, of two issuers
	for _, row := range []struct {
		who  call.Principal
		name string
		code string // "": allowed
	}{
		{ann, "s.acme", ""}, {bob, "s.acme", "tenant.excluded"},
		{bob, "s.beta", ""}, {ann, "s.beta", "tenant.excluded"},
		{ann, "s.both", ""}, {bob, "s.both", ""},
		{ann, "s.none", "tenant.excluded"}, {bob, "s.none", "tenant.excluded"},
		{ann, "own.x", ""}, {bob, "own.x", "tenant.server"},
		{"oidc:ann", "s.both", "tenant.absent"}, {"os:1000", "s.both", "tenant.absent"}, {"", "s.both", "tenant.absent"},
		{"gone/oidc:ann", "s.both", "tenant.absent"}, {"acme/token:ci", "s.both", "tenant.absent"},
		{"oidc:acme/oidc:ann", "s.acme", "tenant.absent"},
	} {
		c := ask(t, row.name, "{}")
		c.Principal = row.who
		d := p.Decide(c)
		got := ""
		if d.Effect != Allow {
			got = d.Reasons[0].Code
		}
		if got != row.code || p.Usable(call.Capability(row.name), row.who, "mcp") != (row.code == "") {
			t.Errorf("%s calls %s: %q, want %q", row.who, row.name, got, row.code)
		}
	}
	if !p.Reaches("own", ann, "mcp") || p.Reaches("own", bob, "mcp") {
		t.Error("the name of a server of acme's is for acme alone")
	}
	plain := compileText(t, "servers: {s: {command: [a]}}\ncapabilities:\n  s.a: {mode: read, approval: none}\n",
		everything)
	c := ask(t, "s.a", "{}")
	if d := plain.Decide(c); d.Effect != Allow {
		t.Errorf("control: without tenants: %v", d.Reasons)
	}
	if c.Principal = ann; plain.Decide(c).Reasons[0].Code != "tenant.absent" {
		t.Error("a principal of a tenant that was removed is let in")
	}
}

// TestTenantSecret: a secret of one tenant is used for no other, also where the check of the file did not find it.
func TestTenantSecret(t *testing.T) {
	const text = "gateway: {auth: {tokens: {}}}\ntenants: {acme: {principals: [\"token:a\"]}, " +
		"beta: {principals: [\"token:b\"]}}\n" +
		"secrets: {key: {from: \"env:KEY\"}}\ncapabilities:\n  run_python: {transport: sandboxed_exec, mode: write, " +
		"approval: none, isolation: namespace, secrets: {K: key}, reveal: [K], tenants: [\"*\"]}\n"
	cfg, problems := config.Parse("w.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	m := everything
	m.Secrets = map[string]bool{"key": true}
	for _, tenants := range [][]string{nil, {"acme"}} {
		key := cfg.Secrets["key"]
		key.Tenants = tenants
		cfg.Secrets["key"] = key
		p, err := New(cfg, m)
		if err != nil {
			t.Fatal(err)
		}
		c := ask(t, "run_python", `{"code":""}`)
		for who, withheld := range map[call.Principal]bool{"acme/token:a": false, "beta/token:b": tenants != nil} {
			c.Principal = who
			if d := p.Decide(c); withheld != (d.Effect == Deny && d.Reasons[0].Code == "tenant.secret") {
				t.Errorf("%s, the secret is for %v: %v", who, tenants, d.Reasons)
			}
		}
	}
}
