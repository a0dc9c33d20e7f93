package call

import "context"

type progressKey struct{}

// WithProgress returns a context whose call tells how far it is: done, and total or 0 if nobody
// knows. The function is called from any goroutine and must not block. Numbers alone are told:
// text from a worker would pass the redactor by.
func WithProgress(ctx context.Context, told func(done, total float64)) context.Context {
	return context.WithValue(ctx, progressKey{}, told)
}

// Progress returns the function of WithProgress, nil where nobody listens.
func Progress(ctx context.Context) func(done, total float64) {
	told, _ := ctx.Value(progressKey{}).(func(done, total float64))
	return told
}
