package broker_test

import (
	"fmt"
	"testing"

	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/storage/database"
)

// TestStoreAway: a call that fails because the store is away has its id, its side effect and the reason. Only one that
// was not sent is to be made again.
func TestStoreAway(t *testing.T) {
	gone := fmt.Errorf("%w: no route", database.ErrAway)
	for _, row := range []struct {
		name   string
		f      fixture
		away   bool
		effect facts.SideEffect
		again  bool
	}{
		{"before it is sent", fixture{effect: policy.Allow, failRecord: "decision", failWith: gone}, true, facts.None, true},
		{"after it was sent", fixture{effect: policy.Allow, failRecord: "outcome", failWith: gone}, true,
			facts.Unknown, false},
		{"control: another failure", fixture{effect: policy.Allow, failRecord: "decision"}, false, facts.None, false},
	} {
		b := &broker.Broker{Policy: &row.f, Record: &row.f, Approvals: &row.f, Budget: &row.f, Redact: &row.f,
			Effects: remembered{h: &row.f}, Executors: map[contract.Transport]broker.Executor{contract.Direct: &row.f}}
		r, err := b.Call(t.Context(), call.Call{ID: "c_1"})
		again := len(r.Why) > 0 && r.Why[0].RetryAfter > 0
		if err == nil || r.Away() != row.away || r.CallID != "c_1" || r.Facts.SideEffect != row.effect || again != row.again {
			t.Errorf("%s: %v %q %v %+v", row.name, err, r.CallID, r.Facts.SideEffect, r.Why)
		}
	}
}
