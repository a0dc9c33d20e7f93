package approval

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/storage/database"
)

// signedAnswer is a human's verdict as signed and stored.
type signedAnswer struct {
	ApprovalID string `json:"approval_id"`
	Binding    string `json:"binding"`
	ArgsDigest string `json:"args_digest"`
	Shown      string `json:"shown"` // digest of all that the human was shown
	Yes        bool   `json:"yes"`
	By         string `json:"by"`
	Key        string `json:"key"` // fingerprint
	Reason     string `json:"reason"`
	At         string `json:"at"`
	Expires    string `json:"expires"`
}

func (a signedAnswer) message() []byte { return append([]byte(forAnswer), canonical(a)...) }

// signedRow is a stored answer with its signature.
type signedRow struct {
	Answer    signedAnswer `json:"answer"`
	Signature string       `json:"signature"` // base64
}

// answer returns a checked answer as the pipeline takes it.
func (s signedRow) answer(q Question, decisionID string) *Answer {
	at, _ := time.Parse(time.RFC3339, s.Answer.At) // a signed answer has a time
	return &Answer{ApprovalID: q.ID, DecisionID: decisionID, ArgsDigest: q.ArgsDigest, Capability: q.Capability, Yes: s.Answer.Yes,
		By: call.Principal("approver:" + s.Answer.By), Reason: s.Answer.Reason, At: at,
		Key: s.Answer.Key, Signed: canonical(s.Answer), Signature: s.Signature}
}

// authentic returns the answer in a row after checking that an approver signed it for this question. A row without a
// valid signature becomes void.
func (k *Service) authentic(ctx context.Context, r row) (signedRow, error) {
	var s signedRow
	forged := json.Unmarshal([]byte(r.answer), &s) != nil
	said := s.Answer
	sig, err := base64.StdEncoding.DecodeString(s.Signature)
	forged = forged || err != nil || said.ApprovalID != r.q.ID || said.Binding != r.binding || said.ArgsDigest != r.q.ArgsDigest ||
		said.Shown != r.q.Digest() || said.Expires != database.Stamp(r.q.Expires) || said.Yes != (r.state == Yes)
	if _, err := time.Parse(time.RFC3339, said.At); err != nil {
		forged = true
	}
	st, err := k.standing(ctx)
	if err != nil {
		return signedRow{}, err // the row may be sound: it is not voided
	}
	var by Approver
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		by, err = k.approver(tx, st, said.By)
		return err
	})
	if forged || err != nil || said.Key != by.Fingerprint() || !by.signed(said.message(), sig) {
		k.void(ctx, r.q.ID)
		return signedRow{}, refused("approval.forged", "the answer to approval %s is not signed by an approver", r.q.ID)
	}
	if !k.has(by, r.q.Role) {
		k.void(ctx, r.q.ID)
		return signedRow{}, refused("approval.role", "%s no longer has the role %s", by.Name, Escape(r.q.Role))
	}
	return s, nil
}

func (k *Service) void(ctx context.Context, approvalID string) {
	_ = k.Store.Update(ctx, func(tx *sql.Tx) error { // it is refused now in any case
		_, err := tx.Exec(`UPDATE approvals SET state = 'void' WHERE id = $1`, approvalID)
		return err
	})
}

// consume spends an approval that was given at a time. If several callers or processes try, exactly one wins.
func (k *Service) consume(ctx context.Context, d policy.Decision, r row, at time.Time) (won bool, err error) {
	if err := k.unspent(ctx, r, at); err != nil {
		return false, err
	}
	err = k.Store.Update(ctx, func(tx *sql.Tx) error {
		res, err := tx.Exec(`UPDATE approvals SET state = 'used', used_by = $1 WHERE id = $2 AND state = $5 AND answer = $3 AND expires > $4`,
			d.ID, r.q.ID, r.answer, database.Stamp(k.now()), string(r.state))
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		won = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("approval: %w", err)
	}
	if won {
		k.remember(r)
	}
	return won, nil
}

// unspent refuses a yes that this process or the log knows to be used or taken back, and one of
// which the log cannot tell.
func (k *Service) unspent(ctx context.Context, r row, at time.Time) error {
	k.mu.Lock()
	_, spent := k.spent[r.q.ID]
	k.mu.Unlock()
	if spent {
		k.void(ctx, r.q.ID)
		return refused("approval.used", "approval %s was used before, by this process", r.q.ID)
	}
	if k.Witness == nil {
		return nil
	}
	var used, back, lost bool
	var whole error
	err := k.Witness.Look(ctx, func(l *Ledger) {
		whole = l.Whole(k.pins())
		_, used = l.used[r.q.ID]
		back, lost = l.back[r.q.ID], !l.Since.IsZero() && !at.After(l.Since)
	})
	switch err = errors.Join(err, whole); {
	case err != nil:
		return unproven("that approval "+r.q.ID+" is unused", err)
	case used:
		k.void(ctx, r.q.ID)
		return refused("approval.used", "approval %s was used before, says the log", r.q.ID)
	case back:
		k.void(ctx, r.q.ID)
		return refused("approval.withdrawn", "the yes to approval %s was taken back, says the log", r.q.ID)
	case lost:
		k.void(ctx, r.q.ID)
		return refused("approval.unproven", "the log was set aside or pruned after the yes to approval %s; ask again", r.q.ID)
	}
	return nil
}

// remember records an approval that this process has used, until it expires.
func (k *Service) remember(r row) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spent == nil {
		k.spent = map[string]time.Time{}
	}
	for approvalID, end := range k.spent {
		if !k.now().Before(end) {
			delete(k.spent, approvalID)
		}
	}
	k.spent[r.q.ID] = r.q.Expires
}

