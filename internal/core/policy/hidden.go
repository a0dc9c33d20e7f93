package policy

import (
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"waldo/internal/model/call"
)

// Undecided returns the hidden arguments, as args.order, that a condition must know for the decision on a call; none if
// the decision is the same for all values of them. The call has its arguments from a log, and hidden reports a text that
// is not what was asked.
func (p *Policy) Undecided(c call.Call, hidden func(string) bool) []string {
	var out []string
	for _, e := range p.winners(string(c.Capability)) {
		j := judgement{c: e.contract.Resolve(string(c.Capability), p.cfg)}
		if j.c.Denied {
			return nil
		}
		j.danger = j.c.Danger
		if p.machine.Judge != nil {
			j.judged(p.machine.Judge(c, j.c))
		}
		v := &variables{call: &c, environment: p.cfg.Environment, danger: j.danger, hidden: hidden}
		for i, rule := range e.rules {
			needs, yes := rule.needs(v)
			if yes && j.c.Rules[i].Deny {
				return nil
			}
			out = append(out, needs...)
		}
		if e.approval != nil {
			needs, _ := e.approval.needs(v)
			out = append(out, needs...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// needs returns the hidden values without which a condition has no result. Without such values it says whether the
// condition applies, as it does with an error.
func (c *condition) needs(v *variables) (paths []string, yes bool) {
	out, _, err := c.program.Eval(v)
	u, ok := out.(*types.Unknown)
	if !ok {
		return nil, err != nil || out == types.True
	}
	for _, id := range u.IDs() {
		trails, _ := u.GetAttributeTrails(id)
		for _, t := range trails {
			paths = append(paths, t.String())
		}
	}
	if len(paths) == 0 {
		paths = []string{"args"}
	}
	return paths, false
}

// veil returns the value at a path of the arguments with an unknown in the place of each hidden text. A list that holds one is
// unknown as a whole, and so is an object with a hidden name. found says that something is hidden.
func veil(v any, path []string, hidden func(string) bool) (out any, found bool) {
	at := types.NewAttributeTrail("args")
	for _, name := range path {
		at = types.QualifyAttribute(at, name)
	}
	unknown := types.NewUnknown(1, at)
	switch v := v.(type) {
	case string:
		if hidden(v) {
			return unknown, true
		}
	case []any:
		for _, element := range v {
			if _, found := veil(element, path, hidden); found {
				return unknown, true
			}
		}
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, member := range v {
			if hidden(name) {
				return unknown, true
			}
			below, one := veil(member, append(slices.Clone(path), name), hidden)
			all[name], found = below, found || one
		}
		return all, found
	}
	return v, false
}

// unknownIn returns a hidden value below a value; nil: there is none.
func unknownIn(v ref.Val) *types.Unknown {
	if u, ok := v.(*types.Unknown); ok {
		return u
	}
	m, ok := v.(traits.Mapper)
	if !ok {
		return nil
	}
	for it := m.Iterator(); it.HasNext() == types.True; {
		if u := unknownIn(m.Get(it.Next())); u != nil {
			return u
		}
	}
	return nil
}
