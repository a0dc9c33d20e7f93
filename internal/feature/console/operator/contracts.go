package operator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"waldo/internal/config"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

// Contracts satisfies site.Backend.
func (p *Operator) Contracts(context.Context) (site.List[site.Contract], error) {
	out := site.List[site.Contract]{Items: []site.Contract{}}
	cfg := p.o.Waldo.Config()
	source := lines(cfg)
	for _, c := range cfg.Contracts {
		one := site.Contract{
			Pattern: c.Pattern, Denied: c.Denied, BuiltIn: c.BuiltIn, File: c.At.File, Line: c.At.Line, Text: excerpt(source, c.At),
		}
		if !c.Denied {
			full := c
			if contract.Pattern(c.Pattern).Exact() {
				full = c.Resolve(c.Pattern, cfg)
			}
			one.Transport, one.Mode, one.Danger, one.Isolation = string(full.Transport), c.Mode.String(), c.Danger, c.Isolation
			one.Server, one.Approval, one.Rules = full.Server, asks(c.Approval), len(c.Rules)
			first, _, _ := strings.Cut(c.Pattern, ".")
			name := cmp.Or(full.Server, first)
			if s, is := cfg.Servers[name]; is { // it runs where its placement says, whatever the class
				one.Server, one.Transport, one.Isolation = name, cmp.Or(one.Transport, string(contract.MCP)), placed(s)
			}
			one.Network = reaches(full.Network)
		}
		out.Items = append(out.Items, one)
	}
	return out, nil
}

// placed says where a server runs.
func placed(s contract.Server) string {
	switch {
	case s.Placement == "outside":
		return "in no sandbox"
	case s.URL != "":
		return "elsewhere"
	case len(s.Command) > 0:
		return s.Isolation
	}
	return "" // a pattern of several servers, or none
}

