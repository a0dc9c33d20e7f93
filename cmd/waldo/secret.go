package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"waldo/internal/cli"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/app/secrets"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
	"waldo/internal/storage/secretsource"
	"waldo/internal/storage/secretstore"
)

// passphrase asks at the terminal, without echo. A pipe is refused: an agent can write to a pipe,
// and the first enrolment would be its own.
func passphrase(c *cobra.Command, prompt string) (secret.Value, error) {
	f, ok := c.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return secret.Value{}, &exitcode.Exit{
			Code: exitcode.Usage, Text: "a passphrase must be typed at a terminal",
			Hint: "run this yourself, in a terminal",
		}
	}
	b, err := terminal.ReadPassword(c.Context(), f, func() { display.Fprintf(c.ErrOrStderr(), "%s", prompt) })
	display.Fprintf(c.ErrOrStderr(), "\n")
	if err != nil {
		return secret.Value{}, err
	}
	return secret.NewValue(string(b)), nil
}

func newSecret(g *cli.Context) *cobra.Command {
	c := &cobra.Command{
		Use: "secret", Short: "Secrets by name: keep, list, remove, and check where they come from", Args: cobra.NoArgs,
		Long: "Keeps secrets sealed in the state directory, and checks that every secret which the configuration names can " +
			"be had.\nShows names, never values. A contract or server refers to a kept one by its name.",
		Example: "  waldo secret set github            type it, or: pass show github | waldo secret set github\n" +
			"  waldo secret list\n  waldo secret check --json\n  waldo secret rm github",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSecretSet(g), newSecretList(g), newSecretRemove(g), newSecretCheck(g))
	return c
}

func newSecretSet(g *cli.Context) *cobra.Command {
	key := ""
	c := &cobra.Command{
		Use: "set NAME", Short: "Keep a secret that is typed without echo, or piped in", Args: cobra.ArbitraryArgs,
		Long: "Reads the secret from the terminal without echo, or from standard input up to its end, less one newline. " +
			"It is never an\nargument: those stand in the shell's history and in the list of processes.",
		Example: "  waldo secret set github\n  pass show github | waldo secret set github\n" +
			"  waldo secret set github --key keyring",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return exitcode.Mistake("pipe it: … | waldo secret set NAME; and change the secret, it is in your shell's "+
					"history now", "a secret is never an argument")
			case len(args) == 0:
				return exitcode.Mistake("as in: waldo secret set github", "missing NAME")
			case !secret.Name(args[0]):
				return exitcode.Mistake("as in: waldo secret set github", "%v", secretstore.ErrName)
			case key != "" && key != "file" && key != "keyring":
				return exitcode.Mistake("file or keyring", "--key %s is invalid", key)
			}
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			s := secrets.Open(state)
			switch {
			case s.HasKey() && key != "":
				return exitcode.Mistake("leave --key out", "the stored secrets have their key already")
			case !s.HasKey() && key != "keyring":
				s.Keyring = nil // the first key goes into a file
			}
			v, err := typed(c, args[0])
			if err != nil {
				return err
			}
			if err := app.RecordChange(c.Context(), g.State, "secret.set", args[0], ""); err != nil {
				return err
			}
			if err := s.Set(args[0], v); err != nil {
				return &exitcode.Exit{
					Code: exitcode.Usage, Err: fmt.Errorf("secret %s: %w", args[0], err),
					Hint: "nothing was kept; type a value at a terminal, or pipe one, as in: pass show x | waldo secret set x",
				}
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]any{"name": args[0], "kept": true})
			}
			display.Fprintf(c.OutOrStdout(), "kept %s\n", args[0])
			return nil
		},
	}
	c.Flags().StringVar(&key, "key", "",
		"`PLACE` of the key to the store, chosen with the first secret: file (mode 0600 beside them; the default) or keyring")
	return c
}

// typed reads a secret from the terminal without echo, or all of standard input.
func typed(c *cobra.Command, name string) (secret.Value, error) {
	if f, ok := c.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return passphrase(c, "value of "+name+" (not shown): ")
	}
	b, err := io.ReadAll(io.LimitReader(c.InOrStdin(), 64<<10))
	if err != nil {
		return secret.Value{}, err
	}
	s := strings.TrimSuffix(string(b), "\n")
	return secret.NewValue(strings.TrimSuffix(s, "\r")), nil
}

