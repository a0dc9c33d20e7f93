package approval

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/policy"
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
	Calls      string `json:"calls,omitempty"`  // of a yes to held calls: the root of those that remain
	Struck     []int  `json:"struck,omitempty"` // the numbers of those that were struck out
	At         string `json:"at"`
	Created    string `json:"created"`
	Expires    string `json:"expires"`
	Root       string `json:"root,omitempty"` // of an answer that was signed elsewhere: the first approver of the waldo that asked
}

func (a signedAnswer) message() []byte { return append([]byte(forAnswer), canonical(a)...) }

// named returns an enrolled approver.
func (k *Service) named(ctx context.Context, st *standing, name string) (a Approver, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		a, err = k.approver(tx, st, name)
		return err
	})
	return a, err
}

// own reports whether an approver is the principal whose call the question is about: by its login name, or by the
// principals that approval.people gives the approver.
func (k *Service) own(a Approver, q Question) bool {
	same := func(p string) bool {
		return strings.EqualFold(p, string(q.Principal)) || strings.EqualFold(p, string(q.Principal.Local()))
	}
	kind, who, _ := strings.Cut(string(q.Principal.Local()), ":")
	return (kind == "token" || kind == "oidc" || kind == "approver") && strings.EqualFold(who, a.Name) ||
		slices.ContainsFunc(k.rules().People[a.Name], same)
}

func ownCall(a Approver) *Refused {
	return refused("approval.own", "%s asked for this call, and cannot approve it", a.Name)
}

func (k *Service) void(ctx context.Context, approvalID string) {
	_ = k.Store.Update(ctx, func(tx *sql.Tx) error { // it is refused now in any case
		_, err := tx.Exec(`UPDATE approvals SET state = 'void' WHERE id = $1 AND state <> 'used'`, approvalID)
		return err
	})
}

