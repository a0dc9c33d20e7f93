package jsonschema

import (
	"strings"
	"testing"
)

// TestPatternsAreBounded: a short pattern neither holds megabytes nor matches for seconds. The controls are patterns of
// the same length that expand to little.
func TestPatternsAreBounded(t *testing.T) {
	for text, enforced := range map[string]bool{
		`^[a-z0-9-]{1,63}$`:                    true,
		`^a{900}$`:                             true, // control: 900 instructions
		`^\pL{900}$`:                           false,
		`^((a{30}){30}){30}$`:                  false,
		`(a?){900}(a?){900}b`:                  false,
		strings.Repeat(`\pL`, maxClasses):      true,
		strings.Repeat(`\pL`, maxClasses+1):    false,
		strings.Repeat(`\PL`, maxClasses+1):    false,
		strings.Repeat(`a`, maxPattern):        true,
		strings.Repeat(`.`, maxPattern+1):      false,
		strings.Repeat(`(?:)`, maxPattern/4+1): false, // its text alone is too long
		`(?<=x)y`:                              false,
		`^(\d{4}-\d{2}-\d{2}|[A-Z]{2}\d{6})`:   true,
	} {
		if got := newPattern(text) != nil; got != enforced {
			t.Errorf("%.40s: enforced %v, want %v", text, got, enforced)
		}
	}
	long := strings.Repeat("a", 300<<10)
	for text, want := range map[string]string{
		`^a*b`:                `does not match the pattern "^a*b"`, // control
		`(a?){200}(a?){200}b`: "the schema takes too long to check",
	} {
		s := compile(t, `{"pattern":"`+text+`"}`)
		if got := s.Check(long); len(got) != 1 || got[0].Text != want {
			t.Errorf("%s: %v, want %q", text, got, want)
		}
	}
	many := compile(t, `{"patternProperties":{"^a{900}$":{},"^a{901}$":{},"^a{902}$":{}},"properties":{}}`)
	c := &check{}
	c.value(many.root, map[string]any{"k": 1.0}, "", 0)
	first := c.steps
	c.value(many.root, map[string]any{"k": 1.0}, "", 0)
	if len(c.compiled) != 3 || first < 3*64*900 || c.steps > first+3*64*900 {
		t.Errorf("%d patterns compiled for %d steps, want each once and charged", len(c.compiled), c.steps)
	}
}
