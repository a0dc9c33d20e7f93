package hosts

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/feature/hosts/hostfiles"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newInstall(g *cli.Context) *cobra.Command {
	n, show := &hostfiles.Install{}, false
	c := &cobra.Command{
		Use: "install HOST", Short: "Write waldo into an agent host's configuration as its MCP server",
		Args: cobra.ExactArgs(1),
		Long: "Changes one entry of the host's file and nothing else: comments, order and unknown keys stay. " +
			"The file is replaced whole, with\nits mode and owner, and kept as it was under the state directory until --undo. " +
			"A second time changes nothing.\n\nHosts: " + hostfiles.Names() + ".",
		Example: "  waldo install claude --dry-run\n  waldo install codex --config ~/agents/waldo.yaml\n" +
			"  waldo install cursor --project --remove-others\n  waldo install opencode --url http://127.0.0.1:7676/mcp " +
			"--token-env WALDO_TOKEN\n  waldo install claude --undo",
		ValidArgsFunction: completeHosts,
		RunE: func(c *cobra.Command, args []string) error {
			host, err := hostfiles.Find(args[0])
			if err != nil {
				return err
			}
			n.Host, n.Config, n.State = host, g.Config, g.State
			if show {
				text, err := n.Entry()
				if err != nil {
					return err
				}
				_, err = io.WriteString(c.OutOrStdout(), text)
				return err
			}
			r, err := n.Do(c.Context())
			if err != nil {
				return err
			}
			if g.JSON {
				return terminal.JSON(c.OutOrStdout(), r)
			}
			tellInstalled(c.OutOrStdout(), n, r)
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&n.Project, "project", false, "the file in this folder, which a repository may share")
	f.BoolVar(&n.User, "user", false, "your own file; the default")
	f.StringVar(&n.Name, "name", "waldo", "the `NAME` of the entry")
	f.StringVar(&n.Gateway.URL, "url", "", "the `ADDRESS` of a waldo that listens, in place of starting one")
	f.StringVar(&n.Gateway.TokenEnv, "token-env", "",
		"with --url, the `VARIABLE` of the host's environment that holds its token")
	f.BoolVar(&n.Alone, "remove-others", false,
		"take the host's other servers out, which go past waldo; --undo brings them back")
	f.BoolVar(&n.Undo, "undo", false, "take the last change back")
	f.BoolVar(&show, "print", false, "print the entry, to be put in by hand, and do nothing")
	f.BoolVarP(&n.Dry, "dry-run", "n", false, "show what would be done and do nothing")
	c.MarkFlagsMutuallyExclusive("project", "user")
	c.MarkFlagsMutuallyExclusive("undo", "print", "remove-others")
	return c
}

// tellInstalled prints what an installation did.
func tellInstalled(w io.Writer, n *hostfiles.Install, r *hostfiles.Installed) {
	p := terminal.Painter(w)
	display.Fprintf(w, "%s  %s\n", p.Head(n.Host.Title), r.File)
	tellDiff(w, r.Diff)
	switch {
	case n.Dry:
		display.Fprintf(w, "nothing was written\n")
	case n.Undo && r.Exact:
		display.Fprintf(w, "taken back: every byte is as it was\n")
	case n.Undo:
		display.Fprintf(w, "taken back; what else has changed since was left alone\n")
	case r.Written:
		display.Fprintf(w, "written; to take it back: waldo install %s%s --undo\n", n.Host.Name,
			map[bool]string{true: " --project"}[n.Project])
		restart, of, _ := strings.Cut(n.Host.Restart, "; ")
		if of != "" && (n.Project || !strings.Contains(of, "project")) {
			restart = n.Host.Restart
		}
		tellLoads(w, n, r)
		display.Fprintf(w, "next: %s\n", restart)
		tellOwn(w, p, n)
	default:
		display.Fprintf(w, "it is there already; nothing was written\n")
	}
	if r.Note != "" && !n.Undo {
		display.Fprintf(w, "%s %s\n", p.Warn("note:"), r.Note)
	}
	if len(r.Others) > 0 {
		shown := slices.Clone(r.Others)
		for i := range shown {
			shown[i] = display.Shell(shown[i])
		}
		display.Fprintf(w, "%s this host also has %s, and waldo sees nothing of it\n", p.Warn("note:"),
			strings.Join(shown, ", "))
		from, project := "--from "+n.Host.Name, ""
		if n.Project {
			from, project = r.File, " --project"
		}
		display.Fprintf(w, "hint: waldo import %s, then waldo install %s%s --remove-others\n", from, n.Host.Name, project)
	}
}

// tellOwn says what of the host does not go through waldo, and how to switch it off.
func tellOwn(w io.Writer, p terminal.Paint, n *hostfiles.Install) {
	if n.Host.Outside == "" {
		display.Fprintf(w, "%s tools that %s has of its own do not go through waldo: switch them off in its settings\n",
			p.Warn("note:"), n.Host.Title)
		return
	}
	display.Fprintf(w, "%s the shell, editor and fetch of %s itself do not go through waldo. To switch them off:\n  %s\n"+
		"or start it inside: waldo launch %s\n", p.Warn("note:"), n.Host.Title, n.Host.Outside, n.Host.Name)
}

// tellLoads says which servers and contracts the host gets: those of the configuration that the entry loads.
func tellLoads(w io.Writer, n *hostfiles.Install, r *hostfiles.Installed) {
	switch {
	case n.Gateway.URL != "" || r.Note != "":
	case n.Project && r.Loads != "":
		display.Fprintf(w, "it loads %s\n", r.Loads)
	case r.Loads != "" && n.Config == "":
		display.Fprintf(w, "it loads %s in every folder that has no trusted waldo.yaml of its own\n", r.Loads)
	case r.Loads != "":
		display.Fprintf(w, "it loads %s in every folder\n", r.Loads)
	default:
		display.Fprintf(w, "it has no configuration yet, so the host gets sandboxed code and no servers: "+
			"waldo import writes one\n")
	}
}
