package agenthosts

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tailscale/hujson"
)

// putJSON sets the value at path by splicing: comments, order and spaces elsewhere stay.
func putJSON(text []byte, path []string, e Value) ([]byte, error) {
	nl := newline(text)
	if blank(text) {
		v := e
		for i := len(path) - 1; i >= 0; i-- {
			v = Value{Kind: Map, Members: []Member{{Name: path[i], Value: v}}}
		}
		return []byte(renderJSON(&v, "", "  ", nl) + nl), nil
	}
	ast, p := readJSON(text, newLines(text))
	if p != nil {
		return nil, p
	}
	unit := "  "
	if top, ok := ast.Value.(*hujson.Object); ok && len(top.Members) > 0 {
		if m := top.Members[0].Name.StartOffset; bytes.IndexByte(text[ast.StartOffset:m], '\n') >= 0 &&
			margin(text, m) != "" {
			unit = margin(text, m)
		}
	}
	at := ast
	for i, name := range path {
		obj, ok := at.Value.(*hujson.Object)
		if !ok {
			return splice(text, at.StartOffset, at.EndOffset, nested(path[i:], e, margin(text, at.StartOffset), unit, nl)), nil
		}
		if m := member(obj, name); m != nil {
			at = &m.Value
			continue
		}
		return insert(text, at, obj, name, path[i+1:], e, unit, nl), nil
	}
	return splice(text, at.StartOffset, at.EndOffset, renderJSON(&e, margin(text, at.StartOffset), unit, nl)), nil
}

func member(obj *hujson.Object, name string) *hujson.ObjectMember {
	for i := range obj.Members {
		if obj.Members[i].Name.Value.(hujson.Literal).String() == name {
			return &obj.Members[i]
		}
	}
	return nil
}

// nested renders {path[0]: {… e}}.
func nested(path []string, e Value, margin, unit, nl string) string {
	for i := len(path) - 1; i >= 0; i-- {
		e = Value{Kind: Map, Members: []Member{{Name: path[i], Value: e}}}
	}
	return renderJSON(&e, margin, unit, nl)
}

// insert adds a last member to an object, after what comments stand at its end.
func insert(
	text []byte, at *hujson.Value, obj *hujson.Object, name string, rest []string, e Value, unit, nl string,
) []byte {
	from, inner := at.StartOffset+1, margin(text, at.StartOffset)+unit
	comma := ""
	last := len(obj.Members) - 1
	oneLine := false
	if last >= 0 {
		from = obj.Members[last].Value.EndOffset
		first := obj.Members[0].Name.StartOffset
		if oneLine = bytes.IndexByte(text[at.StartOffset:first], '\n') < 0; !oneLine {
			inner = margin(text, first)
		}
	}
	to := at.EndOffset - 1
	extra := strings.TrimRight(string(text[from:to]), " \t\r\n")
	trailing := hasComma(extra)
	if last >= 0 && !trailing {
		comma = ","
	}
	if strings.Contains(extra, "//") {
		oneLine = false
	}
	added := Quote(name) + ": "
	if oneLine {
		added = " " + added + nested(rest, e, "", "", "")
	} else {
		added = nl + inner + added + nested(rest, e, inner, unit, nl)
	}
	if trailing {
		added += ","
	}
	tail := string(text[from+len(extra) : to])
	if !oneLine && !strings.Contains(tail, "\n") {
		tail = nl + margin(text, at.StartOffset)
	}
	return splice(text, from, to, comma+extra+added+tail)
}

// hasComma reports whether there is a comma outside comments.
func hasComma(extra string) bool { return commaIn([]byte(extra)) >= 0 }

func commaIn(extra []byte) int {
	for i := 0; i < len(extra); i++ {
		switch extra[i] {
		case ',':
			return i
		case '/':
			i += comment(extra[i:])
		}
	}
	return -1
}

// takeJSON removes the member at path with its line and one comma.
func takeJSON(text []byte, path []string) []byte {
	ast, p := readJSON(text, newLines(text))
	if p != nil {
		return text
	}
	var obj *hujson.Object
	at, around := ast, ast
	for _, name := range path {
		around, obj = at, at.Value.(*hujson.Object)
		at = &member(obj, name).Value
	}
	i := 0
	for &obj.Members[i].Value != at {
		i++
	}
	from, to := obj.Members[i].Name.StartOffset, at.EndOffset
	if inside := string(text[around.StartOffset+1:from]) + string(text[to:around.EndOffset-1]); len(obj.Members) == 1 &&
		strings.Trim(inside, " \t\r\n,") == "" {
		return splice(text, around.StartOffset, around.EndOffset, "{}")
	}
	for from > 0 && (text[from-1] == ' ' || text[from-1] == '\t') {
		from--
	}
	if from > 0 && text[from-1] == '\n' {
		from--
		if from > 0 && text[from-1] == '\r' {
			from--
		}
	} else {
		from = obj.Members[i].Name.StartOffset
	}
	if rest := text[to:]; len(bytes.TrimLeft(rest, " \t\r\n")) > 0 && bytes.TrimLeft(rest, " \t\r\n")[0] == ',' {
		to += bytes.IndexByte(rest, ',') + 1
		return splice(text, from, to, "")
	}
	out := splice(text, from, to, "")
	if i > 0 { // it was the last: the comma before it goes, too
		prev := obj.Members[i-1].Value.EndOffset
		if c := commaIn(text[prev:from]); c >= 0 {
			out = splice(out, prev+c, prev+c+1, "")
		}
	}
	return out
}

// Quote returns text as JSON, TOML and YAML in double quotes have it.
func Quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // text always encodes
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

// renderJSON writes a value as people write it: a mapping over lines, a list on one; with no nl,
// all on one.
func renderJSON(v *Value, margin, unit, nl string) string {
	switch v.Kind {
	case Map:
		if len(v.Members) == 0 {
			return "{}"
		}
		var b strings.Builder
		b.WriteString("{")
		for i := range v.Members {
			if i > 0 && nl == "" {
				b.WriteString(", ")
			} else if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(nl + margin + unit + Quote(v.Members[i].Name) + ": " +
				renderJSON(&v.Members[i].Value, margin+unit, unit, nl))
		}
		b.WriteString(nl + margin + "}")
		return b.String()
	case List:
		items := make([]string, len(v.Items))
		for i := range v.Items {
			items[i] = renderJSON(&v.Items[i], margin, unit, nl)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case Text:
		return Quote(v.Text)
	case Null:
		return "null"
	}
	return v.Text
}
