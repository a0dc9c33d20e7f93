package call

import "context"

type progressKey struct{}

// WithProgress returns a context whose call reports its progress: done, and total or 0 if unknown. The function is
// called from any goroutine and must not block. It gets only numbers: a worker's text would bypass the redactor.
func WithProgress(ctx context.Context, told func(done, total float64)) context.Context {
	return context.WithValue(ctx, progressKey{}, told)
}

// Progress returns the function of WithProgress, or nil.
func Progress(ctx context.Context) func(done, total float64) {
	told, _ := ctx.Value(progressKey{}).(func(done, total float64))
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
