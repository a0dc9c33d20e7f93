package config

import (
	"testing"
	"time"
)

// A retention is days or hours, and never shorter than an approval can wait.
func TestLogKeep(t *testing.T) {
	for text, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "36h": 36 * time.Hour} {
		cfg, problems := Parse("w", []byte("log: {keep: "+text+"}\n"))
		if len(problems) > 0 || cfg.Log.Keep != want {
			t.Fatalf("control: %s: %v", text, problems)
		}
	}
	for _, text := range []string{"90", "0d", "-1d", "1.5d", "090d", "90m", "d", "ninety", "999999d", "[90d]"} {
		if _, problems := Parse("w", []byte("log: {keep: "+text+"}\n")); len(problems) == 0 {
			t.Errorf("%s was taken", text)
		}
	}
	if _, problems := Parse("w", []byte("log: {keep: 1d}\napproval: {timeout: 48h}\n")); !problems.Has("log.keep") {
		t.Errorf("shorter than an approval: %v", problems)
	}
}
