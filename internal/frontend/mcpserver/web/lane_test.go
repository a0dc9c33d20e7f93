package web

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

// A client that answers nothing is asked only so much at once.
func TestTooManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newResponseQueue(&serverRequests{over: make(chan struct{})})
		go func() {
			for {
				select {
				case <-l.out: // the client reads, and says nothing
				case <-ctx.Done():
					return
				}
			}
		}()
		for range maxAsks {
			go func() { _, _ = l.Call(ctx, "roots/list", nil, nil) }()
		}
		synctest.Wait()
		late, stop := context.WithTimeout(ctx, 1)
		defer stop()
		if _, err := l.Call(late, "roots/list", nil, nil); err == nil ||
			!strings.Contains(err.Error(), "too many requests to answer") {
			t.Errorf("one more: %v", err)
		}
		cancel()
		synctest.Wait()
		if _, err := l.Call(late, "roots/list", nil, nil); err == nil || strings.Contains(err.Error(), "too many") {
			t.Errorf("control, after the others have ended: %v", err)
		}
	})
}
