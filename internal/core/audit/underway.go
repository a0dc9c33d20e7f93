package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// UnderWay returns the decisions, as far as their outcomes name them, of calls that processes made and that have no
// outcome. One with the effect Ask had no yes: nothing was done. It reads the last two segments of the log.
func UnderWay(ctx context.Context, dir string, processes []string) ([]policy.Decision, error) {
	names, _, err := extent(dir)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	first, _ := firstOf(names[max(0, len(names)-2)]) // extent lists names that have one
	var order []string
	open := map[string]policy.Decision{}
	err = Range(ctx, dir, first-1, math.MaxUint64, func(r Record) error {
		var d struct {
			Decided
			Yes     bool   `json:"yes"`
			Refusal string `json:"refusal"`
		}
		switch {
		case r.Kind != KindDecision && r.Kind != KindAnswer && r.Kind != KindOutcome || json.Unmarshal(r.Body, &d) != nil:
		case r.Kind == KindOutcome:
			delete(open, d.DecisionID)
		case r.Kind == KindAnswer:
			if asked, waits := open[d.DecisionID]; waits && d.Yes && d.Refusal == "" {
				asked.Effect = policy.Allow
				open[d.DecisionID] = asked
			}
		case d.Effect != policy.Deny && !d.DryRun && slices.Contains(processes, cmp.Or(d.Asker, d.Process)):
			order = append(order, d.DecisionID)
			k := contract.Contract{Mode: d.Mode}
			if d.Contract != nil {
				k.Transport = d.Contract.Transport
			}
			open[d.DecisionID] = policy.Decision{ID: d.DecisionID, Effect: d.Effect, Contract: k,
				Call: call.Call{ID: d.CallID, Capability: call.Capability(d.Capability), Principal: call.Principal(d.Principal)}}
		}
		return nil
	})
	var out []policy.Decision
	for _, id := range order {
		if d, left := open[id]; left {
			out = append(out, d)
		}
	}
	return out, err
}
