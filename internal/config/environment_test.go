package config

import (
	"testing"

	"waldo/internal/model/contract"
)

// The operator's selection comes before the file's line, and a name that stands once and nowhere else is
// a warning.
func TestEnvironmentIsSelected(t *testing.T) {
	const text = "environment: production\ncapabilities:\n  a.*: {mode: read, transport: direct, environments: " +
		"[staging]}\n  b.*: {mode: read, transport: direct, environments: [staging, production]}\n  c.*: {mode: read, " +
		"transport: direct, environments: [developmnt]}\n"
	for selected, want := range map[string]string{"": "production", "staging": "staging", "development": "development"} {
		cfg, problems := ParseIn("w", []byte(text), selected)
		if len(problems) > 0 || cfg.Environment != want {
			t.Fatalf("%q: %v %v", selected, problems, cfg)
		}
		warned := 0
		for _, w := range cfg.Warnings {
			if w.Code == "environment.unknown" {
				warned++
				if w.At.Line != 5 || selected == "development" && w.Hint != `did you mean "development"?` {
					t.Errorf("%q: %+v", selected, w)
				}
			}
		}
		if warned != 1 {
			t.Errorf("%q: %d warnings", selected, warned)
		}
	}
	if cfg, _ := ParseIn("w", []byte(text), "developmnt"); len(cfg.Warnings) > 0 &&
		contract.Problems(cfg.Warnings).Has("environment.unknown") {
		t.Error("the selected environment is unknown")
	}
	if _, problems := ParseIn("w", []byte(text), "no such"); len(problems) == 0 {
		t.Error("a name that is none was selected")
	}
}
