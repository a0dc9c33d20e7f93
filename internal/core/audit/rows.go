package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/effects"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// A row of the database is not evidence. waldo acts by what one says of a call or a delivery only if the log has the
// digest of it: in the record of the outcome, of the settlement, or of the delivery.

// rows are the digests of rows that the log has, shortened.
type rows struct {
	held map[[16]byte]struct{}
	of   map[string][16]byte // of deliveries that have not ended, by their ids
	keys map[[16]byte]keyed  // of keys that count, by their names
}

// keyed is the newest call with a key that can have acted.
type keyed struct {
	call  string
	until time.Time
}

func newRows() rows {
	return rows{map[[16]byte]struct{}{}, map[string][16]byte{}, map[[16]byte]keyed{}}
}

// bound are the members of a body that bind a row, and end what one is good for.
type bound struct {
	Row   *string `json:"row"` // empty: there is no row. Records of an earlier waldo lack it
	Ended string  `json:"row_ended"`
	Key   string  `json:"row_key"` // the name of the call's key, and until when it counts

	Settled call.Settled `json:"settled"`

	CallID     string `json:"call_id"`
	DeliveryID string `json:"delivery_id"`
	Event      string `json:"event"`
}

// tell takes a record in. A delivery that is dead acts no more, whatever its row says, until its operator has it retried
// as it was.
func (s rows) tell(r Record) {
	if !bytes.Contains(r.Body, []byte(`"row`)) && !bytes.Contains(r.Body, []byte(`"dead"`)) ||
		bytes.Contains(r.Body, []byte(`"row":""`)) {
		return
	}
	var b bound
	if json.Unmarshal(r.Body, &b) != nil { // Verify reports it; it binds nothing
		return
	}
	known, open := s.of[b.DeliveryID]
	switch {
	case b.Event == "dead":
		delete(s.held, known)
	case b.Row == nil, b.Event == "retried" && !(open && known == short16(*b.Row)):
	default:
		s.held[short16(*b.Row)] = struct{}{}
		if b.DeliveryID != "" {
			s.of[b.DeliveryID] = short16(*b.Row)
		}
	}
	if b.Ended != "" {
		delete(s.held, short16(b.Ended))
		delete(s.of, b.DeliveryID)
	}
	if name, until, ok := strings.Cut(b.Key, " "); ok {
		s.key(short16(name), b, until)
	}
}

// key takes in that a call with a key can have acted until a time, or that it has not.
func (s rows) key(name [16]byte, b bound, until string) {
	end, err := time.Parse(time.RFC3339, until)
	switch {
	case b.Settled == call.NotHappened && s.keys[name].call == b.CallID:
		delete(s.keys, name)
	case b.Settled != call.NotHappened && err == nil && time.Now().Before(end):
		s.keys[name] = keyed{b.CallID, end}
		if len(s.keys)%sweepKeys == 0 {
			maps.DeleteFunc(s.keys, func(_ [16]byte, k keyed) bool { return !time.Now().Before(k.until) })
		}
	}
}

// sweepKeys is after how many keys those that count no more are removed.
const sweepKeys = 4096

func short16(digest string) (k [16]byte) {
	b, _ := hex.DecodeString(digest) // of another form: a key that no row has
	copy(k[:], b)
	return k
}

// Bound returns the reason against acting by a row about a call or a delivery, whose digest is given: the log does not
// have it. A row of an earlier waldo counts, whose records have no digests. So does one that another host has recorded,
// in a database that several share.
func (w *Witness) Bound(ctx context.Context, about, digest string, shared bool) *call.Reason {
	held := false
	err := w.Look(ctx, func(*approval.Ledger) { _, held = w.rows.held[short16(digest)] })
	if held {
		return nil
	}
	forged, earlier, decided := false, false, false
	if err == nil {
		_, err = findTo(ctx, w.Dir, about, func(r Record) bool {
			var b bound
			ofCall := r.Kind == KindOutcome && json.Unmarshal(r.Body, &b) == nil && b.CallID == about
			ofDelivery := r.Kind != KindOutcome && json.Unmarshal(r.Body, &b) == nil && b.DeliveryID == about &&
				slices.Contains([]string{"received", "queued"}, b.Event)
			of := ofCall || ofDelivery
			forged, earlier = forged || of && b.Row != nil, earlier || of
			decided = decided || r.Kind == KindDecision && r.named().CallID == about
			return forged
		})
	}
	switch {
	case err != nil:
		return &call.Reason{Code: "row.unproven", Cause: err.Error(), Text: "the log cannot be read to its end, so what waldo " +
			"remembers of " + about + " is not known to be true; an operator finds why with: waldo log verify"}
	case !forged && (earlier || shared && !decided):
		return nil
	}
	return &call.Reason{Code: "row.forged", Text: "what the database says of " + about +
		" is not what the log recorded, so waldo does not act by it"}
}

