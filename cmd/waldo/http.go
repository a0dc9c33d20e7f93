package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/core/session"
	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// defaultListen is the default address of waldo serve over HTTP.
const defaultListen = "127.0.0.1:7676"

// listenOn returns where to listen: the flag, the configuration or the default. Beyond this machine
// it wants somebody to be let in by name, and the name that clients use.
func listenOn(flag string, g contract.Gateway) (string, error) {
	at := flag
	if at == "" {
		at = g.Listen
	}
	if at == "" {
		at = defaultListen
	}
	host, port, err := net.SplitHostPort(at)
	if err == nil && port != "" {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", usage("as in --listen "+defaultListen, "%q is not an address to listen on", at)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return at, nil
	}
	if len(g.Tokens) == 0 && g.OIDC == nil {
		return "", usage("waldo token NAME makes a token; or listen on "+defaultListen, "listening on %s, beyond this machine, needs gateway.auth", at)
	}
	if g.URL == "" {
		return "", usage("as in gateway: {url: https://waldo.example.com/mcp}", "listening on %s, beyond this machine, needs gateway.url: the name that clients use", at)
	}
	return at, nil
}

// sharedSessions gives the clients of one principal over HTTP one session.
func (h *application) sharedSessions() *session.Shared {
	return &session.Shared{Sessions: h.sessions, Opened: func(n session.Info) { h.lives.inForce().expect(n) }, Idle: h.forget, Closed: h.tidy}
}

// serveHTTP answers over HTTP until ctx is done, and tells where.
func (h *application) serveHTTP(ctx context.Context, listen string, o mcpserver.Options, tell io.Writer) error {
	at, err := listenOn(listen, h.cfg.Gateway)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return &exit{code: exitFailed, err: err, hint: "is another waldo serve listening there? choose another address with --listen"}
	}
	g := h.sharedSessions()
	defer g.Close()
	o.OnSessionEnd = g.Leave
	srv := mcpserver.New(o)
	h.lives.server.Store(srv)
	s := web.New(web.Options{
		Server: srv, Open: g.Enter, Over: g.Over,
		Identify: func(r *http.Request) (call.Principal, *web.Refusal) { return h.lives.inForce().entry().Identify(r) },
		Hosts:    hostsOf(h.cfg.Gateway), Origins: h.cfg.Gateway.Origins, Beside: h.entry().Beside(),
		Limits: doorLimits(h.cfg.Gateway.Limits, openFiles()), Peer: identity.Peer, Log: o.Log, Ready: func() error { _, _, err := h.store.Get(ctx, "ready", ""); return err },
	})
	display.Fprintf(tell, "waldo: listening on http://%s/mcp\n", l.Addr())
	return s.Serve(ctx, l)
}

// doorLimits are what clients can take: as written, and no more connections than half of the files that may be open.
func doorLimits(l contract.GatewayLimits, files int) web.Limits {
	out := web.DefaultLimits()
	for to, n := range map[*int]int{&out.Conns: l.Connections, &out.Strangers: l.Strangers, &out.Sessions: l.Sessions, &out.Each: l.SessionsEach, &out.Calls: l.CallsEach} {
		if n > 0 {
			*to = n
		}
	}
	if files > 0 {
		out.Conns = min(out.Conns, max(files/2, 16))
		out.Strangers = min(out.Strangers, max(files/8, 16))
	}
	return out
}

// hostsOf are the names that the server goes by.
func hostsOf(g contract.Gateway) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if u, err := url.Parse(g.URL); err == nil && u.Host != "" {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

// entrance says who is let in.
func entrance(g contract.Gateway) *identity.Options {
	o := &identity.Options{Tokens: g.Tokens, UID: os.Getuid(), URL: g.URL}
	if g.OIDC != nil {
		o.OIDC = &identity.OIDC{Issuer: g.OIDC.Issuer, JWKS: g.OIDC.JWKS, Audience: g.URL, Scopes: g.OIDC.Scopes}
	}
	return o
}

func newToken(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "token NAME", Short: "Make a token that lets a client in over HTTP", Args: cobra.ExactArgs(1),
		Long: "Prints a new token, which is shown this once and kept nowhere, and the line for waldo.yaml that lets its holder\n" +
			"in as the principal token:NAME. The line holds the token's hash alone.",
		Example: "  waldo token ci",
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
				return usage("as in waldo token ci", "%q is not a name for a token: letters, digits, _ and -", name)
			}
			token, hash := identity.NewToken()
			if g.json {
				return printJSON(c.OutOrStdout(), map[string]string{"name": name, "token": token, "hash": hash})
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", token)
			display.Fprintf(c.ErrOrStderr(), "Give it to the client, which sends it as Authorization: Bearer. For waldo.yaml:\ngateway: {auth: {tokens: {%s: %q}}}\n", name, hash)
			return nil
		},
	}
}
