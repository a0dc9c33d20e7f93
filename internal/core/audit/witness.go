package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/delegation"
	"waldo/internal/core/policy"
)

// Witness reads a log from its first record on and remembers what it says of approvals. Each look
// reads only what was appended since the one before. It satisfies approval.Witness.
type Witness struct {
	Dir string

	mu          sync.Mutex
	at          place
	ledger      approval.Ledger
	delegations delegation.Ledger
	rows        rows
}

// Look brings the ledger to the end of the log and hands it to fn. It returns an error, and calls
// nothing, where a line does not parse or chain, or where what was read before is gone.
func (w *Witness) Look(ctx context.Context, fn func(*approval.Ledger)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.advance(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	fn(&w.ledger)
	return nil
}

// Delegations is Look for the ledger of delegations.
func (w *Witness) Delegations(ctx context.Context, fn func(*delegation.Ledger)) error {
	return w.Look(ctx, func(*approval.Ledger) { fn(&w.delegations) })
}

func (w *Witness) confirm(ctx context.Context, decisionID, approvalID string) (err error) {
	lerr := w.Look(ctx, func(l *approval.Ledger) { err = l.Confirm(decisionID, approvalID) })
	return errors.Join(lerr, err)
}

// advance reads from where the last look ended to the end of the log.
func (w *Witness) advance(ctx context.Context) error {
	names, sizes, err := extent(w.Dir)
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(names) == 0 && w.at.seq == 0) {
		return nil // nothing was ever recorded here
	}
	if err != nil {
		return err
	}
	if w.at.segment == "" || names[0] > w.at.segment { // at first, and after what was being read was pruned
		if err := w.begin(ctx, names[0]); err != nil {
			return err
		}
	}
	found := false
	for i, name := range names {
		if name < w.at.segment {
			continue
		}
		if name != w.at.segment {
			if !found || name != segmentName(w.at.seq+1) {
				return fmt.Errorf("segment %s does not follow record %d", name, w.at.seq)
			}
			w.at.segment, w.at.end = name, 0
		}
		found = true
		if sizes[i] < w.at.end {
			return fmt.Errorf("segment %s was cut", name)
		}
		if err := w.segment(ctx, name, sizes[i]); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("segment %s is gone", w.at.segment)
	}
	return nil
}

// begin goes to the first record that is there: the first of the log, or the one after those that were pruned.
func (w *Witness) begin(ctx context.Context, name string) error {
	first, _ := firstOf(name)
	if first > 1 && first == w.at.seq+1 { // it has read all that is gone
		w.at.segment, w.at.end = name, 0
		return nil
	}
	w.at, w.ledger = place{hash: genesis, segment: segmentName(1)}, approval.Ledger{}
	w.delegations, w.rows = delegation.Ledger{}, newRows()
	if first <= 1 {
		return nil
	}
	p, err := checkpoint(ctx, w.Dir)
	if err != nil {
		return err
	}
	if p == nil || p.Through < first-1 {
		return fmt.Errorf("records up to %d are missing, and no record says that they were pruned", first-1)
	}
	w.at = place{seq: first - 1, segment: name}
	if p.Through == first-1 {
		w.at.hash = p.Hash
	}
	w.ledger.Restore(p.Checkpoint)
	return nil
}

