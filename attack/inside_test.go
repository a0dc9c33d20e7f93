//go:build linux

package attack

import (
	"crypto/x509"
	"strings"
	"testing"

	"waldo/internal/egress"
	"waldo/internal/redact"
	"waldo/internal/secret"
)

// realToken is what the servers want and no box may ever see.
const realToken = "tok_Zt4bQx81LmvR0sYc"

// programsInside runs the same programs where waldo looks into their TLS: by rules for methods and
// paths, and to add a secret of which the box has a placeholder.
func programsInside(t *testing.T, dir string, pool *x509.CertPool) {
	real := func() (secret.Value, error) { return secret.NewValue(realToken), nil }
	lines := []string{"GET,POST api.example.com", "GET git.example.com/private.git/*", "GET pypi.example.com/*", "GET npm.example.com/*", "six.example.com"}
	const code = "curl -s -o /dev/null -m 5 -w '%{http_code}' "
	const ask = "https://api.example.com/private/x"
	for _, row := range []struct {
		why, command, want string
		denied             string
	}{
		{"the control: without the placeholder's host nobody is let in", "curl -s -H \"Authorization: Bearer $TOKEN\" https://six.example.com/private/x", "asked as Bearer waldo", ""},
		{"curl, HTTP/2", "curl -sS -H \"Authorization: Bearer $TOKEN\" " + ask, "HTTP/2.0 asked as Bearer ********************", ""},
		{"curl, HTTP/1.1, and no header of its own", "curl -sS --http1.1 " + ask, "asked as Bearer ********************", ""},
		{"curl through the proxy", "curl -sS -x http://198.18.0.1:3128 " + ask, "asked as Bearer ********************", ""},
		{"python, with another header that is replaced", "python3 -c 'import urllib.request as u; print(u.urlopen(u.Request(\"" + ask + "\", headers={\"Authorization\": \"Bearer mine\"})).read())'", "asked as Bearer ********************", ""},
		{"node fetch", "node -e 'fetch(\"" + ask + "\").then(r=>r.text()).then(console.log)'", "asked as Bearer ********************", ""},
		{"git clones what is private", "git clone -q https://git.example.com/private.git r && cat r/f", "hello", ""},
		{"pip installs", "python3 -m pip install -q --no-cache-dir --target t --index-url https://pypi.example.com/simple waldotest 2>&1 && PYTHONPATH=t python3 -c 'import waldotest'", "from the wheel", ""},
		{"npm installs", "mkdir n && cd n && npm install --silent --no-audit --no-fund --registry https://npm.example.com waldotest && cat node_modules/waldotest/package.json", `"version":"1.0.0"`, ""},

		{"a method that is not allowed", code + "-X DELETE " + ask, "403", "api.example.com egress.request"},
		{"a repository that is not allowed", "git clone -q https://git.example.com/repo r 2>&1", "403", "git.example.com egress.request"},
		{"the placeholder at another path", code + "-H \"Authorization: Bearer $TOKEN\" https://api.example.com/other", "403", "api.example.com egress.secret.placeholder"},
		{"the placeholder in the query", code + "\"" + ask + "?t=$TOKEN\"", "403", "api.example.com egress.secret.placeholder"},
		{"the placeholder in a body", code + "-d \"t=$TOKEN\" " + ask, "403", "api.example.com egress.secret.placeholder"},
		{"the placeholder in plain HTTP", code + "-H \"X-T: $TOKEN\" http://six.example.com/", "403", "six.example.com egress.secret.placeholder"},
		{"a redirect to another host takes nothing along", "curl -s -L --location-trusted -o /dev/null -w '%{http_code} %{exitcode}' https://api.example.com/away", "302 6", "evil.example egress.name"},
		{"another Host within TLS", code + "-H 'Host: six.example.com' " + ask, "403", "api.example.com egress.http.host"},
		{"the secret is nowhere in the box", "env; cat /proc/*/environ /proc/*/maps 2>/dev/null; cat /ca.pem | grep -c 'PRIVATE' ; true", "0", ""},
	} {
		o := egress.Options{Forms: redact.Forms, Credentials: []egress.Credential{
			{Name: "token", Placeholder: egress.NewPlaceholder(), Host: "api.example.com", Port: 443, Methods: []string{"GET", "POST"}, Paths: []string{"/private/*"}, As: egress.Bearer, Value: real},
			{Name: "gittoken", Placeholder: egress.NewPlaceholder(), Host: "git.example.com", Port: 443, Methods: []string{"GET"}, Paths: []string{"/private.git/*"}, As: egress.Basic, Field: "me", Value: real},
		}}
		out, f := inBox(t, dir, pool, o, lines, row.command)
		if !strings.Contains(out, row.want) || strings.Contains(out, realToken) {
			t.Errorf("%s: %q\n%+v", row.why, out, f.Network.Attempts)
		}
		told := row.denied == ""
		for _, a := range f.Network.Attempts {
			told = told || a.Host+" "+a.Why == row.denied && !a.Allowed
		}
		if !told {
			t.Errorf("%s: %s is no fact: %+v", row.why, row.denied, f.Network.Attempts)
		}
	}
}
