package contract

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/detect"
	"waldo/internal/model/secret"
)

// text reads text: quoted, or plain and not to be mistaken for anything else.
func (r *reader) text(f field) string {
	switch {
	case f.val.Kind != yaml.ScalarNode:
		r.fail(f.val, "value.type", "", "%q wants text, not %s", f.name, kind(f.val))
	case vague(f.val):
		r.fail(f.val, "value.ambiguous", "put it in quotes", "%q: YAML readers disagree whether %s is text", f.name, f.val.Value)
	case f.val.Tag != "!!str":
		r.fail(f.val, "value.type", "put it in quotes", "%q wants text, not %s", f.name, kind(f.val))
	case strings.TrimSpace(f.val.Value) == "":
		r.fail(f.val, "value.empty", "remove the line", "%q is empty", f.name)
	case strings.ContainsFunc(f.val.Value, func(c rune) bool { return hidden(c) || c < ' ' && c != '\n' && c != '\t' }):
		r.fail(f.val, "yaml.hidden", "remove it", "%q holds a character that does not show", f.name)
	default:
		return f.val.Value
	}
	return ""
}

// word reads one of the words that the key table lists, and refuses those for a later build.
func (r *reader) word(f field, scope string) string {
	s := r.text(f)
	if s == "" {
		return ""
	}
	k, _ := keyOf(scope, f.name)
	if slices.Contains(k.Later, s) {
		r.later(f.val, f.name+": "+s)
		return ""
	}
	if !slices.Contains(k.Words, s) {
		hint := meant(s, k.Words)
		if hint == "" {
			hint = "one of " + strings.Join(k.Words, ", ")
		}
		r.fail(f.val, "value.unknown", hint, "%q cannot be %q", f.name, cut(s, 40))
		return ""
	}
	return s
}

func (r *reader) later(n *yaml.Node, what string) {
	r.fail(n, "key.not_enforced", "remove it: this build would not hold to it", "%s: not enforced by this build", what)
}

// decimal reports whether s is a number as everybody writes it: digits, and no 0 in front.
func decimal(s string) bool {
	return s != "" && len(s) <= 16 && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// integer reads a whole number in plain decimal between low and high, both included.
func (r *reader) integer(f field, low, high int) int {
	if f.val.Kind != yaml.ScalarNode || f.val.Tag != "!!int" {
		r.fail(f.val, "value.type", "", "%q wants a whole number, not %s", f.name, kind(f.val))
		return 0
	}
	if !decimal(f.val.Value) && !strings.HasPrefix(f.val.Value, "-") {
		r.fail(f.val, "value.ambiguous", "write it in plain decimal", "%q: YAML readers disagree about %s", f.name, f.val.Value)
		return 0
	}
	n, err := strconv.Atoi(f.val.Value)
	if err != nil || n < low || n > high {
		text := fmt.Sprintf("%q must be between %d and %d, not %s", f.name, low, high, cut(f.val.Value, 20))
		if low == high {
			text = fmt.Sprintf("unsupported %s %s; this build reads %s %d", f.name, cut(f.val.Value, 20), f.name, low)
		}
		r.fail(f.val, "value.range", "", "%s", text)
		return 0
	}
	return n
}

func (r *reader) boolean(f field) bool {
	if f.val.Kind != yaml.ScalarNode || f.val.Tag != "!!bool" || f.val.Value != "true" && f.val.Value != "false" {
		r.fail(f.val, "value.type", "write true or false", "%q wants true or false, not %s", f.name, kind(f.val))
		return false
	}
	return f.val.Value == "true"
}

// duration reads a time such as 90s, 10m or 1h30m, of at least one millisecond and at most most.
func (r *reader) duration(f field, most time.Duration) time.Duration {
	s := r.text(f)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		r.fail(f.val, "value.type", "write it as 90s, 10m or 1h", "%q wants a time, not %q", f.name, cut(s, 40))
		return 0
	}
	if d < time.Millisecond || d > most {
		r.fail(f.val, "value.range", "", "%q is %s: it must be between 1ms and %s", f.name, s, most)
		return 0
	}
	return d
}

// age reads a time of hours or days, such as 720h or 90d.
func (r *reader) age(f field) time.Duration {
	s := r.text(f)
	if s == "" {
		return 0
	}
	unit := map[byte]time.Duration{'h': time.Hour, 'd': 24 * time.Hour}[s[len(s)-1]]
	n, err := strconv.Atoi(s[:len(s)-1])
	if unit == 0 || err != nil || n < 1 || n > 99999 || !decimal(s[:len(s)-1]) {
		r.fail(f.val, "value.type", "write it as 90d or 720h", "%q wants a time of days or hours, not %q", f.name, cut(s, 40))
		return 0
	}
	return time.Duration(n) * unit
}

