package effects

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// Settlement is what waldo found out about a call with an unknown outcome, for the log.
type Settlement struct {
	CallID     string          `json:"call_id"`
	DecisionID string          `json:"decision_id"`
	Capability call.Capability `json:"capability"`
	Settled    call.Settled    `json:"settled"`
	By         call.Capability `json:"by"`                  // the capability that read
	Read       string          `json:"read,omitempty"`      // the last call of it
	Why        string          `json:"why,omitempty"`       // why it is still unknown
	Row        string          `json:"row"`                 // digest of what waldo remembers of the call; empty: as before
	Ended      string          `json:"row_ended,omitempty"` // the digest before, which counts no more
	RowKey     string          `json:"row_key,omitempty"`   // as that of an outcome
}

// Errors of Settle.
var (
	ErrAbsent   = errors.New("waldo does not remember this call")
	ErrNoSettle = errors.New("the contract of this call has no settle")
	ErrUnderWay = errors.New("the call is under way, so it has no outcome yet")
	ErrForged   = errors.New("row.forged: what the database says of the call is not what the log recorded")
	ErrOther    = errors.New("another configuration decided this call, and only that one can find out whether it happened")
)

// settleGap is how long the first pause between two reads of a settlement is; each later one is twice as long.
const settleGap = 250 * time.Millisecond

// asked is how long the clock of a call can have stood still for a question of its server.
const asked = 10 * time.Minute

// Settle finds out whether a call with an unknown outcome happened: it makes the read that the contract declares, as
// the caller of as, and records what it says. A write that is still on its way can happen later, so "it did not happen"
// takes the whole of settle.within. A call with a known outcome keeps it.
func (b *Book) Settle(ctx context.Context, callID string, as call.Call) (call.Settled, error) {
	e, err := b.current(ctx, callID)
	if err != nil {
		return call.StillUnknown, err
	}
	if !b.open(e) {
		return b.said(ctx, e)
	}
	k := b.Contract(e.Capability)
	if own := fileOf(k); own != e.File {
		return call.StillUnknown, fmt.Errorf("%w: %s, not %s", ErrOther, cmp.Or(e.File, "(none)"), cmp.Or(own, "(none)"))
	}
	s := k.Settle
	if s.By == "" {
		return call.StillUnknown, ErrNoSettle
	}
	if word, err := b.proven(ctx, e); word != "" || err != nil {
		return cmp.Or(word, call.StillUnknown), err
	}
	out := Settlement{CallID: e.ID, DecisionID: e.DecisionID, Capability: e.Capability, By: call.Capability(s.By)}
	last := cmp.Or(b.Contract(out.By).Timeout, patience) // that the last read can take
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Within+last)
	defer cancel()
	recent := e.process == b.Process || b.left(e, k, 1+k.Retry.Max)+asked+s.Within > 0
	early := b.Early(e)
	happened, err := b.ask(ctx, s, e, as, &out, recent)
	if err == nil && !happened && early > 0 {
		err = fmt.Errorf("the call was cut short, and its server can act on it for %v: settle it then", early.Round(time.Second))
	}
	state := Unknown
	switch {
	case err != nil:
		out.Settled, out.Why = call.StillUnknown, facts.Short(err.Error())
	case happened:
		out.Settled, state = call.Happened, Happened
	default:
		out.Settled, state = call.NotHappened, NotHappened
	}
	ctx = context.WithoutCancel(ctx)
	if now, err := b.Get(ctx, callID); err == nil && !b.open(now) { // another settled it, or tries it again
		return b.said(ctx, now)
	}
	if state != Unknown {
		out.Ended = e.digest()
		e.State = state
		out.Row, out.RowKey = e.digest(), e.named()
	}
	if err := b.Log.Settled(ctx, out); err != nil {
		return call.StillUnknown, fmt.Errorf("recording the settlement: %w", err)
	}
	var ended *Entry // meanwhile
	err = b.change(ctx, callID, func(_ *sql.Tx, now *Entry) (bool, error) {
		if ended = nil; b.open(now) {
			now.State = state
		} else {
			ended = now
		}
		return true, nil
	})
	if err == nil && ended != nil {
		return b.said(ctx, ended)
	}
	return out.Settled, err
}

