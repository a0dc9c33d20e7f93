package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"waldo/internal/core/approval"
	"waldo/internal/core/grant"
	"waldo/internal/core/hold"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// Held makes the calls of statements, under the configuration in force.
type Held interface {
	// Prepare gives a call the definition of its tool, and returns why its arguments do not fit it.
	Prepare(ctx context.Context, c *call.Call) *call.Reason
	Call(ctx context.Context, c call.Call) (call.Result, error)
	Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	// Preview returns what a call would do, redacted as its result; nil: it has no preview.
	Preview(ctx context.Context, d policy.Decision) []string
	// Statements returns the questions about statements of a session that a call can still find, the newest first.
	Statements(ctx context.Context, n call.Session) ([]approval.Question, error)
	// Spent returns the questions about statements whose yes a program of a principal has used, the newest first.
	Spent(ctx context.Context, by call.Principal) ([]approval.Question, error)
	// Made returns what the log has of the calls of an approved statement, by their numbers from 1.
	Made(ctx context.Context, approvalID string) (map[int]hold.Row, error)
}

// pass is the approval of a statement, for one of its calls.
type pass struct {
	callID, approval string
	n, of            int // from 1
	bound            string
}

type passKey struct{}

// covered lets the approval of a statement satisfy that of its call. A call that is decided otherwise than it was
// shown is refused.
func covered(ctx context.Context, d *policy.Decision) {
	p, ok := ctx.Value(passKey{}).(pass)
	if !ok || p.callID != d.Call.ID {
		return
	}
	why := call.Reason{Code: "hold.covered", Text: hold.Place(p.n, p.of, p.approval)}
	bound, err := approval.Binding(*d)
	switch {
	case d.Effect == policy.Deny:
		d.Reasons = append(slices.Clone(d.Reasons), why)
		return
	case err != nil || bound != p.bound:
		d.Effect = policy.Deny
		why = call.Reason{Code: "hold.changed", Text: fmt.Sprintf("call %d of approval %s is not decided as it was "+
			"shown: its contract, its tool or its danger differ", p.n, p.approval)}
	default:
		d.Effect = policy.Allow
	}
	d.Reasons = slices.Insert(slices.Clone(d.Reasons), 0, why)
}

// collect holds a decided call until its program has ended.
func (b *Broker) collect(ctx context.Context, d policy.Decision, l *hold.List) (call.Result, error) {
	n, against := l.Add(ctx, d, b.Held.Preview(ctx, d))
	if against != nil {
		d.Reasons = slices.Insert(d.Reasons, 0, *against)
		return b.refuse(ctx, d, "", nil)
	}
	d.Reasons = slices.Insert(d.Reasons, 0, call.Reason{Code: "hold.held",
		Text: fmt.Sprintf("held as call %d of run %s; nothing was done", n, d.Call.Parent)})
	return b.outcome(ctx, d, hold.Added(unexecuted(d, facts.Waiting), n))
}

// runHeld runs a program whose writes are collected, and then asks one question about them. While that question waits,
// or once it has its answer, an equal call does not run the program again.
func (b *Broker) runHeld(
	ctx context.Context, d policy.Decision, g *grant.Grant, e Executor,
) (out call.Outcome, err error) {
	if b.Held == nil {
		return call.Outcome{}, errors.New("held calls: no part of this waldo makes them")
	}
	q, s, err := b.statement(ctx, d)
	if err != nil {
		return out, err
	}
	if s.Program != "" {
		if _, err := g.Redeem(); err != nil { // instead of running the program
			return out, err
		}
		out.Facts = facts.New()
		out.Facts.Status, out.Facts.SideEffect = facts.OK, facts.None
		d.Call.Session = q.Session
		if s.Needs > 0 {
			return waiting(out, q, s), nil
		}
		b.addBefore(ctx, &out, s.Before)
	} else {
		l := hold.New(d, heldRun{b, d})
		out, err = e.Execute(hold.With(ctx, l), g)
		all := l.Close()
		if d.Call.Session = all.Session; out.Suspended == nil {
			out, s = b.close(ctx, out, err, all)
		}
		if len(s.Calls) == 0 {
			return out, err
		}
	}
	r, err := b.askOnce(ctx, d, s)
	merge(&out, r, len(s.Calls))
	return out, err
}

