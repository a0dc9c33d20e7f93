package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"waldo/internal/cli"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/app"
	"waldo/internal/frontend/mcpserver/identity"
)

// heard keeps every byte that an upstream is sent.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

func (h *heard) from(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		fmt.Fprintf(&h.b, "%s %s\n%v\n%s\n", r.Method, r.URL, r.Header, body)
		h.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// served runs waldo serve --listen with a configuration and returns its address.
func served(t *testing.T, config string) (url string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "waldo.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := withFeatures(&cli.Context{Config: file, State: filepath.Join(dir, "state")}).Open(context.Background(),
		app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return listening(t, h)
}

// listening runs the gateway of an application over HTTP and returns its address.
func listening(t *testing.T, h *app.App) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	at, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- h.ServeHTTP(ctx, "127.0.0.1:0", nil, false, func(a net.Addr) { at <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-at:
		return "http://" + a.String() + "/mcp"
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return ""
}

// shows sends a token, and the same text wherever else a client might put it.
type shows string

func (b shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	for _, name := range []string{"Cookie", "X-Api-Key", "Proxy-Authorization", "X-Forwarded-Access-Token"} {
		r.Header.Set(name, string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// waldo never forwards a client's token (MCP basic/authorization: no token passthrough).
func TestNoTokenGoesUpstream(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			up := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
			mcp.AddTool(up, &mcp.Tool{Name: "echo"},
				func(_ context.Context, _ *mcp.CallToolRequest, in map[string]any) (*mcp.CallToolResult, any, error) {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "fine"}}}, nil, nil
				})
			var record heard
			server := httptest.NewServer(record.from(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return up },
				&mcp.StreamableHTTPOptions{Stateless: revision == "2026-07-28"})))
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			token, hash := identity.NewToken()
			url := served(t,
				fmt.Sprintf("version: 1\nservers:\n  up: {url: %q}\ncapabilities:\n  up.*: {mode: read, approval: none}\n"+
					"gateway: {auth: {tokens: {ci: %q}}}\n", server.URL, hash))
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			connect := func(token string) (*mcp.ClientSession, error) {
				return mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(ctx,
					&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: shows(token)}},
					&mcp.ClientSessionOptions{ProtocolVersion: revision})
			}
			if _, err := connect("waldo_guess"); err == nil {
				t.Fatal("a token that is none opens")
			}
			s, err := connect(token)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ask := func(text string) {
				t.Helper()
				r, err := s.CallTool(ctx, &mcp.CallToolParams{
					Name: "up__echo", Arguments: map[string]any{"text": text}, Meta: mcp.Meta{"vendor/session": token},
				})
				if err != nil || r.IsError {
					t.Fatalf("%v %+v", err, r)
				}
			}
			ask("hello")
			if got := record.all(); !strings.Contains(got, "hello") || strings.Contains(got, token) {
				t.Errorf("the upstream was sent:\n%s", got)
			}
			ask(token) // the control: said in an argument, it would be found
			if !strings.Contains(record.all(), token) {
				t.Error("the record does not show what was sent")
			}
		})
	}
}
