package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// e2bClient speaks E2B's protocols without its SDK.
type e2bClient struct {
	t   testing.TB
	url string
	key string
}

// ask makes one request, and returns the status and the body of the answer.
func (c e2bClient) ask(method, path string, headers map[string]string, body io.Reader) (int, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", c.key)
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// e2bBox is a sandbox as a client holds it.
type e2bBox struct {
	ID      string `json:"sandboxID"`
	Files   string `json:"envdAccessToken"`
	Traffic string `json:"trafficAccessToken"`
}

func (c e2bClient) create(body string) e2bBox {
	c.t.Helper()
	status, text := c.ask("POST", "/v2/sandboxes", nil, strings.NewReader(body))
	var b e2bBox
	if err := json.Unmarshal([]byte(text), &b); err != nil || status != 201 {
		c.t.Fatalf("%d %s", status, text)
	}
	return b
}

// in are the headers of a request into a sandbox.
func (b e2bBox) in() map[string]string {
	return map[string]string{"E2b-Sandbox-Id": b.ID, "E2b-Sandbox-Port": "49983", "X-Access-Token": b.Files}
}

func (b e2bBox) with(more map[string]string) map[string]string {
	all := b.in()
	for k, v := range more {
		all[k] = v
	}
	return all
}

// enveloped puts a body into Connect's envelope.
func enveloped(body string) io.Reader {
	head := make([]byte, 5)
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	return bytes.NewReader(append(head, body...))
}

// run runs a shell command and returns all of its envelopes as text, with the bytes of its output decoded.
func (c e2bClient) run(b e2bBox, command string) string {
	c.t.Helper()
	args, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-c",
		command}},
		"stdin": false})
	if err != nil {
		c.t.Fatal(err)
	}
	_, text := c.ask("POST", "/process.Process/Start", b.with(map[string]string{"Content-Type": "application/connect+json"}),
		enveloped(string(args)))
	out := ""
	for rest := []byte(text); len(rest) >= 5; {
		n := binary.BigEndian.Uint32(rest[1:])
		var e struct {
			Event struct {
				Data struct{ Stdout []byte }
			}
		}
		_ = json.Unmarshal(rest[5:5+n], &e)
		out += string(rest[5:5+n]) + string(e.Event.Data.Stdout) + "\n"
		rest = rest[5+n:]
	}
	return out
}

const e2bContracts = "capabilities:\n  exec: {mode: write, approval: none, network: {allow: [packages.example.com]}, " +
	"rules: [{when: \"args.argv.exists(a, a.contains('forbidden'))\", deny: true}]}\n" +
	"  run_python: {mode: write, approval: none}\n"

// attacked serves E2B to two keys.
func attacked(t *testing.T) (ann, bob e2bClient, state string) {
	at, state := servedE2B(t, e2bContracts, map[string]string{"ann": "waldo_ann", "bob": "waldo_bob"})
	return e2bClient{t, at, "waldo_ann"}, e2bClient{t, at, "waldo_bob"}, state
}

