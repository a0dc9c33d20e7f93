package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/testing/repo"
)

// restContracts are the contracts of the tests of REST.
const restContracts = `capabilities:
  run_python: {mode: write, approval: none}
  run_javascript: {mode: write, approval: none, rate_limit: {calls: 1, per: 1h}}
  run_shell: {mode: write, approval: none}
  exec: {mode: write, approval: none, rules: [{when: "principal == 'token:bad'", deny: true}]}
  files.*: {transport: direct, root: ., mode: read, approval: none}
  files.write: {transport: direct, root: ., mode: write, approval: always}
  files.delete: deny
`

// TestClientOfTheDocument: a TypeScript client made of openapi.json compiles, and makes calls.
func TestClientOfTheDocument(t *testing.T) {
	node, modules := repo.Packages(t, "types", "openapi-typescript")
	url, _ := servedAs(t, restContracts, map[string]string{"ci": "waldo_ci"}, "serve")
	dir, err := os.MkdirTemp(filepath.Dir(modules), "rest-") // where node finds the packages
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	doc := asks(t, "GET", url+"/api/v1/openapi.json", "", "", nil)
	source, err := os.ReadFile("testdata/rest.ts")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"api.json": doc.body, "rest.ts": source, "package.json": []byte(`{"type":"module"}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, argv := range [][]string{
		{filepath.Join(modules, "openapi-typescript", "bin", "cli.js"), "api.json", "-o", "api.ts"},
		{filepath.Join(modules, "typescript", "bin", "tsc"), "--strict", "--target", "es2022", "--module", "nodenext", "rest.ts"},
	} {
		c := exec.CommandContext(t.Context(), node, argv...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	var out, errs bytes.Buffer
	c := exec.CommandContext(t.Context(), node, filepath.Join(dir, "rest.js"), url, "waldo_ci")
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.Bytes(), errs.Bytes())
	}
	want, err := os.ReadFile("testdata/rest.golden")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("%s\nwanted\n%s", out.Bytes(), want)
	}
}

// restReply is what a request was answered.
type restReply struct {
	status int
	header http.Header
	body   []byte
}

// asks makes one request; with a body it is JSON unless header has another type.
func asks(t *testing.T, method, url, token, body string, header map[string]string) restReply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return restReply{resp.StatusCode, resp.Header, b}
}

// TestREST: who may do what, and which requests are refused before they are calls.
func TestREST(t *testing.T) {
	url, _ := servedAs(t, restContracts, map[string]string{"good": "waldo_good", "bad": "waldo_bad"}, "serve")
	const good, bad = "waldo_good", "waldo_bad"
	shell := `{"capability":"run_shell","arguments":{"command":"echo hi"}}`
	for _, row := range []struct {
		why, method, path, token, body string
		header                         map[string]string
		status                         int
		code                           string // of the problem or of the first reason
	}{
		{"control", "POST", "calls", good, shell, nil, 200, ""},
		{"control: a sandbox", "POST", "sandboxes", good, `{"name":"mine"}`, nil, 201, ""},
		{"control: a file in it", "POST", "sandboxes/mine/exec", good, `{"argv":["touch","note"]}`, nil, 200, ""},
		{"control: a limited call", "POST", "runs", good, `{"language":"javascript","code":"1"}`, nil, 200, ""},
		{"the limit", "POST", "runs", good, `{"language":"javascript","code":"2"}`, nil, 429, "rate.exceeded"},
		{"nobody", "POST", "calls", "", shell, nil, 401, ""},
		{"a wrong token", "POST", "calls", "waldo_other", shell, nil, 401, ""},
		{"a page of another site", "POST", "calls", good, shell, map[string]string{"Origin": "http://evil.example"}, 403, ""},
		{"a form", "POST", "calls", good, shell, map[string]string{"Content-Type": "text/plain"}, 415, "media_type"},
		{"no contract", "POST", "calls", good, `{"capability":"fetch"}`, nil, 403, "contract.absent"},
		{"a denied capability", "POST", "calls", good, `{"capability":"files.delete","arguments":{"path":"a"}}`, nil, 403,
			"contract.deny"},
		{"two meanings", "POST", "calls", good, `{"capability":"files.delete","capability":"run_shell"}`, nil, 400, "json"},
		{"two cases", "POST", "calls", good, `{"capability":"files.delete","Capability":"run_shell"}`, nil, 400, "body"},
		{"another case", "POST", "calls", good, `{"Capability":"run_shell","arguments":{"command":"echo hi"}}`, nil, 400, "body"},
		{"an unknown member", "POST", "calls", good, `{"capability":"run_shell","principal":"token:bad"}`, nil, 400, "body"},
		{"arguments that are none", "POST", "calls", good, `{"capability":"run_shell","arguments":[1]}`, nil, 400, "arguments"},
		{"an unknown language", "POST", "runs", good, `{"language":"perl","code":"1"}`, nil, 400, "language"},
		{"no command", "POST", "sandboxes/mine/exec", good, `{"argv":[]}`, nil, 400, "argv"},
		{"a name that is a path", "POST", "sandboxes", good, `{"name":"../x"}`, nil, 400, "name"},
		{"the same name", "POST", "sandboxes", good, `{"name":"mine"}`, nil, 409, "exists"},
		{"the sandbox of another", "POST", "sandboxes/mine/exec", bad, `{"argv":["ls"]}`, nil, 404, "not_found"},
		{"to remove that of another", "DELETE", "sandboxes/mine", bad, "", nil, 404, "not_found"},
		{"a sandbox for whom exec is denied", "POST", "sandboxes", bad, `{"name":"own"}`, nil, 403, "denied"},
		{"too long", "POST", "calls", good, `{"capability":"run_shell","arguments":{"command":"` + strings.Repeat("x", 5<<20) + `"}}`,
			nil, 413, "too_long"},
		{"the operator's paths need a login", "POST", "agents/token:bad/stop", good, `{}`, nil, 403, ""},
		{"control: it is still there", "POST", "sandboxes/mine/exec", good, `{"argv":["ls","note"]}`, nil, 200, ""},
	} {
		got := asks(t, row.method, url+"/api/v1/"+row.path, row.token, row.body, row.header)
		var said struct {
			Code    string
			Reasons []struct{ Code string }
		}
		_ = json.Unmarshal(got.body, &said)
		code := said.Code
		if len(said.Reasons) > 0 {
			code = said.Reasons[0].Code
		}
		if got.status != row.status || row.code != "" && code != row.code {
			t.Errorf("%s: %d %s %.300s, wanted %d %s", row.why, got.status, code, got.body, row.status, row.code)
		}
		if (row.status == 429) != (got.header.Get("Retry-After") != "") {
			t.Errorf("%s: Retry-After: %q", row.why, got.header.Get("Retry-After"))
		}
	}
}
