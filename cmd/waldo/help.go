package main

import (
	"github.com/spf13/cobra"

	"waldo/internal/cli/manual"
	"waldo/internal/model/display"
)

// groups order the commands of waldo --help by task.
var groups = []struct {
	title    string
	commands []string
}{
	{"To begin with:", []string{"demo", "launch", "doctor", "init", "import", "install"}},
	{"Run code in a sandbox:", []string{"run", "exec", "agent", "sandbox", "template", "changes"}},
	{"Stand in front of tools:", []string{"serve", "worker", "tools", "call", "lock", "gen", "login", "token", "delegate", "console", "hook", "e2b"}},
	{"Say what is allowed, and answer:", []string{
		"check", "trust", "reload", "stop", "secret", "sql", "approvals", "approve", "deny",
		"threatmodel",
	}},
	{"Look back:", []string{"explain", "log", "settle", "undo", "du", "prune", "backup", "restore", "store", "service"}},
	{"The rest:", []string{"man", "version"}}, // and completion and help, which cobra adds
}

// group puts the commands of root under their titles. A command that no group names is listed last.
func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range g.commands {
			for _, c := range root.Commands() {
				if c.Name() == name {
					c.GroupID = g.title
				}
			}
		}
	}
	root.SetCompletionCommandGroupID(groups[len(groups)-1].title)
	root.SetHelpCommandGroupID(groups[len(groups)-1].title)
}

func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write a man page for each command into a directory", Args: cobra.ExactArgs(1),
		Long: "Writes waldo.1, waldo-run.1 and so on, made from the commands themselves, and replaces what has " +
			"these names.",
		Example: "  waldo man ~/.local/share/man/man1\n  man waldo-run",
		RunE: func(c *cobra.Command, args []string) error {
			n, err := manual.Write(c.Root(), args[0], version)
			if err == nil {
				display.Fprintf(c.OutOrStdout(), "%s in %s\n", display.Count(n, "man page"), args[0])
			}
			return err
		},
	}
}
