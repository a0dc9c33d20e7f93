package records

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"waldo/internal/app"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/effects"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

func Verified(w io.Writer, r audit.Report) {
	p := terminal.Painter(w)
	for _, f := range r.Findings {
		mark := p.Warn("note:")
		if f.Problem {
			mark = p.Bad("problem:")
		} else if f.Unchecked {
			mark = p.Bad("not checked:")
		}
		where := ""
		if f.Segment != "" {
			where = fmt.Sprintf(" %s:%d", f.Segment, f.Line)
		}
		display.Fprintf(w, "%s%s %s (%s)\n", mark, where, f.Text, f.Code)
	}
	word := p.Good("sound")
	if !r.OK {
		word = p.Bad("NOT sound")
	} else if !r.Complete {
		word = p.Warn("sound as far as it was checked")
	}
	display.Fprintf(w, "%s: %s in %s\n%s\n", word, display.Count(int(r.Records), "record"),
		display.Count(r.Segments, "segment"), p.Dim(r.Claim))
}

func Or(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

// Reasons prints the reasons, the deciding one first.
func Reasons(w io.Writer, p terminal.Paint, all []call.Reason) {
	for i, r := range all {
		word := "because"
		if i > 0 {
			word = "also   "
		}
		display.Fprintf(w, "  %s %s %s", word, r.Code, r.Text)
		if r.File != "" && r.Line > 0 {
			display.Fprintf(w, "%s", p.Dim(fmt.Sprintf("  %s:%d:%d", r.File, r.Line, r.Column)))
		} else if r.File != "" {
			display.Fprintf(w, "%s", p.Dim("  "+r.File))
		}
		display.Fprintf(w, "\n")
		if r.Cause != "" {
			display.Fprintf(w, "          %s\n", r.Cause)
		}
	}
}

// at is a line of a file; the built-in contracts have no line.
func at(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// Doubts returns what speaks against the answers among some records, by the enrolments in the log.
func Doubts(ctx context.Context, dir string, some []audit.Record) (map[uint64]string, error) {
	all, err := audit.WithApprovers(ctx, dir, some)
	return audit.Doubts(all), err
}

// Story prints a summary of the records of one call, and of its answers what speaks against them.
func Story(w io.Writer, p terminal.Paint, records []audit.Record, undos Undos, doubts map[uint64]string) error {
	var said []call.Reason // each reason is printed once
	open := false          // decided, without an outcome
	for _, r := range records {
		switch r.Kind {
		case audit.KindDecision:
			var d audit.Decided
			if err := json.Unmarshal(r.Body, &d); err != nil {
				return err
			}
			effect := d.Effect.String()
			if said = deniedLater(records, d); len(said) > 0 {
				effect = policy.Deny.String()
			}
			display.Fprintf(w, "%s %s  %s\n", Effect(p, effect), d.Capability, p.Dim(d.DecisionID+" at "+r.At))
			said, open = append(said, d.Reasons...), true
			Reasons(w, p, said)
			if d.Contract != nil {
				display.Fprintf(w, "  contract %q %s, mode %s, danger %d\n", d.Contract.Pattern,
					p.Dim(at(d.Contract.File, d.Contract.Line)), d.Mode, d.Danger)
			}
			display.Fprintf(w, "  asked by %s over %s; arguments %s\n", d.Principal, through(d.Channel, d.Agent), compact(d.Args))
			if d.Category != "" {
				display.Fprintf(w, "  category of the command: %s\n", d.Category)
			}
			if len(d.Delegation) > 0 {
				display.Fprintf(w, "  under %s, the narrowest %s\n", strings.Join(d.Delegation, " > "), d.Narrowest)
			}
			if len(d.Secrets) > 0 {
				display.Fprintf(w, "  secrets by name: %s\n", strings.Join(d.Secrets, ", "))
			}
		case audit.KindVerdict, audit.KindAnswer:
			if err := tellAnswer(w, p, r, doubts[r.Seq]); err != nil {
				return err
			}
		case audit.KindSettled:
			var s effects.Settlement
			if err := json.Unmarshal(r.Body, &s); err != nil {
				return err
			}
			display.Fprintf(w, "  settled %s by %s %s %s\n", s.Settled, s.By, p.Dim(s.Read), s.Why)
		case app.KindPort:
			display.Fprintf(w, "  %s\n", forwarded(r))
		case audit.KindOutcome:
			var l Line
			if err := json.Unmarshal(r.Body, &l); err != nil {
				return err
			}
			open = false
			display.Fprintf(w, "  ended %s, side effect %s, %.1f ms", l.Status, l.Facts.SideEffect, l.Facts.Usage.WallMS)
			if l.Facts.Sandbox.Driver != "" {
				display.Fprintf(w, ", in a %s sandbox %s", l.Facts.Sandbox.Driver, p.Dim(l.Facts.Sandbox.ID))
			}
			display.Fprintf(w, "\n")
			if of := undos.of[l.CallID]; of != "" {
				display.Fprintf(w, "  undid %s: waldo explain %s\n", of, of)
			}
			if by := undos.by[l.CallID]; by != "" {
				display.Fprintf(w, "  was undone by %s: waldo explain %s\n", by, by)
			} else if l.UndoBy != "" {
				display.Fprintf(w, "  undone by %s: waldo undo %s\n", l.UndoBy, l.CallID)
			}
			for _, warning := range l.Facts.Warnings {
				display.Fprintf(w, "  %s %s\n", p.Warn("warning:"), warning)
			}
			Reasons(w, p, slices.DeleteFunc(l.Why, func(r call.Reason) bool { return slices.Contains(said, r) }))
		}
	}
	if open {
		display.Fprintf(w, "  %s the call is under way, or waldo was killed during it; whether it took effect is not known\n",
			p.Warn("no outcome:"))
	}
	return nil
}

// deniedLater returns why a call that its contract did not deny ended denied; nil: it did not.
func deniedLater(records []audit.Record, d audit.Decided) []call.Reason {
	for _, r := range records {
		var l Line
		if r.Kind == audit.KindOutcome && json.Unmarshal(r.Body, &l) == nil && l.DecisionID == d.DecisionID &&
			l.Status == string(facts.Denied) && d.Effect != policy.Deny {
			return slices.DeleteFunc(l.Why, func(r call.Reason) bool { return slices.Contains(d.Reasons, r) })
		}
	}
	return nil
}

// Verdicts prints what people answered, of records of one question.
func Verdicts(w io.Writer, p terminal.Paint, records []audit.Record, doubts map[uint64]string) error {
	for _, r := range records {
		if r.Kind != audit.KindVerdict {
			continue
		}
		if err := tellAnswer(w, p, r, doubts[r.Seq]); err != nil {
			return err
		}
	}
	return nil
}

func tellAnswer(w io.Writer, p terminal.Paint, r audit.Record, doubt string) error {
	var a audit.Answered
	if err := json.Unmarshal(r.Body, &a); err != nil {
		return err
	}
	word := "no"
	if a.Yes {
		word = "yes"
	}
	when := "answered"
	if r.Kind == audit.KindVerdict {
		when = "at " + r.At + " a human said"
	}
	if struck := approval.StruckIn(a.Signed); len(struck) > 0 {
		word += " without " + approval.NameRows(struck)
	}
	display.Fprintf(w, "  %s %s by %s %s %s\n", when, word, Or(a.Signers(), "waldo"), a.Refusal+a.Reason, p.Dim(a.ApprovalID))
	if doubt != "" {
		display.Fprintf(w, "    %s %s\n", p.Warn("not proven:"), doubt)
	}
	return nil
}

// compact returns redacted arguments on one line of at most 200 characters.
func compact(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return "not kept"
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "not kept"
	}
	if r := []rune(b.String()); len(r) > 200 {
		return string(r[:199]) + "…"
	}
	return b.String()
}

// Undos are the calls that undid others, and those that were undone.
type Undos struct{ of, by map[string]string }

// OfCalls returns every record of the calls that some records are about, in the order of the log, and which of them
// were undone by others or undid others.
func OfCalls(ctx context.Context, dir string, some []audit.Record) (all []audit.Record, undos Undos, err error) {
	calls, parents := []string{}, []string{}
	for _, r := range some {
		if l := lineOf(r); l.CallID != "" {
			calls, parents = append(calls, l.CallID), append(parents, l.Parent)
		}
	}
	about := append(slices.Clone(calls), parents...)
	of := audit.Selection{About: about, Match: func(r audit.Record) bool { return slices.Contains(about, callOf(r)) }}
	ended, parent := map[string]Line{}, map[string]string{}
	_, err = audit.Select(ctx, dir, of, func(r audit.Record) error {
		l := lineOf(r)
		if slices.Contains(calls, l.CallID) {
			all = append(all, r)
		}
		switch r.Kind {
		case audit.KindDecision:
			parent[l.CallID] = l.Parent
		case audit.KindOutcome:
			ended[l.CallID] = l
		}
		return nil
	})
	undos = Undos{map[string]string{}, map[string]string{}}
	for c, l := range ended {
		if p := parent[c]; p != "" && ended[p].UndoBy == l.Capability && l.Status == string(facts.OK) {
			undos.of[c], undos.by[p] = p, c
		}
	}
	return all, undos, err
}

// ByCall groups records by their call, the earliest call first.
func ByCall(all []audit.Record) (groups [][]audit.Record) {
	at := map[string]int{}
	for _, r := range all {
		c := callOf(r)
		i, known := at[c]
		if !known {
			i = len(groups)
			at[c], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// Waits reports whether a call, by its records, ended waiting for an answer, and to which approval; empty: not to one.
func Waits(one []audit.Record) (approvalID string, waits bool) {
	l := lineOf(one[len(one)-1])
	return l.ApprovalID, l.Status == string(facts.Waiting)
}

// callOf returns the id of the call that a record is about; empty: none.
func callOf(r audit.Record) string { return lineOf(r).CallID }

func lineOf(r audit.Record) (l Line) {
	_ = json.Unmarshal(r.Body, &l) // a record without a call
	return l
}
