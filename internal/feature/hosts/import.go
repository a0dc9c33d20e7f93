package hosts

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/feature/hosts/agenthosts"
	"waldo/internal/feature/hosts/hostfiles"
	"waldo/internal/feature/hosts/hostimport"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newImport(g *cli.Context) *cobra.Command {
	m := &hostfiles.Import{}
	c := &cobra.Command{
		Use: "import FILE | --from HOST", Short: "Read an agent host's MCP servers and write them, tight, into waldo.yaml",
		Args: cobra.MaximumNArgs(1),
		Long: "Shows the exact command of each server, moves secrets that stand in the host's file into waldo's own store, " +
			"and adds the servers\nto waldo.yaml: a host's user-wide ones to ~/.config/waldo/waldo.yaml, which holds in every " +
			"folder, others to ./waldo.yaml.\nHosts, folders and contracts of well-known servers are proposed, " +
			"each line marked so. For an unknown server a person\nis asked for every tool. The host's file is not changed.\n" +
			"Exit status 0: read, also with servers held back; 1: some entries are not servers; 2: waldo cannot read the " +
			"file.\n\nHosts: " + hostfiles.Names() + ".",
		Example: "  waldo import --from claude --dry-run\n  waldo import .mcp.json\n  waldo import ~/.codex/config.toml " +
			"--only github",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && m.From == "" {
				return exitcode.Mistake("waldo import .mcp.json, or waldo import --from claude", "name a file or a host")
			}
			m.State, m.To = g.State, cmp.Or(m.To, g.Config, os.Getenv("WALDO_CONFIG"))
			return importServers(c, g, m, args)
		},
	}
	c.Flags().StringVar(&m.From, "from", "", "the `HOST` whose files to read, or, with FILE, whose form it has")
	c.Flags().StringVar(&m.To, "out", "",
		"the `FILE` to add to (default: that of --config or $WALDO_CONFIG, else as above)")
	c.Flags().StringSliceVar(&m.Only, "only", nil, "import the server of this `NAME` alone; may be repeated")
	c.Flags().StringSliceVar(&m.Outside, "outside", nil,
		"run the server of this `NAME` in no sandbox, with all rights of waldo's user, as docker needs; may be repeated")
	c.Flags().BoolVarP(&m.Dry, "dry-run", "n", false, "show what would be done and do nothing")
	_ = c.RegisterFlagCompletionFunc("from", completeHosts)
	return c
}

// importServers imports and prints what it did.
func importServers(c *cobra.Command, g *cli.Context, m *hostfiles.Import, args []string) error {
	r, err := m.Plan(args)
	if err != nil {
		return err
	}
	if !g.JSON {
		tellImport(c.OutOrStdout(), r)
	}
	if !m.Dry {
		if err := m.WriteAll(c.Context(), r); err != nil {
			return err
		}
	}
	if g.JSON {
		return errors.Join(terminal.JSON(c.OutOrStdout(), r), r.Err())
	}
	tellWritten(c.OutOrStdout(), r, m)
	return r.Err()
}

func completeHosts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return strings.Split(hostfiles.Names(), ", "), cobra.ShellCompDirectiveNoFileComp
}

