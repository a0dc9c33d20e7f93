package jsonrpc

import "context"

type earlyKey struct{}

// WithEarly returns a context for the work on a request that answer can answer before the work ends. The work calls
// answer at most once, and not after it has returned. Its result is dropped then.
func WithEarly(ctx context.Context, answer func(result any, err error)) context.Context {
	return context.WithValue(ctx, earlyKey{}, answer)
}

// Early returns the way to answer the request of ctx before the work on it ends; nil: its end is waited for.
func Early(ctx context.Context) func(result any, err error) {
	answer, _ := ctx.Value(earlyKey{}).(func(result any, err error))
	return answer
}
