package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/agenthost"
	"waldo/cmd/waldo/agenting"
	"waldo/cmd/waldo/consoling"
	"waldo/cmd/waldo/databases"
	"waldo/cmd/waldo/doctoring"
	"waldo/cmd/waldo/generating"
	"waldo/cmd/waldo/hooking"
	"waldo/cmd/waldo/telling"
	"waldo/internal/app"
	"waldo/internal/core/approval"
	"waldo/internal/core/redact"
	"waldo/internal/demo/helpdesk"
	"waldo/internal/model/contract"
)

// commands lists every command of waldo.
func commands(g *global) []*cobra.Command {
	hosts := agenthost.Waldo{Config: &g.config, State: &g.state, JSON: &g.json}
	return []*cobra.Command{
		newDemo(g), newServe(g), newToken(g), newRun(g), newExec(g), newCall(g), newTools(g), newExplain(g), newCheck(g),
		newInit(g), newTrust(g), newLock(g), newGen(g), newApprovals(g), newApprove(g), newDeny(g), newLog(g), newSandbox(g),
		newTemplate(g), newLogin(g), newSecret(g), newDoctor(g), newVersion(g), newHelpdesk(), agenthost.NewImport(hosts),
		agenthost.NewInstall(hosts), newDu(g), newPrune(g), newReload(g), newStop(g), newMan(), newConsole(g), newSQL(g),
		newHook(g),
		newAgent(g),
	}
}

// newHelpdesk is the example server that the demo and the tests talk to.
func newHelpdesk() *cobra.Command {
	return &cobra.Command{
		Use: "helpdesk", Short: "An example MCP server on standard input and output", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return helpdesk.Serve(c.InOrStdin(), c.OutOrStdout()) },
	}
}

func newDoctor(g *global) *cobra.Command {
	return doctoring.New(doctoring.Waldo{Known: g.known, JSON: &g.json, Downloads: downloads,
		Config: func() (string, *contract.Config, error) { return configured(g) }})
}

func newSQL(g *global) *cobra.Command {
	return databases.New(databases.Waldo{State: func() (string, error) { return openState(g) }, Known: g.known, JSON: &g.json})
}

// newGen is in a package of its own.
func newGen(g *global) *cobra.Command {
	return generating.New(generating.Waldo{
		Open: func(ctx context.Context, s app.Options) (*app.App, error) { return openApplication(ctx, g, s) },
		JSON: &g.json, Servers: completes(g).Servers,
	})
}

func newConsole(g *global) *cobra.Command {
	return consoling.New(consoling.Waldo{JSON: &g.json,
		Storage: func() (*app.Storage, error) { return openStorage(g) },
		Open:    func(ctx context.Context, s app.Options) (*app.App, error) { return openApplication(ctx, g, s) }})
}

func newHook(g *global) *cobra.Command {
	return hooking.New(hooking.Waldo{Config: func() (string, *contract.Config, error) { return configured(g) },
		Known: func() *redact.Registry { return g.known }, Passphrase: asks, JSON: &g.json})
}

func newAgent(g *global) *cobra.Command {
	return agenting.New(agenting.Waldo{JSON: &g.json, Teller: func(w io.Writer) approval.Notifier { return telling.Teller{W: w} },
		Open: func(ctx context.Context, s app.Options) (*app.App, error) { return openApplication(ctx, g, s) }})
}
