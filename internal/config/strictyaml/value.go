package strictyaml

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"waldo/internal/detect/unseen"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// Text reads text: quoted, or plain and not to be mistaken for anything else.
func (r *Reader) Text(f Field) string {
	switch {
	case f.Val.Kind != yaml.ScalarNode:
		r.Fail(f.Val, "value.type", "", "%q wants text, not %s", f.Name, Kind(f.Val))
	case vague(f.Val):
		r.Fail(f.Val, "value.ambiguous", "put it in quotes", "%q: YAML readers disagree whether %s is text",
			f.Name, f.Val.Value)
	case f.Val.Tag != "!!str":
		r.Fail(f.Val, "value.type", "put it in quotes", "%q wants text, not %s", f.Name, Kind(f.Val))
	case strings.TrimSpace(f.Val.Value) == "":
		r.Fail(f.Val, "value.empty", "remove the line", "%q is empty", f.Name)
	case strings.ContainsFunc(f.Val.Value, func(c rune) bool { return unseen.InFile(c) || c < ' ' && c != '\n' && c != '\t' }):
		r.Fail(f.Val, "yaml.hidden", "remove it", "%q holds a character that does not show", f.Name)
	default:
		return f.Val.Value
	}
	return ""
}

// Vocabulary is the words that a key allows.
type Vocabulary struct {
	Words []string
	other string // the form besides words that the key has; empty: none
}

// OneOf is a vocabulary of words.
func OneOf(words ...string) Vocabulary { return Vocabulary{Words: words} }

// Or names, for hints, the form besides words that the key has.
func (v Vocabulary) Or(form string) Vocabulary { return Vocabulary{v.Words, form} }

// choice lists what the key can be.
func (v Vocabulary) choice() string {
	all := "one of " + strings.Join(v.Words, ", ")
	if v.other != "" {
		all += ", or " + v.other
	}
	return all
}

// Word reads one of the words.
func (r *Reader) Word(f Field, v Vocabulary) string {
	if f.Val.Kind == yaml.ScalarNode && f.Val.Tag != "!!str" { // in quotes it would be no word either
		r.Fail(f.Val, "value.type", v.choice(), "%q cannot be %s", f.Name, contract.Cut(f.Val.Value, 40))
		return ""
	}
	s := r.Text(f)
	if s == "" {
		return ""
	}
	if !slices.Contains(v.Words, s) {
		hint := display.Meant(s, v.Words)
		if hint == "" {
			hint = v.choice()
		}
		r.Fail(f.Val, "value.unknown", hint, "%q cannot be %q", f.Name, contract.Cut(s, 40))
		return ""
	}
	return s
}

// decimal reports whether s is a number as everybody writes it: digits, and no 0 in front.
func decimal(s string) bool {
	return s != "" && len(s) <= 16 && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

// Integer reads a whole number in plain decimal between low and high, both included.
func (r *Reader) Integer(f Field, low, high int) int {
	if f.Val.Kind != yaml.ScalarNode || f.Val.Tag != "!!int" {
		r.Fail(f.Val, "value.type", "", "%q wants a whole number, not %s", f.Name, Kind(f.Val))
		return 0
	}
	if !decimal(f.Val.Value) && !strings.HasPrefix(f.Val.Value, "-") {
		r.Fail(f.Val, "value.ambiguous", "write it in plain decimal", "%q: YAML readers disagree about %s",
			f.Name, f.Val.Value)
		return 0
	}
	n, err := strconv.Atoi(f.Val.Value)
	if err != nil || n < low || n > high {
		text := fmt.Sprintf("%q must be between %d and %d, not %s", f.Name, low, high, contract.Cut(f.Val.Value, 20))
		if low == high {
			text = fmt.Sprintf("unsupported %s %s; this build reads %s %d", f.Name, contract.Cut(f.Val.Value, 20), f.Name, low)
		}
		r.Fail(f.Val, "value.range", "", "%s", text)
		return 0
	}
	return n
}

// Boolean reads true or false.
func (r *Reader) Boolean(f Field) bool {
	if f.Val.Kind != yaml.ScalarNode || f.Val.Tag != "!!bool" || f.Val.Value != "true" && f.Val.Value != "false" {
		r.Fail(f.Val, "value.type", "write true or false", "%q wants true or false, not %s", f.Name, Kind(f.Val))
		return false
	}
	return f.Val.Value == "true"
}

// Duration reads a time such as 90s, 10m or 1h30m, of at least one millisecond and at most most.
func (r *Reader) Duration(f Field, most time.Duration) time.Duration {
	s := r.Text(f)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		r.Fail(f.Val, "value.type", "write it as 90s, 10m or 1h", "%q wants a time, not %q", f.Name, contract.Cut(s, 40))
		return 0
	}
	if d < time.Millisecond || d > most {
		r.Fail(f.Val, "value.range", "", "%q is %s: it must be between 1ms and %s", f.Name, s, most)
		return 0
	}
	return d
}

