package contract

import (
	"slices"
	"time"
)

// builtIns are the names of waldo's own capabilities.
var builtIns = []string{"run_python", "run_javascript", "run_typescript", "run_shell", "exec"}

func builtIn(capability string) bool { return slices.Contains(builtIns, capability) }

// BuiltIns returns the contracts of waldo's own capabilities: high risk, in a namespace box, no
// approval, no network, no secrets and nothing of the host's files. An entry of the file that
// matches one of the names, pattern or not, replaces it.
func BuiltIns() []Contract {
	var out []Contract
	for _, name := range builtIns {
		out = append(out, Contract{
			Pattern: name, At: Position{File: "built-in"}, BuiltIn: true,
			Transport: SandboxedExec, Mode: HighRisk, Danger: 3, Isolation: "namespace",
			Timeout: 30 * time.Second, ResponseBudget: 64 << 10,
			Approval: Approval{When: Never, At: Position{File: "built-in"}},
			Log:      "full", Trust: "untrusted", Redact: slices.Clone(classes),
		})
	}
	return out
}

// Default returns the configuration that holds where there is no file: the built-in capabilities.
func Default() *Config {
	return &Config{
		Servers:   map[string]Server{},
		Contracts: BuiltIns(),
		Redaction: Redaction{Model: slices.Clone(classes)},
		Approval:  Approvals{Timeout: time.Hour, Roles: map[string][]string{}, Carriers: []string{"console", "terminal"}},
	}
}
