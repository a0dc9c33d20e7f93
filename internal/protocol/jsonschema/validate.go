package jsonschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The budget of one check. A visit of one part of a value costs one step.
const (
	maxSteps  = 5_000_000
	maxDepth  = 600 // a value nests at most 200 deep, and each level passes a few references
	maxFaults = 5
)

// Fault is one way in which a value is not what the schema asks for.
type Fault struct {
	At   string // JSON pointer into the value; empty: the value itself
	Text string
}

// String returns the place and the fault.
func (f Fault) String() string {
	if f.At == "" {
		return f.Text
	}
	return f.At + ": " + f.Text
}

// Check returns up to five faults of a value decoded as encoding/json does, none if it is valid. A
// schema that costs too much to check finds fault with everything.
func (s *Schema) Check(v any) []Fault {
	c := &check{}
	c.value(s.root, v, "", 0)
	if c.broke {
		return []Fault{{Text: "the schema takes too long to check"}}
	}
	return c.faults
}

type check struct {
	compiled map[*pattern]*regexp.Regexp
	steps    int
	broke    bool
	quiet    int // inside a part whose faults only count
	failed   bool
	unsure   bool // a part that is not enforced was passed, so the value may be invalid all the same
	faults   []Fault
}

// spend takes from the budget and reports whether there is any left.
func (c *check) spend(n, depth int) bool {
	if c.steps += n; c.steps > maxSteps || depth > maxDepth {
		c.broke = true
	}
	return !c.broke
}

func (c *check) fault(at, format string, a ...any) {
	c.failed = true
	if c.quiet == 0 && len(c.faults) < maxFaults {
		c.faults = append(c.faults, Fault{at, fmt.Sprintf(format, a...)})
	}
}

// answer is whether a value matches a part of a schema. It is perhaps where waldo does not enforce all of the part.
type answer int

const (
	no answer = iota
	perhaps
	yes
)

// matches checks without telling the faults.
func (c *check) matches(n *node, v any, depth int) answer {
	failed, unsure := c.failed, c.unsure
	c.quiet++
	c.failed, c.unsure = false, false
	c.value(n, v, "", depth+1)
	got := yes
	switch {
	case c.failed || c.broke:
		got = no
	case c.unsure:
		got = perhaps
	}
	c.failed, c.unsure = failed, unsure
	c.quiet--
	return got
}

// tally counts the parts that a value matches, up to the first one that it matches for sure if one is enough.
func (c *check) tally(parts []*node, v any, depth int, one bool) (sure, possible int) {
	for _, sub := range parts {
		switch c.matches(sub, v, depth) {
		case yes:
			sure, possible = sure+1, possible+1
			if one {
				return sure, possible
			}
		case perhaps:
			possible++
		}
	}
	return sure, possible
}

func (c *check) value(n *node, v any, at string, depth int) {
	if n == nil || !c.spend(1, depth) || c.quiet > 0 && c.failed {
		return
	}
	if n.never {
		c.fault(at, "not allowed here")
		return
	}
	if n.ref != nil {
		c.value(n.ref, v, at, depth+1)
	}
	c.unsure = c.unsure || n.partly
	if n.types != nil && !isOne(n.types, v) {
		c.fault(at, "is %s, want %s", typeOf(v), join(n.types))
		return
	}
	if n.enum != nil && !c.among(n.enum, v, depth) {
		c.fault(at, "is not one of the allowed values")
	}
	c.combined(n, v, at, depth)
	switch x := v.(type) {
	case map[string]any:
		c.object(&n.object, x, at, depth)
	case []any:
		c.array(&n.array, x, at, depth)
	case float64:
		c.numeric(&n.number, x, at)
	case string:
		c.text(n, x, at, depth)
	}
}

func (c *check) combined(n *node, v any, at string, depth int) {
	for _, sub := range n.allOf {
		c.value(sub, v, at, depth+1)
	}
	if n.anyOf != nil {
		sure, possible := c.tally(n.anyOf, v, depth, true)
		if possible == 0 {
			c.fault(at, "matches none of the %d alternatives", len(n.anyOf))
		}
		c.unsure = c.unsure || sure == 0
	}
	if n.oneOf != nil {
		sure, possible := c.tally(n.oneOf, v, depth, false)
		if sure > 1 || possible == 0 {
			c.fault(at, "matches %d of the %d alternatives, want exactly one", sure, len(n.oneOf))
		}
		c.unsure = c.unsure || sure != possible
	}
	if n.not != nil {
		switch c.matches(n.not, v, depth) {
		case yes:
			c.fault(at, "matches a schema that it must not match")
		case perhaps:
			c.unsure = true
		}
	}
	if n.iff != nil {
		switch c.matches(n.iff, v, depth) {
		case yes:
			c.value(n.then, v, at, depth+1)
		case no:
			c.value(n.els, v, at, depth+1)
		default:
			c.unsure = true
		}
	}
}

