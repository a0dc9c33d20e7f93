package mcpserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// TestWithin: a caller's time ends its call, under a cause of its own. One that is no such number is refused.
func TestWithin(t *testing.T) {
	for meta, ok := range map[string]bool{`{}`: true, `{"waldo/timeout_ms":20}`: true, `{"waldo/timeout_ms":86400000}`: true,
		`{"waldo/timeout_ms":86400001}`: false, `{"waldo/timeout_ms":0}`: false, `{"waldo/timeout_ms":-1}`: false,
		`{"waldo/timeout_ms":1.5}`: false, `{"waldo/timeout_ms":"20"}`: false, `{"waldo/timeout_ms":null}`: false} {
		params, err := strictjson.Parse([]byte(`{"_meta":` + meta + `}`))
		if err != nil {
			t.Fatal(err)
		}
		ctx, done, err := within(t.Context(), jsonrpc.Message{Params: params})
		if (err == nil) != ok {
			t.Errorf("%s: %v", meta, err)
		}
		if err != nil {
			continue
		}
		time.Sleep(50 * time.Millisecond)
		if gone := errors.Is(context.Cause(ctx), call.ErrCallerGone); gone != (meta == `{"waldo/timeout_ms":20}`) {
			t.Errorf("%s: ended by %v", meta, context.Cause(ctx))
		}
		done()
	}
}
