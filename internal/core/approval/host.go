package approval

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/storage/database"
)

// spoken is a yes that an agent host gave for its person. It is unsigned, so it lives in this process only. It
// counts only for its session, and only if the operator trusts hosts.
type spoken struct {
	session call.Session
	shown   string // digest of the question that the host was given
	at      time.Time
}

// maxSpoken limits the host answers that no call has used yet.
const maxSpoken = 1000

// hosts reports whether a host's answer counts for a question. The operator must list elicitation among the carriers,
// and the question must require no role, because a host cannot prove one. Notes such as the values of tokens are
// hidden from the agent, and so from its host. A preview is not: it is redacted as a result.
func (k *Service) hosts(q Question) bool {
	return slices.Contains(k.rules().Carriers, contract.Elicitation) && q.Role == "" && q.Need <= 1 && len(q.Notes) == 0
}

// Put returns the text of an open question for the host of a session to show. It returns false if a host's answer
// does not count for it.
func (k *Service) Put(ctx context.Context, n call.Session, approvalID string) (text string, ok bool) {
	r, e, err := k.known(ctx, approvalID)
	if err != nil || k.effectiveState(e, r) != Pending || r.q.Session != n || !k.hosts(r.q) {
		return "", false
	}
	q := k.sinceForHost(r.q)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.put == nil || len(k.put) >= maxSpoken {
		k.put = map[string]string{}
	}
	k.put[r.q.ID] = r.q.Digest()
	return q.Show(), true
}

// Said takes what the host of a session says that its person has answered. The next call of that session uses a yes.
// A no ends the question, also for every other approver.
func (k *Service) Said(ctx context.Context, n call.Session, approvalID string, yes bool) error {
	r, e, err := k.known(ctx, approvalID)
	switch {
	case err != nil:
		return err
	case r.q.Session != n:
		return refused("approval.unknown", "unknown approval %s in this session", Escape(approvalID))
	case !k.hosts(r.q):
		return refused("approval.carrier", "the operator does not take the answer of an agent's host to approval %s", r.q.ID)
	case k.effectiveState(e, r) != Pending:
		return refused("approval.answered", "approval %s was answered before, or its time is over", r.q.ID)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.put[r.q.ID] != r.q.Digest() {
		return refused("approval.changed", "approval %s is not the question that was shown", r.q.ID)
	}
	delete(k.put, r.q.ID)
	if err := k.recorded(ctx, Answer{ApprovalID: r.q.ID, DecisionID: r.q.DecisionID, ArgsDigest: r.q.ArgsDigest,
		Capability: r.q.Capability, Yes: yes, By: call.Principal("session:" + string(n)), At: k.now()}); err != nil && yes {
		return err
	} else if !yes {
		return errors.Join(err, k.decline(ctx, r.q.ID))
	}
	if k.said == nil || len(k.said) >= maxSpoken {
		k.said = map[string]spoken{} // who is forgotten is asked again
	}
	k.said[r.q.ID] = spoken{session: n, shown: r.q.Digest(), at: k.now()}
	return nil
}

// decline ends a question with the no of a host. It is stored, because no other program may turn it into a yes.
func (k *Service) decline(ctx context.Context, approvalID string) error {
	return k.Store.Update(ctx, func(tx *sql.Tx) error {
		res, err := tx.Exec(`UPDATE approvals SET state = 'declined' WHERE id = $1 AND state = 'pending'`, approvalID)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return refused("approval.answered", "approval %s was answered before", approvalID)
	})
}

// Withdraw ends a question whose caller has given its call up: no answer counts any more, also a yes that no call has
// used. The log has it as a no of the session.
func (k *Service) Withdraw(ctx context.Context, approvalID, why string) error {
	r, e, err := k.known(ctx, approvalID)
	if err != nil {
		return err
	}
	if s := k.effectiveState(e, r); s != Pending && s != Yes {
		return nil
	}
	err = k.recorded(ctx, Answer{ApprovalID: r.q.ID, DecisionID: r.q.DecisionID, ArgsDigest: r.q.ArgsDigest,
		Capability: r.q.Capability, By: call.Principal("session:" + string(r.q.Session)), Reason: why, At: k.now()})
	return errors.Join(err, k.Store.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`UPDATE approvals SET state = 'withdrawn' WHERE id = $1 AND state IN ('pending', 'yes')`, r.q.ID)
		return err
	}))
}

// WithdrawSession ends the open questions of a session that is over.
func (k *Service) WithdrawSession(ctx context.Context, n call.Session, why string) error {
	open, err := k.Pending(ctx)
	for _, q := range open {
		if q.Session == n {
			err = errors.Join(err, k.Withdraw(ctx, q.ID, why))
		}
	}
	return err
}

func withdrawn(approvalID string) *Refused {
	return refused("approval.withdrawn", "the caller of approval %s gave its call up, so no call can use an answer",
		approvalID)
}

// hostAnswer is the answer of the agent's host.
func hostAnswer(d policy.Decision, q Question, yes bool, at time.Time) *Answer {
	a := &Answer{ApprovalID: q.ID, DecisionID: d.ID, ArgsDigest: q.ArgsDigest, Capability: q.Capability, Yes: yes,
		By: call.Principal("session:" + string(q.Session)), Reason: "as the agent's host says", At: at}
	if !yes { // perhaps no human has seen it
		a.Refusal, a.Reason = "approval.declined", "the agent's host answered no or declined the question"
	}
	return a
}

// bySession settles a question without an approver's answer by the answer of the session's host. Exactly one call
// spends such an approval.
func (k *Service) bySession(ctx context.Context, d policy.Decision, r row, whole error) (a *Answer, again bool, err error) {
	k.mu.Lock()
	s, ok := k.said[r.q.ID]
	k.mu.Unlock()
	if !ok || s.session != d.Call.Session || s.shown != r.q.Digest() || !k.hosts(r.q) {
		return nil, false, nil
	}
	if differs, err := k.ready(ctx, d, r); differs || err != nil {
		return nil, differs, err
	}
	k.mu.Lock()
	delete(k.said, r.q.ID)
	k.mu.Unlock()
	if whole != nil {
		return nil, false, unproven("that approval "+r.q.ID+" is unused", whole)
	}
	won, err := k.consume(ctx, d, r)
	if err != nil {
		return nil, false, err
	}
	if !won {
		return nil, true, nil
	}
	a = hostAnswer(d, r.q, true, s.at)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.agreed == nil || len(k.agreed) >= maxSpoken {
		k.agreed = map[agreed]Before{}
	}
	k.agreed[agreed{r.q.Session, r.q.Capability}] = Before{
		ID: r.q.ID, At: database.Stamp(s.at), By: []string{string(a.By)}, shown: r.q,
	}
	return a, false, nil
}
