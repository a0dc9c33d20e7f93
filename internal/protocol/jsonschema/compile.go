// Package jsonschema checks values against JSON Schema (2020-12, and draft-07 where it differs only in
// spelling) within a budget, because schemas come from untrusted servers. References stay inside the schema. A schema
// that takes too long refuses the value.
//
// Not enforced, as the server that owns the schema checks them itself: format, content*,
// unevaluatedProperties, unevaluatedItems, patterns that RE2 cannot express, and patterns that expand to more than
// maxWeight. A part that holds one of these neither refuses a value below not, nor chooses between then and else.
package jsonschema

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"waldo/internal/protocol/strictjson"
)

// MaxBytes and MaxNodes bound the schemas that are taken: the largest of 873 real ones has 41
// properties, so these leave room.
const (
	MaxBytes = 1 << 20
	MaxNodes = 20_000
)

// Schema is a compiled schema, safe to use from many goroutines.
type Schema struct{ root *node }

type node struct {
	never   bool // the schema false
	partly  bool // a keyword is not enforced
	ref     *node
	types   []string
	enum    []any // nil: anything
	allOf   []*node
	anyOf   []*node
	oneOf   []*node
	not     *node
	iff     *node
	then    *node
	els     *node
	object  objectRules
	array   arrayRules
	number  numberRules
	minLen  *float64
	maxLen  *float64
	pattern *pattern
}

type objectRules struct {
	props     map[string]*node
	folded    map[string]string // their names, by fold
	patterns  []patternRule
	rest      *node // additionalProperties
	names     *node
	required  []string
	min, max  *float64
	needs     map[string][]string // dependentRequired
	dependent map[string]*node
}

type patternRule struct {
	re   *pattern // nil: it is not enforced, so it may match anything
	node *node
}

type arrayRules struct {
	prefix   []*node
	items    *node
	contains *node
	minHits  *float64
	maxHits  *float64
	min, max *float64
	unique   bool
}

type numberRules struct {
	min, max, above, below, multiple *float64
}

type compiler struct {
	root    any
	base    string // the root's $id
	at      map[string]*node
	anchors map[string]string // to pointer
	refs    []pendingRef
	count   int
	nested  bool // a part has an $id of its own, so that references could mean another whole
}

type pendingRef struct {
	from *node
	ref  string
}

// Compile reads a schema. It refuses anything but an object or a boolean, schemas beyond MaxBytes
// and MaxNodes, malformed keywords, and references that leave the schema.
func Compile(v strictjson.Value) (*Schema, error) {
	if len(v.Raw()) > MaxBytes {
		return nil, fmt.Errorf("a schema of %d bytes: at most %d are taken", len(v.Raw()), MaxBytes)
	}
	var root any
	if v.IsZero() {
		return nil, fmt.Errorf("there is no schema")
	}
	if err := v.Decode(&root); err != nil {
		return nil, err
	}
	c := &compiler{root: root, at: map[string]*node{}, anchors: map[string]string{}}
	if m, ok := root.(map[string]any); ok {
		c.base, _ = m["$id"].(string)
	}
	n, err := c.node(root, "")
	if err != nil {
		return nil, err
	}
	for len(c.refs) > 0 {
		r := c.refs[0]
		c.refs = c.refs[1:]
		if r.from.ref, err = c.resolve(r.ref); err != nil {
			return nil, err
		}
	}
	return &Schema{root: n}, nil
}

