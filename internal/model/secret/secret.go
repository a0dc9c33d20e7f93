// Package secret keeps secrets apart from everything that prints. A Ref is the printable name of
// a secret; a Value is the secret itself and shows nothing of it, however it is printed.
package secret

import (
	"fmt"
	"log/slog"
)

// Value holds a secret behind a pointer, because fmt prints unexported fields of a struct without
// asking its String method; through the pointer there is only an address to print. Behind it stands
// a function and not the text, because printers that walk by reflection follow pointers.
type Value struct{ p *func() string }

const shown = "[secret]"

// NewValue wraps a secret.
func NewValue(s string) Value {
	f := func() string { return s }
	return Value{p: &f}
}

// Reveal returns the secret. Call it where the secret is used, and nowhere before.
func (v Value) Reveal() string {
	if v.p == nil {
		return ""
	}
	return (*v.p)()
}

// IsZero reports whether v holds no secret, which differs from an empty one.
func (v Value) IsZero() bool { return v.p == nil }

// Same reports whether two values hold the same secret, or both none.
func (v Value) Same(o Value) bool { return v.IsZero() == o.IsZero() && v.Reveal() == o.Reveal() }

// String returns a fixed word.
func (v Value) String() string { return shown }

// GoString returns a fixed word.
func (v Value) GoString() string { return shown }

// Format writes a fixed word for every verb and flag.
func (v Value) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(shown)) }

// MarshalText returns a fixed word.
func (v Value) MarshalText() ([]byte, error) { return []byte(shown), nil }

// MarshalJSON returns a fixed word.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + shown + `"`), nil }

// MarshalYAML returns a fixed word.
func (v Value) MarshalYAML() (any, error) { return shown, nil }

// LogValue returns a fixed word.
func (v Value) LogValue() slog.Value { return slog.StringValue(shown) }
