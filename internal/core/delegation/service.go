package delegation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
)

// Policy decides by the contracts. It is satisfied by *policy.Policy.
type Policy interface {
	Decide(c call.Call) policy.Decision
	Holds(b policy.Bound, d policy.Decision) (bool, error)
	Uses(d policy.Decision) policy.Uses
	Against(name call.Capability, who call.Principal) *call.Reason
	Meets(q contract.Pattern) bool
}

// Log reads and writes the records of delegations.
type Log interface {
	// Delegations brings the ledger to the end of the log and hands it to fn. It returns an error where a part of the
	// log does not parse or chain.
	Delegations(ctx context.Context, fn func(*Ledger)) error
	// Delegate appends a record. It is on the disk when this returns.
	Delegate(ctx context.Context, r Record) error
}

// Service holds calls to the delegations that they are made under. Every field but Base is needed.
type Service struct {
	Policy Policy // of the configuration in force
	Log    Shared
	Live   *Live
	Now    func() time.Time
	Base   Link // the delegation that every call of this process is made under; zero: none
}

// Lists reports whether the delegation of this process leaves calls of a capability: by name, and by the danger of its
// contract, which arguments only raise. Others need not be listed.
func (s *Service) Lists(name call.Capability, danger int) bool {
	return s.Base.ID == "" || s.Base.Lists(name, danger)
}

// Lists reports whether a delegation leaves calls of a capability, as Service.Lists does. No delegation leaves all.
func (l *Link) Lists(name call.Capability, danger int) bool {
	matches := func(p contract.Pattern) bool { return p.Match(string(name)) }
	return l == nil || contract.ByTheGateway(string(name)) ||
		danger <= l.Danger && slices.ContainsFunc(l.Allow, matches)
}

// Ended reports whether the delegation of this process, or of a chain that a principal calls under, was revoked or is
// over.
func (s *Service) Ended(ctx context.Context, p call.Principal, chain []string) bool {
	_, why := s.Under(ctx, call.Call{Principal: p, Chain: chain})
	return why != nil && (why.Code == call.DelegationRevoked || why.Code == call.DelegationExpired)
}

// Under returns the delegations that a call is made under; nil: none. It returns the reason against the call where the
// token does not hold, or is not below the delegation of the process or of the calling program.
func (s *Service) Under(ctx context.Context, c call.Call) (*Chain, *call.Reason) {
	if s.Base.ID == "" && c.Delegation == "" && len(c.Chain) == 0 {
		return nil, nil
	}
	var under []string // each must be in the chain
	if s.Base.ID != "" {
		under = append(under, s.Base.ID)
	}
	if n := len(c.Chain); n > 0 {
		under = append(under, c.Chain[n-1])
	}
	return s.find(ctx, c.Delegation, c.Proof, c.Principal, under)
}

// Enter verifies a token that a principal names with a proof, and returns its delegation.
func (s *Service) Enter(
	ctx context.Context, token string, proof call.Proof, who call.Principal,
) (l Link, why *call.Reason) {
	c, why := s.find(ctx, token, proof, who, nil)
	if why == nil {
		l = c.Leaf()
	}
	return l, why
}

// find looks a chain up in the log: that of a token, or the last of under where the token is empty.
func (s *Service) find(
	ctx context.Context, token string, proof call.Proof, who call.Principal, under []string,
) (*Chain, *call.Reason) {
	var leaf string
	var why *call.Reason
	if token == "" && len(under) > 0 {
		leaf = under[len(under)-1]
	} else if leaf, why = ParseToken(token); why != nil {
		return nil, why
	}
	var chain *Chain
	if err := s.Log.Exchange(ctx, leaf); err != nil {
		return nil, unproven
	}
	err := s.Log.Delegations(ctx, func(l *Ledger) {
		var c *Chain
		if c, why = l.chain(leaf); why != nil {
			return
		}
		switch last := c.Leaf(); {
		case token != "" && !last.fits(token):
			why = &call.Reason{Code: "delegation.token", Text: "the token does not fit " + leaf}
			return
		case token != "" && last.For != who:
			why = &call.Reason{Code: "delegation.principal", Text: leaf + " belongs to another principal"}
			return
		case token != "" && !last.proven(token, proof):
			why = &call.Reason{Code: "delegation.proof", Text: leaf + " needs a proof of its key with each request over HTTP"}
			return
		}
		if i := slices.IndexFunc(c.Links, func(l Link) bool { return l.By.Tenant() != l.For.Tenant() }); i >= 0 {
			why = &call.Reason{Code: "delegation.tenant", Text: c.Links[i].ID + " is from one tenant to another"}
			return
		}
		for _, n := range under {
			if !slices.Contains(c.IDs(), n) {
				why = &call.Reason{Code: "delegation.outside", Text: leaf + " is not below " + n + ", which bounds the caller"}
				return
			}
		}
		chain = c
		if why = l.stands(c, s.Now()); why == nil {
			why = l.spent(c)
		}
	})
	if err != nil {
		return nil, unproven
	}
	return chain, why
}

