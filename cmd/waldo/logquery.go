package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/core/audit"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// logFlags say which records waldo log shows.
type logFlags struct {
	last                          int
	since, about                  string
	denied                        bool
	principal, capability, effect string
}

// logRow is the layout of a line of waldo log, and of its header.
const logRow = "%6v %s %-8s %s %s\n"

func newLog(g *global) *cobra.Command {
	var follow bool
	f := &logFlags{}
	c := &cobra.Command{
		Use: "log [-f] [-n N] [--since T] [--denied]", Short: "Show, verify and export the audit log", Args: cobra.NoArgs,
		Long: "Shows the last 20 records, or the last N of those that the flags select, and says of how many.\n" +
			"A record is a decision, an answer, an outcome or another event. --principal and --capability take * for any characters.",
		Example: "  waldo log\n  waldo log --since 1h --denied\n  waldo log -n 0 --principal token:ci --since 2026-11-01\n  waldo log --call c_…\n  waldo log -f\n  waldo log verify",
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := openState(g)
			if err != nil {
				return err
			}
			dir, now := audit.Dir(state), time.Now()
			s, err := f.selection(now)
			if err != nil {
				return err
			}
			if f.about != "" {
				if _, err := find(c.Context(), g, f.about); err != nil {
					return err
				}
			}
			if !g.json {
				display.Fprintf(c.OutOrStdout(), logRow, "SEQ", fmt.Sprintf("%-24s", "TIME"), "RECORD", "WHAT", "CALL")
			}
			show := func(r audit.Record) error {
				tellRecord(c.OutOrStdout(), g.json, r, time.Now())
				return nil
			}
			n, err := audit.Select(c.Context(), dir, s, show)
			if err != nil {
				return err
			}
			tellCounted(c.ErrOrStderr(), n)
			if !follow {
				return nil
			}
			return audit.Follow(c.Context(), dir, n.Last, func(r audit.Record) error {
				if s.Match != nil && !s.Match(r) {
					return nil
				}
				return show(r)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as records are written")
	c.Flags().IntVarP(&f.last, "number", "n", 20, "the last `N` records; 0: all")
	c.Flags().StringVar(&f.since, "since", "", "records since `T`: a time ago as in 30m, 2h or 7d, or a time as in 2026-11-22 or 2026-11-22T10:00:00Z")
	c.Flags().BoolVar(&f.denied, "denied", false, "denials alone: by a contract, by a human, and of hosts")
	c.Flags().StringVar(&f.principal, "principal", "", "records of `WHO`, as in os:1000 or token:ci")
	c.Flags().StringVar(&f.capability, "capability", "", "records about `NAME`, as in github.create_*")
	c.Flags().StringVar(&f.effect, "effect", "", "decisions of this `EFFECT`: allow, ask or deny")
	c.Flags().StringVar(&f.about, "call", "", "records about this `ID`: of a call, a decision or an approval")
	c.AddCommand(newVerify(g), newExport(g), newShow(g), newSetAside(g))
	return c
}

// tellCounted says how many of how many records were shown.
func tellCounted(w io.Writer, n audit.Counted) {
	switch {
	case n.Shown < n.Matched && n.Matched < n.Total:
		display.Fprintf(w, "(last %d of %d selected, of %d in the log; -n 0 for all)\n", n.Shown, n.Matched, n.Total)
	case n.Shown < n.Matched:
		display.Fprintf(w, "(last %d of %d; -n 0 for all)\n", n.Shown, n.Total)
	case n.Shown < n.Total:
		display.Fprintf(w, "(%d of %d records)\n", n.Shown, n.Total)
	default:
		display.Fprintf(w, "(all %d records)\n", n.Total)
	}
}

// selection converts the flags into a query of the log.
func (f *logFlags) selection(now time.Time) (s audit.Selection, err error) {
	if f.last < 0 {
		return s, usage("-n 0 shows all", "-n must be 0 or more")
	}
	if f.effect != "" && f.effect != "allow" && f.effect != "ask" && f.effect != "deny" {
		return s, usage("allow, ask or deny", "unknown effect %q", f.effect)
	}
	if s.Since, err = since(f.since, now); err != nil {
		return s, err
	}
	if f.about != "" && !anyID(f.about) {
		return s, usage("ids look like c_… or d_…; waldo log lists them", "%q is not an id", f.about)
	}
	s.Last = f.last
	if f.denied || f.principal != "" || f.capability != "" || f.effect != "" || f.about != "" {
		s.Match = f.matcher()
	}
	return s, nil
}

// matcher returns a filter for records in order, oldest first. It attributes later records of a call to the principal
// of its decision.
func (f *logFlags) matcher() func(audit.Record) bool {
	callers := map[string]string{}
	return func(r audit.Record) bool {
		var l line
		if json.Unmarshal(r.Body, &l) != nil {
			return false
		}
		if r.Kind == audit.KindDecision && f.principal != "" {
			callers[l.CallID] = l.Principal
		}
		who := l.Principal
		if who == "" {
			who = callers[l.CallID]
		}
		ids := []string{r.ID, l.CallID, l.DecisionID, l.ApprovalID, l.Parent}
		switch {
		case f.principal != "" && !wild(f.principal, who), f.capability != "" && !wild(f.capability, l.Capability),
			f.effect != "" && l.Effect != f.effect, f.denied && !denial(r, l):
			return false
		}
		return f.about == "" || within(ids, f.about)
	}
}

func within(ids []string, one string) bool {
	for _, id := range ids {
		if id == one {
			return true
		}
	}
	return false
}

// denial reports whether a record says that something was denied.
func denial(r audit.Record, l line) bool {
	switch r.Kind {
	case audit.KindDecision:
		return l.Effect == "deny"
	case audit.KindAnswer:
		return l.Yes == nil || !*l.Yes
	case audit.KindOutcome:
		return l.Status == "denied"
	case app.KindEgress:
		var e app.EgressBody
		_ = json.Unmarshal(r.Body, &e)
		for _, a := range e.Attempts {
			if !a.Allowed {
				return true
			}
		}
	}
	return false
}

// wild reports whether a name is the one asked for, in which * stands for any characters.
func wild(pattern, name string) bool { return contract.Pattern(pattern).Match(name) }

// since reads a time ago, or a time.
func since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 1e5 {
			return now.Add(-time.Duration(n * 24 * float64(time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("a time ago as in 30m, 2h or 7d, or a time as in 2026-11-22 or 2026-11-22T10:00:00Z", "--since %q is not a time", text)
}
