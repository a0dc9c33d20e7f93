package approval

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/storage/database"
)

// asked is what the log records about one question. Only verified signatures enter it, except an agent host's no.
type asked struct {
	yes      []verdict // of different approvers and keys, in their order
	no       *verdict  // the first signed no; it ends the question for good
	declined bool      // an agent's host said no
	used     string    // the decision that used the yes first
}

// verdict is one signed answer as the log has it.
type verdict struct {
	said      signedAnswer
	signature string // base64
}

func (v verdict) record() Said {
	return Said{By: "approver:" + v.said.By, Key: v.said.Key, Signed: canonical(v.said), Signature: v.signature}
}

// answer returns a verdict, with the yeses before it, as the pipeline takes it.
func (v verdict) answer(q Question, decisionID string, before []verdict) *Answer {
	at, _ := time.Parse(time.RFC3339, v.said.At) // Given has read it
	one := v.record()
	a := &Answer{
		ApprovalID: q.ID, DecisionID: decisionID, ArgsDigest: q.ArgsDigest, Capability: q.Capability, Yes: v.said.Yes,
		By: call.Principal(one.By), Reason: v.said.Reason, At: at, Key: one.Key, Signed: one.Signed, Signature: one.Signature,
		Struck: v.said.Struck,
	}
	for _, b := range slices.Backward(before) {
		a.Also = append(a.Also, b.record())
	}
	return a
}

func (l *Ledger) of(approvalID string) *asked {
	if l.questions == nil {
		l.questions = map[string]*asked{}
	}
	q := l.questions[approvalID]
	if q == nil {
		q = &asked{}
		l.questions[approvalID] = q
	}
	return q
}

// Given takes in an answer when a human gives it. It returns what is wrong with it, as a *Refused; a record that is
// wrong changes nothing. A no ends its question for good. No key signs a host's answer: its no counts, and its yes is
// good in its own process alone.
func (l *Ledger) Given(a Recorded) error {
	if strings.HasPrefix(a.By, "session:") {
		if !a.Yes {
			l.of(a.ApprovalID).declined = true
		}
		return nil
	}
	if err := l.check(a); err != nil {
		return err
	}
	v := verdict{signature: a.Signature}
	_ = json.Unmarshal(a.Signed, &v.said) // check has read it
	for _, at := range []string{v.said.At, v.said.Created, v.said.Expires} {
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			return refused("answer.signature", "the answer to %s has no time", Escape(a.ApprovalID))
		}
	}
	q := l.of(a.ApprovalID)
	if !v.said.Yes {
		if q.no == nil {
			q.no = &v
		}
		return nil
	}
	same := func(o verdict) bool { return o.said.By == v.said.By || o.said.Key == v.said.Key }
	if !slices.ContainsFunc(q.yes, same) {
		q.yes = append(q.yes, v)
	}
	return nil
}

// open reports whether there is a yes that can still be used at a time.
func (q *asked) open(at time.Time) bool {
	return len(q.yes) > 0 && q.used == "" && q.no == nil && !q.declined && database.Stamp(at) < q.yes[0].said.Expires
}

// use records that a decision used a yes, and keeps of its verdicts only what comparisons need.
func (q *asked) use(decisionID string) {
	q.used = decisionID
	for i, v := range q.yes {
		q.yes[i] = verdict{said: signedAnswer{Shown: v.said.Shown, By: v.said.By, Key: v.said.Key, At: v.said.At}}
	}
}

// given reports whether every yes of a record of use was on record when it was given. Of those before a signed removal
// the log does not know.
func (l *Ledger) given(a Recorded) bool {
	q := l.of(a.ApprovalID)
	for _, p := range append([]Said{{Key: a.Key, Signed: a.Signed}}, a.Also...) {
		var s signedAnswer
		_ = json.Unmarshal(p.Signed, &s) // check has read it
		known := func(v verdict) bool { return v.said.Key == s.Key && v.said.Shown == s.Shown }
		if !slices.ContainsFunc(q.yes, known) && !(l.cut && l.lost(s)) {
			return false
		}
	}
	return true
}

// lost reports whether a verdict is from before records were removed, so that its use or its withdrawal can be among
// them.
func (l *Ledger) lost(s signedAnswer) bool {
	at, err := time.Parse(time.RFC3339, s.At)
	return err != nil || (!l.Since.IsZero() && !at.After(l.Since))
}

// evidence is what the log records about one question, and of who can answer.
type evidence struct {
	asked
	*standing
	whole error // why the log does not show what was removed
	since time.Time
}

