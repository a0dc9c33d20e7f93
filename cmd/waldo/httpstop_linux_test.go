package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// operate runs a command of the operator over a state directory of servedAs.
func operate(t *testing.T, state string, args ...string) string {
	t.Helper()
	dir := filepath.Dir(state)
	c := exec.CommandContext(t.Context(), filepath.Join(dir, "waldo"), append([]string{"--state", state, "--config",
		filepath.Join(dir, "waldo.yaml")}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("waldo %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestRESTStopped: a stopped principal makes, removes and sees nothing. What it made is in the log.
func TestRESTStopped(t *testing.T) {
	url, state := servedAs(t, restContracts, map[string]string{"good": "waldo_good"}, "serve")
	requests := []struct {
		method, path, body string
		control            int
	}{
		{"POST", "calls", `{"capability":"run_shell","arguments":{"command":"echo hi"}}`, 200},
		{"GET", "tools", "", 200},
		{"POST", "sandboxes", `{"name":"one"}`, 201},
		{"POST", "sandboxes/one/exec", `{"argv":["true"]}`, 200},
		{"DELETE", "sandboxes/one", "", 204},
	}
	for _, r := range requests {
		if got := asks(t, r.method, url+"/api/v1/"+r.path, "waldo_good", r.body, nil); got.status != r.control {
			t.Fatalf("control: %s %s: %d %s", r.method, r.path, got.status, got.body)
		}
	}
	if got := asks(t, "POST", url+"/api/v1/sandboxes", "waldo_good", `{"name":"one"}`, nil); got.status != 201 {
		t.Fatal(got.status)
	}
	operate(t, state, "stop", "--all")
	for _, r := range requests {
		got := asks(t, r.method, url+"/api/v1/"+r.path, "waldo_good", r.body, nil)
		if got.status != 403 || !strings.Contains(string(got.body), `"code":"session.stopped"`) {
			t.Errorf("%s %s: %d %s", r.method, r.path, got.status, got.body)
		}
	}
	log := operate(t, state, "log", "--kind", "sandbox")
	if strings.Count(log, "create s_") != 2 || strings.Count(log, "remove s_") != 1 ||
		!strings.Contains(log, "by token:good") {
		t.Errorf("%s", log)
	}
}

// TestE2BStopped: the same for a client of E2B, whose files are requests that are no calls.
func TestE2BStopped(t *testing.T) {
	url, state := servedAs(t, restContracts, map[string]string{"good": "waldo_good"}, "e2b")
	c := e2bClient{t, url, "waldo_good"}
	b := c.create(`{}`)
	requests := []struct {
		method, path string
		control      int
	}{
		{"GET", "/v2/sandboxes", 200}, {"GET", "/snapshots", 200}, {"GET", "/files?path=/home/user/none", 404},
		{"POST", "/v2/sandboxes", 201}, {"DELETE", "/sandboxes/" + b.ID, 204},
	}
	all := func(check func(method, path string, status, control int, text string)) {
		for _, r := range requests {
			status, text := c.ask(r.method, r.path, b.in(), strings.NewReader("{}"))
			check(r.method, r.path, status, r.control, text)
		}
	}
	all(func(method, path string, status, control int, text string) {
		if status != control {
			t.Fatalf("control: %s %s: %d %s", method, path, status, text)
		}
	})
	b = c.create(`{}`)
	requests[len(requests)-1].path = "/sandboxes/" + b.ID
	operate(t, state, "stop", "token:good")
	all(func(method, path string, status, _ int, text string) {
		if status != 403 || !strings.Contains(text, "session.stopped: the operator has ended this session") {
			t.Errorf("%s %s: %d %s", method, path, status, text)
		}
	})
}
