package changes

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newCommand(g *cli.Context) *cobra.Command {
	undo := false
	c := &cobra.Command{
		Use: "changes [ID [apply|drop] [PATH..]]", Short: "What runs changed below their writable mounts: take it, or take it back",
		Long: "Without an id, lists the runs whose changes are kept, for 30 days. With one, shows its changes. After\n" +
			"`--changes review`, apply takes them all at once or, if one of the files changed outside since, none; drop\n" +
			"forgets them. After `--changes keep`, --undo takes back each file that nothing else has changed since.\n" +
			"A file with a protected name is taken by its own path alone.",
		Example: "  waldo exec --mount .:rw --changes review -- make fmt\n  waldo changes c_…\n" +
			"  waldo changes c_… apply src docs/a.md\n  waldo changes --undo c_…",
		RunE: func(c *cobra.Command, args []string) error {
			state, err := g.StateDir()
			if err != nil {
				return err
			}
			s := In(state)
			if len(args) == 0 {
				if undo {
					return exitcode.Mistake("waldo changes lists them", "--undo needs the id of a run")
				}
				return list(c.OutOrStdout(), s, g.JSON)
			}
			r, err := s.Load(args[0])
			if errors.Is(err, ErrAbsent) {
				return exitcode.Mistake("waldo changes lists them", "%v", err)
			}
			if err != nil {
				return err
			}
			verb, paths := "show", args[1:]
			if len(paths) > 0 && (paths[0] == "apply" || paths[0] == "drop") {
				verb, paths = paths[0], paths[1:]
			}
			if undo && verb != "show" {
				return exitcode.Mistake("give one of them", "--undo and %s do not go together", verb)
			}
			if undo {
				verb = "undo"
			}
			if r.stays() && (verb == "apply" || verb == "drop") {
				return exitcode.Mistake("waldo changes --undo "+r.ID+" takes back what has not changed since and has a copy",
					"the changes of %s were made as it ran, so none wait to be taken", r.ID)
			}
			paths, err = places(r, paths)
			if err != nil {
				return err
			}
			return act(c, g.JSON, s, r, verb, paths)
		},
	}
	c.Flags().BoolVar(&undo, "undo", false, "take back what the run changed")
	return c
}

// places makes paths absolute. They count from the current folder if that is in a folder of the record, and from the
// record's folder otherwise.
func places(r *Record, paths []string) (out []string, err error) {
	for _, p := range paths {
		full, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		known := false
		for _, f := range r.Folders {
			known = known || full == f.Source || strings.HasPrefix(full, f.Source+"/")
		}
		if !known {
			full = filepath.Clean(p)
		}
		found := false
		for _, f := range r.Folders {
			for _, e := range f.Entries {
				yes, _ := chosen(f, e, []string{full})
				found = found || yes
			}
		}
		if !found {
			return nil, exitcode.Mistake("waldo changes "+r.ID+" lists them", "nothing changed at %s", p)
		}
		out = append(out, full)
	}
	return out, nil
}

func act(c *cobra.Command, asJSON bool, s *Store, r *Record, verb string, paths []string) error {
	var n int
	var left []Conflict
	var err error
	switch verb {
	case "show":
		if asJSON {
			return terminal.JSON(c.OutOrStdout(), r)
		}
		return s.Show(c.OutOrStdout(), r, paths)
	case "apply":
		n, left, err = s.Apply(r, paths)
	case "drop":
		n, err = s.Drop(r, paths)
	case "undo":
		n, left, err = s.Undo(r, paths)
	}
	var why Conflict
	if errors.As(err, &why) {
		return &exitcode.Exit{Code: exitcode.Problems, Err: fmt.Errorf("nothing was taken:\n%w", err),
			Hint: "take the others by their paths, or drop these"}
	}
	if err != nil {
		return err
	}
	if asJSON {
		return terminal.JSON(c.OutOrStdout(), map[string]any{"changes": n, "left": left})
	}
	word := map[string]string{"apply": "taken", "drop": "dropped", "undo": "taken back"}[verb]
	display.Fprintf(c.OutOrStdout(), "%s %s\n", display.Count(n, "change"), word)
	for _, l := range left {
		display.Fprintf(c.ErrOrStderr(), "left: %s\n", l.Error())
	}
	if len(left) > 0 {
		return &exitcode.Exit{Code: exitcode.Problems, Text: display.Count(len(left), "change") + " left"}
	}
	return nil
}

func list(w io.Writer, s *Store, asJSON bool) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	if asJSON {
		if all == nil {
			all = []*Record{}
		}
		return terminal.JSON(w, all)
	}
	for _, r := range all {
		count := map[string]int{}
		folders := []string{}
		for _, f := range r.Folders {
			folders = append(folders, f.Source)
			for _, e := range f.Entries {
				count[e.State]++
			}
		}
		display.Fprintf(w, "%s  %-7s %s  %s", r.ID, r.Mode, r.Begun.Local().Format("2006-01-02 15:04"), strings.Join(folders, " "))
		for _, st := range []string{made, waiting, dropped, undone} {
			if count[st] > 0 {
				display.Fprintf(w, "  %d %s", count[st], st)
			}
		}
		display.Fprintf(w, "\n")
	}
	return nil
}
