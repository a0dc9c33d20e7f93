package strictjson

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Members returns the members of an object, sharing v's bytes; ok is false for any other value.
func (v Value) Members() (m map[string]Value, ok bool) {
	if v.IsZero() || v.Kind() != '{' {
		return nil, false
	}
	m = map[string]Value{}
	v.each(func(name []byte, member Value) { m[string(name)] = member })
	return m, true
}

// Each hands over the members of an object in their order, and reports whether v is one. The name is the
// caller's for as long as the call lasts.
func (v Value) Each(f func(name []byte, member Value)) bool {
	if v.IsZero() || v.Kind() != '{' {
		return false
	}
	v.each(f)
	return true
}

// Member returns one member of an object, or the zero Value.
func (v Value) Member(name string) (m Value) {
	v.Each(func(n []byte, member Value) {
		if string(n) == name {
			m = member
		}
	})
	return m
}

// Elements returns the elements of an array, sharing v's bytes; ok is false for any other value.
func (v Value) Elements() (e []Value, ok bool) {
	if v.IsZero() || v.Kind() != '[' {
		return nil, false
	}
	v.each(func(_ []byte, element Value) { e = append(e, element) })
	return e, true
}

// Text returns the text of a JSON string; ok is false for any other value.
func (v Value) Text() (s string, ok bool) {
	if v.IsZero() || v.Kind() != '"' {
		return "", false
	}
	return string(unquote(v.raw)), true
}

// unquote returns what a string says that Parse has found to be sound. It may share v's bytes.
func unquote(v []byte) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		panic("wire: a parsed string cannot be read again: " + err.Error()) // Parse let it in
	}
	return b
}

// each hands over the members or elements of v. Parse has found v to be sound, so that it is enough
// to see where each part ends.
func (v Value) each(f func(name []byte, part Value)) {
	b, object := []byte(v.raw), v.raw[0] == '{'
	for i := space(b, 1); b[i] != '}' && b[i] != ']'; i = space(b, i) {
		var name []byte
		if object {
			end := past(b, i)
			name, i = unquote(b[i:end]), space(b, space(b, end)+1) // past the colon
		}
		end := past(b, i)
		f(name, Value{raw: b[i:end:end]})
		if i = space(b, end); b[i] == ',' {
			i++
		}
	}
}

// space returns the index of the first byte from i on that is not white space.
func space(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r' {
		i++
	}
	return i
}

// past returns the place after the value that begins at i.
func past(b []byte, i int) int {
	depth := 0
	for ; ; i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			for i++; i < len(b) && bytes.IndexByte([]byte(" \n\t\r,]}"), b[i]) < 0; {
				i++
			}
			return i
		}
		if depth == 0 {
			return i + 1
		}
	}
}
