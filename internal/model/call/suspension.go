package call

import (
	"context"
	"time"
)

// Suspension is how a program waits for a human: it is written down in Image, or stands still in memory. One run has
// it.
type Suspension struct {
	// Still is called with true when every call under way of the program waits for a human, and with false before one
	// of them is answered. Such a program is not written down. nil: it is written down.
	Still     func(still bool)
	Held      bool     // it is written down while it waits for the result of a held call alone
	Image     []byte   // the program; nil: it was not suspended
	Approvals []string // the questions that its calls wait for
}

// Suspended names a program that waits for a human, and its questions.
type Suspended struct {
	Program   string
	Approvals []string
}

type suspends struct{}

// SuspendPatience is how long a call of a program that can be suspended waits for a human before it is.
const SuspendPatience = 500 * time.Millisecond

// WithSuspension returns a context of calls whose program is suspended while they wait.
func WithSuspension(ctx context.Context) context.Context {
	return context.WithValue(ctx, suspends{}, true)
}

type answerBy struct{}

// WithAnswerBy returns a context whose calls wait for a human until a time at most, because their host gives up then.
func WithAnswerBy(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, answerBy{}, at)
}

// AnswerBy returns the time of WithAnswerBy; zero: absent.
func AnswerBy(ctx context.Context) time.Time {
	at, _ := ctx.Value(answerBy{}).(time.Time)
	return at
}

// Suspends reports whether the program that makes a call is suspended while the call waits. Such a question outlives
// the process that asks it.
func Suspends(ctx context.Context) bool { return ctx.Value(suspends{}) != nil }
