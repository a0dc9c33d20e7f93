package approval

import (
	"slices"
	"strings"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
)

// list is a decision about three held calls that two managers must approve.
func list(t *testing.T) policy.Decision {
	d := two(t, `{"calls":[{"capability":"n.add","mode":"write","danger":2,"args":{"t":"a"},"preview":["adds\u001b[2J a"]},`+
		`{"capability":"n.add","args":{"t":"b"}},{"capability":"n.add","args":{"t":"c"},"key":"k"}]}`)
	d.Call.Capability, d.Reasons = Held, []call.Reason{{Code: HeldCode}}
	return d
}

// TestStruck: two approvers sign one list. Its root is that of the calls that remain; a row that is not there, a yes to
// other rows, a no with rows and a row of another question are refused.
func TestStruck(t *testing.T) {
	h := newFixture(t)
	bob, d := h.another(t, "bob"), list(t)
	q := h.shown(t, h.want(t, d, "waiting"))
	if text := q.Striking([]int{2}).Show(); !strings.Contains(text, "\n2. n.add (, danger 0) STRUCK OUT\n") ||
		!strings.Contains(text, "  | > ") || strings.Contains(text, "\x1b") {
		t.Error(text)
	}
	for _, row := range []struct {
		struck []int
		yes    bool
	}{{[]int{0}, true}, {[]int{4}, true}, {[]int{2, 2}, true}, {[]int{3, 1}, true}, {[]int{1, 2, 3}, true}, {[]int{2}, false}} {
		if got := code(h.Service.Answer(ctx, h.ann, q, row.yes, "", row.struck...)); got != "approval.struck" {
			t.Errorf("%v, %t: %q", row.struck, row.yes, got)
		}
	}
	one := h.shown(t, h.want(t, decide(t, `{"calls":[{"a":1},{"b":2}]}`), "waiting"))
	if got := code(h.Service.Answer(ctx, h.ann, one, true, "", 1)); got != "approval.struck" || one.Calls() != nil {
		t.Errorf("a question about one call: %q", got)
	}
	late, err := h.Draft(ctx, "bob", q, true, "") // before the yes of ann
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Service.Answer(ctx, h.ann, q, true, "", 2); err != nil {
		t.Fatal(err)
	}
	sig, _ := bob.Sign(late.Message())
	if got := code(h.Settle(ctx, late, sig)); got != "approval.struck" {
		t.Errorf("a draft of other rows: %q", got)
	}
	if got := code(h.Service.Answer(ctx, bob, q, true, "", 3)); got != "approval.struck" {
		t.Errorf("other rows: %q", got)
	}
	h.want(t, d, "waiting")
	if err := h.Service.Answer(ctx, bob, q, true, "", 2); err != nil { // control
		t.Fatal(err)
	}
	a, _, err := h.Ask(ctx, d)
	if err != nil || a == nil || !a.Yes || !slices.Equal(a.Struck, []int{2}) || !slices.Equal(StruckIn(a.Signed), []int{2}) {
		t.Fatalf("%+v, %v", a, err)
	}
	if root, no := q.remain([]int{2}); no != nil || !strings.Contains(string(a.Signed), `"calls":"`+root+`"`) {
		t.Errorf("%s: %s", root, a.Signed)
	}
}

// TestRoot: the root is of each remaining call, in order.
func TestRoot(t *testing.T) {
	q := Question{Capability: Held, Reasons: []call.Reason{{Code: HeldCode}}, Args: []byte(`{"calls":[{"a":1},{"a":2},{"a":3}]}`)}
	seen := map[string]bool{}
	for _, struck := range [][]int{nil, {1}, {2}, {3}, {1, 2}, {1, 3}, {2, 3}} {
		root, no := q.remain(struck)
		if no != nil || seen[root] {
			t.Error(struck, root, no)
		}
		seen[root] = true
	}
	q.Args = []byte(`{"calls":[{"a":2},{"a":1},{"a":3}]}`)
	if root, _ := q.remain(nil); seen[root] {
		t.Error("another order has the same root")
	}
}
