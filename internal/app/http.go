package app

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"

	"waldo/internal/app/fault"
	"waldo/internal/core/session"
	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// DefaultListen is the default address of waldo serve over HTTP.
const DefaultListen = "127.0.0.1:7676"

// listenOn returns where to listen: the flag, the configuration or the default. Beyond this machine
// it wants somebody to be let in by name, and the name that clients use.
func listenOn(flag string, g contract.Gateway) (string, error) {
	at := flag
	if at == "" {
		at = g.Listen
	}
	if at == "" {
		at = DefaultListen
	}
	host, port, err := net.SplitHostPort(at)
	if err == nil && port != "" {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		return "", fault.Usage("as in --listen "+DefaultListen, "%q is not an address to listen on", at)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return at, nil
	}
	if len(g.Tokens) == 0 && g.OIDC == nil {
		return "", fault.Usage("waldo token NAME makes a token; or listen on "+DefaultListen,
			"listening on %s, beyond this machine, needs gateway.auth", at)
	}
	if g.URL == "" {
		return "", fault.Usage("as in gateway: {url: https://waldo.example.com/mcp}",
			"listening on %s, beyond this machine, needs gateway.url: the name that clients use", at)
	}
	return at, nil
}

// SharedSessions gives the clients of one principal over HTTP one session.
func (h *App) SharedSessions() *session.Shared {
	return &session.Shared{
		Sessions: h.Sessions, Opened: func(n session.Info) { h.lives.inForce().expect(n) }, Idle: h.forget, Closed: h.Tidy,
	}
}

// listenHTTP answers over HTTP until ctx is done. It calls ready with the address.
func (h *App) listenHTTP(ctx context.Context, listen string, o mcpserver.Options, ready func(net.Addr)) error {
	at, err := listenOn(listen, h.Config.Gateway)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return &fault.Error{Err: err, Tip: "is another waldo serve listening there? choose another address with --listen"}
	}
	g := h.SharedSessions()
	defer g.Close()
	o.OnSessionEnd = g.Leave
	srv := mcpserver.New(o)
	h.lives.server.Store(srv)
	seen, done := h.Console(l.Addr())
	defer done()
	hooks := h.Hooks(g)
	var handing sync.WaitGroup
	defer handing.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	handing.Go(func() { hooks.Run(ctx) })
	s := web.New(web.Options{
		Server: srv, Open: g.Enter, Over: g.Over,
		Identify: func(r *http.Request) (call.Principal, *web.Refusal) { return h.lives.inForce().Logins().Identify(r) },
		Hosts:    hostsOf(h.Config.Gateway), Origins: h.Config.Gateway.Origins, Beside: h.Logins().Beside(), Rest: seen.Serve,
		Hooks:  hooks.Handler(),
		Limits: listenLimits(h.Config.Gateway.Limits, openFiles()), Peer: identity.Peer, Log: o.Log,
		Ready: func() error { _, _, err := h.Store.Get(ctx, "ready", ""); return err },
	})
	ready(l.Addr())
	return s.Serve(ctx, l)
}

// listenLimits are what clients can take: as written, and no more connections than half of the files that may be open.
func listenLimits(l contract.GatewayLimits, files int) web.Limits {
	out := web.DefaultLimits()
	for to, n := range map[*int]int{
		&out.Conns: l.Connections, &out.Strangers: l.Strangers, &out.Sessions: l.Sessions, &out.Each: l.SessionsEach,
		&out.Calls: l.CallsEach,
	} {
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
