// Package fault defines errors for the operator. Each says whether the command or configuration is wrong, and carries
// a hint.
package fault

import "fmt"

// Error is an error for the operator.
type Error struct {
	Usage bool // a mistake in the command or the configuration; otherwise waldo's own failure
	// Problems: a check found problems in its input.
	Problems bool
	// Denied: the authority that was named does not hold.
	Denied bool
	// Untrusted: the configuration is not as it was trusted or signed.
	Untrusted bool
	Text      string // the message; empty: that of Err
	Err       error
	Tip       string // the hint
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

// Hint returns advice for correcting the error.
func (e *Error) Hint() string { return e.Tip }

// Usage returns an error in the command or the configuration.
func Usage(hint, format string, a ...any) error {
	return &Error{Usage: true, Text: fmt.Sprintf(format, a...), Tip: hint}
}

// Untrusted returns an error in what waldo trust records or the first approver signs.
func Untrusted(hint, format string, a ...any) error {
	return &Error{Usage: true, Untrusted: true, Text: fmt.Sprintf(format, a...), Tip: hint}
}
