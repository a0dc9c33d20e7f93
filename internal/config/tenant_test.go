package config

import (
	"slices"
	"testing"
)

// TestTenantsRefused: what two tenants would share is refused, and so are names of tenants that are not defined.
func TestTenantsRefused(t *testing.T) {
	const url = "gateway: {url: 'https://w.example/mcp', auth: {oidc: {issuer: 'https://i.example'}}}\n"
	const two = url + "tenants: {acme: {issuer: 'https://a.example'}, beta: {claims: {org: b}}}\n"
	const server = "servers: {s: {command: [a], secrets: {K: key}}}\n"
	const key = "secrets: {key: {from: 'env:KEY', tenants: [acme]}}\n"
	python := func(rest string) string {
		return two + key + "capabilities:\n  run_python: {transport: sandboxed_exec, mode: write, approval: none, " +
			"reveal: [K], " + rest + "}\n"
	}
	for _, row := range []struct{ why, text, code string }{
		{"control", two, ""},
		{"a tenant of nobody", "tenants: {acme: {}}\n", "key.missing"},
		{"an issuer without our address", "tenants: {acme: {issuer: 'https://a.example'}}\n", "listen.name"},
		{"one issuer of two", url + "tenants: {a: {issuer: 'https://a.example'}, b: {issuer: 'https://a.example'}}\n",
			"tenant.twice"},
		{"the shared issuer of one", url + "tenants: {a: {issuer: 'https://i.example'}}\n", "tenant.twice"},
		{"one claim of two", url + "tenants: {a: {claims: {org: a}}, b: {claims: {org: a}}}\n", "tenant.twice"},
		{"one token of two", "tenants: {a: {principals: ['token:x']}, b: {principals: ['token:x']}}\n", "tenant.twice"},
		{"claims without an issuer", "tenants: {a: {claims: {org: a}}}\n", "tenant.issuer"},
		{"a principal of no kind", "tenants: {a: {principals: [x]}}\n", "value.name"},
		{"a name with a slash", "tenants: {'a/b': {principals: ['token:x']}}\n", "value.name"},
		{"a capability of no tenant", two + "capabilities: {run_python: {transport: sandboxed_exec, tenants: [gone]}}\n",
			"tenant.unknown"},
		{"a capability without tenants", "capabilities: {run_python: {transport: sandboxed_exec, tenants: [acme]}}\n",
			"tenant.unknown"},
		{"control: a secret of its tenant", python("tenants: [acme], secrets: {K: key}"), ""},
		{"a secret of another tenant", python("tenants: [beta], secrets: {K: key}"), "secret.tenant"},
		{"a secret of one for every tenant", python("tenants: ['*'], secrets: {K: key}"), "secret.tenant"},
		{"a secret by its place", python("tenants: [beta], secrets: {K: 'env:KEY'}"), "secret.tenant"},
		{"a secret of one for a server of all", two + key + server, "secret.tenant"},
		{"a process of two tenants", two + "servers: {s: {command: [a]}}\ncapabilities: {s.*: {mode: read, tenants: ['*']}}\n",
			"tenant.shared"},
		{"a process of two tenants, by a wide pattern", two + "servers: {s: {command: [a]}}\n" +
			"capabilities: {'*': {mode: read, tenants: ['*']}}\n", "tenant.shared"},
		{"a process of two tenants, by two contracts", two + "servers: {s: {command: [a]}}\ncapabilities:\n" +
			"  s.a: {mode: read, tenants: [acme]}\n  b: {mode: read, server: s, tenants: [beta]}\n", "tenant.shared"},
		{"data of two tenants", two + "servers: {s: {command: [a], per_session: true, data: d}}\n" +
			"capabilities: {s.*: {mode: read, tenants: ['*']}}\n", "tenant.shared"},
		{"control: a process for each session", two + "servers: {s: {command: [a], per_session: true}}\n" +
			"capabilities: {s.*: {mode: read, tenants: ['*']}}\n", ""},
		{"control: a process of one tenant", two + "servers: {s: {command: [a], tenants: [acme], data: d}}\n" +
			"capabilities: {s.*: {mode: read, tenants: ['*']}}\n", ""},
		{"an open door without a token", "gateway: {listen: '0.0.0.0:1', url: 'https://w.example/mcp'}\n" +
			"tenants: {a: {principals: ['os:1']}}\n", "listen.open"},
		{"a door of a tenant's issuer", "tenants: {a: {issuer: 'https://a.example'}}\n" +
			"gateway: {listen: '0.0.0.0:1', url: 'https://w.example/mcp'}\n", ""},
	} {
		_, problems := Parse("w.yaml", []byte(row.text))
		if row.code == "" && len(problems) > 0 || row.code != "" && !problems.Has(row.code) {
			t.Errorf("%s: want %q: %v", row.why, row.code, problems)
		}
	}
}

// TestTenantsWarned: a tenant without a contract, and a contract without a tenant, are warned of.
func TestTenantsWarned(t *testing.T) {
	const two = "tenants: {a: {principals: ['token:a']}, b: {principals: ['token:b']}}\n"
	for rest, want := range map[string][]string{
		"tenants: [a, b]": nil, "tenants: ['*']": nil, "tenants: [a]": {"tenant.unused"},
		"danger: 2": {"tenant.unused", "tenant.unused", "tenant.none"},
	} {
		cfg, problems := Parse("w.yaml", []byte(two+"capabilities:\n  run_python: {transport: sandboxed_exec, mode: write, "+
			"approval: none, "+rest+"}\n"))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		var got []string
		for _, w := range cfg.Warnings {
			got = append(got, w.Code)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", rest, got, want)
		}
	}
}
