// Package fault holds errors of the operator: what is wrong, whether it is a mistake in the command or configuration, and
// a hint that says what to do.
package fault

import "fmt"

// Error is an error for the operator.
type Error struct {
	Usage bool   // a mistake in the command or the configuration; otherwise waldo's own failure
	Text  string // what is wrong; empty: Err says it
	Err   error
	Tip   string // what to do about it
}

func (e *Error) Error() string {
	if e.Err != nil && e.Text != "" {
		return e.Text + ": " + e.Err.Error()
	}
	if e.Err != nil {
		return e.Err.Error()
	}
	return e.Text
}

func (e *Error) Unwrap() error { return e.Err }

// Hint says what to do about the error.
func (e *Error) Hint() string { return e.Tip }

// Usage returns a mistake in the command or the configuration.
func Usage(hint, format string, a ...any) error {
	return &Error{Usage: true, Text: fmt.Sprintf(format, a...), Tip: hint}
}