// resolve finds the node that a reference names, compiling it if no keyword led there.
func (c *compiler) resolve(ref string) (*node, error) {
	if c.nested {
		return nil, fmt.Errorf("$ref %.100q beside a nested $id: not supported", ref)
	}
	local := strings.TrimPrefix(ref, strings.TrimSuffix(c.base, "#"))
	if local == "" {
		local = "#"
	}
	fragment, ok := strings.CutPrefix(local, "#")
	if !ok {
		return nil, fmt.Errorf("$ref %.100q leaves the schema; nothing is fetched", ref)
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, fmt.Errorf("$ref %.100q: %w", ref, err)
	}
	if fragment != "" && fragment[0] != '/' {
		pointer, ok := c.anchors[fragment]
		if !ok {
			return nil, fmt.Errorf("$ref %.100q: no such anchor", ref)
		}
		fragment = pointer
	}
	if n := c.at[fragment]; n != nil {
		return n, nil
	}
	v, err := follow(c.root, fragment)
	if err != nil {
		return nil, fmt.Errorf("$ref %.100q: %w", ref, err)
	}
	return c.node(v, fragment)
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// follow walks a JSON pointer (RFC 6901).
func follow(v any, pointer string) (any, error) {
	for i, part := range strings.Split(pointer, "/") {
		if i == 0 {
			continue
		}
		part = unescape.Replace(part)
		switch x := v.(type) {
		case map[string]any:
			next, ok := x[part]
			if !ok {
				return nil, fmt.Errorf("it points nowhere")
			}
			v = next
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n >= len(x) {
				return nil, fmt.Errorf("it points nowhere")
			}
			v = x[n]
		default:
			return nil, fmt.Errorf("it points nowhere")
		}
	}
	return v, nil
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (c *compiler) node(v any, pointer string) (*node, error) {
	if c.count++; c.count > MaxNodes {
		return nil, fmt.Errorf("a schema of more than %d parts", MaxNodes)
	}
	n := &node{}
	c.at[pointer] = n
	switch x := v.(type) {
	case bool:
		n.never = !x
		return n, nil
	case map[string]any:
		k := keywords{c: c, m: x, pointer: pointer}
		k.fill(n)
		return n, k.err
	}
	return nil, fmt.Errorf("schema at %.100q is neither an object nor a boolean", pointer)
}

// keywords reads the members of one schema object and keeps the first error.
type keywords struct {
	c       *compiler
	m       map[string]any
	pointer string
	err     error
}

func (k *keywords) fill(n *node) {
	if id, ok := k.m["$id"].(string); ok && k.pointer != "" && id != "" {
		k.c.nested = true
	}
	for _, name := range []string{"$anchor", "$dynamicAnchor"} {
		if a, ok := k.m[name].(string); ok {
			k.c.anchors[a] = k.pointer
		}
	}
	for _, name := range []string{"$defs", "definitions"} {
		k.named(name) // compiled so that their anchors are known
	}
	for _, name := range []string{"$ref", "$dynamicRef"} {
		if r, ok := k.m[name].(string); ok {
			k.c.refs = append(k.c.refs, pendingRef{n, r})
		}
	}
	n.types = k.strings("type")
	n.enum, _ = k.m["enum"].([]any)
	if value, ok := k.m["const"]; ok {
		n.enum = []any{value}
	}
	n.allOf, n.anyOf, n.oneOf = k.list("allOf"), k.list("anyOf"), k.list("oneOf")
	n.not, n.iff, n.then, n.els = k.one("not"), k.one("if"), k.one("then"), k.one("else")
	n.minLen, n.maxLen = k.number("minLength"), k.number("maxLength")
	if p, ok := k.m["pattern"].(string); ok {
		n.pattern = newPattern(p)
		n.partly = n.pattern == nil
	}
	for _, name := range []string{"format", "unevaluatedProperties", "unevaluatedItems"} {
		if v, has := k.m[name]; has && v != true {
			n.partly = true
		}
	}
	n.number = numberRules{min: k.number("minimum"), max: k.number("maximum"), above: k.number("exclusiveMinimum"),
		below: k.number("exclusiveMaximum"), multiple: k.number("multipleOf")}
	k.fillObject(&n.object)
	k.fillArray(&n.array)
}

func (k *keywords) fillObject(o *objectRules) {
	o.props, o.folded = k.named("properties"), map[string]string{}
	for name := range o.props {
		o.folded[fold(name)] = name
	}
	for p, n := range k.named("patternProperties") {
		o.patterns = append(o.patterns, patternRule{newPattern(p), n})
	}
	o.rest, o.names = k.one("additionalProperties"), k.one("propertyNames")
	o.required = k.strings("required")
	o.min, o.max = k.number("minProperties"), k.number("maxProperties")
	o.dependent = k.named("dependentSchemas")
	o.needs = map[string][]string{}
	for _, name := range []string{"dependentRequired", "dependencies"} {
		members, _ := k.m[name].(map[string]any)
		for p, v := range members {
			if list, ok := v.([]any); ok {
				o.needs[p] = texts(list)
				continue
			}
			if name == "dependencies" { // draft-07: a schema stands where a list may
				if o.dependent == nil {
					o.dependent = map[string]*node{}
				}
				o.dependent[p] = k.sub(v, k.pointer+"/dependencies/"+escape.Replace(p))
			}
		}
	}
}

func (k *keywords) fillArray(a *arrayRules) {
	a.prefix = k.list("prefixItems")
	if _, tuple := k.m["items"].([]any); tuple { // draft-07
		a.prefix, a.items = k.list("items"), k.one("additionalItems")
	} else {
		a.items = k.one("items")
	}
	a.contains = k.one("contains")
	a.minHits, a.maxHits = k.number("minContains"), k.number("maxContains")
	a.min, a.max = k.number("minItems"), k.number("maxItems")
	a.unique, _ = k.m["uniqueItems"].(bool)
}

func (k *keywords) sub(v any, pointer string) *node {
	n, err := k.c.node(v, pointer)
	if err != nil && k.err == nil {
		k.err = err
	}
	return n
}

func (k *keywords) one(name string) *node {
	v, ok := k.m[name]
	if !ok {
		return nil
	}
	return k.sub(v, k.pointer+"/"+name)
}

func (k *keywords) list(name string) []*node {
	v, has := k.m[name]
	if !has {
		return nil
	}
	values, ok := v.([]any)
	if !ok {
		k.fail(name, "a list of schemas")
		return nil
	}
	out := make([]*node, len(values))
	for i, v := range values {
		out[i] = k.sub(v, k.pointer+"/"+name+"/"+strconv.Itoa(i))
	}
	return out
}

func (k *keywords) named(name string) map[string]*node {
	v, has := k.m[name]
	if !has {
		return nil
	}
	values, ok := v.(map[string]any)
	if !ok {
		k.fail(name, "an object of schemas")
		return nil
	}
	out := make(map[string]*node, len(values))
	for p, v := range values {
		out[p] = k.sub(v, k.pointer+"/"+name+"/"+escape.Replace(p))
	}
	return out
}

func (k *keywords) number(name string) *float64 {
	v, has := k.m[name]
	if !has {
		return nil
	}
	f, ok := v.(float64)
	if !ok {
		if _, old := v.(bool); !old { // draft-04 wrote exclusiveMinimum as a boolean: not enforced
			k.fail(name, "a number")
		}
		return nil
	}
	return &f
}

// strings reads a list of strings, or one string alone.
func (k *keywords) strings(name string) []string {
	switch v := k.m[name].(type) {
	case nil:
		return nil
	case string:
		return []string{v}
	case []any:
		return texts(v)
	}
	if _, old := k.m[name].(bool); !old { // draft-03 wrote required as a boolean: not enforced
		k.fail(name, "a string or a list of strings")
	}
	return nil
}

func texts(list []any) []string {
	var out []string
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func (k *keywords) fail(name, want string) {
	if k.err == nil {
		k.err = fmt.Errorf("schema at %.100q: %s must be %s", k.pointer, name, want)
	}
}