func (w *Witness) segment(ctx context.Context, name string, size int64) error {
	f, err := openSegment(w.Dir, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return lines(f, w.at.end, size, func(ln line) error {
		at := w.at
		if err := at.step(ln, nil); err != nil {
			return fmt.Errorf("the line after record %d in %s does not parse or chain", w.at.seq, name)
		}
		r, err := viewRecord(ln.text)
		if err == nil {
			_ = tell(&w.ledger, r) // Verify reports a wrong record; it grants no right
			_ = delegated(&w.delegations, r)
			w.rows.tell(r)
			w.at = at
		}
		return errors.Join(err, ctx.Err())
	})
}

// tell takes a record into a ledger, and returns what is wrong with it.
func tell(l *approval.Ledger, r Record) error {
	switch r.Kind {
	case kindGenesis:
		if b := asideOf(r); b != nil {
			at, _ := when(r.At) // parseRecord took it for a time
			l.Aside(at, b.Checkpoint.Void)
		}
	case KindApprover:
		var e Enrolled
		if err := json.Unmarshal(r.Body, &e); err != nil {
			return fmt.Errorf("the record cannot be read: %w", err)
		}
		return l.Enrolled(e.Enrolment)
	case KindTrust:
		var c Configured
		if err := json.Unmarshal(r.Body, &c); err != nil {
			return fmt.Errorf("the record cannot be read: %w", err)
		}
		return l.Configured(c.Configuration)
	case KindVerdict, KindAnswer:
		var a Answered
		if err := json.Unmarshal(r.Body, &a); err != nil {
			return fmt.Errorf("the record cannot be read: %w", err)
		}
		one := a.recorded()
		switch {
		case a.Refusal != "":
		case r.Kind == KindVerdict:
			return l.Given(one)
		default:
			return l.Answered(one)
		}
	}
	return nil
}

// WithApprovers returns records with the enrolments and revocations of all approvers, each once, in the order of the log.
func WithApprovers(ctx context.Context, dir string, some []Record) ([]Record, error) {
	all := slices.Clone(some)
	_, err := Select(ctx, dir, Selection{Kind: KindApprover}, func(r Record) error {
		all = append(all, r)
		return nil
	})
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(all, func(a, b Record) bool { return a.Seq == b.Seq }), err
}

// FirstApprover returns the fingerprint of the key that a record enrols as the first approver's; empty: it does not.
func FirstApprover(r Record) string {
	var e Enrolled
	if r.Kind != KindApprover || json.Unmarshal(r.Body, &e) != nil || e.Action != "enrol" || e.By != e.Approver || e.Failed != "" {
		return ""
	}
	return e.Key
}

// Signatures holds the answers among some records of a log, in its order, against the enrolments and decisions among
// them. A finding that is no problem says what could not be checked.
func Signatures(all []Record) (found []Finding) {
	var l approval.Ledger
	v, used := &verifier{decided: map[uint64]fate{}, shown: map[uint64]uint64{}}, map[string]bool{}
	signed := map[string]string{} // when the last approver signed the answer of a decision
	for _, r := range all {
		v.next = r.Seq
		v.answers(r)
		f, err := Finding{Seq: r.Seq}, error(nil)
		var a Answered
		var no *approval.Refused
		switch {
		case r.Kind == KindApprover:
			if err = tell(&l, r); err != nil {
				f.Unchecked, f.Code = true, "approver.unproven"
				f.Text = fmt.Sprintf("record %d: %v; add the receipts of the enrolments before it", r.Seq, err)
			}
		case r.Kind == KindOutcome:
			_ = json.Unmarshal(r.Body, &a) // the decision's id
			if at := signed[a.DecisionID]; at != "" && !ordered(at, r.At) {
				v.problem("answer.time", "record %d: the call ended before its answer was signed, at %s", r.Seq, at)
			}
			continue
		case r.Kind != KindVerdict && r.Kind != KindAnswer:
			continue
		case json.Unmarshal(r.Body, &a) != nil:
			f.Problem, f.Code, f.Text = true, "record.body", fmt.Sprintf("record %d cannot be read", r.Seq)
		case a.Refusal != "" && !a.Yes: // waldo's own
		case strings.HasPrefix(a.By, "session:"):
			f.Unchecked, f.Code = true, "answer.host"
			f.Text = fmt.Sprintf("record %d: no key signs an answer through the agent's host", r.Seq)
		default:
			if err = l.Holds(a.recorded(), r.Kind == KindAnswer); err == nil {
				f.Problem, f.Code, f.Text = a.timely(r, signed)
			}
		}
		if errors.As(err, &no) && f.Code == "" {
			f.Problem, f.Code, f.Text = true, no.Reason.Code, fmt.Sprintf("record %d: %s", r.Seq, no.Reason.Text)
			if f.Code == "answer.key" {
				f.Problem, f.Unchecked = false, true
				f.Text += "; add the receipt of its enrolment: " + a.Key
			}
		}
		if r.Kind == KindAnswer && a.Yes && a.Refusal == "" {
			if used[a.ApprovalID] {
				v.problem("approval.twice", "record %d uses approval %s once more", r.Seq, approval.Escape(a.ApprovalID))
			}
			used[a.ApprovalID] = true
		}
		if f.Code != "" {
			found = append(found, f)
		}
	}
	return append(v.Findings, found...)
}

// Skew is how far the clocks of two hosts can differ where signed times are compared.
const Skew = 2 * time.Minute

// ordered reports whether two times are in this order, within Skew. What is not a time is in no order.
func ordered(first, second string) bool {
	a, err := time.Parse(time.RFC3339, first)
	b, berr := time.Parse(time.RFC3339, second)
	return err == nil && berr == nil && !a.After(b.Add(Skew))
}

// timely holds the times that approvers signed against those of the question and of the record. It adds the latest to
// those of decisions.
func (a Answered) timely(r Record, latest map[string]string) (problem bool, code, text string) {
	for _, one := range append([]approval.Said{{By: a.By, Signed: a.Signed}}, a.Also...) {
		var s struct{ At, Created, Expires string }
		if json.Unmarshal(one.Signed, &s) != nil || !ordered(s.Created, s.At) || !ordered(s.At, s.Expires) ||
			!ordered(s.At, r.At) {
			return true, "answer.time", fmt.Sprintf("record %d: %s signed at %s, which is before the question, after its end "+
				"or after the record", r.Seq, approval.Escape(one.By), approval.Escape(s.At))
		}
		if r.Kind == KindAnswer {
			latest[a.DecisionID] = max(latest[a.DecisionID], s.At)
		}
	}
	return false, "", ""
}

// Signers names who answered, and how many must agree where a yes needs more of them; empty: nobody.
func (a Answered) Signers() string {
	names := []string{a.By}
	for _, more := range a.Also {
		names = append(names, more.By)
	}
	said := strings.Join(names, " and ")
	if need := approval.NeedIn(a.Signed); a.Yes && a.Refusal == "" && len(names) < need {
		said += fmt.Sprintf(" (%d of %d who must agree)", len(names), need)
	}
	return said
}

func (a Answered) recorded() approval.Recorded {
	return approval.Recorded{
		DecisionID: a.DecisionID, ApprovalID: a.ApprovalID, ArgsDigest: a.ArgsDigest, Yes: a.Yes, By: a.By, Key: a.Key,
		Signed: a.Signed, Signature: a.Signature, Also: a.Also, At: a.At, Reason: a.Reason,
	}
}

// delegated takes a record into a ledger of delegations, and returns what is wrong with it.
func delegated(l *delegation.Ledger, r Record) error {
	if at, known := when(r.At); known {
		l.Seen(at)
	}
	switch {
	case r.Kind == KindDelegation:
		var d delegation.Record
		if err := json.Unmarshal(r.Body, &d); err != nil {
			return fmt.Errorf("the record cannot be read: %w", err)
		}
		return l.Take(r.Seq, d)
	case r.Kind == KindDecision && bytes.Contains(r.Body, []byte(`"delegation":[`)):
		var d struct {
			DecisionID string        `json:"decision_id"`
			Effect     policy.Effect `json:"effect"`
			DryRun     bool          `json:"dry_run"`
			Delegation []string      `json:"delegation"`
		}
		if err := json.Unmarshal(r.Body, &d); err != nil {
			return fmt.Errorf("the record cannot be read: %w", err)
		}
		if d.Effect != policy.Deny && !d.DryRun {
			l.Decided(d.DecisionID, d.Delegation)
		}
	}
	return nil
}

// Delegations reads and writes the records of delegations. It satisfies delegation.Log.
type Delegations struct {
	*Witness
	*Recorder
}
