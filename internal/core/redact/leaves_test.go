package redact

import (
	"bytes"
	"io"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// slowLeaves returns the strings, numbers and names of one JSON value, in order, by a decoder.
func slowLeaves(raw []byte) ([]leaf, error) {
	out := make([]leaf, 0, len(raw)/12+4)
	type level struct {
		name string
		obj  int
	}
	stack, objects := []level{{}}, 0
	src := string(raw)
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	for values := 0; ; {
		if d.StackDepth() == 0 && d.InputOffset() > 0 {
			values++
		}
		top := &stack[len(stack)-1]
		switch k := d.PeekKind(); k {
		case '"', '0':
			v, err := d.ReadValue()
			if err != nil {
				return nil, err
			}
			end := int(d.InputOffset())
			kind, count := d.StackIndex(d.StackDepth())
			l := leaf{span: span{Start: end - len(v), End: end}, kind: byte(k), obj: top.obj, name: top.name}
			if kind == '{' && count%2 == 1 {
				l.key, l.name = true, ""
				top.name = l.text(src)
			}
			out = append(out, l)
		default:
			t, err := d.ReadToken()
			if err == io.EOF && values == 1 {
				return out, nil
			}
			if err != nil {
				return nil, err
			}
			switch t.Kind() {
			case '{':
				objects++
				stack = append(stack, level{obj: objects})
			case '[':
				stack = append(stack, level{name: top.name, obj: top.obj})
			case '}', ']':
				stack = stack[:len(stack)-1]
			}
		}
	}
}

// FuzzLeaves: leaves finds what a decoder finds, and takes what it takes.
func FuzzLeaves(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `"x"`, ` -1.5e+3 `, `{"a":[1,{"b":"c\\","d":null}],"e\u0022":true}`, `{"a":{"b":1},"c":"d"}`,
		`[[1,2],"]}"]`, `{"a":1,"a":2}`, `{} {}`, `[1`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		want, werr := slowLeaves(raw)
		got, err := leaves(raw)
		if (err == nil) != (werr == nil) {
			t.Fatalf("%q: %v; by a decoder: %v", raw, err, werr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\ngot  %+v\nwant %+v", raw, got, want)
		}
	})
}