// evidence reads the log. An error is a *Refused: the log cannot be believed.
func (k *Service) evidence(ctx context.Context, approvalID string) (e evidence, err error) {
	read := func(l *Ledger) error {
		e = k.evidenceOf(l, approvalID)
		return nil
	}
	if err = k.look(ctx, read); err != nil {
		return e, err
	}
	if more, err := k.exchangeAnswers(ctx, e, approvalID); err != nil || !more {
		return e, err
	}
	return e, k.look(ctx, read)
}

// evidenceOf copies what a ledger holds of a question.
func (k *Service) evidenceOf(l *Ledger, approvalID string) evidence {
	e := evidence{standing: k.standingOf(l), whole: l.Whole(k.pins()), since: l.Since}
	if q := l.questions[approvalID]; q != nil {
		e.asked = asked{slices.Clone(q.yes), q.no, q.declined, q.used}
	}
	return e
}

// look hands the ledger to fn, and refuses if the log cannot be believed.
func (k *Service) look(ctx context.Context, fn func(*Ledger) error) error {
	if k.Witness == nil {
		return unproven("who answered", errors.New("no log"))
	}
	if err := k.Exchange(ctx); err != nil {
		return err
	}
	var ferr error
	err := k.Witness.Look(ctx, func(l *Ledger) {
		if len(l.holders) > 0 {
			ferr = l.Whole(k.pins())
		}
		ferr = errors.Join(ferr, fn(l))
	})
	if err = errors.Join(err, ferr); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return unproven("who answered", err)
	}
	return nil
}

func (k *Service) standingOf(l *Ledger) *standing {
	s := &standing{holders: maps.Clone(l.holders)}
	s.root, s.noRoot = l.Root(k.pins())
	return s
}

// timeout is how long a question lives, by the configuration in force.
func (k *Service) timeout() time.Duration {
	if t := k.rules().Timeout; t > 0 {
		return t
	}
	return DefaultTimeout
}

// state returns the state of a question by the log. The row counts only where it denies: a row that was changed from
// outside, that is in use, or whose no could not be recorded.
func (k *Service) state(e evidence, r row) State {
	switch {
	case e.used != "":
		return Used
	case e.no != nil:
		return No
	case r.state == Withdrawn:
		return Withdrawn
	case e.declined:
		return Declined
	case r.state == Void:
		return Void
	case len(e.yes) >= max(r.q.Need, 1):
		return Yes
	}
	return Pending
}

// counts returns why a yes of the log does not count for a question that is asked now; nil: it does. r is the row as
// stored.
func (k *Service) counts(e evidence, v verdict, r row) error {
	s := v.said
	if s.Binding != r.binding || s.Shown != r.q.Digest() || s.Need != r.q.Need || s.ArgsDigest != r.q.ArgsDigest ||
		s.Created != database.Stamp(r.q.Created) || s.Expires != database.Stamp(r.q.Expires) || s.Created > s.At {
		return refused("approval.forged", "approval %s is not the question that %s answered", r.q.ID, s.By)
	}
	if root, no := r.q.remain(s.Struck); no != nil || root != s.Calls {
		return refused("approval.forged", "approval %s is not about the calls that %s signed", r.q.ID, s.By)
	}
	by, err := e.holder(s.By, s.Key)
	if err != nil {
		return refused("approval.revoked", "the yes of %s to approval %s does not count any more", s.By, r.q.ID)
	}
	at, _ := time.Parse(time.RFC3339, s.At) // Given has read it
	switch {
	case !e.since.IsZero() && !at.After(e.since):
		return refused("approval.unproven", "the log was set aside or pruned after the yes to approval %s; ask again", r.q.ID)
	case !k.has(by, r.q.Role):
		return refused("approval.role", "%s no longer has the role %s", by.Name, Escape(r.q.Role))
	case k.own(by, r.q):
		return ownCall(by)
	}
	return nil
}

// deadline is when a question ends: as it was shown, and no later than the timeout in force allows.
func (k *Service) deadline(q Question) time.Time {
	if most := q.Created.Add(k.timeout()); most.Before(q.Expires) {
		return most
	}
	return q.Expires
}

