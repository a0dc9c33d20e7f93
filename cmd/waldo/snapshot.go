package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/sandboxflags"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/storage/sandboxes"
)

func newSandboxSnapshot(g *cli.Context) *cobra.Command {
	var list bool
	var remove string
	c := &cobra.Command{
		Use: "snapshot NAME", Short: "Keep a sandbox's files as they are now; unchanged content takes no extra space",
		Args: cobra.MaximumNArgs(1),
		Example: "  waldo sandbox snapshot work\n  waldo sandbox snapshot --list\n  waldo sandbox create copy --from p_…\n" +
			"  waldo sandbox snapshot --rm p_…",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			switch {
			case list && remove == "" && len(args) == 0:
				return listSnapshots(c, g, m)
			case remove != "" && !list && len(args) == 0:
				return m.Forget(c.Context(), app.Owner(), remove)
			case len(args) != 1 || list || remove != "":
				return exitcode.Mistake("waldo sandbox snapshot NAME", "give one sandbox, or --list, or --rm ID")
			}
			p, err := m.Snapshot(c.Context(), app.Owner(), args[0])
			if err != nil || g.JSON {
				return orJSON(c, err, p)
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", p.ID)
			display.Fprintf(c.ErrOrStderr(), "%s, %s, of which %s new\n", display.Count(p.Files, "file"),
				display.Megabytes(p.Bytes), display.Megabytes(p.New))
			return nil
		}),
	}
	c.Flags().BoolVar(&list, "list", false, "list your snapshots")
	c.Flags().StringVar(&remove, "rm", "", "delete the snapshot `ID`")
	return c
}

func listSnapshots(c *cobra.Command, g *cli.Context, m *sandboxes.Manager) error {
	all, err := m.Snapshots(c.Context(), app.Owner())
	if err != nil || g.JSON {
		return orJSON(c, err, all)
	}
	var rows [][]string
	for _, p := range all {
		rows = append(rows, []string{
			p.ID, p.Of.Name, terminal.Ago(c.OutOrStdout(), p.Created.UTC().Format(time.RFC3339), time.Now()),
			fmt.Sprint(p.Files), display.Megabytes(p.Bytes),
		})
	}
	terminal.List(c.OutOrStdout(), c.ErrOrStderr(), "snapshots", []string{"ID", "SANDBOX", "MADE", "FILES", "SIZE"}, rows)
	return nil
}

func newSandboxRestore(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "restore NAME SNAPSHOT", Short: "Give a sandbox the files of a snapshot in place of its own",
		Args:    cobra.ExactArgs(2),
		Example: "  waldo sandbox restore work p_…",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			_, err := m.Restore(c.Context(), app.Owner(), args[0], args[1])
			return err
		}),
	}
}

func newSandboxCopy(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "cp SRC DST", Short: "Copy files into a sandbox or out of it", Args: cobra.ExactArgs(2),
		Long: "One of the two is NAME:PATH, where PATH is as the code finds it in /workspace, but not below tmp. " +
			"A folder is\ncopied with its regular files and folders, without links. With - for SRC a tar is unpacked from " +
			"standard input.",
		Example: "  waldo sandbox cp . work:\n  waldo sandbox cp data.csv work:input/data.csv\n" +
			"  waldo sandbox cp ./project work:input/project\n  waldo sandbox cp work:output/report.pdf .\n" +
			"  tar c . | waldo sandbox cp - work:input",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			from, fromIn := sandboxflags.ParsePath(args[0])
			to, toIn := sandboxflags.ParsePath(args[1])
			if fromIn == toIn {
				return exitcode.Mistake("waldo sandbox cp FILE NAME:input/FILE", "one of the two must be NAME:PATH")
			}
			in := to
			if fromIn {
				in = from
			}
			s, w, done, err := m.Files(c.Context(), app.Owner(), in.Name)
			if err != nil {
				return err
			}
			defer done()
			if err := in.Check(); err != nil {
				return err
			}
			switch {
			case fromIn:
				err = sandboxes.CopyOut(c.Context(), w, from.Folder, from.Path, args[1])
			case args[0] == "-":
				err = sandboxes.Unpack(c.Context(), w, to.Folder, to.Path, c.InOrStdin(), s.Limits)
			default:
				err = sandboxes.CopyIn(c.Context(), w, args[0], to.Folder, to.Path, s.Limits)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return exitcode.Mistake("give a file or folder that is there", "%v", err)
			}
			return err
		}),
	}
}
