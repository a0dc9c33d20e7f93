package strictjson

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestMembersAndElements(t *testing.T) {
	v, err := Parse([]byte(" {\"a\" : [1, \"x\\u0041\" ,{}], \"\\u0062\": 9007199254740993 } "))
	if err != nil {
		t.Fatal(err)
	}
	m, ok := v.Members()
	if !ok || len(m) != 2 || string(m["b"].Raw()) != "9007199254740993" {
		t.Fatalf("members: %v %v", m, ok)
	}
	e, ok := m["a"].Elements()
	if !ok || len(e) != 3 || string(e[2].Raw()) != "{}" {
		t.Fatalf("elements: %v %v", e, ok)
	}
	if s, ok := e[1].Text(); !ok || s != "xA" {
		t.Errorf("text: %q %v", s, ok)
	}
	if _, ok := e[0].Text(); ok {
		t.Error("a number has no text")
	}
	for _, other := range []Value{{}, e[0], e[1]} {
		if _, ok := other.Members(); ok {
			t.Errorf("%s has members", other.Raw())
		}
		if _, ok := other.Elements(); ok {
			t.Errorf("%s has elements", other.Raw())
		}
	}
}

// The parts of a value are sound values themselves: each reads again to the same bytes.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"\ud83d\ude00"}`))
	f.Add([]byte(`[ [], {} , "x" ]`))
	f.Add([]byte(`{ "a\"b" : -1.5e3 ,"c":[{"d":"]}\\"},true ] , "e":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if err != nil {
			return
		}
		m, object := v.Members()
		e, array := v.Elements()
		d := jsontext.NewDecoder(bytes.NewReader(b)) // another reader finds the same parts
		_, _ = d.ReadToken()
		for object && d.PeekKind() != '}' {
			name, _ := d.ReadToken()
			key := name.String()
			part, err := d.ReadValue()
			if err != nil || !bytes.Equal(m[key].Raw(), part) {
				t.Fatalf("member %q of %q: %q, wanted %q (%v)", key, b, m[key].Raw(), part, err)
			}
		}
		for i := 0; array && d.PeekKind() != ']'; i++ {
			if part, err := d.ReadValue(); err != nil || i >= len(e) || !bytes.Equal(e[i].Raw(), part) {
				t.Fatalf("element %d of %q: wanted %q (%v)", i, b, part, err)
			}
		}
		for _, part := range m {
			e = append(e, part)
		}
		for _, part := range e {
			again, err := Parse(part.Raw())
			if err != nil || !bytes.Equal(again.Raw(), part.Raw()) {
				t.Fatalf("part %q of %q: %v", part.Raw(), b, err)
			}
		}
	})
}
