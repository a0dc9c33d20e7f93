package app

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/app/systemd"
	"waldo/internal/core/session"
	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/network/loopback"
	"waldo/internal/storage/database"
)

// proofs is the bucket of the proofs of possession that were used, by the digest of their ids.
const proofs = "proofs"

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
	if loopback.Is(host) {
		return at, nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return "", fault.Usage("as in --listen "+DefaultListen,
			"waldo listens at 127.0.0.1 and ::1, both addresses of localhost, and not at %s", host)
	}
	if !g.Authenticates() {
		return "", fault.Usage("waldo token NAME makes a token; or listen on "+DefaultListen,
			"listening on %s, beyond this machine, needs gateway.auth", at)
	}
	if g.URL == "" {
		return "", fault.Usage("as in gateway: {url: https://waldo.example.com/mcp}",
			"listening on %s, beyond this machine, needs gateway.url: the name that clients use", at)
	}
	return at, nil
}

// sockets are where waldo serve listens: at an address, or at the sockets that systemd passed.
type sockets struct {
	flag   string // --listen
	passed []net.Listener
}

// check returns an error where a configuration does not allow to listen there.
func (s sockets) check(g contract.Gateway) error {
	if len(s.passed) == 0 {
		_, err := listenOn(s.flag, g)
		return err
	}
	if s.flag != "" {
		return fault.Usage("leave out --listen, and name the address in the .socket unit",
			"--listen %s, and systemd passes a socket", s.flag)
	}
	for _, l := range s.passed {
		if _, err := listenOn(l.Addr().String(), g); err != nil {
			return err
		}
	}
	return nil
}

func (s sockets) listen(g contract.Gateway) (net.Listener, error) {
	if err := s.check(g); err != nil {
		return nil, err
	}
	if len(s.passed) > 0 {
		return loopback.Given(s.passed)
	}
	at, err := listenOn(s.flag, g)
	if err != nil {
		return nil, err
	}
	l, err := loopback.Listen(at)
	if err != nil {
		return nil, &fault.Error{Err: err, Tip: "is another waldo serve listening there? choose another address with --listen. " +
			"ss -ltnp shows who has a port"}
	}
	return l, nil
}

// gatewaySessions is the bucket of the sessions over MCP that replicas share, by principal.
const gatewaySessions = "gateway-sessions"

// SharedSessions gives the clients of one principal over a front end one session. In a bucket, as in "rest-sessions",
// replicas give it one id. Without one, its id is known in this process alone.
func (h *App) SharedSessions(bucket string) *session.Shared {
	return &session.Shared{Sessions: h.Sessions, Owner: clientSessions{h, bucket}}
}

// clientSessions satisfies session.Owner.
type clientSessions struct {
	h      *App
	bucket string
}

// Opened satisfies session.Owner.
func (c clientSessions) Opened(n session.Info) { c.h.lives.inForce().expect(n) }

// Idle satisfies session.Owner.
func (c clientSessions) Idle(n call.Session) { c.h.Forget(n) }

// Closed satisfies session.Owner.
func (c clientSessions) Closed(n session.Info) { c.h.Tidy(n) }

// Open satisfies session.Owner. Replicas give the session of a principal the same id: a question that one of them asked
// is one of the session at the other. An id that the operator stopped is replaced.
func (c clientSessions) Open(who call.Principal) (session.Info, error) {
	h := c.h
	if c.bucket == "" || !h.Approvals.Replicated() {
		return h.Sessions.Open(who, id.New(id.Workspace))
	}
	for stopped := ""; ; {
		var n call.Session
		var workspace string
		err := h.Store.Modify(context.Background(), c.bucket, string(who), func(old string, _ bool) (string, bool, error) {
			first, second, _ := strings.Cut(old, " ")
			if old == stopped || !id.Is(id.Session, first) || !id.Is(id.Workspace, second) {
				first, second = id.New(id.Session), id.New(id.Workspace)
			}
			n, workspace = call.Session(first), second
			return first + " " + second, true, nil
		})
		if err != nil {
			return session.Info{}, err
		}
		info, open := h.Sessions.Get(n)
		if !open {
			if info, err = h.Sessions.Resume(n, who, workspace); err != nil {
				return info, err
			}
		}
		if !info.Stopped || h.Sessions.Kept(who) {
			h.Lasting(n)
			return info, nil
		}
		h.Sessions.Close(n)
		stopped = string(n) + " " + workspace
	}
}

