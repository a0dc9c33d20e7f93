// Package threatmodel writes the threat model of a deployment from its own contracts: what can be reached by whom, which
// line guards it, and what is left.
package threatmodel

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
)

// Fact is one thing that a deployment lets somebody do, or with "!" one that it refuses. One more permission is a wider
// reach, one more refusal a narrower.
type Fact struct {
	Who    string            `json:"who"` // server NAME, or a pattern of capabilities
	What   string            `json:"what"`
	Object string            `json:"object,omitempty"` // a host, a path, a secret
	At     contract.Position `json:"at"`
}

// String is the line of a fact in a committed threat model.
func (f Fact) String() string {
	return strings.TrimSpace(display.ASCII(f.Who + ": " + f.What + " " + f.Object))
}

// What a fact can say.
const (
	called   = "can be called"
	unasked  = "can be called without a question"
	careless = "needs no more care than danger"
	refuses  = "! refuses"
	careful  = "! needs the care of danger"
	outside  = "runs outside of every sandbox"
	connects = "reaches"
	reads    = "reads"
	writes   = "writes"
	holds    = "uses the secret"
	reveals  = "sees the secret itself"
	queries  = "queries"
	denies   = "! is denied"
	rest     = "has the other settings" // by digests: a change of one can be wider
)

// Reach returns every fact of a configuration, sorted.
func Reach(cfg *contract.Config) []Fact {
	r := &reach{cfg: cfg}
	for _, c := range cfg.Contracts {
		if c.Denied {
			r.add(c.At, c.Pattern, denies, "")
		} else {
			c.Rules = slices.Concat(c.Rules, cfg.Rules)
			r.contract(c.Resolve(c.Pattern, cfg))
			r.add(c.At, c.Pattern, rest, restOfContract(c))
		}
	}
	r.add(contract.Position{File: cfg.File}, "all", rest, restOfAll(*cfg))
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		r.server(cfg.Servers[name])
	}
	slices.SortStableFunc(r.facts, func(a, b Fact) int { return cmp.Compare(a.String(), b.String()) })
	return slices.CompactFunc(r.facts, func(a, b Fact) bool { return a.String() == b.String() })
}

type reach struct {
	cfg   *contract.Config
	facts []Fact
}

func (r *reach) add(at contract.Position, who, what, object string) {
	r.facts = append(r.facts, Fact{who, what, object, at})
}

func (r *reach) contract(c contract.Contract) {
	who := c.Pattern
	r.add(c.At, who, called, "")
	for level := c.Danger; level < 3; level++ { // less care is a wider reach
		r.add(c.At, who, careless, fmt.Sprint(level))
	}
	for _, rule := range c.Rules {
		if rule.Deny {
			r.add(rule.When.At, who, refuses, "calls where "+rule.When.Source)
		} else {
			r.add(rule.When.At, who, careful, fmt.Sprintf("%d where %s", rule.Danger, rule.When.Source))
		}
	}
	switch c.Approval.When {
	case contract.Never:
		r.add(c.At, who, unasked, "")
	case contract.If:
		r.add(c.Approval.At, who, unasked, "unless "+c.Approval.Condition.Source)
	}
	if c.Transport == contract.MCP { // its server has the rest
		return
	}
	r.network(c.At, who, c.Network)
	r.secrets(c.At, who, c.Secrets, c.Reveal)
	if c.Input != "" {
		r.add(c.At, who, reads, beside(c.At, c.Input))
	}
	if c.Root != "" {
		r.folder(c.At, who, beside(c.At, c.Root), c.Mode != contract.Read || r.changes(c))
	}
	r.mounts(c.At, who, c.Mounts)
	if c.Database != "" {
		r.add(c.At, who, queries, string(c.Database))
	}
}

// changes reports whether a contract decides about a tool of waldo's own that is more than reading, whatever its mode.
func (r *reach) changes(c contract.Contract) bool {
	return slices.ContainsFunc(contract.OwnTools(), func(tool string) bool {
		mode, own := c.OwnMode(tool)
		return own && mode != contract.Read && contract.Pattern(c.Pattern).Match(tool) &&
			!slices.ContainsFunc(r.cfg.Contracts, func(o contract.Contract) bool {
				p := contract.Pattern(o.Pattern)
				return p.Match(tool) && p.Beats(contract.Pattern(c.Pattern))
			})
	})
}

func (r *reach) server(s contract.Server) {
	who := "server " + s.Name
	r.add(s.At, who, rest, restOfServer(s))
	if s.Placement == "outside" && s.URL == "" {
		r.add(s.At, who, outside, "")
	}
	if s.URL != "" {
		r.add(s.At, who, connects, s.URL)
	}
	r.network(s.At, who, s.Network)
	r.secrets(s.At, who, s.Secrets, slices.Collect(maps.Keys(s.Secrets)))
	if s.Auth.Bearer != "" {
		r.add(s.At, who, holds, string(s.Auth.Bearer))
	}
	for _, h := range slices.Sorted(maps.Keys(s.Auth.Headers)) {
		r.add(s.At, who, holds, string(s.Auth.Headers[h]))
	}
	if s.Input != "" {
		r.add(s.At, who, reads, beside(s.At, s.Input))
	}
	r.mounts(s.At, who, s.Mounts)
}

