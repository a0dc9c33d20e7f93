package config

import (
	"strings"
	"testing"
	"waldo/internal/config/starter"
)

// FuzzParse: no text makes Parse panic. An unknown key is always a problem.
func FuzzParse(f *testing.F) {
	f.Add([]byte(starter.Init("x")))
	f.Add([]byte("capabilities:\n  a.*: {mode: read, approval: {when: \"args.x == 'no'\", by: boss}}\n"))
	f.Add([]byte("capabilities: {a.*: deny, 'b': 'deny'}\n"))
	f.Add([]byte("environment: prod\nsecrets: {a: {environments: {prod: 'env:A'}, refresh: 5m}, b: {command: [x]}}\n" +
		"capabilities: {run_shell: {secrets: {A: a}, reveal: [A]}}\n"))
	f.Add([]byte("servers: {s: {command: [a, '', a], secrets: {T: 'env:T'}, env: {A: 'yes'}}}\ncapabilities: {'*': " +
		"{rules: [{when: 'true', deny: true, reason: \"010\"}]}}\n"))
	f.Add([]byte(sb("redact: none", "rate_limit: {calls: 1, per: 1ms}",
		"examples: [{args: {a: [1, null, {b: -2}]}, expect: deny}]")))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, problems := Parse("w", text)
		if (cfg == nil) != (len(problems) > 0) {
			t.Fatal("a configuration with problems, or neither")
		}
		for _, p := range problems {
			_ = p.Render(string(text))
		}
		if cfg == nil {
			return
		}
		if _, problems := Parse("w", []byte("unheard_of: 1\n"+string(text))); problems == nil {
			t.Errorf("an unknown key was taken:\n%s", text)
		}
		for _, c := range cfg.Contracts {
			if c.Danger < c.Mode.Danger() || c.Isolation == "auto" || c.Timeout <= 0 || c.ResponseBudget <= 0 ||
				!strings.Contains(strings.Join(c.Redact, " "), "secrets") {
				t.Errorf("an entry that is not complete: %+v", c)
			}
		}
	})
}
