package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/template"
	"waldo/internal/storage/sandboxes"
)

// openTemplates opens the template store of a state directory.
func openTemplates(state string) (*template.Store, error) {
	s, err := template.Open(filepath.Join(state, "templates"), template.Defaults())
	if err == nil {
		s.Progress = func(what string, bytes int64) io.WriteCloser { return terminal.Progress(os.Stderr, what, bytes) }
	}
	return s, err
}

// template resolves a template that a person named. "host" needs no lookup; a snapshot gives the template of its
// sandbox, with its files to start from.
func (h *application) template(ctx context.Context, name string, fresh bool) (template.Template, error) {
	if id.Is(id.Snapshot, name) {
		p, err := sandboxes.New(h.store, time.Now).Picture(ctx, owner(), name)
		if err != nil {
			return template.Template{}, inWords(err)
		}
		h.picture = p.ID
		return h.reopen(p.Of)
	}
	if name == "host" || name == "" {
		return template.Host(), nil
	}
	s, err := openTemplates(h.state)
	if err != nil {
		return template.Template{}, err
	}
	t, err := s.Find(ctx, name, fresh)
	return t, aboutTemplate(err)
}

// templateOf finds the root filesystem that a contract names; a path starts at the folder of the configuration.
func (h *application) templateOf(ctx context.Context, c contract.Contract) (sandbox.Template, template.Config, error) {
	name := c.Template
	if strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") {
		at, err := c.At.Beside(name)
		if err != nil {
			return sandbox.Template{}, template.Config{}, err
		}
		name = at
	}
	s, err := openTemplates(h.state)
	if err != nil {
		return sandbox.Template{}, template.Config{}, err
	}
	t, err := s.Find(ctx, name, false)
	return root(t), t.Config, err
}

// aboutTemplate gives errors about a named template the exit code for usage.
func aboutTemplate(err error) error {
	if err == nil {
		return nil
	}
	e := &exit{code: exitFailed, err: err, hint: "host, a folder or archive by ./path or /path, or an image such as python:3.12-slim"}
	if errors.As(err, &template.Unfit{}) {
		e.code = exitUsage
	}
	return e
}

// root converts a template for the sandbox profile.
func root(t template.Template) sandbox.Template {
	return sandbox.Template{Name: t.Name, Dir: t.Dir, UID: t.Config.UID, GID: t.Config.GID}
}

func newTemplate(g *global) *cobra.Command {
	c := &cobra.Command{
		Use: "template list|pull|rm", Short: "Root filesystems that sandboxes start from, stored by digest", Args: cobra.NoArgs,
		Example: "  waldo template pull python:3.12-slim\n  waldo template list\n  waldo run --template python:3.12-slim -c 'print(1)'",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	with := func(f func(c *cobra.Command, s *template.Store, args []string) error) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, args []string) error {
			state, err := openState(g)
			if err != nil {
				return err
			}
			s, err := openTemplates(state)
			if err != nil {
				return err
			}
			return f(c, s, args)
		}
	}
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "List the unpacked templates", Args: cobra.NoArgs, Example: "  waldo template list --json",
		RunE: with(func(c *cobra.Command, s *template.Store, _ []string) error {
			all, err := s.List()
			if err != nil || g.json {
				return orJSON(c, err, all)
			}
			var rows [][]string
			for _, t := range all {
				rows = append(rows, []string{t.Name, megabytes(t.Bytes), terminal.Ago(c.OutOrStdout(), t.At.Format(time.RFC3339), time.Now())})
			}
			terminal.Table(c.OutOrStdout(), []string{"NAME", "SIZE", "UNPACKED"}, rows)
			return nil
		}),
	}, &cobra.Command{
		Use: "pull T", Short: "Fetch and unpack a template, even if its tag is stored already", Args: cobra.ExactArgs(1), Example: "  waldo template pull python:3.12-slim",
		RunE: with(func(c *cobra.Command, s *template.Store, args []string) error {
			if args[0] == "" {
				return usage("waldo template pull python:3.12-slim", "give a template")
			}
			t, err := s.Find(c.Context(), args[0], true)
			if err != nil || g.json {
				return orJSON(c, aboutTemplate(err), t)
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", t.Name)
			if t.Skipped > 0 {
				display.Fprintf(c.ErrOrStderr(), "waldo: left out: %s\n", display.Count(t.Skipped, "special file"))
			}
			return nil
		}),
	}, &cobra.Command{
		Use: "rm DIGEST", Short: "Delete a stored template", Args: cobra.ExactArgs(1), Example: "  waldo template rm sha256:…",
		RunE: with(func(_ *cobra.Command, s *template.Store, args []string) error {
			err := s.Remove(args[0])
			if errors.As(err, &template.Unfit{}) {
				return &exit{code: exitUsage, err: err, hint: "waldo template list"}
			}
			return err
		}),
	})
	return c
}

// orJSON prints v unless there is an error.
func orJSON(c *cobra.Command, err error, v any) error {
	if err != nil {
		return err
	}
	return printJSON(c.OutOrStdout(), v)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
