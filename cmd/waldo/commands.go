package main

import (
	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/demo/helpdesk"
)

// commands lists every command of waldo.
func commands(g *cli.Context) []*cobra.Command {
	all := []*cobra.Command{
		newDemo(g), newServe(g), newToken(g), newRun(g), newExec(g), newCall(g), newTools(g), newExplain(g), newCheck(g),
		newInit(g), newTrust(g), newLock(g), newApprovals(g), newApprove(g), newDeny(g), newLog(g), newSandbox(g),
		newTemplate(g), newLogin(g), newSecret(g), newDoctor(g), newVersion(g), newHelpdesk(), newDu(g), newPrune(g), newReload(g), newStop(g), newMan(),
	}
	for _, f := range features {
		if f.Commands != nil {
			all = append(all, f.Commands(g)...)
		}
	}
	return all
}

// newHelpdesk is the example server that the demo and the tests talk to.
func newHelpdesk() *cobra.Command {
	return &cobra.Command{
		Use: "helpdesk", Short: "An example MCP server on standard input and output", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return helpdesk.Serve(c.InOrStdin(), c.OutOrStdout()) },
	}
}
