package approval

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
)

// testLog is a log in memory: the ledger holds every record of the service.
type testLog struct {
	mu  sync.Mutex
	l   Ledger
	err error
}

func (l *testLog) Look(_ context.Context, fn func(*Ledger)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		fn(&l.l)
	}
	return l.err
}

// watch gives the service a log that names ann as the first approver.
func (h *fixture) watch(t *testing.T) *testLog {
	t.Helper()
	log := &testLog{}
	h.log = log
	h.wire(log)
	a := Approver{
		Name: "ann", Key: hexKey(h.ann.(key).k), Roles: []string{"manager"}, By: "ann", At: database.Stamp(h.now()),
	}
	if err := log.l.Enrolled(enrolment(a, h.ann)); err != nil {
		t.Fatal(err)
	}
	return log
}

func (h *fixture) wire(log *testLog) {
	h.Witness = log
	h.Records = &records{log: log}
}

// records writes to a log of a test, whatever is wrong with what it writes. Its functions replace that.
type records struct {
	log      *testLog
	enrolled func(e Enrolment) error
	verdict  func(a Answer) error
}

func (r *records) Enrolled(_ context.Context, e Enrolment) error {
	if r.enrolled != nil {
		return r.enrolled(e)
	}
	return r.log.Look(ctx, func(l *Ledger) { _ = l.Enrolled(e) })
}

func (r *records) Verdict(_ context.Context, a Answer) error {
	if r.verdict != nil {
		return r.verdict(a)
	}
	return r.log.Look(ctx, func(l *Ledger) { _ = l.Given(recorded(a)) })
}

func (r *records) Configured(_ context.Context, c Configuration, _ string) error {
	return r.log.Look(ctx, func(l *Ledger) { _ = l.Configured(c) })
}

func (r *records) Passed(context.Context, Elsewhere, string, bool) error { return nil }

func enrolment(a Approver, by Signer) Enrolment {
	sig, _ := by.Sign(append([]byte(forApprover), canonical(a)...))
	return Enrolment{Action: "enrol", Approver: a.Name, Key: a.Fingerprint(), Public: a.Key,
		Roles: a.Roles, By: a.By, At: a.At, Signature: base64.StdEncoding.EncodeToString(sig)}
}

func recorded(a Answer) Recorded {
	return Recorded{DecisionID: a.DecisionID, ApprovalID: a.ApprovalID, ArgsDigest: a.ArgsDigest,
		Yes: a.Yes, By: string(a.By), Key: a.Key, Signed: a.Signed, Signature: a.Signature, Also: a.Also}
}

// TestSignsWhatWasShown: between the screen and the passphrase, an attacker replaces the question in the database.
func TestSignsWhatWasShown(t *testing.T) {
	swap := func(h *fixture, shown, other string) {
		t.Helper()
		h.exec(t, `DELETE FROM approvals WHERE id = 'x' OR id = $1`, shown)
		h.exec(t, `UPDATE approvals SET id = $1, question = REPLACE(question, $2, $1) WHERE id = $2`, shown, other)
	}
	h := newFixture(t)
	harmless, harm := decide(t, `{"path":"/tmp/a"}`), decide(t, `{"path":"/etc"}`)
	shown, other := h.want(t, harmless, "waiting"), h.want(t, harm, "waiting")
	q, state, err := h.Question(ctx, shown)
	if err != nil || state != Pending {
		t.Fatal(state, err)
	}
	swap(h, shown, other)
	if now, state, err := h.Question(ctx, shown); err != nil || state != Pending || !strings.Contains(now.Show(), "/etc") {
		t.Fatal("control: the row is sound, and asks about another call: ", state, err)
	}
	if err := h.Service.Answer(ctx, h.ann, q, true, ""); code(err) != "approval.changed" {
		t.Fatalf("a changed question: %v", err)
	}
	h.want(t, harm, "waiting")

	h = newFixture(t) // the same, while the passphrase is typed
	shown, other = h.want(t, harmless, "waiting"), h.want(t, harm, "waiting")
	q, _, _ = h.Question(ctx, shown)
	by := slow{h.ann, func() { swap(h, shown, other) }}
	if err := h.Service.Answer(ctx, by, q, true, ""); code(err) != "approval.changed" {
		t.Fatalf("a question changed while it was signed: %v", err)
	}
	h.want(t, harm, "waiting")

	h = newFixture(t) // control: the rows are not swapped
	shown = h.want(t, harmless, "waiting")
	q, _, _ = h.Question(ctx, shown)
	if err := h.Service.Answer(ctx, h.ann, q, true, ""); err != nil {
		t.Fatal(err)
	}
	h.want(t, harmless, "yes")
}

