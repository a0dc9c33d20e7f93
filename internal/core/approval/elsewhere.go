package approval

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
)

// Elsewhere is a question of another waldo that an A2A peer passed on. An approver who is enrolled there can sign an
// answer here. Only the waldo that asks decides what the answer is worth.
type Elsewhere struct {
	Root     string     `json:"root"` // fingerprint of the first approver of the waldo that asks
	Question Question   `json:"question"`
	Peer     string     `json:"peer,omitempty"`    // who passed it on
	Answer   *Statement `json:"answer,omitempty"`  // given here; nil: none
	Sent     bool       `json:"sent,omitempty"`    // the peer has the answer
	Refused  string     `json:"refused,omitempty"` // why the last answer was not taken
}

// Statement is a signed answer on its way to the waldo that asked.
type Statement struct {
	Signed    signedAnswer `json:"signed"`
	Signature string       `json:"signature"` // base64
}

// Bounds of questions of other waldos.
const (
	bucket       = "elsewhere"
	maxElsewhere = 100
	maxPassed    = 256 << 10 // bytes of one
)

// travels reports whether the operator lets questions and answers travel over A2A.
func (k *Service) travels() bool { return slices.Contains(k.rules().Carriers, contract.OverA2A) }

// Share returns a question of this waldo as it travels to its caller. Notes and causes are hidden from callers, so a
// question that has some does not travel.
func (k *Service) Share(ctx context.Context, q Question) (e Elsewhere, ok bool) {
	hidden := func(r call.Reason) bool { return r.Cause != "" }
	if !k.travels() || len(q.Notes) > 0 || slices.ContainsFunc(q.Reasons, hidden) {
		return e, false
	}
	st, err := k.standing(ctx)
	if err != nil || st.noRoot != nil {
		return e, false
	}
	return Elsewhere{Root: st.root.Fingerprint(), Question: q}, true
}

// Deliver takes an answer that was signed elsewhere to an open question of this waldo. It counts as one that was given
// here: the signer is enrolled here, and signed this question for this waldo.
func (k *Service) Deliver(ctx context.Context, approvalID string, answer json.RawMessage) error {
	s, err := statement(approvalID, answer)
	if err != nil {
		return err
	}
	q, _, err := k.Question(ctx, approvalID)
	if err != nil {
		return err
	}
	e, ok := k.Share(ctx, q)
	if !ok {
		return refused("approval.carrier", "the operator takes no answer to approval %s over A2A", approvalID)
	}
	d, err := k.Draft(ctx, s.Signed.By, q, s.Signed.Yes, s.Signed.Reason, s.Signed.Struck...)
	if err != nil {
		return err
	}
	d.said.Root, d.said.At = e.Root, s.Signed.At
	at, err := time.Parse(time.RFC3339, s.Signed.At)
	switch {
	case d.said.Key != s.Signed.Key:
		return refused("approval.not_enrolled", "%s is enrolled with another key than the one that signed",
			Escape(d.said.By))
	case string(canonical(d.said)) != string(canonical(s.Signed)):
		return refused("approval.changed", "the answer was signed for another waldo, or is not about approval %s as it is now",
			approvalID)
	case err != nil || database.Stamp(at) != d.said.At || d.said.At < d.said.Created || at.After(k.now().Add(maxSkew)):
		return refused("approval.clock", "the answer was not signed while approval %s waited: compare the clocks of both "+
			"machines", approvalID)
	}
	return k.Settle(ctx, d, signature(s.Signature))
}

func statement(approvalID string, answer json.RawMessage) (s Statement, err error) {
	if json.Unmarshal(answer, &s) != nil || s.Signed.ApprovalID != approvalID {
		return s, refused("approval.mismatch", "the statement is not an answer to approval %s", Escape(approvalID))
	}
	return s, nil
}

// Pass stores a question that a peer passed on, and returns the answer that was not sent yet. It returns false for one
// that is not shown here: it is malformed, over, or of this waldo itself, or the operator does not want any.
func (k *Service) Pass(ctx context.Context, peer string, question json.RawMessage) (answer json.RawMessage, ok bool) {
	var e Elsewhere
	if !k.travels() || len(question) > maxPassed || json.Unmarshal(question, &e) != nil {
		return nil, false
	}
	e.Peer, e.Answer, e.Sent, e.Refused = peer, nil, false, ""
	q := e.Question
	if !id.Is(id.Approval, q.ID) || !q.genuine(q.Binding()) || !k.now().Before(q.Expires) || k.ours(ctx, e) {
		return nil, false
	}
	if was, err := k.Elsewhere(ctx, q.ID); err == nil {
		if was.Peer != peer || was.Root != e.Root || was.Question.Digest() != q.Digest() {
			return nil, false
		}
		if was.Answer != nil && !was.Sent {
			answer = canonical(was.Answer)
		}
		return answer, true
	}
	if all, err := k.AllElsewhere(ctx); err != nil || len(all) >= maxElsewhere {
		return nil, false
	}
	return nil, k.Store.Put(ctx, bucket, q.ID, string(canonical(e))) == nil
}

