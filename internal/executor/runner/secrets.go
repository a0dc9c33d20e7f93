package runner

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
)

// revealed returns the secrets that the contract reveals to the sandbox, as K=V, without those that the person at the
// terminal left out. It resolves them only here.
func (r *Runner) revealed(d policy.Decision, o Options) ([]string, *call.Reason) {
	c := d.Contract
	for _, v := range o.Secrets {
		if _, ok := c.Secrets[v]; !ok {
			return nil, &call.Reason{
				Code: "secret.contract", Text: fmt.Sprintf("the contract gives this capability no secret in the variable %q", v),
			}
		}
	}
	var env []string
	for _, v := range slices.Sorted(maps.Keys(c.Secrets)) {
		if !slices.Contains(c.Reveal, v) || len(o.Secrets) > 0 && !slices.Contains(o.Secrets, v) {
			continue
		}
		value, err := r.Means.Secret(c.Secrets[v])
		if err != nil {
			// for the operator, not for the agent
			slog.Error("a secret cannot be had", "capability", string(d.Call.Capability), "variable", v, "why", err)
			return nil, &call.Reason{
				Code: "secret.missing", Text: fmt.Sprintf("the secret for %s cannot be had; `waldo secret check` says why", v),
			}
		}
		env = append(env, v+"="+value.Reveal())
	}
	return env, nil
}

// with returns an environment with more variables in it, in the place of those of the same name.
func with(env, more []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		k, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(more, func(m string) bool { return strings.HasPrefix(m, k+"=") })
	})
	return append(env, more...)
}