// TestEveryWordIsBound: if any part of a question is changed in the database, before or after a human reads it, the
// answer permits no call.
func TestEveryWordIsBound(t *testing.T) {
	for _, row := range []struct{ why, from, to string }{
		{"control: nothing", "nothing", "nothing"},
		{"the reason", `"reasons":null`, `"reasons":[{"code":"approval.always","text":"dry run: nothing is deleted"}]`},
		{"the class", `"mode":"high_risk"`, `"mode":"read"`},
		{"the channel", `"channel":"mcp"`, `"channel":"console"`},
		{"the role", `"role":"manager"`, `"role":""`},
		{"the time of the question", `"created":"2026`, `"created":"2025`},
		{"the decision", `"decision_id":"d_`, `"decision_id":"d_x`},
		{"the danger", `"danger":3`, `"danger":1`},
		{"a number that no canonical form holds", `"danger":3`, `"danger":9007199254740995`},
		{"what waldo found", `"notes":null`, `"notes":["/etc leads to /tmp"]`},
	} {
		t.Run(row.why, func(t *testing.T) {
			for _, before := range []bool{true, false} {
				h := newFixture(t)
				d := decide(t, `{"path":"/etc"}`)
				approvalID := h.want(t, d, "waiting")
				var text string
				if r, err := h.load(ctx, approvalID); err != nil {
					t.Fatal(err)
				} else if text = string(mustJSON(t, r.q)); row.why[:7] != "control" && !strings.Contains(text, row.from) {
					t.Skipf("the question has no %s: %s", row.from, text)
				}
				change := func() {
					h.exec(t, `UPDATE approvals SET question = REPLACE(question, $1, $2) WHERE id = $3`, row.from, row.to, approvalID)
				}
				said := ""
				if before {
					change()
					said = code(h.Answer(ctx, h.ann, approvalID, true, ""))
				} else {
					h.say(t, approvalID, true)
					change()
				}
				d.Call.ApprovalID = approvalID
				got, _ := h.ask(t, d)
				if ran := got == "yes"; ran != (row.why[:7] == "control") &&
					!(before && (row.why == "the time of the question" || row.why == "the decision")) {
					t.Errorf("changed before it was shown: %v; the answer: %q; the call: %s", before, said, got)
				}
			}
		})
	}
}

// TestIDsByForm: a row with a malformed id is neither listed nor answered.
func TestIDsByForm(t *testing.T) {
	h := newFixture(t)
	approvalID := h.want(t, decide(t, `{}`), "waiting")
	odd := "a_x\x1b[8m\n  capability  forged"
	h.exec(t, `INSERT INTO approvals (id, binding, session, state, created, expires, question, answer, used_by)
		SELECT $1, binding, session, state, created, expires, REPLACE(question, $2, 'a_x\u001b[8m\n  capability  forged'), answer, used_by
		FROM approvals WHERE id = $2`, odd, approvalID)
	var n int
	for _, q := range must(h.Pending(ctx))(t) {
		n++
		if q.ID != approvalID || strings.Contains(q.Show(), "forged") {
			t.Errorf("listed: %q", q.ID)
		}
	}
	if n != 1 {
		t.Errorf("control: %d questions are listed", n)
	}
	if _, _, err := h.Question(ctx, odd); code(err) != "approval.unknown" {
		t.Errorf("shown: %v", err)
	}
}

