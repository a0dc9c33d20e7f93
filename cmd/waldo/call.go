package main

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/arguments"
	"waldo/cmd/waldo/exitcode"
	"waldo/cmd/waldo/telling"
	"waldo/internal/app"
	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

func newCall(g *global) *cobra.Command {
	var wait time.Duration
	var quote string
	c := &cobra.Command{
		Use: "call CAPABILITY [k=v.. | -]", Short: "Call a tool",
		Long: "Arguments are k=v, where v is JSON or else a string, or one JSON object on standard input with -.\n" +
			"Calls of one user share a session, so that an approved call can be made again.",
		Example: "  waldo call run_python code='print(1)'\n  waldo call helpdesk.get_customer id=17 --json\n" +
			"  echo '{\"id\":17}' | waldo call helpdesk.get_customer -",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := arguments.Parse(c.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			s := app.Options{Patience: wait}
			if wait > 0 && !g.json {
				s.Carriers = []approval.Notifier{telling.Teller{W: c.ErrOrStderr()}}
			}
			h, err := openApplication(c.Context(), g, s)
			if err != nil {
				return err
			}
			defer h.Close()
			n, err := h.OpenCLI(c.Context())
			if err != nil {
				return err
			}
			cap, err := arguments.Capability(h.Policy, args[0])
			if err != nil {
				return err
			}
			k := call.Call{ID: id.New(id.Call), Capability: cap, Args: a, Session: n.ID, Principal: n.Principal,
				Channel: "cli", ApprovalID: quote}
			if h.Policy.Visible(k.Capability) {
				t, hint := call.Tool{Capability: cap}, "waldo tools lists them"
				if e, ok := h.Catalogue.Lookup(c.Context(), string(cap)); ok {
					k.Of(e.Tool)
					t, hint = e.Tool, "waldo tools "+string(cap)+" --detail full"
				}
				if why := h.Check(k, t); why != nil {
					k.Capability = t.Capability
					if _, err := h.Broker.Refuse(c.Context(), k, *why); err != nil {
						return err
					}
					return exitcode.Mistake(hint, "%s", why.Text)
				}
			}
			r, err := h.Broker.Call(c.Context(), k)
			if err != nil {
				return err
			}
			return tellResult(c, g, r)
		},
	}
	c.Flags().DurationVar(&wait, "wait", 0, "`TIME` to wait for a human's answer")
	c.Flags().StringVar(&quote, "approval", "", "`ID` of the approval that an earlier call was told")
	return c
}

// shown is a result as --json prints it.
type shownResult struct {
	Status     facts.Status  `json:"status"`
	CallID     string        `json:"call_id"`
	DecisionID string        `json:"decision_id"`
	ApprovalID string        `json:"approval_id,omitempty"`
	Why        []call.Reason `json:"reasons"`
	IsError    bool          `json:"is_error"`
	Trust      call.Trust    `json:"trust"`
	Content    []any         `json:"content"`
	Structured any           `json:"structured,omitempty"`
	Facts      facts.Facts   `json:"facts"`
}

func tellResult(c *cobra.Command, g *global, r call.Result) error {
	if g.json {
		s := shownResult{
			Status: r.Status, CallID: r.CallID, DecisionID: r.DecisionID, ApprovalID: r.ApprovalID, Why: r.Why,
			IsError: r.IsError, Trust: r.Trust, Content: []any{}, Facts: r.Facts,
		}
		for _, k := range r.Content {
			if k.Type == "text" {
				s.Content = append(s.Content, map[string]string{"type": "text", "text": k.Text})
			} else {
				s.Content = append(s.Content, k.Raw)
			}
		}
		if !r.Structured.IsZero() {
			s.Structured = r.Structured
		}
		if err := terminal.JSON(c.OutOrStdout(), s); err != nil {
			return err
		}
	} else {
		content, warnings := once(r)
		for _, k := range content {
			if text, ok := readable(k); ok {
				// Whole lines: all of the text is the tool's.
				display.Fprintf(c.OutOrStdout(), "%s\n", display.Text(redact.Clean(strings.TrimRight(text, "\n"))))
			} else {
				display.Fprintf(c.OutOrStdout(), "[%s, %d bytes: see --json]\n", k.Type, len(k.Raw.Raw()))
			}
		}
		if len(r.Content) == 0 && !r.Structured.IsZero() {
			display.Fprintf(c.OutOrStdout(), "%s\n", display.Text(display.JSON(r.Structured.Raw())))
		}
		if n := r.Facts.Masked; n > 0 {
			display.Fprintf(c.ErrOrStderr(), "waldo: values masked: %d\n", n)
		}
		for _, w := range warnings {
			display.Fprintf(c.ErrOrStderr(), "waldo: warning: %s\n", w)
		}
	}
	if r.Status == facts.Failed && r.Facts.ExitCode == nil && r.Facts.Signal == nil && r.IsError && len(r.Content) > 0 {
		return &exitcode.Exit{Code: exitcode.Problems} // the tool said that it failed, and its words are above
	}
	return exitcode.OfResult(r)
}

