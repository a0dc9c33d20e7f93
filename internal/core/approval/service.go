package approval

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
)

// Notifier tells humans that there is a question: a terminal, the console, a host's own dialogue.
// It carries the question out; an answer comes back through Service.Answer alone.
type Notifier interface {
	Name() string
	Notify(ctx context.Context, q Question)
}

// Records writes what a service does to the log before it takes effect. An error stops it.
type Records interface {
	Enrolled(ctx context.Context, e Enrolment) error
	// Verdict has an answer that a human gives on the disk when it returns.
	Verdict(ctx context.Context, a Answer) error
	// Configured has a signed configuration of another replica.
	Configured(ctx context.Context, c Configuration, from string) error
	// Passed has an answer to a question of another waldo, which is passed on.
	Passed(ctx context.Context, e Elsewhere, by string, yes bool) error
}

// Calls knows the calls that a service asks about, and the rules of asking.
type Calls interface {
	// Rules are those of the configuration in force.
	Rules() contract.Approvals
	// WaitTimeout returns how long Ask waits for an answer to a call of a channel; 0: it does not.
	WaitTimeout(channel string) time.Duration
	// Notes are waldo's own findings about a call, shown and bound.
	Notes(d policy.Decision) []string
	// Preview returns what a call would do, shown and bound. An agent's host may see it: it holds no more than the call's
	// result would.
	Preview(ctx context.Context, d policy.Decision) []string
	// Begun returns the name of the key of a call, and whether a call with that key has begun.
	Begun(ctx context.Context, d policy.Decision) (name string, begun bool, err error)
	// Asker names this process where a session ends with it; empty: the session does not.
	Asker(n call.Session) string
}

// Fixed is the Calls of a process that makes none, under rules that do not change.
type Fixed contract.Approvals

// Rules satisfies Calls.
func (f Fixed) Rules() contract.Approvals { return contract.Approvals(f) }

// WaitTimeout satisfies Calls.
func (Fixed) WaitTimeout(string) time.Duration { return 0 }

// Notes satisfies Calls.
func (Fixed) Notes(policy.Decision) []string { return nil }

// Preview satisfies Calls.
func (Fixed) Preview(context.Context, policy.Decision) []string { return nil }

// Begun satisfies Calls.
func (Fixed) Begun(context.Context, policy.Decision) (string, bool, error) { return "", false, nil }

// Asker satisfies Calls.
func (Fixed) Asker(call.Session) string { return "" }

// Service stores questions until they are answered. It satisfies broker.Asker. Several processes can have a desk over
// the same store.
type Service struct {
	Store *database.Store
	Calls Calls // nil: Fixed without rules
	// Cosigner returns the reason against the use of a yes whose contract requires a witness; nil: it can be used. It is
	// asked before that. A service without one asks nobody.
	Cosigner interface {
		Cosigned(ctx context.Context) *call.Reason
	}
	// Witness reads the log, which decides who can answer, and what was answered and used. nil: nothing can be answered
	// or used.
	Witness Witness
	// Records writes to the log. Nil: enrolments are on no record, and no answer can be given.
	Records  Records
	Gone     func(asker string) bool // whether a process has ended; nil: none has
	Root     string                  // first approver's fingerprint besides the configuration's; can be empty
	Carriers []Notifier
	Now      func() time.Time // nil: time.Now

	scryptWork int // power of two; tests make it cheap; 0: 17

	telling  sync.WaitGroup // carriers at work
	settling sync.Mutex     // an answer is held against the log and recorded as one step

	exchanging sync.Mutex // statements of other replicas are taken as one step
	exchanged  string     // what the last exchange of rights saw

	mu     sync.Mutex
	put    map[string]string // digest of the text given to agent hosts to show, by approval
	said   map[string]spoken // answers of agent hosts
	agreed map[agreed]Before // the last call of a session that its host said yes to
	told   map[string]bool   // questions that this process's terminal was shown
	spent  map[string]use    // approvals that this process has used, until their time is over
}

// The default lifetime of a question, and the limits of open questions per session: a list reads them all.
const (
	DefaultTimeout  = time.Hour
	MaxPending      = 20
	MaxPendingBytes = 4 << 20
)

const (
	poll       = 100 * time.Millisecond
	awaitEvery = 500 * time.Millisecond
)

// State is the state of a question.
type State string

