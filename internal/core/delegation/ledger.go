// Package delegation holds a call to the authority that was handed down to its caller. A delegation is a record of the
// log, below another or at the root. It only narrows what the contracts allow.
package delegation

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// The actions of a Record.
const (
	Created = "create"
	Revoked = "revoke"
)

// Record is the body of a record of the log about a delegation. It holds the digest of the token, not the token.
type Record struct {
	Action  string         `json:"action"`
	ID      string         `json:"id"`               // "dg_…"
	Parent  string         `json:"parent,omitempty"` // the delegation above it; empty: it is at the root
	By      call.Principal `json:"by"`               // whose authority it is, or who revokes
	For     call.Principal `json:"for,omitempty"`    // who can use it
	Key     string         `json:"key,omitempty"`    // thumbprint of the key whose proof each use needs; empty: none
	Token   string         `json:"token,omitempty"`  // "sha256:…"
	Bounds  *Bounds        `json:"bounds,omitempty"`
	Created time.Time      `json:"created,omitzero"`
	Expires time.Time      `json:"expires,omitzero"`
	From    string         `json:"from,omitempty"` // the state directory of the replica that recorded it first; empty: this one
}

// Link is one delegation as the log has it.
type Link struct {
	Bounds
	ID, Parent string
	By, For    call.Principal
	Key        string // thumbprint; empty: its token is bound to the principal alone
	Created    time.Time
	Expires    time.Time
	Seq        uint64 // the number of its record
	Revoked    bool
	Used       int // calls of the tree below it, itself included

	digest string
	conds  func() ([]policy.Bound, error)
}

// Chain is a delegation with those above it, the root first. It is a copy: later records do not change it.
type Chain struct {
	Links   []Link
	counted bool // its call, at all replicas
}

// IDs returns the ids, the root first; nil for no chain.
func (c *Chain) IDs() (out []string) {
	if c == nil {
		return nil
	}
	for _, l := range c.Links {
		out = append(out, l.ID)
	}
	return out
}

// Leaf is the last delegation, which the caller holds.
func (c *Chain) Leaf() Link { return c.Links[len(c.Links)-1] }

// Ledger is the state of delegations as the log records it, read record by record. The zero Ledger is empty.
type Ledger struct {
	links  map[string]*entry
	newest time.Time // of the records
}

type entry struct {
	Link
	made    Record
	end     *Record
	counted map[string]int // decision to its number among the calls; those within the budget, and a few more
}

// beyond is how many decisions over the budget a ledger remembers, so that each is found to be over it.
const beyond = 64

// Seen notes the time of a record. The clock of a Ledger is never before it.
func (l *Ledger) Seen(at time.Time) {
	if at.After(l.newest) {
		l.newest = at
	}
}

// now is the clock, or the time of the newest record if the clock was put back.
func (l *Ledger) now(clock time.Time) time.Time {
	if l.newest.After(clock) {
		return l.newest
	}
	return clock
}

// Take takes in a record. The error names what is wrong with it; a record that is wrong changes nothing. A record that
// is repeated restores nothing.
func (l *Ledger) Take(seq uint64, r Record) error {
	e := l.links[r.ID]
	switch r.Action {
	case Revoked:
		if e == nil {
			return fmt.Errorf("%w: record %d revokes %.40q", ErrAbsent, seq, r.ID)
		}
		e.Revoked, e.end = true, &r
		return nil
	case Created:
	default:
		return fmt.Errorf("delegation: record %d has the unknown action %.40q", seq, r.Action)
	}
	if e != nil && r.From != "" && r.From == e.made.From && r.Token == e.digest {
		return nil // two processes took it at once
	}
	if e != nil {
		return fmt.Errorf("delegation: record %d creates %s again", seq, r.ID)
	}
	e, err := l.sound(seq, r)
	if err != nil {
		return err
	}
	if l.links == nil {
		l.links = map[string]*entry{}
	}
	l.links[r.ID] = e
	return nil
}

