package codegen

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"waldo/internal/protocol/strictjson"
)

// Bounds of one tool's types. Beyond each of them a type is anything.
const (
	maxDepth    = 16
	maxNodes    = 10_000
	maxObjects  = 500
	maxUnion    = 24
	maxValues   = 100 // of one enum
	maxValue    = 200 // characters of one value
	maxTypeText = 4000
)

type kind int

const (
	anything kind = iota
	text
	integer
	number
	boolean
	null
	value // one constant
	union
	list
	tuple
	dict
	record
)

// typ is a type that both languages can write.
type typ struct {
	kind  kind
	elems []*typ // of a union or tuple; one of a list or dict
	least int    // of a tuple: its required elements
	open  bool   // of a tuple: more elements may follow
	value any    // of a constant: string, int64, bool or nil
	named *object
}

// object is a named type with fields.
type object struct {
	name   string
	fields []field
	open   bool // other fields are declared
}

type field struct {
	name, meaning string
	required      bool
	typ           *typ
}

var anyType = &typ{kind: anything}

// reader turns schemas of one tool into types.
type reader struct {
	root    strictjson.Value
	first   string // the name of the whole schema's type
	nodes   int
	objects []*object // in the order in which they were completed: a type stands after those that it holds
	names   map[string]bool
	refs    map[string]*typ // nil while a reference is being read
}

// readSchema returns the type of a whole schema, and its objects. If it is an object, it has the given name.
func readSchema(v strictjson.Value, name string) (*typ, []*object) {
	r := &reader{root: v, first: name, names: map[string]bool{}, refs: map[string]*typ{}}
	t := r.typ(v, name, "#", 0)
	if t.kind == record {
		t.named.name = name // no other has it: only the type at the root is read under that name
	}
	return t, r.objects
}

// readParams returns the parameters of a tool, which are always an object, and all objects.
func readParams(v strictjson.Value) (*object, []*object) {
	t, objects := readSchema(v, "Params")
	if t.kind == record {
		return t.named, objects
	}
	o := &object{name: "Params", open: true}
	return o, append(objects, o)
}

func (r *reader) typ(v strictjson.Value, name, at string, depth int) *typ {
	m, ok := v.Members()
	if r.nodes++; !ok || depth > maxDepth || r.nodes > maxNodes {
		return anyType
	}
	if ref, ok := m["$ref"].Text(); ok {
		return r.follow(ref, name, depth)
	}
	all, ok := m["enum"].Elements()
	if c := m["const"]; !c.IsZero() {
		all, ok = []strictjson.Value{c}, true
	}
	if ok {
		if t := r.constants(all); t.kind != anything {
			return t
		}
	}
	if _, is := m["properties"].Members(); is {
		if kind, single := m["type"].Text(); m["type"].IsZero() || single && kind == "object" {
			return r.object(m, name, at, depth)
		}
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		if all, ok := m[word].Elements(); ok && (word != "allOf" || len(all) == 1) {
			if u := r.union(all, name, at+"/"+word, depth); u.kind != anything {
				return u
			}
		}
	}
	if all, ok := m["type"].Elements(); ok {
		u := &typ{kind: union}
		for _, one := range all {
			t := anyType
			if k, ok := one.Text(); ok {
				t = r.kind(k, m, name, at, depth)
			}
			u.elems = append(u.elems, t)
		}
		return simplest(u)
	}
	k, _ := m["type"].Text()
	return r.kind(k, m, name, at, depth)
}

// kind returns the type that a word of "type" means.
func (r *reader) kind(k string, m map[string]strictjson.Value, name, at string, depth int) *typ {
	switch k {
	case "string":
		return &typ{kind: text}
	case "integer":
		return &typ{kind: integer}
	case "number":
		return &typ{kind: number}
	case "boolean":
		return &typ{kind: boolean}
	case "null":
		return &typ{kind: null}
	case "array":
		return r.array(m, name, at, depth)
	case "object":
		if fields, ok := m["properties"].Members(); ok && len(fields) > 0 {
			return r.object(m, name, at, depth)
		}
		if rest := m["additionalProperties"]; rest.Kind() == '{' && m["patternProperties"].IsZero() {
			return &typ{kind: dict, elems: []*typ{r.typ(rest, name+"Value", at+"/additionalProperties", depth+1)}}
		}
		return &typ{kind: dict, elems: []*typ{anyType}}
	}
	return anyType
}

func (r *reader) array(m map[string]strictjson.Value, name, at string, depth int) *typ {
	first, rest, where := m["prefixItems"], m["items"], "/prefixItems"
	if _, old := rest.Elements(); old {
		first, rest, where = rest, m["additionalItems"], "/items"
	}
	if all, ok := first.Elements(); ok && len(all) > 0 && len(all) <= maxUnion {
		t := &typ{kind: tuple, open: rest.Kind() != 'f', least: len(all)}
		least, err := strconv.Atoi(string(m["minItems"].Raw()))
		if err != nil || least < len(all) {
			t.least = max(least, 0)
		}
		for i, one := range all {
			n := strconv.Itoa(i)
			t.elems = append(t.elems, r.typ(one, name+n, at+where+"/"+n, depth+1))
		}
		return t
	}
	if rest.Kind() == '{' && first.IsZero() {
		return &typ{kind: list, elems: []*typ{r.typ(rest, name+"Item", at+"/items", depth+1)}}
	}
	return &typ{kind: list, elems: []*typ{anyType}}
}

