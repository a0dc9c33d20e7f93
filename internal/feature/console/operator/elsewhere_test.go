package operator

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/contract"
)

// TestElsewhere: a passkey signs the answer to a question of another waldo in the console. It counts there for an
// approver who is enrolled there with the same passkey, and for no other. Live pages hear of each step.
func TestElsewhere(t *testing.T) {
	bottom, top := open(t), open(t)
	for _, d := range []*desk{bottom, top} {
		d.k.Calls = previewed{approval.Fixed{Carriers: []string{contract.OverA2A}}}
	}
	signers := map[*desk]approval.Signer{}
	for d, name := range map[*desk]string{bottom: "root", top: "first"} {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		signers[d] = approval.NewSigner(name, private)
		if _, err := d.k.EnrollKey(t.Context(), name, nil, public, signers[d]); err != nil {
			t.Fatal(err)
		}
	}
	root, first := signers[bottom], signers[top]
	ann, eve := top.approver("ann", first), top.approver("eve", first)
	all, err := top.k.Approvers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	there, err := bottom.k.NewApprover("ann", nil, all[0].Key, "root")
	if err != nil || all[0].Name != "ann" {
		t.Fatal(err, all[0].Name)
	}
	sig, _ := root.Sign(there.Message())
	if err := bottom.k.EnrollSigned(t.Context(), there, sig); err != nil {
		t.Fatal(err)
	}
	p := bottom.decide(`{"path":"/a"}`, nil)
	_, asked := bottom.ask(p)
	q, _, err := bottom.k.Question(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := bottom.k.Share(t.Context(), q)
	raw, err := json.Marshal(e)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	events, _, err := top.op.Live(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	hear := func(want string) {
		t.Helper()
		for e := range events {
			if e.Kind == "approvals" && string(e.Data) == want {
				return
			}
		}
		t.Fatalf("no event %s", want)
	}
	hear(`{"open":0}`)
	if _, ok := top.k.Pass(t.Context(), "b", raw); !ok {
		t.Fatal("the question is not passed on")
	}
	hear(`{"open":1}`)
	b := top.login(site.RoleApprover)
	var l site.List[site.Approval]
	if b.do("GET", "/api/v1/approvals", nil, &l); len(l.Items) != 1 || l.Items[0].ID != asked || l.Items[0].Peer != "b" {
		t.Fatalf("%+v", l)
	}
	for _, row := range []struct {
		name string
		sign func(challenge string) []byte
		want string
	}{{"eve", eve.Get, "approval.not_enrolled"}, {"ann", eve.Get, "approval.not_enrolled"}, {"ann", ann.Get, ""}} {
		c, status, code := b.draft(asked, row.name, "approve")
		if status != 200 {
			t.Fatalf("%s: %d %s", row.name, status, code)
		}
		if status, code := b.settle(asked, "approve", c.Draft, row.sign(c.Options.Challenge)); status != 200 {
			t.Fatalf("%s: %d %s", row.name, status, code)
		}
		hear(`{"open":1}`)
		answer, _ := top.k.Pass(t.Context(), "b", raw)
		err := bottom.k.Deliver(t.Context(), asked, answer)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		if a, _ := bottom.ask(p); (a != nil) != (row.want == "") {
			t.Errorf("%s: %+v", row.name, a)
		}
	}
	if err := top.k.Over(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	hear(`{"open":0}`)
}
