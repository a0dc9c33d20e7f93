package agenthosts

import (
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// putTOML writes a table, where it stood before or at the end.
func putTOML(text []byte, path []string, e Value) []byte {
	nl := newline(text)
	block := renderTOML(path, &e, nl)
	at := len(text)
	if places := placesTOML(text, path); len(places) > 0 {
		at = places[0].from
		text = takeTOML(text, path)
	}
	before := ""
	if at == len(text) && at > 0 {
		if text[at-1] != '\n' {
			before = nl
		}
		before += nl
	}
	return splice(text, at, at, before+block)
}

// span is a part of a text.
type span struct{ from, to int }

// placesTOML returns the lines of every expression at path or below it.
func placesTOML(text []byte, path []string) []span {
	t := &tomlTree{lines: newLines(text), p: &unstable.Parser{}}
	t.p.Reset(text)
	var out []span
	var table []string
	open := false
	for t.p.NextExpression() {
		e := t.p.Expression()
		var full []string
		if e.Kind == unstable.KeyValue {
			full = slices.Clone(table)
		}
		first := -1
		for it := e.Key(); it.Next(); {
			if first < 0 {
				first = int(it.Node().Raw.Offset)
			}
			full = append(full, string(it.Node().Data))
		}
		if e.Kind != unstable.KeyValue {
			table = full
		}
		start := lineStart(text, first)
		if open {
			out[len(out)-1].to = start
		}
		if open = len(full) >= len(path) && slices.Equal(full[:len(path)], path); open {
			out = append(out, span{start, len(text)})
		}
	}
	for i := range out {
		out[i].to = shortened(text, out[i].from, out[i].to)
	}
	return out
}

func takeTOML(text []byte, path []string) []byte {
	for _, s := range slices.Backward(placesTOML(text, path)) {
		text = splice(text, s.from, s.to, "")
	}
	return text
}

// renderTOML writes a table of texts, lists and, below it, tables.
func renderTOML(path []string, v *Value, nl string) string {
	keys := make([]string, len(path))
	for i, k := range path {
		if keys[i] = k; strings.Trim(k, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || k == "" {
			keys[i] = Quote(k)
		}
	}
	var b, below strings.Builder
	b.WriteString("[" + strings.Join(keys, ".") + "]" + nl)
	for i := range v.Members {
		m := &v.Members[i]
		if m.Value.Kind == Map {
			below.WriteString(nl + renderTOML(append(slices.Clone(path), m.Name), &m.Value, nl))
			continue
		}
		b.WriteString(m.Name + " = " + renderJSON(&m.Value, "", "", nl) + nl)
	}
	return b.String() + below.String()
}
