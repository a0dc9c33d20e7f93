package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/hold"
	"waldo/internal/core/policy"
	"waldo/internal/executor/preview"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/storage/programs"
)

// Programs returns the suspended programs of a state directory, and those that replicas of it share.
func (s *Storage) Programs() programs.Store {
	return programs.Store{Dir: s.Store.Path("programs"), Rows: s.Store}
}

// suspendedPrograms stores suspended programs in the state directory or, where replicas share their questions, in the
// database.
type suspendedPrograms struct{ h *App }

func (s suspendedPrograms) store() programs.Store {
	all := s.h.Programs()
	all.Shares = s.h.Approvals.Replicated()
	return all
}

// Save stores a program with its session, which its approvals are bound to.
func (s suspendedPrograms) Save(run call.Call, place call.Suspension) (string, error) {
	info, ok := s.h.Sessions.Get(run.Session)
	if !ok {
		return "", fmt.Errorf("session %s is not open", run.Session)
	}
	start := run.Args.Raw()
	if before := resumes(run.Args); before != "" {
		p, err := s.store().Look(before, string(run.Principal))
		if err != nil {
			return "", err
		}
		start = p.Start
	}
	return s.store().Save(programs.Program{
		Capability: string(run.Capability), Session: string(run.Session), Principal: string(run.Principal),
		Workspace: info.Workspace, Delegation: leaf(run), Approvals: place.Approvals, At: time.Now(), Start: start,
		Image: place.Image, Place: s.h.Store.Place(),
	})
}

// resumes returns the id of the suspended program that a call names; empty: none.
func resumes(args call.Args) string {
	name, _ := args.Values()["resume"].(string)
	return name
}

// previewResumed describes the program that a call resumes, by the call that started it. Other calls have no preview
// here.
func previewResumed(all programs.Store, d policy.Decision) []string {
	name := resumes(d.Call.Args)
	if name == "" || !preview.RunsCode(d.Call.Capability) {
		return nil
	}
	p, err := all.Look(name, string(d.Call.Principal))
	if err != nil || p.Capability != string(d.Call.Capability) {
		return []string{"no such program is suspended"}
	}
	args, err := call.ParseArgs(p.Start)
	if err != nil || len(p.Start) == 0 {
		return []string{"a suspended program goes on; its code is not on record"}
	}
	d.Call.Args = args
	more := maps.Clone(args.Values())
	delete(more, "code")
	lines := append([]string{fmt.Sprintf("a program that was suspended at %s goes on; it started with %d bytes, %s",
		p.At.UTC().Format(time.RFC3339), len(p.Start), args.Digest())}, preview.Sandboxed(d)...)
	if b, err := json.MarshalIndent(more, "", "  "); err == nil && len(more) > 0 {
		lines = append(lines, preview.Numbered("its other arguments", string(b))...)
	}
	return lines
}

// Take takes a program and opens its session again, where that has ended with another waldo.
func (s suspendedPrograms) Take(run call.Call, name string) (place call.Suspension, n call.Session, _ error) {
	p, err := s.store().Take(name, string(run.Principal))
	if err != nil {
		return place, "", err
	}
	if p.Capability != string(run.Capability) {
		return place, "", errors.Join(fmt.Errorf("this program belongs to %s", p.Capability), s.store().Return(name))
	}
	if p.Delegation != leaf(run) { // its code would have the authority of who goes on with it
		return place, "", errors.Join(programs.ErrAbsent, s.store().Return(name))
	}
	if p.Place != s.h.Store.Place() && s.h.Config.Redaction.Tokens { // here they stand for other values
		return place, "", errors.Join(errors.New("tokens of personal data (redaction.tokens) do not come along "+
			"from another replica: call that one"), s.store().Return(name))
	}
	session := call.Session(p.Session)
	if _, open := s.h.Sessions.Get(session); !open {
		if _, err := s.h.Sessions.Resume(session, run.Principal, p.Workspace); err != nil {
			return place, "", errors.Join(err, s.store().Return(name))
		}
	}
	return call.Suspension{Image: p.Image, Approvals: p.Approvals}, session, nil
}

// leaf returns the delegation that a call is made under; empty: none.
func leaf(c call.Call) string {
	if len(c.Chain) == 0 {
		return ""
	}
	return c.Chain[len(c.Chain)-1]
}

// RevokePrograms removes the suspended programs of delegations, so that they never go on. It returns how many there were.
func (s *Storage) RevokePrograms(delegations []string) (int, error) {
	return s.Programs().Remove(func(p programs.Program) bool { return slices.Contains(delegations, p.Delegation) })
}