// The states of a question. A question past its deadline is expired, regardless of the stored state.
const (
	Pending  State = "pending"
	Yes      State = "yes"
	No       State = "no"
	Declined State = "declined" // the agent's host said no for its person, or declined without one
	Used     State = "used"
	Void     State = "void" // its row was changed from outside
	// Withdrawn is the state of a question whose caller gave its call up. An equal call asks anew.
	Withdrawn State = "withdrawn"
	Expired   State = "expired"
	Gone      State = "gone" // the process that asked has ended, and its session with it
)

// Refused is the error for an answer that is not accepted. Checks match its Reason.Code.
type Refused struct {
	Reason call.Reason
	cause  error // for the operator alone
}

func (r *Refused) Error() string { return r.Reason.Text + " (" + r.Reason.Code + ")" }

// Unwrap returns what lies behind it, which no agent is shown.
func (r *Refused) Unwrap() error { return r.cause }

func refused(code, format string, args ...any) *Refused {
	return &Refused{Reason: call.Reason{Code: code, Text: fmt.Sprintf(format, args...)}}
}

func (k *Service) now() time.Time {
	if k.Now != nil {
		return k.Now().UTC()
	}
	return time.Now().UTC()
}

func (k *Service) calls() Calls {
	if k.Calls == nil {
		return Fixed{}
	}
	return k.Calls
}

func (k *Service) rules() contract.Approvals { return k.calls().Rules() }

func (k *Service) work() int { return cmp.Or(k.scryptWork, 17) }

// row is a question as stored in the database.
type row struct {
	q       Question
	binding string
	state   State
	usedBy  string // the decision that used the yes, or that of a call with its key; empty: none
	usedAt  time.Time
	key     string // the name of the key of the call that asked, or that used it; empty: it had none
	place   string // of the state directory whose log has its answer; see database.Store.Place
}

// Ask finds or creates the question of a decision. One caller consumes an unused, unexpired approval of the same
// call. A no is final until the question expires. Without an answer it waits for Patience, then returns the id to
// quote. A call whose key another one has begun with is not asked about: it gets the refusal approval.used.
func (k *Service) Ask(ctx context.Context, d policy.Decision) (*Answer, string, error) {
	if d.DryRun {
		return nil, "", nil
	}
	q, err := k.draw(ctx, d)
	if err != nil {
		return nil, "", err
	}
	deadline := k.now().Add(k.calls().WaitTimeout(d.Call.Channel))
	if most := k.now().Add(call.SuspendPatience); call.Suspends(ctx) && deadline.After(most) {
		deadline = most
	}
	if most := call.AnswerBy(ctx); !most.IsZero() && deadline.After(most) {
		deadline = most
	}
	q.Until = deadline
	r, err := k.find(ctx, d, q)
	for err == nil {
		a, again, serr := k.resolve(ctx, d, r)
		switch {
		case serr != nil:
			err = serr
		case a != nil:
			return a, "", nil
		case again:
			if q, err = k.draw(ctx, d); err == nil {
				q.Until = deadline
				r, err = k.find(ctx, d, q)
			}
		case !k.now().Before(deadline) || !sleep(ctx, poll):
			return nil, r.q.ID, nil
		default:
			if _, err = k.begun(ctx, d); err != nil {
				err = errors.Join(err, k.Withdraw(context.WithoutCancel(ctx), r.q.ID, "a call with its key was made"))
			} else {
				r, err = k.load(ctx, r.q.ID)
			}
		}
	}
	var no *Refused
	if errors.As(err, &no) {
		return k.refusal(d, no), "", nil
	}
	return nil, "", fmt.Errorf("approval: %w", err)
}

// begun returns the name of the key of a call, and a refusal if a call with that key has begun.
func (k *Service) begun(ctx context.Context, d policy.Decision) (name string, err error) {
	name, begun, err := k.calls().Begun(ctx, d)
	if err == nil && begun {
		err = refused("approval.used", "an equal call with the key of this one has begun")
	}
	return name, err
}

// starting is how long a call with a key waits for one with the same key that has its yes, and has to begin.
const starting = 20 * time.Second

// starts reports whether a call that used the yes of a question, or had it withdrawn, can be about to begin.
func (k *Service) starts(r row) bool { return k.now().Before(r.usedAt.Add(starting)) }