// texts reads a list of texts: at least one, none twice.
func (r *reader) texts(f field) []string {
	if f.val.Kind != yaml.SequenceNode {
		r.fail(f.val, "value.type", "write it as [a, b]", "%q wants a list, not %s", f.name, kind(f.val))
		return nil
	}
	if len(f.val.Content) == 0 {
		r.fail(f.val, "value.empty", "remove the line", "%q is an empty list", f.name)
	}
	var out []string
	for _, n := range f.val.Content {
		s := r.text(field{f.name, f.key, n})
		if slices.Contains(out, s) {
			r.fail(n, "value.duplicate", "", "%q lists %q twice", f.name, cut(s, 40))
		}
		out = append(out, s)
	}
	return out
}

// words reads a list of the words that the key table lists.
func (r *reader) words(f field, scope string) []string {
	out := r.texts(f)
	for i := range out {
		r.word(field{f.name, f.key, f.val.Content[i]}, scope)
	}
	return out
}

// command reads a program and its arguments, in which the same text may stand twice.
func (r *reader) command(f field) []string {
	if f.val.Kind == yaml.SequenceNode && len(f.val.Content) == 0 {
		r.fail(f.val, "value.empty", `write it as [program, "argument"]`, "%q names no program", f.name)
		return nil
	}
	if f.val.Kind != yaml.SequenceNode {
		r.fail(f.val, "value.type", `write it as [program, "argument"]`, "%q wants a list of texts, not %s", f.name, kind(f.val))
		return nil
	}
	var out []string
	for i, n := range f.val.Content {
		if i > 0 && n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value == "" {
			out = append(out, "") // an empty argument is an argument
			continue
		}
		out = append(out, r.text(field{f.name, f.key, n}))
	}
	return out
}

// Name syntaxes: letters and digits, beginning with a letter, and the extra characters given.
func variable(s string) bool {
	return spelled(s, 128, "_") || len(s) > 1 && s[0] == '_' && spelled("v"+s, 129, "_")
}
func label(s string) bool { return spelled(s, 63, "_-") }
func named(s string) bool { return spelled(s, 63, "_.-") }

func spelled(s string, most int, others string) bool {
	if s == "" || len(s) > most || !letter(s[0]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !letter(c) && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// ref parses a secret's source: a place such as env:VARIABLE, or a name. Its messages never quote the value: that
// could be the secret itself.
func (r *reader) ref(f field) secret.Ref {
	if f.val.Kind != yaml.ScalarNode || f.val.Tag != "!!str" {
		r.fail(f.val, codeLiteral, "write env:VARIABLE", "%q wants the name of a secret, not a secret", f.name)
		return ""
	}
	ref := secret.Ref(f.val.Value)
	if _, ok := ref.Place(); ok || named(f.val.Value) && !looksSecret(f.val.Value) {
		return ref
	}
	r.fail(f.val, codeLiteral, "write env:VARIABLE", "%q wants the name of a secret, as in env:GITHUB_TOKEN, never the secret itself", f.name)
	return ""
}

// looksSecret detects a token pasted in place of its name: a vendor's token form, a token's suffix, or a long run of
// letters mixed with digits.
func looksSecret(s string) bool {
	return detect.Secret(s) || detect.Begins(s) || len(s) >= 20 && strings.ContainsAny(s, "0123456789") && !strings.ContainsAny(s, "_-.")
}

// refs reads a mapping of variable to secret.
func (r *reader) refs(f field) map[string]secret.Ref {
	out := map[string]secret.Ref{}
	for _, e := range r.entries(f) {
		if !variable(e.name) {
			r.fail(e.key, "value.name", "", "%q is not the name of a variable", cut(e.name, 40))
		}
		out[e.name] = r.ref(e)
	}
	return out
}

// plain turns any YAML value into what JSON would give: numbers are float64.
func (r *reader) plain(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = r.plain(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		l := make([]any, len(n.Content))
		for i, c := range n.Content {
			l[i] = r.plain(c)
		}
		return l
	}
	switch {
	case vague(n):
		r.fail(n, "value.ambiguous", "put it in quotes, or write true or false", "YAML readers disagree whether %s is text", n.Value)
	case n.Tag == "!!null":
		return nil
	case n.Tag == "!!bool":
		return strings.EqualFold(n.Value, "true")
	case n.Tag == "!!int" || n.Tag == "!!float":
		x, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) || n.Tag == "!!int" && !decimal(strings.TrimPrefix(n.Value, "-")) {
			r.fail(n, "value.ambiguous", "write it in plain decimal, or in quotes", "YAML readers disagree about %s", cut(n.Value, 40))
			return nil
		}
		return x
	case n.Tag == "!!str":
		return n.Value
	default:
		r.fail(n, "value.type", "put it in quotes", "a value of a kind that JSON does not have")
	}
	return nil
}