// ours reports whether a question is one of this waldo. A peer that passes one on wants a signature under it.
func (k *Service) ours(ctx context.Context, e Elsewhere) bool {
	if _, err := k.load(ctx, e.Question.ID); err == nil {
		return true
	}
	st, err := k.standing(ctx)
	return err != nil || st.noRoot == nil && st.root.Fingerprint() == e.Root
}

// Elsewhere returns a question of another waldo.
func (k *Service) Elsewhere(ctx context.Context, approvalID string) (e Elsewhere, err error) {
	text, ok, err := k.Store.Get(ctx, bucket, approvalID)
	if err == nil && ok {
		err = json.Unmarshal([]byte(text), &e)
	}
	if err == nil && (!ok || e.Question.ID != approvalID || !k.now().Before(e.Question.Expires)) {
		err = refused("approval.unknown", "unknown approval %s", Escape(approvalID))
	}
	return e, err
}

// AllElsewhere returns the questions of other waldos, the oldest first. Those whose time is over are removed.
func (k *Service) AllElsewhere(ctx context.Context) (out []Elsewhere, err error) {
	all, err := k.Store.List(ctx, bucket)
	for name := range all {
		e, eerr := k.Elsewhere(ctx, name)
		if no := (*Refused)(nil); errors.As(eerr, &no) {
			eerr = k.Store.Delete(ctx, bucket, name)
		} else if eerr == nil {
			out = append(out, e)
		}
		err = errors.Join(err, eerr)
	}
	slices.SortFunc(out, func(a, b Elsewhere) int { return a.Question.Created.Compare(b.Question.Created) })
	return out, err
}

// amend changes a question of another waldo that is stored here.
func (k *Service) amend(ctx context.Context, approvalID string, change func(e *Elsewhere)) error {
	return k.Store.Modify(ctx, bucket, approvalID, func(old string, had bool) (string, bool, error) {
		var e Elsewhere
		if !had || json.Unmarshal([]byte(old), &e) != nil {
			return "", false, refused("approval.unknown", "approval %s waits no longer", Escape(approvalID))
		}
		change(&e)
		return string(canonical(e)), true, nil
	})
}

// SignElsewhere signs an answer to a question of another waldo, which the person was shown, and stores it for the call
// that waits.
func (k *Service) SignElsewhere(ctx context.Context, by Signer, shown Elsewhere, yes bool, reason string) error {
	d, err := k.DraftElsewhere(ctx, by.Name(), shown, yes, reason)
	if err != nil {
		return err
	}
	sig, err := by.Sign(d.Message())
	if err != nil {
		return fmt.Errorf("approval: signing: %w", err)
	}
	return k.SettleElsewhere(ctx, d, sig)
}

// DraftElsewhere prepares an approver's answer to a question of another waldo, for SettleElsewhere.
func (k *Service) DraftElsewhere(
	ctx context.Context, name string, shown Elsewhere, yes bool, reason string,
) (d Draft, err error) {
	st, err := k.standing(ctx)
	if err != nil {
		return d, err
	}
	a, err := k.named(ctx, st, name)
	if err != nil {
		return d, err
	}
	q, root := shown.Question, ""
	if yes {
		var no *Refused
		if root, no = q.remain(nil); no != nil {
			return d, no
		}
	}
	return Draft{q, signedAnswer{ApprovalID: q.ID, Binding: q.Binding(), ArgsDigest: q.ArgsDigest, Shown: q.Digest(),
		Yes: yes, Need: q.Need, By: a.Name, Key: a.Fingerprint(), Reason: reason, Calls: root, At: database.Stamp(k.now()),
		Created: database.Stamp(q.Created), Expires: database.Stamp(q.Expires), Root: shown.Root}}, nil
}

// SettleElsewhere stores an answer with its signature for the call that waits.
func (k *Service) SettleElsewhere(ctx context.Context, d Draft, sig []byte) error {
	return k.PassDown(ctx, d.said.ApprovalID, canonical(Statement{d.said, base64.StdEncoding.EncodeToString(sig)}))
}

// PassDown stores a signed answer to a question of another waldo, for the call that waits.
func (k *Service) PassDown(ctx context.Context, approvalID string, answer json.RawMessage) error {
	s, err := statement(approvalID, answer)
	if err != nil {
		return err
	}
	e, err := k.Elsewhere(ctx, approvalID)
	if err == nil && k.Records != nil {
		err = k.Records.Passed(ctx, e, s.Signed.By, s.Signed.Yes)
	}
	if err != nil {
		return err
	}
	return k.amend(ctx, approvalID, func(e *Elsewhere) { e.Answer, e.Sent, e.Refused = &s, false, "" })
}

// Sent notes that the peer has an answer, or why the answer was refused.
func (k *Service) Sent(ctx context.Context, approvalID, why string) error {
	return k.amend(ctx, approvalID, func(e *Elsewhere) {
		if e.Sent, e.Refused = why == "", why; why != "" {
			e.Answer = nil
		}
	})
}

// Over removes a question of another waldo that waits no longer.
func (k *Service) Over(ctx context.Context, approvalID string) error {
	return k.Store.Delete(ctx, bucket, approvalID)
}
