package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/control"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

// line has the fields of all record kinds that fit in one line.
type line struct {
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
	} `json:"facts"`
}

func tellRecord(w io.Writer, asJSON bool, r audit.Record, now time.Time) {
	if asJSON {
		b, err := json.Marshal(r)
		if err == nil {
			display.Fprintf(w, "%s\n", display.Text(display.JSON(b)))
		}
		return
	}
	var l line
	_ = json.Unmarshal(r.Body, &l) // other kinds lack these fields
	p := terminal.Painter(w)
	what := display.Text("")
	switch r.Kind {
	case audit.KindDecision:
		what = display.Sprintf("%s %s by %s over %s", effect(p, l.Effect), l.Capability, l.Principal, l.Channel)
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
			what = display.Sprintf("no answer to %s by %s: %s: %s", l.Capability, orWord(l.By, "waldo"), l.Refusal, l.Reason)
		}
	case audit.KindOutcome:
		what = display.Sprintf("%s %s, side effect %s, %.1f ms", l.Status, l.Capability, l.Facts.SideEffect, l.Facts.Usage.WallMS)
		if l.Facts.Sandbox.Driver != "" {
			what += display.Sprintf(", in %s %s", l.Facts.Sandbox.Driver, l.Facts.Sandbox.ID)
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
	display.Fprintf(w, logRow, r.Seq, p.Dim(fmt.Sprintf("%-24s", terminal.Ago(w, r.At, now))), r.Kind, what, p.Dim(l.CallID))
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

func effect(p terminal.Paint, e string) display.Text {
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

func newVerify(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Hold every line of the log against its hash, its place and the head", Args: cobra.NoArgs,
		Long:    "Reads the whole log and changes nothing. $WALDO_LOG_HEAD names a file that stores a copy of the head. Exit status 0: sound; 1: problems found; 2: it cannot be read.",
		Example: "  waldo log verify",
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := verify(c.Context(), g)
			if err != nil {
				return &exit{code: exitUsage, err: err}
			}
			if g.json {
				if err := printJSON(c.OutOrStdout(), r); err != nil {
					return err
				}
			} else {
				tellVerified(c.OutOrStdout(), r)
			}
			if !r.OK {
				return &exit{code: exitProblems, text: "the log is not sound", hint: "keep a copy of it; waldo log set-aside starts a new one that says so"}
			}
			return nil
		},
	}
}

func verify(ctx context.Context, g *global) (audit.Report, error) {
	state, s, err := openStore(g)
	if err != nil {
		return audit.Report{}, err
	}
	defer s.Close()
	anchors, err := audit.Anchors(ctx, app.LogOptions(s))
	if err != nil {
		return audit.Report{}, err
	}
	pins := []string{os.Getenv(app.RootVariable)}
	if cfg, err := g.source().Load(state); err == nil { // verification works without a configuration
		pins = append(pins, cfg.Approval.Root)
	}
	bar := terminal.Progress(os.Stderr, "verifying the log", logBytes(state))
	defer bar.Close()
	return audit.Verify(audit.Counting(ctx, bar), audit.Dir(state), anchors, time.Now(), pins...)
}

func tellVerified(w io.Writer, r audit.Report) {
	p := terminal.Painter(w)
	for _, f := range r.Findings {
		mark := p.Warn("note:")
		if f.Problem {
			mark = p.Bad("problem:")
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
	}
	display.Fprintf(w, "%s: %s in %s\n%s\n", word, display.Count(int(r.Records), "record"), display.Count(r.Segments, "segment"), p.Dim(r.Claim))
}

func newExport(g *global) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "export", Short: "Write the whole log to standard output", Args: cobra.NoArgs, Example: "  waldo log export --format csv > log.csv",
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "jsonl" && format != "csv" {
				return usage("jsonl or csv", "--format %s", format)
			}
			state, err := openState(g)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if !terminal.OnScreen(out) { // on a terminal the printed lines show progress
				bytes := int64(-1)
				if format == "jsonl" {
					bytes = logBytes(state)
				}
				bar := terminal.Progress(c.ErrOrStderr(), "exporting the log", bytes)
				defer bar.Close()
				out = io.MultiWriter(out, bar)
			}
			_, err = audit.Export(c.Context(), out, audit.Dir(state), format)
			return err
		},
	}
	c.Flags().StringVar(&format, "format", "jsonl", "jsonl, the lines as they stand, or csv")
	return c
}

