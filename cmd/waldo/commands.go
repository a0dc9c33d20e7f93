package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/agenthost"
	"waldo/cmd/waldo/agenting"
	"waldo/cmd/waldo/consoling"
	"waldo/cmd/waldo/databases"
	"waldo/cmd/waldo/exitcode"
	"waldo/cmd/waldo/generating"
	"waldo/cmd/waldo/hooking"
	"waldo/internal/app"
	"waldo/internal/core/approval"
	"waldo/internal/core/redact"
	"waldo/internal/demo/helpdesk"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/sandbox"
)

// commands lists every command of waldo.
func commands(g *global) []*cobra.Command {
	hosts := agenthost.Waldo{Config: &g.config, State: &g.state, JSON: &g.json}
	return []*cobra.Command{
		newDemo(g), newServe(g), newToken(g), newRun(g), newExec(g), newCall(g), newTools(g), newExplain(g), newCheck(g),
		newInit(g), newTrust(g), newLock(g), newGen(g), newApprovals(g), newApprove(g), newDeny(g), newLog(g), newSandbox(g),
		newTemplate(g), newLogin(g), newSecret(g), newDoctor(g), newVersion(g), newHelpdesk(), agenthost.NewImport(hosts),
		agenthost.NewInstall(hosts), newDu(g), newPrune(g), newReload(g), newStop(g), newMan(), newConsole(g), newSQL(g),
		newHook(g),
		newAgent(g),
	}
}

// newHelpdesk is the example server that the demo and the tests talk to.
func newHelpdesk() *cobra.Command {
	return &cobra.Command{
		Use: "helpdesk", Short: "An example MCP server on standard input and output", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return helpdesk.Serve(c.InOrStdin(), c.OutOrStdout()) },
	}
}

func newDoctor(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Test which isolation levels work on this machine, and how to fix the others",
		Example: "  waldo doctor\n  waldo doctor --json", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := openState(g)
			if err != nil {
				return err
			}
			var reports []sandbox.Report
			ok := false
			all := app.Drivers(state, downloads)
			for _, name := range []string{"gvisor", "namespace", "confined", "engine"} { // the stronger first
				r := all[name].Probe(c.Context())
				if err := c.Context().Err(); err != nil {
					return err
				}
				reports = append(reports, r)
				ok = ok || r.OK && (name != "engine" || contract.UsualIsolation == name) // one language is no level for the rest
			}
			if g.json {
				if err := terminal.JSON(c.OutOrStdout(), reports); err != nil {
					return err
				}
			} else {
				tellReports(c.OutOrStdout(), reports)
			}
			if !ok {
				return &exitcode.Exit{
					Code: exitcode.Problems, Text: "no level of isolation works on this machine", Hint: "see the hints above",
				}
			}
			return nil
		},
	}
}

// tellReports prints the verified abilities of each driver, one per line, with hints for missing ones.
func tellReports(w io.Writer, reports []sandbox.Report) {
	p := terminal.Painter(w)
	for _, r := range reports {
		verdict := p.Good("works here")
		if !r.OK {
			verdict = p.Bad("does not work here")
		}
		display.Fprintf(w, "%s: %s\n", p.Head(r.Driver), verdict)
		shared := 1 // missing abilities in a row with one hint
		for i, a := range r.Abilities {
			mark := p.Good("ok     ")
			switch {
			case !a.OK && a.Need:
				mark = p.Bad("no     ")
			case !a.OK:
				mark = p.Warn("missing")
			}
			display.Fprintf(w, "  %s %-31s %s\n", mark, a.Name, a.What)
			if a.OK || a.Hint == "" {
				continue
			}
			if i+1 < len(r.Abilities) && !r.Abilities[i+1].OK && r.Abilities[i+1].Hint == a.Hint {
				shared++
				continue
			}
			hint := a.Hint
			if shared > 1 {
				hint = fmt.Sprintf("for these %d: %s", shared, hint)
			}
			display.Fprintf(w, "       %s\n",
				display.Text(strings.ReplaceAll(string(display.Lines(hint)), "\n  | ", "\n       ")))
			shared = 1
		}
	}
}

func newSQL(g *global) *cobra.Command {
	return databases.New(databases.Waldo{State: func() (string, error) { return openState(g) }, Known: g.known, JSON: &g.json})
}

// newGen is in a package of its own.
func newGen(g *global) *cobra.Command {
	return generating.New(generating.Waldo{
		Open: func(ctx context.Context, s app.Options) (*app.App, error) { return openApplication(ctx, g, s) },
		JSON: &g.json, Servers: completes(g).Servers,
	})
}

func newConsole(g *global) *cobra.Command {
	return consoling.New(consoling.Waldo{JSON: &g.json,
		Storage: func() (*app.Storage, error) { return openStorage(g) },
		Open:    func(ctx context.Context, s app.Options) (*app.App, error) { return openApplication(ctx, g, s) }})
}

func newHook(g *global) *cobra.Command {
	return hooking.New(hooking.Waldo{Config: func() (string, *contract.Config, error) { return configured(g) },
		Known: func() *redact.Registry { return g.known }, Passphrase: asks, JSON: &g.json})
}

func newAgent(g *global) *cobra.Command {
	return agenting.New(agenting.Waldo{JSON: &g.json, Teller: func(w io.Writer) approval.Notifier { return teller{w} },
		Open: func(ctx context.Context, s app.Options) (*app.App, error) { return openApplication(ctx, g, s) }})
}
