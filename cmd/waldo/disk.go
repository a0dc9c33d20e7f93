package main

import (
	"errors"
	"fmt"
	"os"
	"time"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/enrolling"
	"waldo/cmd/waldo/measuring"
	"waldo/internal/app"
	"waldo/internal/app/disk"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/passkey"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newDu(g *cli.Context) *cobra.Command {
	return measuring.New(func() (string, error) { return g.StateDir() }, &g.JSON)
}

func newPrune(g *cli.Context) *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use:   "prune [--dry-run]",
		Short: "Remove what retention allows: old log segments, unused packages and files of sessions", Args: cobra.NoArgs,
		Long: "Removes whole segments of the log that are older than log.keep, and packages and files of unused sessions\n" +
			"for 30 days. A record in the log says what was removed of it, so that waldo log verify still holds. " +
			"A running waldo serve\ndoes the same every hour. If the log names approvers, the first one signs the removal, " +
			"at a terminal.",
		Example: "  waldo prune --dry-run\n  waldo prune",
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := g.Open(c.Context(), app.Options{Prunes: true})
			if err != nil {
				return err
			}
			defer h.Close()
			old, err := h.Prunable(c.Context())
			if err != nil {
				return err
			}
			_, before, err := disk.Used(h.State)
			if err != nil {
				return err
			}
			freed := old.Bytes
			if !dry {
				if err := h.Sweep(c.Context(), time.Now(), signRemoval(h, c)); err != nil {
					return err
				}
				_, after, err := disk.Used(h.State)
				if err != nil {
					return err
				}
				freed = max(0, before.Bytes-after.Bytes)
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]any{"dry_run": dry, "log": old, "bytes": freed})
			}
			tellPruned(c, h, old, freed, dry)
			return nil
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be removed of the log, and remove nothing")
	return c
}

func tellPruned(c *cobra.Command, h *app.App, old audit.Pruned, freed int64, dry bool) {
	w := c.OutOrStdout()
	word := "removed"
	if dry {
		word = "would remove"
	}
	switch {
	case h.Config.Log.Keep == 0:
		display.Fprintf(w, "log: every record is kept; log: {keep: 90d} in waldo.yaml sets a retention\n")
	case old.Through == 0:
		display.Fprintf(w, "log: no whole segment is older than %s\n", h.Config.Log.Keep)
	default:
		display.Fprintf(w, "log: %s %s up to record %d, of %s (%s)\n", word, display.Count(len(old.Segments), "segment"),
			old.Through, old.Newest, measuring.Sized(old.Bytes))
	}
	if !dry {
		display.Fprintf(w, "%s freed\n", measuring.Sized(freed))
	}
}

// signRemoval asks the first approver for the passphrase, and shows who can answer afterwards.
func signRemoval(h *app.App, c *cobra.Command) app.Signing {
	return func(p *approval.Checkpoint) error {
		pins := []string{h.Config.Approval.Root, os.Getenv(app.RootVariable)}
		if pins[0] == "" && pins[1] == "" {
			return &exitcode.Exit{
				Code: exitcode.Usage, Text: "the log names approvers, and the configuration names no approval.root",
				Hint: "waldo approve --enroll printed the line when the first was enrolled",
			}
		}
		var root approval.Approver
		var none error
		if err := h.Witness.Look(c.Context(), func(l *approval.Ledger) { root, none = l.Root(pins) }); err != nil ||
			none != nil {
			return errors.Join(err, none)
		}
		w := c.ErrOrStderr()
		display.Fprintf(w, "The log is removed up to record %d. Unused approvals become void. Remaining approvers:\n",
			p.Through)
		for _, e := range p.Approvers {
			display.Fprintf(w, "  %s %s, signed by %s at %s\n", e.Action, e.Approver, e.By, e.At)
		}
		by, err := rootSigner(c, h.Approvals, root, fmt.Sprintf("the removal of the log up to record %d", p.Through))
		if err != nil {
			return err
		}
		return p.Sign(by, root, time.Now())
	}
}

// signsAs shows what the first approver signs, and opens the key.
func signsAs(c *cobra.Command) app.RootSigner {
	return func(k *approval.Service, root approval.Approver, what string) (approval.Signer, error) {
		display.Fprintf(c.ErrOrStderr(), "%s signs %s\n", root.Name, display.Lines(what))
		return rootSigner(c, k, root, what)
	}
}

// rootSigner opens the first approver's key: with a passphrase at this terminal, or a passkey in the console.
func rootSigner(c *cobra.Command, k *approval.Service, root approval.Approver, what string) (approval.Signer, error) {
	if passkey.Is(root.Key) {
		return enrolling.InBrowser(c, k, root.Name, what)
	}
	return unseal(c, k, root.Name)
}