// Keyed returns the newest call with a key that can have acted, by its outcome in the log, as long as the key counts.
// Empty: there is none.
func (r *Recorder) Keyed(ctx context.Context, name string, now time.Time) (callID string, err error) {
	err = r.Witness.Look(ctx, func(*approval.Ledger) {
		if k := r.Witness.rows.keys[short16(name)]; now.Before(k.until) {
			callID = k.call
		}
	})
	return callID, err
}

// Bound is that of the witness.
func (r *Recorder) Bound(ctx context.Context, callID, digest string, shared bool) *call.Reason {
	return r.Witness.Bound(ctx, callID, digest, shared)
}

// ending are the members of a record about what became of a call.
type ending struct {
	CallID  string       `json:"call_id"`
	Yes     bool         `json:"yes"`
	Refusal string       `json:"refusal"`
	Settled call.Settled `json:"settled"`
	Facts   struct {
		SideEffect facts.SideEffect `json:"side_effect"`
	} `json:"facts"`
}

// Standing returns what the log has of a call. It counts as allowed if its decision has the call as it is given, and is
// no denial and no dry run, and a human said yes where one was asked.
func (r *Recorder) Standing(ctx context.Context, d policy.Decision, shared bool) (s effects.Standing) {
	decided := func(r Record) bool {
		n := r.named()
		return r.Kind == KindDecision && n.CallID == d.Call.ID && n.DecisionID == d.ID
	}
	all, err := findTo(ctx, r.Log.dir, d.Call.ID, decided)
	if err != nil {
		return s
	}
	s.Foreign, s.Allowed = shared, shared // unless this log has a decision of it
	asks := false
	for _, one := range all {
		var t ending
		if json.Unmarshal(one.Body, &t) != nil || t.CallID != d.Call.ID {
			continue
		}
		switch one.Kind {
		case KindDecision:
			allows, asked := permits(one, d)
			s.Allowed, asks, s.Foreign = s.Allowed && !s.Foreign || allows, asks || asked, false
		case KindAnswer:
			s.Allowed = s.Allowed || asks && t.Yes && t.Refusal == ""
		case KindOutcome:
			s.Ended, s.Known = true, t.Facts.SideEffect != facts.Unknown || s.Settled == call.Happened
		case KindSettled:
			if t.Settled == call.Happened || t.Settled == call.NotHappened {
				s.Known, s.Settled = true, t.Settled
			}
		}
	}
	return s
}

// permits reports whether a decision allows a call as it is given, or asks a human first.
func permits(r Record, d policy.Decision) (allows, asks bool) {
	var b Decided
	under := ""
	if json.Unmarshal(r.Body, &b) == nil && len(b.Delegation) > 0 {
		under = b.Delegation[len(b.Delegation)-1]
	}
	same := b.DecisionID == d.ID && b.Capability == short(string(d.Call.Capability)) &&
		b.Principal == short(string(d.Call.Principal)) && b.ArgsDigest == d.Call.Args.Digest() && !b.DryRun &&
		under == strings.Join(d.Call.Chain, "")
	return same && b.Effect == policy.Allow, same && b.Effect == policy.Ask
}

// Undone returns the call of a capability that has undone the call of a decision, or can have; empty: there is none. It
// reads the log from that decision on.
func (r *Recorder) Undone(ctx context.Context, of policy.Decision, by call.Capability) (string, error) {
	var undo []Decided
	_, err := findTo(ctx, r.Log.dir, of.Call.ID, func(r Record) bool {
		var d Decided
		if r.Kind != KindDecision || json.Unmarshal(r.Body, &d) != nil {
			return false
		}
		if d.Parent == of.Call.ID && d.Capability == short(string(by)) && d.Effect != policy.Deny && !d.DryRun {
			undo = append(undo, d)
		}
		return d.CallID == of.Call.ID && d.DecisionID == of.ID
	})
	for _, d := range undo {
		if effect, ended := Fate(ctx, r.Log.dir, d.CallID); !ended || effect != facts.None {
			return d.CallID, err
		}
	}
	return "", err
}
