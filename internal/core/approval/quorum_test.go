package approval

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"waldo/internal/core/approval/passkey"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/testing/passkeytest"
)

// another enrols one more manager with a key.
func (h *fixture) another(t *testing.T, name string) Signer {
	t.Helper()
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.EnrollKey(ctx, name, []string{"manager"}, pub, h.ann); err != nil {
		t.Fatal(err)
	}
	return NewSigner(name, private)
}

// two is a decision whose contract needs two managers.
func two(t *testing.T, args string) policy.Decision {
	d := decide(t, args)
	d.Contract.Approval.Need = 2
	return d
}

func (h *fixture) shown(t *testing.T, approvalID string) Question {
	t.Helper()
	q, _, err := h.Question(ctx, approvalID)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestQuorum(t *testing.T) {
	h := newFixture(t)
	bob := h.another(t, "bob")
	d := two(t, `{"path":"/a"}`)
	id := h.want(t, d, "waiting")
	q := h.shown(t, id)
	if q.Need != 2 || !strings.Contains(q.Show(), "a yes of 2 different approvers") {
		t.Errorf("need %d:\n%s", q.Need, q.Show())
	}
	if err := h.Service.Answer(ctx, h.ann, q, true, ""); err != nil {
		t.Fatal(err)
	}
	h.want(t, d, "waiting") // one yes is not enough
	if names, _, err := h.Given(ctx, id); err != nil || !slices.Equal(names, []string{"ann"}) {
		t.Errorf("given: %v, %v", names, err)
	}
	if got := code(h.Service.Answer(ctx, h.ann, q, true, "")); got != "approval.same" {
		t.Errorf("the same approver twice: %s", got)
	}
	h.want(t, d, "waiting")
	if err := h.Service.Answer(ctx, bob, q, true, ""); err != nil {
		t.Fatal(err)
	}
	given := slices.Clone(h.log.l.questions[id].yes)
	a, _, err := h.Ask(ctx, d)
	if err != nil || a == nil || !a.Yes || len(a.Also) != 1 || a.By != "approver:bob" || a.Also[0].By != "approver:ann" {
		t.Fatalf("%+v, %v", a, err)
	}

	var l Ledger
	st, r := h.holders(t), Recorded{
		DecisionID: d.ID, ApprovalID: a.ApprovalID, ArgsDigest: a.ArgsDigest, Yes: true, By: string(a.By), Key: a.Key,
		Signed: a.Signed, Signature: a.Signature, Also: a.Also,
	}
	l.holders, l.questions = st, map[string]*asked{a.ApprovalID: {yes: given}}
	if err := l.Answered(r); err != nil {
		t.Errorf("the log: %v", err)
	}
	for why, change := range map[string]func(*Recorded){
		"one signature": func(r *Recorded) { r.Also = nil },
		"one of them twice": func(r *Recorded) {
			r.Also = []Said{{By: string(r.By), Key: r.Key, Signed: r.Signed, Signature: r.Signature}}
		},
		"the other's forged": func(r *Recorded) { r.Also = slices.Clone(r.Also); r.Also[0].Signature = r.Signature },
	} {
		l, bad := Ledger{holders: st, questions: map[string]*asked{a.ApprovalID: {yes: slices.Clone(given)}}}, r
		change(&bad)
		if err := l.Answered(bad); err == nil {
			t.Errorf("%s: the log takes it", why)
		}
	}
}

// holders returns the approvers as a log would know them.
func (h *fixture) holders(t *testing.T) map[string]holder {
	t.Helper()
	all, err := h.Approvers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]holder{}
	for _, a := range all {
		out[a.Fingerprint()] = holder{Approver: a}
	}
	return out
}

