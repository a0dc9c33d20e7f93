package wire

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
	v.each(func(name string, member Value) { m[name] = member })
	return m, true
}

// Elements returns the elements of an array, sharing v's bytes; ok is false for any other value.
func (v Value) Elements() (e []Value, ok bool) {
	if v.IsZero() || v.Kind() != '[' {
		return nil, false
	}
	v.each(func(_ string, element Value) { e = append(e, element) })
	return e, true
}

// Text returns the text of a JSON string; ok is false for any other value.
func (v Value) Text() (s string, ok bool) {
	if v.IsZero() || v.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, []byte(v.raw))
	return string(b), err == nil
}

// each hands over the members or elements of v, which Parse has found to be sound.
func (v Value) each(f func(name string, part Value)) {
	// Parse has refused duplicate names already, so the decoder need not look again.
	d := jsontext.NewDecoder(bytes.NewReader(v.raw), jsontext.AllowDuplicateNames(true))
	opening, err := d.ReadToken()
	for err == nil && d.PeekKind() > 0 && d.PeekKind() != '}' && d.PeekKind() != ']' {
		var name jsontext.Token
		if opening.Kind() == '{' {
			if name, err = d.ReadToken(); err != nil {
				break
			}
		}
		key := name.String()
		var part jsontext.Value
		if part, err = d.ReadValue(); err == nil {
			end := d.InputOffset()
			f(key, Value{raw: v.raw[end-int64(len(part)) : end : end]})
		}
	}
	if err != nil {
		panic("wire: a parsed value cannot be read again: " + err.Error()) // Parse let it in
	}
}