// logBytes returns the size of all log segments, in bytes.
func logBytes(state string) (n int64) {
	all, _ := filepath.Glob(filepath.Join(audit.Dir(state), "*.jsonl"))
	for _, f := range all {
		if info, err := os.Lstat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}

func newShow(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show the whole records about a call, decision, approval or record", Args: cobra.ExactArgs(1),
		Example: "  waldo log show c_…",
		RunE: func(c *cobra.Command, args []string) error {
			records, err := find(c.Context(), g, args[0])
			if err != nil {
				return err
			}
			return printJSON(c.OutOrStdout(), records)
		},
	}
}

func newSetAside(g *global) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "set-aside", Short: "Put a log that is not sound aside and start a new one that says so", Args: cobra.NoArgs,
		Example: "  waldo log set-aside --reason 'disk failed on Friday'",
		RunE: func(c *cobra.Command, _ []string) error {
			if reason == "" {
				return usage("it is recorded permanently in the new log", "--reason is required")
			}
			state, s, err := openStore(g)
			if err != nil {
				return err
			}
			defer s.Close()
			folder, err := audit.SetAside(c.Context(), audit.Dir(state), app.LogOptions(s), string(app.Principal()), reason)
			if err != nil {
				return &exit{code: exitProblems, err: err}
			}
			display.Fprintf(c.OutOrStdout(), "the old log is in %s; a new one was begun\n", folder)
			return nil
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`WHY`, recorded in the new log")
	return c
}

// find returns the records of an id. It refuses a text that does not have the form of an id.
func find(ctx context.Context, g *global, ident string) ([]audit.Record, error) {
	if !anyID(ident) {
		return nil, usage("ids look like c_… or d_…; waldo log lists them", "%q is not an id", ident)
	}
	state, err := openState(g)
	if err != nil {
		return nil, err
	}
	records, err := audit.Find(ctx, audit.Dir(state), ident)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, usage("waldo log shows the last records", "the log has nothing about %s", ident)
	}
	return records, nil
}

func anyID(s string) bool {
	for _, k := range []id.Kind{id.Call, id.Decision, id.Approval, id.Record, id.Session, id.Sandbox} {
		if id.Is(k, s) {
			return true
		}
	}
	return false
}

func newExplain(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "explain ID | CAPABILITY [k=v..]", Short: "Say why: of a call that was made, or as a dry run of the same code",
		Long:    "With the id of a call or decision, says from the log why it was allowed, asked or denied, who answered and how\nit ended. With a capability and arguments, decides without acting: the exit status is that of the call.",
		Example: "  waldo explain d_…\n  waldo explain helpdesk.create_ticket priority=high\n  waldo explain run_shell --json", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if anyID(args[0]) {
				return explainRecords(c, g, args[0])
			}
			a, err := arguments(c.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			state, cfg, err := configured(g)
			if err != nil {
				return err
			}
			if err := notAnID(cfg, args[0]); err != nil {
				return err
			}
			p, err := app.PolicyOf(state, cfg)
			if err != nil {
				return err
			}
			cap, err := meant(p, args[0])
			if err != nil {
				return err
			}
			return tellDecision(c, g, dryRun(p, cap, a))
		},
	}
}

// notAnID refuses a text that looks like a malformed id, unless a contract has that name.
func notAnID(cfg *contract.Config, name string) error {
	kinds := []id.Kind{id.Call, id.Decision, id.Approval, id.Record, id.Session, id.Sandbox}
	looks := slices.ContainsFunc(kinds, func(k id.Kind) bool { return strings.HasPrefix(name, string(k)) })
	if !looks || slices.ContainsFunc(cfg.Contracts, func(c contract.Contract) bool { return c.Pattern == name }) {
		return nil
	}
	return usage("waldo log lists the ids", "there is no id %q", name)
}

// told is a decision as --json prints it.
type told struct {
	DecisionID string        `json:"decision_id"`
	Effect     policy.Effect `json:"effect"`
	Capability string        `json:"capability"`
	Danger     int           `json:"danger"`
	Contract   string        `json:"contract,omitempty"`
	Policy     string        `json:"policy"`
	DryRun     bool          `json:"dry_run"`
	Reasons    []call.Reason `json:"reasons"`
}

