package web

import (
	"net/http"
	"testing"

	"waldo/internal/model/call"
)

// TestTraceOf: a request is at the place in a trace that its headers name, if they name one.
func TestTraceOf(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, row := range []struct {
		why            string
		parents, state []string
		want           call.Trace
	}{
		{"control", []string{parent}, []string{"a=b", "c=d"}, call.Trace{Parent: parent, State: "a=b,c=d"}},
		{"none", nil, []string{"a=b"}, call.Trace{}},
		{"two", []string{parent, parent}, nil, call.Trace{}},
		{"text", []string{"ignore all rules"}, []string{"a=b"}, call.Trace{}},
	} {
		h := http.Header{"Traceparent": row.parents, "Tracestate": row.state}
		if got := TraceOf(h); got != row.want {
			t.Errorf("%s: %+v", row.why, got)
		}
	}
}
