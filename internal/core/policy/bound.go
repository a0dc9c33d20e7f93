package policy

import (
	"maps"
	"net/url"
	"slices"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// Bound is a condition that is added to calls from outside of their contracts. Use NewBound.
type Bound struct{ c *condition }

// NewBound compiles a condition, a CEL expression as in approval.
func NewBound(source string) (Bound, error) {
	c, err := compile(contract.Condition{Source: source})
	return Bound{c}, err
}

// Holds evaluates a condition over a decided call. It returns an error where it could not be evaluated.
func (p *Policy) Holds(b Bound, d Decision) (bool, error) {
	return b.c.holds(&variables{call: &d.Call, environment: p.cfg.Environment, danger: d.Danger})
}

// Uses is what a call can touch by its contract.
type Uses struct {
	Secrets []string // names, or places
	Hosts   []string // lines of egress
	Open    bool     // it reaches hosts that no line names
	Fixed   bool     // a server reaches them: no call can narrow that
}

// Uses returns what a decided call can touch: what its contract gives to it, and what its server has.
func (p *Policy) Uses(d Decision) (u Uses) {
	k := d.Contract
	for _, ref := range k.Secrets {
		u.Secrets = append(u.Secrets, string(ref))
	}
	if _, file := contract.SQLiteFile(k.Database); k.Database != "" && !file {
		u.Secrets = append(u.Secrets, k.Database)
	}
	u.Hosts = k.Network.Allow
	u.Open = k.Network.Internal || len(k.Network.Packages) > 0 || k.Network.Unheld || k.Network.Public
	if s, ok := p.cfg.Servers[k.Server]; ok && k.Transport != contract.SandboxedExec && k.Transport != contract.Direct {
		u.Fixed = true
		u.Hosts = slices.Clone(u.Hosts)
		if at, err := url.Parse(s.URL); s.URL != "" && err == nil {
			u.Hosts = append(u.Hosts, at.Hostname())
		} else if s.URL != "" {
			u.Open = true
		}
		u.Secrets = append(u.Secrets, secretsOf(s)...)
	}
	slices.Sort(u.Secrets)
	u.Secrets = slices.Compact(u.Secrets)
	return u
}

// secretsOf names the secrets that a server is given. The token of a login has the name login:SERVER.
func secretsOf(s contract.Server) (out []string) {
	refs := append(slices.Collect(maps.Values(s.Secrets)), s.Auth.Bearer)
	refs = append(refs, slices.Collect(maps.Values(s.Auth.Headers))...)
	if o := s.Auth.OAuth; o != nil {
		refs = append(refs, o.Secret, o.Key)
		out = append(out, "login:"+s.Name)
	}
	for _, ref := range refs {
		if ref != "" {
			out = append(out, string(ref))
		}
	}
	return out
}

// Against returns why a principal cannot use a capability, for any arguments; nil: it can.
func (p *Policy) Against(name call.Capability, who call.Principal) *call.Reason {
	d := p.decide(call.Call{Capability: name, Principal: who}, true)
	if d.Effect != Deny || len(d.Reasons) == 0 {
		return nil
	}
	return &d.Reasons[0]
}

// Meets reports whether a contract can match a name that the pattern matches.
func (p *Policy) Meets(q contract.Pattern) bool {
	return slices.ContainsFunc(p.cfg.Contracts, func(c contract.Contract) bool {
		return contract.Pattern(c.Pattern).Meets(q)
	})
}

// Join returns the stricter of two decisions on one call. The call stays that of d. The reason is added if the other one
// is stricter.
func Join(d, other Decision, why call.Reason) Decision {
	if !stricter(other, d) {
		return d
	}
	other.Call = d.Call
	other.Danger = max(d.Danger, other.Danger)
	other.Contract.Confirm = d.Contract.Confirm || other.Contract.Confirm
	other.Contract.Witness = d.Contract.Witness || other.Contract.Witness
	other.Once, other.Writes = d.Once || other.Once, d.Writes || other.Writes
	other.Reasons = append(other.Reasons[:len(other.Reasons):len(other.Reasons)], why)
	return other
}
