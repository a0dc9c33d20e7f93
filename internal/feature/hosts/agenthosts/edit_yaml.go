package agenthosts

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// putYAML writes an entry below path[0], whose mapping must be written over lines.
func putYAML(text []byte, path []string, e Value) ([]byte, error) {
	nl := newline(text)
	block := func(margin string) string {
		return margin + Quote(path[1]) + ":" + nl + renderYAML(&e, margin+"  ", nl)
	}
	top, p := readYAML(text)
	if p != nil {
		return nil, p
	}
	_, val := child(top, path[0])
	if old, _ := child(val, path[1]); old != nil {
		if err := oneEnd(text); err != nil {
			return nil, err
		}
		from := offset(text, old.Line)
		text = takeYAML(text, path)
		return splice(text, from, from, block(strings.Repeat(" ", old.Column-1))), nil
	}
	return InsertYAML(text, path[0], block)
}

// oneEnd refuses line ends that YAML knows and this editor does not.
func oneEnd(text []byte) error {
	if strings.ContainsAny(strings.ReplaceAll(string(text), "\r\n", "\n"), "\r\u0085\u2028\u2029") {
		return errors.New("its lines do not all end alike")
	}
	return nil
}

// InsertYAML adds lines to the mapping under a top-level key, and makes the mapping if it is missing. block gets the
// indentation and returns the lines. The caller must parse the result before use.
func InsertYAML(text []byte, under string, block func(margin string) string) ([]byte, error) {
	if err := oneEnd(text); err != nil {
		return nil, err
	}
	nl := newline(text)
	top, p := readYAML(text)
	if p != nil {
		return nil, p
	}
	key, val := child(top, under)
	if key == nil {
		before := ""
		if len(text) > 0 && text[len(text)-1] != '\n' {
			before = nl
		}
		return splice(text, len(text), len(text), before+under+":"+nl+block("  ")), nil
	}
	line := offset(text, key.Line)
	after := lineEnd(text, line)
	braces := errors.New(under + " is written in braces: write it over lines")
	switch {
	case val.Kind == yaml.MappingNode && len(val.Content) == 0: // under: {}
		from := offset(text, val.Line)
		brace := strings.Index(string(text[from:]), "{}")
		if brace < 0 || val.Line != key.Line {
			return nil, braces
		}
		return splice(text, from+brace, after, strings.TrimRight(nl+block("  "), " ")), nil
	case val.Kind == yaml.MappingNode && val.Style&yaml.FlowStyle != 0:
		return nil, braces
	case val.Kind == yaml.MappingNode:
		return splice(text, after, after, block(strings.Repeat(" ", val.Content[0].Column-1))), nil
	}
	before := ""
	if after == len(text) && text[after-1] != '\n' {
		before = nl
	}
	return splice(text, after, after, before+block("  ")), nil
}

func child(n *yaml.Node, name string) (key, val *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// offset is where a line, counted from 1, begins.
func offset(text []byte, line int) int {
	at := 0
	for ; line > 1; line-- {
		at = lineEnd(text, at)
	}
	return at
}

// takeYAML removes the lines of an entry.
func takeYAML(text []byte, path []string) []byte {
	top, p := readYAML(text)
	if p != nil {
		return text
	}
	_, val := child(top, path[0])
	from, to := -1, len(text)
	for _, m := range []*yaml.Node{val, top} { // the next key of the mapping, or of the one around it
		for i := 0; i < len(m.Content); i += 2 {
			k := m.Content[i]
			switch {
			case m == val && k.Value == path[1]:
				from = offset(text, k.Line)
			case from >= 0 && to == len(text) && offset(text, k.Line) > from:
				to = offset(text, k.Line)
			}
		}
	}
	out := splice(text, from, shortened(text, from, to), "")
	if len(val.Content) == 2 { // it was the only one
		key, _ := child(top, path[0])
		end := lineEnd(out, offset(out, key.Line))
		line := strings.TrimRight(string(out[offset(out, key.Line):end]), " \r\n")
		out = splice(out, offset(out, key.Line), end, line+" {}"+newline(text))
	}
	return out
}

// renderYAML writes a mapping of texts, lists and mappings, one key a line.
func renderYAML(v *Value, margin, nl string) string {
	var b strings.Builder
	for i := range v.Members {
		m := &v.Members[i]
		if m.Value.Kind == Map && len(m.Value.Members) > 0 {
			b.WriteString(margin + m.Name + ":" + nl + renderYAML(&m.Value, margin+"  ", nl))
			continue
		}
		b.WriteString(margin + m.Name + ": " + renderJSON(&m.Value, "", "", nl) + nl)
	}
	return b.String()
}
