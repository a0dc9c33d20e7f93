package approval

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	Need       int    `json:"need,omitempty"` // how many approvers the question needs, where it is more than one
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
	Signature string       `json:"signature"`      // base64
	Also      []signedRow  `json:"also,omitempty"` // the yeses before this one, of other approvers
}

// parts returns all answers of a row, the newest first.
func (s signedRow) parts() []signedRow { return append([]signedRow{s}, s.Also...) }

// answer returns a checked answer as the pipeline takes it.
func (s signedRow) answer(q Question, decisionID string) *Answer {
	at, _ := time.Parse(time.RFC3339, s.Answer.At) // a signed answer has a time
	a := &Answer{
		ApprovalID: q.ID, DecisionID: decisionID, ArgsDigest: q.ArgsDigest, Capability: q.Capability, Yes: s.Answer.Yes,
		By: call.Principal("approver:" + s.Answer.By), Reason: s.Answer.Reason, At: at, Key: s.Answer.Key,
		Signed: canonical(s.Answer), Signature: s.Signature,
	}
	for _, p := range s.Also {
		a.Also = append(a.Also, Said{
			By: "approver:" + p.Answer.By, Key: p.Answer.Key, Signed: canonical(p.Answer), Signature: p.Signature,
		})
	}
	return a
}

// authentic returns the answer in a row after checking that approvers signed it for this question, as many as it
// needs. A row without valid signatures becomes void.
func (k *Service) authentic(ctx context.Context, r row) (signedRow, error) {
	st, err := k.standing(ctx)
	if err != nil {
		return signedRow{}, err // the row can be sound: it is not voided
	}
	s, err := k.verified(ctx, st, r)
	if err == nil && s.Answer.Yes && len(s.parts()) < max(r.q.Need, 1) {
		err = refused("approval.forged", "approval %s needs %d approvers and bears %d signatures", r.q.ID,
			r.q.Need, len(s.parts()))
	}
	if err != nil {
		k.void(ctx, r.q.ID)
	}
	return s, err
}

// verified returns the answers in a row. Each must be signed for this question by another approver with the role.
func (k *Service) verified(ctx context.Context, st *standing, r row) (signedRow, error) {
	var s signedRow
	if json.Unmarshal([]byte(r.answer), &s) != nil {
		return s, unsignedRow(r)
	}
	names, keys := map[string]bool{}, map[string]bool{}
	for _, p := range s.parts() {
		said := p.Answer
		sig, err := base64.StdEncoding.DecodeString(p.Signature)
		if err != nil || said.ApprovalID != r.q.ID || said.Binding != r.binding || said.ArgsDigest != r.q.ArgsDigest ||
			said.Need != r.q.Need ||
			said.Shown != r.q.Digest() || said.Expires != database.Stamp(r.q.Expires) || said.Yes != s.Answer.Yes ||
			(r.state != Pending && r.state != Used && said.Yes != (r.state == Yes)) {
			return s, unsignedRow(r)
		}
		if _, err := time.Parse(time.RFC3339, said.At); err != nil {
			return s, unsignedRow(r)
		}
		by, err := k.named(ctx, st, said.By)
		if err != nil || said.Key != by.Fingerprint() || !by.signed(said.message(), sig) {
			return s, unsignedRow(r)
		}
		if names[said.By] || keys[said.Key] {
			return s, unsignedRow(r)
		}
		names[said.By], keys[said.Key] = true, true
		if !k.has(by, r.q.Role) {
			return s, refused("approval.role", "%s no longer has the role %s", by.Name, Escape(r.q.Role))
		}
		if own(by, r.q) && said.Yes {
			return s, ownCall(by)
		}
	}
	return s, nil
}

func unsignedRow(r row) *Refused {
	return refused("approval.forged", "the answer to approval %s is not signed by an approver", r.q.ID)
}

// named returns an enrolled approver.
func (k *Service) named(ctx context.Context, st *standing, name string) (a Approver, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		a, err = k.approver(tx, st, name)
		return err
	})
	return a, err
}

