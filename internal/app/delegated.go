package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/app/fault"
	"waldo/internal/core/audit"
	"waldo/internal/core/delegation"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// delegations reads and writes the records of delegations, also for replicas.
func (s *Storage) delegations(w *audit.Witness) delegation.Shared {
	return delegation.Shared{Log: audit.Delegations{Witness: w, Recorder: &audit.Recorder{Log: s.Log}}, Store: s.Store}
}

// enterDelegated puts all calls of this process under the delegation whose token it was given. The refusal of the token
// is recorded.
func (h *App) enterDelegated(ctx context.Context) error {
	if h.set.after != nil {
		h.Delegated.Base = h.set.after.Delegated.Base
		return nil
	}
	if h.set.Delegation == nil {
		return nil
	}
	link, why := h.Delegated.Enter(ctx, *h.set.Delegation, call.Proof{}, h.Caller())
	if why != nil {
		n, err := h.OpenSession()
		if err == nil {
			_, err = h.Broker.Refuse(ctx, call.Call{ID: id.New(id.Call), Capability: "delegation", Session: n.ID,
				Principal: h.Caller(), Channel: "cli"}, *why)
		}
		return errors.Join(err, &fault.Error{Usage: why.Code == "delegation.malformed", Denied: true,
			Err: fmt.Errorf("--delegation: %s: %s", why.Code, why.Text),
			Tip: "waldo delegate makes a token; waldo delegate list --all shows why one has ended"})
	}
	h.Delegated.Base = link
	return nil
}

// Delegate hands down a part of the authority of a principal, or of the delegation that its token names. It returns the
// token of the new delegation, or the reason that bounds the request.
func (h *App) Delegate(ctx context.Context, above string, by call.Principal, r delegation.Request) (
	token string, link delegation.Link, against *call.Reason, err error,
) {
	return h.InForce().Delegated.Delegate(ctx, above, by, r)
}

// Inherit hands down to a sub-agent all that its task came with, and returns the new delegation.
func (h *App) Inherit(ctx context.Context, by call.Principal, under []string, to call.Principal) (
	link delegation.Link, against *call.Reason, err error,
) {
	return h.InForce().Delegated.Inherit(ctx, by, under, to)
}

// Bound returns a context for the work of a sub-agent: it is cancelled, with a *call.Stop, when a delegation of its chain
// ends. It returns the reason where one has ended already.
func (h *App) Bound(ctx context.Context, c call.Call) (bound context.Context, done func(), against *call.Reason) {
	s := h.InForce().Delegated
	under, against := s.Under(ctx, c)
	if under == nil || against != nil {
		return ctx, func() {}, against
	}
	bound, done = s.Bind(ctx, under)
	return bound, done, nil
}

// ExplainUnder returns a dry run as the token of a delegation, named by the user of this process, leaves it.
func ExplainUnder(ctx context.Context, state string, p *policy.Policy, token string, d policy.Decision) policy.Decision {
	log := delegation.Shared{Log: audit.Delegations{Witness: &audit.Witness{Dir: audit.Dir(state)}}}
	s := &delegation.Service{Policy: p, Log: log, Now: time.Now}
	c := d.Call
	c.Delegation = token
	_, why := s.Enter(ctx, token, call.Proof{}, Principal())
	var under *delegation.Chain
	if why == nil {
		under, why = s.Under(ctx, c)
	}
	if why != nil {
		d.Effect, d.Reasons = policy.Deny, append([]call.Reason{*why}, d.Reasons...)
		return d
	}
	c.Delegation, c.Chain = "", under.IDs()
	held := s.Decide(c, under)
	held.DryRun = true
	if held.Effect > d.Effect { // the recorded annotations of the tool are stricter
		return d
	}
	return held
}

// Revoked is what a revocation ended.
type Revoked struct {
	Delegations []string        `json:"delegations"`
	Before      bool            `json:"before,omitempty"` // it was revoked before this revocation
	Programs    int             `json:"programs"`         // suspended ones
	Replies     []control.Reply `json:"replies"`
	Silent      int             `json:"silent"` // processes that did not reply in time
}

// Revoke ends a delegation and all below it in every waldo of the store: calls under way are cancelled, and
// suspended programs removed.
func (s *Storage) Revoke(ctx context.Context, id string) (r Revoked, err error) {
	log := s.delegations(&audit.Witness{Dir: s.Store.Path("log")})
	if r.Delegations, r.Before, err = delegation.Revoke(ctx, log, id, Principal()); err != nil {
		return r, err
	}
	if r.Replies, r.Silent, err = control.Put(ctx, s.Store, control.Revoke, control.Order{}); err != nil {
		return r, err
	}
	n, perr := s.RevokePrograms(r.Delegations)
	r.Programs = n
	return r, errors.Join(err, perr)
}

// DelegationsBelow returns a delegation and all below it.
func DelegationsBelow(ctx context.Context, state, top string) (ids []string, err error) {
	err = (&audit.Witness{Dir: audit.Dir(state)}).Delegations(ctx, func(l *delegation.Ledger) { ids = l.Below(top) })
	return ids, err
}

// Delegations returns every delegation of the log, the oldest first, and why each cannot be used; nil: it can.
func Delegations(ctx context.Context, state string) (all []delegation.Link, ended []*call.Reason, err error) {
	err = (&audit.Witness{Dir: audit.Dir(state)}).Delegations(ctx, func(l *delegation.Ledger) {
		all, ended = l.All(time.Now())
	})
	return all, ended, err
}