// TestLogDecides: the database's approvers and used approvals count only if the log agrees.
func TestLogDecides(t *testing.T) {
	t.Run("a key that no record names", func(t *testing.T) {
		h := newFixture(t)
		d := decide(t, `{}`)
		approvalID := h.want(t, d, "waiting")
		h.watch(t)
		if err := h.Answer(ctx, h.ann, approvalID, true, ""); err != nil {
			t.Fatal("control: ", err)
		}
		h.want(t, d, "yes")
		_, eve, _ := ed25519.GenerateKey(nil)
		a := Approver{Name: "ann", Key: hexKey(eve), Roles: []string{"manager"}, By: "ann"}
		sig := ed25519.Sign(eve, append([]byte(forApprover), canonical(a)...))
		h.exec(t, `UPDATE approvers SET record = $1, signature = $2 WHERE name = 'ann'`, string(canonical(a)),
			base64.StdEncoding.EncodeToString(sig))
		h.exec(t, `UPDATE kv SET value = $1 WHERE bucket = 'approval' AND name = 'root'`, a.Fingerprint())
		approvalID = h.want(t, d, "waiting")
		if err := h.Answer(ctx, NewSigner("ann", eve), approvalID, true, ""); code(err) != "approval.not_enrolled" {
			t.Errorf("a key in ann's place: %v", err)
		}
		h.want(t, d, "waiting")
	})
	t.Run("a revocation that is undone in the database", func(t *testing.T) {
		h := newFixture(t)
		h.watch(t)
		bob := enrolled(t, h, "bob")
		d := decide(t, `{}`)
		if err := h.Answer(ctx, bob, h.want(t, d, "waiting"), true, ""); err != nil {
			t.Fatal("control: ", err)
		}
		if err := h.Revoke(ctx, "bob", h.ann); err != nil {
			t.Fatal(err)
		}
		h.exec(t, `UPDATE approvers SET revoked = '' WHERE name = 'bob'`)
		h.want(t, d, "approval.revoked")
		if err := h.Answer(ctx, bob, h.want(t, d, "waiting"), true, ""); code(err) != "approval.not_enrolled" {
			t.Errorf("the revoked answers: %v", err)
		}
	})
	t.Run("a record that restores bob without a signature", func(t *testing.T) {
		h := newFixture(t)
		log := h.watch(t)
		var first Enrolment
		h.Records.(*records).enrolled = func(e Enrolment) error {
			if e.Action == "enrol" {
				first = e
			}
			return log.l.Enrolled(e)
		}
		bob := enrolled(t, h, "bob")
		if err := h.Revoke(ctx, "bob", h.ann); err != nil {
			t.Fatal(err)
		}
		h.exec(t, `UPDATE approvers SET revoked = '' WHERE name = 'bob'`)
		for _, e := range []Enrolment{
			first, // the same record once more, which bears ann's signature
			{Action: "revoke", Approver: "bob", By: "ann", Failed: "disk full"},
			{Action: "enrol", Approver: "bob", Key: Approver{Key: hexKey(bob.(key).k)}.Fingerprint(),
				Public: hexKey(bob.(key).k), By: "ann", Roles: []string{"manager"}},
			enrolment(Approver{Name: "bob", Key: hexKey(bob.(key).k), Roles: []string{"manager"}, By: "ann"}, bob),
		} {
			_ = log.l.Enrolled(e)
		}
		if err := h.Answer(ctx, bob, h.want(t, decide(t, `{}`), "waiting"), true, ""); code(err) != "approval.not_enrolled" {
			t.Errorf("the revoked answers: %v", err)
		}
	})
	t.Run("a log that does not parse", func(t *testing.T) {
		h := newFixture(t)
		log := h.watch(t)
		d := decide(t, `{}`)
		approvalID := h.want(t, d, "waiting")
		h.say(t, approvalID, true)
		log.err = errors.New("line 7 does not chain")
		h.want(t, d, "approval.unproven")
		log.err = nil
		h.want(t, d, "yes") // it was not voided
	})
	t.Run("a log that was set aside after the yes", func(t *testing.T) {
		h := newFixture(t)
		log := h.watch(t)
		d := decide(t, `{}`)
		h.say(t, h.want(t, d, "waiting"), true)
		log.l.Since = h.now().Add(time.Second)
		h.want(t, d, "approval.unproven")
		h.pass(2 * time.Second)
		h.say(t, h.want(t, d, "waiting"), true)
		h.want(t, d, "yes")
	})
	t.Run("a row set back, in the process that used it", func(t *testing.T) {
		h := newFixture(t)
		d := decide(t, `{}`)
		approvalID := h.want(t, d, "waiting")
		h.say(t, approvalID, true)
		h.want(t, d, "yes")
		h.exec(t, `UPDATE approvals SET state = 'yes', used_by = '' WHERE id = $1`, approvalID)
		h.want(t, d, "approval.used")
	})
}

