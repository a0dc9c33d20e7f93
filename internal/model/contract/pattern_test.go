package contract

import (
	"regexp"
	"strings"
	"testing"
)

func TestPatternMatch(t *testing.T) {
	for _, row := range []struct {
		pattern Pattern
		name    string
		want    bool
		why     string
	}{
		{"run_shell", "run_shell", true, "an exact name"},
		{"run_shell", "run_shell2", false, "a prefix is not a match"},
		{"run_shell", "Run_shell", false, "letter case counts"},
		{"github.*", "github.create_issue", true, "a star at the end"},
		{"github.*", "github.a.b", true, "a star matches dots"},
		{"github.*", "github.", true, "a star matches nothing"},
		{"github.*", "githubx.a", false, "a dot is a dot"},
		{"github.*", "evil.github.a", false, "a pattern starts where the name does"},
		{"*.send", "mail.send", true, "a star in front"},
		{"*.send", "mail.send_all", false, "a pattern ends where the name does"},
		{"a*b*c", "aXbYbZc", true, "stars go back"},
		{"a*b*c", "acb", false, "in order"},
		{"*", "anything", true, "a star alone"},
		{"*", "", true, "a star alone matches nothing too"},
	} {
		if got := row.pattern.Match(row.name); got != row.want {
			t.Errorf("%s: %q %q: %v", row.why, row.pattern, row.name, got)
		}
	}
}

func TestPatternBeats(t *testing.T) {
	for _, row := range []struct {
		p, q Pattern
		want bool
		why  string
	}{
		{"a.b", "a.*", true, "a name beats a pattern"},
		{"a.b*", "a.*", true, "a longer beginning beats a shorter"},
		{"a.*", "*", true, "anything beats a star"},
		{"a.*", "a.b*", false, "never both ways"},
		{"a.*", "a.*", false, "nothing beats itself"},
		{"*.send", "mail.*", false, "an overlap is a tie"},
		{"mail.*", "*.send", false, "an overlap is a tie from both sides"},
		{"mail.*send", "mail.*", true, "a pattern within a pattern"},
		{"mail.*send", "*send", true, "within another"},
	} {
		if got := row.p.Beats(row.q); got != row.want {
			t.Errorf("%s: %q beats %q: %v", row.why, row.p, row.q, got)
		}
	}
}

// FuzzPattern compares Match with a regular expression. A pattern that covers q must match every name that q matches.
func FuzzPattern(f *testing.F) {
	f.Add("github.*", "github.create_*", "github.create_issue")
	f.Add("a*b*c", "*b*", "aXbYc")
	f.Fuzz(func(t *testing.T, ps, qs, name string) {
		if len(ps)+len(qs)+len(name) > 200 || strings.Contains(name, "*") {
			return
		}
		p, q := Pattern(ps), Pattern(qs)
		parts := strings.Split(ps, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		re, err := regexp.Compile(`(?s)^` + strings.Join(parts, ".*") + `$`)
		if err != nil {
			return // not UTF-8
		}
		if p.Match(name) != re.MatchString(name) {
			t.Errorf("%q %q: %v", p, name, p.Match(name))
		}
		if p.Covers(q) && q.Match(name) && !p.Match(name) {
			t.Errorf("%q covers %q but does not match %q", p, q, name)
		}
		if p.Beats(q) && q.Beats(p) {
			t.Errorf("%q and %q beat each other", p, q)
		}
	})
}
