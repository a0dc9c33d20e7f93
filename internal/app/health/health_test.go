package health

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// TestReport: each thing that works is ok, each other one says what is wrong, and no secret is in the text.
func TestReport(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	t.Setenv("HEALTH_GOOD", "0123456789abcdef0123")
	t.Setenv("HEALTH_SHORT", "xyzzy")
	up, down := "http://"+l.Addr().String(), "http://"+gone.Addr().String()
	hook := func(ref secret.Ref) contract.Webhook { return contract.Webhook{Scheme: "github", Secret: ref} }
	r := Report(t.Context(), t.TempDir(), &contract.Config{
		Webhooks: map[string]contract.Webhook{"good": hook("env:HEALTH_GOOD"), "short": hook("env:HEALTH_SHORT"),
			"none": hook("env:HEALTH_NONE")},
		Agent: contract.Agent{Providers: []contract.Provider{{Kind: "ollama", URL: up, Model: "up"},
			{Kind: "ollama", URL: down, Model: "down"}, {Kind: "openai", URL: up, Model: "keyless", Key: "env:HEALTH_NONE"}}},
		Servers:   map[string]contract.Server{"up": {URL: up}, "down": {URL: down}, "command": {Command: []string{"x"}}},
		Contracts: []contract.Contract{{Pattern: "sql.query", Database: "sqlite:" + filepath.Join(t.TempDir(), "none.db")}, {Pattern: "a"}},
	}, &redact.Registry{})
	want := map[string]bool{"webhook good": true, "webhook short": false, "webhook none": false, "model 1, up": true,
		"model 2, down": false, "model 3, keyless": false, "server up": true, "server down": false, "database of sql.query": false}
	if len(r.Abilities) != len(want) || r.OK {
		t.Errorf("%+v", r)
	}
	for _, a := range r.Abilities {
		if ok, there := want[a.Name]; !there || a.OK != ok || a.OK != (a.Hint == "") || strings.Contains(a.What, "xyzzy") {
			t.Errorf("%+v", a)
		}
	}
}
