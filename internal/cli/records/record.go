// Package records prints what the log says: one line for a record, the story of a call, the verdict on the log.
package records

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// Line has the fields of all record kinds that fit in one line.
type Line struct {
	CallID     string        `json:"call_id"`
	DecisionID string        `json:"decision_id"`
	Parent     string        `json:"parent"`
	ApprovalID string        `json:"approval_id"`
	Capability string        `json:"capability"`
	Category   string        `json:"category"`
	Effect     string        `json:"effect"`
	Status     string        `json:"status"`
	Yes        *bool         `json:"yes"`
	Refusal    string        `json:"refusal"`
	Reason     string        `json:"reason"`
	By         string        `json:"by"`
	Channel    string        `json:"channel"`
	Principal  string        `json:"principal"`
	Session    string        `json:"session"`
	Agent      string        `json:"agent"`
	Reasons    []call.Reason `json:"reasons"`
	Why        []call.Reason `json:"why"`
	UndoBy     string        `json:"undo_by"`
	From       string        `json:"from"`
	Facts      struct {
		SideEffect string `json:"side_effect"`
		ExitCode   *int   `json:"exit_code"`
		Usage      struct {
			WallMS float64 `json:"wall_ms"`
		} `json:"usage"`
		Sandbox struct {
			Driver string `json:"driver"`
			ID     string `json:"id"`
		} `json:"sandbox"`
		Network facts.Network `json:"network"`
		Files   struct {
			Changes *facts.Changes `json:"changes"`
		} `json:"files"`
		Warnings []string `json:"warnings"`
	} `json:"facts"`
}

// Lines shows records of features in one line, by kind.
type Lines map[string]func(p terminal.Paint, body json.RawMessage) display.Text

// Kinds returns every kind of record, sorted. lines has those of features.
func Kinds(lines Lines) []string {
	all := []string{"genesis", "recovered", audit.KindDecision, audit.KindVerdict, audit.KindAnswer, audit.KindOutcome,
		audit.KindApprover, audit.KindTrust, audit.KindChange, audit.KindEgress, audit.KindPruned, control.KindReload,
		control.KindStop, app.KindPort}
	all = slices.AppendSeq(all, maps.Keys(lines))
	slices.Sort(all)
	return slices.Compact(all)
}

// Print prints a record in one line, or as JSON. lines shows the records of features.
func Print(w io.Writer, asJSON bool, r audit.Record, now time.Time, lines Lines) {
	if asJSON {
		b, err := json.Marshal(r)
		if err == nil {
			display.Fprintf(w, "%s\n", display.Text(display.JSON(b)))
		}
		return
	}
	var l Line
	_ = json.Unmarshal(r.Body, &l) // other kinds lack these fields
	p := terminal.Painter(w)
	what := display.Text("")
	switch r.Kind {
	case audit.KindDecision:
		what = display.Sprintf("%s %s by %s over %s", Effect(p, l.Effect), l.Capability, l.Principal, through(l.Channel, l.Agent))
		if l.Category != "" {
			what += display.Sprintf(", category %s", l.Category)
		}
		if len(l.Reasons) > 0 {
			what += p.Dim("  " + place(l.Reasons[0]))
		}
		for _, r := range l.Reasons {
			if r.Code == call.DelegationChain {
				what += display.Sprintf("  %s", r.Text)
			}
		}
	case audit.KindVerdict, audit.KindAnswer:
		word := p.Bad("no")
		if l.Yes != nil && *l.Yes {
			word = p.Good("yes")
		}
		var a audit.Answered
		_ = json.Unmarshal(r.Body, &a)
		what = display.Sprintf("%s to %s by %s", word, l.Capability, a.Signers())
		if l.Refusal != "" {
			what = display.Sprintf("no answer to %s by %s: %s: %s", l.Capability, Or(l.By, "waldo"), l.Refusal, l.Reason)
		}
	case audit.KindOutcome:
		what = display.Sprintf("%s %s, side effect %s, %.1f ms", l.Status, l.Capability, l.Facts.SideEffect,
			l.Facts.Usage.WallMS)
		if l.Status == string(facts.Denied) && len(l.Why) > 0 {
			what += p.Dim("  " + place(l.Why[0]))
		}
		if l.Facts.Sandbox.Driver != "" {
			what += display.Sprintf(", in %s %s", l.Facts.Sandbox.Driver, l.Facts.Sandbox.ID)
		}
		if denied := l.Facts.Network.Denied; len(denied) > 0 {
			what += display.Sprintf(", %s %s", p.Bad("refused"), strings.Join(denied, " "))
		}
	case audit.KindApprover:
		var e audit.Enrolled
		_ = json.Unmarshal(r.Body, &e)
		what = enrolled(p, e)
	case audit.KindPruned:
		var e audit.Pruned
		_ = json.Unmarshal(r.Body, &e)
		what = display.Sprintf("records up to %d, by %s, who keeps them for %s", e.Through, e.By, e.Keep)
	case audit.KindTrust:
		var e audit.Configured
		_ = json.Unmarshal(r.Body, &e)
		what = display.Sprintf("%s (%s), signed by %s, typed by %s", e.File, cmp.Or(e.Digest, "no longer trusted"), e.By, e.User)
	case audit.KindChange:
		what = changed(r)
	case control.KindReload, control.KindStop:
		what = ordered(p, r)
	case app.KindPort:
		what = forwarded(r)
	case audit.KindEgress:
		var e app.EgressBody
		_ = json.Unmarshal(r.Body, &e)
		what = display.Sprintf("server %s:", e.Server)
		for _, a := range e.Attempts {
			word := p.Good("allowed")
			if a.Result() != facts.Reached {
				word = p.Bad(a.Result() + " " + a.Why)
			}
			what += display.Sprintf(" %s:%d %s", a.Host, a.Port, word)
		}
	}
	if l.From != "" && slices.Contains([]string{audit.KindVerdict, audit.KindApprover, audit.KindTrust}, r.Kind) {
		what += display.Sprintf(", from %s", l.From)
	}
	if line := lines[r.Kind]; line != nil {
		what = line(p, r.Body)
	}
	display.Fprintf(w, logRow, r.Seq, p.Dim(fmt.Sprintf("%-24s", terminal.Ago(w, r.At, now))), r.Kind,
		what, p.Dim(l.CallID))
}