// close adds to the outcome of a program what became of the calls that it waited for, and returns the calls to ask
// about.
func (b *Broker) close(
	ctx context.Context, out call.Outcome, err error, all hold.Closed,
) (call.Outcome, hold.Statement) {
	s, code := all.Rest, out.Facts.ExitCode
	well := err == nil && ctx.Err() == nil && out.Facts.Status == facts.OK && !out.IsError && (code == nil || *code == 0)
	if len(all.Made)+len(s.Calls) > 0 {
		out.Content = append(slices.Clone(out.Content), call.Text("")) // apart from what the program printed
		b.addBefore(ctx, &out, all.Before)
	}
	for _, m := range all.Made {
		merge(&out, m.Result, m.Calls)
		well = well && m.Result.Status == facts.OK
	}
	switch {
	case all.Waits != nil:
		merge(&out, *all.Waits, len(s.Calls))
		say(&out, "The program needed the result of one, and could not wait longer. Make the same call of it again after "+
			"the yes: it starts anew, and the yes counts if its calls up to there are the same.")
	case len(s.Calls) > 0 && !well:
		say(&out, "None of the %d held calls was made, because the program did not end well.", len(s.Calls))
	default:
		return out, s
	}
	return out, hold.Statement{}
}

// waiting is the outcome of a call whose program waits for its second statement, or could not.
func waiting(out call.Outcome, q approval.Question, s hold.Statement) call.Outcome {
	out.Facts.Status, out.IsError = facts.Denied, true
	out.Refused = &call.Reason{Code: "hold.waits", Text: fmt.Sprintf("the program of an equal call made %d calls, and "+
		"then waited for approval %s: go on with its resume id. One that could not be suspended has ended: it can run again when "+
		"that question is over, and makes its first calls again", s.From, q.ID)}
	out.Content = []call.Content{call.Text(out.Refused.Text)}
	return out
}

// heldRun makes the calls of a program that waits for them.
type heldRun struct {
	b   *Broker
	run policy.Decision
}

// Make asks about a statement, and makes its calls.
func (h heldRun) Make(ctx context.Context, s hold.Statement, n call.Session, approvalID string) (hold.Made, error) {
	run, m := h.run, hold.Made{Calls: len(s.Calls), Each: map[int]call.Result{}}
	run.Call.Session = n
	if approvalID != "" {
		run.Call.ApprovalID, run.Effect = approvalID, policy.Allow
	}
	r, err := h.b.askOnce(context.WithValue(ctx, eachKey{}, &m), run, s)
	m.Result = r
	return m, err
}

// Asked returns the statement of an open question.
func (h heldRun) Asked(ctx context.Context, n call.Session, approvalID string) (hold.Statement, bool, error) {
	all, err := h.b.Held.Statements(ctx, n)
	for _, q := range all {
		if s, ours := statementOf(q, h.run.Call); ours && q.ID == approvalID {
			return s, true, err
		}
	}
	return hold.Statement{}, false, err
}

type eachKey struct{}

// statementOf returns the statement of a question; ours: it is one of a program of the same capability and principal.
func statementOf(q approval.Question, run call.Call) (s hold.Statement, ours bool) {
	args, err := call.ParseArgs(q.Args)
	if err != nil || len(q.Reasons) == 0 || q.Reasons[0].Code != approval.HeldCode { // else of a tool of that name
		return s, false
	}
	s, err = hold.Parse(args)
	return s, err == nil && q.Principal == run.Principal && s.Program == string(run.Capability)
}

// statement returns the statement of an equal run whose question can still be found: the one that the call quotes, or
// the newest. The first statement of a program that could not wait for it is none, and nor is one of another
// configuration, whose calls are not covered any more: the program runs again.
func (b *Broker) statement(ctx context.Context, d policy.Decision) (approval.Question, hold.Statement, error) {
	n := d.Call.Session
	if d.Call.Args.Values()["resume"] != nil {
		n = "" // the program can be of an earlier session
	}
	all, err := b.Held.Statements(ctx, n)
	for _, q := range all {
		quoted := d.Call.ApprovalID == "" || d.Effect == policy.Ask || q.ID == d.Call.ApprovalID
		s, ours := statementOf(q, d.Call)
		fits := q.Policy == d.Policy || d.Call.ApprovalID != ""
		if ours && quoted && fits && s.Of(d.Call) && (s.Needs == 0 || s.From > 0) {
			return q, s, err
		}
	}
	return approval.Question{}, hold.Statement{}, err
}

