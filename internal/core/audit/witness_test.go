package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/testing/storetest"
)

// approvals is a state directory with a log, an approver, ann, and the waldo parts that use both.
type approvals struct {
	t     *testing.T
	store *database.Store
	dir   string
	log   *Log
	desk  *approval.Service
	rec   *Recorder
	ann   approval.Signer
}

func newApprovals(t *testing.T) *approvals {
	t.Helper()
	s, err := storetest.Open(t, filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	a := &approvals{t: t, store: s, dir: s.Path("log")}
	a.restart()
	a.ann = a.enrol("ann", nil)
	return a
}

// restart is another waldo over the same state directory.
func (a *approvals) restart() {
	a.t.Helper()
	if a.log != nil {
		closeLog(a.t, a.log)
	}
	a.log = openLog(a.t, a.dir, Options{Heads: a.store})
	w := &Witness{Dir: a.dir}
	a.rec = &Recorder{Log: a.log, Witness: w}
	a.desk = &approval.Service{Store: a.store, Witness: w,
		Records: Desk{a.rec, "os:1"}}
}

func (a *approvals) enrol(name string, by approval.Signer) approval.Signer {
	a.t.Helper()
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		a.t.Fatal(err)
	}
	me := approval.NewSigner(name, private)
	if by == nil {
		by = me
	}
	if _, err := a.desk.EnrollKey(ctx, name, nil, pub, by); err != nil {
		a.t.Fatal(err)
	}
	return me
}

// call makes a call as the pipeline does. It returns the result: waiting, ran, no, the code of a refusal, or the
// record's error.
func (a *approvals) call(d policy.Decision) (came, approvalID string) {
	a.t.Helper()
	d.ID = id.New(id.Decision)
	if err := a.rec.Decision(ctx, d); err != nil {
		a.t.Fatal(err)
	}
	n, waiting, err := a.desk.Ask(ctx, d)
	if err != nil {
		a.t.Fatal(err)
	}
	if n == nil {
		return "waiting", waiting
	}
	if err := a.rec.Answer(ctx, d, *n); err != nil {
		return err.Error(), n.ApprovalID
	}
	switch {
	case n.Refusal != "":
		return n.Refusal, n.ApprovalID
	case n.Yes:
		return "ran", n.ApprovalID
	}
	return "no", n.ApprovalID
}

func (a *approvals) want(d policy.Decision, want string) string {
	a.t.Helper()
	came, approvalID := a.call(d)
	if came != want {
		a.t.Fatalf("got %q, want %q", came, want)
	}
	return approvalID
}

func (a *approvals) say(by approval.Signer, approvalID string, yes bool) {
	a.t.Helper()
	q, _, err := a.desk.Question(ctx, approvalID)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.desk.Answer(ctx, by, q, yes, ""); err != nil {
		a.t.Fatal(err)
	}
}

