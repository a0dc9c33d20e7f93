package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// A row of the database is not evidence. waldo acts by what one says of a call or a delivery only if the log has the
// digest of it: in the record of the outcome, of the settlement, or of the delivery.

// rows are the digests of rows that the log has, shortened.
type rows map[[16]byte]struct{}

// bound are the members of a body that bind a row, and end what one is good for.
type bound struct {
	Row   *string `json:"row"` // empty: there is no row. Records of an earlier waldo lack it
	Ended string  `json:"row_ended"`

	CallID     string `json:"call_id"`
	DeliveryID string `json:"delivery_id"`
	Event      string `json:"event"`
}

// tell takes a record in.
func (s rows) tell(r Record) {
	if !bytes.Contains(r.Body, []byte(`"row`)) || bytes.Contains(r.Body, []byte(`"row":""`)) {
		return
	}
	var b bound
	if json.Unmarshal(r.Body, &b) != nil { // Verify reports it; it binds nothing
		return
	}
	if b.Row != nil {
		s[short16(*b.Row)] = struct{}{}
	}
	delete(s, short16(b.Ended))
}

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
	err := w.Look(ctx, func(*approval.Ledger) { _, held = w.rows[short16(digest)] })
	if held {
		return nil
	}
	forged, earlier := false, false
	var all []Record
	if err == nil {
		all, err = findTo(ctx, w.Dir, about, func(r Record) bool {
			var b bound
			ofCall := r.Kind == KindOutcome && json.Unmarshal(r.Body, &b) == nil && b.CallID == about
			ofDelivery := r.Kind != KindOutcome && json.Unmarshal(r.Body, &b) == nil && b.DeliveryID == about &&
				slices.Contains([]string{"received", "queued"}, b.Event)
			of := ofCall || ofDelivery
			forged, earlier = forged || of && b.Row != nil, earlier || of
			return forged
		})
	}
	switch {
	case err != nil:
		return &call.Reason{Code: "row.unproven", Cause: err.Error(), Text: "the log cannot be read to its end, so what waldo " +
			"remembers of " + about + " is not known to be true; an operator finds why with: waldo log verify"}
	case !forged && (earlier || shared && len(all) == 0):
		return nil
	}
	return &call.Reason{Code: "row.forged", Text: "what the database says of " + about +
		" is not what the log recorded, so waldo does not act by it"}
}

// Bound is that of the witness.
func (r *Recorder) Bound(ctx context.Context, callID, digest string, shared bool) *call.Reason {
	return r.Witness.Bound(ctx, callID, digest, shared)
}

// Asked reports whether the log has a call as it is given. A database that several hosts share has calls of others.
func (r *Recorder) Asked(ctx context.Context, d policy.Decision, shared bool) bool {
	asked := false
	all, err := findTo(ctx, r.Log.dir, d.Call.ID, func(r Record) bool {
		var b Decided
		asked = asked || r.Kind == KindDecision && json.Unmarshal(r.Body, &b) == nil && b.CallID == d.Call.ID &&
			b.DecisionID == d.ID && b.Capability == short(string(d.Call.Capability)) &&
			b.Principal == short(string(d.Call.Principal)) && b.ArgsDigest == d.Call.Args.Digest()
		return asked
	})
	return err == nil && (asked || shared && len(all) == 0)
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
