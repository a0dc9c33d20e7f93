package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/frontend/mcpserver"
	"waldo/internal/model/contract"
)

// TestListenOn: the flag goes before the configuration. Beyond this machine a server needs a login and a name.
func TestListenOn(t *testing.T) {
	tokens := map[string]string{"ann": "sha256:00"}
	for _, row := range []struct {
		why, flag string
		g         contract.Gateway
		at, err   string
	}{
		{"the default", "", contract.Gateway{}, DefaultListen, ""},
		{"the configuration", "", contract.Gateway{Listen: "127.0.0.1:80"}, "127.0.0.1:80", ""},
		{"the flag", "[::1]:81", contract.Gateway{Listen: "127.0.0.1:80"}, "[::1]:81", ""},
		{"no port", "127.0.0.1", contract.Gateway{}, "", "is not an address to listen on"},
		{"an empty port", "127.0.0.1:", contract.Gateway{}, "", "is not an address to listen on"},
		{"an unknown port", "127.0.0.1:70000", contract.Gateway{}, "", "is not an address to listen on"},
		{"anybody", "0.0.0.0:80", contract.Gateway{URL: "https://w.example"}, "", "needs gateway.auth"},
		{"every address", ":80", contract.Gateway{URL: "https://w.example"}, "", "needs gateway.auth"},
		{"no name", "0.0.0.0:80", contract.Gateway{Tokens: tokens}, "", "needs gateway.url"},
		{"control: a login and a name", "0.0.0.0:80", contract.Gateway{Tokens: tokens, URL: "https://w.example"},
			"0.0.0.0:80", ""},
	} {
		at, err := listenOn(row.flag, row.g)
		if at != row.at || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %q, %v; wanted %q, %q", row.why, at, err, row.at, row.err)
		}
	}
}

// TestListenLimits: the configuration's limits hold, and no more connections than half of the files that may be open.
func TestListenLimits(t *testing.T) {
	l := listenLimits(contract.GatewayLimits{Connections: 900, Strangers: 800, Sessions: 3, CallsEach: 4}, 1000)
	if l.Conns != 500 || l.Strangers != 125 || l.Sessions != 3 || l.Calls != 4 {
		t.Errorf("of 1000 files: %+v", l)
	}
	if l := listenLimits(contract.GatewayLimits{Connections: 900}, 0); l.Conns != 900 {
		t.Errorf("control: without a limit of files: %+v", l)
	}
	if l := listenLimits(contract.GatewayLimits{}, 8); l.Conns != 16 || l.Strangers != 16 {
		t.Errorf("of 8 files: %+v", l)
	}
}

// TestListenHTTP: a server answers at its address until its context ends, and only under the names that it goes by.
func TestListenHTTP(t *testing.T) {
	h, _ := opened(t, "version: 1\ngateway: {url: 'https://waldo.example.com/mcp'}\n")
	ctx, cancel := context.WithCancel(t.Context())
	at, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- h.listenHTTP(ctx, sockets{flag: "127.0.0.1:0"}, mcpserver.Options{Version: "1"}, func(a net.Addr) { at <- a })
	}()
	var addr net.Addr
	select {
	case addr = <-at:
	case err := <-ended:
		t.Fatal(err)
	}
	ask := func(host, path string) (int, string) {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr.String()+path, nil)
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if got, text := ask(addr.String(), "/readyz"); got != 200 || text != "ok\n" {
		t.Errorf("it is not ready: %d %q", got, text)
	}
	for host, refused := range map[string]bool{"waldo.example.com": false, addr.String(): false, "evil.example": true} {
		if got, text := ask(host, "/mcp"); (got == http.StatusForbidden) != refused {
			t.Errorf("as %s: %d %q", host, got, text)
		}
	}
	if _, err := net.Listen("tcp", addr.String()); err == nil {
		t.Error("control: the address is free")
	}
	if err := h.listenHTTP(ctx, sockets{flag: addr.String()}, mcpserver.Options{}, func(net.Addr) {}); err == nil {
		t.Error("two listen at one address")
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if got := HostsOf(h.Config.Gateway); !slices.Contains(got, "waldo.example.com") {
		t.Error(got)
	}
}
