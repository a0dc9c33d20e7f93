package approval

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/contract"
)

// TestSignedElsewhere: an answer that was signed at another waldo counts where the question was asked, if its signer is
// enrolled there and signed that question for that waldo.
func TestSignedElsewhere(t *testing.T) {
	bottom, top := newFixture(t), newFixture(t)
	rules := func() contract.Approvals { return contract.Approvals{Carriers: []string{contract.OverA2A}} }
	bottom.about.rules, top.about.rules = rules, rules
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	carol, public := NewSigner("carol", private), private.Public().(ed25519.PublicKey)
	for _, h := range []*fixture{bottom, top} {
		if _, err := h.EnrollKey(ctx, "carol", []string{"manager"}, public, h.ann); err != nil {
			t.Fatal(err)
		}
	}
	mallory := top.another(t, "mallory")
	d := decide(t, `{"path":"a"}`)
	asked := bottom.want(t, d, "waiting")
	other := bottom.want(t, decide(t, `{"path":"b"}`), "waiting")
	e, ok := bottom.Share(ctx, bottom.shown(t, asked))
	if !ok {
		t.Fatal("control: the question does not travel")
	}
	raw := json.RawMessage(canonical(e))
	if answer, ok := top.Pass(ctx, "b", raw); !ok || answer != nil {
		t.Fatalf("control: %s %v", answer, ok)
	}
	sign := func(by Signer, e Elsewhere, yes bool, at time.Duration) json.RawMessage {
		t.Helper()
		top.pass(at)
		err := top.SignElsewhere(ctx, by, e, yes, "")
		top.pass(-at)
		answer, ok := top.Pass(ctx, "b", raw)
		if err != nil || !ok || len(answer) == 0 {
			t.Fatal(err, ok, string(answer))
		}
		return answer
	}
	elsewhere := e
	elsewhere.Root = "sha256:another"
	yes := sign(carol, e, true, 0)
	flipped := strings.Replace(string(sign(carol, e, false, 0)), `"yes":false`, `"yes":true`, 1)
	for _, row := range []struct {
		why, id string
		answer  json.RawMessage
		want    string
	}{
		{"an approver of the top alone", asked, sign(mallory, e, true, 0), "approval.not_enrolled"},
		{"for another waldo", asked, sign(carol, elsewhere, true, 0), "approval.changed"},
		{"a no that was made a yes", asked, json.RawMessage(flipped), "approval.not_enrolled"},
		{"to another question", other, yes, "approval.mismatch"},
		{"under the name of another", asked, json.RawMessage(strings.Replace(string(yes), `"carol"`, `"ann"`, 1)),
			"approval.not_enrolled"},
		{"before it was asked", asked, sign(carol, e, true, -time.Hour), "approval.clock"},
		{"from the future", asked, sign(carol, e, true, time.Hour/2), "approval.clock"},
		{"nonsense", asked, json.RawMessage(`[]`), "approval.mismatch"},
	} {
		if got := code(bottom.Deliver(ctx, row.id, row.answer)); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
	bottom.about.rules = nil
	if got := code(bottom.Deliver(ctx, asked, yes)); got != "approval.carrier" {
		t.Errorf("without the carrier: %q", got)
	}
	bottom.about.rules = rules
	bottom.want(t, d, "waiting")
	if err := bottom.Deliver(ctx, asked, yes); err != nil {
		t.Errorf("control: %v", err)
	}
	bottom.want(t, d, "yes")
	if got := code(bottom.Deliver(ctx, asked, yes)); got != "approval.used" {
		t.Errorf("again: %q", got)
	}
}

// TestPass: what a peer passes on as a question is shown only where it is one of another waldo, whole and open.
func TestPass(t *testing.T) {
	bottom, top := newFixture(t), newFixture(t)
	rules := func() contract.Approvals { return contract.Approvals{Carriers: []string{contract.OverA2A}} }
	bottom.about.rules, top.about.rules = rules, rules
	asked := bottom.want(t, decide(t, `{"path":"a"}`), "waiting")
	e, _ := bottom.Share(ctx, bottom.shown(t, asked))
	raw := string(canonical(e))
	for why, text := range map[string]string{
		"other arguments": strings.Replace(raw, `{"path":"a"}`, `{"path":"b"}`, 1),
		"of this waldo":   strings.Replace(raw, e.Root, fingerprintOf(t, top), 1),
		"another form":    `{"question":1}`,
		"no id":           strings.Replace(raw, asked, "../x", 1),
		"too long":        strings.Replace(raw, `"root"`, `"x":"`+strings.Repeat("x", maxPassed)+`","root"`, 1),
	} {
		if _, ok := top.Pass(ctx, "b", json.RawMessage(text)); ok {
			t.Errorf("%s is shown", why)
		}
	}
	if _, ok := bottom.Pass(ctx, "b", json.RawMessage(raw)); ok {
		t.Error("its own question is shown")
	}
	if _, ok := top.Pass(ctx, "b", json.RawMessage(raw)); !ok {
		t.Error("control: it is not shown")
	}
	if _, ok := top.Pass(ctx, "other", json.RawMessage(raw)); ok {
		t.Error("it is shown as one of another peer")
	}
	top.about.rules = nil
	if _, ok := top.Pass(ctx, "b", json.RawMessage(raw)); ok {
		t.Error("it is shown without the carrier")
	}
	top.about.rules = rules
	top.pass(2 * time.Hour)
	if all, err := top.AllElsewhere(ctx); err != nil || len(all) != 0 {
		t.Errorf("after its time: %v %v", all, err)
	}
	bottom.about.notes = nil
	q := bottom.shown(t, asked)
	q.Notes = []string{`[EMAIL_1] stands for "ann@example.com"`}
	if _, ok := bottom.Share(ctx, q); ok {
		t.Error("a question with the values of tokens travels")
	}
}

func fingerprintOf(t *testing.T, h *fixture) string {
	t.Helper()
	st, err := h.standing(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return st.root.Fingerprint()
}