// listenHTTP answers over HTTP until ctx is done. It calls ready with the address.
func (h *App) listenHTTP(ctx context.Context, s sockets, o mcpserver.Options, ready func(net.Addr)) error {
	l, err := s.listen(h.Config.Gateway)
	if err != nil {
		return err
	}
	g := h.SharedSessions(gatewaySessions)
	defer g.Close()
	o.OnSessionEnd = g.Leave
	srv := mcpserver.New(o)
	h.lives.server.Store(srv)
	ctx, end := context.WithCancel(ctx)
	defer h.serveFeatures(ctx, true)()
	defer end()
	var rest func(w http.ResponseWriter, r *http.Request, known func(call.Principal))
	if site := h.site(); site != nil {
		pages := site.Open(l.Addr())
		defer pages.Close()
		rest = pages.Serve
	}
	web := web.New(web.Options{
		Server: srv, Open: g.Enter, Over: g.Over,
		Identify: func(r *http.Request) (call.Principal, *web.Refusal) { return h.lives.inForce().Logins().Identify(r) },
		Proof:    h.Proof,
		Hosts:    HostsOf(h.Config.Gateway), Origins: h.Config.Gateway.Origins, Beside: h.beside(), Rest: rest,
		Routes: h.routes(false), Methods: h.methods(),
		Limits: listenLimits(h.Config.Gateway.Limits, openFiles()), Peer: identity.Peer, Log: o.Log,
		Ready: func() error { return h.ready(ctx) },
	})
	ready(l.Addr())
	if err := systemd.Notify("READY=1"); err != nil {
		return errors.Join(err, l.Close())
	}
	return web.Serve(ctx, l)
}

// Proof returns the proof of possession of a principal's HTTP request, or the answer to one whose proof does not hold.
func (h *App) Proof(who call.Principal, r *http.Request) (call.Proof, *web.Refusal) {
	return h.lives.proofs.Verify(who, r, h.InForce().Config.Gateway.URL)
}

// unused takes the id of a proof of possession for every process of the store, until a time. It returns false for one
// that was taken.
func (h *App) unused(ctx context.Context, id string, until time.Time) (fresh bool, err error) {
	sum := sha256.Sum256([]byte(id))
	err = h.Store.Update(ctx, func(tx *sql.Tx) error {
		if sum[0] == 0 { // one in 256 removes those that are too old to be taken
			if _, err := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND value < $2`, proofs, database.Stamp(time.Now())); err != nil {
				return err
			}
		}
		res, err := tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, $3, $3) ON CONFLICT (bucket, name)
			DO NOTHING`, proofs, hex.EncodeToString(sum[:]), database.Stamp(until))
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		fresh = n == 1
		return err
	})
	return fresh, err
}

// ready returns why waldo takes no calls: the database cannot be read, or the log cannot be written.
func (h *App) ready(ctx context.Context) error {
	if h.Reachable(ctx) != nil { // first: a log that is repaired has its head in the store
		return errors.New("the store cannot be read")
	}
	if h.Log.Ready() != nil {
		return errors.New("the log cannot be written")
	}
	return nil
}

// readWithin is how long the store has for one read before it counts as away.
const readWithin = 1500 * time.Millisecond

// Reachable reads the store once. A server that is paused ends no connection, so the read itself can take longer.
func (h *App) Reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	read := make(chan error, 1)
	go func() {
		_, _, err := h.Store.Get(ctx, "ready", "")
		read <- err
	}()
	select {
	case err := <-read:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the store did not answer in time: %w", ctx.Err())
	}
}

// beside returns the handlers of exact paths: of logins and of the features.
func (h *App) beside() map[string]http.Handler {
	all := maps.Clone(h.Logins().Beside())
	if all == nil {
		all = map[string]http.Handler{}
	}
	maps.Copy(all, h.routes(true))
	return all
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

// HostsOf are the names that the server goes by.
func HostsOf(g contract.Gateway) []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if u, err := url.Parse(g.URL); err == nil && u.Host != "" {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

// entrance says who is let in.
func entrance(g contract.Gateway) *identity.Options {
	o := &identity.Options{Tokens: g.Tokens, UID: os.Getuid(), URL: g.URL, Tenants: g.Tenants,
		Issuers: map[string]*identity.OIDC{}}
	trusted := func(i contract.Issuer) *identity.OIDC {
		return &identity.OIDC{Issuer: i.Issuer, JWKS: i.JWKS, Audience: g.URL, Scopes: i.Scopes}
	}
	if g.OIDC != nil {
		o.OIDC = trusted(*g.OIDC)
	}
	for name, t := range g.Tenants {
		if t.Issuer.Issuer != "" {
			o.Issuers[name] = trusted(t.Issuer)
		}
	}
	return o
}