// resolve returns what the log means for a decision now. r is the row that was found for it, whose binding is that of
// the decision. again: another caller spent the yes meanwhile, or the decision asks another question now.
func (k *Service) resolve(ctx context.Context, d policy.Decision, r row) (a *Answer, again bool, err error) {
	if r.state != Void && !k.now().Before(k.deadline(r.q)) {
		if k.now().Before(r.q.Expires) { // the timeout is shorter than when it was asked: the next call asks anew
			k.void(ctx, r.q.ID)
		}
		return nil, false, refused("approval.expired", "approval %s expired at %s", r.q.ID,
			database.Stamp(k.deadline(r.q)))
	}
	e, err := k.evidence(ctx, r.q.ID)
	if err != nil {
		return nil, false, err // the row can be sound: it is not voided
	}
	state := k.state(e, r)
	if state == Used && r.state != Used { // the row was read before its yes was used, or was changed since
		now, err := k.load(ctx, r.q.ID)
		if err != nil {
			return nil, false, err
		}
		if now.state == Used {
			r = now
		}
	}
	if r.key != "" && k.starts(r) {
		if name, err := k.begun(ctx, d); name == r.key || err != nil {
			return nil, sleep(ctx, poll), err
		}
	}
	if d.Call.ApprovalID == "" && r.usedBy != "" && (state == Used || r.state == Used) {
		return nil, false, shared(r)
	}
	switch state {
	case Used:
		k.void(ctx, r.q.ID)
		return nil, false, refused("approval.used", "approval %s was used before, says the log", r.q.ID)
	case No:
		return e.no.answer(r.q, d.ID, nil), false, nil
	case Declined:
		return hostAnswer(d, r.q, false, r.q.Created), false, nil
	case Withdrawn:
		return nil, false, withdrawn(r.q.ID)
	}
	switch {
	case r.state == Used:
		return nil, false, refused("approval.used", "approval %s was used before; a yes is for one call", r.q.ID)
	case r.state != Pending && len(e.yes) == 0 && !e.since.IsZero() && !r.q.Created.After(e.since):
		err = refused("approval.unproven", "the log was set aside or pruned after approval %s was answered; ask again", r.q.ID)
	case r.state == Void:
		err = refused("approval.forged", "the row of approval %s was changed from outside, so waldo voided it; ask again", r.q.ID)
	case r.state != Pending && r.state != Yes:
		err = refused("approval.forged", "the row of approval %s says %s, and the log does not", r.q.ID, Escape(string(r.state)))
	}
	for _, v := range e.yes {
		err = errors.Join(err, k.counts(e, v, r))
	}
	if len(e.yes) < max(r.q.Need, 1) && r.state == Yes && err == nil {
		err = refused("approval.forged", "approval %s needs %d approvers, and the log has the yes of %d", r.q.ID,
			max(r.q.Need, 1), len(e.yes))
	}
	if no := (*Refused)(nil); errors.As(err, &no) {
		k.void(ctx, r.q.ID)
		return nil, false, no
	}
	if len(e.yes) < max(r.q.Need, 1) {
		return k.bySession(ctx, d, r, e.whole)
	}
	if differs, err := k.ready(ctx, d, r); differs || err != nil {
		return nil, differs, err
	}
	last := len(e.yes) - 1
	return k.spend(ctx, d, r, e.yes[last].answer(r.q, d.ID, e.yes[:last]))
}

// ready returns why a yes cannot be used yet: its contract requires a witness, and none cosigns the log. differs: the
// decision asks another question now, as when its preview has changed, and the yes is not for that.
func (k *Service) ready(ctx context.Context, d policy.Decision, r row) (differs bool, err error) {
	if d.Contract.Witness && k.Cosigner != nil {
		if why := k.Cosigner.Cosigned(ctx); why != nil {
			return false, refused(why.Code, "%s; the approval was not used", why.Text)
		}
	}
	q, err := k.draw(ctx, d) // last, because the others take time
	return err == nil && q.Binding() != r.binding, err
}

// spend consumes a yes for a decision.
func (k *Service) spend(ctx context.Context, d policy.Decision, r row, a *Answer) (_ *Answer, again bool, err error) {
	won, err := k.consume(ctx, d, r)
	switch {
	case err != nil:
		return nil, false, err
	case won:
		return a, false, nil
	case d.Call.ApprovalID != "":
		return nil, false, refused("approval.used", "approval %s was used before; a yes is for one call", r.q.ID)
	}
	now, err := k.load(ctx, r.q.ID)
	if err != nil || now.state != Used { // it was voided or declined: the next look finds why
		return nil, true, err
	}
	return k.resolve(ctx, d, now) // a call with the same key waits for the one that won
}

// shared is the refusal of a call that waited for the answer to an equal call at once.
func shared(r row) *Refused {
	return refused("approval.used", "equal calls at once shared question %s, and decision %s used its yes, which is for one "+
		"call. This call was not made; make it again to be asked anew", r.q.ID, Escape(r.usedBy))
}

// signature returns the bytes of a signature; one that cannot be read does not hold.
func signature(text string) []byte {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return b
}
