package records

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// Session is what the log has of one session, as waldo explain SESSION --json prints it. Times are RFC 3339 in UTC.
type Session struct {
	ID        string         `json:"session"`
	Principal string         `json:"principal"`
	Channel   string         `json:"channel"`         // of its first call
	Agent     string         `json:"agent,omitempty"` // the agent host, as it calls itself
	Host      string         `json:"host,omitempty"`  // of waldo launch; empty: --command, or no launch
	Version   string         `json:"version,omitempty"`
	Program   string         `json:"program,omitempty"` // that waldo launch started
	Project   string         `json:"project,omitempty"` // its folder
	Began     string         `json:"began"`             // at the first record
	Last      string         `json:"last"`              // at the last record
	Ended     *SessionCall   `json:"ended"`             // the call of the program; null: it has no outcome, or no launch
	Stopped   string         `json:"stopped_by,omitempty"`
	Decisions map[string]int `json:"decisions"` // how many, by effect
	Calls     []SessionCall  `json:"calls"`
	Refused   []SessionCall  `json:"refused"` // those of the calls that were denied, by whomever
	Questions []Question     `json:"questions"`
	Reached   []string       `json:"hosts_reached"`     // host:port
	Unreached []string       `json:"hosts_not_reached"` // allowed, and not connected
	Denied    []string       `json:"hosts_refused"`
	Changes   []*Changes     `json:"changes"` // of the calls that changed files
	Ports     []string       `json:"ports"`   // of the session, forwarded to this machine
}

// Changes are those of one call below its writable mounts.
type Changes struct {
	CallID string `json:"call_id"`
	*facts.Changes
}

// SessionCall is one call of a session.
type SessionCall struct {
	CallID     string        `json:"call_id"`
	DecisionID string        `json:"decision_id"`
	At         string        `json:"at"`
	Capability string        `json:"capability"`
	Parent     string        `json:"parent,omitempty"`
	Effect     string        `json:"effect"`
	Status     string        `json:"status"` // empty: no outcome
	SideEffect string        `json:"side_effect,omitempty"`
	ExitCode   *int          `json:"exit_code,omitempty"`
	WallMS     float64       `json:"wall_ms"`
	Why        []call.Reason `json:"why"`
	Warnings   []string      `json:"warnings,omitempty"`
}

