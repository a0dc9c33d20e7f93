package audit

import (
	"bytes"

	"waldo/internal/model/call"
)

// fate is what a log has of one decision and its call, so far.
type fate struct {
	about, call uint64 // hashes of what the decision was about, and of the call's id
	row         uint64 // hash of the row that the last settlement binds
	decided     permit
	yes         bool // a human said yes where one was asked
	ended       bool // there is an outcome
	settled     bool // there is a settlement with a word
	acted       acts
}

// permit is what a decision allows.
type permit uint8

const (
	denied permit = iota // so is a dry run
	asks
	allows
)

// acts is what is known of a call's effect.
type acts uint8

const (
	open acts = iota
	did
	didNot
)

func (f fate) allowed() bool { return f.decided == allows || f.decided == asks && f.yes }

// permitOf returns what a decision allows, by its members as spelled.
func permitOf(effect, dryRun []byte) permit {
	switch {
	case string(dryRun) == "true":
	case string(effect) == `"allow"`:
		return allows
	case string(effect) == `"ask"`:
		return asks
	}
	return denied
}

func actsOf(text []byte, yes, no string) acts {
	switch string(text) {
	case yes:
		return did
	case no:
		return didNot
	}
	return open
}

// endingText are the members of an outcome or a settlement, as spelled.
type endingText struct{ decision, call, facts, why, settled, row []byte }

func endingOf(body []byte) (e endingText) {
	members(body, func(name, value []byte) {
		switch string(name) {
		case `"decision_id"`:
			e.decision = value
		case `"call_id"`:
			e.call = value
		case `"facts"`:
			e.facts = value
		case `"why"`:
			e.why = value
		case `"settled"`:
			e.settled = value
		case `"row"`:
			e.row = value
		}
	})
	return e
}

// endings holds an outcome or a settlement against the decision that it names, and what the log has of that call.
func (v *verifier) endings(r Record) {
	if r.Kind != KindOutcome && r.Kind != KindSettled {
		return
	}
	e := endingOf(r.Body)
	id := hashID(string(e.decision))
	f, known := v.decided[id]
	switch {
	case e.decision == nil && e.call == nil: // about no call
	case !known && (v.start > 1 || v.aside != nil): // the decision was removed, or set aside
	case !known && r.Kind == KindSettled:
		v.notice("settled.elsewhere", "record %d settles call %s, whose decision is not in this log: another host's, or "+
			"nobody's", r.Seq, e.call)
	case !known || f.call != hashID(string(e.call)):
		v.problem("outcome.decision", "record %d is about call %s, and no decision before it is", r.Seq, e.call)
	case r.Kind == KindOutcome:
		v.decided[id] = v.outcome(r, f, e)
	default:
		v.decided[id] = v.settlement(r, f, e)
	}
}

// outcome holds an outcome against the call. Waldos that start at one moment can both record that it was killed.
// Earlier ones recorded that also where it was killed while a human was asked.
func (v *verifier) outcome(r Record, f fate, e endingText) fate {
	acted := open
	members(e.facts, func(name, value []byte) {
		if string(name) == `"side_effect"` {
			acted = actsOf(value, `"confirmed"`, `"none"`)
		}
	})
	killed := acted == open && bytes.Contains(e.why, []byte(`"code":"effects.killed"`))
	if f.ended {
		v.find(!killed || f.acted != open, "outcome.twice", "record %d is a second outcome of call %s", r.Seq, e.call)
	}
	if acted != didNot && !f.allowed() {
		v.find(!killed || f.decided != asks, "outcome.denied",
			"record %d says that call %s can have acted, and the log did not allow it", r.Seq, e.call)
	}
	if f.settled && f.acted == did && acted == didNot {
		v.problem("settled.contrary", "record %d says that call %s did not act, and it was settled as happened",
			r.Seq, e.call)
	}
	f.ended = true
	if acted != open || f.acted == didNot { // not_happened says nothing of a second try
		f.acted = acted
	}
	return f
}

// settlement holds a settlement against the call. Two waldos can settle a call at one moment, with one word for one
// row. A call that did not happen can be tried again, before its outcome.
func (v *verifier) settlement(r Record, f fate, e endingText) fate {
	word := actsOf(e.settled, `"`+string(call.Happened)+`"`, `"`+string(call.NotHappened)+`"`)
	if !f.allowed() && (word == did || f.decided == denied) {
		v.problem("settled.denied", "record %d settles call %s, which the log did not allow", r.Seq, e.call)
	}
	row := hashID(string(e.row))
	switch {
	case word == open:
		return f
	case f.acted == open, f.acted == didNot && !f.ended, f.acted == word && f.settled && f.row == row:
	case f.acted == word:
		v.problem("settled.known", "record %d settles call %s, whose outcome was known", r.Seq, e.call)
	default:
		v.problem("settled.contrary", "record %d settles call %s as %s, and the log had it otherwise",
			r.Seq, e.call, e.settled)
	}
	f.acted, f.settled, f.row = word, true, row
	return f
}