func tellDecision(c *cobra.Command, g *global, d policy.Decision) error {
	w := c.OutOrStdout()
	if g.json {
		if d.ID == "" {
			d.ID = id.New(id.Decision) // a dry run is decided again each time and never recorded
		}
		if err := printJSON(w, told{d.ID, d.Effect, string(d.Call.Capability), d.Danger, d.Contract.Pattern, d.Policy, d.DryRun, d.Reasons}); err != nil {
			return err
		}
	} else {
		p := terminal.Painter(w)
		display.Fprintf(w, "%s %s\n", effect(p, d.Effect.String()), d.Call.Capability)
		tellReasons(w, p, d.Reasons)
		if k := d.Contract; k.Pattern != "" {
			display.Fprintf(w, "  contract %q: %s, mode %s, danger %d, isolation %s, network %s, timeout %s\n", k.Pattern, k.Transport, k.Mode, d.Danger,
				orWord(k.Isolation, "by class"), networkWord(k.Network), k.Timeout)
		}
	}
	switch d.Effect {
	case policy.Deny:
		return &exit{code: exitDenied, hint: denyHint(d)}
	case policy.Ask:
		return &exit{code: exitWaiting}
	}
	return nil
}

func denyHint(d policy.Decision) string {
	for _, r := range d.Reasons {
		if r.Code == "contract.absent" {
			return "write a contract for " + string(d.Call.Capability) + " in waldo.yaml"
		}
	}
	return ""
}

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

func networkWord(n contract.Network) string {
	var words []string
	if n.Internal {
		words = append(words, "internal_only")
	}
	words = append(words, n.Allow...)
	for _, m := range slices.Sorted(maps.Keys(n.Packages)) {
		words = append(words, "packages of "+m)
	}
	if len(words) == 0 {
		return "denied"
	}
	return strings.Join(words, ",")
}

// tellReasons prints the reasons, the deciding one first.
func tellReasons(w io.Writer, p terminal.Paint, all []call.Reason) {
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
	}
}

// explainRecords prints the history of one call from its records.
func explainRecords(c *cobra.Command, g *global, ident string) error {
	records, err := find(c.Context(), g, ident)
	if err != nil {
		return err
	}
	if g.json {
		return printJSON(c.OutOrStdout(), records)
	}
	return tellStory(c.OutOrStdout(), terminal.Painter(c.OutOrStdout()), records)
}

// tellStory prints a summary of the records of one call.
func tellStory(w io.Writer, p terminal.Paint, records []audit.Record) error {
	var said []call.Reason // each reason is printed once
	for _, r := range records {
		switch r.Kind {
		case audit.KindDecision:
			var d audit.Decided
			if err := json.Unmarshal(r.Body, &d); err != nil {
				return err
			}
			display.Fprintf(w, "%s %s  %s\n", effect(p, d.Effect.String()), d.Capability, p.Dim(d.DecisionID+" at "+r.At))
			said = d.Reasons
			tellReasons(w, p, said)
			if d.Contract != nil {
				display.Fprintf(w, "  contract %q %s, mode %s, danger %d\n", d.Contract.Pattern, p.Dim(fmt.Sprintf("%s:%d", d.Contract.File, d.Contract.Line)), d.Mode, d.Danger)
			}
			display.Fprintf(w, "  asked by %s over %s; arguments %s\n", d.Principal, d.Channel, compact(d.Args))
			if len(d.Secrets) > 0 {
				display.Fprintf(w, "  secrets by name: %s\n", strings.Join(d.Secrets, ", "))
			}
		case audit.KindAnswer:
			var a audit.Answered
			if err := json.Unmarshal(r.Body, &a); err != nil {
				return err
			}
			word := "no"
			if a.Yes {
				word = "yes"
			}
			display.Fprintf(w, "  answered %s by %s %s %s\n", word, orWord(a.By, "waldo"), a.Refusal+a.Reason, p.Dim(a.ApprovalID))
		case audit.KindOutcome:
			var l line
			if err := json.Unmarshal(r.Body, &l); err != nil {
				return err
			}
			display.Fprintf(w, "  ended %s, side effect %s, %.1f ms", l.Status, l.Facts.SideEffect, l.Facts.Usage.WallMS)
			if l.Facts.Sandbox.Driver != "" {
				display.Fprintf(w, ", in a %s sandbox %s", l.Facts.Sandbox.Driver, p.Dim(l.Facts.Sandbox.ID))
			}
			display.Fprintf(w, "\n")
			tellReasons(w, p, slices.DeleteFunc(l.Why, func(r call.Reason) bool { return slices.Contains(said, r) }))
		}
	}
	return nil
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