func enrolled(t *testing.T, h *fixture, name string) Signer {
	t.Helper()
	pub, private, _ := ed25519.GenerateKey(nil)
	if _, err := h.EnrollKey(ctx, name, []string{"manager"}, pub, h.ann); err != nil {
		t.Fatal(err)
	}
	return NewSigner(name, private)
}

// TestTakenBack: a no withdraws an unused approval, and the approval cannot be restored.
func TestTakenBack(t *testing.T) {
	h := newFixture(t)
	h.watch(t)
	d := decide(t, `{}`)
	approvalID := h.want(t, d, "waiting")
	h.say(t, approvalID, true)
	if err := h.Answer(ctx, h.ann, approvalID, true, ""); code(err) != "approval.answered" {
		t.Errorf("a second yes: %v", err)
	}
	h.say(t, approvalID, false)
	h.want(t, d, "no")
	h.exec(t, `UPDATE approvals SET state = 'yes' WHERE id = $1`, approvalID)
	h.want(t, d, "no") // the old row restores nothing

	d = decide(t, `{"n":1}`)
	approvalID = h.want(t, d, "waiting")
	h.say(t, approvalID, true)
	h.want(t, d, "yes")
	if err := h.Answer(ctx, h.ann, approvalID, false, ""); code(err) != "approval.used" {
		t.Errorf("a yes that was used is taken back: %v", err)
	}
	approvalID = h.want(t, d, "waiting") // an approval that cannot be recorded is taken back, with an error
	h.say(t, approvalID, true)
	h.Records.(*records).verdict = func(Answer) error { return errors.New("disk full") }
	if err := h.Answer(ctx, h.ann, approvalID, false, ""); err == nil || !strings.Contains(err.Error(), "not on record") {
		t.Errorf("unrecorded: %v", err)
	}
	h.want(t, d, "approval.forged")
	approvalID = h.want(t, d, "waiting") // a yes that cannot be recorded is none
	if err := h.Answer(ctx, h.ann, approvalID, true, ""); err == nil || !strings.Contains(err.Error(), "not on record") {
		t.Errorf("unrecorded: %v", err)
	}
	h.want(t, d, "waiting")
}

