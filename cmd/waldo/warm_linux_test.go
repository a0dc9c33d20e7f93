package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"waldo/internal/cli"

	"waldo/internal/app"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// TestFirstClient: sandboxes for a principal that comes over HTTP are made when its first client comes, so
// that its first run is warm. They are its own: another's first run is not.
func TestFirstClient(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "waldo.yaml")
	if err := os.WriteFile(file, []byte("version: 1\ncapabilities:\n  run_python: {mode: read, approval: none}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	h, err := withFeatures(&cli.Context{Config: file, State: filepath.Join(dir, "state")}).Open(context.Background(),
		app.Options{Warm: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if rep := h.Drivers["namespace"].Probe(context.Background()); !rep.OK {
		t.Skipf("no sandboxes here: %+v", rep)
	}
	run := func(who call.Principal, n call.Session) bool {
		t.Helper()
		a, err := call.ArgsOf(map[string]any{"code": "print(1)"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.Broker.Call(context.Background(), call.Call{
			ID: id.New(id.Call), Capability: "run_python", Args: a, Session: n, Principal: who, Channel: "mcp",
		})
		if err != nil || r.Facts.Stdout != "1\n" {
			t.Fatalf("%v %+v", err, r)
		}
		return r.Facts.Sandbox.Warm
	}
	g := h.SharedSessions("")
	defer g.Close()
	bob, err := h.Sessions.Open("oidc:bob", id.New(id.Workspace))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Tidy(bob)
	defer h.Sessions.Close(bob.ID)
	if run("oidc:bob", bob.ID) {
		t.Error("control: the first run of a principal that nobody expected was warm")
	}
	warm := false
	// A zygote can take this long to start on a busy machine.
	for n, wait := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		who := call.Principal(fmt.Sprint("oidc:ada", n))
		in, err := g.Enter(who)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait)
		if warm = run(who, in); warm {
			break
		}
	}
	if !warm {
		t.Error("the first run of a principal whose client has come was not warm")
	}
}