// TestE2BPrincipals: a sandbox is its principal's. Another's is absent, and a key that is not known opens nothing.
func TestE2BPrincipals(t *testing.T) {
	ann, bob, _ := attacked(t)
	a, b := ann.create(`{}`), bob.create(`{}`)
	for _, row := range [][2]string{
		{"GET", ""}, {"POST", "/timeout"}, {"PUT", "/network"}, {"GET", "/metrics"}, {"POST", "/snapshots"}, {"POST",
			"/fork"},
		{"POST", "/pause"}, {"DELETE", ""},
	} {
		if status, text := bob.ask(row[0], "/sandboxes/"+a.ID+row[1], nil, strings.NewReader("{}")); status != 404 {
			t.Errorf("another's: %s %s: %d %s", row[0], row[1], status, text)
		}
		stranger := e2bClient{t, ann.url, "waldo_nobody"}
		if status, text := stranger.ask(row[0], "/sandboxes/"+a.ID+row[1], nil, strings.NewReader("{}")); status != 401 {
			t.Errorf("a stranger: %s %s: %d %s", row[0], row[1], status, text)
		}
	}
	if status, _ := bob.ask("POST", "/v2/sandboxes/"+a.ID+"/connect", nil, strings.NewReader("{}")); status != 404 {
		t.Errorf("connect to another's: %d", status)
	}
	if _, text := bob.ask("GET", "/v2/sandboxes", nil, nil); strings.Contains(text, a.ID) ||
		!strings.Contains(text, b.ID) {
		t.Errorf("bob's list: %s", text)
	}
	if status, _ := ann.ask("GET", "/sandboxes/"+a.ID, nil, nil); status != 200 {
		t.Errorf("the control: %d", status)
	}
	for why, token := range map[string]string{"another sandbox's": b.Files, "the traffic token": a.Traffic, "the key": ann.key,
		"none": "", "cut": a.Files[:10]} {
		for _, path := range []string{"/health", "/files?path=x"} {
			if status, _ := ann.ask("GET", path, a.with(map[string]string{"X-Access-Token": token}), nil); status != 401 {
				t.Errorf("%s %s: %d", why, path, status)
			}
		}
	}
	if status, _ := ann.ask("GET", "/health", a.in(), nil); status != 204 {
		t.Errorf("the control: %d", status)
	}
	if status, _ := ann.ask("GET", "/contexts", b.with(map[string]string{"X-Access-Token": "",
		"E2B-Traffic-Access-Token": a.Traffic}), nil); status != 401 {
		t.Errorf("another's traffic token: %d", status)
	}
	if status, _ := ann.ask("GET", "/files?path=x&username=root", a.in(), nil); status != 400 {
		t.Errorf("root: %d", status)
	}
	// A snapshot and a template of another principal, of the machine and of a registry.
	_, text := ann.ask("POST", "/sandboxes/"+a.ID+"/snapshots", nil, strings.NewReader("{}"))
	var p struct{ SnapshotID string }
	if err := json.Unmarshal([]byte(text), &p); err != nil || p.SnapshotID == "" {
		t.Fatal(text)
	}
	for _, name := range []string{p.SnapshotID, "/etc", "./x", "../x", "debian:latest", "nothing"} {
		if status, text := bob.ask("POST", "/v2/sandboxes", nil, strings.NewReader(fmt.Sprintf(`{"templateID":%q}`, name))); status != 404 {
			t.Errorf("template %s: %d %s", name, status, text)
		}
	}
	if status, _ := bob.ask("DELETE", "/templates/"+p.SnapshotID, nil, nil); status != 404 {
		t.Errorf("deleting another's snapshot: %d", status)
	}
	ann.create(fmt.Sprintf(`{"templateID":%q}`, p.SnapshotID))
}