// askOnce passes a statement through the pipeline as one call, which asks a human and then makes its calls.
func (b *Broker) askOnce(ctx context.Context, run policy.Decision, s hold.Statement) (call.Result, error) {
	d, err := s.Decision(run)
	if err != nil {
		return call.Result{}, err
	}
	under, outside := b.under(ctx, &d.Call)
	if outside != nil {
		d.Effect, d.Reasons = policy.Deny, slices.Insert(d.Reasons, 0, *outside)
	}
	again, err := b.again(ctx, d, s)
	if err != nil {
		return call.Result{}, err
	}
	d.Reasons = append(d.Reasons, again...)
	return b.charged(ctx, d, under, d.Call.Args, nil, b.observe(d.Call))
}

// again returns notes on the calls of a statement that an earlier list of the principal already made: a yes to this one
// makes them again. Lists before it of the same run are none of those.
func (b *Broker) again(ctx context.Context, d policy.Decision, s hold.Statement) (notes []call.Reason, err error) {
	spent, err := b.Held.Spent(ctx, d.Call.Principal)
	for _, q := range spent {
		earlier, _ := call.ParseArgs(q.Args)
		was, perr := hold.Parse(earlier)
		if perr != nil || q.ID == d.Call.ApprovalID || slices.Contains(s.Before, q.ID) {
			continue
		}
		if same := s.Same(was); len(same) > 0 {
			made, merr := b.Held.Made(ctx, q.ID)
			notes, err = append(notes, hold.Again(q, same, made)...), errors.Join(err, merr)
		}
	}
	return notes, err
}

// addBefore adds to the outcome of a program what was made under its earlier statements.
func (b *Broker) addBefore(ctx context.Context, out *call.Outcome, approvals []string) {
	for _, one := range approvals {
		made, err := b.Held.Made(ctx, one)
		say(out, "Held calls of this program before, by approval %s:", one)
		if err != nil {
			say(out, "the log could not be read; waldo log has them")
		}
		for _, n := range slices.Sorted(maps.Keys(made)) {
			row, undo := made[n], ""
			if row.Undo != "" && !row.Undone {
				undo = "; undo: waldo undo " + row.CallID
			}
			say(out, "%d. %s %s (%s)%s", n, row.Capability, row.Ended(), row.CallID, undo)
		}
	}
}

