package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"waldo/internal/app/generation"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/executor/preview"
	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/breakers"
)

// lives are the applications that share one state: the current one, and earlier ones until their calls end.
type lives struct {
	server atomic.Pointer[mcpserver.Server] // the running server, or nil
	proofs *identity.Proofs
	*generation.Generations[*App]
}

func newLives(first *App) *lives {
	proofs := identity.NewProofs(time.Now())
	proofs.Shared = first.unused
	return &lives{proofs: proofs, Generations: generation.New(first, (*App).retire)}
}

// inForce returns the current application, with the configuration in force.
func (l *lives) inForce() *App { return l.Now() }

// Call runs the pipeline of the current application, which stays open until the call has ended.
func (l *lives) Call(ctx context.Context, c call.Call) (call.Result, error) {
	now, done := l.Enter()
	defer done()
	return now.Broker.Call(ctx, c)
}

// Refuse records and answers a call that is refused before the pipeline.
func (l *lives) Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
	return l.inForce().Broker.Refuse(ctx, c, why)
}

// Mode returns the class of a tool and its danger, under the configuration in force.
func (l *lives) Mode(cap call.Capability, annotations strictjson.Value) (contract.Mode, int) {
	k := l.contract(cap)
	d := policy.Tighten(policy.Decision{Contract: k, Danger: k.Danger}, annotations)
	return d.Mode(), max(d.Danger, d.Mode().Danger())
}

// Scrub redacts a server message outside a result, according to the contract. A question to a person loses secrets
// only.
func (l *lives) Scrub(c call.Call, v strictjson.Value, question bool) strictjson.Value {
	h := l.inForce()
	k, _ := h.Policy.Lookup(c.Capability)
	if question {
		k.Redact = []string{"secrets"}
	}
	return h.Redact.Aside(policy.Decision{Call: c, Contract: k}, v)
}

// SideEffect returns what the log has about an ended call; false: nothing.
func (l *lives) SideEffect(ctx context.Context, callID string) (facts.SideEffect, bool) {
	return audit.Fate(ctx, audit.Dir(l.inForce().State), callID)
}

// contract returns the contract in force for a capability.
func (l *lives) contract(name call.Capability) contract.Contract {
	h := l.inForce()
	k, _ := h.Policy.Lookup(name)
	if w := h.Config.Workers; w != nil && k.Transport == contract.SandboxedExec {
		k.Timeout += w.Wait + lingers
	}
	return k
}

// lingers is how long a run goes on at its worker without its gateway, at most.
const lingers = 10 * time.Second

// notes are waldo's own findings about a call that a human is asked about.
func (l *lives) notes(d policy.Decision) []string {
	return l.inForce().Redact.Meanings(d)
}

// rules are how people are asked.
func (l *lives) rules() contract.Approvals { return l.inForce().Config.Approval }

// Cosigned shows the log to the witnesses of the configuration in force.
func (l *lives) Cosigned(ctx context.Context) *call.Reason { return l.inForce().Broker.Cosigned(ctx) }

// Pass shows a question of a peer to the approvers here.
func (l *lives) Pass(ctx context.Context, peer string, question json.RawMessage) (json.RawMessage, bool) {
	return l.inForce().Approvals.Pass(ctx, peer, question)
}

// Sent notes what became of the answer to a question of a peer.
func (l *lives) Sent(ctx context.Context, approvalID, why string) error {
	return l.inForce().Approvals.Sent(ctx, approvalID, why)
}

// Tell tells the client of a call which question of a peer it waits for.
func (l *lives) Tell(ctx context.Context, question strictjson.Value, refused string) {
	if tell := call.Asking(ctx); tell != nil {
		tell(question, refused)
	}
}

// Over removes a question of a peer.
func (l *lives) Over(ctx context.Context, approvalID string) error {
	return l.inForce().Approvals.Over(ctx, approvalID)
}

// preview returns what a call of waldo's own tools, of code or of a command would do, redacted as its result would be.
func (l *lives) preview(ctx context.Context, d policy.Decision) []string {
	h := l.inForce()
	lines := h.direct.Preview(ctx, d)
	if len(lines) == 0 {
		lines = preview.Sandboxed(d)
	}
	if len(lines) == 0 {
		lines = previewResumed(h.Programs(), d)
	}
	if len(lines) == 0 {
		return nil
	}
	b, err := json.Marshal(lines)
	if err != nil {
		return []string{"the preview has no form as JSON"}
	}
	v, err := strictjson.Parse(b)
	if err != nil || h.Redact.Aside(d, v).Decode(&lines) != nil {
		return []string{"the preview cannot be shown"}
	}
	return lines
}

// change makes next the current application.
func (l *lives) change(next *App) {
	l.Change(next, func() {
		if srv := l.server.Load(); srv != nil {
			srv.Replace(next.Catalogue)
		}
	})
}

// ToolsChanged drops the tools of a server that the catalogue in force has.
func (l *lives) ToolsChanged(server string) { l.inForce().Catalogue.Invalidate(server) }

// OffersChanged is the same for prompts and resources.
func (l *lives) OffersChanged(server string) { l.inForce().Catalogue.InvalidateOffer(server) }

// ResourceUpdated passes the change of a resource on to the hosts that have subscribed to it.
func (l *lives) ResourceUpdated(server, uri string) {
	if srv := l.server.Load(); srv != nil {
		srv.Updated(server, uri)
	}
}

// BreakerChanged stores the state of a server's circuit breaker, for waldo tools and the console.
func (l *lives) BreakerChanged(server string, fails int, until time.Time) {
	h := l.inForce()
	err := breakers.Note(context.Background(), h.Store, breakers.Breaker{Server: server, Process: h.Process(), Fails: fails, Until: until})
	if err != nil {
		slog.Warn("the state of a circuit breaker could not be stored", "server", server, "why", err)
	}
}
