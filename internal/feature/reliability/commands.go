package reliability

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/effects"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
)

// settled is a call as waldo settle prints it with --json.
type settled struct {
	CallID     string          `json:"call_id"`
	Capability call.Capability `json:"capability"`
	Principal  call.Principal  `json:"principal"`
	At         time.Time       `json:"at"`
	Settled    call.Settled    `json:"settled,omitempty"` // empty: it was not looked at
	Why        string          `json:"why,omitempty"`
}

func newSettle(g *cli.Context) *cobra.Command {
	var pending bool
	c := &cobra.Command{
		Use: "settle [ID | --pending]", Short: "Find out whether calls with an unknown outcome happened",
		Long: "Without an argument it lists the calls with an unknown outcome. With an ID, or --pending for all, waldo makes the\n" +
			"read that the contract's settle declares, as a call of yours, and records what it says.\n" +
			"Exit code 1: an outcome is still unknown.",
		Example: "  waldo settle\n  waldo settle --pending\n  waldo settle c_01k0d3v8m2q9x7w5r4t6y8u0pa",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if pending && len(args) > 0 {
				return exitcode.Mistake("waldo settle --pending", "give an ID or --pending, not both")
			}
			h, err := g.Open(c.Context(), app.Options{})
			if err != nil {
				return err
			}
			defer h.Close()
			all, err := chosen(c.Context(), h.Effects, args)
			if err != nil {
				return err
			}
			if pending || len(args) > 0 {
				if all, err = settle(c.Context(), h, all); err != nil {
					return err
				}
			}
			return tell(c, g.JSON, all)
		},
	}
	c.Flags().BoolVar(&pending, "pending", false, "settle all calls with an unknown outcome")
	return c
}

// chosen returns the named call, or all with an unknown outcome.
func chosen(ctx context.Context, b *effects.Book, args []string) ([]settled, error) {
	var all []*effects.Entry
	var err error
	if len(args) == 0 {
		all, err = b.Pending(ctx)
	} else {
		var e *effects.Entry
		if e, err = b.Get(ctx, args[0]); errors.Is(err, effects.ErrAbsent) {
			return nil, exitcode.Mistake("waldo settle lists the calls with an unknown outcome", "%s: %v", args[0], err)
		}
		all = append(all, e)
	}
	if err != nil {
		return nil, err
	}
	out := make([]settled, 0, len(all))
	for _, e := range all {
		out = append(out, settled{CallID: e.ID, Capability: e.Capability, Principal: e.Principal, At: e.At, Settled: e.Word()})
	}
	return out, nil
}

// settle settles calls, as the user of this command.
func settle(ctx context.Context, h *app.App, all []settled) ([]settled, error) {
	n, err := h.OpenCLI(ctx)
	if err != nil {
		return nil, err
	}
	as := call.Call{Session: n.ID, Principal: n.Principal, Channel: channel}
	for i := range all {
		word, err := h.Effects.Settle(ctx, all[i].CallID, as)
		switch {
		case errors.Is(err, effects.ErrNoSettle), errors.Is(err, effects.ErrOther), errors.Is(err, effects.ErrUnderWay):
			all[i].Why = err.Error()
		case err != nil:
			return nil, err
		case word == "":
			all[i].Why = "its outcome is known: waldo log show " + all[i].CallID
		}
		all[i].Settled = word
	}
	return all, nil
}

// tell prints calls. The error is exit code 1 if an outcome is not known.
func tell(c *cobra.Command, asJSON bool, all []settled) error {
	open := 0
	var rows [][]string
	for _, s := range all {
		word := strings.ReplaceAll(string(s.Settled), "_", " ")
		switch {
		case s.Settled == call.StillUnknown || s.Settled == "" && s.Why == "":
			open++
			word = "unknown"
		case word == "":
			word = "known"
		}
		rows = append(rows, []string{s.CallID, string(s.Capability), string(s.Principal), s.At.Local().Format(time.DateTime), word,
			s.Why})
	}
	if asJSON {
		if err := terminal.JSON(c.OutOrStdout(), all); err != nil {
			return err
		}
	} else if len(rows) == 0 {
		display.Fprintf(c.OutOrStdout(), "no call has an unknown outcome\n")
	} else {
		terminal.Table(c.OutOrStdout(), []string{"CALL", "CAPABILITY", "PRINCIPAL", "AT", "OUTCOME", ""}, rows)
	}
	if open > 0 {
		return &exitcode.Exit{Code: exitcode.Problems}
	}
	return nil
}

func newUndo(g *cli.Context) *cobra.Command {
	var wait time.Duration
	var quote string
	c := &cobra.Command{
		Use: "undo ID", Short: "Undo a call, or what a sandbox did since a snapshot",
		Long: "Makes the call that the contract's rollback names, with its own decision and approval, once. The result of a call,\n" +
			"and waldo explain, show what would undo it. files.restore undoes calls of files.write, files.edit, files.move and\n" +
			"files.delete, where the file did not change since. With the id of a snapshot, its sandbox gets the files that it had\n" +
			"then; what it has now is lost. The id of the last command of a sandbox stands for the snapshot from directly\n" +
			"before it.",
		Example: "  waldo undo c_01k0d3v8m2q9x7w5r4t6y8u0pa\n  waldo undo p_01k0d3v8m2q9x7w5r4t6y8u0pa",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o := app.Options{Patience: wait}
			if wait > 0 && !g.JSON {
				o.Carriers = []approval.Notifier{cli.Teller{W: c.ErrOrStderr()}}
			}
			h, err := g.Open(c.Context(), o)
			if err != nil {
				return err
			}
			defer h.Close()
			snapshot, err := beforeCommand(c.Context(), h, args[0])
			if err != nil {
				return err
			}
			if id.Is(id.Snapshot, snapshot) {
				return undoSandbox(c, h, snapshot)
			}
			n, err := h.OpenCLI(c.Context())
			if err != nil {
				return err
			}
			r, err := undo(c.Context(), h, args[0], call.Call{Session: n.ID, Principal: n.Principal, Channel: channel,
				ApprovalID: quote})
			switch {
			case errors.Is(err, errNotLast):
				return exitcode.Mistake("waldo sandbox snapshot --list, and waldo undo p_… with the id of a snapshot",
					"%s: %v", args[0], err)
			case errors.Is(err, effects.ErrAbsent), errors.Is(err, effects.ErrNoUndo),
				errors.Is(err, effects.ErrUndone):
				return exitcode.Mistake("waldo log show "+args[0], "%s: %v", args[0], err)
			case err != nil:
				return err
			}
			return cli.TellResult(c, g.JSON, r)
		},
	}
	c.Flags().DurationVar(&wait, "wait", 0, "`TIME` to wait for a human's answer")
	c.Flags().StringVar(&quote, "approval", "", "`ID` of the approval that an earlier try was told")
	return c
}