// draw returns the question that a decision asks now, without id and times.
func (k *Service) draw(ctx context.Context, d policy.Decision) (Question, error) {
	return newQuestion(d, k.calls().Notes(d), k.calls().Preview(ctx, d))
}

// Draw returns the question that a decision would ask, without id and times, and whether it was asked and can still be
// answered or use its answer.
func (k *Service) Draw(ctx context.Context, d policy.Decision) (q Question, asked bool, err error) {
	if q, err = k.draw(ctx, d); err != nil {
		return Question{}, false, err
	}
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		var n int
		err := tx.QueryRow(`SELECT COUNT(*) FROM approvals WHERE binding = $1 AND `+stands+` AND expires > $2
			AND place = $3`, q.Binding(), database.Stamp(k.now()), k.place()).Scan(&n)
		asked = n > 0
		return err
	})
	return q, asked, err
}

// stands is the condition of rows whose question a call can still find.
const stands = `state IN ('pending', 'yes', 'no', 'declined')`

// sleep waits, and reports false where the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// refusal is waldo's own no, which no human gave.
func (k *Service) refusal(d policy.Decision, why *Refused) *Answer {
	return &Answer{DecisionID: d.ID, ArgsDigest: d.Call.Args.Digest(), Capability: d.Call.Capability,
		ApprovalID: d.Call.ApprovalID, Refusal: why.Reason.Code, Reason: why.Reason.Text, At: k.now()}
}

// find returns the row to settle. That is the quoted one, which must be for exactly this call, the latest open one
// for this call, or a new one. Where a call with the same key has its yes in another session, or just used one, find
// waits for that to begin first.
func (k *Service) find(ctx context.Context, d policy.Decision, q Question) (r row, err error) {
	for until := k.now().Add(starting); ; {
		name, err := k.begun(ctx, d)
		if err != nil {
			return r, err
		}
		r, wait, err := k.open(ctx, d, q, name, k.now().Before(until))
		if err != nil || !wait {
			return r, err
		}
		if !sleep(ctx, poll) {
			return row{}, refused("approval.used", "a call with the key of this one has the yes to approval %s", r.q.ID)
		}
	}
}