// reaches says in words what a contract's network is.
func reaches(n contract.Network) string {
	if n.Unheld {
		return "not held: the server runs outside"
	}
	all := slices.Clone(n.Allow)
	if n.Internal {
		all = append(all, "internal_only")
	}
	for _, manager := range slices.Sorted(maps.Keys(n.Packages)) {
		all = append(all, "packages of "+manager)
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// asks says in words when a human is asked.
func asks(a contract.Approval) string {
	words := "always"
	switch a.When {
	case contract.Never:
		return "none"
	case contract.If:
		words = "when " + a.Condition.Source
	}
	if a.By != "" {
		words += ", by " + a.By
	}
	if a.Need > 1 {
		words += fmt.Sprintf(", %d approvers", a.Need)
	}
	return words
}

// lines returns the lines of the configuration in force; none if its file has changed since.
func lines(cfg *contract.Config) []string {
	if cfg.File == "" || cfg.Digest == "" {
		return nil
	}
	text, err := config.ReadFile(cfg.File)
	sum := sha256.Sum256(text)
	if err != nil || "sha256:"+hex.EncodeToString(sum[:]) != cfg.Digest {
		return nil
	}
	return strings.Split(string(text), "\n")
}

// Limits on the lines of a contract that are shown.
const (
	maxExcerpt = 40
	maxLine    = 500 // bytes
)

// excerpt returns the line at a position, and the lines below that belong to it.
func excerpt(source []string, at contract.Position) string {
	if at.Line < 1 || at.Line > len(source) {
		return ""
	}
	depth := func(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }
	first := source[at.Line-1]
	out := []string{display.Clip(first, maxLine)}
	for _, l := range source[at.Line:] {
		if strings.TrimSpace(l) != "" && depth(l) <= depth(first) || len(out) == maxExcerpt {
			break
		}
		out = append(out, display.Clip(l, maxLine))
	}
	return strings.TrimRight(strings.Join(out, "\n"), " \n")
}

// quoted returns for each reason the line of the configuration that it names; empty where that is not known, or is the
// line of the reason before.
func quoted(reasons []call.Reason, cfg *contract.Config) []string {
	source := lines(cfg)
	out := make([]string, len(reasons))
	for i, r := range reasons {
		if r.File == cfg.File && r.Line >= 1 && r.Line <= len(source) && (i == 0 || reasons[i-1].Line != r.Line) {
			out[i] = display.Clip(strings.TrimSpace(source[r.Line-1]), maxLine)
		}
	}
	return out
}

// DryRun satisfies site.Backend: the decision on a call that is not made and not recorded as one.
func (p *Operator) DryRun(_ context.Context, _ site.Who, d site.DryRun) (site.Decision, error) {
	a, err := call.ParseArgs(d.Args)
	if err != nil {
		return site.Decision{}, site.Problemf(http.StatusBadRequest, "args", "%v", err)
	}
	x := p.o.Waldo.Policy().Explain(call.Call{ID: id.New(id.Call), Capability: call.Capability(strings.TrimSpace(d.Capability)),
		Args: a, Channel: cmp.Or(d.Channel, "cli"), Principal: call.Principal(cmp.Or(d.Principal, p.o.Owner))})
	out := site.Decision{
		Effect: x.Effect.String(), Reasons: x.Reasons, Mode: x.Mode().String(), Danger: x.Danger, Pattern: x.Contract.Pattern,
		File: x.Contract.At.File, Line: x.Contract.At.Line, Role: x.Contract.Approval.By,
		Need: max(x.Contract.Approval.Need, 1),
	}
	out.Lines = quoted(x.Reasons, p.o.Waldo.Config())
	return out, nil
}

// Limits on comparisons.
const (
	whatIfSpan  = 24 * time.Hour
	maxWhatIf   = 20_000 // calls, the newest
	maxChanges  = 200    // groups of calls that are named
	maxExamples = 3      // calls of a group
)

// Current returns the text of the configuration in force; empty where its file has changed, or is absent.
func (p *Operator) Current(context.Context) (string, error) {
	return strings.Join(lines(p.o.Waldo.Config()), "\n"), nil
}

// WhatIf satisfies site.Backend. It decides the calls of the last day by the configuration in force and by a
// changed one. The log has arguments with secrets and personal data removed: a call whose decision depends on
// such an argument, by a condition of either configuration, is not compared.
func (p *Operator) WhatIf(ctx context.Context, text string) (site.WhatIf, error) {
	out := site.WhatIf{
		Problems: []string{}, Changes: []site.Change{}, Unjudged: []site.Unjudged{}, Since: time.Now().Add(-whatIfSpan),
	}
	if !p.whatIf.TryLock() {
		return out, site.Problemf(http.StatusTooManyRequests, "too_many", "another comparison is under way; try again")
	}
	defer p.whatIf.Unlock()
	changed, problems, err := p.o.Waldo.Compile([]byte(text))
	if err != nil {
		return out, err
	}
	for _, one := range problems {
		out.Problems = append(out.Problems, fmt.Sprintf("line %d: %s: %s", one.At.Line, one.Code, one.Text))
	}
	if len(problems) > 0 {
		return out, nil
	}
	c := comparison{now: p.o.Waldo.Policy(), then: changed, changes: map[string]*site.Change{},
		unjudged: map[string]*site.Unjudged{}}
	n, err := audit.Select(ctx, audit.Dir(p.o.Store.Dir()), audit.Selection{Since: out.Since, Last: maxWhatIf, Kind: audit.KindDecision}, c.add)
	if err != nil && !os.IsNotExist(err) {
		return out, err
	}
	out.Calls, out.Total, out.Same, out.Older = int(n.Shown), int(n.Matched), c.same, c.older
	for _, one := range c.changes {
		out.Changes = append(out.Changes, *one)
	}
	for _, one := range c.unjudged {
		out.Unjudged = append(out.Unjudged, *one)
	}
	slices.SortFunc(out.Changes, func(a, b site.Change) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Capability+a.Now+a.Then, b.Capability+b.Now+b.Then))
	})
	slices.SortFunc(out.Unjudged, func(a, b site.Unjudged) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Capability, b.Capability), slices.Compare(a.Fields, b.Fields))
	})
	for _, one := range out.Changes {
		out.Differ += one.Count
	}
	for _, one := range out.Unjudged {
		out.Unknown += one.Count
	}
	out.Changes = out.Changes[:min(len(out.Changes), maxChanges)]
	out.Unjudged = out.Unjudged[:min(len(out.Unjudged), maxChanges)]
	return out, nil
}

