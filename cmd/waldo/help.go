package main

import "github.com/spf13/cobra"

// groups order the commands of waldo --help by task.
var groups = []struct {
	title    string
	commands []string
}{
	{"To begin with:", []string{"demo", "doctor", "init", "import", "install"}},
	{"Run code in a sandbox:", []string{"run", "exec", "sandbox", "template"}},
	{"Stand in front of tools:", []string{"serve", "tools", "call", "lock", "login", "token"}},
	{"Say what is allowed, and answer:", []string{"check", "trust", "reload", "stop", "secret", "approvals", "approve", "deny"}},
	{"Look back:", []string{"explain", "log", "du", "prune"}},
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
