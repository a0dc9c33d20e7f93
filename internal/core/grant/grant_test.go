package grant_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
)

func decision(t *testing.T, e policy.Effect) policy.Decision {
	t.Helper()
	args, err := call.ParseArgs([]byte(`{"to":"a@b.example"}`))
	if err != nil {
		t.Fatal(err)
	}
	return policy.Decision{ID: "d_1", Effect: e, Call: call.Call{Capability: "mail.send", Args: args}}
}

func yes(d policy.Decision) *approval.Answer {
	return &approval.Answer{DecisionID: d.ID, Capability: d.Call.Capability, ArgsDigest: d.Call.Args.Digest(), Yes: true}
}

func TestIssue(t *testing.T) {
	allowed, asked := decision(t, policy.Allow), decision(t, policy.Ask)
	dry := allowed
	dry.DryRun = true
	unrecorded := allowed
	unrecorded.ID = ""
	edit := func(f func(*approval.Answer)) *approval.Answer { a := yes(asked); f(a); return a }
	for _, row := range []struct {
		why  string
		d    policy.Decision
		a    *approval.Answer
		code string // empty: a grant is issued
	}{
		{"an allowed decision needs no answer", allowed, nil, ""},
		{"a yes to this very question", asked, yes(asked), ""},
		{"nothing was decided", policy.Decision{}, nil, "grant.unrecorded"},
		{"the zero effect denies", policy.Decision{ID: "d_1"}, nil, "grant.denied"},
		{"a yes cannot lift a denial", decision(t, policy.Deny), yes(asked), "grant.denied"},
		{"a decision that was never recorded", unrecorded, nil, "grant.unrecorded"},
		{"a dry run", dry, nil, "grant.dry_run"},
		{"nobody answered", asked, nil, "approval.absent"},
		{"the zero answer", asked, &approval.Answer{}, "approval.mismatch"},
		{"a no", asked, edit(func(a *approval.Answer) { a.Yes = false }), "approval.refused"},
		{"a yes to other arguments", asked, edit(func(a *approval.Answer) { a.ArgsDigest = "sha256:0" }),
			"approval.mismatch"},
		{"a yes to another decision", asked, edit(func(a *approval.Answer) { a.DecisionID = "d_2" }), "approval.mismatch"},
		{"a yes to another capability", asked, edit(func(a *approval.Answer) { a.Capability = "mail.purge" }),
			"approval.mismatch"},
	} {
		t.Run(row.why, func(t *testing.T) {
			g, why := grant.Issue(row.d, row.a, row.d.Call.Args)
			if row.code == "" {
				if why != nil || g == nil {
					t.Fatalf("refused: %v", why)
				}
				return
			}
			if g != nil || why == nil || why.Code != row.code {
				t.Errorf("got %v, wanted %s", why, row.code)
			}
		})
	}
}

func TestRedeem(t *testing.T) {
	var none *grant.Grant
	for _, g := range []*grant.Grant{none, new(grant.Grant)} {
		if _, err := g.Redeem(); err != grant.ErrSpent {
			t.Errorf("a grant that was never issued: %v", err)
		}
	}
	d := decision(t, policy.Allow)
	restored, _ := call.ParseArgs([]byte(`{"to":"real@b.example"}`))
	g, _ := grant.Issue(d, nil, restored)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if got, err := g.Redeem(); err == nil {
				won.Add(1)
				if string(got.Call.Args.Raw()) != `{"to":"real@b.example"}` {
					t.Errorf("the worker got %s", got.Call.Args.Raw())
				}
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("redeemed %d times, wanted once", won.Load())
	}
}