// sound returns what a record creates, or what is wrong with it.
func (l *Ledger) sound(seq uint64, r Record) (*entry, error) {
	q := Request{Lifetime: r.Expires.Sub(r.Created), For: r.For, Key: r.Key}
	if r.Bounds != nil {
		q.Bounds = *r.Bounds
	}
	why := q.fault()
	if !id.Is(id.Delegation, r.ID) || r.By == "" || r.Token == "" || r.Action != Created {
		why = malformed("id, by and token are needed")
	}
	if r.Parent != "" && why == nil {
		up := l.links[r.Parent]
		if up == nil {
			return nil, fmt.Errorf("%w: record %d has the parent %.40q", ErrAbsent, seq, r.Parent)
		}
		if why = up.within(q, r.Expires); why == nil && r.By != up.For {
			why = &call.Reason{Code: "delegation.principal", Text: "its parent belongs to another principal"}
		}
	}
	if why != nil {
		return nil, fmt.Errorf("delegation: record %d: %s: %s", seq, why.Code, why.Text)
	}
	link := Link{Bounds: q.Bounds, ID: r.ID, Parent: r.Parent, By: r.By, For: r.For, Key: r.Key, Created: r.Created, Expires: r.Expires,
		Seq: seq, digest: r.Token}
	sources := link.If
	link.conds = sync.OnceValues(func() (out []policy.Bound, err error) {
		for _, s := range sources {
			b, err := policy.NewBound(s)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
		return out, nil
	})
	return &entry{Link: link, made: r, counted: map[string]int{}}, nil
}

// Decided counts a recorded decision that does not deny against its delegations.
func (l *Ledger) Decided(decision string, chain []string) {
	for _, n := range chain {
		e := l.links[n]
		if e == nil || e.counted[decision] > 0 {
			continue
		}
		e.Used++
		if e.Used <= e.Calls+beyond {
			e.counted[decision] = e.Used
		}
	}
}

// chain returns a delegation with those above it.
func (l *Ledger) chain(leaf string) (*Chain, *call.Reason) {
	c := &Chain{}
	for n := leaf; n != ""; n = c.Links[len(c.Links)-1].Parent {
		e := l.links[n]
		if e == nil {
			return nil, &call.Reason{Code: "delegation.absent", Text: "the log has no delegation of this id"}
		}
		c.Links = append(c.Links, e.Link) // it ends: a record names an earlier one as its parent
	}
	slices.Reverse(c.Links)
	return c, nil
}

// stands returns why a chain cannot be used now: one of it is revoked or past its end.
func (l *Ledger) stands(c *Chain, clock time.Time) *call.Reason {
	now := l.now(clock)
	for _, one := range c.IDs() {
		e := l.links[one]
		switch {
		case e == nil:
			return &call.Reason{Code: "delegation.absent", Text: "the log has no delegation of this id"}
		case e.Revoked:
			return &call.Reason{Code: CodeRevoked, Text: one + " was revoked"}
		case !now.Before(e.Expires):
			return expired(e.Link)
		}
	}
	return nil
}

// The codes of calls that were under way when their delegation ended.
const (
	CodeRevoked = call.DelegationRevoked
	CodeExpired = call.DelegationExpired
)

func expired(l Link) *call.Reason {
	return &call.Reason{Code: CodeExpired, Text: l.ID + " ended at " + l.Expires.UTC().Format(time.RFC3339)}
}

// spent returns the delegation of a chain whose calls are used up.
func (l *Ledger) spent(c *Chain) *call.Reason {
	for _, one := range c.Links {
		if one.Used >= one.Calls {
			return overspent(one)
		}
	}
	return nil
}

func overspent(l Link) *call.Reason {
	return &call.Reason{Code: "delegation.budget", Text: fmt.Sprintf("%s has spent its %d calls", l.ID, l.Calls)}
}

// confirm returns why a recorded decision cannot be carried out: by the order of the log it is beyond the budget of one
// of its delegations, or one has ended since.
func (l *Ledger) confirm(c *Chain, decision string, clock time.Time) *call.Reason {
	if why := l.stands(c, clock); why != nil {
		return why
	}
	for _, one := range c.Links {
		if n := l.links[one.ID].counted[decision]; n == 0 || n > one.Calls {
			return overspent(one)
		}
	}
	return nil
}

// Below returns the ids of a delegation and of all below it.
func (l *Ledger) Below(top string) (out []string) {
	for n := range l.links {
		if c, why := l.chain(n); why == nil && slices.Contains(c.IDs(), top) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// All returns every delegation, the oldest first, and why each cannot be used now; nil: it can.
func (l *Ledger) All(clock time.Time) (out []Link, ended []*call.Reason) {
	for _, e := range l.links {
		out = append(out, e.Link)
	}
	slices.SortFunc(out, func(a, b Link) int { return int(a.Seq) - int(b.Seq) })
	for _, one := range out {
		c, why := l.chain(one.ID)
		if why == nil {
			why = l.stands(c, clock)
		}
		if why == nil {
			why = l.spent(c)
		}
		ended = append(ended, why)
	}
	return out, ended
}
