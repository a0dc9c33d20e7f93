package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// Machine lists the abilities of this machine and deployment. A missing ability is absent: a contract that needs it
// is denied.
type Machine struct {
	Isolations map[string]bool             // levels that a driver has proven here, such as namespace
	Transports map[contract.Transport]bool // for which there is an executor
	Secrets    map[string]bool             // stored secrets, by name
	// Judge weighs a call of waldo's own tools by its arguments and contract, without I/O. A danger over the contract's
	// raises it; danger 0 with a reason refuses the call. Nil: arguments count by the contract's rules alone.
	Judge func(c call.Call, k contract.Contract) (danger int, why *call.Reason)
	// Annotations returns what a server says of its own tool, as the operator accepted it; false where that
	// is not recorded. Examples are decided with it. Nil: nothing is recorded.
	Annotations func(server, tool string) (strictjson.Value, bool)
	// Pinned reports whether the operator accepted a server's tools: those that it has beside them are denied.
	Pinned func(server string) bool
}

// Policy is all contracts of one configuration, compiled. It never changes; a new configuration
// is a new Policy.
type Policy struct {
	cfg      *contract.Config
	machine  Machine
	ideal    bool // judge as on a machine that has everything, as examples are
	digest   string
	exact    map[string][]*entry // one each
	patterns []*entry            // in the order of the file
	renamed  []*entry            // those that say server or tool, in the order of the file
}

// entry is one contract, compiled.
type entry struct {
	contract contract.Contract
	order    int        // in the file
	approval *condition // with contract.If
	rules    []*condition
}

// New compiles a configuration. The error is a contract.Problems: conditions that are not CEL, waldo's own names for
// tools of servers, and examples with another decision. The caller must not change cfg afterwards.
func New(cfg *contract.Config, m Machine) (*Policy, error) {
	p := &Policy{cfg: cfg, machine: m, exact: map[string][]*entry{}}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("policy: digest of the configuration: %w", err)
	}
	if text, err = oneSpelling(text, cfg.File); err != nil {
		return nil, fmt.Errorf("policy: digest of the configuration: %w", err)
	}
	p.digest = strictjson.Digest(text)
	forAll, problems := newEntry(contract.Contract{Rules: cfg.Rules}, 0)
	for i, c := range cfg.Contracts {
		e, wrong := newEntry(c, i)
		problems = append(problems, wrong...)
		e.contract.Rules = slices.Concat(e.contract.Rules, cfg.Rules)
		e.rules = append(e.rules, forAll.rules...)
		if c.Server != "" || c.Tool != "" {
			p.renamed = append(p.renamed, e)
		}
		if contract.Pattern(c.Pattern).Exact() {
			p.exact[c.Pattern] = []*entry{e}
		} else {
			p.patterns = append(p.patterns, e)
		}
	}
	problems = append(problems, p.own()...)
	problems = append(problems, p.after()...)
	if len(problems) == 0 {
		problems = p.examples(false)
	}
	if len(problems) > 0 {
		problems.Sort()
		return nil, problems
	}
	return p, nil
}

// oneSpelling makes the file of positions absolute: one file has one digest, by whatever path it is named.
func oneSpelling(text []byte, file string) ([]byte, error) {
	if file == "" {
		return text, nil
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	typed, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	whole, err := json.Marshal(abs)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{`"file":`, `"File":`} {
		text = bytes.ReplaceAll(text, append([]byte(key), typed...), append([]byte(key), whole...))
	}
	return text, nil
}

func newEntry(c contract.Contract, order int) (*entry, contract.Problems) {
	e := &entry{contract: c, order: order}
	var problems contract.Problems
	add := func(when contract.Condition) *condition {
		compiled, err := compile(when)
		if err != nil {
			problems = append(problems, contract.Problem{At: when.At, Code: "condition.invalid", Text: err.Error(),
				Hint: "a condition is a CEL expression over args, capability, principal, session, channel, environment, " +
					"danger and depth"})
		}
		return compiled
	}
	if c.Approval.When == contract.If {
		if c.Approval.Condition == nil {
			return e, contract.Problems{{At: c.At, Code: "condition.invalid", Text: "approval has no condition"}}
		}
		e.approval = add(*c.Approval.Condition)
	}
	for _, r := range c.Rules {
		e.rules = append(e.rules, add(r.When))
	}
	return e, problems
}

// own refuses to give a name of waldo's own to a tool of a server: who asks for it would not reach what is shown.
func (p *Policy) own() (problems contract.Problems) {
	seen := map[*entry]bool{}
	for _, name := range contract.Own() {
		for _, e := range p.winners(name) {
			c := e.contract.Resolve(name, p.cfg)
			if seen[e] || c.Tool == "" || c.Server == "" && e.contract.Tool == "" { // without a server all is denied
				continue
			}
			seen[e] = true
			at, ok := c.Keys["server"]
			if !ok {
				at = c.Keys["tool"]
			}
			problems = append(problems, contract.Problem{At: at, Code: "name.own",
				Text: "this gives " + name + ", which is waldo's own, to a tool of a server",
				Hint: "give the server's tool a name with a dot, as in SERVER.TOOL, and " + name + " an entry of its own"})
		}
	}
	return problems
}

// CheckExamples compares every example with the decision of its call, including servers' annotations. New accepts an
// example that holds with or without them, so that a lock never keeps waldo from starting.
func (p *Policy) CheckExamples() contract.Problems { return p.examples(true) }

// examples decides every example as on a machine that has everything, so that what a contract says
// does not hang on where it is checked.
func (p *Policy) examples(exact bool) contract.Problems {
	ideal := *p
	ideal.ideal = true
	var problems contract.Problems
	for _, c := range p.cfg.Contracts {
		for _, x := range c.Examples {
			args := x.Args
			if args == nil {
				args = map[string]any{}
			}
			a, err := call.ArgsOf(args)
			if err != nil {
				problems = append(problems, contract.Problem{At: x.At, Code: "example.args", Text: err.Error()})
				continue
			}
			alone := ideal.Decide(call.Call{Capability: call.Capability(x.Capability), Args: a, Channel: "example"})
			d, known := ideal.annotated(alone)
			fits := d.Effect.String() == x.Expect || !exact && alone.Effect.String() == x.Expect ||
				!exact && !known && alone.Effect == Allow && x.Expect == Ask.String()
			switch {
			case d.Contract.At != c.At:
				problems = append(problems, contract.Problem{At: x.At, Code: "example.elsewhere",
					Text: fmt.Sprintf("the example calls %s, which the entry %q on line %d decides", x.Capability, d.Contract.Pattern,
						d.Contract.At.Line)})
			case !fits:
				hint := ""
				if !known {
					hint = "what the server says of this tool is not in waldo.lock: it counts once the tool is locked"
				}
				problems = append(problems, contract.Problem{At: x.At, Code: "example.failed", Hint: hint,
					Text: fmt.Sprintf("the example expects %s, and the decision is %s: %s", x.Expect, d.Effect, d.Reasons[0].Code)})
			}
		}
	}
	return problems
}

// Digest returns the SHA-256 of the configuration in force, flags and defaults included.
func (p *Policy) Digest() string { return p.digest }
