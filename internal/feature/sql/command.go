package sql

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"context"

	"github.com/spf13/cobra"

	"waldo/internal/app/fault"
	"waldo/internal/app/secrets"
	"waldo/internal/cli"
	"waldo/internal/feature/sql/postgres"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
)

func newSQL(g *cli.Context) *cobra.Command {
	c := &cobra.Command{
		Use: "sql", Short: "Prepare a PostgreSQL database for agents", Args: cobra.NoArgs,
		Long:    "An agent asks a database through a role that can only read. These commands make that role.",
		Example: "  waldo sql bootstrap --schema app",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newBootstrap(g))
	return c
}

// bootstrap is one run of waldo sql bootstrap.
type bootstrap struct {
	*cli.Context
	reader                postgres.Reader
	password, file, apply string
	public                bool
}

func newBootstrap(g *cli.Context) *cobra.Command {
	b := &bootstrap{Context: g}
	c := &cobra.Command{
		Use:   "bootstrap [--role NAME] [--schema NAME..] [--password SECRET] [--file FILE | --apply URL]",
		Short: "Write, and apply, the SQL of a role that can only SELECT", Args: cobra.NoArgs,
		Long: "Prints the statements, or writes them to a file. With --apply it runs them in one transaction as the\n" +
			"administrator of URL, says what it does, and examines the role as every call will. Applied again, nothing changes.\n" +
			"Exit status 0: the role can only read; 1: it can do more, and waldo will refuse it.",
		Example: "  waldo sql bootstrap --schema app\n  waldo sql bootstrap --schema app --file reader.sql\n" +
			"  READER_PASSWORD=… waldo sql bootstrap --password env:READER_PASSWORD --apply env:ADMIN_URL",
		RunE: func(c *cobra.Command, _ []string) error { return b.run(c) },
	}
	f := c.Flags()
	f.StringVar(&b.reader.Role, "role", "waldo_reader", "the `NAME` of the role")
	f.StringSliceVar(&b.reader.Schemas, "schema", []string{"public"}, "the `NAMES` of the schemas that it reads")
	f.StringVar(&b.password, "password", "", "the `SECRET` with its password, as in env:READER_PASSWORD; without it, the password stays")
	f.StringVar(&b.file, "file", "", "write the statements to `FILE`, which must not exist")
	f.StringVar(&b.apply, "apply", "", "run them with this `URL`, or the secret that holds it, as in env:ADMIN_URL")
	f.BoolVar(&b.public, "revoke-public", false, "with --apply: take from every role (PUBLIC) what keeps this one from being read-only")
	c.MarkFlagsMutuallyExclusive("file", "apply")
	return c
}

// applied is the result of --apply in JSON.
type applied struct {
	OK    bool     `json:"ok"`
	Steps []string `json:"steps"`
	postgres.Proof
}

func (b *bootstrap) run(c *cobra.Command) error {
	if b.public && b.apply == "" {
		return fault.Usage("add --apply URL", "--revoke-public needs a database to look at")
	}
	if b.password != "" {
		v, err := b.secret(b.password)
		if err != nil {
			return err
		}
		b.reader.Password = v
	}
	steps, err := b.reader.Steps()
	if err != nil {
		return &fault.Error{Usage: true, Err: err}
	}
	switch {
	case b.apply != "":
		return b.applyTo(c)
	case b.file != "":
		f, err := os.OpenFile(b.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return fault.Usage("name another file", "%s is there already; nothing was changed", b.file)
		}
		if err != nil {
			return err
		}
		_, err = io.WriteString(f, script(steps))
		if err = errors.Join(err, f.Close()); err == nil {
			display.Fprintf(c.OutOrStdout(), "wrote %s; an administrator runs it with psql -1 -f %s\n", b.file, b.file)
		}
		return err
	}
	if b.JSON {
		return terminal.JSON(c.OutOrStdout(), map[string]any{"sql": script(steps)})
	}
	display.Fprintf(c.OutOrStdout(), "%s", display.Text(script(steps)))
	return nil
}

// script returns the statements as a file for psql.
func script(steps []postgres.Step) string {
	var s strings.Builder
	for _, step := range steps {
		s.WriteString("-- " + step.Why + "\n" + step.SQL + ";\n\n")
	}
	return strings.TrimSuffix(s.String(), "\n")
}

// secret returns what a place such as env:NAME holds.
func (b *bootstrap) secret(ref string) (string, error) {
	state, err := b.StateDir()
	if err != nil {
		return "", err
	}
	v, err := secrets.New(state, &contract.Config{}, b.Known, nil).Get(secret.Ref(ref))
	if err != nil {
		return "", &fault.Error{Usage: true, Err: err, Tip: "as in env:NAME, with the variable set"}
	}
	return v.Reveal(), nil
}

// applyTo runs the statements, and examines the role.
func (b *bootstrap) applyTo(c *cobra.Command) error {
	url := b.apply
	if !strings.Contains(url, "://") {
		v, err := b.secret(url)
		if err != nil {
			return err
		}
		url = v
	}
	cfg, err := postgres.ParseURL(url)
	if err != nil {
		return &fault.Error{Usage: true, Err: err}
	}
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	out := applied{Steps: []string{}}
	out.Proof, err = postgres.Apply(ctx, cfg, b.reader, b.public, func(s postgres.Step) {
		out.Steps = append(out.Steps, s.Why)
		if !b.JSON {
			display.Fprintf(c.OutOrStdout(), "  %s\n", s.Why)
		}
	})
	if err != nil {
		return &fault.Error{Text: "nothing was changed", Err: err}
	}
	out.OK = len(out.Findings) == 0
	if b.JSON {
		if err := terminal.JSON(c.OutOrStdout(), out); err != nil {
			return err
		}
	} else {
		for _, f := range out.Findings {
			display.Fprintf(c.OutOrStdout(), "%s\n  %s;\n", f.String(), f.Fix)
		}
	}
	if out.OK {
		if !b.JSON {
			display.Fprintf(c.OutOrStdout(), "the role %s of %s can only read (PostgreSQL %s)\n", out.Role, out.Database, out.Server)
		}
		return nil
	}
	return &fault.Error{Problems: true, Text: "the role " + out.Role + " can do more than read: " +
		string(display.Count(len(out.Findings), "privilege")), Tip: "run the statements above, or add --revoke-public where they are of PUBLIC"}
}