// current returns a remembered call, whose outcome is recorded where its process was killed before it could.
func (b *Book) current(ctx context.Context, callID string) (*Entry, error) {
	e, err := b.Get(ctx, callID)
	if err != nil || !b.open(e) || e.process == "" || b.own(e) {
		return e, err
	}
	if !b.Gone(e.process) {
		return nil, ErrUnderWay
	}
	if err := b.recover(ctx, e); err != nil {
		return nil, err
	}
	return b.Get(ctx, callID)
}

// own reports whether a row is as this process stored it, and the outcome of its call is about to be recorded.
func (b *Book) own(e *Entry) bool {
	digest, held := b.ended.Load(e.ID)
	return held && digest == e.digest()
}

// said returns what a settlement found about a call that is not open, by its row, if the log has that.
func (b *Book) said(ctx context.Context, e *Entry) (call.Settled, error) {
	switch {
	case e.State == Begun:
		return call.StillUnknown, ErrUnderWay
	case e.Word() != "" && b.Log.Bound(ctx, e.ID, e.digest(), b.foreign(e)) != nil:
		return call.StillUnknown, ErrForged
	}
	return e.Word(), nil
}

// proven returns an error unless the log allowed a call and has its row. A call that the log has settled keeps its
// word, and its row is put right.
func (b *Book) proven(ctx context.Context, e *Entry) (call.Settled, error) {
	log, own := b.standing(ctx, e), b.own(e)
	was := e.digest()
	switch {
	case !log.Allowed, !own && log.Settled == "" && b.Log.Bound(ctx, e.ID, was, b.foreign(e)) != nil:
		return "", ErrForged
	case own || !log.Known:
		return "", nil
	case log.Settled == call.Happened:
		e.State = Happened
	case log.Settled == call.NotHappened:
		e.State = NotHappened
	default:
		return "", ErrForged
	}
	word, err := b.said(ctx, e)
	if err == nil {
		err = b.change(ctx, e.ID, func(_ *sql.Tx, now *Entry) (bool, error) {
			if now.digest() == was {
				now.State = e.State
			}
			return true, nil
		})
	}
	return word, err
}

// standing returns what the log has of the call of a row.
func (b *Book) standing(ctx context.Context, e *Entry) Standing {
	s := b.Log.Standing(ctx, e.decision(), b.foreign(e))
	s.Allowed = s.Allowed && e.ArgsDigest == e.Args.Digest()
	return s
}

// open reports whether the outcome of a call is unknown: it ended so, or its process was killed.
func (b *Book) open(e *Entry) bool {
	return e.State == Unknown || e.State == Begun && b.Gone(e.process)
}

// Word returns what a settlement found; empty: there was none.
func (e *Entry) Word() call.Settled {
	switch e.State {
	case Happened:
		return call.Happened
	case NotHappened:
		return call.NotHappened
	}
	return ""
}

// Early returns for how long the server of a call that was cut short can still act on it, by the contract's timeout: it was
// killed with its waldo, or cancelled, or its caller gave it less time. Until then no read shows that it did not
// happen. A contract without settle has no read to wait for.
func (b *Book) Early(e *Entry) time.Duration {
	k := b.Contract(e.Capability)
	switch {
	case k.Settle.By == "":
	case e.result == nil || e.result.Status == facts.Cancelled:
		return b.left(e, k, 1+k.Retry.Max)
	case e.result.Status == facts.Timeout: // its last try has had its time
		return b.left(e, k, 1)
	}
	return 0
}

// left returns for how long a call can still be under way with some tries; negative: since when it cannot.
func (b *Book) left(e *Entry, k contract.Contract, tries int) time.Duration {
	return e.At.Add(time.Duration(tries) * k.Timeout).Sub(b.Now())
}

