// Package a2a makes waldo an agent among agents (A2A 1.0): an agent card, tasks over JSON-RPC and HTTP+JSON, streams
// and push notifications. A message becomes a call through the pipeline, by the contracts that expose it.
package a2a

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/cli/records"
	"waldo/internal/core/approval"
	"waldo/internal/feature"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/hostrule"
	"waldo/internal/model/id"
	"waldo/internal/network/egress"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/presence"
	"waldo/internal/storage/secretstore"
)

// Feature is A2A.
var Feature = feature.Feature{Name: "a2a", Records: records.Lines{Kind: line, KindTask: taskLine},
	Open: func(h *app.App) (app.Running, error) { return open(h, nil, nil) }}

// open opens A2A for one configuration. A nil resolver is the machine's own. Without inside, the
// configuration names which hosts are.
func open(h *app.App, resolver egress.Resolver, inside func(host string) bool) (app.Running, error) {
	k := &host{App: h, sessions: map[call.Principal]call.Session{}}
	if inside == nil {
		inside = k.private
	}
	t := &tasks{db: h.Store, holder: h.Process(), gone: presence.Gone(h.Store), log: h.Log}
	r := newRunner(t, k)
	p := &pusher{tasks: t, private: inside, resolver: resolver, wake: make(chan struct{}, 1), log: h.Log}
	s := newServer(k, t, r, p, &signer{keys: keysOf(h.State)})
	return app.Running{
		Routes: []app.Route{{Prefix: "/.well-known/agent-card.json", Handler: s, Exact: true},
			{Prefix: "/a2a", Handler: s, Exact: true}, {Prefix: "/a2a/", Handler: s, Exact: true}},
		Serve: func(ctx context.Context) {
			defer s.end()
			var both sync.WaitGroup
			both.Go(func() { r.run(ctx) })
			both.Go(func() { p.run(ctx) })
			<-ctx.Done()
			s.end()
			both.Wait()
			k.close()
		},
		Sweep: t.sweep,
	}, nil
}

// keysOf returns waldo's store of a state directory. Its first key is a file, unless the operator chose a keyring.
func keysOf(state string) *secretstore.Store {
	s := secrets.Open(state)
	if !s.HasKey() {
		s.Keyring = nil
	}
	return s
}

// host is the configuration in force, for the front end.
type host struct {
	*app.App
	mu       sync.Mutex
	sessions map[call.Principal]call.Session
}

// Identify satisfies Host: clients log in as those of MCP do.
func (k *host) Identify(r *http.Request) (call.Principal, *web.Refusal) {
	return k.InForce().Logins().Identify(r)
}

// Gateway satisfies Host.
func (k *host) Gateway() contract.Gateway { return k.InForce().Config.Gateway }

// Reads satisfies Kernel.
func (k *host) Reads(c call.Capability) bool { return reads(k.InForce().Policy.Lookup(c)) }

// Exposed satisfies Kernel.
func (k *host) Exposed(c call.Capability, agent bool) bool {
	now := k.InForce()
	if agent {
		return now.Config.Agent.Expose
	}
	contract, _ := now.Policy.Lookup(c)
	return contract.Expose
}

// Enter satisfies Host.
func (k *host) Enter(
	ctx context.Context, token string, proof call.Proof, p call.Principal,
) (string, *call.Reason) {
	link, why := k.InForce().Delegated.Enter(ctx, token, proof, p)
	return link.ID, why
}

// Ended satisfies Kernel.
func (k *host) Ended(ctx context.Context, p call.Principal, chain []string) bool {
	return k.InForce().Delegated.Ended(ctx, p, chain)
}

// Question satisfies Kernel.
func (k *host) Question(ctx context.Context, approvalID string) (approval.Question, approval.State, error) {
	return k.InForce().Approvals.Question(ctx, approvalID)
}

// Withdraw satisfies Kernel.
func (k *host) Withdraw(ctx context.Context, approvalID, why string) error {
	return k.InForce().Approvals.Withdraw(ctx, approvalID, why)
}

// Share satisfies Kernel.
func (k *host) Share(ctx context.Context, q approval.Question) (approval.Elsewhere, bool) {
	return k.InForce().Approvals.Share(ctx, q)
}

