package call

import (
	"regexp"
	"sync"
)

// Trace is the place of a call in a distributed trace (W3C Trace Context). It is handed on as it came, without baggage.
type Trace struct {
	Parent string `json:"parent"`
	State  string `json:"state,omitempty"`
}

var (
	traceParent = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	})
	traceState = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[ -~]+$`) })
)

// TraceOf returns the place in a trace that a client names by traceparent and tracestate; the zero Trace where the
// parent does not have its form. A state of more than 512 bytes, or of other characters than printable ASCII, is left
// out.
func TraceOf(parent, state string) (t Trace) {
	if !traceParent().MatchString(parent) {
		return t
	}
	t.Parent = parent
	if len(state) <= 512 && traceState().MatchString(state) {
		t.State = state
	}
	return t
}
