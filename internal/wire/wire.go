// Package wire reads JSON strictly and once: the value a decision is made on, the bytes that are
// forwarded and the digest that is recorded all come from the same read.
package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep objects and arrays may nest in anything waldo reads from outside.
const MaxDepth = 200

// Value is one JSON value as it was received, known to be strict: valid UTF-8, no duplicate
// names, nothing after it, nested at most MaxDepth.
type Value struct{ raw jsontext.Value }

// Parse reads one JSON value (RFC 8259) from b, which it copies. It refuses invalid UTF-8, lone
// surrogates, duplicate names in an object, deeper nesting than MaxDepth and trailing bytes.
func Parse(b []byte) (Value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.ReadToken(); err == io.EOF {
			return Value{}, fmt.Errorf("empty JSON text")
		} else if err != nil {
			return Value{}, err
		}
		if d.StackDepth() > MaxDepth {
			return Value{}, fmt.Errorf("JSON nested deeper than %d", MaxDepth)
		}
		if d.StackDepth() == 0 {
			break
		}
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return Value{}, fmt.Errorf("more than one JSON value")
	}
	return Value{raw: jsontext.Value(bytes.Clone(bytes.TrimSpace(b)))}, nil
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

// Canonical returns v in the form of RFC 8785: names sorted, no space, one spelling for every
// string and number. Integers keep all their digits, so two that differ never look the same.
func (v Value) Canonical() []byte {
	c := v.raw.Clone()
	if err := c.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		panic("wire: a parsed value has no canonical form: " + err.Error()) // Parse let it in
	}
	return c
}

// Digest returns the SHA-256 of the canonical form, as "sha256:" and 64 hexadecimal digits.
func (v Value) Digest() string { return Digest(v.Canonical()) }

// Digest returns the SHA-256 of b, as "sha256:" and 64 hexadecimal digits.
func Digest(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}