// open is find for a call whose key has a name. wait: a call with that key can be about to begin.
func (k *Service) open(
	ctx context.Context, d policy.Decision, q Question, name string, patient bool,
) (found row, wait bool, err error) {
	fresh := false
	err = k.Store.Update(ctx, func(tx *sql.Tx) error {
		if quoted := d.Call.ApprovalID; quoted != "" {
			r, err := k.asked(tx, quoted)
			if err == nil && r.place != k.place() {
				return elsewhere(r)
			}
			if errors.Is(err, sql.ErrNoRows) || (err == nil && r.q.Session != q.Session) {
				return refused("approval.unknown", "unknown approval %s in this session", Escape(quoted))
			}
			if err == nil && r.binding != q.Binding() {
				return refused("approval.mismatch",
					"approval %s is for another call: the arguments, the tool, the principal, the configuration or what it would "+
						"do differ; ask without quoting it", r.q.ID)
			}
			found = r
			return err
		}
		found, err = k.latest(tx, stands, `binding = $3`, q.Binding())
		if errors.Is(err, sql.ErrNoRows) && name != "" && patient {
			found, err = k.latest(tx, `state IN ('yes', 'used')`, keyOf+` = $3`, name)
			if wait = err == nil && (found.state == Yes || k.starts(found)); err == nil && !wait {
				err = sql.ErrNoRows
			}
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		fresh = true
		found, err = k.create(tx, q, name, call.Suspends(ctx))
		return err
	})
	if err == nil && found.state == Pending {
		found.q.Until = q.Until
		k.tell(ctx, found.q, fresh)
	}
	return found, wait, err
}

// latest reads the newest question in a state that meets a condition on $3.
func (k *Service) latest(tx *sql.Tx, state, condition, value string) (row, error) {
	var latest string
	err := tx.QueryRow(`SELECT id FROM approvals WHERE `+condition+` AND `+state+` AND expires > $1 AND place = $2
		ORDER BY created DESC, id DESC LIMIT 1`, database.Stamp(k.now()), k.place(), value).Scan(&latest)
	if err != nil {
		return row{}, err
	}
	return k.asked(tx, latest)
}

// elsewhere refuses a question of another state directory: what was answered is in the log there.
func elsewhere(r row) *Refused {
	return refused("approval.elsewhere", "the answer to approval %s is in the log of another waldo, which asked it: make "+
		"the call there, or ask here without quoting it", r.q.ID)
}

// tell sends a new question by every carrier. A call that joins an older question tells its own terminal, once.
func (k *Service) tell(ctx context.Context, q Question, fresh bool) {
	k.mu.Lock()
	before := k.told[q.ID]
	if k.told == nil || len(k.told) >= maxSpoken {
		k.told = map[string]bool{}
	}
	k.told[q.ID] = true
	k.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	for _, c := range k.Carriers {
		if fresh || !before && c.Name() == Terminal {
			k.telling.Go(func() { c.Notify(ctx, k.Since(ctx, q)) })
		}
	}
}

// Terminal is the name of the carrier that writes to the terminal of the process that asks.
const Terminal = "terminal"

// Told waits until the carriers have sent every question so far, for at most the given time.
func (k *Service) Told(most time.Duration) {
	done := make(chan struct{})
	go func() {
		k.telling.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(most):
	}
}

// keyOf is the name of the key of a call in used_by, as its index has it: 64 bytes.
const keyOf = `substr(used_by, length(used_by) - 63)`

// used is the column used_by. It holds a decision and when it used the yes, and the name of the key of its call.
func used(decision string, at time.Time, name string) string {
	if decision == "" {
		return "  " + name
	}
	return decision + " " + database.Stamp(at) + " " + name
}

// create enters a new question.
func (k *Service) create(tx *sql.Tx, q Question, name string, outlives bool) (row, error) {
	now := k.now().Truncate(time.Millisecond)
	var open, bytes int
	if err := tx.QueryRow(`SELECT COUNT(*), COALESCE(SUM(LENGTH(question)), 0) FROM approvals WHERE state = 'pending' AND
		session = $1 AND expires > $2`, string(q.Session), database.Stamp(now)).Scan(&open, &bytes); err != nil {
		return row{}, err
	}
	if open >= MaxPending || open > 0 && bytes+len(q.Args) > MaxPendingBytes { // one can be longer, as its call can
		return row{}, refused("approval.too_many", "%d questions of this session are unanswered; wait for those", open)
	}
	if _, more := q.fields(); more > 0 { // the agent's names of arguments would choose what is left out
		return row{}, refused("approval.too_large",
			"the call has %d values, and a question shows at most %d; make several calls, or pass the list as one text",
			maxFields+more, maxFields)
	}
	if !outlives {
		q.Asker = k.calls().Asker(q.Session)
	}
	q.ID, q.Created, q.Expires = id.New(id.Approval), now, now.Add(k.timeout())
	text, err := k.sealed(q)
	if err != nil {
		return row{}, err
	}
	_, err = tx.Exec(`INSERT INTO approvals (id, binding, session, state, created, expires, question, answer, used_by,
		place) VALUES ($1, $2, $3, 'pending', $4, $5, $6, '', $7, $8)`, q.ID, q.Binding(), string(q.Session),
		database.Stamp(q.Created), database.Stamp(q.Expires), text, used("", time.Time{}, name), k.place())
	return row{q: q, binding: q.Binding(), state: Pending}, err
}

// asked reads a question. One whose parts do not fit each other is void, and so is one sealed with another key.
func (k *Service) asked(tx *sql.Tx, approvalID string) (row, error) {
	var r row
	if !id.Is(id.Approval, approvalID) { // an id is printed as it is, so it must look like one
		return row{}, sql.ErrNoRows
	}
	var question, expires string
	err := tx.QueryRow(`SELECT binding, state, expires, question, used_by, place FROM approvals WHERE id = $1`, approvalID).
		Scan(&r.binding, &r.state, &expires, &question, &r.usedBy, &r.place)
	if err != nil {
		return row{}, err
	}
	if use := strings.SplitN(r.usedBy, " ", 3); len(use) == 3 { // an earlier waldo wrote the decision alone
		r.usedBy, r.key = use[0], use[2]
		r.usedAt, _ = time.Parse(time.RFC3339, use[1]) // empty: it is not used
	}
	err = k.unsealed(question, approvalID, &r.q)
	if err != nil || r.q.ID != approvalID || !r.q.genuine(r.binding) || database.Stamp(r.q.Expires) != expires {
		r.q.ID, r.state = approvalID, Void
	}
	return r, nil
}

func (k *Service) load(ctx context.Context, approvalID string) (r row, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		r, err = k.asked(tx, approvalID)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, refused("approval.unknown", "unknown approval %s", Escape(approvalID))
	}
	return r, err
}

