package config

import (
	"slices"
	"strings"
	"testing"

	"waldo/internal/model/contract"
)

// TestBroker: an injected secret needs a host that the sandbox can reach, and all of its required keys.
func TestBroker(t *testing.T) {
	const good = "host: api.example.com, methods: [GET], paths: [/v1/*], as: bearer"
	file := func(inject, rest string) string {
		return "secrets:\n  s: {from: \"env:S\", inject: {" + inject + "}}\n" + rest
	}
	capability := func(network string) string {
		return "capabilities:\n  box: {transport: sandboxed_exec, mode: write, network: " + network +
			", secrets: {TOKEN: s}}\n"
	}
	server := func(rest string) string {
		return "servers:\n  x: {command: [/bin/x], secrets: {TOKEN: s}" + rest + "}\n"
	}
	for _, row := range []struct{ why, text, code string }{
		{"the control", file(good, capability("{allow: [api.example.com]}")), ""},
		{"below a domain", file(good, capability("{allow: ['*.example.com']}")), ""},
		{"with a method and a path", file(good, capability("{allow: ['GET api.example.com/v1/*']}")), ""},
		{
			"another port on both sides", file(strings.Replace(good, "api.example.com", "api.example.com:8443", 1),
				capability("{allow: ['api.example.com:8443']}")), "",
		},
		{"a server", file(good, server(", network: {allow: [api.example.com]}")), ""},
		{
			"signed",
			file("host: s3.example.com, methods: [GET], paths: [/*], as: sigv4, key: \"env:ID\", region: eu-central-1, "+
				"service: s3", capability("{allow: [s3.example.com]}")), "",
		},

		{
			"a database", file("host: db.example.com, as: postgres, user: agent, database: shop",
				capability("{allow: ['db.example.com:5432']}")), "",
		},
		{
			"a database at a port of its own",
			file("host: 'db.example.com:5433', as: postgres, user: agent, database: shop, tls: false",
				capability("{allow: ['db.example.com:5433']}")), "",
		},

		{"a database without its name", file("host: db.example.com, as: postgres, user: agent", ""), "key.missing"},
		{"paths of a database", file("host: db.example.com, as: postgres, user: agent, database: shop, paths: [/*]", ""),
			"key.misplaced"},
		{"another host", file(good, capability("{allow: [example.com]}")), "secret.host"},
		{"another port", file(good, capability("{allow: ['api.example.com:80']}")), "secret.host"},
		{"no network", file(good, capability("denied")), "secret.host"},
		{"a server that reaches nothing", file(good, server("")), "secret.host"},
		{"a server outside", file(good, server(", placement: outside")), "secret.host"},
		{"no host", file("methods: [GET], paths: [/*], as: bearer", ""), "key.missing"},
		{"no method", file("host: a.example.com, paths: [/*], as: bearer", ""), "key.missing"},
		{"no path", file("host: a.example.com, methods: [GET], as: bearer", ""), "key.missing"},
		{"no way in", file("host: a.example.com, methods: [GET], paths: [/*]", ""), "key.missing"},
		{"a header without a name", file("host: a.example.com, methods: [GET], paths: [/*], as: header", ""), "key.missing"},
		{
			"a signature without a region",
			file("host: a.example.com, methods: [GET], paths: [/*], as: sigv4, key: \"env:ID\", service: s3", ""), "key.missing",
		},
		{"a region without a signature", file(good+", region: eu", ""), "key.misplaced"},
		{"every host below a domain", file(strings.Replace(good, "api.example.com", "'*.example.com'", 1), ""), "value.host"},
		{"a path that climbs", file(strings.Replace(good, "/v1/*", "/v1/../x", 1), ""), "value.path"},
		{"a method in small letters", file(strings.Replace(good, "GET", "get", 1), ""), "value.unknown"},
		{"a name that is two", file("host: a.example.com, methods: [GET], paths: [/*], as: header, name: 'X: y'", ""),
			"value.name"},
	} {
		cfg, bad := Parse("waldo.yaml", []byte(row.text))
		if has := slices.ContainsFunc(bad, func(p contract.Problem) bool { return p.Code == row.code }); has ==
			(row.code == "") || row.code == "" && len(bad) > 0 {
			t.Errorf("%s: %v", row.why, bad)
		}
		if row.code == "" && cfg.Secrets["s"].Inject == nil {
			t.Errorf("%s: no injection", row.why)
		}
	}
}
