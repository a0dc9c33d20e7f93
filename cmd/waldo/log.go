package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/advice"
	"waldo/internal/app/configfile"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/records"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

func newVerify(g *cli.Context) *cobra.Command {
	var receipts []string
	var policy string
	var bucket bool
	c := &cobra.Command{
		Use: "verify", Short: "Hold every line of the log against its hash, its place and the head", Args: cobra.NoArgs,
		Long: "Reads the whole log and changes no record. $WALDO_LOG_HEAD names a file that stores a copy of the head. " +
			"Exit status 0: sound, and everything was checked; 1: problems found; 2: it cannot be read, or a part could not be checked.",
		Example: "  waldo log verify\n  waldo log verify --proof 12-decision.tlog-proof --policy log.policy",
		RunE: func(c *cobra.Command, _ []string) error {
			if len(receipts) > 0 || policy != "" {
				if g.Evidence == nil || len(receipts) == 0 || policy == "" {
					return exitcode.Mistake("waldo log verify --proof FILE --policy FILE", "a receipt is verified against a policy")
				}
				return g.Evidence.Receipt(c.OutOrStdout(), receipts, policy, g.JSON)
			}
			if state, err := configfile.StateDir(g.State); err == nil { // not made yet
				if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
					return exitcode.Mistake("--state or $WALDO_STATE names another", "there is no state directory %s, so no log", state)
				}
			}
			bar := logBar(c, g)
			defer bar.Close()
			r, err := g.Verify(c.Context(), bar, bucket)
			if err != nil {
				return &exitcode.Exit{Code: exitcode.Usage, Err: err}
			}
			if g.JSON {
				if err := terminal.JSON(c.OutOrStdout(), r); err != nil {
					return err
				}
			} else {
				records.Verified(c.OutOrStdout(), r)
			}
			switch {
			case !r.OK:
				return &exitcode.Exit{
					Code: exitcode.Problems, Text: "the log is not sound",
					Hint: "keep a copy of it; waldo log set-aside starts a new one that says so",
				}
			case !r.Complete:
				return &exitcode.Exit{
					Code: exitcode.Usage, Text: "not everything could be checked",
					Hint: "a line above names it; a configuration is given so: waldo --config FILE log verify",
				}
			}
			return nil
		},
	}
	if g.Evidence != nil {
		c.Flags().StringSliceVar(&receipts, "proof", nil, "verify this receipt `FILE` alone, offline; may be repeated")
		c.Flags().BoolVar(&bucket, "bucket", false, "compare every byte of the log's copy in the bucket of waldo.yaml, too")
		c.Flags().StringVar(&policy, "policy", "", "with --proof: the `FILE` with the keys of the log and its witnesses")
	}
	return c
}

// logBar shows how much of the log was read.
func logBar(c *cobra.Command, g *cli.Context) io.WriteCloser {
	bytes := int64(-1)
	if state, err := g.StateDir(); err == nil {
		bytes = logBytes(state)
	}
	return terminal.Progress(c.ErrOrStderr(), "verifying the log", bytes)
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

func newShow(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "show ID | NUMBER", Short: "Show the whole records about a call, decision, approval or record",
		Args:    cobra.ExactArgs(1),
		Long:    "With an id, shows every record about it. With a number of the first column of waldo log, shows that record.",
		Example: "  waldo log show c_…\n  waldo log show 12",
		RunE: func(c *cobra.Command, args []string) error {
			records, err := find(c, g, args[0])
			if err != nil {
				return err
			}
			return terminal.JSON(c.OutOrStdout(), records)
		},
	}
}

