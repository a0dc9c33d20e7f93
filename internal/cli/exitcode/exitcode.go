// Package exitcode turns errors and results into a message, a hint and the exit code of waldo.
package exitcode

import (
	"context"
	"errors"
	"fmt"

	"waldo/internal/app/fault"
	"waldo/internal/frontend/terminal"
)

// The exit codes of waldo itself. A command that ran in a sandbox passes its own code on.
const (
	Problems  = 1   // a check found problems
	Usage     = 2   // usage or configuration
	Denied    = 3   // refused by contract
	Waiting   = 4   // waiting for a human, or refused by one
	Timeout   = 124 // wall-clock or CPU limit
	Failed    = 125 // waldo's own failure
	Cancelled = 130 // by Ctrl-C or SIGTERM
	OOM       = 137 // killed for memory
)

// Exit is an error with an exit code, a message and a hint.
type Exit struct {
	Code int
	Text string // empty: already printed
	Hint string
	Err  error
}

func (e *Exit) Error() string {
	if e.Err != nil && e.Text != "" {
		return e.Text + ": " + e.Err.Error()
	}
	if e.Err != nil {
		return e.Err.Error()
	}
	return e.Text
}

func (e *Exit) Unwrap() error { return e.Err }

func Mistake(hint, format string, a ...any) error {
	return &Exit{Code: Usage, Text: fmt.Sprintf(format, a...), Hint: hint}
}

// Of returns the exit in an error of a command or of the application; nil: it has no exit.
func Of(err error) *Exit {
	var e *Exit
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, terminal.ErrInterrupted) {
		return &Exit{Code: Cancelled, Text: terminal.ErrInterrupted.Error()}
	}
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		e = &Exit{Code: Failed, Text: f.Text, Err: f.Err, Hint: f.Tip}
		switch {
		case f.Usage:
			e.Code = Usage
		case f.Denied:
			e.Code = Denied
		case f.Problems:
			e.Code = Problems
		}
	}
	return e
}

// hinted is an error that carries a hint.
type hinted interface{ Hint() string }

// Stopped maps the error of a command that Ctrl-C or SIGTERM ended to one message and exit code. A command in a
// sandbox passes its own code on.
func Stopped(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil && !errors.Is(err, context.Canceled) { // -t takes Ctrl-C itself
		return err
	}
	if e := Of(err); e != nil && e.Code != Failed && !errors.Is(err, context.Canceled) {
		return err
	}
	return &Exit{Code: Cancelled, Text: "cancelled"}
}