// StopPrograms removes the suspended programs of a stopped session, principal or everybody, so that they never go on. It
// returns how many there were.
func (s *Storage) StopPrograms(name string) (int, error) {
	return s.Programs().Remove(func(p programs.Program) bool {
		return name == control.Everybody || p.Session == name || p.Principal == name
	})
}

// End forgets a program that went on.
func (s suspendedPrograms) End(name string, ran bool) error {
	if !ran {
		return s.store().Return(name)
	}
	return s.store().End(name)
}

// heldCalls makes the calls of a program whose writes were held, under the configuration in force.
type heldCalls struct{ *App }

// Preview returns what a call would do.
func (h heldCalls) Preview(ctx context.Context, d policy.Decision) []string {
	return h.lives.preview(ctx, d)
}

// Statements returns the questions about the held calls of a session that a call can still find, the newest first; of
// all sessions, if n is empty.
func (h heldCalls) Statements(ctx context.Context, n call.Session) ([]approval.Question, error) {
	return h.Approvals.Standing(ctx, n, approval.Held)
}

// Spent returns the questions about held calls whose yes a program of a principal has used, the newest first.
func (h heldCalls) Spent(ctx context.Context, by call.Principal) ([]approval.Question, error) {
	return h.Approvals.Spent(ctx, approval.Held, by)
}

// lineOf is what a record of the log says of a held call, or of the call that made it.
type lineOf struct {
	CallID     string          `json:"call_id"`
	DecisionID string          `json:"decision_id"`
	Parent     string          `json:"parent"`
	Capability call.Capability `json:"capability"`
	Reasons    []call.Reason   `json:"reasons"`
	Status     facts.Status    `json:"status"`
	Settled    call.Settled    `json:"settled"`
	Why        []call.Reason   `json:"why"`
	UndoBy     call.Capability `json:"undo_by"`
	Facts      struct {
		SideEffect facts.SideEffect `json:"side_effect"`
	} `json:"facts"`
}

// Made returns what the log has of the calls of an approved statement, by their numbers from 1. A call without an
// outcome is unknown.
func (h heldCalls) Made(ctx context.Context, approvalID string) (map[int]hold.Row, error) {
	look := func(about []string, fn func(kind string, l lineOf)) error {
		if len(about) == 0 {
			return nil
		}
		_, err := audit.Select(ctx, audit.Dir(h.State), audit.Selection{About: about}, func(r audit.Record) error {
			var l lineOf
			if json.Unmarshal(r.Body, &l) == nil { // a record without a call
				fn(r.Kind, l)
			}
			return nil
		})
		return err
	}
	var decisions, runs, calls []string
	rows, at := map[int]hold.Row{}, map[string]int{}
	err := look([]string{approvalID}, func(kind string, l lineOf) {
		if kind == audit.KindAnswer {
			decisions = append(decisions, l.DecisionID)
		}
	})
	err = errors.Join(err, look(decisions, func(kind string, l lineOf) {
		if kind == audit.KindDecision && l.Capability == approval.Held {
			runs = append(runs, l.Parent)
		}
	}))
	err = errors.Join(err, look(runs, func(kind string, l lineOf) {
		for _, why := range l.Reasons {
			if n, of := hold.PlaceOf(why); kind == audit.KindDecision && n > 0 && of == approvalID {
				calls, at[l.CallID] = append(calls, l.CallID), n
				rows[n] = hold.Row{CallID: l.CallID, Capability: l.Capability, Struck: why.Code == "hold.struck",
					Result: call.Result{Facts: facts.Facts{SideEffect: facts.Unknown}}}
			}
		}
	}))
	var undos []string
	undoes := map[string]int{}
	err = errors.Join(err, look(calls, func(kind string, l lineOf) {
		n, ours := at[l.CallID]
		row := rows[n]
		switch {
		case !ours:
			if of := at[l.Parent]; of > 0 && kind == audit.KindDecision {
				undos, undoes[l.CallID] = append(undos, l.CallID), of
			}
			return
		case kind == audit.KindOutcome:
			row.Result = call.Result{Status: l.Status, Facts: facts.Facts{SideEffect: l.Facts.SideEffect}, Why: l.Why}
			row.Undo = l.UndoBy
		case l.Settled == call.Happened:
			row.Result.Settled, row.Result.Facts.SideEffect = l.Settled, facts.Confirmed
		case l.Settled == call.NotHappened:
			row.Result.Settled, row.Result.Facts.SideEffect = l.Settled, facts.None
		}
		rows[n] = row
	}))
	return rows, errors.Join(err, look(undos, func(kind string, l lineOf) {
		n := undoes[l.CallID]
		row := rows[n]
		if kind == audit.KindOutcome && row.Undo != "" && row.Undo == l.Capability && l.Status == facts.OK {
			row.Undone = true
			rows[n] = row
		}
	}))
}