func newSetAside(g *cli.Context) *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "set-aside", Short: "Put a log that is not sound aside and start a new one that says so", Args: cobra.NoArgs,
		Long: "If the log ever named approvers, the first one signs, at a terminal. Every approver then enrols anew, " +
			"with a new key:\nremove approval.root from waldo.yaml first.",
		Example: "  waldo log set-aside --reason 'disk failed on Friday'",
		RunE: func(c *cobra.Command, _ []string) error {
			if reason == "" {
				return exitcode.Mistake("it is recorded permanently in the new log", "--reason is required")
			}
			s, err := g.OpenStorage()
			if err != nil {
				return err
			}
			defer s.Close()
			folder, err := s.SetAside(c.Context(), g.Source(), reason,
				func(k *approval.Service, root approval.Approver, p *approval.Checkpoint) error {
					display.Fprintf(c.ErrOrStderr(), "The log of %d records is set aside: %s. Every approver must enrol anew.\n",
						p.Through, p.Aside)
					by, err := rootSigner(c, k, root, fmt.Sprintf("the log of %d records is set aside: %s", p.Through, p.Aside))
					if err != nil {
						return err
					}
					return p.Sign(by, root, time.Now())
				})
			switch {
			case errors.Is(err, audit.ErrAsideRevoked), errors.Is(err, audit.ErrAsideNoRoot):
				return &exitcode.Exit{Code: exitcode.Denied, Err: err, Hint: "keep this state directory; begin another: --state DIR"}
			case exitcode.Of(err) != nil:
				return err
			case err != nil:
				return &exitcode.Exit{Code: exitcode.Problems, Err: err}
			}
			display.Fprintf(c.OutOrStdout(), "the old log is in %s; a new one was begun\nkeep that folder: waldo log verify "+
				"looks for it\n", folder)
			return nil
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "`WHY`, recorded in the new log")
	return c
}