// carryAll makes the calls of an approved statement in their order. It stops at the first one that does not succeed.
func (b *Broker) carryAll(ctx context.Context, g *grant.Grant) (out call.Outcome, err error) {
	d, err := g.Redeem()
	if err != nil {
		return out, err
	}
	out.Facts = facts.New()
	out.Facts.Status, out.Facts.SideEffect, out.Answered = facts.OK, facts.None, true
	s, err := hold.Parse(d.Call.Args)
	if err != nil {
		return out, err
	}
	ctx, w := hold.Leaves(ctx), world{b, d, s, nil}
	for _, one := range s.Calls {
		w.was = append(w.was, one.Preview)
	}
	if k := w.differs(ctx, all(len(s.Calls))...); k > 0 {
		out.Facts.Status, out.IsError = facts.Denied, true
		out.Refused = &call.Reason{Code: "hold.differs", Text: fmt.Sprintf("call %d of approval %s would do something else "+
			"now than its preview showed: none was made, and the approval is used up", k, d.Call.ApprovalID)}
		return out, nil
	}
	say(&out, "Held calls, by approval %s:", d.Call.ApprovalID)
	each := map[int]call.Result{}
	if m, _ := ctx.Value(eachKey{}).(*hold.Made); m != nil { // the program waits for them
		m.ApprovalID, each = d.Call.ApprovalID, m.Each
	}
	n := 0
	for ; n < len(s.Calls) && out.Facts.Status == facts.OK && ctx.Err() == nil; n++ {
		if slices.Contains(s.Struck, n+1) {
			say(&out, "%d. %s struck out by %s", n+1, s.Calls[n].Capability, s.By)
			if each[n+1], err = b.strike(ctx, d, s, n); err != nil {
				out.Facts.Status, out.IsError = facts.Failed, true
			}
			continue
		}
		later := s.Changes(n)
		if k := w.differs(ctx, append([]int{n}, later...)...); k > 0 {
			out.Refused = &call.Reason{Code: "hold.differs", Text: fmt.Sprintf("call %d of approval %s would do something else "+
				"now than its preview showed: calls %d to %d were not made", k, d.Call.ApprovalID, n+1, len(s.Calls))}
			break
		}
		r, cerr := b.carryOne(ctx, d, s, n)
		w.renew(ctx, n, later...)
		each[n+1], err = r, cerr
		end := hold.Ended(r)
		out.Facts.SideEffect = out.Facts.SideEffect.And(r.Facts.SideEffect)
		if err != nil || r.Status != facts.OK || r.Facts.SideEffect == facts.Unknown {
			out.Facts.Status, out.IsError = facts.Failed, true
			out.Refused = &call.Reason{Code: "hold.stopped", Text: fmt.Sprintf("call %d of approval %s is %s (%s), so waldo "+
				"made none after it", n+1, d.Call.ApprovalID, end, r.CallID)}
		}
		say(&out, "%d. %s %s%s", n+1, s.Calls[n].Capability, end, about(r))
	}
	if n < len(s.Calls) {
		why := "waldo stops at the first call that does not succeed"
		if out.Refused != nil && out.Refused.Code == "hold.differs" {
			why = out.Refused.Code + ": " + out.Refused.Text
		}
		out.Facts.Status, out.IsError = facts.Failed, true
		say(&out, "%d to %d. not done: %s", n+1, len(s.Calls), why)
	}
	return out, err
}

// world is what the calls of an approved statement would do: as it was shown, or as the last call of the list that can
// change it left it.
type world struct {
	b   *Broker
	d   policy.Decision
	s   hold.Statement
	was [][]string // previews
}

// differs returns the number, from 1, of the first of some calls that would do something else now; 0: there is none.
func (w world) differs(ctx context.Context, calls ...int) int {
	for _, i := range calls {
		if now, ok := w.preview(ctx, i); ok && !slices.Equal(now, w.was[i]) {
			return i + 1
		}
	}
	return 0
}

// renew takes what some calls would do from now on, since call n of the list has just changed it.
func (w world) renew(ctx context.Context, n int, calls ...int) {
	for _, i := range calls {
		if now, ok := w.preview(ctx, i); ok {
			w.was[i] = w.s.Renewed(n, i, w.was[i], now)
		}
	}
}

// preview returns what a call would do now; ok: it was shown, and the call will be made.
func (w world) preview(ctx context.Context, i int) (now []string, ok bool) {
	one := w.s.Calls[i]
	c, err := heldCall(w.d, one)
	if len(one.Preview) == 0 || hold.Unshown(one.Preview) || slices.Contains(w.s.Struck, i+1) || err != nil ||
		w.b.Held.Prepare(ctx, &c) != nil { // the call itself is refused
		return nil, false
	}
	under, _ := w.b.under(ctx, &c)
	return w.b.Held.Preview(ctx, w.b.judge(c, under)), true
}

