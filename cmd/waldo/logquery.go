package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/records"
	"waldo/internal/core/audit"
	"waldo/internal/detect/category"
	"waldo/internal/model/id"
)

// logFlags say which records waldo log shows.
type logFlags struct {
	since  string
	until  string
	call   string
	tenant string
	audit.Selection
}

func newLog(g *cli.Context) *cobra.Command {
	var follow bool
	f := &logFlags{}
	c := &cobra.Command{
		Use: "log [-f] [-n N] [--since T] [--denied] [--kind KIND]", Short: "Show, verify and export the audit log", Args: cobra.NoArgs,
		Long: "Shows the last 20 records, or the last N of those that the flags select, and says of how many.\n" +
			"A record is a decision, an answer, an outcome or another event. --principal and --capability take * for any " +
			"characters.",
		Example: "  waldo log\n  waldo log --since 1h --denied\n  waldo log -n 0 --principal token:ci --since 2026-11-01\n" +
			"  waldo log --call c_…\n  waldo log -f\n  waldo log verify",
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			dir, now := audit.Dir(state), time.Now()
			if err := f.times(now); err != nil {
				return err
			}
			if kinds := records.Kinds(g.Lines); f.Kind != "" && !slices.Contains(kinds, f.Kind) {
				return exitcode.Mistake("one of "+strings.Join(kinds, ", "), "unknown kind %q", f.Kind)
			}
			if err := f.session(c, g, follow); err != nil {
				return err
			}
			f.Progress = records.Indexing(c.ErrOrStderr())
			header := !g.JSON
			show := func(r audit.Record) error {
				if header {
					records.Header(c.OutOrStdout())
					header = false
				}
				records.Print(c.OutOrStdout(), g.JSON, r, time.Now(), g.Lines)
				return nil
			}
			n, err := audit.Select(c.Context(), dir, f.Selection, show)
			if err == nil && f.call != "" && n.Shown == 0 {
				_, err = find(c, g, f.call)
			}
			if err != nil {
				return err
			}
			records.Counted(c.ErrOrStderr(), n)
			if n.Matched == 0 && n.Total > 0 && !follow {
				f.nothing(c.Context(), c.ErrOrStderr(), dir)
			}
			if !follow {
				return nil
			}
			fits := f.Matcher(c.Context(), dir)
			return audit.Follow(c.Context(), dir, n.Last, func(r audit.Record) error {
				if !fits(r) {
					return nil
				}
				return show(r)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as records are written")
	c.Flags().IntVarP(&f.Last, "number", "n", 20, "the last `N` records; 0: all")
	c.Flags().StringVar(&f.since, "since", "",
		"records since `T`: a time ago as in 30m, 2h or 7d, today, yesterday, or a time as in 2026-11-22 or 2026-11-22T10:00:00Z")
	c.Flags().StringVar(&f.until, "until", "", "records before `T`, written as for --since")
	c.Flags().BoolVar(&f.Denied, "denied", false, "denials alone: by a contract, by a human, and of hosts")
	c.Flags().StringVar(&f.Principal, "principal", "", "records of `WHO`, as in os:1000, token:ci or approver:ann")
	c.Flags().StringVar(&f.tenant, "tenant", "", "records of the principals of tenant `NAME`")
	c.Flags().StringVar(&f.Agent, "agent", "", "calls of agent hosts called `NAME`, as in claude-code*")
	c.Flags().StringVar(&f.Channel, "channel", "", "calls over `CHANNEL`, as in mcp, cli, bridge or webhook")
	c.Flags().StringVar(&f.Capability, "capability", "", "records about `NAME`, as in github.create_*")
	c.Flags().StringVar(&f.Category, "category", "", "calls whose command is of this `CATEGORY`: "+strings.Join(category.Names, ", "))
	c.Flags().StringVar(&f.Host, "host", "", "calls that tried to reach `HOST`, as in *.example.com, whether it was allowed or not")
	c.Flags().StringVar(&f.Effect, "effect", "", "decisions of this `EFFECT`: allow, ask or deny")
	c.Flags().StringVar(&f.Kind, "kind", "", "records of this `KIND`, as in decision, answer, outcome, approver or change")
	c.Flags().StringVar(&f.call, "call", "", "records about this `ID`: of a call, a decision, an approval or a session")
	c.AddCommand(newVerify(g), newShow(g), newSetAside(g))
	c.AddCommand(g.LogCommands...)
	return c
}

// times checks the flags and reads their times.
func (f *logFlags) times(now time.Time) (err error) {
	if f.tenant != "" {
		f.Principal = f.tenant + "/" + cmp.Or(f.Principal, "*")
	}
	if f.Last < 0 {
		return exitcode.Mistake("-n 0 shows all", "-n must be 0 or more")
	}
	if f.Effect != "" && f.Effect != "allow" && f.Effect != "ask" && f.Effect != "deny" {
		return exitcode.Mistake("allow, ask or deny", "unknown effect %q", f.Effect)
	}
	if f.Category != "" && !slices.Contains(category.Names, f.Category) {
		return exitcode.Mistake(strings.Join(category.Names, ", "), "unknown category %q", f.Category)
	}
	if f.Since, err = records.Time("--since", f.since, now); err != nil {
		return err
	}
	if f.Until, err = records.Time("--until", f.until, now); err != nil {
		return err
	}
	if f.call == "" {
		return nil
	}
	if !anyID(f.call) {
		return exitcode.Mistake("ids look like c_… or d_…: waldo log lists them; waldo log show NUMBER prints one record", "%q is not an id", f.call)
	}
	f.About = []string{f.call}
	return nil
}

// session selects the records of a session and of its calls, where --call names one.
func (f *logFlags) session(c *cobra.Command, g *cli.Context, follow bool) error {
	if !id.Is(id.Session, f.call) && !id.Is(id.Sandbox, f.call) {
		return nil
	}
	if follow {
		return exitcode.Mistake("waldo log -f --principal WHO follows its principal",
			"-f follows a call, a decision or an approval, and no session")
	}
	named, err := find(c, g, f.call)
	if err != nil {
		return err
	}
	f.About = records.About(named)
	return nil
}