// TestE2BPaths: no path of a client leads out of the sandbox's folders, nor does a link.
func TestE2BPaths(t *testing.T) {
	ann, _, state := attacked(t)
	a := ann.create(`{}`)
	octets := a.with(map[string]string{"Content-Type": "application/octet-stream"})
	put := func(path string) int {
		status, _ := ann.ask("POST", "/files?path="+url.QueryEscape(path), octets, strings.NewReader("mine"))
		return status
	}
	get := func(path string) (int, string) {
		return ann.ask("GET", "/files?path="+url.QueryEscape(path), a.in(), nil)
	}
	if put("d/ok.txt") != 200 {
		t.Error("the control: it is not written")
	}
	if status, text := get("/home/user/d/../d/./ok.txt"); status != 200 || text != "mine" {
		t.Errorf("the control: %d %s", status, text)
	}
	for _, path := range []string{"/etc/passwd", "../../etc/passwd", "/home/user/../../etc/passwd", "/tmp/../etc/hostname",
		"/home/userx/a", "/", "/home", "/home/user", "/proc/self/environ", "a\x00b", strings.Repeat("x", 5000), `back\slash`,
		strings.Repeat("d/", 100) + "x"} {
		if status, text := get(path); status != 400 && status != 404 {
			t.Errorf("read %.40q: %d %s", path, status, text)
		}
		if status := put(path); status != 400 && status != 404 {
			t.Errorf("write %.40q: %d", path, status)
		}
		form := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + strings.ReplaceAll(path, `\`, `\\`) +
			"\"\r\n\r\nmine\r\n--x--\r\n"
		if status, _ := ann.ask("POST", "/files", a.with(map[string]string{"Content-Type": "multipart/form-data; boundary=x"}),
			strings.NewReader(form)); status != 400 && status != 404 {
			t.Errorf("form %.40q: %d", path, status)
		}
	}
	// Links of a command do not outlive it, and links on the machine's side are not followed.
	ann.run(a, "ln -s /etc/passwd link; ln -s / root")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(state, "workspaces", "w_*", "files"))
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	for name, to := range map[string]string{"planted": secret, "folder": filepath.Dir(secret)} {
		if err := os.Symlink(to, filepath.Join(folders[0], name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"link", "root/etc/passwd", "planted", "folder/secret"} {
		if status, text := get(path); status != 400 && status != 404 || strings.Contains(text, "canary") {
			t.Errorf("read %s: %d %s", path, status, text)
		}
	}
	for _, path := range []string{"planted", "folder/secret", "folder/new"} {
		if status := put(path); status != 400 && status != 404 {
			t.Errorf("write %s: %d", path, status)
		}
	}
	for _, rpc := range []string{`Remove {"path":"folder/secret"}`, `Move {"source":"d/ok.txt","destination":"folder/secret"}`,
		`MakeDir {"path":"folder/made"}`, `ListDir {"path":"folder"}`, `Stat {"path":"planted"}`} {
		name, body, _ := strings.Cut(rpc, " ")
		if status, text := ann.ask("POST", "/filesystem.Filesystem/"+name,
			a.with(map[string]string{"Content-Type": "application/json"}), strings.NewReader(body)); status == 200 {
			t.Errorf("%s: %s", rpc, text)
		}
	}
	left, _ := os.ReadDir(filepath.Dir(secret))
	if b, err := os.ReadFile(secret); err != nil || string(b) != "canary" || len(left) != 1 {
		t.Errorf("outside: %q %v, %d files", b, err, len(left))
	}
}

// signedURL makes the address that the SDK makes.
func signedURL(token, path, op, until string) string {
	text := path + ":" + op + "::" + token
	if until != "" {
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	q := url.Values{"path": {path}, "signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}
	if until != "" {
		q.Set("signature_expiration", until)
	}
	return "/files?" + q.Encode()
}

// TestE2BSignatures: an address holds for its path, its operation, its sandbox and its time.
func TestE2BSignatures(t *testing.T) {
	ann, _, _ := attacked(t)
	a, b := ann.create(`{}`), ann.create(`{}`)
	ann.key = ""
	body := map[string]string{"Content-Type": "application/octet-stream"}
	soon := fmt.Sprint(time.Now().Add(time.Hour).Unix())
	past := fmt.Sprint(time.Now().Add(-time.Minute).Unix())
	if status, text := ann.ask("POST", signedURL(a.Files, "x", "write", soon), body,
		strings.NewReader("1")); status != 200 {
		t.Fatalf("the control: %d %s", status, text)
	}
	good := signedURL(a.Files, "x", "read", soon)
	if status, text := ann.ask("GET", good, nil, nil); status != 200 || text != "1" {
		t.Fatalf("the control: %d %s", status, text)
	}
	for why, at := range map[string]string{
		"another path":     strings.Replace(good, "path=x", "path=y", 1),
		"an operation":     signedURL(a.Files, "x", "write", soon),
		"a forged one":     signedURL("guess", "x", "read", soon),
		"no token":         signedURL("", "x", "read", soon),
		"past":             signedURL(a.Files, "x", "read", past),
		"a later time":     strings.Replace(good, soon, soon[:len(soon)-1]+"99", 1),
		"without its time": strings.Replace(good, "signature_expiration", "nothing", 1),
		"an empty time": strings.Replace(signedURL(a.Files, "x", "read", ""), "/files?",
			"/files?signature_expiration=&", 1),
		"an odd time":       signedURL(a.Files, "x", "read", "9e99"),
		"another user":      good + "&username=user",
		"the traffic token": signedURL(a.Traffic, "x", "read", soon),
	} {
		if status, text := ann.ask("GET", at, nil, nil); status != 401 {
			t.Errorf("%s: %d %s", why, status, text)
		}
	}
	if status, _ := ann.ask("GET", good, map[string]string{"E2b-Sandbox-Id": b.ID}, nil); status != 401 {
		t.Errorf("for another sandbox: %d", status)
	}
}

// TestE2BNarrows: what a client asks of the network narrows the contract, and what waldo cannot hold to is refused.
func TestE2BNarrows(t *testing.T) {
	ann, _, _ := attacked(t)
	const proxy = "env | grep -c -i https_proxy="
	for _, row := range []struct{ body, out, shown string }{
		{`{}`, "1\n", `["packages.example.com"]`}, // the control
		{`{"network":{"allowOut":["packages.example.com","evil.example.com"]}}`, "1\n", `["packages.example.com"]`},
		{`{"network":{"allowOut":["*.example.com"]}}`, "1\n", `["packages.example.com"]`},
		{`{"network":{"allowOut":["0.0.0.0/0"]}}`, "1\n", `["packages.example.com"]`},
		{`{"network":{"allowOut":["evil.example.com"]}}`, "0\n", `[]`},
		{`{"network":{"denyOut":["0.0.0.0/0"]}}`, "0\n", `[]`},
		{`{"allow_internet_access":false,"network":{"allowOut":["packages.example.com"]}}`, "0\n", `[]`},
	} {
		b := ann.create(row.body)
		if out := ann.run(b, proxy); !strings.Contains(out, "}"+row.out) {
			t.Errorf("%s: %s", row.body, out)
		}
		if _, text := ann.ask("GET", "/sandboxes/"+b.ID, nil, nil); !strings.Contains(text, `"allowOut":`+row.shown) {
			t.Errorf("%s: %s", row.body, text)
		}
	}
	for _, body := range []string{
		`{"network":{"denyOut":["10.0.0.0/8"]}}`, `{"network":{"rules":{"a":[]}}}`, `{"network":{"egressProxy":{}}}`,
		`{"network":{"allowOut":["a b"]}}`, `{"unknown":1}`, `{"volumeMounts":[{"name":"v"}]}`, `{"mcp":{"a":{}}}`,
		`{"timeout":-1}`, `{"timeout":86401}`, `{"metadata":{"a=b":"c"}}`, `{"timeout":1,"timeout":2}`, `[]`, `{`,
	} {
		if status, text := ann.ask("POST", "/v2/sandboxes", nil, strings.NewReader(body)); status != 400 ||
			!strings.Contains(text, `"code":400`) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	b := ann.create(`{}`)
	if out := ann.run(b, "echo forbidden"); !strings.Contains(out, `"code":"permission_denied"`) {
		t.Errorf("a call that the contract denies: %s", out)
	}
	if out := ann.run(b, "echo allowed"); !strings.Contains(out, "allowed\n") {
		t.Errorf("the control: %s", out)
	}
}

// TestE2BBounds: bodies, files, envelopes and times have their bounds, and what is not there is said to be so.
func TestE2BBounds(t *testing.T) {
	ann, _, _ := attacked(t)
	a := ann.create(`{}`)
	stream := a.with(map[string]string{"Content-Type": "application/connect+json"})
	octets := a.with(map[string]string{"Content-Type": "application/octet-stream"})
	if status, _ := ann.ask("POST", "/v2/sandboxes", nil,
		strings.NewReader(`{"templateID":"`+strings.Repeat("x", 5<<20)+`"}`)); status != 413 {
		t.Errorf("a long body: %d", status)
	}
	for _, body := range []string{"null", "[]", `"x"`} {
		if status, _ := ann.ask("POST", "/v2/sandboxes", nil, strings.NewReader(body)); status != 400 {
			t.Errorf("the body %s: %d", body, status)
		}
	}
	if _, text := ann.ask("POST", "/process.Process/Start", stream,
		bytes.NewReader([]byte{0, 0xff, 0xff, 0xff, 0xff})); !strings.Contains(text, "resource_exhausted") {
		t.Errorf("a long envelope: %q", text)
	}
	if _, text := ann.ask("POST", "/process.Process/Start", stream,
		bytes.NewReader([]byte{1, 0, 0, 0, 2, '{', '}'})); !strings.Contains(text, "compressed") {
		t.Errorf("a compressed envelope: %q", text)
	}
	if _, text := ann.ask("POST", "/process.Process/Start",
		a.with(map[string]string{"Content-Type": "application/connect+proto"}),
		enveloped("")); !strings.Contains(text, "invalid_argument") {
		t.Errorf("the binary protocol: %q", text)
	}
	if status, text := ann.ask("POST", "/files?path=big", octets, io.LimitReader(zeros{}, 300<<20)); status != 507 {
		t.Errorf("a file that does not fit: %d %s", status, text)
	}
	if status, _ := ann.ask("GET", "/files?path=big", a.in(), nil); status != 404 {
		t.Errorf("a part of it stays: %d", status)
	}
	if status, text := ann.ask("POST", "/process.Process/StreamInput", stream, enveloped("{}")); status != 501 ||
		!strings.Contains(text, "unimplemented") {
		t.Errorf("a procedure that is not there: %d %s", status, text)
	}
	for _, at := range []string{"/volumes", "/secrets", "/v3/templates"} {
		if status, text := ann.ask("POST", at, nil, strings.NewReader("{}")); status != 501 || !strings.Contains(text, `"code":501`) {
			t.Errorf("%s: %d %s", at, status, text)
		}
	}
	brief := ann.create(`{"timeout":1}`)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if status, _ := ann.ask("GET", "/sandboxes/"+brief.ID, nil, nil); status == 404 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("a sandbox outlives its time: %d", status)
		}
	}
	if status, _ := ann.ask("GET", "/health", brief.in(), nil); status != 502 {
		t.Errorf("a sandbox that is gone: %d", status)
	}
}

// BenchmarkE2BFirstOutput measures a new sandbox, from the request to the first byte of its first command's output, over
// HTTP on this machine. It reports the median and the 95th percentile.
func BenchmarkE2BFirstOutput(b *testing.B) {
	at, _ := servedE2B(b, strings.Replace(e2bContracts, ", network: {allow: [packages.example.com]}", "", 1),
		map[string]string{"ann": "waldo_ann"})
	ann := e2bClient{b, at, "waldo_ann"}
	took := []time.Duration{}
	for b.Loop() {
		began := time.Now()
		box := ann.create(`{}`)
		if out := ann.run(box, "echo first"); !strings.Contains(out, "}first\n") {
			b.Fatal(out)
		}
		took = append(took, time.Since(began))
		b.StopTimer()
		if status, text := ann.ask("DELETE", "/sandboxes/"+box.ID, nil, nil); status != 204 {
			b.Fatal(status, text)
		}
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms/p95")
}

// TestE2BStrangers: connections that do not show a key, however many, keep no client waiting.
func TestE2BStrangers(t *testing.T) {
	ann, _, _ := attacked(t)
	var first net.Conn
	for range 1100 {
		c, err := net.Dial("tcp", strings.TrimPrefix(ann.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if first == nil {
			first = c
		}
		if _, err := io.WriteString(c, "POST /v2/sandboxes HTTP/1.1\r\n"); err != nil && !errors.Is(err, syscall.EPIPE) &&
			!errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(8 * time.Second))
	if n, err := first.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest of 1100 connections is still open: %d %v", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // strangers have ten to send their headers
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, ann.url+"/v2/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", ann.key)
	a, err := (&http.Transport{}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Error(a.Status)
	}
}

// TestE2BCounts: one key has so many sandboxes and snapshots, and another key's are not counted.
func TestE2BCounts(t *testing.T) {
	ann, bob, _ := attacked(t)
	const most = 100
	first := ann.create(`{}`)
	for range most - 1 {
		ann.create(`{}`)
	}
	if status, text := ann.ask("POST", "/v2/sandboxes", nil, strings.NewReader("{}")); status != 429 {
		t.Errorf("one sandbox more: %d %s", status, text)
	}
	snapshot := func() int {
		status, _ := ann.ask("POST", "/sandboxes/"+first.ID+"/snapshots", nil, strings.NewReader("{}"))
		return status
	}
	for range most {
		if status := snapshot(); status != 201 {
			t.Fatalf("the control: %d", status)
		}
	}
	if status := snapshot(); status != 429 {
		t.Errorf("one snapshot more: %d", status)
	}
	bob.create(`{}`)
	if status, _ := ann.ask("DELETE", "/sandboxes/"+first.ID, nil, nil); status != 204 {
		t.Fatal(status)
	}
	ann.create(`{}`)
}

// TestE2BTogether: commands of one sandbox share ports where their contract allows no hosts, a pause stops them in
// place, and those of another sandbox share nothing.
func TestE2BTogether(t *testing.T) {
	at, state := servedE2B(t, "capabilities:\n  exec: {mode: write, approval: none}\n",
		map[string]string{"ann": "waldo_ann"})
	ann := e2bClient{t, at, "waldo_ann"}
	a, b := ann.create(`{}`), ann.create(`{}`)
	done := make(chan string, 1)
	const network = "readlink /proc/self/ns/net"
	go func() {
		done <- ann.run(a, network+" > net; until [ -e end ]; do date +%N > tick; sleep 0.1; done; cat net")
	}()
	file := func(name string) string {
		status, text := ann.ask("GET", "/files?path="+name, a.in(), nil)
		if status != 200 {
			return ""
		}
		return text
	}
	until := func(why string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(why)
			}
		}
	}
	until("the command does not begin", func() bool { return file("tick") != "" })
	net := strings.TrimSpace(file("net"))
	if out := ann.run(a, network); !strings.HasPrefix(net, "net:[") || !strings.Contains(out, net) {
		t.Errorf("the first command is in %q: %s", net, out)
	}
	if out := ann.run(b, network); strings.Contains(out, net) {
		t.Errorf("another sandbox is in %q: %s", net, out)
	}
	if status, text := ann.ask("POST", "/sandboxes/"+a.ID+"/pause", nil, strings.NewReader("{}")); status != 204 {
		t.Fatal(status, text)
	}
	if status, _ := ann.ask("GET", "/files?path=tick", a.in(), nil); status != 502 {
		t.Errorf("a file of a paused sandbox: %d", status)
	}
	if out := ann.run(a, "true"); !strings.Contains(out, `"code":"unavailable"`) {
		t.Errorf("a command in a paused sandbox: %s", out)
	}
	if status, _ := ann.ask("POST", "/sandboxes/"+a.ID+"/pause", nil, strings.NewReader("{}")); status != 409 {
		t.Errorf("a second pause: %d", status)
	}
	if status, text := ann.ask("POST", "/v2/sandboxes/"+a.ID+"/connect", nil, strings.NewReader("{}")); status != 201 {
		t.Fatal(status, text)
	}
	was := file("tick")
	until("the command does not go on", func() bool { return file("tick") != was })
	if status, _ := ann.ask("POST", "/files?path=end", a.with(map[string]string{"Content-Type": "application/octet-stream"}),
		strings.NewReader("")); status != 200 {
		t.Fatal(status)
	}
	if out := <-done; !strings.Contains(out, net) || !strings.Contains(out, `"exitCode":0`) {
		t.Errorf("the first command: %s", out)
	}
	logged, err := os.ReadFile(lastSegment(t, state))
	for _, want := range []string{`"kind":"sandbox"`, `"op":"create"`, `"op":"pause"`, `"op":"resume"`, `"op":"write"`,
		`"channel":"e2b"`} {
		if err != nil || !strings.Contains(string(logged), want) {
			t.Errorf("the log lacks %s: %v", want, err)
		}
	}
}

// lastSegment returns the file of the log of a state directory.
func lastSegment(t *testing.T, state string) string {
	all, err := filepath.Glob(filepath.Join(state, "log", "*.jsonl"))
	if err != nil || len(all) == 0 {
		t.Fatal("there is no log", err)
	}
	return all[len(all)-1]
}

// TestE2BRows: what the sandboxes of one key hold has a bound in bytes as stored, which another key does not feel, and
// a signed address holds beside them.
func TestE2BRows(t *testing.T) {
	ann, bob, _ := attacked(t)
	pairs := map[string]string{}
	for i := range 60 {
		pairs[fmt.Sprintf("K%d", i)] = strings.Repeat("<", 4000) // six bytes each, as JSON has it
	}
	text, err := json.Marshal(map[string]any{"metadata": pairs})
	if err != nil {
		t.Fatal(err)
	}
	create := func(c e2bClient) (int, string) {
		return c.ask("POST", "/v2/sandboxes", nil, bytes.NewReader(text))
	}
	first := ann.create(string(text)) // the control
	ann.create(string(text))
	if status, text := create(ann); status != 429 || !strings.Contains(text, `"code":429`) {
		t.Errorf("more bytes than one key has: %d %.200s", status, text)
	}
	if status, text := create(bob); status != 201 {
		t.Errorf("another key: %d %.200s", status, text)
	}
	ann.create(`{}`)
	if status, text := ann.ask("GET", "/sandboxes/"+first.ID, nil, nil); status != 200 || strings.Count(text, `"K`) != 60 {
		t.Errorf("its metadata: %d %.200s", status, text)
	}
	if status, text := ann.ask("PUT", "/sandboxes/"+first.ID+"/network", nil,
		strings.NewReader(`{"denyOut":["0.0.0.0/0"]}`)); status != 204 {
		t.Errorf("a narrower network: %d %.200s", status, text)
	}
	if status, text := ann.ask("GET", "/v2/sandboxes", nil, nil); status != 200 || !strings.Contains(text, `"K59"`) {
		t.Errorf("the list: %d %.200s", status, text)
	}
	if status, _ := ann.ask("DELETE", "/sandboxes/"+first.ID, nil, nil); status != 204 {
		t.Fatal(status)
	}
	if status, text := create(ann); status != 201 {
		t.Errorf("after one was deleted: %d %.200s", status, text)
	}
}

// TestE2BWatches: one key watches folders with so many streams, and another key's are not counted. Streams of one
// folder get the same changes.
func TestE2BWatches(t *testing.T) {
	ann, bob, _ := attacked(t)
	a, b := ann.create(`{}`), bob.create(`{}`)
	open := func(c e2bClient, in e2bBox) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/filesystem.Filesystem/WatchDir",
			enveloped(`{"path":"."}`))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range in.with(map[string]string{"Content-Type": "application/connect+json"}) {
			r.Header.Set(k, v)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		var head [5]byte
		_, err = io.ReadFull(answer.Body, head[:])
		text := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, rerr := io.ReadFull(answer.Body, text); err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		return string(text)
	}
	const most = 64
	for i := range most {
		if text := open(ann, a); !strings.Contains(text, `"start"`) {
			t.Fatalf("the control: stream %d: %s", i, text)
		}
	}
	if text := open(ann, a); !strings.Contains(text, "resource_exhausted") {
		t.Errorf("one stream more: %s", text)
	}
	if text := open(ann, ann.create(`{}`)); !strings.Contains(text, "resource_exhausted") {
		t.Errorf("of another sandbox of the key: %s", text)
	}
	if text := open(bob, b); !strings.Contains(text, `"start"`) {
		t.Errorf("another key: %s", text)
	}
}
