package exitcode

import (
	"errors"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// TestPeerWaits: a call that ended while a person at its peer was asked exits as one that waits.
func TestPeerWaits(t *testing.T) {
	for code, want := range map[string]int{call.PeerWaits: Waiting, "upstream.resting": Failed, "": Failed} {
		r := call.Result{Status: facts.Failed, Facts: facts.Facts{Status: facts.Failed}, Why: []call.Reason{{Code: code}}}
		var got *Exit
		if err := OfResult(r); !errors.As(err, &got) || got.Code != want {
			t.Errorf("%q: %v, want %d", code, err, want)
		}
	}
}
