package config

import (
	"cmp"

	"go.yaml.in/yaml/v3"

	"waldo/internal/config/outline"
	"waldo/internal/config/strictyaml"
)

// field is one key of a mapping of the file, and its value.
type field = strictyaml.Field

// key declares one key of a mapping that is read into a T. The reader, the JSON Schema and the reference page follow
// from it.
type key[T any] struct {
	name   string
	value  value[T]
	absent string // meaning of an absent line; "": the key is required, or the value has its own default
	doc    string // one sentence
	by     string // the package that enforces it; "": this build does not, and the key is an error
}

// value describes the values of a key, and their reader into a T.
type value[T any] struct {
	shapes   []outline.Shape                 // one, or alternatives
	read     func(p *parser, f field, to *T) // nil: nothing is read
	standard string                          // value of an absent line, as it would be written
	absent   func(key string, to *T)         // reads standard
}

// mapping declares a mapping with keys of waldo's own.
type mapping[T any] struct {
	name    string // in messages and of its section in the reference page
	title   string // in messages; "": name
	doc     string // the first text of its section
	example string // a whole file that shows it
	keys    []key[T]
	begin   func(p *parser, f field, to *T)                      // before its keys are read
	check   func(p *parser, f field, to *T, at map[string]field) // afterwards, across keys
}

// or gives a value the standard that an absent line has.
func or[T any](standard string, v value[T]) value[T] {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(standard), &doc); err != nil {
		panic("config: a standard that is not YAML: " + standard)
	}
	v.standard = standard
	v.absent = func(key string, to *T) {
		p := &parser{}
		if v.read(p, field{Name: key, Key: doc.Content[0], Val: doc.Content[0]}, to); len(p.Problems) > 0 {
			panic("config: a standard that is refused: " + p.Problems.Error())
		}
	}
	return v
}

// either joins two values: the first where is holds, else the second.
func either[T any](is func(*yaml.Node) bool, a, b value[T]) value[T] {
	return value[T]{shapes: append(append([]outline.Shape{}, a.shapes...), b.shapes...),
		read: func(p *parser, f field, to *T) {
			if is(f.Val) {
				a.read(p, f, to)
			} else {
				b.read(p, f, to)
			}
		}}
}

func isMapping(n *yaml.Node) bool  { return n.Kind == yaml.MappingNode }
func isSequence(n *yaml.Node) bool { return n.Kind == yaml.SequenceNode }

// leaf is a value that read makes of the text.
func leaf[T, V any](s outline.Shape, read func(*parser, field) V, at func(*T) *V) value[T] {
	return value[T]{shapes: []outline.Shape{s}, read: func(p *parser, f field, to *T) { *at(to) = read(p, f) }}
}

// nested is a mapping with keys of its own, read into a part of T.
func nested[T, V any](m *mapping[V], at func(*T) *V) value[T] {
	return value[T]{shapes: []outline.Shape{m.shape()},
		read: func(p *parser, f field, to *T) { m.read(p, f, at(to)) },
	}
}

// pointer is nested where an absent mapping is nil.
func pointer[T, V any](m *mapping[V], at func(*T) **V) value[T] {
	return value[T]{shapes: []outline.Shape{m.shape()},
		read: func(p *parser, f field, to *T) {
			v := new(V)
			m.read(p, f, v)
			*at(to) = v
		},
	}
}

// list is a list of mappings, at least one.
func list[T, V any](m *mapping[V], what, hint string, at func(*T) *[]V) value[T] {
	s := m.shape()
	s.List = true
	return value[T]{shapes: []outline.Shape{s},
		read: func(p *parser, f field, to *T) {
			if f.Val.Kind != yaml.SequenceNode || len(f.Val.Content) == 0 {
				p.Fail(f.Val, "value.type", hint, "%q wants a list of %s, not %s", f.Name, what, strictyaml.Kind(f.Val))
				return
			}
			for _, n := range f.Val.Content {
				var v V
				m.read(p, field{Name: f.Name, Key: n, Val: n}, &v)
				*at(to) = append(*at(to), v)
			}
		},
	}
}

// named is a mapping of the operator's own names to mappings; entry reads one of them.
func named[T, V any](m *mapping[V], entry func(*parser, field), at func(*T) map[string]V) value[T] {
	s := m.shape()
	s.Named = true
	return value[T]{shapes: []outline.Shape{s},
		read: func(p *parser, f field, _ *T) {
			for _, e := range p.Entries(f) {
				entry(p, e)
			}
		},
	}
}

// read reads the keys of a mapping, in the order of the file.
func (m *mapping[T]) read(p *parser, f field, to *T) {
	m.defaults(to)
	if m.begin != nil {
		m.begin(p, f, to)
	}
	at := map[string]field{}
	for _, g := range p.Fields(f.Val, m) {
		at[g.Name] = g
		if k := m.key(g.Name); k.value.read != nil {
			k.value.read(p, g, to)
		}
	}
	if m.check != nil {
		m.check(p, f, to, at)
	}
}

// defaults fills in the values of absent lines.
func (m *mapping[T]) defaults(to *T) {
	for _, k := range m.keys {
		if k.value.absent != nil {
			k.value.absent(k.name, to)
		}
	}
}

// Called names the mapping in messages.
func (m *mapping[T]) Called() string { return cmp.Or(m.title, m.name) }

// Names returns the names of its keys.
func (m *mapping[T]) Names() []string {
	var out []string
	for _, k := range m.keys {
		out = append(out, k.name)
	}
	return out
}

func (m *mapping[T]) key(name string) *key[T] {
	for i := range m.keys {
		if m.keys[i].name == name {
			return &m.keys[i]
		}
	}
	return nil
}

// outline describes the mapping without the type that it is read into.
func (m *mapping[T]) outline() outline.Mapping {
	o := outline.Mapping{Name: m.name, Doc: m.doc, Example: m.example}
	for _, k := range m.keys {
		absent := cmp.Or(k.absent, k.value.standard)
		o.Keys = append(o.Keys, outline.Key{
			Name: k.name, Absent: absent, Doc: k.doc, By: k.by, Shapes: k.value.shapes, Required: absent == "",
		})
	}
	return o
}

func (m *mapping[T]) shape() outline.Shape { return outline.Shape{Name: "mapping", Of: m.outline} }