// Question returns a question and its state by the log. A question whose row is gone or was changed, after a yes that
// the log has, comes back as its id alone and can be answered with no.
func (k *Service) Question(ctx context.Context, approvalID string) (Question, State, error) {
	r, e, err := k.known(ctx, approvalID)
	if err != nil {
		return Question{}, "", err
	}
	return r.q, k.effectiveState(e, r), nil
}

// known returns the row of a question with what the log says. A row that does not fit the yes that the log has is void.
func (k *Service) known(ctx context.Context, approvalID string) (r row, e evidence, err error) {
	if !id.Is(id.Approval, approvalID) {
		return r, e, refused("approval.unknown", "unknown approval %s", Escape(approvalID))
	}
	r, rerr := k.load(ctx, approvalID)
	if e, err = k.evidence(ctx, approvalID); err != nil {
		return r, e, err
	}
	there := rerr == nil && r.place != k.place()
	if e.open(k.now()) && (rerr != nil || there || e.yes[0].said.Shown != r.q.Digest()) {
		return row{q: Question{ID: approvalID}, state: Void}, e, nil
	}
	if there {
		return r, e, elsewhere(r)
	}
	return r, e, rerr
}

// Await waits until a question has an answer, or can have none any more. An error is that of ctx or of the store.
func (k *Service) Await(ctx context.Context, approvalID string) error {
	for {
		_, state, err := k.Question(ctx, approvalID)
		if err != nil || state != Pending {
			return err
		}
		if !sleep(ctx, awaitEvery) {
			return ctx.Err()
		}
	}
}

// effectiveState is the state for a person: by the log, and by what can still be done.
func (k *Service) effectiveState(e evidence, r row) State {
	s := k.state(e, r)
	if (s == Pending || s == Yes && k.root() != "") && r.state == Used { // a call is using it, or did at another replica
		s = Used
	}
	switch {
	case s != Void && s != Used && !k.now().Before(r.q.Expires):
		return Expired
	case s == Pending && k.gone(r.q):
		return Gone
	}
	return s
}

func (k *Service) gone(q Question) bool { return q.Asker != "" && k.Gone != nil && k.Gone(q.Asker) }

// Pending returns the questions that wait for an answer, oldest first.
func (k *Service) Pending(ctx context.Context) ([]Question, error) {
	out := []Question{}
	err := k.Store.View(ctx, func(tx *sql.Tx) error {
		ids, err := texts(tx, `SELECT id FROM approvals WHERE state = 'pending' AND expires > $1 AND place = $2 ORDER BY created,
			id`, database.Stamp(k.now()), k.place())
		if err != nil {
			return err
		}
		for _, s := range ids {
			r, err := k.asked(tx, s)
			if err != nil && !errors.Is(err, sql.ErrNoRows) { // no row of waldo's has such an id
				return err
			}
			if r.state == Pending && !k.gone(r.q) {
				out = append(out, r.q)
			}
		}
		return nil
	})
	return out, err
}

// Standing returns the questions of a capability in a session, or with "" in all, that a call can still find, the
// newest first.
func (k *Service) Standing(ctx context.Context, session call.Session, of call.Capability) (out []Question, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		ids, err := texts(tx, `SELECT id FROM approvals WHERE ($1 = '' OR session = $1) AND `+stands+` AND expires > $2
			AND place = $3 ORDER BY created DESC, id DESC LIMIT 200`, string(session), database.Stamp(k.now()), k.place())
		if err != nil {
			return err
		}
		for _, one := range ids {
			if r, err := k.asked(tx, one); err == nil && r.state != Void && r.q.Capability == of && !k.gone(r.q) {
				out = append(out, r.q)
			}
		}
		return nil
	})
	return out, err
}

// Spent returns the questions of a capability whose yes a call of a principal has used, the newest first, of the newest
// 50 of all principals.
func (k *Service) Spent(ctx context.Context, of call.Capability, by call.Principal) (out []Question, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		ids, err := texts(tx, `SELECT id FROM approvals WHERE state = 'used' AND place = $1 AND (question LIKE $2 OR
			question LIKE $3) ORDER BY created DESC, id DESC LIMIT 50`, k.place(), "%"+string(of)+"%", sealedBy+"%")
		if err != nil {
			return err
		}
		for _, one := range ids {
			if r, err := k.asked(tx, one); err == nil && r.state == Used && r.q.Capability == of && r.q.Principal == by {
				out = append(out, r.q)
			}
		}
		return nil
	})
	return out, err
}

