package main

import (
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/agenthost"
	"waldo/cmd/waldo/exitcode"
	"waldo/internal/agenthosts"
	"waldo/internal/app/hostfiles"
	"waldo/internal/app/trust"
	"waldo/internal/config"
	"waldo/internal/model/display"
)

func newTrust(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Trust the waldo.yaml in this directory",
		Long: "Records the digest of the file, of the waldo.lock beside it (or its absence), " +
			"and of the programs and scripts\nin its folder that its servers start, or that a command outside of sandboxes names. " +
			"After a change of any of them,\nrun waldo trust again. Lists what it recorded, and what\neach server's sandbox is shown of this machine's files.",
		Example: "  waldo trust\n  waldo trust ./waldo.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := "waldo.yaml"
			if len(args) == 1 {
				path = args[0]
			}
			if _, err := os.Stat(path); err != nil {
				return exitcode.Mistake("give the file to trust", "%v", err)
			}
			cfg, err := config.Load(path)
			if err != nil {
				return &exitcode.Exit{Code: exitcode.Usage, Err: err, Hint: "fix it first: waldo check " + path}
			}
			shown, refused, missing := hostfiles.ShownFiles(g.state, cfg)
			if len(refused) > 0 {
				return &exitcode.Exit{Code: exitcode.Usage, Err: refused, Hint: "fix it first: waldo check " + path}
			}
			state, err := openState(g)
			if err != nil {
				return err
			}
			m, abs, err := trust.Of(state, cfg)
			if err != nil {
				return err
			}
			t := trust.Record{Digest: cfg.Digest, At: time.Now().UTC()}
			if t.Lock, err = trust.Digest(trust.LockFile(state, cfg)); err != nil {
				return err
			}
			if t.Programs, err = trust.Programs(state, cfg); err != nil {
				return err
			}
			t.Pinned = t.Lock != trust.NoLock
			m[abs] = t
			if err := trust.Write(state, m); err != nil {
				return err
			}
			tellTrust(c.OutOrStdout(), abs, t, slices.Sorted(maps.Keys(cfg.Servers)))
			agenthost.TellShown(c.OutOrStdout(), shown)
			for _, p := range append(trust.Uncovered(cfg), missing...) {
				display.Fprintf(c.ErrOrStderr(), "waldo: warning: %s\nhint: %s\n", p, p.Hint)
			}
			return nil
		},
	}
}

func tellTrust(w io.Writer, file string, t trust.Record, servers []string) {
	display.Fprintf(w, "trusted %s (%s)\n", file, t.Digest)
	if t.Pinned {
		display.Fprintf(w, "with waldo.lock (%s)\n", t.Lock)
	} else if len(servers) > 0 {
		display.Fprintf(w, "there is no waldo.lock yet: its servers can change their tools unnoticed. To pin them: waldo lock --accept %s\n",
			strings.Join(servers, " "))
	}
	for _, p := range slices.Sorted(maps.Keys(t.Programs)) {
		display.Fprintf(w, "with the program %s (%s)\n", agenthosts.Show(p), t.Programs[p])
	}
	if len(t.Programs) > 0 {
		display.Fprintf(w, "files that these programs import or load themselves are not covered: read changes of them, too\n")
	}
}