// unproven refuses because the log cannot be believed.
var unproven = &call.Reason{Code: "delegation.unproven",
	Text: "the log does not show the delegation; an operator finds why with: waldo log verify"}

// Decide decides a call by the contracts for its principal, and for all whose authority it is, and then by the bounds
// of each delegation. The strictest counts.
func (s *Service) Decide(c call.Call, under *Chain) policy.Decision {
	d := s.Policy.Decide(c)
	authority := under.principals(c.Principal)
	for _, who := range authority {
		as := c
		as.Principal = who
		d = policy.Join(d, s.Policy.Decide(as), call.Reason{Code: "delegation.principal",
			Text: "the contracts are stricter for " + string(who) + ", whose authority it is"})
	}
	d.Authority = authority
	var against []call.Reason
	for i := range under.Links {
		l := &under.Links[i]
		why, narrowed := s.bound(l, &d)
		if why != nil {
			against = append(against, *why)
		}
		if d.Narrowest == "" && (why != nil || narrowed) {
			d.Narrowest = l.ID
		}
	}
	if d.Narrowest == "" {
		d.Narrowest = under.narrowest(string(c.Capability))
	}
	d.Reasons = slices.Clone(d.Reasons)
	switch {
	case len(against) == 0:
	case d.Effect == policy.Deny:
		d.Reasons = append(d.Reasons, against...)
	default:
		d.Effect, d.Reasons = policy.Deny, append(against, d.Reasons...)
	}
	d.Reasons = append(d.Reasons, call.Reason{Code: call.DelegationChain, Text: under.text(d.Narrowest)})
	return d
}

// principals returns whose authority a call has, beside that of its own principal.
func (c *Chain) principals(own call.Principal) (out []call.Principal) {
	for _, l := range c.Links {
		for _, who := range []call.Principal{l.By, l.For} {
			if who != own && !slices.Contains(out, who) {
				out = append(out, who)
			}
		}
	}
	return out
}

// text names whose authority a chain is.
func (c *Chain) text(narrowest string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "authority of %s", c.Links[0].By)
	for _, l := range c.Links {
		fmt.Fprintf(&b, ", by %s to %s", l.ID, l.For)
	}
	return b.String() + "; the narrowest is " + narrowest
}

// bound holds a decision to one delegation. It returns the reason against the call, or reports that the hosts of the
// call are fewer now.
func (s *Service) bound(l *Link, d *policy.Decision) (why *call.Reason, narrowed bool) {
	refuse := func(bound, format string, args ...any) (*call.Reason, bool) {
		return &call.Reason{Code: "delegation." + bound, Text: l.ID + ": " + fmt.Sprintf(format, args...)}, false
	}
	name := string(d.Call.Capability)
	if !slices.ContainsFunc(l.Allow, func(p contract.Pattern) bool { return p.Match(name) }) {
		return refuse("capability", "allow is %q", l.Allow)
	}
	if d.Danger > l.Danger {
		return refuse("danger", "the call has danger %d, and the highest is %d", d.Danger, l.Danger)
	}
	u := s.Policy.Uses(*d)
	for _, secret := range u.Secrets {
		if !slices.Contains(l.Secrets, secret) && !slices.Contains(l.Secrets, All) {
			return refuse("secrets", "the call uses the secret %q: hand it down with --secret", secret)
		}
	}
	if !slices.Contains(l.Hosts, All) {
		left := narrow(u.Hosts, l.Hosts)
		switch {
		case u.Fixed && (u.Open || !slices.Equal(left, u.Hosts)):
			return refuse("hosts", "its server reaches more than %q: hand its hosts down with --host, or all with --host '*'", l.Hosts)
		case !u.Fixed && (u.Open || !slices.Equal(left, u.Hosts)):
			d.Contract.Network = contract.Network{Allow: left, Limits: d.Contract.Network.Limits}
			narrowed = true
		}
	}
	conds, err := l.conds()
	if err != nil {
		return refuse("condition_error", "a condition cannot be read")
	}
	for i, b := range conds {
		switch holds, err := s.Policy.Holds(b, *d); {
		case err != nil:
			return refuse("condition_error", "the condition %q could not be evaluated", l.If[i])
		case !holds:
			return refuse("condition", "the condition %q is false", l.If[i])
		}
	}
	return nil, narrowed
}