// Question is one that a call of a session asked.
type Question struct {
	ApprovalID string `json:"approval_id,omitempty"` // empty: the log has no answer yet
	CallID     string `json:"call_id"`
	Capability string `json:"capability"`
	Answer     string `json:"answer"` // yes, no, or the code of a refusal by waldo; empty: none
	By         string `json:"by,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Doubt      string `json:"not_proven,omitempty"` // what speaks against the answer
}

// SessionOf reads a session from the log: named are the records that name it, as audit.InSession returns them.
func SessionOf(ctx context.Context, dir, ident string, named []audit.Record) (s Session, err error) {
	s = Session{ID: ident, Decisions: map[string]int{}, Calls: []SessionCall{}, Refused: []SessionCall{},
		Questions: []Question{}, Reached: []string{}, Unreached: []string{}, Denied: []string{}, Changes: []*Changes{},
		Ports: []string{}}
	all, _, err := OfCalls(ctx, dir, named)
	if err != nil {
		return s, err
	}
	for _, r := range named {
		s.add(r)
	}
	doubts, err := Doubts(ctx, dir, all)
	if err != nil {
		return s, err
	}
	for _, one := range ByCall(all) {
		s.addCall(one, doubts)
	}
	for _, list := range []*[]string{&s.Reached, &s.Unreached, &s.Denied} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return s, s.answerLater(ctx, dir)
}

// About returns the ids of some records and of the calls that they are about.
func About(some []audit.Record) (ids []string) {
	for _, r := range some {
		ids = append(ids, r.ID)
		if c := callOf(r); c != "" {
			ids = append(ids, c)
		}
	}
	return ids
}

// Launched returns the session that a call of waldo launch started, by its records; empty: none of them is of one.
func Launched(of []audit.Record) string {
	for _, r := range of {
		if l := lineOf(r); r.Kind == audit.KindDecision && l.Capability == call.Launch && l.Channel == call.Launch {
			return l.Session
		}
	}
	return ""
}

// add takes what a record that names the session has of it as a whole.
func (s *Session) add(r audit.Record) {
	l := lineOf(r)
	s.Began, s.Last = Or(s.Began, r.At), max(s.Last, r.At)
	s.Principal, s.Agent = Or(s.Principal, l.Principal), Or(s.Agent, l.Agent)
	switch r.Kind {
	case call.Launch:
		var b struct{ Host, Version, Program, Project string }
		_ = json.Unmarshal(r.Body, &b) // a record of a later form lacks some
		s.Host, s.Version, s.Program, s.Project = b.Host, b.Version, b.Program, b.Project
	case audit.KindDecision:
		s.Channel = Or(s.Channel, l.Channel)
	case app.KindPort:
		s.Ports = append(s.Ports, string(forwarded(r)))
	case control.KindStop:
		s.Stopped = l.By
	}
}

// addCall takes the records of one call.
func (s *Session) addCall(one []audit.Record, doubts map[uint64]string) {
	c, q := SessionCall{Why: []call.Reason{}}, Question{}
	for _, r := range one {
		l := lineOf(r)
		s.Last = max(s.Last, r.At)
		switch r.Kind {
		case audit.KindDecision:
			c.CallID, c.DecisionID, c.At, c.Capability = l.CallID, l.DecisionID, r.At, l.Capability
			c.Parent, c.Effect = l.Parent, l.Effect
			s.Decisions[l.Effect]++
			if l.Effect == policy.Deny.String() {
				c.Why = l.Reasons
			}
		case audit.KindAnswer:
			q = answerIn(l, doubts[r.Seq])
		case audit.KindOutcome:
			c.Status, c.SideEffect, c.ExitCode, c.WallMS = l.Status, l.Facts.SideEffect, l.Facts.ExitCode,
				l.Facts.Usage.WallMS
			c.Warnings, q.ApprovalID = l.Facts.Warnings, Or(q.ApprovalID, l.ApprovalID)
			if l.Status == string(facts.Denied) {
				c.Why = l.Why
			}
			if l.Facts.Files.Changes != nil {
				s.Changes = append(s.Changes, &Changes{l.CallID, l.Facts.Files.Changes})
			}
			s.addHosts(l.Facts.Network)
		}
	}
	s.Calls = append(s.Calls, c)
	if c.Status == string(facts.Denied) || c.Effect == policy.Deny.String() {
		s.Refused = append(s.Refused, c)
	}
	if c.Capability == call.Launch && c.Status != "" {
		s.Ended = &c
	}
	if c.Effect == policy.Ask.String() || q.ApprovalID != "" {
		q.CallID, q.Capability = c.CallID, c.Capability
		s.Questions = append(s.Questions, q)
	}
}

func answerIn(l Line, doubt string) Question {
	q := Question{ApprovalID: l.ApprovalID, By: l.By, Reason: l.Reason, Doubt: doubt, Answer: "no"}
	if l.Yes != nil && *l.Yes {
		q.Answer = "yes"
	}
	if l.Refusal != "" {
		q.Answer = l.Refusal
	}
	return q
}

func (s *Session) addHosts(n facts.Network) {
	for _, a := range n.Tried() {
		at := a.Host
		if a.Port != 0 {
			at = net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
		}
		switch {
		case a.Result() == facts.Reached:
			s.Reached = append(s.Reached, at)
		case a.Result() == facts.Unreached:
			s.Unreached = append(s.Unreached, at)
		default:
			s.Denied = append(s.Denied, at)
		}
	}
}

// answerLater adds the answers that came after their calls had ended waiting.
func (s *Session) answerLater(ctx context.Context, dir string) error {
	at := map[string]int{}
	for i, q := range s.Questions {
		if q.Answer == "" && q.ApprovalID != "" {
			at[q.ApprovalID] = i
		}
	}
	if len(at) == 0 {
		return nil
	}
	var found []audit.Record
	of := audit.Selection{About: slices.Collect(maps.Keys(at)), Kind: audit.KindVerdict}
	if _, err := audit.Select(ctx, dir, of, func(r audit.Record) error {
		found = append(found, r)
		return nil
	}); err != nil {
		return err
	}
	doubts, err := Doubts(ctx, dir, found)
	for _, r := range found {
		l := lineOf(r)
		if i, is := at[l.ApprovalID]; is {
			q := answerIn(l, doubts[r.Seq])
			q.CallID, q.Capability = s.Questions[i].CallID, s.Questions[i].Capability
			s.Questions[i] = q
		}
	}
	return err
}

// most is how many lines of a list of a session are shown to a person.
const most = 40

// Print prints a session for a person. A list has at most 40 lines.
func (s Session) Print(w io.Writer, p terminal.Paint) {
	display.Fprintf(w, "session %s of %s over %s\n", s.ID, s.Principal, through(s.Channel, s.Agent))
	if s.Program != "" {
		display.Fprintf(w, "  ran %s in %s\n", strings.TrimSpace(Or(s.Host, s.Program)+" "+s.Version), s.Project)
	}
	display.Fprintf(w, "  from %s to %s\n", s.Began, s.Last)
	s.printEnd(w, p)
	display.Fprintf(w, "  decisions: %d allowed, %d asked, %d denied\n", s.Decisions["allow"], s.Decisions["ask"],
		s.Decisions["deny"])
	for i, c := range s.Calls {
		if i == most {
			display.Fprintf(w, "  and %s: waldo log -n 0 --call %s\n", display.Count(len(s.Calls)-most, "more call"), s.ID)
			break
		}
		display.Fprintf(w, "  call %s %s %s\n", p.Dim(c.CallID), Or(c.Status, "no outcome"), c.Capability)
	}
	for _, c := range s.Refused[:min(most, len(s.Refused))] {
		display.Fprintf(w, "  %s %s %s", p.Bad("refused"), c.Capability, p.Dim(c.CallID))
		if len(c.Why) > 0 {
			display.Fprintf(w, ": %s  %s", c.Why[0].Text, p.Dim(place(c.Why[0])))
		}
		display.Fprintf(w, "\n")
	}
	for _, q := range s.Questions[:min(most, len(s.Questions))] {
		display.Fprintf(w, "  asked %s %s: %s", q.Capability, p.Dim(Or(q.ApprovalID, q.CallID)), Or(q.Answer, "no answer"))
		if q.Answer != "" {
			display.Fprintf(w, " by %s %s", Or(q.By, "waldo"), q.Reason)
		}
		display.Fprintf(w, "\n")
		if q.Doubt != "" {
			display.Fprintf(w, "    %s %s\n", p.Warn("not proven:"), q.Doubt)
		}
	}
	for _, l := range []struct {
		word  string
		hosts []string
	}{{"reached", s.Reached}, {"not reached", s.Unreached}, {"refused", s.Denied}} {
		if n := len(l.hosts); n > 0 {
			display.Fprintf(w, "  hosts %s: %s", l.word, strings.Join(l.hosts[:min(most, n)], " "))
			if n > most {
				display.Fprintf(w, " and %d more", n-most)
			}
			display.Fprintf(w, "\n")
		}
	}
	for _, line := range s.Ports {
		display.Fprintf(w, "  %s\n", line)
	}
	for _, c := range s.Changes {
		c.print(w)
	}
}

func (s Session) printEnd(w io.Writer, p terminal.Paint) {
	if s.Stopped != "" {
		display.Fprintf(w, "  stopped by %s\n", s.Stopped)
	}
	e := s.Ended
	switch {
	case e != nil && e.ExitCode != nil:
		display.Fprintf(w, "  ended %s, exit status %d, side effect %s, %.1f ms\n", e.Status, *e.ExitCode,
			e.SideEffect, e.WallMS)
	case e != nil:
		display.Fprintf(w, "  ended %s, side effect %s, %.1f ms\n", e.Status, e.SideEffect, e.WallMS)
	case s.Program != "":
		display.Fprintf(w, "  %s it is under way, or waldo was killed during it\n", p.Warn("no end:"))
	}
	if e != nil {
		for _, warning := range e.Warnings {
			display.Fprintf(w, "  %s %s\n", p.Warn("warning:"), warning)
		}
	}
}

func (c Changes) print(w io.Writer) {
	display.Fprintf(w, "  changes of %s (%s): %d written, %d renamed, %d removed\n", c.CallID, c.Mode, len(c.Written),
		len(c.Renamed), len(c.Removed))
	lines := c.Lines()
	for _, l := range lines[:min(most, len(lines))] {
		display.Fprintf(w, "    %s\n", l)
	}
	if more := len(lines) - most; more > 0 {
		display.Fprintf(w, "    and %s: waldo changes %s\n", display.Count(more, "more change"), c.CallID)
	}
	if c.Partial {
		display.Fprintf(w, "    there can be more\n")
	}
}