func tellImport(w io.Writer, r *hostfiles.Imported) {
	p := terminal.Painter(w)
	for _, s := range r.Servers {
		name := s.Name
		if s.Was != "" {
			name += ", there " + display.Shell(s.Was)
		}
		display.Fprintf(w, "%s  %s\n", p.Head(name), p.Dim(display.ASCII(s.From)))
		display.Fprintf(w, "  runs    %s\n", s.Shown)
		for _, f := range r.Shown {
			if f.Server == s.Name && f.Target == s.Target && s.Held == "" {
				display.Fprintf(w, "  shown   %s, and no other file\n", cli.Listed(f.Files))
			}
		}
		if s.Beside != "" && s.Held == "" && s.Skipped == "" {
			display.Fprintf(w, "          if it needs the files beside it: the line \"mounts:\" below, without its #\n")
		}
		for _, e := range s.Env {
			display.Fprintf(w, "  env     %s=%s\n", e.Name, display.Shell(e.Value))
		}
		for _, x := range s.Secrets {
			display.Fprintf(w, "  secret  %s from %s%s\n", x.Variable, x.Ref, moves(x))
		}
		if s.Bearer != nil {
			display.Fprintf(w, "  token   from %s%s\n", s.Bearer.Ref, moves(*s.Bearer))
		}
		for _, h := range s.Headers {
			display.Fprintf(w, "  header  %s from %s%s\n", display.Shell(h.Variable), h.Ref, moves(h))
		}
		for _, n := range s.Notes {
			display.Fprintf(w, "  %s    line %d: %s\n", p.Warn("note"), n.At.Line, n.Text)
		}
		switch {
		case s.Skipped != "":
			display.Fprintf(w, "  %s %s\n", p.Warn("skipped"), s.Skipped)
		case s.Held != "":
			display.Fprintf(w, "  %s    %s\n", p.Bad("held"), s.Held)
		}
	}
	for _, t := range r.Targets {
		if len(t.Diff) > 0 {
			display.Fprintf(w, "\n%s\n", p.Head(t.Path))
		}
		tellDiff(w, t.Diff)
	}
}

func moves(x hostimport.Secret) string {
	if x.Literal.IsZero() {
		return ""
	}
	return ", moved out of the file as it stands there"
}

func tellDiff(w io.Writer, diff []string) {
	p := terminal.Painter(w)
	for _, line := range diff {
		line = strings.ReplaceAll(line, "\t", "    ")
		if line[0] == '-' {
			display.Fprintf(w, "%s\n", p.Bad(line))
		} else {
			display.Fprintf(w, "%s\n", p.Good(line))
		}
	}
}

// live are the names of the servers that a file got and that are in force.
func live(r *hostfiles.Imported, path string) (names []string) {
	for _, s := range r.Servers {
		if s.Held == "" && s.Skipped == "" && s.Target == path {
			names = append(names, s.Name)
		}
	}
	return names
}

func tellWritten(w io.Writer, r *hostfiles.Imported, m *hostfiles.Import) {
	literal, all := false, 0
	for _, s := range r.Servers {
		if s.Held == "" && s.Skipped == "" {
			all++
		}
		_ = s.Each(func(x *hostimport.Secret) error { literal = literal || x.Moved; return nil })
	}
	if m.Dry {
		display.Fprintf(w, "\n%s of %d would be imported; nothing was written\n", display.Count(all, "server"),
			len(r.Servers)+len(r.Left))
		return
	}
	if !r.Written {
		display.Fprintf(w, "\nnothing to write\n")
		return
	}
	for _, t := range r.Targets {
		if len(t.Diff) == 0 {
			continue
		}
		display.Fprintf(w, "\nwrote %s: %s of %d\n", t.Path, display.Count(len(live(r, t.Path)), "server"),
			len(r.Servers)+len(r.Left))
		if t.Backup != "" {
			display.Fprintf(w, "as it was: %s\n", t.Backup)
		}
		next := "waldo check " + t.Path
		if !t.User {
			next += " && waldo trust " + t.Path
		}
		display.Fprintf(w, "next: read it, above all the lines that waldo proposed, then: %s\n", next)
		if names := live(r, t.Path); len(names) > 0 {
			with := ""
			if t.User || m.To != "" {
				with = " --config " + t.Path
			}
			display.Fprintf(w, "then: waldo%s lock --accept %s, which starts each server and pins its tools\n",
				with, strings.Join(names, " "))
		}
	}
	if _, known := agenthosts.Find(r.Host.Name); known {
		var project, user string // a project's own file starts its servers beside those of the user's file
		for _, t := range r.Targets {
			if t.User {
				user = " " + r.Host.Name + " --remove-others"
			} else {
				project = " " + r.Host.Name + " --project --remove-others"
			}
		}
		for _, flags := range []string{user, project} {
			if flags != "" {
				display.Fprintf(w, "then: waldo install%s, so that %s has these servers through waldo alone\n", flags, r.Host.Title)
			}
		}
	}
	if literal {
		display.Fprintf(w, "the secrets that were moved still stand in %s, too\n", strings.Join(r.Files, ", "))
	}
}