func (a *approvals) exec(q string, args ...any) {
	a.t.Helper()
	err := a.store.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(q, args...)
		return err
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

func asking(t *testing.T, args string) policy.Decision {
	d := decision(t, args)
	d.Effect, d.Contract.Approval = policy.Ask, contract.Approval{When: contract.Always}
	return d
}

func (a *approvals) verify(pins ...string) Report {
	a.t.Helper()
	anchors, err := Anchors(ctx, Options{Heads: a.store})
	if err != nil {
		a.t.Fatal(err)
	}
	rep, err := Verify(ctx, a.dir, anchors, time.Now(), Expect{Pins: pins})
	if err != nil {
		a.t.Fatal(err)
	}
	// head.behind is expected while the log is open
	rep.Findings = slices.DeleteFunc(rep.Findings, func(f Finding) bool { return f.Code == "head.behind" })
	return rep
}

const setBack = `UPDATE approvals SET state = 'yes', used_by = '' WHERE id = $1`

// TestYesIsNotReplayed: the attacker writes the database and the log's files, and holds no key. He rolls a used
// approval back and hides the record of its use.
func TestYesIsNotReplayed(t *testing.T) {
	segment := func(a *approvals) string { return filepath.Join(a.dir, segmentName(1)) }
	flip := func(a *approvals, of, by string) {
		b := mustRead(t, segment(a))
		i := bytes.LastIndex(b, []byte(of))
		if i < 0 || len(of) != len(by) {
			t.Fatalf("control: the log has no %s", of)
		}
		copy(b[i:], by)
		if err := os.WriteFile(segment(a), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		why    string
		hide   func(a *approvals)
		want   string
		around bool // the record is whole again afterwards
	}{
		{"nothing is hidden", func(*approvals) {}, "approval.used", false},
		{"a byte of the answer's kind", func(a *approvals) { flip(a, `"kind":"answer"`, `"kind":"Xnswer"`) },
			"approval.unproven", true},
		{"a digit of the answer's hash", func(a *approvals) { flip(a, `"yes":true`, `"yes":tru3`) },
			"approval.unproven", true},
		{"a byte of a record long before", func(a *approvals) { flip(a, `"action":"enrol"`, `"action":"enroi"`) },
			"approval.unproven", true},
	} {
		t.Run(row.why, func(t *testing.T) {
			a := newApprovals(t)
			d := asking(t, `{}`)
			approvalID := a.want(d, "waiting")
			a.say(a.ann, approvalID, true)
			a.want(d, "ran")
			a.restart()
			d.Call.ApprovalID = approvalID
			before := mustRead(t, segment(a))
			a.exec(setBack, approvalID)
			row.hide(a)
			came, _ := a.call(d)
			if came != row.want {
				t.Errorf("got %q, want %q", came, row.want)
			}
			if row.around { // records written meanwhile remain
				b := mustRead(t, segment(a))
				if err := os.WriteFile(segment(a), append(before, b[len(before):]...), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			closeLog(t, a.log)
			a.log = nil
			if rep := a.verify(); !rep.OK {
				t.Errorf("control: the log is as it was: %+v", rep.Findings)
			}
		})
	}
	t.Run("the log is set aside", func(t *testing.T) {
		a := newApprovals(t)
		d := asking(t, `{}`)
		approvalID := a.want(d, "waiting")
		a.say(a.ann, approvalID, true)
		a.want(d, "ran")
		bob, ann := a.enrol("bob", a.ann), a.root()
		closeLog(t, a.log)
		a.log = nil
		flip(a, `"yes":true`, `"yes":tru3`)
		aside := Aside{By: "os:0", Reason: "to use it again"}
		if _, err := SetAside(ctx, a.dir, Options{Heads: a.store}, aside); !errors.Is(err, ErrUnsigned) {
			t.Fatal("nobody signed: ", err)
		}
		aside.Expect.Pins, aside.Sign = []string{ann.Fingerprint()}, a.signAside
		if _, err := SetAside(ctx, a.dir, Options{Heads: a.store}, aside); err != nil {
			t.Fatal(err)
		}
		a.exec(setBack, approvalID)
		a.restart()
		d.Call.ApprovalID = approvalID
		a.want(d, "approval.unproven")
		d.Call.ApprovalID = ""
		fresh := a.want(d, "waiting")
		q, _, err := a.desk.Question(ctx, fresh)
		if err != nil {
			t.Fatal(err)
		}
		var no *approval.Refused
		if err := a.desk.Answer(ctx, bob, q, true, ""); !errors.As(err, &no) || no.Reason.Code != "approval.not_enrolled" {
			t.Errorf("bob, who may have been revoked in the log that was set aside: %v", err)
		}
		if err := a.desk.Answer(ctx, a.ann, q, true, ""); !errors.As(err, &no) || no.Reason.Code != "approval.not_enrolled" {
			t.Errorf("ann, whose right may have ended there: %v", err)
		}
		a.say(a.enrol("ann", nil), fresh, true) // she enrols anew
		a.want(d, "ran")
		if rep := a.verify(); !rep.OK {
			t.Errorf("the new log: %+v", rep.Findings)
		}
	})
}

// TestTwoProcessesOneYes: a row is set back between the use of a yes and its record. The order of the
// log lets one of the two run, and Verify tells.
func TestTwoProcessesOneYes(t *testing.T) {
	a := newApprovals(t)
	d := asking(t, `{}`)
	approvalID := a.want(d, "waiting")
	a.say(a.ann, approvalID, true)
	use := func() (policy.Decision, approval.Answer) {
		d := d
		d.ID = id.New(id.Decision)
		desk := &approval.Service{Store: a.store, Witness: a.desk.Witness} // of another process
		n, _, err := desk.Ask(ctx, d)
		if err != nil || n == nil || !n.Yes {
			t.Fatalf("control: %+v %v", n, err)
		}
		return d, *n
	}
	one, first := use()
	a.exec(setBack, approvalID)
	two, second := use()
	if err := a.rec.Answer(ctx, one, first); err != nil {
		t.Errorf("the first in the log: %v", err)
	}
	if err := a.rec.Answer(ctx, two, second); err == nil || !strings.Contains(err.Error(), "approval.twice") {
		t.Errorf("the second in the log: %v", err)
	}
	if rep := a.verify(); rep.OK || codes(rep) != "approval.twice" {
		t.Errorf("%+v", rep.Findings)
	}
}

// away is a witness that has a reason against each call; nil: it cosigns.
type away struct{ why *call.Reason }

func (w *away) Cosigned(context.Context) *call.Reason { return w.why }

// TestWitnessAwayAfterYes: a yes is not used while the witness that its contract requires cannot be reached. The record
// says so, and the yes serves one call later on, also in another process.
func TestWitnessAwayAfterYes(t *testing.T) {
	a, w := newApprovals(t), &away{&call.Reason{Code: "witness.missing", Text: "too few witnesses"}}
	a.desk.Cosigner = w
	plain := asking(t, `{"n":1}`)
	a.say(a.ann, a.want(plain, "waiting"), true)
	a.want(plain, "ran") // control: its contract requires none
	d := asking(t, `{"n":2}`)
	d.Contract.Witness = true
	approvalID := a.want(d, "waiting")
	a.say(a.ann, approvalID, true)
	d.Call.ApprovalID = approvalID
	a.want(d, "witness.missing")
	a.want(d, "witness.missing")
	if _, state, err := a.desk.Question(ctx, approvalID); err != nil || state != approval.Yes {
		t.Fatalf("while the witness is away: %s, %v", state, err)
	}
	w.why = nil
	a.desk = &approval.Service{Store: a.store, Witness: a.desk.Witness, Cosigner: w} // of another process
	a.want(d, "ran")
	a.want(d, "approval.used")
	a.exec(setBack, approvalID) // the attack: the row says again that it was not used
	a.want(d, "approval.used")
	if rep := a.verify(); !rep.OK {
		t.Errorf("%+v", rep.Findings)
	}
}

// TestVerifyApprovals: lines that fit the chain, since a chain has no key, and no signature.
func TestVerifyApprovals(t *testing.T) {
	a := newApprovals(t)
	d := asking(t, `{}`)
	a.say(a.ann, a.want(d, "waiting"), true)
	a.want(d, "ran")
	all, err := a.desk.Approvers(ctx)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if rep := a.verify(all[0].Fingerprint()); !rep.OK {
		t.Fatalf("control: %+v", rep.Findings)
	}
	if rep := a.verify("sha256:" + strings.Repeat("0", 64)); rep.OK || codes(rep) != "answer.root answer.root" {
		t.Errorf("the operator names another first approver: %+v", rep.Findings)
	}
	for _, row := range []struct{ why, kind, body, want string }{
		{"an answer without a signature", KindAnswer,
			`{"decision_id":"d_1","approval_id":"a_1","yes":true,"by":"approver:ann"}`, "answer.unsigned"},
		{"an answer of an agent's host", KindAnswer,
			`{"decision_id":"d_2","approval_id":"a_2","yes":true,"by":"session:n_1"}`, ""},
		{"the same once more", KindAnswer, `{"decision_id":"d_3","approval_id":"a_2","yes":true,"by":"session:n_1"}`,
			"approval.twice"},
		{"a refusal of waldo's own", KindAnswer,
			`{"decision_id":"d_4","approval_id":"a_2","yes":false,"refusal":"approval.used","by":""}`, ""},
		{"an enrolment without a signature", KindApprover,
			`{"action":"enrol","approver":"eve","by":"eve","principal":"os:1"}`, "approver.signature"},
		{"a revocation without a signature", KindApprover,
			`{"action":"revoke","approver":"ann","by":"ann","principal":"os:1"}`, "approver.signature"},
		{"an enrolment that failed", KindApprover,
			`{"action":"enrol","approver":"eve","by":"eve","principal":"os:1","failed":"disk full"}`, ""},
	} {
		before := len(a.verify().Findings)
		if _, err := a.log.Append(ctx, row.kind, []byte(row.body), true); err != nil {
			t.Fatal(err)
		}
		found := a.verify().Findings[before:]
		got := ""
		for _, f := range found {
			got += f.Code
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
	a.restart()
	a.say(a.ann, a.want(d, "waiting"), true) // none of it gave or took a right
	a.want(d, "ran")
}

// TestWitnessReadsOn: each call reads new records across segments, and records read before must still be there.
func TestWitnessReadsOn(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}, SegmentBytes: 2000})
	w := &Witness{Dir: dir}
	seq := func() uint64 {
		t.Helper()
		if err := w.Look(ctx, func(*approval.Ledger) {}); err != nil {
			t.Fatal(err)
		}
		return w.at.seq
	}
	for n := uint64(1); n < 30; n += 5 {
		if got := seq(); got != n {
			t.Fatalf("read to %d, want %d", got, n)
		}
		add(t, l, 5)
	}
	seq()
	names, _ := segments(dir)
	if len(names) < 3 {
		t.Fatal("control: one segment")
	}
	closeLog(t, l)
	last := filepath.Join(dir, names[len(names)-1])
	if err := os.Truncate(last, 10); err != nil {
		t.Fatal(err)
	}
	if err := w.Look(ctx, func(*approval.Ledger) { t.Error("a log that was cut is believed") }); err == nil {
		t.Error("a log that was cut")
	}
	if err := (&Witness{Dir: dir}).Look(ctx, func(*approval.Ledger) { t.Error("a torn log is believed") }); err == nil {
		t.Error("a log with a torn end")
	}
	if err := os.Remove(last); err != nil {
		t.Fatal(err)
	}
	if err := w.Look(ctx, func(*approval.Ledger) { t.Error("a log without its end is believed") }); err == nil {
		t.Error("a log whose last segment is gone")
	}
	if err := os.Remove(filepath.Join(dir, names[0])); err != nil {
		t.Fatal(err)
	}
	if err := (&Witness{Dir: dir}).Look(ctx,
		func(*approval.Ledger) { t.Error("a log without its start is believed") }); err == nil {
		t.Error("a log whose first segment is gone")
	}
}