// ask reads until the write has happened. Only a read that begins after the end of within says that it has not. A call
// of long ago is read once.
func (b *Book) ask(
	ctx context.Context, s contract.Settle, e *Entry, as call.Call, out *Settlement, recent bool,
) (bool, error) {
	if e.tokens {
		return false, errors.New("the tool got values that are hidden here, so a read cannot be compared with the call")
	}
	args, err := policy.Fill(s.Args, e.Args, e.At, nil)
	if err != nil {
		return false, err
	}
	until, gap := time.Now().Add(s.Within), settleGap
	for {
		c := call.Call{ID: id.New(id.Call), Capability: call.Capability(s.By), Args: args, Session: as.Session,
			Principal: as.Principal, Channel: as.Channel, Depth: as.Depth, Parent: e.ID, Chain: as.Chain}
		last := !recent || !time.Now().Before(until)
		happened, err := b.read(ctx, s, e, c)
		out.Read = c.ID
		if err != nil || happened || last {
			return happened, err
		}
		select {
		case <-time.After(min(gap, time.Until(until))):
		case <-ctx.Done():
			return false, ctx.Err()
		}
		gap *= 2
	}
}

// read makes the read once.
func (b *Book) read(ctx context.Context, s contract.Settle, e *Entry, c call.Call) (bool, error) {
	if why := b.Calls.Prepare(ctx, &c); why != nil {
		return false, fmt.Errorf("the read was refused: %s: %s", why.Code, why.Text)
	}
	r, err := b.Calls.Call(ctx, c)
	switch {
	case err != nil:
		return false, errors.New("the read failed in waldo itself")
	case r.Status != facts.OK || r.IsError:
		code := string(r.Status)
		if why := r.Cause(); len(why) > 0 {
			code += ", " + why[0].Code
		}
		return false, fmt.Errorf("the read %s ended as %s", c.ID, code)
	case r.Facts.Masked > 0: // a hidden value equals no argument
		return false, fmt.Errorf("redaction hid values in the read %s, so it cannot be compared with the call", c.ID)
	case r.Cut:
		return false, fmt.Errorf("the answer of the read %s is longer than its response_budget_bytes: ask for less", c.ID)
	}
	return policy.Happened(s, e.Args, e.At, r)
}

// Get returns a remembered call by its id, or ErrAbsent.
func (b *Book) Get(ctx context.Context, callID string) (e *Entry, err error) {
	err = b.Store.View(ctx, func(tx *sql.Tx) error {
		e, err = b.byID(tx, callID)
		return err
	})
	if err == nil && e == nil {
		err = ErrAbsent
	}
	return e, err
}

// Pending returns the calls with an unknown outcome, oldest first.
func (b *Book) Pending(ctx context.Context) (out []*Entry, err error) {
	err = b.Store.View(ctx, func(tx *sql.Tx) error {
		out = nil
		all, err := b.list(tx, `WHERE state IN ($1, $2)`, string(Begun), string(Unknown))
		for _, e := range all {
			if b.open(e) {
				out = append(out, e)
			}
		}
		return err
	})
	return out, err
}

// Recover records the outcomes of calls whose process was killed before it could. killed: processes that ended so, and
// whose files the caller has locked.
func (b *Book) Recover(ctx context.Context, killed []string) error {
	var all []*Entry
	err := b.Store.View(ctx, func(tx *sql.Tx) (err error) {
		all, err = b.list(tx, `WHERE process <> ''`)
		return err
	})
	for _, e := range all {
		if err != nil {
			return err
		}
		if slices.Contains(killed, e.process) || b.Gone(e.process) {
			if err = b.recover(ctx, e); errors.Is(err, ErrForged) { // it stays as it is
				slog.Warn("a remembered call was not recovered", "call", e.ID, "why", err)
				err = nil
			}
		}
	}
	return err
}

