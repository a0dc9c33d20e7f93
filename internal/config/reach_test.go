package config

import "testing"

// TestReach: a capability whose network or secrets are less than its server has is an error: it cannot be held.
func TestReach(t *testing.T) {
	const internal = "internal: [db.example]\nsecrets: {key: {from: 'env:KEY'}, other: {from: 'env:OTHER'}}\n"
	for _, row := range []struct {
		why, server, capability string
		held                    bool
	}{
		{"less network", "network: {allow: [a.example]}", "network: denied", false},
		{"the same network", "network: {allow: [a.example]}", "network: {allow: [a.example]}", true},
		{"more network", "network: {allow: [a.example]}", "network: {allow: [b.example, a.example]}", true},
		{"another host", "network: {allow: [a.example]}", "network: {allow: [b.example]}", false},
		{"an internal host", "network: {allow: [db.example]}", "network: internal_only", true},
		{"no internal host", "network: {allow: [a.example]}", "network: internal_only", false},
		{"no network at all", "network: denied", "network: denied", true},
		{"no line", "network: {allow: [a.example]}", "timeout_seconds: 3", true},
		{"outside", "placement: outside", "network: denied", false},
		{"outside without a line", "placement: outside", "timeout_seconds: 3", true},
		{"no secret", "secrets: {T: key}", "secrets: none", false},
		{"its secret", "secrets: {T: key}", "secrets: key", true},
		{"its secret by the place", "secrets: {T: 'env:KEY'}", "secrets: key", true},
		{"another secret", "secrets: {T: key}", "secrets: other", false},
		{"a server without secrets", "network: denied", "secrets: none", true},
		{"a stronger sandbox", "network: denied", "isolation: gvisor", false},
		{"its sandbox", "network: denied", "isolation: namespace", true},
		{"a weaker sandbox", "isolation: gvisor", "isolation: namespace", true},
		{"its stronger sandbox", "isolation: gvisor", "isolation: gvisor", true},
		{"a sandbox that servers do not have", "isolation: gvisor", "isolation: engine", false},
		{"a sandbox of a server outside", "placement: outside", "isolation: namespace", false},
		{"the class of another capability", "isolation: auto", "isolation: gvisor", false},
	} {
		_, problems := Parse("w.yaml", []byte("version: 1\n"+internal+"servers:\n  s: {command: [a], "+row.server+
			"}\ncapabilities:\n  s.x: {mode: read, approval: none, "+row.capability+"}\n"))
		if held := len(problems) == 0; held != row.held || !held && (!problems.Has("reach.unheld") || problems[0].At.Line == 0) {
			t.Errorf("%s: %v", row.why, problems)
		}
	}
}

// TestIsolate: auto gives a server's sandbox the level of the classes of its capabilities. A sandbox of gvisor has no
// lasting folders.
func TestIsolate(t *testing.T) {
	for _, row := range []struct{ server, capability, want string }{
		{"per_session: true", "s.x: {mode: high_risk}", "namespace"},
		{"isolation: gvisor", "s.x: {mode: read}", "gvisor"},
		{"isolation: auto", "s.x: {mode: write}", "namespace"},
		{"isolation: auto", "s.*: {mode: high_risk}", "gvisor"},
		{"isolation: auto", "s.x: {}", "gvisor"},
		{"isolation: auto", "s.x: deny", "namespace"},
		{"isolation: auto", "x: {server: s, tool: x, mode: high_risk}", "gvisor"},
		{"isolation: auto", "z.x: {mode: high_risk}", "namespace"},
		{"isolation: auto, data: d", "s.x: {mode: write}", "namespace"},
		{"isolation: auto, data: d", "s.x: {mode: high_risk}", "key.misplaced"},
		{"isolation: gvisor, mounts: {/d: {from: ./d, writable: true}}", "s.x: {mode: read}", "key.misplaced"},
		{"isolation: gvisor, placement: workspace", "s.x: {mode: read}", "key.misplaced"},
		{"isolation: gvisor, placement: outside", "s.x: {mode: read}", "key.not_enforced"},
	} {
		cfg, problems := Parse("w.yaml", []byte("version: 1\nservers:\n  s: {command: [a], "+row.server+
			"}\n  z: {command: [a]}\ncapabilities:\n  "+row.capability+"\n"))
		if problems.Has(row.want) {
			continue
		}
		if cfg == nil || cfg.Servers["s"].Isolation != row.want {
			t.Errorf("%s, %s: %v, want %s", row.server, row.capability, problems, row.want)
		}
	}
}