// Useless returns the patterns of a delegation whose calls its hosts or secrets refuse in any case, and the names whose
// calls its danger does, each with the reason. Of a pattern it judges one name.
func (s *Service) Useless(l Link) (out []call.Reason) {
	for _, p := range l.Allow {
		d := s.Policy.Decide(call.Call{Capability: call.Capability(strings.ReplaceAll(string(p), "*", "x")), Principal: l.For})
		why, _ := s.bound(&l, &d)
		if why != nil && (why.Code == "delegation.hosts" || why.Code == "delegation.secrets" ||
			why.Code == "delegation.danger" && !strings.Contains(string(p), "*")) {
			out = append(out, call.Reason{Code: why.Code, Text: string(p) + ": " + why.Text})
		}
	}
	return out
}

// narrowest returns the delegation that leaves a capability the least: by the longest pattern for it, then danger,
// calls and time. Of equals, it is the one nearest to the root.
func (c *Chain) narrowest(name string) string {
	best := c.Links[0]
	for _, l := range c.Links[1:] {
		if cmp.Or(l.specific(name)-best.specific(name), best.Danger-l.Danger, len(l.If)-len(best.If), best.Calls-l.Calls,
			best.Expires.Compare(l.Expires)) > 0 {
			best = l
		}
	}
	return best.ID
}

// specific returns the length of the longest pattern that allows a capability. An exact name is longer than any pattern
// that matches it.
func (l Link) specific(name string) (n int) {
	for _, p := range l.Allow {
		if p.Match(name) {
			n = max(n, len(strings.ReplaceAll(string(p), "*", "")))
		}
	}
	return n
}

// Confirm returns why a call whose decision is recorded cannot be carried out. Of calls at the same time, the order of
// the log decides which are within a budget.
func (s *Service) Confirm(ctx context.Context, d policy.Decision, under *Chain) (why *call.Reason) {
	err := s.Log.Delegations(ctx, func(l *Ledger) { why = l.confirm(under, d.ID, s.Now()) })
	if err == nil && why == nil {
		why, err = s.Log.spend(ctx, under)
	}
	if err != nil {
		return unproven
	}
	return why
}

// Bind returns a context for a call: it is cancelled, with a *call.Stop, when a delegation of the call ends.
func (s *Service) Bind(ctx context.Context, under *Chain) (bound context.Context, done func()) {
	bound, cancel := context.WithCancelCause(ctx)
	b := &binding{chain: under, cancel: cancel}
	s.Live.add(b)
	first := slices.MinFunc(under.Links, func(a, b Link) int { return a.Expires.Compare(b.Expires) })
	timer := time.AfterFunc(first.Expires.Sub(s.Now()), func() { cancel(&call.Stop{Why: *expired(first)}) })
	return bound, func() {
		timer.Stop()
		s.Live.remove(b)
		cancel(nil)
	}
}

// Live holds the calls that are under way under a delegation. The zero Live holds none.
type Live struct {
	mu    sync.Mutex
	calls map[*binding]struct{}
}

type binding struct {
	chain  *Chain
	cancel context.CancelCauseFunc
}

func (l *Live) add(b *binding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[*binding]struct{}{}
	}
	l.calls[b] = struct{}{}
}

func (l *Live) remove(b *binding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, b)
}

// End cancels the calls whose delegation no longer stands, by the log, and returns how many. Where the log cannot be
// read, it cancels all.
func (l *Live) End(ctx context.Context, log Shared, now time.Time) (ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	why := map[*binding]*call.Reason{}
	var err error
	for b := range l.calls {
		err = errors.Join(err, log.Exchange(ctx, b.chain.Leaf().ID))
	}
	err = errors.Join(err, log.Delegations(ctx, func(led *Ledger) {
		for b := range l.calls {
			why[b] = led.stands(b.chain, now)
		}
	}))
	for b := range l.calls {
		against := why[b]
		if err != nil {
			against = unproven
		}
		if against != nil {
			b.cancel(&call.Stop{Why: *against})
			ended++
		}
	}
	return ended
}

// Delegate creates a delegation below that of a token which its principal names; an empty token: at the root, of the
// principal's own authority. It returns the new token, or the reason and line that bound the request. The record is on
// the disk when it returns.
func (s *Service) Delegate(ctx context.Context, above string, by call.Principal, r Request) (
	token string, link Link, against *call.Reason, err error,
) {
	now := s.Now().UTC().Truncate(time.Millisecond)
	expires := now.Add(r.Lifetime)
	if against = r.fault(); against != nil {
		return "", link, against, nil
	}
	var up *Chain
	if above != "" || s.Base.ID != "" {
		var under []string
		if s.Base.ID != "" {
			under = []string{s.Base.ID}
		}
		if up, against = s.find(ctx, above, call.Proof{}, by, under); against != nil {
			return "", link, against, nil
		}
		parent := up.Leaf()
		if against = parent.within(r, expires); against != nil {
			return "", link, against, nil
		}
		by = parent.For
	}
	if against = s.held(by, r); against != nil {
		return "", link, against, nil
	}
	return s.create(ctx, up, by, r, now)
}

