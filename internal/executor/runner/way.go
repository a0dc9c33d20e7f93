package runner

import (
	"fmt"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// way makes the egress of a sandbox whose contract allows hosts; nil if it allows none. A secret that could not reach
// the sandbox in any form is a reason not to start.
func (r *Runner) way(d policy.Decision, o Options) (*sandboxegress.Egress, *call.Reason) {
	n := d.Contract.Network
	if o.Offline {
		n = contract.Network{}
	}
	if len(o.Hosts) > 0 && !o.Offline {
		for _, h := range o.Hosts {
			if !slices.Contains(n.Allow, h) {
				narrowed := ""
				if len(d.Call.Chain) > 0 {
					narrowed = ", or the delegation of this call leaves it out"
				}
				return nil, &call.Reason{Code: "network.unsupported",
					Text: fmt.Sprintf("the contract does not allow the host %q as it is written%s", h, narrowed)}
			}
		}
		n = contract.Network{Allow: o.Hosts, Limits: n.Limits, Public: n.Public} // narrower
	}
	if o.Public && !n.Public {
		return nil, &call.Reason{Code: "network.unsupported", Text: "the contract does not allow every public host"}
	}
	n.Public = o.Public
	var w *sandboxegress.Egress
	if n.Reaches() {
		var err error
		if w, err = r.Means.Egress(d, n); err != nil {
			return nil, &call.Reason{Code: "network.unsupported", Text: err.Error()}
		}
	}
	for _, v := range d.Contract.Placeholders() {
		if w == nil || !slices.ContainsFunc(w.Env, func(e string) bool { return strings.HasPrefix(e, v+"=") }) {
			return nil, &call.Reason{
				Code: "secrets.unsupported",
				Text: fmt.Sprintf("the secret %s belongs to a host that this sandbox does not reach", v),
			}
		}
	}
	return w, nil
}