// TestGone: a question of a process that has ended is neither listed nor answered; one of a session that
// outlives its process is.
func TestGone(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	lasting := h.want(t, d, "waiting")
	ended := map[string]bool{}
	h.Gone = func(asker string) bool { return ended[asker] }
	h.about.asker = func(call.Session) string { return "q_1" }
	d = decide(t, `{"n":1}`)
	approvalID := h.want(t, d, "waiting")
	if open := must(h.Pending(ctx))(t); len(open) != 2 {
		t.Fatalf("control: %d questions are open", len(open))
	}
	h.say(t, approvalID, true) // control
	h.want(t, d, "yes")
	approvalID = h.want(t, d, "waiting")
	ended["q_1"] = true
	if _, state, err := h.Question(ctx, approvalID); state != Gone || err != nil {
		t.Errorf("its state: %s %v", state, err)
	}
	if err := h.Answer(ctx, h.ann, approvalID, true, ""); code(err) != "approval.gone" {
		t.Errorf("answered: %v", err)
	}
	if open := must(h.Pending(ctx))(t); len(open) != 1 || open[0].ID != lasting {
		t.Errorf("open: %+v", open)
	}
	h.say(t, lasting, true)
}

// TestRootPin: the configuration, or the environment, says which first approver counts.
func TestRootPin(t *testing.T) {
	h := newFixture(t)
	h.watch(t)
	fp := Approver{Key: hexKey(h.ann.(key).k)}.Fingerprint()
	d := decide(t, `{}`)
	approvalID := h.want(t, d, "waiting")
	h.Root = "sha256:" + strings.Repeat("0", 64)
	if err := h.Answer(ctx, h.ann, approvalID, true, ""); code(err) != "approval.not_enrolled" {
		t.Errorf("another root: %v", err)
	}
	if _, err := h.Enroll(ctx, "eve", nil, secret.NewValue(pass), nil); code(err) != "approver.root" {
		t.Errorf("eve as the first: %v", err)
	}
	h.Root = fp
	h.say(t, approvalID, true) // control
	h.want(t, d, "yes")
	if _, err := h.Enroll(ctx, "eve", nil, secret.NewValue(pass), nil); code(err) != "approver.root" {
		t.Errorf("eve as the first: %v", err)
	}
	h.Root = ""
	h.exec(t, `DELETE FROM approvers`)
	h.exec(t, `DELETE FROM kv WHERE bucket = 'approval'`)
	if _, err := h.Enroll(ctx, "eve", nil, secret.NewValue(pass), nil); code(err) != "approver.root" {
		t.Errorf("eve as the first, after every row was removed: %v", err)
	}
}

// TestAfterSetAside: a log that follows another names the first approver alone; the others are
// enrolled again, under their names and with new keys.
func TestAfterSetAside(t *testing.T) {
	h := newFixture(t)
	h.watch(t)
	if _, err := h.Enroll(ctx, "bob", []string{"manager"}, secret.NewValue(pass), h.ann); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Enroll(ctx, "bob", nil, secret.NewValue(pass), h.ann); err == nil {
		t.Fatal("control: there is a bob")
	}
	bob, err := h.Unseal("bob", secret.NewValue(pass))
	if err != nil {
		t.Fatal(err)
	}
	h.watch(t)
	approvalID := h.want(t, decide(t, `{}`), "waiting")
	if err := h.Answer(ctx, bob, approvalID, true, ""); code(err) != "approval.not_enrolled" {
		t.Fatalf("bob, of whom the new log knows nothing: %v", err)
	}
	if _, err := h.Enroll(ctx, "bob", []string{"manager"}, secret.NewValue(pass), h.ann); err != nil {
		t.Fatal(err)
	}
	if bob, err = h.Unseal("bob", secret.NewValue(pass)); err != nil {
		t.Fatal(err)
	}
	if err := h.Answer(ctx, bob, approvalID, true, ""); err != nil {
		t.Fatal(err)
	}
}