func (r *reach) network(at contract.Position, who string, n contract.Network) {
	for _, host := range n.Allow {
		r.add(at, who, connects, host)
	}
	if n.Internal {
		r.add(at, who, connects, "addresses of the own network")
	}
	for _, m := range slices.Sorted(maps.Keys(n.Packages)) {
		r.add(at, who, connects, "the registry of "+m)
	}
}

func (r *reach) secrets(at contract.Position, who string, all map[string]secret.Ref, shown []string) {
	for _, slot := range slices.Sorted(maps.Keys(all)) {
		r.add(at, who, holds, string(all[slot]))
		if slices.Contains(shown, slot) {
			r.add(at, who, reveals, string(all[slot]))
		}
	}
}

func (r *reach) mounts(at contract.Position, who string, all []contract.Mount) {
	for _, m := range all {
		r.folder(at, who, beside(at, m.From), m.Writable)
	}
}

func (r *reach) folder(at contract.Position, who, path string, writable bool) {
	r.add(at, who, reads, path)
	if writable {
		r.add(at, who, writes, path)
	}
}

// beside names a path from the folder of its configuration where it is below it, so that a committed threat model holds
// in each checkout; other paths are whole.
func beside(at contract.Position, path string) string {
	whole, err := at.Beside(path)
	if err != nil {
		return path
	}
	folder, err := filepath.Abs(filepath.Dir(at.File))
	if err != nil {
		return whole
	}
	if below, err := filepath.Rel(folder, whole); err == nil && filepath.IsLocal(below) {
		return strings.TrimSuffix("./"+filepath.ToSlash(below), ".")
	}
	return whole
}

// Change is a fact that one of two threat models has alone.
type Change struct {
	Fact string            `json:"fact"`
	At   contract.Position `json:"at"` // of a wider reach; without a line: the file as a whole
}

// Compare returns what is wider and what is narrower than the committed facts.
func Compare(committed []string, now []Fact) (wider []Change, narrower []string) {
	have := map[string]bool{}
	now = slices.Concat(now, inherited(committed, now))
	for _, f := range now {
		have[f.String()] = true
		switch {
		case slices.Contains(committed, f.String()):
		case restricts(f.String()):
			narrower = append(narrower, "also "+f.String())
		case f.What == rest: // a change that is not known counts as wider
			wider = append(wider, Change{f.Who + ": " + rest + " " + differing(restOf(committed, f.Who), f.Object), f.At})
		default:
			wider = append(wider, Change{f.String(), f.At})
		}
	}
	for _, c := range committed {
		switch {
		case have[c] || strings.Contains(c, ": "+rest+" "): // the new settings are listed
		case restricts(c):
			wider = append(wider, Change{"no longer " + c, placeOf(now, c)})
		default:
			narrower = append(narrower, "no longer "+c)
		}
	}
	return wider, narrower
}

// restOf returns the digests of a subject's other settings.
func restOf(committed []string, who string) string {
	for _, c := range committed {
		if digests, is := strings.CutPrefix(c, display.ASCII(who)+": "+rest+" "); is {
			return digests
		}
	}
	return ""
}

// inherited returns what the names of each contract that is gone get from the contracts which can decide about them now.
// Their refusals count only where one decides about all.
func inherited(committed []string, now []Fact) (all []Fact) {
	for _, c := range committed {
		gone, was := strings.CutSuffix(c, ": "+called)
		if !was || slices.ContainsFunc(now, func(f Fact) bool { return f.Who == gone }) {
			continue
		}
		q, some := contract.Pattern(gone), []contract.Pattern(nil)
		for _, f := range now {
			p := contract.Pattern(f.Who)
			if (f.What == called || f.What == denies) && !p.Beats(q) && (p.Covers(q) || !p.Exact() && !q.Exact() && p.Meets(q)) {
				some = append(some, p)
			}
		}
		for _, f := range now {
			p := contract.Pattern(f.Who)
			beaten := slices.ContainsFunc(some, func(o contract.Pattern) bool { return o.Covers(q) && o.Beats(p) })
			if slices.Contains(some, p) && !beaten && (len(some) == 1 && p.Covers(q) || !restricts(f.String())) {
				all = append(all, Fact{gone, f.What, f.Object, f.At})
			}
		}
	}
	return all
}

// placeOf returns the place of a subject whose refusal was committed and is gone: its own first line, else the file.
func placeOf(now []Fact, gone string) (at contract.Position) {
	for _, f := range now {
		own := strings.HasPrefix(gone, f.Who+": ")
		if f.Who == "all" && at.Line == 0 || own && (at.Line == 0 || f.At.Line < at.Line) {
			at = f.At
		}
	}
	return at
}

// words says a fact, or that one is gone, without the marks of the list.
func words(fact string) string {
	if who, names, is := strings.Cut(fact, ": "+rest+" "); is {
		return who + ": the settings have changed of " + names
	}
	return strings.Replace(fact, ": ! ", ": ", 1)
}

func restricts(fact string) bool { return strings.Contains(fact, ": ! ") }

// fence begins and ends the committed facts in a document.
const fence = "```"

// Committed returns the facts of a committed threat model; false: the document has none.
func Committed(doc string) (facts []string, ok bool) {
	_, rest, ok := strings.Cut(doc, fence+"reach\n")
	if !ok {
		return nil, false
	}
	block, _, ok := strings.Cut(rest, "\n"+fence)
	if strings.TrimSpace(block) == "" {
		return nil, ok
	}
	return strings.Split(block, "\n"), ok
}
