package agenthosts

import (
	"errors"
	"strings"
	"waldo/internal/detect/pattern"
	"waldo/internal/model/display"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxConfig is the largest TOML or YAML file read, in bytes: people write them by hand.
const maxConfig = 1 << 20

// inQuotes matches quotations from the file in a library's message; they can hold a secret.
var inQuotes = pattern.Lazy("(?s)[\"'`].*[\"'`]")

func said(err error, library string) string {
	text := strings.TrimPrefix(err.Error(), library)
	return display.ASCII(inQuotes().ReplaceAllString(text, "…"))
}

// parseTOML reads TOML. The library's decoder judges the file, keys said twice included; its
// parser then gives every key with its place.
func parseTOML(text []byte) (*Value, *Problem) {
	if len(text) > maxConfig {
		return nil, fault(Pos{1, 1}, "", "%d bytes: at most %d are read", len(text), maxConfig)
	}
	text = []byte(strings.Replace(string(text), mark, "   ", 1))
	l := newLines(text)
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		at := Pos{1, 1}
		var d *toml.DecodeError
		if errors.As(err, &d) {
			at.Line, at.Column = d.Position()
		}
		return nil, fault(at, "", "not TOML: %s", said(err, "toml: "))
	}
	root := &Value{Kind: Map, At: Pos{1, 1}}
	t := &tomlTree{lines: l, p: &unstable.Parser{}}
	t.p.Reset(text)
	into := root
	for t.p.NextExpression() {
		e := t.p.Expression()
		var p *Problem
		switch e.Kind {
		case unstable.Table:
			into, p = t.descend(root, t.keys(e))
		case unstable.ArrayTable:
			keys := t.keys(e)
			if into, p = t.descend(root, keys[:len(keys)-1]); p == nil {
				into = element(into, keys[len(keys)-1])
			}
		case unstable.KeyValue:
			p = t.set(into, e, 1)
		}
		if p != nil {
			return nil, p
		}
	}
	if err := t.p.Error(); err != nil {
		return nil, fault(Pos{1, 1}, "", "not TOML: %s", said(err, "toml: "))
	}
	return root, nil
}

type tomlTree struct {
	*lines
	p *unstable.Parser
}

// name is one part of a dotted key and its place.
type name struct {
	text string
	at   Pos
}

func (t *tomlTree) keys(e *unstable.Node) []name {
	var out []name
	for it := e.Key(); it.Next(); {
		n := it.Node()
		out = append(out, name{string(n.Data), t.at(int(n.Raw.Offset))})
	}
	return out
}

// descend follows keys down from v and creates missing tables. In a list of tables it takes the last, as TOML does.
func (t *tomlTree) descend(v *Value, keys []name) (*Value, *Problem) {
	for i, k := range keys {
		if i >= maxDepth {
			return nil, fault(k.at, "", "nested deeper than %d", maxDepth)
		}
		next := v.Get(k.text)
		if next == nil {
			v.Members = append(v.Members, Member{k.text, k.at, Value{Kind: Map, At: k.at}})
			next = &v.Members[len(v.Members)-1].Value
		}
		if next.Kind == List && len(next.Items) > 0 {
			next = &next.Items[len(next.Items)-1]
		}
		v = next
	}
	return v, nil
}

// element adds a table to the list of tables that k names.
func element(v *Value, k name) *Value {
	list := v.Get(k.text)
	if list == nil {
		v.Members = append(v.Members, Member{k.text, k.at, Value{Kind: List, At: k.at}})
		list = &v.Members[len(v.Members)-1].Value
	}
	list.Items = append(list.Items, Value{Kind: Map, At: k.at})
	return &list.Items[len(list.Items)-1]
}

func (t *tomlTree) set(into *Value, e *unstable.Node, depth int) *Problem {
	keys := t.keys(e)
	into, p := t.descend(into, keys[:len(keys)-1])
	if p != nil {
		return p
	}
	last := keys[len(keys)-1]
	v, p := t.value(e.Value(), last.at, depth+1)
	if p != nil {
		return p
	}
	into.Members = append(into.Members, Member{last.text, last.at, v})
	return nil
}

func (t *tomlTree) value(n *unstable.Node, at Pos, depth int) (Value, *Problem) {
	if n.Raw.Length > 0 {
		at = t.at(int(n.Raw.Offset))
	}
	v := Value{At: at}
	if depth > maxDepth {
		return v, fault(at, "", "nested deeper than %d", maxDepth)
	}
	switch n.Kind {
	case unstable.Array:
		v.Kind = List
		for it := n.Children(); it.Next(); {
			item, p := t.value(it.Node(), at, depth+1)
			if p != nil {
				return v, p
			}
			v.Items = append(v.Items, item)
		}
	case unstable.InlineTable:
		v.Kind = Map
		for it := n.Children(); it.Next(); {
			if p := t.set(&v, it.Node(), depth+1); p != nil {
				return v, p
			}
		}
	case unstable.Bool:
		v.Kind, v.Text = Bool, string(n.Data)
	case unstable.Integer, unstable.Float:
		v.Kind, v.Text = Number, string(n.Data)
	default: // text, and the times, which no server of any host has
		v.Kind, v.Text = Text, string(n.Data)
	}
	return v, nil
}
