package call

import "context"

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