// find returns the records of an id, or the one record of a number. It refuses other texts.
func find(c *cobra.Command, g *cli.Context, ident string) ([]audit.Record, error) {
	seq, number := numbered(ident)
	if !number && !anyID(ident) {
		return nil, exitcode.Mistake("give a number of the first column of waldo log, or an id as c_… or d_…",
			"%q is neither a number of a record nor an id", ident)
	}
	state, err := g.StateDir()
	if err != nil {
		return nil, err
	}
	var found []audit.Record
	switch {
	case number:
		found, err = records.Numbered(c.Context(), audit.Dir(state), seq)
	case id.Is(id.Session, ident), id.Is(id.Sandbox, ident):
		found, err = audit.InSession(c.Context(), audit.Dir(state), ident)
	default:
		about := audit.Selection{About: []string{ident}, Progress: records.Indexing(c.ErrOrStderr())}
		_, err = audit.Select(c.Context(), audit.Dir(state), about, func(r audit.Record) error {
			found = append(found, r)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && number {
		return nil, exitcode.Mistake("waldo log shows the last records", "the log has no record %s", ident)
	}
	if len(found) == 0 {
		return nil, exitcode.Mistake("waldo log shows the last records", "the log has nothing about %s", ident)
	}
	return found, nil
}

// numbered reads the number of a record.
func numbered(s string) (seq uint64, ok bool) {
	seq, err := strconv.ParseUint(s, 10, 64)
	return seq, err == nil
}

func anyID(s string) bool {
	for _, k := range []id.Kind{id.Call, id.Decision, id.Approval, id.Record, id.Session, id.Sandbox} {
		if id.Is(k, s) {
			return true
		}
	}
	return false
}

func newExplain(g *cli.Context) *cobra.Command {
	var who string
	c := &cobra.Command{
		Use: "explain ID | NUMBER | CAPABILITY [k=v..]", Short: "Say why: of a call that was made, or as a dry run of the same code",
		Long: "With the id of a call or decision, or the number of a record of it in waldo log, says from the log why it " +
			"was allowed,\nasked or denied, who answered and how it ended. With the id of a session, n_…, says what ran, its " +
			"calls, decisions and\nquestions, the hosts that it reached and those refused, its changes to files, and how it " +
			"ended. With a capability and\narguments, decides without acting: the exit status is that of the call.",
		Example: "  waldo explain d_…\n  waldo explain n_… --json\n  waldo explain helpdesk.create_ticket priority=high\n" +
			"  waldo explain run_shell --json", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if id.Is(id.Session, args[0]) {
				return explainSession(c, g, args[0])
			}
			if _, number := numbered(args[0]); number || anyID(args[0]) {
				return explainRecords(c, g, args[0])
			}
			a, err := cli.Parse(c.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			state, cfg, err := g.Configured()
			if err != nil {
				return err
			}
			if err := notAnID(cfg, args[0]); err != nil {
				return err
			}
			p, err := app.PolicyOf(state, cfg, g.Tools)
			if err != nil {
				return err
			}
			cap, err := cli.Capability(p, args[0])
			if err != nil {
				return err
			}
			d := dryRun(p, cap, a, call.Principal(cmp.Or(who, string(cfg.Gateway.Tenants.Of(app.Principal())))))
			if token := g.Delegation.Named(); token != nil {
				d = app.ExplainUnder(c.Context(), state, p, *token, d)
			}
			if _, why := advice.AbsentRoot(d.Contract); why != "" {
				display.Fprintf(c.ErrOrStderr(), "waldo: %s\n", why)
			}
			return records.Decision(c.OutOrStdout(), g.JSON, d)
		},
	}
	c.Flags().StringVar(&who, "principal", "", "decide as for `WHO`, as in token:ci, or acme/oidc:alice of a tenant")
	return c
}

// notAnID refuses a text that looks like a malformed id, unless a contract has that name.
func notAnID(cfg *contract.Config, name string) error {
	kinds := []id.Kind{id.Call, id.Decision, id.Approval, id.Record, id.Session, id.Sandbox}
	looks := slices.ContainsFunc(kinds, func(k id.Kind) bool { return strings.HasPrefix(name, string(k)) })
	if !looks || slices.ContainsFunc(cfg.Contracts, func(c contract.Contract) bool { return c.Pattern == name }) {
		return nil
	}
	return exitcode.Mistake("waldo log lists the ids", "unknown id %q", name)
}

// explainRecords prints the history of one call from its records.
func explainRecords(c *cobra.Command, g *cli.Context, ident string) error {
	found, err := find(c, g, ident)
	if err != nil {
		return err
	}
	state, err := g.StateDir()
	if err != nil {
		return err
	}
	out, dir, verdicts, question := c.OutOrStdout(), audit.Dir(state), found, ""
	// the records of an approval name the calls that asked and that used the answer; those of a call name its own calls
	found, undos, err := records.OfCalls(c.Context(), dir, found)
	if err != nil {
		return err
	}
	if len(found) == 0 && len(verdicts) > 0 && !id.Is(id.Approval, ident) {
		return exitcode.Mistake("waldo log show "+ident+" prints it", "record %s is not about a call", ident)
	}
	groups := records.ByCall(found)
	if id.Is(id.Approval, ident) {
		question = ident
	} else if a, waits := records.Waits(groups[len(groups)-1]); waits && a != "" {
		question = a
		if verdicts, err = find(c, g, a); err != nil {
			return err
		}
	}
	doubts, err := records.Doubts(c.Context(), dir, slices.Concat(verdicts, found))
	if err != nil {
		return err
	}
	if g.JSON {
		for _, seq := range slices.Sorted(maps.Keys(doubts)) {
			display.Fprintf(c.ErrOrStderr(), "waldo: not proven: %s\n", doubts[seq])
		}
		return terminal.JSON(out, found)
	}
	answers := func() error {
		display.Fprintf(out, "approval %s: %s\n", question, standing(c.Context(), g, question))
		return records.Verdicts(out, terminal.Painter(out), verdicts, doubts)
	}
	if question == ident {
		if err := answers(); err != nil {
			return err
		}
	}
	for i, one := range groups {
		if _, waits := records.Waits(one); i > 0 && i < len(groups)-1 && waits {
			display.Fprintf(out, "\nasked again %s\n", terminal.Ago(out, one[0].At, time.Now()))
			continue
		}
		if i > 0 || id.Is(id.Approval, ident) {
			display.Fprintf(out, "\n")
		}
		if err := records.Story(out, terminal.Painter(out), one, undos, doubts); err != nil {
			return err
		}
	}
	if question != "" && question != ident {
		return answers()
	}
	if session := records.Launched(found); session != "" {
		display.Fprintf(out, "\n")
		return explainSession(c, g, session)
	}
	return nil
}

// explainSession prints what the log has of one session.
func explainSession(c *cobra.Command, g *cli.Context, ident string) error {
	named, err := find(c, g, ident)
	if err != nil {
		return err
	}
	state, err := g.StateDir()
	if err != nil {
		return err
	}
	s, err := records.SessionOf(c.Context(), audit.Dir(state), ident, named)
	if err != nil {
		return err
	}
	if g.JSON {
		return terminal.JSON(c.OutOrStdout(), s)
	}
	s.Print(c.OutOrStdout(), terminal.Painter(c.OutOrStdout()))
	return nil
}

// standing says in words where a question stands now.
func standing(ctx context.Context, g *cli.Context, ident string) string {
	k, done, err := g.OpenApprovals()
	if err != nil {
		return "where it stands now cannot be read"
	}
	defer done()
	_, state, err := k.Question(ctx, ident)
	if err != nil {
		return "the state directory has no such question now"
	}
	return stands(state)
}

// stands says in words what a state of a question means.
func stands(state approval.State) string {
	switch {
	case state == approval.Pending:
		return "it waits for an answer"
	case state == approval.Expired:
		return "its time is over"
	case state == approval.Gone:
		return "the caller is gone"
	}
	return ended(state)
}
