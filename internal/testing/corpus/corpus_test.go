package corpus

import (
	"strings"
	"testing"
)

// TestVendored: each row of testdata is in its authors' own words, may be copied, and has an id of its own.
func TestVendored(t *testing.T) {
	for _, name := range Files(t) {
		seen := map[string]bool{}
		for _, r := range Rows[struct{ ID, Class, Source, Licence string }](t, name) {
			if seen[r.ID] || r.Class == "" {
				t.Errorf("%s: %s is there twice, or has no class", name, r.ID)
			}
			seen[r.ID] = true
		}
		for _, line := range lines(t, vendored(), name) {
			r := decode[struct{ ID, Source, Licence string }](t, line, idOf(t, line))
			if r.Licence != "CC0-1.0" || !strings.Contains(r.Source, "own words") && !strings.Contains(r.Source, "(facts)") {
				t.Errorf("%s: %s, %s: it may not be copied", r.ID, r.Licence, r.Source)
			}
		}
	}
	if len(Definitions(t)) == 0 {
		t.Error("no definitions of tools")
	}
}

// TestBackwards: a row that is written backwards is read forwards.
func TestBackwards(t *testing.T) {
	n := 0
	for _, r := range Rows[struct {
		Reversed string
		Input    struct{ Text string }
	}](t, "secrets.jsonl") {
		if r.Reversed != "" && r.Input.Text != "" {
			n++
		}
	}
	if n < 100 {
		t.Errorf("%d rows were read backwards", n)
	}
}
