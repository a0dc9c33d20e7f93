package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"

	"waldo/internal/app/operator"
	"waldo/internal/config"
	"waldo/internal/core/approval/webhook"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/frontend/console"
	"waldo/internal/frontend/console/oidclogin"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
	"waldo/internal/storage/presence"
)

// DefaultConsole is the default address of waldo console.
const DefaultConsole = "127.0.0.1:7677"

// Console returns the web console over the state directory, which listens at an address. done ends it.
func (h *App) Console(at net.Addr) (s *console.Server, done func() error) {
	o := operator.New(operator.Options{
		Store: h.Store, Log: h.Log, Approvals: h.takingBack(), Owner: Owner(), Root: os.Getenv(RootVariable),
		Webhooks: h.Webhooks(),
		Config:   func() *contract.Config { return h.lives.inForce().Config },
		Policy:   func() *policy.Policy { return h.lives.inForce().Policy },
		Compile:  h.compile,
		Tools: func(server string) int {
			now := h.lives.inForce()
			lock := now.relocked.Load()
			if lock == nil {
				lock = now.Lock
			}
			return len(lock.Servers[server].Tools)
		},
		Pins:    func(ctx context.Context) ([]console.Pin, error) { return h.lives.inForce().pinsWaiting(ctx) },
		Forget:  func(ctx context.Context, name string) error { return h.ForgetCLI(ctx, name) },
		Anchors: func(ctx context.Context) ([]audit.Anchor, error) { return audit.Anchors(ctx, LogOptions(h.Store)) },
	})
	s = console.New(console.Options{
		Backend: o, Hosts: hostsOf(h.Config.Gateway), Origins: publicOrigin(h.Config.Gateway), Version: h.set.Version,
		Identify: h.consoleRole, Peer: peerOf, OIDC: func() console.Issuer { return h.lives.inForce().issuer() },
	})
	if err := h.listens(at, false); err != nil {
		slog.Warn("waldo console --link will not know this console", "error", err)
	}
	return s, func() error { return errors.Join(o.Close(), h.listens(at, true)) }
}

// consoleIssuer returns the issuer of logins to the console; nil: none.
func (h *App) consoleIssuer() console.Issuer {
	if l := h.Config.Gateway.Console.OIDC; l != nil {
		return oidclogin.New(oidclogin.Options{Login: *l, Secret: func(r secret.Ref) (secret.Value, error) {
			return h.secrets.Get(r)
		}})
	}
	return nil
}

// consoles is the bucket of the consoles of a state directory: the port to the process that listens there.
const consoles = "consoles"

// listens writes down where a console of the state directory listens, or that it has ended.
func (h *App) listens(at net.Addr, ended bool) error {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil || h.process == "" { // nothing tells others when this process has ended
		return err
	}
	ctx := context.Background()
	return h.Store.Modify(ctx, consoles, port, func(by string, ok bool) (string, bool, error) {
		if ended {
			return by, ok && by != h.process, nil
		}
		return h.process, true, nil
	})
}

// ConsoleAt reports whether a console of the state directory listens on a port of this machine.
func (s *Storage) ConsoleAt(ctx context.Context, port string) (bool, error) {
	by, ok, err := s.Store.Get(ctx, consoles, port)
	return ok && !presence.Gone(s.Store.Dir())(by), err
}

// compile compiles a changed text of the configuration in force, as a reload would.
func (h *App) compile(text []byte) (*policy.Policy, contract.Problems, error) {
	now := h.lives.inForce()
	cfg, problems := config.ParseIn(now.Config.File, text, h.set.Source.Selected())
	if len(problems) > 0 {
		return nil, problems, nil
	}
	next := &App{State: now.State, Config: cfg, Drivers: now.Drivers, Lock: now.Lock}
	next.relocked.Store(now.relocked.Load())
	p, err := policy.New(cfg, next.machine())
	if errors.As(err, &problems) {
		return nil, problems, nil
	}
	return p, nil, err
}

// peerOf names the user of this machine at the other end of a request's connection; empty: it is another machine.
func peerOf(r *http.Request) string {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() {
		return ""
	}
	uid, err := identity.PeerOf(local, net.TCPAddrFromAddrPort(remote))
	if err != nil {
		return "unknown"
	}
	return strconv.Itoa(uid)
}

// webhooks sends each question to the operator's chat. A link in it logs in as an approver, who then needs a passkey.
func (h *App) webhooks(rules func() contract.Approvals) *webhook.Notifier {
	return webhook.New(webhook.Notifier{Rules: rules,
		Secret: func(r secret.Ref) (secret.Value, error) { return h.lives.inForce().secrets.Get(r) },
		Link:   func(ctx context.Context) (string, error) { return operator.NewLink(ctx, h.Store, console.RoleApprover) }})
}

// publicOrigin is the origin of the console as browsers beyond this machine know it.
func publicOrigin(g contract.Gateway) []string {
	u, err := url.Parse(g.URL)
	if err != nil || u.Host == "" {
		return nil
	}
	return []string{u.Scheme + "://" + u.Host}
}

// consoleRole returns the principal and the role of a bearer token. A connection of this machine's user does not
// count as a token: a page or a program of the agent has one too.
func (h *App) consoleRole(r *http.Request) (call.Principal, console.Role) {
	now := h.lives.inForce()
	if g := now.Config.Gateway; len(g.Tokens) == 0 && g.OIDC == nil {
		return "", console.RoleNone
	}
	who, refusal := now.Logins().Identify(r)
	if refusal != nil || who == "" {
		return "", console.RoleNone
	}
	return who, operator.RoleOf(now.Config.Gateway.Console, who)
}

// pinsWaiting looks at every server for definitions that wait to be accepted.
func (h *App) pinsWaiting(ctx context.Context) ([]console.Pin, error) {
	all, err := h.CompareLock(ctx, nil, func(string) func() { return func() {} })
	out := []console.Pin{}
	for _, one := range all {
		for _, c := range one.Changes {
			out = append(out, pin(c))
		}
	}
	return out, err
}

func pin(c lockfile.Change) console.Pin {
	p := console.Pin{
		Server: c.Server, Name: string(display.Line(c.String())), Code: c.Code, Text: string(display.Line(c.Text)),
	}
	for _, l := range c.Diff {
		p.Diff = append(p.Diff, string(display.Line(l)))
	}
	return p
}
