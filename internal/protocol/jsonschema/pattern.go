package jsonschema

import (
	"regexp"
	"regexp/syntax"
	"strings"
)

// Limits of a pattern. A short text may expand to megabytes: ^\\pL{900}$ has 900 copies of 1,300 runes.
const (
	maxPattern = 2000 // bytes of its text
	maxClasses = 20   // Unicode classes in it
	maxWeight  = 2000 // instructions, about, after expanding its repetitions
)

// pattern is a regular expression of a schema. It holds the text alone: a check compiles it when a value needs it, so
// that the schemas of all servers together hold no compiled expression.
type pattern struct {
	text   string
	weight int
}

// newPattern returns nil for a pattern that waldo does not enforce: RE2 cannot express it (look-behind), or it is too
// large.
func newPattern(text string) *pattern {
	if len(text) > maxPattern || strings.Count(text, `\p`)+strings.Count(text, `\P`) > maxClasses {
		return nil
	}
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		return nil
	}
	re, err := syntax.Parse(ecmaScript(text), syntax.Perl)
	if err != nil {
		return nil
	}
	w := Weigh(re)
	if w > maxWeight {
		return nil
	}
	return &pattern{text, w}
}

// The characters of \s and \S in ECMA-262 §22.2.2.9, whose patterns JSON Schema has. RE2's \s is six ASCII characters.
const (
	space = `\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	solid = `\x{0}-\x{8}\x{e}-\x{1f}!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}` +
		`\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
)

// ecmaScript spells a pattern that RE2 can parse so that \s and \S mean the characters of ECMA-262.
func ecmaScript(text string) string {
	if !strings.Contains(text, `\s`) && !strings.Contains(text, `\S`) {
		return text
	}
	var b strings.Builder
	class := -1 // where the class at this place begins, or -1
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			chars := map[byte]string{'s': space, 'S': solid}[text[i]]
			switch {
			case chars == "":
				b.WriteString(text[i-1 : i+1])
			case class < 0:
				b.WriteString("[" + chars + "]")
			default:
				b.WriteString(chars)
			}
			continue
		case c == '[' && class < 0:
			if class = i; strings.HasPrefix(text[i:], "[^") {
				class++
			}
		case c == '[' && strings.HasPrefix(text[i:], "[:") && strings.Contains(text[i:], ":]"): // as in [[:alpha:]]
			end := i + strings.Index(text[i:], ":]") + 1
			b.WriteString(text[i:end])
			i, c = end, ']'
		case c == ']' && i > class+1:
			class = -1
		}
		b.WriteByte(c)
	}
	return b.String()
}

// Weigh estimates the number of instructions of an expression.
func Weigh(re *syntax.Regexp) int {
	w := 1
	switch re.Op {
	case syntax.OpLiteral:
		w = len(re.Rune)
	case syntax.OpCharClass:
		w = 1 + len(re.Rune)/16
	}
	for _, sub := range re.Sub {
		w += Weigh(sub)
	}
	if re.Op == syntax.OpRepeat {
		w *= max(re.Max, re.Min+1)
	}
	return min(w, maxWeight+1) // no overflow
}

// fits reports whether a text matches. It takes the cost of matching from the budget first, and reports true if nothing
// is left: the check as a whole fails then.
func (c *check) fits(p *pattern, s string, depth int) bool {
	if !c.spend(1+(len(s)+16)*p.weight/16, depth) {
		return true
	}
	re := c.compiled[p]
	if re == nil {
		if !c.spend(64*p.weight, depth) { // an instruction with its runes takes about as much as 64 visits
			return true
		}
		var err error
		if re, err = regexp.Compile(ecmaScript(p.text)); err != nil {
			c.broke = true
			return true
		}
		if c.compiled == nil {
			c.compiled = map[*pattern]*regexp.Regexp{}
		}
		c.compiled[p] = re
	}
	return re.MatchString(s)
}