// Age reads a time of hours or days, such as 720h or 90d.
func (r *Reader) Age(f Field) time.Duration {
	s := r.Text(f)
	if s == "" {
		return 0
	}
	unit := map[byte]time.Duration{'h': time.Hour, 'd': 24 * time.Hour}[s[len(s)-1]]
	n, err := strconv.Atoi(s[:len(s)-1])
	if unit == 0 || err != nil || n < 1 || n > 99999 || !decimal(s[:len(s)-1]) {
		r.Fail(f.Val, "value.type", "write it as 90d or 720h", "%q wants a time of days or hours, not %q", f.Name,
			contract.Cut(s, 40))
		return 0
	}
	return time.Duration(n) * unit
}

// Texts reads a list of texts: at least one, none twice.
func (r *Reader) Texts(f Field) []string {
	if f.Val.Kind != yaml.SequenceNode {
		r.Fail(f.Val, "value.type", "write it as [a, b]", "%q wants a list, not %s", f.Name, Kind(f.Val))
		return nil
	}
	if len(f.Val.Content) == 0 {
		r.Fail(f.Val, "value.empty", "remove the line", "%q is an empty list", f.Name)
	}
	var out []string
	for _, n := range f.Val.Content {
		s := r.Text(Field{f.Name, f.Key, n})
		if slices.Contains(out, s) {
			r.Fail(n, "value.duplicate", "", "%q lists %q twice", f.Name, contract.Cut(s, 40))
		}
		out = append(out, s)
	}
	return out
}

// Words reads a list of words.
func (r *Reader) Words(f Field, v Vocabulary) []string {
	out := r.Texts(f)
	for i := range out {
		r.Word(Field{f.Name, f.Key, f.Val.Content[i]}, v)
	}
	return out
}

// Command reads a program and its arguments, in which the same text may stand twice.
func (r *Reader) Command(f Field) []string {
	if f.Val.Kind == yaml.SequenceNode && len(f.Val.Content) == 0 {
		r.Fail(f.Val, "value.empty", `write it as [program, "argument"]`, "%q names no program", f.Name)
		return nil
	}
	if f.Val.Kind != yaml.SequenceNode {
		r.Fail(f.Val, "value.type", `write it as [program, "argument"]`, "%q wants a list of texts, not %s",
			f.Name, Kind(f.Val))
		return nil
	}
	var out []string
	for i, n := range f.Val.Content {
		if i > 0 && n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value == "" {
			out = append(out, "") // an empty argument is an argument
			continue
		}
		out = append(out, r.Text(Field{f.Name, f.Key, n}))
	}
	return out
}

// Plain turns any YAML value into the value of its JSON: numbers are float64.
func (r *Reader) Plain(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = r.Plain(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		l := make([]any, len(n.Content))
		for i, c := range n.Content {
			l[i] = r.Plain(c)
		}
		return l
	}
	switch {
	case vague(n):
		r.Fail(n, "value.ambiguous", "put it in quotes, or write true or false",
			"YAML readers disagree whether %s is text", n.Value)
	case n.Tag == "!!null":
		return nil
	case n.Tag == "!!bool":
		return strings.EqualFold(n.Value, "true")
	case n.Tag == "!!int" || n.Tag == "!!float":
		x, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsInf(x, 0) || math.IsNaN(x) || n.Tag == "!!int" && !decimal(strings.TrimPrefix(n.Value, "-")) {
			r.Fail(n, "value.ambiguous", "write it in plain decimal, or in quotes", "YAML readers disagree about %s",
				contract.Cut(n.Value, 40))
			return nil
		}
		return x
	case n.Tag == "!!str":
		return n.Value
	default:
		r.Fail(n, "value.type", "put it in quotes", "a value of a kind that JSON does not have")
	}
	return nil
}