// comparison sums up the calls of a what-if.
type comparison struct {
	now, then   *policy.Policy
	same, older int
	changes     map[string]*site.Change
	unjudged    map[string]*site.Unjudged
}

// add compares one recorded decision.
func (c *comparison) add(r audit.Record) error {
	var d audit.Decided
	if json.Unmarshal(r.Body, &d) != nil || d.CallID == "" {
		c.doubt(d, "the record holds no call", nil)
		return nil
	}
	if d.DryRun {
		return nil
	}
	asked := call.Call{ID: d.CallID, Capability: call.Capability(d.Capability), Principal: call.Principal(d.Principal),
		Session: call.Session(d.Session), Channel: d.Channel, Parent: d.Parent, Depth: d.Depth}
	args, err := call.ParseArgs(d.Args)
	if err == nil {
		asked.Args = args
	}
	if (err != nil || args.Digest() != d.ArgsDigest) && // hidden, cut, or left out
		(c.now.ReadsArguments(asked.Capability) || c.then.ReadsArguments(asked.Capability)) {
		if err != nil || !masked.Match(d.Args) {
			c.doubt(d, "it depends on the arguments, and the log does not hold them", nil)
			return nil
		}
		fields := append(c.now.Undecided(asked, masked.MatchString), c.then.Undecided(asked, masked.MatchString)...)
		if slices.Sort(fields); len(fields) > 0 {
			c.doubt(d, "it depends on arguments that the log has redacted", slices.Compact(fields))
			return nil
		}
	}
	now, then := c.now.Explain(asked), c.then.Explain(asked)
	if d.Effect != now.Effect {
		c.older++
	}
	was, is := verdict(now), verdict(then)
	if was == is {
		c.same++
		return nil
	}
	key := d.Capability + "\x00" + was + "\x00" + is
	one := c.changes[key]
	if one == nil {
		one = &site.Change{Capability: d.Capability, Now: was, Then: is, Reasons: then.Reasons}
		c.changes[key] = one
	}
	one.Count++
	one.Examples = append(one.Examples, d.CallID)
	one.Examples = one.Examples[max(0, len(one.Examples)-maxExamples):]
	return nil
}

// verdict is the compared part of a decision.
func verdict(d policy.Decision) string {
	words := d.Effect.String()
	if d.Effect != policy.Ask {
		return words
	}
	if by := d.Contract.Approval.By; by != "" {
		words += ", by " + by
	}
	if d.Contract.Approval.Need > 1 {
		words += fmt.Sprintf(", %d approvers", d.Contract.Approval.Need)
	}
	return words
}

// masked matches each text that redaction has put in the place of another.
var masked = regexp.MustCompile(`\[[A-Z]`)

// doubt counts a call that cannot be compared, with the redacted arguments on which its decision depends.
func (c *comparison) doubt(d audit.Decided, why string, fields []string) {
	key := strings.Join(append([]string{d.Capability, why}, fields...), "\x00")
	one := c.unjudged[key]
	if one == nil {
		one = &site.Unjudged{Capability: d.Capability, Why: why, Fields: append([]string{}, fields...), Examples: []string{}}
		c.unjudged[key] = one
	}
	one.Count++
	if d.CallID != "" {
		one.Examples = append(one.Examples, d.CallID)
		one.Examples = one.Examples[max(0, len(one.Examples)-maxExamples):]
	}
}
