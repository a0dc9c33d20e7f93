package audit

import (
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// TestUnderWay: a call whose process was killed while a human was asked did nothing, and is told from one with a yes.
func TestUnderWay(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	r := &Recorder{Log: l, Place: func(call.Session) Place { return Place{Process: "q_gone"} }}
	yes := approval.Answer{ApprovalID: "q", Yes: true, By: "session:n"}
	refused := yes
	refused.Refusal = "approval.used"
	want := map[string]policy.Effect{}
	for _, row := range []struct {
		effect policy.Effect
		dry    bool
		answer *approval.Answer
		want   policy.Effect // Deny: it is not under way
	}{
		{policy.Allow, false, nil, policy.Allow}, {policy.Ask, false, nil, policy.Ask},
		{policy.Ask, false, &yes, policy.Allow},
		{policy.Ask, false, &refused, policy.Ask}, {policy.Ask, false, &approval.Answer{By: "session:n"}, policy.Ask},
		{policy.Deny, false, nil, policy.Deny}, {policy.Allow, true, nil, policy.Deny},
	} {
		d := decision(t, `{}`)
		d.ID, d.Call.ID, d.Effect, d.DryRun = id.New(id.Decision), id.New(id.Call), row.effect, row.dry
		if err := r.Decision(ctx, d); err != nil {
			t.Fatal(err)
		}
		if row.answer != nil {
			if err := r.Answer(ctx, d, *row.answer); err != nil {
				t.Fatal(err)
			}
		}
		if row.want != policy.Deny {
			want[d.ID] = row.want
		}
	}
	all, err := UnderWay(ctx, dir, []string{"q_gone"})
	if err != nil || len(all) != len(want) {
		t.Errorf("%d under way, want %d: %v", len(all), len(want), err)
	}
	for _, d := range all {
		if d.Effect != want[d.ID] {
			t.Errorf("%s: %v, want %v", d.ID, d.Effect, want[d.ID])
		}
	}
}
