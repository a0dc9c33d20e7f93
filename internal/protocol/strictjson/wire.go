// Package strictjson reads JSON strictly and once: the value a decision is made on, the bytes that are
// forwarded and the digest that is recorded all come from the same read.
package strictjson

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep objects and arrays may nest in anything waldo reads from outside.
const MaxDepth = 200

// MaxValues is how many values and names one text may hold: each costs memory many times its bytes once it is read.
const MaxValues = 200_000

// valueCost is about what one value costs in memory once it is read, in bytes, beyond the first few.
const (
	valueCost = 256
	firstFew  = 1000
)

// Weight is about what a text costs in memory once it is read, in bytes.
func Weight(b []byte) int {
	n, _ := shape(b)
	return len(b) + max(n-firstFew, 0)*valueCost
}

// Value is one JSON value as it was received, known to be strict: valid UTF-8, no duplicate
// names, nothing after it, nested at most MaxDepth, with at most MaxValues values in it.
type Value struct{ raw jsontext.Value }

// Parse reads one JSON value (RFC 8259) from b, which it copies. It refuses invalid UTF-8, lone
// surrogates, duplicate names in an object, deeper nesting than MaxDepth and trailing bytes.
func Parse(b []byte) (Value, error) {
	switch values, deep := shape(b); { // before anything goes that deep, or is made of them
	case deep:
		return Value{}, fmt.Errorf("JSON nested deeper than %d", MaxDepth)
	case values > MaxValues:
		return Value{}, fmt.Errorf("JSON of more than %d values", MaxValues)
	}
	if !jsontext.Value(b).IsValid() {
		return Value{}, why(b)
	}
	return Value{raw: jsontext.Value(bytes.Clone(bytes.TrimSpace(b)))}, nil
}

// shape estimates the number of values of a JSON text, and reports whether it nests deeper than MaxDepth. For invalid
// JSON the result holds up to the first fault, where a reader stops.
func shape(b []byte) (values int, deep bool) {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			if quoted {
				i++
			}
		case '"':
			quoted = !quoted
		case '{', '[':
			if !quoted {
				values++
				if depth++; depth > MaxDepth {
					return values, true
				}
			}
		case ',':
			if !quoted {
				values++
			}
		case '}', ']':
			if !quoted {
				depth--
			}
		}
	}
	return values, false
}

// TooDeep is the text that stands in Shallow for what was nested too deep.
const TooDeep = "waldo: left out, nested too deep"

// Shallow returns a text with every object and list that is nested deeper than MaxDepth replaced by the text TooDeep. It
// returns nil if there is none.
func Shallow(b []byte) (out []byte) {
	depth, quoted, from := 0, false, 0 // from: where the part begins that out lacks
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			if quoted {
				i++
			}
		case '"':
			quoted = !quoted
		case '{', '[':
			if quoted {
				continue
			}
			if depth++; depth == MaxDepth+1 {
				out = append(append(out, b[from:i]...), '"')
				out = append(append(out, TooDeep...), '"')
			}
		case '}', ']':
			if quoted {
				continue
			}
			if depth--; depth == MaxDepth {
				from = i + 1
			}
		}
	}
	if out == nil || depth > MaxDepth {
		return out
	}
	return append(out, b[from:]...)
}

// why says what is wrong with a text that is not one strict JSON value.
func why(b []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	_, err := d.ReadValue()
	switch {
	case err == io.EOF:
		return fmt.Errorf("empty JSON text")
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "jsontext: ")) // whose name says nothing to anybody
	}
	return fmt.Errorf("more than one JSON value")
}

// Raw returns the bytes as received. The caller must not change them.
func (v Value) Raw() []byte { return v.raw }

// IsZero reports whether v was never parsed.
func (v Value) IsZero() bool { return v.raw == nil }

// MarshalJSON returns the bytes as received.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.raw == nil {
		return []byte("null"), nil
	}
	return v.raw, nil
}

// UnmarshalJSON reads a value as strictly as Parse.
func (v *Value) UnmarshalJSON(b []byte) (err error) {
	*v, err = Parse(b)
	return err
}

// Kind returns the first byte of the value: '{', '[', '"', 't', 'f', 'n' or '0' for a number.
func (v Value) Kind() byte { return byte(v.raw.Kind()) }

// Decode stores v in out, as encoding/json would but with names matched exactly.
func (v Value) Decode(out any) error { return json.Unmarshal(v.raw, out) }

// Only decodes b, one strict JSON value, into out. It refuses members that out does not have, spelled in just that way.
func Only(b []byte, out any) error {
	v, err := Parse(b)
	if err == nil {
		err = json.Unmarshal(v.raw, out, json.RejectUnknownMembers(true))
	}
	return err
}

// Canonical returns v in the form of RFC 8785: names sorted, no space, one spelling for every string and number. A
// number that a double would change keeps all its digits, so two values that differ never look the same.
func (v Value) Canonical() []byte {
	if canonical(v.raw) {
		return v.raw.Clone()
	}
	c := jsontext.Value(numbers(v.raw))
	if err := c.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		panic("wire: a parsed value has no canonical form: " + err.Error()) // Parse let it in
	}
	return c
}

// canonical reports whether a value is seen at a glance to be in its canonical form: a string of plain
// ASCII, or a number of at most 15 digits, as the ids of messages are.
func canonical(v jsontext.Value) bool {
	if len(v) == 0 || v[0] != '"' {
		return small(v)
	}
	return !slices.ContainsFunc(v, func(c byte) bool { return c < ' ' || c > '~' || c == '\\' })
}

// Digest returns the SHA-256 of the canonical form, as "sha256:" and 64 hexadecimal digits.
func (v Value) Digest() string { return Digest(v.Canonical()) }

// Digest returns the SHA-256 of b, as "sha256:" and 64 hexadecimal digits.
func Digest(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}
