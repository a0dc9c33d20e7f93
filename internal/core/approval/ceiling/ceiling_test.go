package ceiling

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// human answers every question; asked counts them.
type human struct {
	yes   bool
	key   string
	asked atomic.Int32
}

func (h *human) Ask(_ context.Context, d policy.Decision) (*approval.Answer, string, error) {
	h.asked.Add(1)
	return &approval.Answer{ApprovalID: "a_1", DecisionID: d.ID, Capability: d.Call.Capability,
		ArgsDigest: d.Call.Args.Digest(), Yes: h.yes, Key: h.key, By: "approver:ann"}, "", nil
}

func args(t testing.TB, text string) call.Args {
	t.Helper()
	a, err := call.ParseArgs([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func decision(t testing.TB, id string, capability call.Capability, text string) policy.Decision {
	t.Helper()
	return policy.Decision{ID: id, Effect: policy.Ask, Danger: 2, Policy: "p1",
		Contract: contract.Contract{Mode: contract.Write, Approval: contract.Approval{Ceiling: 50, By: "lead"}},
		Call: call.Call{
			Capability: capability, Args: args(t, text), Session: "n_1", Principal: "os:1", Channel: "bridge", ToolDigest: "t1",
		}}
}

const asks = `{"capability":"gh.create","count":3,"arguments":{"repo":"x","n":1.0},"minutes":10}`

// opened is a desk with a yes to three calls in force.
func opened(t testing.TB, h *human) (*Service, *time.Time) {
	t.Helper()
	at := time.Unix(1_800_000_000, 0)
	k := &Service{Next: h, Now: func() time.Time { return at }}
	d := decision(t, "d_0", contract.RequestApproval, asks)
	if a, _, err := k.Ask(t.Context(), d); err != nil || a == nil || a.Yes != h.yes {
		t.Fatalf("%+v %v", a, err)
	}
	if _, ok := k.Begin("d_0"); ok != (h.yes && h.key != "") {
		t.Fatalf("in force: %v", ok)
	}
	h.asked.Store(0)
	return k, &at
}

// TestCovers: a ceiling answers for a call that is as it was approved, and for no other: then a human is asked.
func TestCovers(t *testing.T) {
	for _, row := range []struct {
		why    string
		change func(d *policy.Decision, at *time.Time)
		good   bool
	}{
		{"control", func(*policy.Decision, *time.Time) {}, true},
		{"less danger", func(d *policy.Decision, _ *time.Time) { d.Danger = 1 }, true},
		{"another capability", func(d *policy.Decision, _ *time.Time) { d.Call.Capability = "gh.delete" }, false},
		{"another value", func(d *policy.Decision, _ *time.Time) { d.Call.Args = args(t, `{"repo":"y","n":1}`) }, false},
		{"a value that is absent", func(d *policy.Decision, _ *time.Time) { d.Call.Args = args(t, `{"repo":"x"}`) }, false},
		{
			"a text for a number", func(d *policy.Decision, _ *time.Time) {
				d.Call.Args = args(t, `{"repo":"x","n":"1"}`)
			}, false,
		},
		{
			"a value deeper down", func(d *policy.Decision, _ *time.Time) {
				d.Call.Args = args(t, `{"o":{"repo":"x","n":1}}`)
			}, false,
		},
		{"another session", func(d *policy.Decision, _ *time.Time) { d.Call.Session = "n_2" }, false},
		{"another principal", func(d *policy.Decision, _ *time.Time) { d.Call.Principal = "os:2" }, false},
		{"another channel", func(d *policy.Decision, _ *time.Time) { d.Call.Channel = "mcp" }, false},
		{"another configuration", func(d *policy.Decision, _ *time.Time) { d.Policy = "p2" }, false},
		{"more danger", func(d *policy.Decision, _ *time.Time) { d.Danger = 3 }, false},
		{"another class", func(d *policy.Decision, _ *time.Time) { d.Contract.Mode = contract.HighRisk }, false},
		{"another role", func(d *policy.Decision, _ *time.Time) { d.Contract.Approval.By = "boss" }, false},
		{"more approvers", func(d *policy.Decision, _ *time.Time) { d.Contract.Approval.Need = 2 }, false},
		{"a lower ceiling", func(d *policy.Decision, _ *time.Time) { d.Contract.Approval.Ceiling = 2 }, false},
		{"its time is over", func(_ *policy.Decision, at *time.Time) { *at = at.Add(10 * time.Minute) }, false},
		{"its time is nearly over", func(_ *policy.Decision, at *time.Time) { *at = at.Add(10*time.Minute - 1) }, true},
		{"a quoted approval", func(d *policy.Decision, _ *time.Time) { d.Call.ApprovalID = "a_9" }, false},
		{"a dry run", func(d *policy.Decision, _ *time.Time) { d.DryRun = true }, false},
		{"a denied call", func(d *policy.Decision, _ *time.Time) { d.Effect = policy.Deny }, false},
	} {
		h := &human{yes: true, key: "k"}
		k, at := opened(t, h)
		d := decision(t, "d_1", "gh.create", `{"repo":"x","n":1,"title":"any"}`)
		row.change(&d, at)
		a, _, err := k.Ask(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if covered := h.asked.Load() == 0; covered != row.good || covered &&
			(a.By != "ceiling:a_1:1/3" || !a.Yes || a.DecisionID != "d_1") {
			t.Errorf("%s: covered %v: %+v", row.why, covered, a)
		}
	}
}

// TestCount: of many calls at once exactly the approved number passes. A call with another definition of the tool than
// the first one does not.
func TestCount(t *testing.T) {
	h := &human{yes: true, key: "k"}
	k, _ := opened(t, h)
	var wg sync.WaitGroup
	seen := sync.Map{}
	for i := range 40 {
		d := decision(t, fmt.Sprint("d_", i+1), "gh.create", `{"repo":"x","n":1}`)
		wg.Go(func() {
			if a, _, _ := k.Ask(context.Background(), d); a.ApprovalID == "" {
				if _, twice := seen.LoadOrStore(a.By, true); twice {
					t.Errorf("%s was given twice", a.By)
				}
			}
		})
	}
	wg.Wait()
	if n := h.asked.Load(); n != 37 {
		t.Errorf("a human was asked %d times of 40, want 37", n)
	}
	h = &human{yes: true, key: "k"}
	k, _ = opened(t, h)
	for i, tool := range []string{"t1", "t2", "t1"} {
		d := decision(t, fmt.Sprint("d_", i+1), "gh.create", `{"repo":"x","n":1}`)
		d.Call.ToolDigest = tool
		if _, _, err := k.Ask(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.asked.Load(); n != 1 {
		t.Errorf("a changed tool: a human was asked %d times, want once", n)
	}
}

// TestNoYes: without a signed yes on record nothing takes force.
func TestNoYes(t *testing.T) {
	for why, h := range map[string]*human{"a no": {key: "k"}, "no approver's key": {yes: true}} {
		k, _ := opened(t, h)
		if a := k.draw(decision(t, "d_1", "gh.create", `{"repo":"x","n":1}`)); a != nil {
			t.Errorf("%s: %+v", why, a)
		}
	}
	k := &Service{Next: &human{yes: true, key: "k"}}
	d := decision(t, "d_0", contract.RequestApproval, asks)
	if _, _, err := k.Ask(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if a := k.draw(decision(t, "d_1", "gh.create", `{"repo":"x","n":1}`)); a != nil {
		t.Errorf("before its use is on record: %+v", a)
	}
	if _, ok := k.Begin("d_other"); ok {
		t.Error("another decision's yes took force")
	}
	if _, ok := k.Begin("d_0"); !ok {
		t.Error("control")
	}
	if _, ok := k.Begin("d_0"); ok {
		t.Error("a yes took force twice")
	}
}

// FuzzHolds: a batch holds no arguments that lack one of its values, and reading never panics.
func FuzzHolds(f *testing.F) {
	f.Add(asks, `{"repo":"x","n":1}`)
	f.Add(`{"capability":"a","count":1,"arguments":{}}`, `{}`)
	f.Fuzz(func(t *testing.T, batch, with string) {
		b, err := call.ParseArgs([]byte(batch))
		if err != nil {
			return
		}
		r, err := call.ReadBatch(b)
		if err != nil {
			return
		}
		a, err := call.ParseArgs([]byte(with))
		if err != nil {
			return
		}
		if r.Count < 1 || r.Life <= 0 || r.Life > time.Hour || len(r.Arguments) == 0 {
			t.Fatalf("%+v", r)
		}
		members, _ := a.Value().Members()
		all := true
		for name, want := range r.Arguments {
			got, ok := members[name]
			all = all && ok && string(got.Canonical()) == string(want.Canonical())
		}
		if r.Holds(a) != all {
			t.Errorf("%s holds %s: %v", batch, with, !all)
		}
	})
}
