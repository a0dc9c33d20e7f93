package config

import (
	"slices"
	"testing"
)

// A key of limits that stands one level too high has a hint to its place.
func TestKeyOfLimitsOutside(t *testing.T) {
	hint := func(line string) (hint string, unknown bool) {
		_, problems := Parse("w", []byte("version: 1\ncapabilities:\n  run_python: {mode: read, approval: none, "+line+"}\n"))
		for _, p := range problems {
			if p.Code == "key.unknown" {
				return p.Hint, true
			}
		}
		return "", false
	}
	for _, name := range slices.Concat(serverLimits.Names(), runLimits.Names()) {
		if got, _ := hint(name + ": 256"); got != "it belongs below limits:, as in limits: {"+name+": …}" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, unknown := hint("limits: {memory_mb: 256}"); unknown {
		t.Errorf("control: %q", got)
	}
	if got, unknown := hint("colour: 9"); !unknown || got != "" {
		t.Errorf("control: another key: %q", got)
	}
}
