package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"waldo/internal/call"
	"waldo/internal/contract"
	"waldo/internal/gateway"
	"waldo/internal/gateway/identity"
	"waldo/internal/gateway/web"
	"waldo/internal/id"
	"waldo/internal/session"
)

// defaultListen is where waldo listens when nobody says where.
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

// guests keep one session of waldo's for each principal that comes over HTTP, so that budgets,
// files and tokens of personal data are a principal's own however many clients it has.
type guests struct {
	h    *house
	mu   sync.Mutex
	info map[call.Principal]session.Info
	in   map[call.Session]int // clients of each
}

// enter returns the session of a principal for one more client.
func (g *guests) enter(who call.Principal) (call.Session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.info[who]
	if _, open := g.h.sessions.Get(n.ID); !open {
		g.sweep()
		var err error
		if n, err = g.h.sessions.Open(who, id.New(id.Workspace)); err != nil {
			return "", err
		}
		g.info[who] = n
		g.h.expect(n)
	}
	g.in[n.ID]++
	return n.ID, nil
}

// sweep forgets the sessions that were closed because nobody used them. The lock is held.
func (g *guests) sweep() {
	for who, n := range g.info {
		if _, open := g.h.sessions.Get(n.ID); !open {
			g.h.tidy(n)
			delete(g.info, who)
		}
	}
}

// leave is told when a client's session is over; what servers tell it is forgotten with the last.
func (g *guests) leave(n call.Session) {
	g.mu.Lock()
	g.in[n]--
	last := g.in[n] <= 0
	if last {
		delete(g.in, n)
	}
	g.mu.Unlock()
	if last {
		g.h.upstreams.Forget(n)
	}
}

func (g *guests) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.info {
		g.h.sessions.Close(n.ID)
		g.h.tidy(n)
	}
}

// serveHTTP answers over HTTP until ctx is done, and tells where.
func (h *house) serveHTTP(ctx context.Context, listen string, o gateway.Options, tell io.Writer) error {
	at, err := listenOn(listen, h.cfg.Gateway)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return &exit{code: exitFailed, err: err, hint: "is another waldo serve listening there? choose another address with --listen"}
	}
	g := &guests{h: h, info: map[call.Principal]session.Info{}, in: map[call.Session]int{}}
	defer g.close()
	o.Ended = g.leave
	door := gateway.New(o)
	h.door.Store(door)
	who, hosts := entrance(h.cfg.Gateway)
	s := web.New(web.Options{
		Door: door, Identify: who.Identify, Open: g.enter, Hosts: hosts, Origins: h.cfg.Gateway.Origins, Beside: who.Beside(),
		Peer: identity.Peer, Log: o.Log, Ready: func() error { _, _, err := h.store.Get(ctx, "ready", ""); return err },
	})
	fmt.Fprintf(tell, "waldo: listening on http://%s/mcp\n", l.Addr())
	return s.Serve(ctx, l)
}

// entrance says who is let in, and which names the server goes by.
func entrance(g contract.Gateway) (*identity.Options, []string) {
	o := &identity.Options{Tokens: g.Tokens, UID: os.Getuid(), URL: g.URL}
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if u, err := url.Parse(g.URL); err == nil && u.Host != "" {
		hosts = append(hosts, u.Hostname())
	}
	if g.OIDC != nil {
		o.OIDC = &identity.OIDC{Issuer: g.OIDC.Issuer, JWKS: g.OIDC.JWKS, Audience: g.URL, Scopes: g.OIDC.Scopes}
	}
	return o, hosts
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
			fmt.Fprintln(c.OutOrStdout(), token)
			fmt.Fprintf(c.ErrOrStderr(), "Give it to the client, which sends it as Authorization: Bearer. For waldo.yaml:\ngateway: {auth: {tokens: {%s: %q}}}\n", name, hash)
			return nil
		},
	}
}
