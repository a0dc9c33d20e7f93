// Package templates is waldo template.
package templates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/building"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/sandbox/template"
)

// Waldo has the parts of waldo that the commands use.
type Waldo struct {
	State    func() (string, error)
	Open     func(ctx context.Context, s app.Options) (*app.App, error)
	Progress func(what string, bytes int64) io.WriteCloser
	JSON     *bool // whether --json was given
}

// New returns the command.
func New(w Waldo) *cobra.Command {
	c := &cobra.Command{
		Use: "template build|list|pull|rm", Args: cobra.NoArgs,
		Short: "Root filesystems and packages that sandboxes start from, stored by digest",
		Example: "  waldo template build data --python requirements.txt\n  waldo template pull python:3.12-slim\n" +
			"  waldo template list\n" +
			"  waldo run --template data -c 'import pandas'",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(w.build(), &cobra.Command{
		Use: "list", Short: "List the stored templates", Args: cobra.NoArgs, Example: "  waldo template list --json",
		RunE: w.with(w.list),
	}, &cobra.Command{
		Use: "pull T", Short: "Fetch and unpack a template, even if its tag is stored already", Args: cobra.ExactArgs(1),
		Example: "  waldo template pull python:3.12-slim",
		RunE:    w.with(w.pull),
	}, &cobra.Command{
		Use: "rm DIGEST|NAME", Short: "Delete a stored template", Args: cobra.ExactArgs(1),
		Example: "  waldo template rm sha256:…\n  waldo template rm data",
		RunE: w.with(func(_ *cobra.Command, s *template.Store, args []string) error {
			err := s.Remove(args[0])
			if errors.As(err, &template.Unfit{}) {
				return &exitcode.Exit{Code: exitcode.Usage, Err: err, Hint: "waldo template list"}
			}
			return err
		}),
	})
	return c
}

// with opens the store for a command.
func (w Waldo) with(f func(*cobra.Command, *template.Store, []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		state, err := w.State()
		if err != nil {
			return err
		}
		s, err := app.OpenTemplates(state, w.Progress)
		if err != nil {
			return err
		}
		return f(c, s, args)
	}
}

func (w Waldo) list(c *cobra.Command, s *template.Store, _ []string) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	if *w.JSON {
		return terminal.JSON(c.OutOrStdout(), all)
	}
	var rows [][]string
	for _, t := range all {
		age := terminal.Ago(c.OutOrStdout(), t.At.Format(time.RFC3339), time.Now())
		rows = append(rows, []string{t.Name, display.Megabytes(t.Bytes), age})
	}
	terminal.List(c.OutOrStdout(), c.ErrOrStderr(), "templates", []string{"NAME", "SIZE", "UNPACKED"}, rows)
	return nil
}

func (w Waldo) pull(c *cobra.Command, s *template.Store, args []string) error {
	if args[0] == "" {
		return exitcode.Mistake("waldo template pull python:3.12-slim", "give a template")
	}
	t, err := s.Find(c.Context(), args[0], true)
	if err != nil {
		return app.AboutTemplate(err)
	}
	if *w.JSON {
		return terminal.JSON(c.OutOrStdout(), t)
	}
	display.Fprintf(c.OutOrStdout(), "%s\n", t.Name)
	if t.Skipped > 0 {
		display.Fprintf(c.ErrOrStderr(), "waldo: left out: %s\n", display.Count(t.Skipped, "special file"))
	}
	return nil
}

func (w Waldo) build() *cobra.Command {
	var want building.Wanted
	c := &cobra.Command{
		Use:   "build NAME [--python requirements.txt] [--npm package-lock.json]",
		Short: "Make a template of pinned packages that sandboxes see beside this machine's /usr", Args: cobra.ExactArgs(1),
		Long: "Fetches wheels and packages of npm from the registries that pip and npm on this machine are set to, in a\n" +
			"sandbox that reaches nothing else. No code of a package runs. NAME.lock.json, beside the input, has the SHA-256\n" +
			"of each wheel: the next build takes exactly these, here and on other machines of the same kind. A sandbox with\n" +
			"the template needs no network.",
		Example: "  waldo template build data --python requirements.txt\n" +
			"  waldo template build web --npm package-lock.json\n" +
			"  waldo template build data --python requirements.txt --upgrade\n" +
			"  waldo run --template data -c 'import pandas; print(pandas.__version__)'",
		RunE: func(c *cobra.Command, args []string) error {
			want.Name = args[0]
			return w.make(c, want)
		},
	}
	f := c.Flags()
	f.StringVar(&want.Python, "python", "",
		"install the wheels of a requirements `FILE`: NAME==VERSION lines, perhaps with --hash")
	f.StringVar(&want.Npm, "npm", "", "install the packages of a package-lock.json `FILE`")
	f.StringVar(&want.Lock, "lock", "", "read and write the lock in `FILE` (default NAME.lock.json beside the input)")
	f.BoolVar(&want.Upgrade, "upgrade", false, "ignore the versions of the lock and choose again")
	f.BoolVar(&want.Locked, "locked", false, "fail if the lock would have to change, as in CI")
	c.MarkFlagsMutuallyExclusive("upgrade", "locked")
	return c
}

func (w Waldo) make(c *cobra.Command, want building.Wanted) error {
	h, err := w.Open(c.Context(), app.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	s, err := app.OpenTemplates(h.State, w.Progress)
	if err != nil {
		return err
	}
	made, err := building.Build(c.Context(), building.Tools{Packages: h.Packages, Store: s, Progress: w.Progress}, want)
	if err != nil {
		return err
	}
	if *w.JSON {
		return terminal.JSON(c.OutOrStdout(), made)
	}
	out := c.OutOrStdout()
	display.Fprintf(out, "%s\n", made.Name)
	said := ""
	if b := made.Built; b.Wheels > 0 {
		said = fmt.Sprintf("%s for Python %s", display.Count(b.Wheels, "wheel"), b.Python)
	}
	if b := made.Built; b.Npm > 0 {
		if said != "" {
			said += ", "
		}
		said += display.Count(b.Npm, "package") + " of npm"
	}
	if made.Reused {
		said += ", built before"
	}
	display.Fprintf(out, "%s, %s\n", said, display.Megabytes(made.Bytes))
	for _, line := range made.Changed {
		display.Fprintf(out, "  %s\n", line)
	}
	display.Fprintf(out, "lock: %s\n", filepath.ToSlash(made.LockFile))
	display.Fprintf(out, "use:  waldo run --template %[1]s FILE, or in a contract of waldo.yaml: template: %[1]s\n",
		made.Built.Name)
	return nil
}
