// Package records prints what the log says: one line for a record, the story of a call, the verdict on the log.
package records

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/app/hooks"
	"waldo/internal/app/operator"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
)

// Line has the fields of all record kinds that fit in one line.
type Line struct {
	CallID     string        `json:"call_id"`
	DecisionID string        `json:"decision_id"`
	Parent     string        `json:"parent"`
	ApprovalID string        `json:"approval_id"`
	Capability string        `json:"capability"`
	Effect     string        `json:"effect"`
	Status     string        `json:"status"`
	Yes        *bool         `json:"yes"`
	Refusal    string        `json:"refusal"`
	Reason     string        `json:"reason"`
	By         string        `json:"by"`
	Channel    string        `json:"channel"`
	Principal  string        `json:"principal"`
	Reasons    []call.Reason `json:"reasons"`
	Why        []call.Reason `json:"why"`
	Facts      struct {
		SideEffect string `json:"side_effect"`
		Usage      struct {
			WallMS float64 `json:"wall_ms"`
		} `json:"usage"`
		Sandbox struct {
			Driver string `json:"driver"`
			ID     string `json:"id"`
		} `json:"sandbox"`
		Network struct {
			Denied []string `json:"denied"`
		} `json:"network"`
		Warnings []string `json:"warnings"`
	} `json:"facts"`
}

func Print(w io.Writer, asJSON bool, r audit.Record, now time.Time) {
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
		what = display.Sprintf("%s %s by %s over %s", Effect(p, l.Effect), l.Capability, l.Principal, l.Channel)
		if len(l.Reasons) > 0 {
			what += p.Dim("  " + place(l.Reasons[0]))
		}
	case audit.KindAnswer:
		word := p.Bad("no")
		if l.Yes != nil && *l.Yes {
			word = p.Good("yes")
		}
		what = display.Sprintf("%s to %s by %s", word, l.Capability, l.By)
		if l.Refusal != "" {
			what = display.Sprintf("no answer to %s by %s: %s: %s", l.Capability, Or(l.By, "waldo"), l.Refusal, l.Reason)
		}
	case audit.KindOutcome:
		what = display.Sprintf("%s %s, side effect %s, %.1f ms", l.Status, l.Capability, l.Facts.SideEffect,
			l.Facts.Usage.WallMS)
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
	case control.KindReload, control.KindStop:
		what = ordered(p, r)
	case operator.KindConsole:
		what = acted(r)
	case hooks.Kind:
		what = hooked(p, r)
	case app.KindEgress:
		var e app.EgressBody
		_ = json.Unmarshal(r.Body, &e)
		what = display.Sprintf("server %s:", e.Server)
		for _, a := range e.Attempts {
			word := p.Good("allowed")
			if !a.Allowed {
				word = p.Bad("refused " + a.Why)
			}
			what += display.Sprintf(" %s:%d %s", a.Host, a.Port, word)
		}
	}
	display.Fprintf(w, logRow, r.Seq, p.Dim(fmt.Sprintf("%-24s", terminal.Ago(w, r.At, now))), r.Kind,
		what, p.Dim(l.CallID))
}

// hooked summarises an event of a webhook.
func hooked(p terminal.Paint, r audit.Record) display.Text {
	var b struct {
		Event, Hook, Principal, Reason, Result, Session, Target, Peer string
		Delivery                                                      string `json:"delivery_id"`
		Count, Bytes                                                  int
	}
	_ = json.Unmarshal(r.Body, &b)
	switch b.Event {
	case "received":
		return display.Sprintf("%s %s for %s, %d bytes from %s", p.Good("received"), b.Delivery, b.Hook, b.Bytes, b.Peer)
	case "refused":
		return display.Sprintf("%s for %s from %s: %s, %s", p.Bad("refused"), Or(b.Hook, "no webhook"), b.Peer, b.Reason,
			display.Count(b.Count, "request"))
	}
	if b.Result != "" {
		b.Event += " (" + b.Result + ")"
	}
	what := display.Sprintf("%s %s of %s to %s, by %s", b.Event, b.Delivery, b.Hook, b.Target, b.Principal)
	if b.Session != "" {
		what += display.Sprintf(", agent %s", b.Session)
	}
	if b.Reason != "" {
		what += display.Sprintf(": %s", b.Reason)
	}
	return what
}

// acted summarises an action in the console.
func acted(r audit.Record) display.Text {
	var b struct {
		Action, Target, Result, Why, Principal, Role string
	}
	_ = json.Unmarshal(r.Body, &b)
	what := display.Sprintf("%s %s %s by %s as %s", b.Action, b.Target, b.Result, b.Principal, b.Role)
	if b.Why != "" {
		what += display.Sprintf(": %s", b.Why)
	}
	return what
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
