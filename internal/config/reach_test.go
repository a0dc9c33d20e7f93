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
	} {
		_, problems := Parse("w.yaml", []byte("version: 1\n"+internal+"servers:\n  s: {command: [a], "+row.server+
			"}\ncapabilities:\n  s.x: {mode: read, approval: none, "+row.capability+"}\n"))
		if held := len(problems) == 0; held != row.held || !held && (!problems.Has("reach.unheld") || problems[0].At.Line == 0) {
			t.Errorf("%s: %v", row.why, problems)
		}
	}
}
