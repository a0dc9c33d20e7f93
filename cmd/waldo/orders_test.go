package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/core/audit"
	"waldo/internal/core/session"
	"waldo/internal/frontend/mcpserver/identity"
)

// applicationOf opens an application with a configuration file that the test can rewrite.
func applicationOf(t *testing.T, config string) (*application, *global) {
	t.Helper()
	dir := t.TempDir()
	g := &global{config: filepath.Join(dir, "waldo.yaml"), state: filepath.Join(dir, "state")}
	write(t, g, config)
	h, err := openApplication(t.Context(), g, settings{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	h.takesReloads(g, func(*application) error { return nil })
	return h, g
}

func write(t *testing.T, g *global, config string) {
	t.Helper()
	if err := os.WriteFile(g.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An earlier application closes after its last call ends, and not before.
func TestAnEarlierApplicationLastsAsLongAsItsCalls(t *testing.T) {
	h, g := applicationOf(t, "version: 1\n")
	first, done := h.lives.Enter()
	closed := make(chan struct{})
	h.close = append(h.close, func() error { close(closed); return nil })
	write(t, g, "version: 1\nredaction: {}\n")
	if r := h.attendant.renew(t.Context()); r.Kept != "" {
		t.Fatal(r.Kept)
	}
	now, over := h.lives.Enter()
	over()
	if first != h || now == h || len(h.lives.All()) != 2 {
		t.Fatal("a call does not enter the application in force")
	}
	select {
	case <-closed:
		t.Fatal("an application was closed over a call")
	case <-time.After(50 * time.Millisecond):
	}
	done()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("an application whose calls are over stays open")
	}
}

// A refused reload reports the reason and changes nothing.
func TestReloadRefuses(t *testing.T) {
	const good = "version: 1\n"
	for _, row := range []struct{ why, config, want string }{
		{"control: another configuration is taken", "version: 1\nredaction: {}\n", ""},
		{"an unknown key", "version: 1\nnope: 1\n", "key.unknown"},
		{"a secret that is nowhere", "version: 1\nservers: {s: {url: 'https://s.example', auth: {bearer: 'env:WALDO_NOT_SET'}}}\n",
			"secret.missing: secret env:WALDO_NOT_SET"},
	} {
		t.Run(row.why, func(t *testing.T) {
			h, g := applicationOf(t, good)
			write(t, g, row.config)
			r := h.attendant.renew(t.Context())
			if row.want == "" && r.Kept != "" || !strings.Contains(r.Kept, row.want) {
				t.Errorf("kept: %q", r.Kept)
			}
			if took := h.lives.inForce() != h; took != (row.want == "") {
				t.Errorf("in force is another: %v", took)
			}
		})
	}
	t.Run("where it cannot be served", func(t *testing.T) {
		h, g := applicationOf(t, good)
		h.takesReloads(g, func(next *application) error { _, err := listenOn("0.0.0.0:0", next.cfg.Gateway); return err })
		if r := h.attendant.renew(t.Context()); !strings.Contains(r.Kept, "needs gateway.auth") || h.lives.inForce() != h {
			t.Errorf("kept: %q", r.Kept)
		}
	})
}

func TestNamed(t *testing.T) {
	n := session.Info{ID: "n_a", Principal: "token:ci"}
	for name, want := range map[string]bool{"*": true, "token:ci": true, "ci": true, "n_a": true, "": false, "c": false, "token:": false, "n_b": false, "os:0": false} {
		if named(name, n) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	if named("", session.Info{Principal: "os:0"}) {
		t.Error("no name is everybody's")
	}
}

// A stop over HTTP ends the agent of one token, in both protocol eras, while another continues. A token that a reload
// removes is no longer accepted.
func TestStopAndReloadOverHTTP(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			ci, ciHash := identity.NewToken()
			bob, bobHash := identity.NewToken()
			both := fmt.Sprintf("version: 1\ncapabilities: {run_python: {mode: read, approval: none}}\ngateway: {auth: {tokens: {ci: %q, bob: %q}}}\n", ciHash, bobHash)
			h, g := applicationOf(t, both)
			url := listening(t, h)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			connect := func(token string) (*mcp.ClientSession, error) {
				return mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(ctx,
					&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: shows(token)}, MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			}
			ask := func(s *mcp.ClientSession) string {
				t.Helper()
				r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "print(6*7)"}})
				if err != nil {
					return err.Error()
				}
				return fmt.Sprint(r.IsError) + " " + r.Content[0].(*mcp.TextContent).Text
			}
			opened := func(token string) *mcp.ClientSession {
				t.Helper()
				s, err := connect(token)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			a, b := opened(ci), opened(bob)
			if got := ask(a) + ask(b); got != "false 42\nfalse 42\n" {
				t.Fatalf("control: %q", got)
			}
			if _, silent, err := putOrder(ctx, h.store, stopOrder+"ci"); err != nil || silent > 0 {
				t.Fatal(err, silent)
			}
			if got := ask(a); !strings.Contains(got, "session.stopped") {
				t.Errorf("a stopped token's agent goes on: %q", got)
			}
			if got := ask(b); got != "false 42\n" {
				t.Errorf("another token's agent was ended: %q", got)
			}
			if got := ask(opened(ci)); !strings.Contains(got, "session.stopped") {
				t.Errorf("a stopped token begins anew: %q", got)
			}
			if err := h.store.Delete(ctx, ordersBucket, stopOrder+"ci"); err != nil {
				t.Fatal(err)
			}
			for h.sessions.Kept("token:ci") {
				time.Sleep(10 * time.Millisecond)
			}
			if got := ask(opened(ci)); got != "false 42\n" {
				t.Errorf("a token that was let in again: %q", got)
			}
			write(t, g, strings.Replace(both, fmt.Sprintf("ci: %q, ", ciHash), "", 1))
			if replies, _, err := putOrder(ctx, h.store, reloadOrder); err != nil || len(replies) != 1 || replies[0].Kept != "" {
				t.Fatal(replies, err)
			}
			if _, err := connect(ci); err == nil {
				t.Error("a token that is configured no more opens")
			}
			if got := ask(b); got != "false 42\n" {
				t.Errorf("a token that stays: %q", got)
			}
			if r, err := audit.Verify(ctx, audit.Dir(h.state), nil, time.Now()); err != nil || !r.OK {
				t.Error(r, err)
			}
		})
	}
}
