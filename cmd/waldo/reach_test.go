package main

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
)

// browse goes through a page as a person's browser would: browse URL.
func browse() {
	resp, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = resp.Body.Close()
}

// serveRemote serves an MCP server at $REMOTE, in files *.yaml too, on loopback, until the script ends: it wants the
// token of $REMOTE_TOKEN, or one that it issues itself (OAuth), and has the tools whoami, which says
// how waldo showed itself, and change. A file of the name given, where there is one, is a tool more; FILE.begun gets a
// line for each session.
func serveRemote(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: remote FILE")
	}
	more := ts.MkAbs(args[0])
	var issued atomic.Int64
	var bound atomic.Bool // the last token was issued for a key
	var url string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		show := func(doc map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(doc)
		}
		switch r.URL.Path {
		case "/.well-known/oauth-protected-resource/mcp":
			show(map[string]any{"resource": url + "/mcp", "authorization_servers": []string{url}})
		case "/.well-known/oauth-authorization-server":
			show(map[string]any{"issuer": url, "authorization_endpoint": url + "/authorize", "token_endpoint": url + "/token",
				"registration_endpoint": url + "/register", "code_challenge_methods_supported": []string{"S256"},
				"dpop_signing_alg_values_supported": []string{"ES256"}})
		case "/register":
			show(map[string]any{"client_id": "waldo-1", "token_endpoint_auth_method": "none"})
		case "/authorize":
			q := r.URL.Query()
			http.Redirect(w, r, q.Get("redirect_uri")+"?code=c0de&state="+q.Get("state"), http.StatusFound)
		case "/token":
			bound.Store(r.Header.Get("DPoP") != "")
			show(map[string]any{
				"access_token": fmt.Sprintf("issued-%d-0123456789", issued.Add(1)),
				"token_type":   map[bool]string{true: "DPoP", false: "Bearer"}[bound.Load()], "refresh_token": "refresh-0123456789",
			})
		case "/mcp":
			scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			fixed := subtle.ConstantTimeCompare([]byte(token), []byte(ts.Getenv("REMOTE_TOKEN"))) == 1
			proved := bound.Load() && scheme == "DPoP" && strings.Count(r.Header.Get("DPoP"), ".") == 2 ||
				!bound.Load() && scheme == "Bearer"
			if !fixed && (!proved || token != fmt.Sprintf("issued-%d-0123456789", issued.Load())) {
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+url+`/.well-known/oauth-protected-resource/mcp"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			remoteCall(w, r, more)
		default:
			http.NotFound(w, r)
		}
	}))
	url = srv.URL
	ts.Defer(srv.Close)
	ts.Setenv("REMOTE", url+"/mcp")
	files, err := filepath.Glob(ts.MkAbs("*.yaml"))
	ts.Check(err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		ts.Check(err)
		ts.Check(os.WriteFile(f, []byte(strings.ReplaceAll(string(b), "$REMOTE", url+"/mcp")), 0o600))
	}
}

func remoteCall(w http.ResponseWriter, r *http.Request, more string) {
	var q struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	look := "Looks."
	if b, err := os.ReadFile(more); err == nil {
		look = string(b)
	}
	said, _ := json.Marshal(fmt.Sprintf("%s, key %s, token %s", q.Params.Name, r.Header.Get("X-Key"),
		r.Header.Get("Authorization")))
	text, _ := json.Marshal(look)
	result := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"remote",` +
			`"version":"1"}}`,
		"tools/list": `{"tools":[{"name":"whoami","description":` + string(text) +
			`,"inputSchema":{"type":"object"}},{"name":"change","inputSchema":{"type":"object"}}]}`,
		"tools/call": `{"content":[{"type":"text","text":` + string(said) + `}]}`,
	}[q.Method]
	if q.Method == "initialize" {
		if f, err := os.OpenFile(more+".begun", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString("a session\n")
			_ = f.Close()
		}
	}
	switch {
	case q.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case result == "":
		w.WriteHeader(http.StatusBadRequest)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
	}
}
