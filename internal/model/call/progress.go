package call

import (
	"context"

	"waldo/internal/protocol/strictjson"
)

type progressKey struct{}

// Told reports progress: done, and total or 0 if unknown. text is new output of the call's own code, redacted; empty:
// none. It is called from any goroutine and must not block.
type Told func(done, total float64, text string)

// WithProgress returns a context whose call reports its progress. Texts of servers do not pass: they would bypass the
// redactor.
func WithProgress(ctx context.Context, told Told) context.Context {
	return context.WithValue(ctx, progressKey{}, told)
}

// Progress returns the function of WithProgress, or nil.
func Progress(ctx context.Context) Told {
	told, _ := ctx.Value(progressKey{}).(Told)
	return told
}

type taskKey struct{}

// WithTask returns a context whose call reports that its server carries it out as a task, so that it can take long.
func WithTask(ctx context.Context, began func()) context.Context {
	return context.WithValue(ctx, taskKey{}, began)
}

// BecameTask calls the function of WithTask, if there is one. It returns once the client of the call can know.
func BecameTask(ctx context.Context) {
	if began, ok := ctx.Value(taskKey{}).(func()); ok {
		began()
	}
}

type askingKey struct{}

// WithAsking returns a context whose call hears of a question that it waits for at an agent elsewhere, as it travels,
// and why the last answer was refused there; the zero question: it waits no more.
func WithAsking(ctx context.Context, asking func(question strictjson.Value, refused string)) context.Context {
	return context.WithValue(ctx, askingKey{}, asking)
}

// Asking returns the function of WithAsking, or nil.
func Asking(ctx context.Context) func(question strictjson.Value, refused string) {
	asking, _ := ctx.Value(askingKey{}).(func(strictjson.Value, string))
	return asking
}