// TestLedger: records as an attacker could write them.
func TestLedger(t *testing.T) {
	h := newFixture(t)
	log := h.watch(t)
	bob := enrolled(t, h, "bob")
	used := func(approvalID string, by Signer) Answer {
		if err := h.Answer(ctx, by, approvalID, true, ""); err != nil {
			t.Fatal(err)
		}
		v := log.l.questions[approvalID].yes[0]
		return *v.answer(h.shown(t, approvalID), id.New(id.Decision), nil)
	}
	fresh := func(by Signer) Recorded {
		d := decide(t, `{}`)
		d.Call.ToolDigest = id.New(id.Call)
		return recorded(used(h.want(t, d, "waiting"), by))
	}
	control := fresh(h.ann)
	if err := log.l.Answered(control); err != nil || log.l.Confirm(control.DecisionID, control.ApprovalID) != nil {
		t.Fatal("control: ", err)
	}
	second := control
	second.DecisionID = id.New(id.Decision)
	if err := log.l.Answered(second); code(err) != "approval.twice" {
		t.Errorf("a second use: %v", err)
	}
	if err := log.l.Confirm(second.DecisionID, second.ApprovalID); code(err) != "approval.twice" {
		t.Errorf("the second of two processes: %v", err)
	}
	if err := log.l.Confirm(control.DecisionID, control.ApprovalID); err != nil {
		t.Errorf("the first of two processes: %v", err)
	}
	if err := log.l.Confirm("d_other", control.ApprovalID); code(err) != "approval.used" {
		t.Errorf("a decision that did not use it: %v", err)
	}
	_, eve, _ := ed25519.GenerateKey(nil)
	for _, row := range []struct {
		why, want string
		change    func(r *Recorded)
	}{
		{"no signature", "answer.unsigned", func(r *Recorded) { r.Signature = "" }},
		{"a key that no record names", "answer.key", func(r *Recorded) { r.Key = Approver{Key: hexKey(eve)}.Fingerprint() }},
		{"a yes, recorded as a no", "answer.signature", func(r *Recorded) { r.Yes = false }},
		{"the key of another approver", "answer.key", func(r *Recorded) {
			r.Key = Approver{Key: hexKey(bob.(key).k)}.Fingerprint()
		}},
		{"another approver's name", "answer.signature", func(r *Recorded) { r.By = "approver:bob" }},
		{"a changed signature", "answer.signature", func(r *Recorded) {
			r.Signature = base64.StdEncoding.EncodeToString(make([]byte, 64))
		}},
		{"another approval", "answer.signature", func(r *Recorded) { r.ApprovalID = id.New(id.Approval) }},
		{"other arguments", "answer.signature", func(r *Recorded) { r.ArgsDigest = "sha256:0" }},
		{"a no, turned into a yes", "answer.signature", func(r *Recorded) {
			r.Signed = []byte(strings.Replace(string(r.Signed), `"reason":""`, `"reason":"other"`, 1))
		}},
	} {
		r := fresh(h.ann)
		row.change(&r)
		if err := log.l.Answered(r); code(err) != row.want {
			t.Errorf("%s: got %v, want %s", row.why, err, row.want)
		}
	}
	late := fresh(bob)
	if err := h.Revoke(ctx, "bob", h.ann); err != nil {
		t.Fatal(err)
	}
	if err := log.l.Answered(late); code(err) != "answer.revoked" {
		t.Errorf("used after the revocation: %v", err)
	}
	first := Approver{Name: "eve", Key: hexKey(eve), By: "eve", Roles: []string{}}
	if err := log.l.Enrolled(enrolment(first, NewSigner("eve", eve))); err != nil {
		t.Error(err)
	}
	if root, err := log.l.Root(nil); err != nil || root.Name != "ann" {
		t.Errorf("a second first approver: %v %v", root.Name, err)
	}
	if root, err := log.l.Root([]string{first.Fingerprint(), ""}); err != nil || root.Name != "eve" {
		t.Errorf("the operator names the other: %v %v", root.Name, err)
	}
	if err := log.l.Enrolled(enrolment(Approver{Name: "carl", Key: hexKey(eve), By: "ann"},
		NewSigner("ann", eve))); code(err) != "approver.signature" {
		t.Errorf("an enrolment that ann has not signed: %v", err)
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b := canonical(v)
	if b == nil {
		t.Fatal("no canonical form")
	}
	return b
}