// recover records the outcome of a call whose process was killed: unknown, unless the log has it or a settlement. A
// call that the log did not allow has none. That of another host is recorded there, once it is back: its row keeps its
// process until then.
func (b *Book) recover(ctx context.Context, e *Entry) error {
	gone := e.process
	e, err := b.Get(ctx, e.ID) // as its process, which is gone, has left it
	if errors.Is(err, ErrAbsent) || err == nil && e.process != gone {
		return nil // another waldo recovers it
	}
	if err != nil {
		return err
	}
	was, log := e.digest(), b.standing(ctx, e)
	switch {
	case !log.Allowed:
		return ErrForged
	case log.Foreign && e.State != Begun:
		return nil
	case log.Foreign:
		return b.change(ctx, e.ID, func(_ *sql.Tx, now *Entry) (bool, error) {
			if now.digest() == was && now.process == gone {
				now.State = Unknown
			}
			return true, nil
		})
	}
	if mine, err := b.hand(ctx, e.ID, gone, b.Process); !mine || err != nil {
		return err
	}
	if !log.Ended {
		r, settled := Killed(e.ID, e.DecisionID), *e
		settled.State = Happened
		switch {
		case log.Settled == call.Happened && b.Log.Bound(ctx, e.ID, settled.digest(), false) == nil:
			e, r.Facts.SideEffect = &settled, facts.Confirmed
		case b.Log.Bound(ctx, e.ID, was, false) != nil:
			e = e.lost()
		}
		r.Row, r.RowKey = e.digest(), e.named()
		if _, err := b.Log.Outcome(ctx, e.decision(), r); err != nil {
			_, undone := b.hand(ctx, e.ID, b.Process, gone)
			return errors.Join(err, undone)
		}
	} else if lost := e.lost(); b.Log.Bound(ctx, e.ID, was, false) != nil && b.Log.Bound(ctx, e.ID, lost.digest(), false) == nil {
		e = lost // who recorded it was killed before it changed the row
	} else if e.State == Begun {
		e.State = Unknown
	}
	free := func() error {
		return b.change(context.WithoutCancel(ctx), e.ID, func(_ *sql.Tx, now *Entry) (bool, error) {
			if again := now.State == NotHappened && now.name == ""; now.digest() == was && !again { // else its key has another call
				now.State, now.result, now.Undo = e.State, e.result, e.Undo
			}
			now.process = ""
			return true, nil
		})
	}
	if err = free(); err != nil {
		b.until(free)
	}
	return err
}

// hand gives a call from one process to another, so that one alone records its outcome; false: another waldo was first.
// A waldo without a mark leaves it as it is.
func (b *Book) hand(ctx context.Context, callID, from, to string) (mine bool, err error) {
	err = b.change(ctx, callID, func(_ *sql.Tx, e *Entry) (bool, error) {
		if mine = e.process == from; mine && b.Process != "" {
			e.process = to
		}
		return true, nil
	})
	return mine, err
}

// lost returns the entry as one whose outcome is unknown.
func (e *Entry) lost() *Entry {
	l := *e
	l.State, l.result, l.Undo = Unknown, nil, nil
	return &l
}

// decision returns the part of a call's decision that its outcome names.
func (e *Entry) decision() policy.Decision {
	return policy.Decision{ID: e.DecisionID, Contract: contract.Contract{Mode: e.Mode},
		Call: call.Call{ID: e.ID, Capability: e.Capability, Principal: e.Principal, Args: e.Args,
			Chain: chain(e.Delegation)}}
}

// Killed is the result of a call whose process was killed while it was under way.
func Killed(callID, decisionID string) call.Result {
	f := facts.New()
	f.Status, f.SideEffect, f.CallID, f.DecisionID = facts.Failed, facts.Unknown, callID, decisionID
	return call.Result{CallID: callID, DecisionID: decisionID, Status: facts.Failed, IsError: true, Trust: call.Trusted, Facts: f,
		Why: []call.Reason{{Code: "effects.killed", Text: "waldo ended while the call was under way"}}}
}
