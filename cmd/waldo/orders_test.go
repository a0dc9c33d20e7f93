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
	"waldo/internal/cli"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/mcpserver/identity"
)

// applicationOf opens an application with a configuration file that the test can rewrite.
func applicationOf(t *testing.T, config string) (*app.App, *cli.Context) {
	t.Helper()
	dir := t.TempDir()
	g := &cli.Context{Config: filepath.Join(dir, "waldo.yaml"), State: filepath.Join(dir, "state")}
	write(t, g, config)
	h, err := g.Open(t.Context(), app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	h.TakesReloads(func(*app.App) error { return nil })
	return h, g
}

func write(t *testing.T, g *cli.Context, config string) {
	t.Helper()
	if err := os.WriteFile(g.Config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A stop over HTTP ends the agent of one token, in both protocol eras, while another continues. A token that a reload
// removes is no longer accepted.
func TestStopAndReloadOverHTTP(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			ci, ciHash := identity.NewToken()
			bob, bobHash := identity.NewToken()
			both := fmt.Sprintf("version: 1\ncapabilities: {run_python: {mode: read, approval: none}}\ngateway: {auth: "+
				"{tokens: {ci: %q, bob: %q}}}\n", ciHash, bobHash)
			h, g := applicationOf(t, both)
			url := listening(t, h)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			connect := func(token string) (*mcp.ClientSession, error) {
				return mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(ctx,
					&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: shows(token)}, MaxRetries: -1},
					&mcp.ClientSessionOptions{ProtocolVersion: revision})
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
			if _, silent, err := control.Put(ctx, h.Store, control.Stop+"ci", control.Order{}); err != nil || silent > 0 {
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
			if err := h.Store.Delete(ctx, control.Bucket, control.Stop+"ci"); err != nil {
				t.Fatal(err)
			}
			for h.Sessions.Kept("token:ci") {
				time.Sleep(10 * time.Millisecond)
			}
			if got := ask(opened(ci)); got != "false 42\n" {
				t.Errorf("a token that was let in again: %q", got)
			}
			write(t, g, strings.Replace(both, fmt.Sprintf("ci: %q, ", ciHash), "", 1))
			if replies, _, err := control.Put(ctx, h.Store, control.Reload, control.Order{}); err != nil || len(replies) != 1 ||
				replies[0].Kept != "" {
				t.Fatal(replies, err)
			}
			if _, err := connect(ci); err == nil {
				t.Error("a token that is configured no more opens")
			}
			if got := ask(b); got != "false 42\n" {
				t.Errorf("a token that stays: %q", got)
			}
			if r, err := audit.Verify(ctx, audit.Dir(h.State), nil, time.Now(), audit.Expect{}); err != nil || !r.OK {
				t.Error(r, err)
			}
		})
	}
}
