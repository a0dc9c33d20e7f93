package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/storage/breakers"
	"waldo/internal/storage/presence"
)

func newCall(g *cli.Context) *cobra.Command {
	var wait time.Duration
	var quote, key string
	c := &cobra.Command{
		Use: "call CAPABILITY [k=v.. | -]", Short: "Call a tool",
		Long: "Arguments are k=v, where v is text if the tool takes text, else JSON, else text, or one JSON object on standard input with -.\n" +
			"Calls of one user share a session, so that an approved call can be made again.",
		Example: "  waldo call run_python code='print(1)'\n  waldo call helpdesk.get_customer id=17 --json\n" +
			"  echo '{\"id\":17}' | waldo call helpdesk.get_customer -",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := cli.Parse(c.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			if c.Flags().Changed("key") {
				key = call.KeyOf(key)
			}
			s := app.Options{Patience: wait}
			if wait > 0 && !g.JSON {
				s.Carriers = []approval.Notifier{cli.Teller{W: c.ErrOrStderr()}}
			}
			h, err := g.Open(c.Context(), s)
			if err != nil {
				return err
			}
			defer h.Close()
			n, err := h.OpenCLI(c.Context())
			if err != nil {
				return err
			}
			cap, err := cli.Capability(h.Policy, args[0])
			if err != nil {
				return err
			}
			k := call.Call{ID: id.New(id.Call), Capability: cap, Args: a, Session: n.ID, Principal: n.Principal,
				Channel: "cli", ApprovalID: quote, Key: key}
			if h.Policy.Visible(k.Capability) {
				t, hint := call.Tool{Capability: cap}, "waldo tools lists them"
				if e, ok := h.Catalogue.Lookup(c.Context(), string(cap)); ok {
					k.Args = cli.Typed(args[1:], a, e.Input)
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
			err = cli.TellResult(c, g.JSON, g.Daily(r))
			if e := (*exitcode.Exit)(nil); errors.As(err, &e) && e.Code == exitcode.Denied && cli.Meant(args[0]) != "" {
				e.Hint = cli.Meant(args[0]) + " " + e.Hint
			}
			return err
		},
	}
	c.Flags().DurationVar(&wait, "wait", 0, "`TIME` to wait for a human's answer")
	c.Flags().StringVar(&key, "key", "", "idempotency `KEY`: the same call with it is answered with the recorded result")
	c.Flags().StringVar(&quote, "approval", "", "`ID` of the approval that an earlier call was told")
	return c
}

func newTools(g *cli.Context) *cobra.Command {
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
			h, err := g.Open(c.Context(), app.Options{Tells: true})
			if err != nil {
				return err
			}
			defer h.Close()
			var entries []*catalog.Entry
			var offers sync.WaitGroup
			me := catalog.Viewer{Principal: h.Caller(), Channel: "cli"}
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
			if g.JSON || d == catalog.Full {
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
			return tellBreakers(c.Context(), c.ErrOrStderr(), h)
		},
	}
	c.Flags().StringVar(&detail, "detail", "basic", "`HOW MUCH`: name, basic or full")
	return c
}

// tellBreakers names the servers that rest, or whose circuit breaker is open, in a process at work.
func tellBreakers(ctx context.Context, w io.Writer, h *app.App) error {
	all, err := breakers.Open(ctx, h.Store, presence.Gone(h.Store))
	for _, b := range all {
		until := b.Until.Local().Format(time.DateTime)
		switch {
		case b.Fails > 0:
			display.Fprintf(w, "waldo: server %s failed %s in a row: its circuit breaker is open, and a read tries it from %s "+
				"(upstream.open)\n", b.Server, display.Count(b.Fails, "call"), until)
		case b.Process != h.Process(): // what this process finds is named already
			display.Fprintf(w, "waldo: server %s did not start, or ended too often, so a waldo lets it rest until %s "+
				"(upstream.resting)\n", b.Server, until)
		}
	}
	return err
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
			d := dryRun(h.Policy, e.Capability, call.Args{}, h.Caller())
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
func dryRun(p *policy.Policy, capability call.Capability, a call.Args, who call.Principal) policy.Decision {
	return p.Explain(call.Call{ID: id.New(id.Call), Capability: capability, Args: a, Channel: "cli", Principal: who})
}