func (r *reader) union(all []strictjson.Value, name, at string, depth int) *typ {
	if len(all) == 0 || len(all) > maxUnion {
		return anyType
	}
	u := &typ{kind: union}
	for i, one := range all {
		n := strconv.Itoa(i + 1)
		u.elems = append(u.elems, r.typ(one, name+n, at+"/"+strconv.Itoa(i), depth+1))
	}
	return simplest(u)
}

// simplest flattens a union and removes what it repeats. With a part that is anything all of it is.
func simplest(u *typ) *typ {
	var flat []*typ
	for _, e := range u.elems {
		parts := []*typ{e}
		if e.kind == union {
			parts = e.elems
		}
		for _, p := range parts {
			if p.kind == anything {
				return anyType
			}
			same := func(q *typ) bool {
				return q == p || q.kind == p.kind &&
					(p.kind < value || p.kind == value && q.value == p.value || p.kind == record && p.named == q.named)
			}
			if !slices.ContainsFunc(flat, same) {
				flat = append(flat, p)
			}
		}
	}
	switch {
	case len(flat) == 0 || len(flat) > maxValues+maxUnion:
		return anyType
	case len(flat) == 1:
		return flat[0]
	}
	return &typ{kind: union, elems: flat}
}

// constants returns the type of an enum: its values where they are few, else what they have in common.
func (r *reader) constants(all []strictjson.Value) *typ {
	exact, wide := &typ{kind: union}, &typ{kind: union}
	for _, v := range all {
		r.nodes++
		t, base := constant(v)
		exact.elems = append(exact.elems, t)
		if !slices.ContainsFunc(wide.elems, func(o *typ) bool { return o.kind == base }) {
			wide.elems = append(wide.elems, &typ{kind: base})
		}
	}
	if len(all) > maxValues || r.nodes > maxNodes {
		return simplest(wide)
	}
	return simplest(exact)
}

// constant returns the type of one value, and the wider kind.
func constant(v strictjson.Value) (*typ, kind) {
	switch v.Kind() {
	case '"':
		if s, ok := v.Text(); ok && len(s) <= maxValue {
			return &typ{kind: value, value: s}, text
		}
		return &typ{kind: text}, text
	case 't', 'f':
		return &typ{kind: value, value: v.Kind() == 't'}, boolean
	case 'n':
		return &typ{kind: null}, null
	case '0':
		n, err := strconv.ParseInt(string(v.Raw()), 10, 64)
		if err != nil || n > 1<<53 || n < -1<<53 {
			return &typ{kind: number}, number
		}
		return &typ{kind: value, value: n}, integer
	}
	return anyType, anything
}

func (r *reader) object(m map[string]strictjson.Value, name, at string, depth int) *typ {
	if len(r.names) >= maxObjects {
		return &typ{kind: dict, elems: []*typ{anyType}}
	}
	o := &object{name: r.unique(name)}
	t := &typ{kind: record, named: o}
	if _, seen := r.refs[at]; !seen || r.refs[at] == nil {
		r.refs[at] = t // a reference below finds it
	}
	needed := map[string]bool{}
	if all, ok := m["required"].Elements(); ok {
		for _, v := range all {
			if s, ok := v.Text(); ok {
				needed[s] = true
			}
		}
	}
	rest := m["additionalProperties"]
	o.open = rest.Kind() == '{' || rest.Kind() == 't' || !m["patternProperties"].IsZero()
	fields, _ := m["properties"].Members()
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		v := fields[key]
		meaning, _ := v.Member("description").Text()
		f := field{name: key, meaning: meaning, required: needed[key]}
		f.typ = r.typ(v, name+camel(key), at+"/properties/"+escapePointer(key), depth+1)
		o.fields = append(o.fields, f)
	}
	r.objects = append(r.objects, o)
	return t
}

// follow returns the type that a reference within the schema means; one to elsewhere is anything and is never read.
func (r *reader) follow(ref, name string, depth int) *typ {
	pointer, ok := strings.CutPrefix(ref, "#")
	if plain, err := url.PathUnescape(pointer); err != nil || !ok || plain != "" && plain[0] != '/' {
		return anyType
	} else {
		pointer = plain
	}
	at := "#" + pointer
	if t, seen := r.refs[at]; seen {
		if t == nil { // it means itself
			return anyType
		}
		return t
	}
	v := r.root
	if pointer != "" {
		parts := strings.Split(pointer[1:], "/")
		for _, part := range parts {
			part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
			if all, ok := v.Elements(); ok {
				i, err := strconv.Atoi(part)
				if err != nil || i < 0 || i >= len(all) {
					return anyType
				}
				v = all[i]
			} else {
				v = v.Member(part)
			}
			if v.IsZero() {
				return anyType
			}
		}
		if last := camel(parts[len(parts)-1]); last != "" {
			name = r.first + last
		}
	}
	r.refs[at] = nil
	t := r.typ(v, name, at, depth+1)
	r.refs[at] = t
	return t
}

func escapePointer(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// camel spells a property in the letters and digits that a type's name may have.
func camel(key string) string {
	var b strings.Builder
	up := true
	for _, r := range key {
		if r >= 0x80 || !identifierByte(byte(r)) || r == '_' {
			up = true
			continue
		}
		s := string(r)
		if up {
			s = strings.ToUpper(s)
		}
		b.WriteString(s)
		if up = false; b.Len() >= 24 {
			break
		}
	}
	return b.String()
}

// unique returns a type name that no other type of the tool has.
func (r *reader) unique(name string) string {
	if len(name) > longest {
		name = name[:longest]
	}
	one := name
	for n := 2; r.names[one]; n++ {
		one = name + "_" + strconv.Itoa(n)
	}
	r.names[one] = true
	return one
}