// all returns the numbers below n.
func all(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// heldCall returns one call of an approved statement.
func heldCall(d policy.Decision, one hold.Held) (c call.Call, err error) {
	c = d.Call
	c.ID, c.Capability, c.Channel, c.ApprovalID, c.Key = id.New(id.Call), one.Capability, "bridge", "", one.Key
	c.Args, err = call.ParseArgs(one.Args)
	return c, err
}

// strike records that a call of an approved statement was struck out.
func (b *Broker) strike(ctx context.Context, d policy.Decision, s hold.Statement, n int) (call.Result, error) {
	c, err := heldCall(d, s.Calls[n])
	if err != nil {
		return call.Result{}, err
	}
	return b.Held.Refuse(ctx, c, call.Reason{Code: "hold.struck",
		Text: hold.Place(n+1, len(s.Calls), d.Call.ApprovalID) + " was struck out by " + s.By})
}

// struck returns the arguments of an answered statement with what the answer struck out. Other calls stay as they are.
func struck(d policy.Decision, a *approval.Answer, args call.Args) (call.Args, error) {
	if d.Contract.Transport != contract.Held || a == nil || len(a.Struck) == 0 {
		return args, nil
	}
	s, err := hold.Parse(args)
	if err != nil {
		return args, err
	}
	s.Struck, s.By = a.Struck, string(a.By)
	for _, more := range a.Also {
		s.By += ", " + more.By
	}
	return call.ArgsOf(s)
}

// carryOne makes one call of an approved statement.
func (b *Broker) carryOne(ctx context.Context, d policy.Decision, s hold.Statement, n int) (call.Result, error) {
	one := s.Calls[n]
	c, err := heldCall(d, one)
	if err != nil {
		return call.Result{Facts: facts.Facts{SideEffect: facts.None}}, err
	}
	if why := b.Held.Prepare(ctx, &c); why != nil {
		return b.Held.Refuse(ctx, c, *why)
	}
	p := pass{c.ID, d.Call.ApprovalID, n + 1, len(s.Calls), one.Bound}
	return b.Held.Call(context.WithValue(ctx, passKey{}, p), c)
}

// about names a call that was made, its answer or the reason against it, and what would undo it.
func about(r call.Result) string {
	text := ""
	for _, c := range r.Content {
		text += c.Text
	}
	why := slices.DeleteFunc(slices.Clone(r.Cause()), func(w call.Reason) bool { return w.Code == "hold.covered" })
	if len(why) > 0 {
		text = why[0].Code + ": " + why[0].Text
	}
	text = fmt.Sprintf(" (%s): %s", r.CallID, display.Quote(text[:min(len(text), 300)]))
	if r.Undo != nil {
		text += "; undo: waldo undo " + r.Acted()
	}
	return text
}

// merge adds to the outcome of a program what became of its held calls.
func merge(out *call.Outcome, r call.Result, n int) {
	switch {
	case r.Status == facts.Waiting:
		out.ApprovalID = r.ApprovalID
		say(out, "%d held calls wait for one yes; none was made.", n)
		for _, why := range r.Why {
			if why.Code == hold.AgainCode {
				say(out, "%s", why.Text)
			}
		}
	case r.Status == facts.Denied && len(r.Why) > 0:
		if out.Facts.SideEffect == facts.None {
			out.Refused = &r.Why[0]
		}
		say(out, "None of the %d held calls was made: %s: %s", n, r.Why[0].Code, r.Why[0].Text)
	case r.Status == facts.Failed && len(r.Why) > 0 && out.Refused == nil:
		out.Refused = &r.Why[0]
	}
	out.Content = append(out.Content, r.Content...)
	out.IsError = out.IsError || r.Status != facts.OK
	if r.Status != facts.OK && r.Status != "" {
		out.Facts.Status = r.Status
	}
	out.Facts.SideEffect = out.Facts.SideEffect.And(r.Facts.SideEffect)
}

// say adds a line to an outcome.
func say(out *call.Outcome, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if n := len(out.Content); n > 0 && out.Content[n-1].Type == "text" {
		out.Content = slices.Clone(out.Content)
		last := &out.Content[n-1]
		if last.Text != "" && !strings.HasSuffix(last.Text, "\n") {
			last.Text += "\n"
		}
		last.Text += text
		return
	}
	out.Content = append(out.Content, call.Text(text))
}

// carry hands a grant to what carries it out.
func (b *Broker) carry(ctx context.Context, d policy.Decision, g *grant.Grant) (call.Outcome, error) {
	e := b.Executors[d.Contract.Transport]
	switch {
	case d.Contract.Transport == contract.Held:
		return b.carryAll(ctx, g)
	case e == nil:
		return call.Outcome{}, fmt.Errorf("capability %s: no executor for transport %q", d.Call.Capability,
			d.Contract.Transport)
	case d.Contract.Hold:
		return b.runHeld(ctx, d, g, e)
	}
	return e.Execute(ctx, g)
}