// TestQuorumNo: one no decides, also after a yes.
func TestQuorumNo(t *testing.T) {
	h := newFixture(t)
	bob := h.another(t, "bob")
	d := two(t, `{"path":"/a"}`)
	id := h.want(t, d, "waiting")
	q := h.shown(t, id)
	if err := h.Service.Answer(ctx, h.ann, q, true, ""); err != nil {
		t.Fatal(err)
	}
	if err := h.Service.Answer(ctx, bob, q, false, "not now"); err != nil {
		t.Fatal(err)
	}
	h.want(t, d, "no")
	if got := code(h.Service.Answer(ctx, h.ann, q, true, "")); got != "approval.answered" {
		t.Errorf("a yes after the no: %s", got)
	}
}

// TestQuorumRow: a writer of the database cannot turn one yes into two.
func TestQuorumRow(t *testing.T) {
	for why, set := range map[string]string{
		"the state alone":   `UPDATE approvals SET state = 'yes' WHERE id = $1`,
		"the answer copied": `UPDATE approvals SET state = 'yes', answer = answer || answer WHERE id = $1`,
		"the need lowered":  `UPDATE approvals SET state = 'yes', question = json_remove(question, '$.need') WHERE id = $1`,
	} {
		h := newFixture(t)
		h.another(t, "bob")
		d := two(t, `{"path":"/a"}`)
		id := h.want(t, d, "waiting")
		if err := h.Service.Answer(ctx, h.ann, h.shown(t, id), true, ""); err != nil {
			t.Fatal(err)
		}
		h.exec(t, set, id)
		if got, _ := h.ask(t, d); got != "approval.forged" {
			t.Errorf("%s: %s", why, got)
		}
	}
}

