package records

import (
	"io"
	"maps"
	"slices"
	"strings"

	"waldo/internal/cli/exitcode"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

// told is a decision as --json prints it.
type told struct {
	DecisionID string        `json:"decision_id"`
	Effect     policy.Effect `json:"effect"`
	Capability string        `json:"capability"`
	Danger     int           `json:"danger"`
	Contract   string        `json:"contract,omitempty"`
	Policy     string        `json:"policy"`
	DryRun     bool          `json:"dry_run"`
	Reasons    []call.Reason `json:"reasons"`
}

// Decision prints a decision, and returns the exit code that its call would have.
func Decision(w io.Writer, asJSON bool, d policy.Decision) error {
	if asJSON {
		if d.ID == "" {
			d.ID = id.New(id.Decision) // a dry run is decided again each time and never recorded
		}
		if err := terminal.JSON(w, told{
			d.ID, d.Effect, string(d.Call.Capability), d.Danger, d.Contract.Pattern, d.Policy, d.DryRun, d.Reasons,
		}); err != nil {
			return err
		}
	} else {
		p := terminal.Painter(w)
		display.Fprintf(w, "%s %s\n", Effect(p, d.Effect.String()), d.Call.Capability)
		Reasons(w, p, d.Reasons)
		if tenant := d.Call.Principal.Tenant(); tenant != "" {
			display.Fprintf(w, "  tenant %s: %s\n", tenant, d.Call.Principal.Local())
		}
		if k := d.Contract; k.Pattern != "" {
			isolation := ""
			if k.Transport == contract.SandboxedExec || k.Transport == contract.MCP && k.Isolation != "" {
				isolation = "isolation " + Or(k.Isolation, "by class") + ", "
			}
			display.Fprintf(w, "  contract %q: %s, mode %s, danger %d, %snetwork %s, timeout %s\n", k.Pattern,
				k.Transport, k.Mode, d.Danger, isolation, networkWord(k.Network), k.Timeout)
			if len(k.Secrets) > 0 {
				var named []string
				for variable, ref := range k.Secrets {
					named = append(named, variable+"="+string(ref))
				}
				slices.Sort(named)
				display.Fprintf(w, "  secrets by name: %s\n", strings.Join(named, ", "))
			}
			if k.Settle.By != "" {
				display.Fprintf(w, "  settled by %s within %s\n", k.Settle.By, k.Settle.Within)
			}
			if k.Rollback.By != "" {
				display.Fprintf(w, "  undone by %s\n", k.Rollback.By)
			}
		}
	}
	switch d.Effect {
	case policy.Deny:
		return &exitcode.Exit{Code: exitcode.Denied, Hint: denyHint(d)}
	case policy.Ask:
		return &exitcode.Exit{Code: exitcode.Waiting}
	}
	return nil
}

func denyHint(d policy.Decision) string {
	for _, r := range d.Reasons {
		switch r.Code {
		case "contract.absent":
			return "write a contract for " + string(d.Call.Capability) + " in waldo.yaml"
		case "lock.new":
			return "waldo lock --show " + d.Contract.Server + " says what the server has"
		}
	}
	return ""
}

func networkWord(n contract.Network) string {
	var words []string
	if n.Unheld {
		return "not held (the server runs outside)"
	}
	if n.Internal {
		words = append(words, "internal_only")
	}
	words = append(words, n.Allow...)
	for _, m := range slices.Sorted(maps.Keys(n.Packages)) {
		words = append(words, "packages of "+m)
	}
	if len(words) == 0 {
		return "denied"
	}
	return strings.Join(words, ",")
}