// forwarded summarises the record of a port of a sandbox.
func forwarded(r audit.Record) display.Text {
	var b app.PortBody
	_ = json.Unmarshal(r.Body, &b)
	return display.Sprintf("port %d of %s forwarded to %s, by %s", b.Port, Or(b.Sandbox, "session "+b.Session), b.At, b.By)
}

// changed summarises an operator's change.
func changed(r audit.Record) display.Text {
	var c audit.Change
	_ = json.Unmarshal(r.Body, &c)
	what := display.Sprintf("%s %s", c.Action, c.Object)
	if c.Digest != "" {
		what += display.Sprintf(" (%s)", c.Digest)
	}
	where := "not at a terminal"
	if c.Terminal {
		where = "at a terminal"
	}
	return what + display.Sprintf(", by %s, %s", c.User, where)
}

// ordered summarises the record of an order.
func ordered(p terminal.Paint, r audit.Record) display.Text {
	var b struct {
		File, By, Why, Name, Session string
		InForce                      string `json:"in_force"`
		Taken, Release               bool
	}
	_ = json.Unmarshal(r.Body, &b)
	switch {
	case r.Kind == control.KindReload && b.Taken:
		return display.Sprintf("%s %s %s, by %s", p.Good("taken"), app.OrNone(b.File), b.InForce, b.By)
	case r.Kind == control.KindReload:
		return display.Sprintf("%s %s by %s: %s", p.Bad("kept"), b.InForce, b.By, b.Why)
	case b.Session != "":
		return display.Sprintf("%s session %s of %s, by %s", p.Bad("ended"), b.Session, b.Name, b.By)
	case b.Release:
		return display.Sprintf("%s %s, by %s", p.Good("let in"), b.Name, b.By)
	}
	return display.Sprintf("%s %s, by %s", p.Bad("stopped"), b.Name, b.By)
}

func Effect(p terminal.Paint, e string) display.Text {
	switch e {
	case "allow":
		return p.Good(e)
	case "deny":
		return p.Bad(e)
	}
	return p.Warn(e)
}

// place returns a reason's code and position.
func place(r call.Reason) string {
	if r.File == "" {
		return r.Code
	}
	if r.Line == 0 {
		return r.Code + " (" + r.File + ")"
	}
	return fmt.Sprintf("%s (%s:%d)", r.Code, r.File, r.Line)
}

// enrolled summarises a change of the enrolled approvers in one line.
func enrolled(p terminal.Paint, e audit.Enrolled) display.Text {
	say := display.Sprintf("%s %s", map[string]string{"enrol": "enrolled", "revoke": "revoked"}[e.Action], e.Approver)
	if len(e.Roles) > 0 {
		say += display.Sprintf(" as %s", strings.Join(e.Roles, ", "))
	}
	if e.Key != "" {
		say += display.Sprintf(", key %s", e.Key)
	}
	say += display.Sprintf(", signed by %s, typed by %s", e.By, e.User)
	if e.Failed != "" {
		say += display.Sprintf(": %s: %s", p.Bad("not done"), e.Failed)
	}
	return say
}

// logRow is the layout of a line of waldo log, and of its header.
const logRow = "%6v %s %-8s %s %s\n"

// Header prints the header of the list of records.
func Header(w io.Writer) {
	display.Fprintf(w, logRow, "SEQ", fmt.Sprintf("%-24s", "TIME"), "RECORD", "WHAT", "CALL")
}

// through names a channel, and the agent host that called by the name that it gives itself.
func through(channel, agent string) string {
	if agent == "" {
		return channel
	}
	return channel + " from " + agent
}
