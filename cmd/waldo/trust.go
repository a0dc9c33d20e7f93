package main

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"waldo/internal/cli"
	"waldo/internal/frontend/terminal"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/app/trust"
	"waldo/internal/cli/exitcode"
	"waldo/internal/config"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// trusted is what waldo trust --json prints.
type trusted struct {
	File string `json:"file"`
	trust.Record
	Missing contract.Problems `json:"missing,omitempty"`
}

func absent(file string) bool {
	_, err := os.Lstat(file)
	return errors.Is(err, fs.ErrNotExist)
}

func newTrust(g *cli.Context) *cobra.Command {
	forget := false
	c := &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Trust the waldo.yaml in this directory",
		Long: "Without FILE, it is the waldo.yaml of this directory, or the user's own where there is none.\n" +
			"Records the digest of the file, of the waldo.lock beside it (or its absence), of its log.policy, and of each file\n" +
			"that its commands name. After a change of any of them, run waldo trust again. A command outside of sandboxes that loads\n" +
			"other files is refused, unless its line says trust: uncovered. Lists what it recorded, and what each server's\n" +
			"sandbox is shown of this machine's files. With --forget, the file is no longer trusted; it may be gone.\n" +
			"Where an approver is enrolled, the first one signs each of these, at a terminal.",
		Example: "  waldo trust\n  waldo trust ./waldo.yaml\n  waldo trust --forget",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := "waldo.yaml"
			if len(args) == 1 {
				path = args[0]
			}
			if forget {
				return forgetTrust(c, g, path)
			}
			if own, here := configfile.UserConfig(); len(args) == 0 && here == nil && absent(path) && !absent(own) {
				path = own // the one that is loaded here
			}
			if _, err := os.Stat(path); err != nil {
				return exitcode.Mistake("give the file to trust; waldo trust --forget if it is gone for good", "%v", err)
			}
			cfg, err := config.Load(path)
			if err != nil {
				return &exitcode.Exit{Code: exitcode.Usage, Err: err, Hint: "fix it first: waldo check " + path}
			}
			shown, refused, missing := cli.ShownFiles(g.State, cfg)
			if len(refused) > 0 {
				return &exitcode.Exit{Code: exitcode.Usage, Err: refused, Hint: "fix it first: waldo check " + path}
			}
			if bare := trust.Uncovered(cfg); len(bare) > 0 {
				return &exitcode.Exit{Code: exitcode.Usage, Err: bare, Hint: bare[0].Hint}
			}
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			m, abs, err := trust.Of(state, cfg)
			if err != nil {
				return err
			}
			t := trust.Record{Digest: cfg.Digest, Places: files.Places(cfg), At: time.Now().UTC()}
			if t.Lock, err = trust.Digest(trust.LockFile(state, cfg)); err != nil {
				return err
			}
			if t.Policy, err = trust.Policy(cfg); err != nil {
				return err
			}
			if t.Programs, err = trust.Programs(state, cfg); err != nil {
				return err
			}
			t.Pinned = t.Lock != trust.NoLock
			if err := showPolicy(c.ErrOrStderr(), cfg); err != nil {
				return err
			}
			if err := writeTrust(c, g, m, abs, t); err != nil {
				return err
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), trusted{File: abs, Record: t, Missing: missing})
			}
			tellTrust(c.OutOrStdout(), cfg, abs, t)
			cli.TellShown(c.OutOrStdout(), shown)
			for _, p := range missing {
				display.Fprintf(c.ErrOrStderr(), "waldo: warning: %s\nhint: %s\n", p, p.Hint)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&forget, "forget", false, "no longer trust the file")
	return c
}

// writeTrust writes a record once the log has it, after the first approver's signature where the log names one. A
// record without a digest is removed.
func writeTrust(c *cobra.Command, g *cli.Context, all map[string]trust.Record, file string, t trust.Record) error {
	s, err := g.OpenRecorded(c.Context())
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.SignTrust(c.Context(), map[string]trust.Record{file: t}, signsAs(c)); err != nil {
		return err
	}
	if err := s.RecordChange(c.Context(), "trust", file, t.Digest); err != nil {
		return err
	}
	all[file] = t
	if t.Digest == "" {
		delete(all, file)
	}
	return trust.Write(s.Store.Dir(), all)
}

// forgetTrust removes the record of a configuration.
func forgetTrust(c *cobra.Command, g *cli.Context, path string) error {
	state, err := g.StateDir()
	if err != nil {
		return err
	}
	m, abs, err := trust.Of(state, &contract.Config{File: path})
	if err != nil {
		return err
	}
	_, known := m[abs]
	if known = known || trust.Recorded(c.Context(), state, abs); !known {
		if known, err = app.Vouched(c.Context(), state, abs); err != nil {
			return err
		}
	}
	if !known {
		return exitcode.Mistake("waldo trust records one", "%s was never trusted", abs)
	}
	if err := writeTrust(c, g, m, abs, trust.Record{}); err != nil {
		return err
	}
	display.Fprintf(c.OutOrStdout(), "%s is no longer trusted\n", abs)
	return nil
}

// showPolicy prints the lines of log.policy, which decide whose word counts, before they are signed.
func showPolicy(w io.Writer, cfg *contract.Config) error {
	if cfg.Log.Policy == "" {
		return nil
	}
	text, err := os.ReadFile(cfg.Log.Policy)
	display.Fprintf(w, "%s:\n", display.Shell(cfg.Log.Policy))
	for line := range strings.Lines(string(text)) {
		display.Fprintf(w, "  %s\n", display.Lines(strings.TrimSuffix(line, "\n")))
	}
	return err
}

func tellTrust(w io.Writer, cfg *contract.Config, file string, t trust.Record) {
	servers := slices.Sorted(maps.Keys(cfg.Servers))
	display.Fprintf(w, "trusted %s (%s)\n", file, t.Digest)
	if t.Pinned {
		display.Fprintf(w, "with waldo.lock (%s)\n", t.Lock)
	} else if len(servers) > 0 {
		display.Fprintf(w, "there is no waldo.lock yet: its servers can change their tools unnoticed. To pin them: waldo lock --accept %s\n",
			strings.Join(servers, " "))
	}
	if t.Policy != "" {
		display.Fprintf(w, "with the witnesses of %s (%s)\n", display.Shell(cfg.Log.Policy), t.Policy)
	}
	for _, p := range slices.Sorted(maps.Keys(t.Programs)) {
		display.Fprintf(w, "with the program %s (%s)\n", display.Shell(p), t.Programs[p])
	}
	for _, what := range trust.Accepted(cfg) {
		display.Fprintf(w, "%s says trust: uncovered: read changes of what it loads before you start waldo\n", what)
	}
}