// consume spends an approval. If several callers or processes try, exactly one wins; the order of the log decides
// where a row was changed from outside meanwhile.
func (k *Service) consume(ctx context.Context, d policy.Decision, r row) (won bool, err error) {
	k.mu.Lock()
	use, spent := k.spent[r.q.ID]
	k.mu.Unlock()
	if spent {
		k.void(ctx, r.q.ID)
		return false, refused("approval.used", "approval %s was used before: decision %s of this process used its yes", r.q.ID,
			use.by)
	}
	name, err := k.begun(ctx, d)
	if err != nil {
		return false, err
	}
	by := used(d.ID, k.now(), name)
	err = k.Store.Update(ctx, func(tx *sql.Tx) error {
		res, err := tx.Exec(`UPDATE approvals SET state = 'used', used_by = $1 WHERE id = $2 AND state = $3`, by, r.q.ID,
			string(r.state))
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if won = n == 1; won && name != "" { // nobody is asked any more about a call with the key of this one
			_, err = tx.Exec(`UPDATE approvals SET state = 'withdrawn', used_by = $1 WHERE state = 'pending' AND
				`+keyOf+` = $2 AND place = $3`, by, name, k.place())
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("approval: %w", err)
	}
	if won {
		k.remember(r, d.ID)
	}
	return won, nil
}

// remember records an approval that this process has used, until it expires.
func (k *Service) remember(r row, decision string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spent == nil {
		k.spent = map[string]use{}
	}
	for approvalID, u := range k.spent {
		if !k.now().Before(u.end) {
			delete(k.spent, approvalID)
		}
	}
	k.spent[r.q.ID] = use{decision, r.q.Expires}
}

// use is the use of an approval by this process.
type use struct {
	by  string    // the decision
	end time.Time // when the approval expires
}

// Answer records a human's verdict on the question shown, and signs that question. It returns a *Refused for an
// unknown, answered, changed or expired question, and for an approver without the role. The first answer is final,
// except that a no withdraws an approval that was not used yet. If several approvers must say yes, one no decides. A
// yes to held calls can strike some of them out, by their numbers from 1 in order.
func (k *Service) Answer(ctx context.Context, by Signer, shown Question, yes bool, reason string, struck ...int) error {
	d, err := k.Draft(ctx, by.Name(), shown, yes, reason, struck...)
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
func (k *Service) Draft(
	ctx context.Context, name string, shown Question, yes bool, reason string, struck ...int,
) (Draft, error) {
	e, err := k.answerable(ctx, shown, yes)
	if err != nil {
		return Draft{}, err
	}
	root := ""
	if yes || len(struck) > 0 {
		var no *Refused
		if root, no = shown.remain(struck); no != nil {
			return Draft{}, no
		}
	}
	switch {
	case !yes && len(struck) > 0:
		return Draft{}, refused("approval.struck", "a no is for all calls: no row can be struck out")
	case yes && len(e.yes) > 0 && !slices.Equal(e.struck(), struck):
		return Draft{}, otherRows(e)
	}
	if len(reason) > 2048 {
		return Draft{}, refused("approval.reason", "a reason has at most 2048 bytes")
	}
	a, err := k.named(ctx, e.standing, name)
	if err != nil {
		return Draft{}, refused("approval.not_enrolled", "%s is not enrolled", Escape(name))
	}
	return Draft{shown, signedAnswer{
		ApprovalID: shown.ID, Binding: shown.Binding(), ArgsDigest: shown.ArgsDigest, Shown: shown.Digest(), Yes: yes,
		Need: shown.Need, By: a.Name, Key: a.Fingerprint(), Reason: reason, Calls: root, Struck: struck, At: database.Stamp(k.now()),
		Created: database.Stamp(shown.Created), Expires: database.Stamp(shown.Expires),
	}}, nil
}

// Settle takes a drafted answer with its signature, and records it in the log. The row only follows: an answer that
// cannot be recorded is none, except that a no also ends the row.
func (k *Service) Settle(ctx context.Context, d Draft, sig []byte) error {
	k.settling.Lock()
	defer k.settling.Unlock()
	shown, said := d.shown, d.said
	e, err := k.answerable(ctx, shown, said.Yes)
	if err != nil {
		return err
	}
	a, err := k.named(ctx, e.standing, said.By)
	if err != nil || said.Key != a.Fingerprint() || !a.signed(said.message(), sig) {
		return refused("approval.not_enrolled", "%s is not enrolled with this key", Escape(said.By))
	}
	same := func(v verdict) bool { return v.said.By == said.By || v.said.Key == said.Key }
	switch {
	case !k.has(a, shown.Role):
		return refused("approval.role", "%s does not have the role %s", a.Name, Escape(shown.Role))
	case said.Yes && k.own(a, shown):
		return ownCall(a)
	case said.Yes && slices.ContainsFunc(e.yes, same):
		return refused("approval.same", "%s has said yes to approval %s; another approver must", said.By, shown.ID)
	case said.Yes && len(e.yes) > 0 && !slices.Equal(e.struck(), said.Struck):
		return otherRows(e)
	}
	v := verdict{said, base64.StdEncoding.EncodeToString(sig)}
	if err := k.recorded(ctx, *v.answer(shown, shown.DecisionID, nil)); err != nil {
		if said.Yes {
			return err
		}
		return errors.Join(k.keep(ctx, shown.ID, No, said), err)
	}
	if e, err = k.evidence(ctx, shown.ID); err != nil {
		return err
	}
	return k.keep(ctx, shown.ID, k.state(e, row{q: shown}), said)
}

// recorded writes an answer to the log.
func (k *Service) recorded(ctx context.Context, a Answer) error {
	if k.Records == nil {
		return errors.New("approval: no log is open, so no answer can be taken")
	}
	if err := k.Records.Verdict(ctx, a); err != nil {
		return fmt.Errorf("approval: the answer is not on record: %w", err)
	}
	return nil
}

// answerable refuses an answer to a question that is not open, or is not the one that was shown. The log decides
// whether it is open. A no needs no sound row: it ends the question for good. It returns what the log records.
func (k *Service) answerable(ctx context.Context, shown Question, yes bool) (evidence, error) {
	r, e, err := k.known(ctx, shown.ID)
	if err != nil {
		return e, err
	}
	state := k.state(e, r)
	changed := r.q.Digest() != shown.Digest() || shown.Digest() == ""
	switch {
	case state == Used:
		return e, refused("approval.used", "approval %s was used before", shown.ID)
	case state == Withdrawn:
		return e, withdrawn(shown.ID)
	case state == No, state == Declined, state == Yes && yes:
		return e, refused("approval.answered", "approval %s was answered before", shown.ID)
	case !yes && (state == Void || changed):
		return e, nil
	case changed:
		return e, refused("approval.changed",
			"approval %s is not the question that was shown; nothing was signed or taken", shown.ID)
	case state == Void, state == Pending && r.state != Pending && r.state != Used,
		r.q.Created.After(k.now().Add(maxSkew)):
		return e, refused("approval.forged", "approval %s was changed from outside", shown.ID)
	case state == Pending && r.state == Used:
		return e, refused("approval.used", "approval %s was used before", shown.ID)
	case !k.now().Before(r.q.Expires):
		return e, refused("approval.expired", "approval %s expired at %s", shown.ID, database.Stamp(r.q.Expires))
	case state == Pending && k.gone(shown):
		return e, refused("approval.gone", "the session that asked %s has ended, so no call can use an answer", shown.ID)
	}
	return e, nil
}

// maxSkew is how far in the future a question can have been asked, by clocks that differ.
const maxSkew = time.Minute

// keep writes the state by the log, and the answer, into the row of a question. The row is for lists; nothing is
// decided by it.
func (k *Service) keep(ctx context.Context, approvalID string, state State, said signedAnswer) error {
	word := said.By + ":no "
	if said.Yes {
		word = said.By + ":yes "
	}
	return k.Store.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE approvals SET state = $1, answer = answer || $2 WHERE id = $3 AND state NOT IN ('used', 'void')`,
			string(state), word, approvalID)
		return err
	})
}

// otherRows refuses a yes to other rows than those of the yes before it.
func otherRows(e evidence) *Refused {
	return refused("approval.struck", "%s struck out %s: strike out the same, or answer no", e.yes[0].said.By,
		NameRows(e.struck()))
}

// Given returns the names of the approvers who have said yes to an open question, and the rows that they struck out.
func (k *Service) Given(ctx context.Context, approvalID string) (names []string, struck []int, err error) {
	e, err := k.evidence(ctx, approvalID)
	if err != nil || e.no != nil || e.declined {
		return nil, nil, err
	}
	return e.said(), e.struck(), nil
}

// said returns who said yes.
func (q asked) said() (names []string) {
	for _, v := range q.yes {
		names = append(names, v.said.By)
	}
	return names
}

// LastApproved returns the last approved call of a question's capability before it, by the same principal and under the
// same file of contracts. Only answers that the log has count, so that a row written from outside cannot hide a change.
// It returns nil without one.
func (k *Service) LastApproved(ctx context.Context, q Question) (found *Before, err error) {
	if q.Calls() != nil {
		return nil, nil // the lists of two programs are not compared
	}
	var rows []row
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		ids, err := texts(tx, `SELECT id FROM approvals WHERE state IN ('used', 'yes') AND created < $1 AND place = $2 `+
			`ORDER BY created DESC, id DESC LIMIT 200`, database.Stamp(q.Created), k.place())
		if err != nil {
			return err
		}
		for _, one := range ids {
			if r, err := k.asked(tx, one); err == nil && r.state != Void && r.q.ID != q.ID && r.q.comparable(q) {
				rows = append(rows, r)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = k.look(ctx, func(l *Ledger) error {
		for _, r := range rows {
			e := k.evidenceOf(l, r.q.ID)
			shown := func(v verdict) bool { return v.said.Shown == r.q.Digest() }
			if s := k.state(e, r); (s != Used && s != Yes) || len(e.yes) == 0 || !shown(e.yes[0]) {
				continue
			}
			found = &Before{ID: r.q.ID, At: e.yes[len(e.yes)-1].said.At, By: e.said(), shown: r.q}
			return nil
		}
		return nil
	})
	return found, err
}