// TestRace: of 100 answers at the same moment one settles the question.
func TestRace(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{"path":"/a"}`)
	q := h.shown(t, h.want(t, d, "waiting"))
	got := make([]string, 100)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = code(h.Service.Answer(ctx, h.ann, q, true, fmt.Sprint(i))) })
	}
	all.Wait()
	taken := 0
	for _, c := range got {
		switch c {
		case "":
			taken++
		case "approval.answered":
		default:
			t.Errorf("refused with %s", c)
		}
	}
	if taken != 1 {
		t.Errorf("%d of 100 answers were taken", taken)
	}
	h.want(t, d, "yes")
	d.Call.ApprovalID = q.ID
	h.want(t, d, "approval.used")
}

// TestOwn: who asked for a call cannot approve it, and can refuse it.
func TestOwn(t *testing.T) {
	for _, p := range []string{"token:ann", "oidc:ann", "oidc:ANN"} {
		h := newFixture(t)
		d := decide(t, `{"path":"/a"}`)
		d.Call.Principal = call.Principal(p)
		q := h.shown(t, h.want(t, d, "waiting"))
		if got := code(h.Service.Answer(ctx, h.ann, q, true, "")); got != "approval.own" {
			t.Errorf("%s: %s", p, got)
		}
		if err := h.Service.Answer(ctx, h.another(t, "bob"), q, true, ""); err != nil {
			t.Errorf("control: %v", err)
		}
	}
}

// TestLastApproved: a row that no approver signed is not what a call is compared with.
func TestLastApproved(t *testing.T) {
	h := newFixture(t)
	approved := func(args string) string {
		d := decide(t, args)
		id := h.want(t, d, "waiting")
		if err := h.Service.Answer(ctx, h.ann, h.shown(t, id), true, ""); err != nil {
			t.Fatal(err)
		}
		h.want(t, d, "yes")
		h.pass(1000000)
		return id
	}
	first, second := approved(`{"path":"/a"}`), approved(`{"path":"/b"}`)
	q := h.shown(t, h.want(t, decide(t, `{"path":"/c"}`), "waiting"))
	b, err := h.LastApproved(ctx, q)
	if err != nil || b == nil || b.ID != second || string(b.shown.Args) != `{"path":"/b"}` ||
		!slices.Equal(b.By, []string{"ann"}) {
		t.Fatalf("%+v, %v", b, err)
	}
	h.exec(t, `UPDATE approvals SET question = json_set(question, '$.decision_id', 'd_x') WHERE id = $1`, second)
	if b, err = h.LastApproved(ctx, q); err != nil || b == nil || b.ID != first {
		t.Errorf("after the row was changed: %+v, %v", b, err)
	}
}

// TestPasskey: a passkey enrols, answers, and its answer verifies from the log's record alone.
func TestPasskey(t *testing.T) {
	h := newFixture(t)
	key := passkeytest.New("http://localhost:7677", "localhost")
	challenge := passkey.Challenge([]byte("x"))
	c, err := passkey.Register(key.Create(challenge), challenge, key.Origin)
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.NewApprover("carol", []string{"manager"}, c.Text(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	sig, _ := h.ann.Sign(a.Message())
	if got := h.EnrollSigned(ctx, a, key.Get(passkey.Challenge(a.Message()))); got == nil {
		t.Error("a passkey enrolled itself while there is a first approver")
	}
	if err := h.EnrollSigned(ctx, a, sig); err != nil {
		t.Fatal(err)
	}
	d := decide(t, `{"path":"/a"}`)
	q := h.shown(t, h.want(t, d, "waiting"))
	draft, err := h.Draft(ctx, "carol", q, true, "")
	if err != nil {
		t.Fatal(err)
	}
	no, err := h.Draft(ctx, "carol", q, false, "")
	if err != nil {
		t.Fatal(err)
	}
	other := h.shown(t, h.want(t, decide(t, `{"path":"/b"}`), "waiting"))
	swapped, err := h.Draft(ctx, "carol", other, true, "")
	if err != nil {
		t.Fatal(err)
	}
	stranger := passkeytest.New(key.Origin, "localhost")
	stranger.ID = key.ID
	for why, assertion := range map[string][]byte{
		"a signature over no":             key.Get(passkey.Challenge(no.Message())),
		"a signature for other arguments": key.Get(passkey.Challenge(swapped.Message())),
		"a virtual authenticator":         stranger.Get(passkey.Challenge(draft.Message())),
		"nothing":                         nil,
	} {
		if got := code(h.Settle(ctx, draft, assertion)); got != "approval.not_enrolled" {
			t.Errorf("%s: %s", why, got)
		}
	}
	h.want(t, d, "waiting")
	assertion := key.Get(passkey.Challenge(draft.Message()))
	if err := h.Settle(ctx, draft, assertion); err != nil {
		t.Fatal(err)
	}
	if got := code(h.Settle(ctx, draft, assertion)); got != "approval.answered" {
		t.Errorf("replayed: %s", got)
	}
	given := slices.Clone(h.log.l.questions[q.ID].yes)
	got, _, err := h.Ask(ctx, d)
	if err != nil || got == nil || !got.Yes || got.By != "approver:carol" {
		t.Fatalf("%+v, %v", got, err)
	}
	r := Recorded{
		DecisionID: d.ID, ApprovalID: got.ApprovalID, ArgsDigest: got.ArgsDigest, Yes: true, By: string(got.By), Key: got.Key,
		Signed: got.Signed, Signature: got.Signature,
	}
	ledger := func() *Ledger {
		return &Ledger{holders: h.holders(t), questions: map[string]*asked{r.ApprovalID: {yes: slices.Clone(given)}}}
	}
	if err := ledger().Answered(r); err != nil {
		t.Errorf("the log: %v", err)
	}
	r.Signed = []byte(strings.Replace(string(r.Signed), `"yes":true`, `"yes": true`, 1))
	if err := ledger().Answered(r); err != nil { // another spelling of the same message
		t.Errorf("the log: %v", err)
	}
	r.Signed = []byte(strings.Replace(string(r.Signed), q.Digest(), other.Digest(), 1))
	if err := ledger().Answered(r); err == nil {
		t.Error("the log takes a changed message")
	}
}
