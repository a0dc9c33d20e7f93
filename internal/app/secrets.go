package app

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"waldo/internal/app/fault"
	"waldo/internal/app/secrets"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/secretsource"
)

// SecretFinding is the result of checking one use of a secret.
type SecretFinding struct {
	Secret secret.Ref        `json:"secret"`
	At     contract.Position `json:"at"`
	By     string            `json:"by,omitempty"`
	OK     bool              `json:"ok"`
	Why    string            `json:"why,omitempty"`
}

// CheckSecrets fetches every secret that the configuration names for this environment, all at once.
func CheckSecrets(k *secretsource.Keeper, cfg *contract.Config) []SecretFinding {
	uses := cfg.SecretUses
	for _, name := range slices.Sorted(maps.Keys(cfg.Secrets)) {
		if s := cfg.Secrets[name]; !slices.ContainsFunc(uses,
			func(u contract.SecretUse) bool { return u.Ref == secret.Ref(name) }) &&
			(s.Spec.From != "" || len(s.Spec.Command) > 0) {
			uses = append(uses, contract.SecretUse{Ref: secret.Ref(name), At: s.At, By: "nobody yet"})
		}
	}
	out := make([]SecretFinding, len(uses))
	var wait sync.WaitGroup
	for i, u := range uses {
		out[i] = SecretFinding{Secret: u.Ref, At: u.At, By: u.By}
		wait.Go(func() {
			_, err := k.Get(u.Ref)
			if out[i].OK = err == nil; err != nil {
				out[i].Why = err.Error()
			}
		})
	}
	wait.Wait()
	return out
}

// RequireSecrets returns an error if a secret with a configured source is missing. A secret without a source is left
// to the policy, which denies its capability. With leaveOut, the secrets of servers are warnings: a server whose
// secret is missing is left out when it is to start.
func (h *App) RequireSecrets(leaveOut bool) error {
	named := secrets.Named(h.State, h.Config)
	var problems contract.Problems
	for _, f := range CheckSecrets(h.secrets, h.Config) {
		_, place := f.Secret.Place()
		if server, ok := strings.CutPrefix(f.By, "server "); ok && leaveOut && !f.OK {
			slog.Warn("a server is left out until its secret is there: waldo secret check", "server", server,
				"secret", string(f.Secret), "why", h.Clean(f.Why))
			continue
		}
		if !f.OK && (place || named[string(f.Secret)] || strings.HasPrefix(f.By, "server ")) {
			problems = append(problems, contract.Problem{At: f.At, Code: "secret.missing", Text: f.Why + "; wanted by " + f.By})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	problems.Sort()
	return &fault.Error{
		Usage: true, Err: problems, Tip: "waldo secret check shows every secret and where it was looked for",
	}
}