func (c *check) object(o *objectRules, m map[string]any, at string, depth int) {
	c.size(o.min, o.max, len(m), at, "properties")
	if at == "" { // the arguments themselves: below, an object can be a map of anything
		c.twins(o, m)
	}
	for _, name := range o.required {
		if _, ok := m[name]; !ok {
			c.fault(at, "%.80q is missing", name)
		}
	}
	for name, v := range m {
		if !c.spend(1+len(o.patterns), depth) {
			return
		}
		here := at + "/" + escape.Replace(name)
		if o.names != nil {
			got := c.matches(o.names, name, depth)
			if got == no {
				c.fault(here, "the name is not allowed")
			}
			c.unsure = c.unsure || got == perhaps
		}
		for _, other := range o.needs[name] {
			if _, ok := m[other]; !ok {
				c.fault(at, "%.80q needs %.80q", name, other)
			}
		}
		c.value(o.dependent[name], m, at, depth+1)
		c.property(o, name, v, here, depth)
	}
}

func (c *check) property(o *objectRules, name string, v any, here string, depth int) {
	sub, known := o.props[name]
	c.value(sub, v, here, depth+1)
	for _, p := range o.patterns {
		if p.re == nil {
			known, c.unsure = true, true // perhaps it matches: the server will say
		} else if c.fits(p.re, name, depth) {
			known = true
			c.value(p.node, v, here, depth+1)
		}
	}
	if same, has := o.folded[fold(name)]; has && !known {
		c.fault(here, "differs from %.80q by case alone", same)
		return
	}
	if known || o.rest == nil {
		return
	}
	if o.rest.never {
		c.fault(here, "no such property")
		return
	}
	c.value(o.rest, v, here, depth+1)
}

// fold returns a name as decoders that ignore case compare it: to them two names with one fold are one member.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// twins finds names at the top that differ by case alone, of which one is not declared.
func (c *check) twins(o *objectRules, m map[string]any) {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		other, has := seen[fold(name)]
		seen[fold(name)] = name
		if has && (o.props[name] == nil || o.props[other] == nil) {
			c.fault("/"+escape.Replace(name), "differs from %.80q by case alone", other)
		}
	}
}

func (c *check) array(a *arrayRules, list []any, at string, depth int) {
	c.size(a.min, a.max, len(list), at, "items")
	sure, possible := 0, 0
	seen := map[string]bool{}
	for i, v := range list {
		here := at + "/" + strconv.Itoa(i)
		if i < len(a.prefix) {
			c.value(a.prefix[i], v, here, depth+1)
		} else {
			c.value(a.items, v, here, depth+1)
		}
		if a.contains != nil {
			n, m := c.tally([]*node{a.contains}, v, depth, true)
			sure, possible = sure+n, possible+m
		}
		if a.unique {
			b, _ := json.Marshal(v) // names sorted, so equal values look the same
			c.spend(len(b)/16, depth)
			if seen[string(b)] {
				c.fault(here, "is there twice")
			}
			seen[string(b)] = true
		}
		if !c.spend(1, depth) {
			return
		}
	}
	if a.contains != nil {
		if float64(possible) < or(a.minHits, 1) || float64(sure) > or(a.maxHits, math.Inf(1)) {
			c.fault(at, "holds %d of the items it must contain", sure)
		}
		c.unsure = c.unsure || sure != possible
	}
}

func (c *check) numeric(n *numberRules, f float64, at string) {
	switch {
	case n.min != nil && f < *n.min, n.above != nil && f <= *n.above:
		c.fault(at, "is too small")
	case n.max != nil && f > *n.max, n.below != nil && f >= *n.below:
		c.fault(at, "is too large")
	case n.multiple != nil && *n.multiple > 0 && !multiple(f, *n.multiple):
		c.fault(at, "is not a multiple of %g", *n.multiple)
	}
}

// multiple allows for the rounding of 0.3/0.1 in binary.
func multiple(f, of float64) bool {
	q := f / of
	if math.IsInf(q, 0) {
		return math.Mod(f, of) == 0
	}
	return math.Abs(q-math.Round(q)) <= 1e-9*math.Max(1, math.Abs(q))
}

func (c *check) text(n *node, s, at string, depth int) {
	if n.minLen != nil || n.maxLen != nil {
		c.size(n.minLen, n.maxLen, utf8.RuneCountInString(s), at, "characters")
	}
	if n.pattern != nil && !c.fits(n.pattern, s, depth) {
		c.fault(at, "does not match the pattern %.80q", n.pattern.text)
	}
}

func (c *check) size(min, max *float64, n int, at, of string) {
	if min != nil && float64(n) < *min || max != nil && float64(n) > *max {
		c.fault(at, "has %d %s, want %s", n, of, span(min, max))
	}
}

func (c *check) among(values []any, v any, depth int) bool {
	if !c.spend(len(values), depth) {
		return false
	}
	for _, other := range values {
		if reflect.DeepEqual(other, v) {
			return true
		}
	}
	return false
}

func or(f *float64, otherwise float64) float64 {
	if f == nil {
		return otherwise
	}
	return *f
}

func span(min, max *float64) string {
	switch {
	case max == nil:
		return fmt.Sprintf("at least %g", *min)
	case min == nil:
		return fmt.Sprintf("at most %g", *max)
	}
	return fmt.Sprintf("%g to %g", *min, *max)
}

func isOne(types []string, v any) bool {
	got := typeOf(v)
	for _, t := range types {
		if t == got || t == "number" && got == "integer" {
			return true
		}
	}
	return false
}

func typeOf(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case float64:
		if x == math.Trunc(x) {
			return "integer"
		}
		return "number"
	}
	return "unknown"
}

func join(types []string) string {
	out := ""
	for i, t := range types {
		if i > 0 {
			out += " or "
		}
		out += t
	}
	return out
}
