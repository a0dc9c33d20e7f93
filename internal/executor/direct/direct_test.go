package direct

import (
	"context"
	"testing"
	"time"

	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

func granted(t *testing.T, name call.Capability, timeout time.Duration) *grant.Grant {
	t.Helper()
	g, why := grant.Issue(policy.Decision{ID: "d_1", Effect: policy.Allow, Call: call.Call{ID: "c_1", Capability: name},
		Contract: contract.Contract{Transport: contract.Direct, Timeout: timeout}}, nil, call.Args{})
	if why != nil {
		t.Fatal(why)
	}
	return g
}

func TestExecute(t *testing.T) {
	ran := 0
	e := New(
		Tool{Tool: call.Tool{Capability: "files.stat"}, Run: func(context.Context, policy.Decision) (call.Outcome, error) {
			ran++
			return Done(facts.None, call.Text("fine")), nil
		}},
		Tool{Tool: call.Tool{Capability: "files.read"}, Run: func(ctx context.Context, _ policy.Decision) (call.Outcome, error) {
			<-ctx.Done()
			return call.Outcome{}, ctx.Err()
		}})
	out, err := e.Execute(t.Context(), granted(t, "files.stat", time.Second))
	if err != nil || out.IsError || ran != 1 {
		t.Error("a tool runs:", out, err)
	}
	if _, err := e.Execute(t.Context(), new(grant.Grant)); err == nil {
		t.Error("the zero grant runs nothing")
	}
	out, err = e.Execute(t.Context(), granted(t, "files.none", time.Second))
	if err != nil || out.Refused == nil || out.Refused.Code != "tool.absent" {
		t.Error("an unknown tool is refused:", out, err)
	}
	for _, timeout := range []time.Duration{0, 10 * time.Millisecond} { // without a timeout a call has no time
		out, err = e.Execute(t.Context(), granted(t, "files.read", timeout))
		if err != nil || out.Facts.Status != facts.Timeout || !out.Facts.TimedOut || out.Facts.SideEffect != facts.Unknown {
			t.Error("the contract's timeout holds:", out.Facts.Status, err)
		}
	}
}
