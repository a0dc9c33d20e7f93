package audit

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
)

// root returns ann as the log names her, who is the first approver.
func (a *approvals) root() (root approval.Approver) {
	a.t.Helper()
	var err error
	if lerr := (&Witness{Dir: a.dir}).Look(ctx, func(l *approval.Ledger) { root, err = l.Root(nil) }); errors.Join(err,
		lerr) != nil {
		a.t.Fatal(err, lerr)
	}
	return root
}

func (a *approvals) sign(p *approval.Checkpoint) error { return p.Sign(a.ann, a.root(), time.Now()) }

func (a *approvals) signAside(root approval.Approver, c *approval.Checkpoint) error {
	return c.Sign(a.ann, root, time.Now())
}

// forge appends a segment that says that all before it was pruned, removes the rest and rewrites the head. An attacker
// with write access and no key can do that. change edits the record.
func (a *approvals) forge(change func(*Pruned)) {
	a.t.Helper()
	closeLog(a.t, a.log)
	all, err := Select(ctx, a.dir, Selection{}, func(Record) error { return nil })
	if err != nil {
		a.t.Fatal(err)
	}
	names, sizes, err := extent(a.dir)
	if err != nil || len(names) != 1 {
		a.t.Fatal("control: one segment", names, err)
	}
	last, ok, err := lastRecord(ctx, a.dir, names[0], sizes[0])
	if !ok || err != nil || last.Seq != all.Last {
		a.t.Fatal("control: ", ok, err)
	}
	p := Pruned{Checkpoint: approval.Checkpoint{Through: last.Seq, Hash: last.Hash}, Segments: names, By: "os:1"}
	if p.Approvers, p.Configurations, err = signed(ctx, a.dir, last.Seq); err != nil {
		a.t.Fatal(err)
	}
	change(&p)
	body, err := json.Marshal(p)
	if err != nil {
		a.t.Fatal(err)
	}
	r := Record{Seq: last.Seq + 1, ID: last.ID, At: last.At, Prev: last.Hash, Kind: KindPruned, Body: body}
	if err := os.WriteFile(filepath.Join(a.dir, segmentName(r.Seq)), r.seal(nil), 0o600); err != nil {
		a.t.Fatal(err)
	}
	a.log = nil
	a.restart() // an honest process goes on, and its head passes the record
	if _, err := a.log.Append(ctx, "note", []byte(`{}`), true); err != nil {
		a.t.Fatal(err)
	}
	closeLog(a.t, a.log)
	if err := os.Remove(filepath.Join(a.dir, names[0])); err != nil {
		a.t.Fatal(err)
	}
	if _, err := Open(ctx, a.dir, Options{Heads: a.store}); !errors.Is(err, ErrTampered) {
		a.t.Fatal("the head does not bind the first record: ", err)
	}
	h, err := a.store.Head(ctx, Name)
	if err != nil {
		a.t.Fatal(err)
	}
	h.First, h.FirstHash = r.Seq, r.Hash
	if err := a.store.ResetHead(ctx, Name, *h); err != nil {
		a.t.Fatal(err)
	}
	a.log = nil
	a.restart()
}