// once returns the content and the warnings of a result without those that repeat its cause. An error line prints the
// cause of a denial.
func once(r call.Result) (content []call.Content, warnings []string) {
	content, warnings = slices.Clone(r.Content), slices.Clone(r.Facts.Warnings)
	for _, why := range r.Cause() {
		repeats := func(text string) bool { return text == why.Text || text == why.Code+": "+why.Text }
		warnings = slices.DeleteFunc(warnings, repeats)
		if r.Status == facts.Denied {
			content = slices.DeleteFunc(content, func(k call.Content) bool { return k.Type == "text" && repeats(k.Text) })
		}
	}
	return content, warnings
}

func newTools(g *global) *cobra.Command {
	var detail string
	c := &cobra.Command{
		Use: "tools [QUERY]", Short: "List the tools that an agent can call, or search them by words",
		Args:    cobra.ArbitraryArgs,
		Example: "  waldo tools                   # all\n  waldo tools create ticket     # the search that agents have: the best first\n  waldo tools github --detail full",
		RunE: func(c *cobra.Command, args []string) error {
			d := catalog.Detail(detail)
			if d != catalog.Name && d != catalog.Basic && d != catalog.Full {
				return exitcode.Mistake("as in --detail full", "--detail %s: it is name, basic or full", detail)
			}
			h, err := openApplication(c.Context(), g, app.Options{Tells: true})
			if err != nil {
				return err
			}
			defer h.Close()
			var entries []*catalog.Entry
			var offers sync.WaitGroup
			me := catalog.Viewer{Principal: app.Principal(), Channel: "cli"}
			offers.Go(func() { h.Catalogue.Prompts(c.Context(), me) }) // their left-out entries are printed below, too
			if len(args) > 0 {
				entries = h.Catalogue.Search(c.Context(), me, strings.Join(args, " "), 0)
			} else {
				entries = h.Catalogue.List(c.Context(), me)
			}
			told := make([]catalog.SearchResult, len(entries))
			for i, e := range entries {
				told[i] = e.Tell(d)
			}
			if g.json || d == catalog.Full {
				if err := terminal.JSON(c.OutOrStdout(), told); err != nil {
					return err
				}
			} else {
				tellTools(c.OutOrStdout(), h, entries, d)
			}
			if len(told) == 0 && len(args) > 0 {
				display.Fprintf(c.ErrOrStderr(), "waldo: no tool fits these words\n")
			}
			offers.Wait()
			for _, p := range h.Catalogue.Problems() {
				display.Fprintf(c.ErrOrStderr(), "waldo: %s is left out: %s (%s)\n", app.LeftOut(p),
					display.Lines(strings.TrimPrefix(p.Text, "server "+p.Server+": ")), p.Code)
			}
			return nil
		},
	}
	c.Flags().StringVar(&detail, "detail", "basic", "`HOW MUCH`: name, basic or full")
	return c
}

// tellTools lists tools with the policy's decision on a call without arguments. A condition on missing arguments
// applies.
func tellTools(w io.Writer, h *app.App, entries []*catalog.Entry, d catalog.Detail) {
	var rows [][]string
	for _, e := range entries {
		if d == catalog.Name {
			display.Fprintf(w, "%s\n", e.Capability)
			continue
		}
		effect, danger := policy.Allow.String(), "" // tools of the gateway itself need no contract
		if !contract.ByTheGateway(string(e.Capability)) {
			d := dryRun(h.Policy, e.Capability, call.Args{})
			effect, danger = d.Effect.String(), strconv.Itoa(d.Danger)
			if d.Effect == policy.Deny && h.Policy.Usable(e.Capability, d.Call.Principal, d.Call.Channel) {
				effect = "by arguments"
			}
		}
		rows = append(rows, []string{string(e.Capability), effect, danger, terminal.Brief(e.Description, 100)})
	}
	terminal.Table(w, []string{"CAPABILITY", "POLICY", "DANGER", "DESCRIPTION"}, rows)
}

// dryRun decides a call without making it.
func dryRun(p *policy.Policy, capability call.Capability, a call.Args) policy.Decision {
	return p.Explain(call.Call{
		ID: id.New(id.Call), Capability: capability, Args: a, Channel: "cli", Principal: app.Principal(),
	})
}

// readable returns the text of a piece of content, or of a text resource.
func readable(k call.Content) (string, bool) {
	if k.Type == "text" {
		return k.Text, true
	}
	m, _ := k.Raw.Members()
	inside, _ := m["resource"].Members()
	return inside["text"].Text()
}