func newSecretList(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "The names of the kept secrets", Args: cobra.NoArgs,
		Example: "  waldo secret list --json",
		RunE: func(c *cobra.Command, _ []string) error {
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			all, err := secrets.Open(state).List()
			if err != nil || g.JSON {
				return orJSON(c, err, all)
			}
			var rows [][]string
			for _, e := range all {
				rows = append(rows, []string{e.Name, terminal.Ago(c.OutOrStdout(), e.Changed.Format(time.RFC3339), time.Now())})
			}
			terminal.List(c.OutOrStdout(), c.ErrOrStderr(), "stored secrets", []string{"NAME", "CHANGED"}, rows)
			return nil
		},
	}
}

func newSecretRemove(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME..", Short: "Remove kept secrets", Args: cobra.MinimumNArgs(1), Example: "  waldo secret rm github",
		RunE: func(c *cobra.Command, args []string) error {
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			s := secrets.Open(state)
			for _, name := range args {
				if s.Has(name) {
					if err := app.RecordChange(c.Context(), g.State, "secret.rm", name, ""); err != nil {
						return err
					}
				}
				if err := s.Remove(name); errors.Is(err, secretsource.ErrMissing) || errors.Is(err, secretstore.ErrName) {
					return exitcode.Mistake("waldo secret list", "unknown secret %s", name)
				} else if err != nil {
					return err
				}
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), map[string]any{"removed": args})
			}
			display.Fprintf(c.OutOrStdout(), "removed %s\n", strings.Join(args, ", "))
			return nil
		},
	}
}

func newSecretCheck(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Fetch every secret that the configuration names, and say which cannot be had",
		Args: cobra.NoArgs,
		Long: "Exit status 0: all are there; 1: some are not; 2: the configuration cannot be read. Nothing of a value " +
			"is shown.",
		Example: "  waldo secret check\n  waldo --config waldo.yaml secret check --json",
		RunE: func(c *cobra.Command, _ []string) error {
			state, cfg, err := g.Configured()
			if err != nil {
				return err
			}
			found := app.CheckSecrets(secrets.New(state, cfg, g.Known, cli.Passphrase()), cfg)
			missing := 0
			for _, f := range found {
				if !f.OK {
					missing++
				}
			}
			if g.JSON {
				if err := terminal.JSON(c.OutOrStdout(), map[string]any{"ok": missing == 0, "secrets": found}); err != nil {
					return err
				}
			} else {
				tellSecrets(c.OutOrStdout(), found)
			}
			if missing > 0 {
				return &exitcode.Exit{
					Code: exitcode.Problems, Text: fmt.Sprintf("%d of %s cannot be had", missing, display.Count(len(found), "secret")),
				}
			}
			return nil
		},
	}
}

func tellSecrets(w io.Writer, found []app.SecretFinding) {
	p := terminal.Painter(w)
	for _, f := range found {
		if f.OK {
			display.Fprintf(w, "%s %s: %s, for %s\n", p.Good("ok     "), f.At, f.Secret, f.By)
			continue
		}
		display.Fprintf(w, "%s %s: %s; wanted by %s\n", p.Bad("missing"), f.At, f.Why, f.By)
	}
	if len(found) == 0 {
		display.Fprintf(w, "the configuration names no secrets\n")
	}
}

// withoutStored leaves out the warnings of names that waldo's store has.
func withoutStored(g *cli.Context, cfg *contract.Config) []contract.Problem {
	state, err := configfile.StateDir(g.State)
	if err != nil {
		return cfg.Warnings
	}
	s := secrets.Open(state)
	return slices.DeleteFunc(cfg.Warnings, func(w contract.Problem) bool {
		return w.Code == "secret.unbound" &&
			slices.ContainsFunc(cfg.SecretUses, func(u contract.SecretUse) bool { return u.At == w.At && s.Has(string(u.Ref)) })
	})
}
