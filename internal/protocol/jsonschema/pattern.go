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
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	w := Weigh(re)
	if w > maxWeight {
		return nil
	}
	return &pattern{text, w}
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
		if re, err = regexp.Compile(p.text); err != nil {
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
