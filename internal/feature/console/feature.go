// Package console is the web console and the REST API: pages in site, what they do in operator.
package console

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/feature"
	"waldo/internal/feature/console/operator"
	"waldo/internal/feature/console/site"
	"waldo/internal/feature/console/site/oidclogin"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/network/loopback"
	"waldo/internal/storage/inbox"
	"waldo/internal/storage/presence"
)

// Feature is waldo console, and the console of waldo serve --listen.
var Feature = feature.Feature{
	Name:     "console",
	Open:     func(h *app.App) (app.Running, error) { return app.Running{Site: &console{App: h}}, nil },
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newConsole(g)} },
	Records:  records.Lines{operator.KindConsole: line},
}

// defaultListen is the default address of waldo console.
const defaultListen = "127.0.0.1:7677"

// console is the console of an application. It follows reloads of the configuration.
type console struct {
	*app.App
	mu     sync.Mutex
	login  *contract.ConsoleLogin // that of issuer
	issuer site.Issuer
}

// pages are an open console. They satisfy app.Pages.
type pages struct {
	*site.Server
	c    *console
	o    *operator.Operator
	addr net.Addr
}

// Open satisfies app.Site.
func (c *console) Open(at net.Addr) app.Pages { return c.open(at) }

func (c *console) open(at net.Addr) *pages {
	o := operator.New(operator.Options{
		Store: c.Store, Log: c.Log, Approvals: c.Approvals, Owner: app.Owner(),
		Webhooks: &inbox.Queue{Store: c.Store, Gone: presence.Gone(c.Store), Holder: c.Process()},
		Events:   c.Events(), Waldo: current{c.App},
	})
	s := site.New(site.Options{
		Backend: o, Hosts: app.HostsOf(c.Config.Gateway), Origins: publicOrigin(c.Config.Gateway), Version: c.Version(),
		Identify: c.identify, Peer: peerOf, OIDC: c.loginIssuer, API: c.documents(),
	})
	if err := listens(c.App, at, false); err != nil {
		slog.Warn("waldo console --link will not know this console", "error", err)
	}
	return &pages{s, c, o, at}
}

// documents describes what waldo serve --listen answers below /api/v1 beside the console.
func (c *console) documents() [][]byte {
	if !c.Serves() {
		return nil
	}
	return c.Documents()
}

// Close ends the console.
func (p *pages) Close() error { return errors.Join(p.o.Close(), listens(p.c.App, p.addr, true)) }

// Login satisfies app.Site.
func (c *console) Login(ctx context.Context, at string) (string, error) {
	owner := "" // people of other machines use it, through a proxy
	if u, err := url.Parse(at); err != nil || loopback.Is(u.Hostname()) {
		owner = identity.Self()
	}
	return operator.NewLink(ctx, c.Store, site.RoleApprover, owner)
}

// loginIssuer returns the issuer of logins of the configuration in force; nil: none.
func (c *console) loginIssuer() site.Issuer {
	now := c.InForce()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := now.Config.Gateway.Console.OIDC; l != c.login {
		c.login, c.issuer = l, nil
		if l != nil {
			c.issuer = oidclogin.New(oidclogin.Options{Login: *l, Secret: now.Secret})
		}
	}
	return c.issuer
}

// line summarises an action in the console in one line of waldo log.
func line(_ terminal.Paint, body json.RawMessage) display.Text {
	var b struct {
		Action, Target, Result, Why, Principal, Role string
	}
	_ = json.Unmarshal(body, &b)
	what := display.Sprintf("%s %s %s by %s as %s", b.Action, b.Target, b.Result, b.Principal, b.Role)
	if b.Why != "" {
		what += display.Sprintf(": %s", b.Why)
	}
	return what
}

// consoles is the bucket of the consoles of a state directory: the port to the process that listens there.
const consoles = "consoles"

// listens writes down where a console of the state directory listens, or that it has ended.
func listens(h *app.App, at net.Addr, ended bool) error {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil || h.Process() == "" || !loopback.Reached(at) { // nothing shows others when this process has ended
		return err
	}
	ctx := context.Background()
	return h.Store.Modify(ctx, consoles, port, func(by string, ok bool) (string, bool, error) {
		if ended {
			return by, ok && by != h.Process(), nil
		}
		return h.Process(), true, nil
	})
}

// listening reports whether a console of the state directory listens on a port of this machine.
func listening(ctx context.Context, s *app.Storage, port string) (bool, error) {
	by, ok, err := s.Store.Get(ctx, consoles, port)
	return ok && !presence.Gone(s.Store)(by), err
}

// peerOf names the user of this machine at the other end of a request's connection; empty: it is another machine.
func peerOf(r *http.Request) string {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() {
		return ""
	}
	return identity.User(local, net.TCPAddrFromAddrPort(remote))
}

// publicOrigin is the origin of the console as browsers beyond this machine know it.
func publicOrigin(g contract.Gateway) []string {
	u, err := url.Parse(g.URL)
	if err != nil || u.Host == "" {
		return nil
	}
	return []string{u.Scheme + "://" + u.Host}
}

// identify returns the principal and the role of a bearer token. A connection of this machine's user does not
// count as a token: a page or a program of the agent has one too.
func (c *console) identify(r *http.Request) (call.Principal, site.Role) {
	now := c.InForce()
	if !now.Config.Gateway.Authenticates() {
		return "", site.RoleNone
	}
	who, refusal := now.Logins().Who(r)
	if refusal != nil || who == "" || who.Tenant() != "" { // the console shows every tenant
		return "", site.RoleNone
	}
	return who, operator.RoleOf(now.Config.Gateway.Console, who)
}

// current satisfies operator.Waldo: each method is of the configuration in force when it is called.
type current struct{ *app.App }

func (c current) Config() *contract.Config   { return c.InForce().Config }
func (c current) Policy() *policy.Policy     { return c.InForce().Policy }
func (c current) Accepted() *lockfile.Lock   { return c.InForce().Accepted() }
func (c current) Restart(server string) bool { return c.InForce().Upstreams.Restart(server) }

func (c current) VerifyLog(ctx context.Context) (audit.Report, error) {
	return c.InForce().VerifyLog(ctx)
}

// Pins looks at every server for definitions that wait to be accepted.
func (c current) Pins(ctx context.Context) ([]site.Pin, error) {
	all, _, err := c.InForce().CompareLock(ctx, nil, func(string) func() { return func() {} })
	out := []site.Pin{}
	for _, one := range all {
		for _, c := range one.Changes {
			out = append(out, pin(c))
		}
	}
	return out, err
}

func pin(c lockfile.Change) site.Pin {
	p := site.Pin{
		Server: c.Server, Name: string(display.Line(c.String())), Code: c.Code, Text: string(display.Line(c.Text)),
	}
	for _, l := range c.Diff {
		p.Diff = append(p.Diff, string(display.Line(l)))
	}
	return p
}