// TestForgedRemoval: a forged prune record hides the use of an approval and a revocation. Only a removal signed by
// the pinned first approver counts.
func TestForgedRemoval(t *testing.T) {
	used := func(a *approvals) policy.Decision {
		d := asking(t, `{}`)
		d.Call.ApprovalID = a.want(d, "waiting")
		a.say(a.ann, d.Call.ApprovalID, true)
		a.want(d, "ran")
		return d
	}
	for _, row := range []struct {
		why    string
		pinned bool
		change func(a *approvals) func(*Pruned)
		replay string // the error of the used approval after its row was rolled back
		sound  bool
	}{
		{"nobody signed", true, func(*approvals) func(*Pruned) { return func(*Pruned) {} }, "approval.unproven", false},
		{"nobody signed, and it names nobody", true, func(*approvals) func(*Pruned) {
			return func(p *Pruned) { p.Approvers = nil }
		}, "approval.forged", false},
		{"another key signed", true, func(a *approvals) func(*Pruned) {
			b := newApprovals(t)
			return func(p *Pruned) {
				if err := p.Sign(b.ann, b.root(), time.Now()); err != nil {
					t.Fatal(err)
				}
			}
		}, "approval.unproven", false},
		{"signed, and then changed", true, func(a *approvals) func(*Pruned) {
			return func(p *Pruned) {
				if err := a.sign(&p.Checkpoint); err != nil {
					t.Fatal(err)
				}
				p.At = "2020-01-01T00:00:00.000Z"
			}
		}, "approval.unproven", false},
		{"signed, and no pin names who", false, func(a *approvals) func(*Pruned) {
			return func(p *Pruned) { _ = a.sign(&p.Checkpoint) }
		}, "approval.unproven", false},
		{"signed", true, func(a *approvals) func(*Pruned) {
			return func(p *Pruned) { _ = a.sign(&p.Checkpoint) }
		}, "approval.unproven", true}, // the yes is from before
	} {
		t.Run(row.why, func(t *testing.T) {
			a := newApprovals(t)
			pin := ""
			if row.pinned {
				pin = a.root().Fingerprint()
			}
			d := used(a)
			a.exec(setBack, d.Call.ApprovalID)
			a.restart()
			a.want(d, "approval.used") // control
			a.forge(row.change(a))
			a.desk.Root = pin
			a.exec(setBack, d.Call.ApprovalID)
			a.want(d, row.replay)
			closeLog(t, a.log)
			a.log = nil
			rep := a.verify(pin)
			if said := strings.Contains(findings(rep), "prune.unsigned"); rep.OK != row.sound || said == row.sound {
				t.Errorf("sound %v: %+v", rep.OK, rep.Findings)
			}
			if row.why != "signed" {
				return
			}
			a.restart()
			a.desk.Root = pin
			used(a) // approvals go on
		})
	}
	t.Run("an operator signs for it", func(t *testing.T) {
		a := newApprovals(t)
		pin := a.root().Fingerprint()
		a.forge(func(*Pruned) {})
		p, err := a.log.Prune(context.Background(), 0, "os:1", a.sign)
		if err != nil || p.Through == 0 || len(p.Segments) != 0 {
			t.Fatalf("%+v %v", p, err)
		}
		a.restart()
		a.desk.Root = pin
		used(a)
		closeLog(t, a.log)
		a.log = nil
		if rep := a.verify(pin); !rep.OK {
			t.Errorf("%+v", rep.Findings)
		}
	})
}

func findings(r Report) (codes string) {
	for _, f := range r.Findings {
		codes += f.Code + " "
	}
	return codes
}

// A revocation outlives a signed removal and a log that is set aside, and a record that is played back
// restores no right.
func TestRevokedStaysRevoked(t *testing.T) {
	for _, way := range []string{"control", "signed", "set aside"} {
		t.Run(way, func(t *testing.T) {
			a := newApprovals(t)
			pin := a.root().Fingerprint()
			bob := a.enrol("bob", a.ann)
			carl := a.enrol("carl", a.ann)
			old, _, err := signed(ctx, a.dir, 1<<40)
			if err != nil || len(old) != 3 {
				t.Fatal(old, err)
			}
			if err := a.desk.Revoke(ctx, "bob", a.ann); err != nil {
				t.Fatal(err)
			}
			switch way {
			case "signed":
				a.forge(func(p *Pruned) {
					if err := a.sign(&p.Checkpoint); err != nil {
						t.Fatal(err)
					}
				})
			case "set aside":
				closeLog(t, a.log)
				a.log = nil
				f, err := os.OpenFile(filepath.Join(a.dir, segmentName(1)), os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString("garbage\n"); errors.Join(err, f.Close()) != nil {
					t.Fatal(err)
				}
				aside := Aside{By: "os:1", Reason: "disk", Expect: Expect{Pins: []string{pin}}, Sign: a.signAside}
				if _, err := SetAside(ctx, a.dir, Options{Heads: a.store}, aside); err != nil {
					t.Fatal(err)
				}
			}
			a.restart()
			a.desk.Root = pin
			for _, e := range old {
				if err := a.rec.Approver(ctx, "os:1", e); err != nil {
					t.Fatal(err)
				}
			}
			a.exec(`UPDATE approvers SET revoked = ''`)
			d := asking(t, `{}`)
			q, _, err := a.desk.Question(ctx, a.want(d, "waiting"))
			if err != nil {
				t.Fatal(err)
			}
			var no *approval.Refused
			if err := a.desk.Answer(ctx, bob, q, true, ""); !errors.As(err, &no) || no.Reason.Code != "approval.not_enrolled" {
				t.Errorf("bob, who was revoked: %v", err)
			}
			err = a.desk.Answer(ctx, carl, q, true, "")
			if way == "set aside" {
				if !errors.As(err, &no) || no.Reason.Code != "approval.not_enrolled" {
					t.Errorf("carl, who may have been revoked: %v", err)
				}
				if err := a.desk.Answer(ctx, a.ann, q, true, ""); !errors.As(err, &no) ||
					no.Reason.Code != "approval.not_enrolled" {
					t.Errorf("ann, whose key is of the log before: %v", err)
				}
				a.desk.Root = ""
				ann := a.enrol("ann", nil) // anew, with another key
				if err := a.desk.Answer(ctx, ann, q, true, ""); err != nil {
					t.Errorf("control: ann, enrolled anew: %v", err)
				}
			} else if err != nil {
				t.Errorf("control: carl: %v", err)
			}
		})
	}
}
