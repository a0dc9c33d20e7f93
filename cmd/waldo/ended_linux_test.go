package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// delegated makes a delegation in the state of a folder, and returns its token and its id.
func delegated(t *testing.T, dir string, flags ...string) (token, name string) {
	t.Helper()
	out, err := inFolder(t, dir, append([]string{"delegate", "--danger", "3", "--host", "*"}, flags...)...).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out)), regexp.MustCompile(`dg_[a-z2-7]{26}`).FindString(string(out))
}

// did runs a command in a folder and returns what it printed.
func did(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	out, err := inFolder(t, dir, argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}

// refusals is how many records have a refusal by a code, of calls from a channel.
func refusals(t *testing.T, dir, channel, code string) (n int) {
	t.Helper()
	for line := range strings.Lines(did(t, dir, "log", "--json")) {
		if strings.Contains(line, `"effect":"deny"`) && strings.Contains(line, `"channel":"`+channel+`"`) &&
			strings.Contains(line, `"code":"`+code+`"`) {
			n++
		}
	}
	return n
}

// TestEndedREST: under a delegation that was revoked, each request over REST is refused as a call is, and recorded. What
// ran under it has ended.
func TestEndedREST(t *testing.T) {
	dir := installed(t, restContracts, map[string]string{"good": "waldo_good"})
	url := servedFrom(t, dir, "serve") + "/api/v1/"
	token, name := delegated(t, dir, "--allow", "exec", "--allow", "run_shell", "--as", "token:good", "--to", "token:good")
	under := map[string]string{"Waldo-Delegation": token}
	rows := []struct{ method, path, body string }{
		{"GET", "tools", ""}, {"POST", "sandboxes", `{"name":"mine"}`},
		{"POST", "calls", `{"capability":"run_shell","arguments":{"command":"echo hi"}}`},
		{"POST", "sandboxes/mine/exec", `{"argv":["echo","hi"]}`}, {"DELETE", "sandboxes/mine", ""},
	}
	for _, row := range rows {
		if a := asks(t, row.method, url+row.path, "waldo_good", row.body, under); a.status/100 != 2 {
			t.Fatalf("control: %s %s: %d %s", row.method, row.path, a.status, a.body)
		}
	}
	if a := asks(t, "POST", url+"sandboxes", "waldo_good", `{"name":"mine"}`, nil); a.status != 201 {
		t.Fatalf("control: %d %s", a.status, a.body)
	}
	open := make(chan restReply, 1)
	go func() {
		open <- asks(t, "POST", url+"sandboxes/mine/exec", "waldo_good", `{"argv":["sleep","600"]}`, under)
	}()
	for !strings.Contains(did(t, dir, "log", "--json"), `"sleep"`) {
	}
	if n := refusals(t, dir, "rest", "delegation.revoked"); n != 0 {
		t.Errorf("control: %d refusals", n)
	}
	did(t, dir, "delegate", "revoke", name)
	if a := <-open; a.status == 0 || !strings.Contains(string(a.body), "delegation.revoked") {
		t.Errorf("a command that ran: %d %s", a.status, a.body)
	}
	before := refusals(t, dir, "rest", "delegation.revoked")
	for i, row := range rows {
		a := asks(t, row.method, url+row.path, "waldo_good", row.body, under)
		if a.status != 403 || !strings.Contains(string(a.body), `"delegation.revoked"`) {
			t.Errorf("%s %s: %d %s", row.method, row.path, a.status, a.body)
		}
		if n := refusals(t, dir, "rest", "delegation.revoked"); n != before+i+1 {
			t.Errorf("%s %s: %d refusals are recorded, want %d", row.method, row.path, n, before+i+1)
		}
	}
	if a := asks(t, "DELETE", url+"sandboxes/mine", "waldo_good", "", nil); a.status != 204 {
		t.Errorf("control: without the delegation: %d %s", a.status, a.body)
	}
}

// TestEndedE2B: waldo e2b under a delegation refuses each request once that is revoked, and its streams have ended.
func TestEndedE2B(t *testing.T) {
	dir := installed(t, e2bContracts, map[string]string{"ann": "waldo_ann"})
	token, name := delegated(t, dir, "--allow", "exec", "--allow", "run_python")
	c := e2bClient{t, servedFrom(t, dir, "--delegation", token, "e2b"), "waldo_ann"}
	b := c.create(`{}`)
	if out := c.run(b, "echo begun >note; cat note"); !strings.Contains(out, "begun") {
		t.Fatalf("control: %s", out)
	}
	if status, text := c.ask("GET", "/v2/sandboxes", map[string]string{"Waldo-Delegation": token}, nil); status != 400 {
		t.Errorf("a header that is of REST alone: %d %s", status, text)
	}
	type row struct{ method, path, body string }
	rows := []row{
		{"GET", "/v2/sandboxes", ""}, {"POST", "/v2/sandboxes", "{}"}, {"GET", "/files?path=note", ""}, {"GET", "/health", ""},
		{"POST", "/filesystem.Filesystem/ListDir", `{"path":"/home/user"}`}, {"POST", "/execute", `{"code":"1"}`},
		{"GET", "/sandboxes/" + b.ID, ""}, {"DELETE", "/sandboxes/" + b.ID, ""},
	}
	ask := func(r row) (int, string) {
		return c.ask(r.method, r.path, b.with(map[string]string{"Content-Type": "application/json"}), strings.NewReader(r.body))
	}
	for _, r := range rows[:len(rows)-1] {
		if status, text := ask(r); status/100 != 2 {
			t.Fatalf("control: %s %s: %d %s", r.method, r.path, status, text)
		}
	}
	command := opened(t, c, b, "/process.Process/Start", `{"process":{"cmd":"/bin/sleep","args":["600"]}}`)
	watch := opened(t, c, b, "/filesystem.Filesystem/WatchDir", `{"path":"/home/user"}`)
	did(t, dir, "delegate", "revoke", name)
	if text := <-command; !strings.Contains(text, "killed") && !strings.Contains(text, "delegation.revoked") {
		t.Errorf("a command that ran: %s", text)
	}
	if text := <-watch; !strings.Contains(text, "delegation.revoked") {
		t.Errorf("a folder that was watched: %s", text)
	}
	before := refusals(t, dir, "e2b", "delegation.revoked")
	for i, r := range rows {
		if status, text := ask(r); status != 403 || !strings.Contains(text, "delegation.revoked") {
			t.Errorf("%s %s: %d %s", r.method, r.path, status, text)
		}
		if n := refusals(t, dir, "e2b", "delegation.revoked"); n != before+i+1 {
			t.Errorf("%s %s: %d refusals are recorded, want %d", r.method, r.path, n, before+i+1)
		}
	}
}

// opened begins a stream and returns once its first envelope is there. The channel gets the rest when it ends.
func opened(t *testing.T, c e2bClient, b e2bBox, path, body string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", c.url+path, enveloped(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range b.with(map[string]string{"Content-Type": "application/connect+json"}) {
		r.Header.Set(k, v)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	in, head := bufio.NewReader(a.Body), make([]byte, 5)
	if _, err = io.ReadFull(in, head); err == nil {
		_, err = io.CopyN(io.Discard, in, int64(binary.BigEndian.Uint32(head[1:])))
	}
	if err != nil || a.StatusCode != 200 {
		t.Fatalf("%s: %d %v", path, a.StatusCode, err)
	}
	rest := make(chan string, 1)
	go func() {
		defer a.Body.Close()
		text, _ := io.ReadAll(in)
		rest <- string(text)
	}()
	return rest
}