// Inherit creates a delegation for a sub-agent that waldo itself starts: all of the last of the delegations under which
// its task came, or of the principal's own authority. Only its calls, its lifetime and its depth are less.
func (s *Service) Inherit(ctx context.Context, by call.Principal, under []string, to call.Principal) (
	link Link, against *call.Reason, err error,
) {
	now := s.Now().UTC().Truncate(time.Millisecond)
	r := Request{Bounds: Bounds{Allow: []contract.Pattern{All}, Hosts: []string{All}, Secrets: []string{All}, Danger: 3,
		Calls: inheritedCalls}, Lifetime: inheritedTime, For: to}
	var up *Chain
	if s.Base.ID != "" {
		under = append([]string{s.Base.ID}, under...)
	}
	if len(under) > 0 {
		if up, against = s.find(ctx, "", call.Proof{}, by, under); against != nil {
			return link, against, nil
		}
		parent := up.Leaf()
		if parent.For != by {
			return link, &call.Reason{Code: "delegation.principal", Text: parent.ID + " belongs to another principal"}, nil
		}
		r.Allow, r.Hosts, r.Secrets, r.Danger = parent.Allow, parent.Hosts, parent.Secrets, parent.Danger
		r.Calls, r.Lifetime = min(r.Calls, parent.Calls), min(r.Lifetime, parent.Expires.Sub(now))
		if against = parent.within(r, now.Add(r.Lifetime)); against != nil {
			return link, against, nil
		}
	}
	_, link, against, err = s.create(ctx, up, by, r, now)
	return link, against, err
}

// The bounds of what a sub-agent inherits.
const (
	inheritedCalls = 1000
	inheritedTime  = 7 * 24 * time.Hour
)

// create writes the record of a delegation below up, or at the root.
func (s *Service) create(ctx context.Context, up *Chain, by call.Principal, r Request, now time.Time) (
	token string, link Link, against *call.Reason, err error,
) {
	expires := now.Add(r.Lifetime)
	rec := Record{Action: Created, ID: id.New(id.Delegation), By: by, For: r.For, Key: r.Key, Bounds: &r.Bounds, Created: now, Expires: expires}
	if up != nil {
		rec.Parent = up.Leaf().ID
	}
	token = newToken(rec.ID)
	rec.Token = digestOf(token)
	if err = s.Log.Delegate(ctx, rec); err != nil {
		return "", link, nil, err
	}
	held := call.Proof{Key: r.Key, Token: tokenHash(token)}
	chain, against := s.find(ctx, token, held, r.For, nil) // as the log has it now: a parent can have ended meanwhile
	if against != nil {
		return "", link, against, nil
	}
	return token, chain.Leaf(), nil, nil
}

// held returns the line of the configuration that keeps the delegating principal itself from what it hands down.
func (s *Service) held(by call.Principal, r Request) *call.Reason {
	for _, p := range r.Allow {
		if p.Exact() {
			if why := s.Policy.Against(call.Capability(p), by); why != nil {
				why.Text = fmt.Sprintf("allow %q: %s", p, why.Text)
				return why
			}
		} else if !s.Policy.Meets(p) {
			return &call.Reason{Code: "contract.absent", Text: fmt.Sprintf("allow %q: no contract names such a capability", p)}
		}
	}
	return nil
}

// ErrAbsent is returned for an id that the log does not have.
var ErrAbsent = errors.New("delegation: the log has none of this id")

// Revoke ends a delegation and all below it. The record is on the disk when it returns. It returns the ids that
// ended. before is true where it was revoked already; then it writes no record.
func Revoke(ctx context.Context, log Shared, top string, by call.Principal) (ended []string, before bool, err error) {
	away := log.Exchange(ctx, top) // it ends here, also where the others cannot learn of it
	err = log.Delegations(ctx, func(l *Ledger) {
		ended = l.Below(top)
		before = l.links[top] != nil && l.links[top].Revoked
	})
	switch {
	case err != nil || before:
	case len(ended) == 0:
		err = ErrAbsent
	default:
		err = log.Delegate(ctx, Record{Action: Revoked, ID: top, By: by})
	}
	return ended, before, errors.Join(err, away)
}