// own reports whether an approver is the principal whose call the question is about, by its login name.
func own(a Approver, q Question) bool {
	kind, who, _ := strings.Cut(string(q.Principal), ":")
	return (kind == "token" || kind == "oidc" || kind == "approver") && strings.EqualFold(who, a.Name)
}

func ownCall(a Approver) *Refused {
	return refused("approval.own", "%s asked for this call, and cannot approve it", a.Name)
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
		res, err := tx.Exec(`UPDATE approvals SET state = 'used', used_by = $1 WHERE id = $2 AND state = $5 AND answer = $3 `+
			`AND expires > $4`,
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

// Answer records a human's verdict on the question shown, and signs that question. It returns a *Refused for an
// unknown, answered, changed or expired question, and for an approver without the role. The first answer is final,
// except that a no withdraws an approval that was not used yet. If several approvers must say yes, one no decides.
func (k *Service) Answer(ctx context.Context, by Signer, shown Question, yes bool, reason string) error {
	d, err := k.Draft(ctx, by.Name(), shown, yes, reason)
	if err != nil {
		return err
	}
	sig, err := by.Sign(d.Message())
	if err != nil {
		return fmt.Errorf("approval: signing: %w", err)
	}
	return k.Settle(ctx, d, sig)
}

// Draft is an answer that waits for its signature.
type Draft struct {
	shown Question
	said  signedAnswer
}

// Message returns the bytes to sign. It binds the verdict to all that the question holds: the decision, the
// arguments, the contract, the expiry and every line shown.
func (d Draft) Message() []byte { return d.said.message() }

// Draft prepares an approver's verdict on the question shown.
func (k *Service) Draft(ctx context.Context, name string, shown Question, yes bool, reason string) (Draft, error) {
	r, err := k.load(ctx, shown.ID)
	if err != nil {
		return Draft{}, err
	}
	if err := k.answerable(r, shown, yes); err != nil {
		return Draft{}, err
	}
	if len(reason) > 2048 {
		return Draft{}, refused("approval.reason", "a reason has at most 2048 bytes")
	}
	st, err := k.standing(ctx)
	if err != nil {
		return Draft{}, err
	}
	a, err := k.named(ctx, st, name)
	if err != nil {
		return Draft{}, refused("approval.not_enrolled", "%s is not enrolled", Escape(name))
	}
	return Draft{shown, signedAnswer{
		ApprovalID: shown.ID, Binding: shown.Binding(), ArgsDigest: shown.ArgsDigest, Shown: shown.Digest(), Yes: yes,
		Need: shown.Need, By: a.Name, Key: a.Fingerprint(), Reason: reason, At: database.Stamp(k.now()),
		Expires: database.Stamp(shown.Expires),
	}}, nil
}

// Settle takes a drafted answer with its signature. It reads the database row only to refuse if it differs from the
// question that was shown.
func (k *Service) Settle(ctx context.Context, d Draft, sig []byte) error {
	shown, said := d.shown, d.said
	r, err := k.load(ctx, shown.ID)
	if err != nil {
		return err
	}
	if err := k.answerable(r, shown, said.Yes); err != nil {
		return err
	}
	st, err := k.standing(ctx)
	if err != nil {
		return err
	}
	a, err := k.named(ctx, st, said.By)
	if err != nil || said.Key != a.Fingerprint() || !a.signed(said.message(), sig) {
		return refused("approval.not_enrolled", "%s is not enrolled with this key", Escape(said.By))
	}
	if !k.has(a, shown.Role) {
		return refused("approval.role", "%s does not have the role %s", a.Name, Escape(shown.Role))
	}
	if said.Yes && own(a, shown) {
		return ownCall(a)
	}
	s := signedRow{Answer: said, Signature: base64.StdEncoding.EncodeToString(sig)}
	var unrecorded error
	if r.state == Yes && k.TakeBack != nil { // on record first: a row alone can be set back
		unrecorded = k.TakeBack(ctx, shown, *s.answer(shown, shown.DecisionID))
	}
	if unrecorded != nil {
		unrecorded = fmt.Errorf("approval: the yes was taken back, but that is not on record: %w", unrecorded)
	}
	return errors.Join(k.keep(ctx, st, shown, s), unrecorded)
}

// answerable refuses an answer to a question that is not open, or is not the one that was shown.
func (k *Service) answerable(r row, shown Question, yes bool) error {
	switch {
	case r.q.Digest() != shown.Digest() || shown.Digest() == "":
		return refused("approval.changed",
			"approval %s is not the question that was shown; nothing was signed or taken", shown.ID)
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

// keep writes a signed answer into the row of the question that it is for. A yes that still lacks others leaves the
// question open.
func (k *Service) keep(ctx context.Context, st *standing, shown Question, s signedRow) error {
	return k.Store.Update(ctx, func(tx *sql.Tx) error {
		r, err := load(tx, shown.ID)
		if err != nil {
			return err
		}
		if err := k.answerable(r, shown, s.Answer.Yes); err != nil {
			return err
		}
		if s.Answer.Yes && shown.Need > 1 && r.answer != "" {
			if s.Also, err = k.earlier(tx, st, r, s); err != nil {
				return err
			}
		}
		state := No
		switch {
		case s.Answer.Yes && len(s.parts()) < shown.Need:
			state = Pending
		case s.Answer.Yes:
			state = Yes
		}
		b, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("approval: %w", err)
		}
		_, err = tx.Exec(`UPDATE approvals SET state = $1, answer = $2 WHERE id = $3`, string(state), string(b), shown.ID)
		return err
	})
}

// earlier returns the yeses that a question has already. It drops one that no approver signed, and refuses a second
// yes of one approver.
func (k *Service) earlier(tx *sql.Tx, st *standing, r row, s signedRow) ([]signedRow, error) {
	var before signedRow
	if json.Unmarshal([]byte(r.answer), &before) != nil {
		return nil, nil
	}
	var out []signedRow
	for _, p := range before.parts() {
		sig, err := base64.StdEncoding.DecodeString(p.Signature)
		by, aerr := k.approver(tx, st, p.Answer.By)
		if err != nil || aerr != nil || !p.Answer.Yes || p.Answer.Shown != s.Answer.Shown ||
			p.Answer.Key != by.Fingerprint() || !by.signed(p.Answer.message(), sig) {
			continue
		}
		if p.Answer.By == s.Answer.By || p.Answer.Key == s.Answer.Key {
			return nil, refused("approval.same", "%s has said yes to approval %s; another approver must", s.Answer.By, r.q.ID)
		}
		p.Also = nil
		out = append(out, p)
	}
	return out, nil
}

// Given returns the names of the approvers who have said yes to an open question that needs several.
func (k *Service) Given(ctx context.Context, approvalID string) ([]string, error) {
	r, err := k.load(ctx, approvalID)
	if err != nil || r.answer == "" {
		return nil, err
	}
	st, err := k.standing(ctx)
	if err != nil {
		return nil, err
	}
	s, err := k.verified(ctx, st, r)
	if err != nil || !s.Answer.Yes {
		return nil, nil //nolint:nilerr // an answer that no approver signed is none
	}
	var names []string
	for _, p := range s.parts() {
		names = append(names, p.Answer.By)
	}
	return names, nil
}

// LastApproved returns the last approved call of a question's capability before it, by the same principal and under the
// same file of contracts. Only answers that approvers signed count, so that a row written from outside cannot hide a
// change. It returns nil without one.
func (k *Service) LastApproved(ctx context.Context, q Question) (*Before, error) {
	st, err := k.standing(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		ids, err := texts(tx, `SELECT id FROM approvals WHERE state IN ('used', 'yes') AND created < $1 ORDER BY created `+
			`DESC, id DESC LIMIT 200`, database.Stamp(q.Created))
		if err != nil {
			return err
		}
		for _, one := range ids {
			if r, err := load(tx, one); err == nil && r.state != Void && r.q.comparable(q) {
				rows = append(rows, r)
			}
		}
		return nil
	})
	for _, r := range rows {
		if s, verr := k.verified(ctx, st, r); verr == nil && s.Answer.Yes && r.q.ID != q.ID {
			b := &Before{ID: r.q.ID, At: s.Answer.At, Args: r.q.Args}
			for _, p := range s.parts() {
				b.By = append(b.By, p.Answer.By)
			}
			return b, err
		}
	}
	return nil, err
}