// Deliver satisfies Host.
func (k *host) Deliver(ctx context.Context, approvalID string, answer json.RawMessage) error {
	return k.InForce().Approvals.Deliver(ctx, approvalID, answer)
}

// PassDown satisfies Host.
func (k *host) PassDown(ctx context.Context, approvalID string, answer json.RawMessage) error {
	return k.InForce().Approvals.PassDown(ctx, approvalID, answer)
}

// private reports whether the configuration lets a name have an address that is not public.
func (k *host) private(name string) bool {
	return slices.ContainsFunc(k.InForce().Config.Internal, func(pattern string) bool {
		p, err := hostrule.ParsePattern(pattern)
		return err == nil && p.Match(name)
	})
}

// Skills satisfies Host.
func (k *host) Skills(ctx context.Context, p call.Principal) (out []Skill) {
	now := k.InForce()
	if a := now.Config.Agent; a.Expose {
		out = append(out, agentSkill(a.Name))
	}
	if !slices.ContainsFunc(now.Config.Contracts, func(c contract.Contract) bool { return c.Expose }) {
		return out // no server is asked for its tools
	}
	for _, e := range now.Catalogue.List(ctx, catalog.Viewer{Principal: p, Channel: call.A2A}) {
		c, ok := now.Policy.Lookup(e.Capability)
		if !ok || !c.Expose || e.Capability == catalog.SearchTools {
			continue
		}
		title := e.Title
		if title == "" {
			title = string(e.Capability)
		}
		first, _, _ := strings.Cut(string(e.Capability), ".")
		about := e.Description
		if about == "" {
			about = title
		}
		out = append(out, Skill{ID: string(e.Capability), Name: title, Description: about,
			Tags: []string{first, c.Mode.String()}, InputModes: []string{"application/json", "text/plain"},
			capability: e.Capability, input: e.Input})
	}
	return out
}

// agentSkill is the built-in agent as a skill. No capability has a name with a colon that an agent could call.
func agentSkill(name string) Skill {
	input, _ := strictjson.Parse([]byte(`{"type":"object","properties":{"task":{"type":"string"}},"required":["task"],` +
		`"additionalProperties":false}`))
	return Skill{ID: agentPrefix + name, Name: "Agent " + name,
		Description: "Works on a task that is given in words, with " +
			"the tools that both it and you can use.", Tags: []string{"agent"}, InputModes: []string{"application/json",
			"text/plain"},
		capability: call.Capability(agentPrefix + name), input: input}
}

// bucket stores the session of each principal, so that the next process can go on with tasks that wait for a person.
const bucket = "a2a"

// Session satisfies Kernel.
func (k *host) Session(ctx context.Context, p call.Principal) (call.Session, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh := false
	if n, had := k.sessions[p]; had {
		now, is := k.Sessions.Get(n)
		if is && (!now.Stopped || k.Sessions.Kept(p)) {
			return n, nil
		}
		fresh = is && k.Sessions.Close(n) // the operator stopped the session, and lets its principal go on
	}
	var n, workspace string
	err := k.Store.Modify(ctx, bucket, string(p), func(old string, _ bool) (string, bool, error) {
		var found bool
		old, err := k.Store.Unmark(old, bucket, string(p))
		n, workspace, found = strings.Cut(old, " ")
		if fresh || err != nil || !found || !id.Is(id.Session, n) || !id.Is(id.Workspace, workspace) {
			n, workspace = id.New(id.Session), id.New(id.Workspace)
		}
		old, err = k.Store.Mark(n+" "+workspace, bucket, string(p))
		return old, true, err
	})
	if err != nil {
		return "", err
	}
	k.Lasting(call.Session(n))
	if _, err := k.Sessions.Resume(call.Session(n), p, workspace); err != nil {
		return "", err
	}
	k.sessions[p] = call.Session(n)
	return call.Session(n), nil
}

// close closes the sessions in this process.
func (k *host) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.sessions {
		k.Forget(n)
		k.Sessions.Close(n)
	}
	clear(k.sessions)
}