// Answer records a human's verdict on the question shown, and signs that question. It reads the database row only to
// refuse if the two differ. It returns a *Refused for an unknown, answered, changed or expired question, and for an
// approver without the role. The first answer is final, except that a no withdraws an approval that was not used yet.
func (k *Service) Answer(ctx context.Context, by Signer, shown Question, yes bool, reason string) error {
	r, err := k.load(ctx, shown.ID)
	if err != nil {
		return err
	}
	if err := k.answerable(r, shown, yes); err != nil {
		return err
	}
	if len(reason) > 2048 {
		return refused("approval.reason", "a reason has at most 2048 bytes")
	}
	st, err := k.standing(ctx)
	if err != nil {
		return err
	}
	var a Approver
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		a, err = k.approver(tx, st, by.Name())
		return err
	})
	if err != nil {
		return refused("approval.not_enrolled", "%s is not enrolled", Escape(by.Name()))
	}
	said := signedAnswer{ApprovalID: shown.ID, Binding: shown.Binding(), ArgsDigest: shown.ArgsDigest, Shown: shown.Digest(), Yes: yes,
		By: a.Name, Key: a.Fingerprint(), Reason: reason, At: database.Stamp(k.now()), Expires: database.Stamp(shown.Expires)}
	sig, err := by.Sign(said.message())
	if err != nil {
		return fmt.Errorf("approval: signing: %w", err)
	}
	if !a.signed(said.message(), sig) {
		return refused("approval.not_enrolled", "%s is not enrolled with this key", Escape(by.Name()))
	}
	if !k.has(a, shown.Role) {
		return refused("approval.role", "%s does not have the role %s", a.Name, Escape(shown.Role))
	}
	s := signedRow{said, base64.StdEncoding.EncodeToString(sig)}
	var unrecorded error
	if r.state == Yes && k.TakeBack != nil { // on record first: a row alone can be set back
		unrecorded = k.TakeBack(ctx, shown, *s.answer(shown, shown.DecisionID))
	}
	if unrecorded != nil {
		unrecorded = fmt.Errorf("approval: the yes was taken back, but that is not on record: %w", unrecorded)
	}
	return errors.Join(k.keep(ctx, shown, s), unrecorded)
}

// answerable refuses an answer to a question that is not open, or is not the one that was shown.
func (k *Service) answerable(r row, shown Question, yes bool) error {
	switch {
	case r.q.Digest() != shown.Digest() || shown.Digest() == "":
		return refused("approval.changed", "approval %s is not the question that was shown; nothing was signed or taken", shown.ID)
	case r.state == Void:
		return refused("approval.forged", "approval %s was changed from outside", shown.ID)
	case r.state == Used:
		return refused("approval.used", "approval %s was used before", shown.ID)
	case r.state != Pending && (r.state != Yes || yes):
		return refused("approval.answered", "approval %s was answered before", shown.ID)
	case !k.now().Before(r.q.Expires):
		return refused("approval.expired", "approval %s expired at %s", shown.ID, database.Stamp(r.q.Expires))
	case k.gone(shown):
		return refused("approval.gone", "the session that asked %s has ended, so no call can use an answer", shown.ID)
	}
	return nil
}

// keep writes a signed answer into the row of the question that it is for.
func (k *Service) keep(ctx context.Context, shown Question, s signedRow) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("approval: %w", err)
	}
	state := No
	if s.Answer.Yes {
		state = Yes
	}
	return k.Store.Update(ctx, func(tx *sql.Tx) error {
		r, err := load(tx, shown.ID)
		if err != nil {
			return err
		}
		if err := k.answerable(r, shown, s.Answer.Yes); err != nil {
			return err
		}
		_, err = tx.Exec(`UPDATE approvals SET state = $1, answer = $2 WHERE id = $3`, string(state), string(b), shown.ID)
		return err
	})
}
