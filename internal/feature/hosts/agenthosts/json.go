package agenthosts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"waldo/internal/model/display"

	"github.com/tailscale/hujson"
)

// parseJSON reads JSON with comments and trailing commas.
func parseJSON(text []byte) (*Value, *Problem) {
	l := newLines(text)
	ast, p := readJSON(text, l)
	if p != nil {
		return nil, p
	}
	v, p := jsonValue(ast, l)
	if p != nil {
		return nil, p
	}
	return &v, nil
}

// readJSON returns the syntax tree, which keeps every comment and space. A byte order mark is read
// as a space, so that offsets hold.
func readJSON(text []byte, l *lines) (*hujson.Value, *Problem) {
	if at := tooDeep(text); at >= 0 {
		return nil, fault(l.at(at), "", "nested deeper than %d", maxDepth)
	}
	text = append(bytes.Clone(text), '\n') // the library wants one after a last comment
	if bytes.HasPrefix(text, []byte(mark)) {
		copy(text, "   ")
	}
	ast, err := hujson.Parse(text)
	if err == nil {
		return &ast, nil
	}
	return nil, fault(whereJSON(err, l), "", "not JSON: %s", whyJSON(err))
}

// whyJSON says what was wrong without what was there: a literal that cannot be read may be a secret.
func whyJSON(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "invalid character"); i >= 0 {
		return display.ASCII(text[i:])
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the file ends too early"
	}
	return "a value that JSON does not have"
}

// whereJSON reads the place out of the library's message, which counts bytes.
func whereJSON(err error, l *lines) Pos {
	var line, column int
	if n, _ := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column); n != 2 || line < 1 ||
		line > len(l.starts) {
		return l.at(len(l.text))
	}
	return l.at(l.starts[line-1] + column - 1)
}

// tooDeep returns where brackets nest deeper than maxDepth, and -1 where they do not. It knows
// strings and comments, and no more: the parser that follows calls itself for every bracket.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			i += comment(text[i:])
		}
	}
	return -1
}

// comment returns how many bytes after the first one belong to a comment that text begins with.
func comment(text []byte) int {
	end := ""
	switch {
	case bytes.HasPrefix(text, []byte("//")):
		end = "\n"
	case bytes.HasPrefix(text, []byte("/*")):
		end = "*/"
	default:
		return 0
	}
	i := bytes.Index(text[2:], []byte(end))
	if i < 0 {
		return len(text) - 1
	}
	return 1 + i + len(end)
}

// jsonValue turns a syntax tree, already known not to be too deep, into a Value.
func jsonValue(ast *hujson.Value, l *lines) (Value, *Problem) {
	v := Value{At: l.at(ast.StartOffset)}
	switch t := ast.Value.(type) {
	case *hujson.Object:
		v.Kind = Map
		seen := unique{}
		for i := range t.Members {
			m := &t.Members[i]
			name := m.Name.Value.(hujson.Literal).String()
			at := l.at(m.Name.StartOffset)
			if p := seen.add(name, at); p != nil {
				return v, p
			}
			val, p := jsonValue(&m.Value, l)
			if p != nil {
				return v, p
			}
			v.Members = append(v.Members, Member{name, at, val})
		}
	case *hujson.Array:
		v.Kind = List
		for i := range t.Elements {
			val, p := jsonValue(&t.Elements[i], l)
			if p != nil {
				return v, p
			}
			v.Items = append(v.Items, val)
		}
	case hujson.Literal:
		switch t.Kind() {
		case '"':
			v.Kind, v.Text = Text, t.String()
		case 't', 'f':
			v.Kind, v.Text = Bool, string(t)
		case '0':
			v.Kind, v.Text = Number, string(t)
		}
	}
	return v, nil
}