// texts returns the one column of a query. It reads all of it, so that the next query of the transaction can begin.
func texts(tx *sql.Tx, query string, args ...any) ([]string, error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	var all []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		all = append(all, one)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

// PendingPage returns the questions after a cursor that wait for an answer, oldest first, at most so many, and the
// cursor of the next page; empty: absent.
func (k *Service) PendingPage(ctx context.Context, cursor string, limit int) (out []Question, next string, err error) {
	place, err := base64.RawURLEncoding.DecodeString(cursor)
	created, after, ok := strings.Cut(string(place), " ")
	if err != nil || (cursor != "" && !ok) {
		return nil, "", refused("cursor", "the cursor is not one of this list")
	}
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		for len(out) <= limit {
			rows, err := tx.Query(`SELECT id, created FROM approvals WHERE state = 'pending' AND expires > $1 AND `+
				`(created > $2 OR (created = $2 AND id > $3)) AND place = $5 ORDER BY created, id LIMIT $4`,
				database.Stamp(k.now()), created, after, limit+1, k.place())
			if err != nil {
				return err
			}
			var ids []string
			for rows.Next() {
				if err := rows.Scan(&after, &created); err != nil {
					return errors.Join(err, rows.Close())
				}
				ids = append(ids, after)
			}
			if err := rows.Close(); err != nil {
				return err
			}
			for _, one := range ids {
				r, err := k.asked(tx, one)
				if err != nil && !errors.Is(err, sql.ErrNoRows) { // no row of waldo's has such an id
					return err
				}
				if err == nil && r.state == Pending && !k.gone(r.q) {
					out = append(out, r.q)
				}
			}
			if len(ids) <= limit {
				return nil
			}
		}
		return nil
	})
	if len(out) > limit {
		out = out[:limit]
		last := out[limit-1]
		next = base64.RawURLEncoding.EncodeToString([]byte(database.Stamp(last.Created) + " " + last.ID))
	}
	return out, next, err
}

// CountPending counts the questions that wait for an answer, also those whose asker has ended.
func (k *Service) CountPending(ctx context.Context) (n int, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT COUNT(*) FROM approvals WHERE state = 'pending' AND expires > $1 AND place = $2`,
			database.Stamp(k.now()), k.place()).Scan(&n)
	})
	return n, err
}

// Mark returns a text that changes with each question and answer, also with those of other waldos.
func (k *Service) Mark(ctx context.Context) (mark string, err error) {
	err = k.Store.View(ctx, func(tx *sql.Tx) error {
		var all, open, written, there, size int
		var last, changed string
		err := tx.QueryRow(`SELECT COUNT(*), COUNT(CASE WHEN state = 'pending' AND expires > $1 THEN 1 END), COALESCE(SUM(LENGTH(answer)), 0), COALESCE(MAX(created), '')
			FROM approvals WHERE place = $2`, database.Stamp(k.now()), k.place()).Scan(&all, &open, &written, &last)
		if err != nil {
			return err
		}
		err = tx.QueryRow(`SELECT COUNT(*), COALESCE(SUM(LENGTH(value)), 0), COALESCE(MAX(at), '') FROM kv WHERE bucket = $1`,
			k.Store.Bucket(bucket)).Scan(&there, &size, &changed)
		mark = fmt.Sprint(all, open, written, last, there, size, changed)
		return err
	})
	return mark, err
}

// Sweep removes questions that expired before a time, with their arguments. The log retains them with their answers.
func (k *Service) Sweep(ctx context.Context, before time.Time) error {
	return k.Store.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM approvals WHERE expires < $1`, database.Stamp(before))
		_, berr := tx.Exec(`DELETE FROM kv WHERE bucket = $1 AND at < $2`, answersBucket+k.root(), database.Stamp(before))
		return errors.Join(err, berr)
	})
}

// Verdict parses a typed answer. Only the whole words yes and no count: "y" could be a typing error.
func Verdict(typed string) (yes, ok bool) {
	switch typed {
	case "yes":
		return true, true
	case "no":
		return false, true
	}
	return false, false
}
