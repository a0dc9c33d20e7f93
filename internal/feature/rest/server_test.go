package rest

import (
	"errors"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// TestEnded: a call that failed because the store is away is answered 503 with when to come back, denied or failed. Any
// other failure of waldo is 500 with the id and the side effect of the call.
func TestEnded(t *testing.T) {
	f := facts.New()
	f.SideEffect = facts.None
	away := call.Result{CallID: "c_1", Facts: f, Why: []call.Reason{call.StoreAway()}}
	for _, status := range []facts.Status{facts.Failed, facts.Denied} {
		away.Status = status
		a, err := ended(call.Call{ID: "c_1"}, away, errors.New("gone"))
		if err != nil || a.status != 503 || a.retry != 10 || a.value == nil {
			t.Errorf("%s: %+v %v", status, a, err)
		}
	}
	var p *problem
	_, err := ended(call.Call{ID: "c_1"}, call.Result{Facts: f}, errors.New("gone"))
	if !errors.As(err, &p) || p.Status != 500 || p.CallID != "c_1" || p.Effect != "none" {
		t.Errorf("%+v %v", p, err)
	}
	if a, err := ended(call.Call{}, call.Result{Status: facts.OK, Facts: f}, nil); err != nil || a.status != 200 {
		t.Errorf("control: %+v %v", a, err)
	}
}
