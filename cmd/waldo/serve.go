package main

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"waldo/internal/call"
	"waldo/internal/contract"
	"waldo/internal/gateway"
)

// instructions tell the model how to use the gateway.
const instructions = "Tools run under contracts. A denied call says why and is not worth repeating unchanged; a call that waits for a human " +
	"names an approval id: make the same call again later. For many calls or large data write one run_python script: servers.NAME.TOOL(...) " +
	"calls the tools from inside, workspace.write keeps files, and only what it prints comes back."

// warmBoxes is how many boxes a gateway keeps ready at most. It starts with none: the first run of
// a language is cold.
const warmBoxes = 8

// maxSessions is how many Pythons may stay between the calls of one waldo serve.
const maxSessions = 8

func newServe(g *global) *cobra.Command {
	var stdio bool
	var listen string
	c := &cobra.Command{
		Use: "serve [--stdio]", Short: "The gateway: an MCP server for an agent host", Args: cobra.NoArgs,
		Long: "Offers waldo's own tools and those of the configured servers over standard input and output, every call through the\n" +
			"corridor. Listening on HTTP is not part of this build and is refused.",
		Example: "  waldo serve --stdio\n  claude mcp add waldo -- waldo serve --stdio",
		RunE: func(c *cobra.Command, _ []string) error {
			if listen != "" || (!stdio && terminal(c.InOrStdin())) {
				return usage("waldo serve --stdio, started by the agent's host", "this build serves standard input and output alone")
			}
			h, err := openHouse(c.Context(), g, settings{warm: warmBoxes, sessions: maxSessions})
			if err != nil {
				return err
			}
			defer h.Close()
			n, err := h.open()
			if err != nil {
				return err
			}
			defer h.sessions.Close(n.ID)
			defer h.tidy(n)
			h.keepClean(c.Context())
			door := gateway.New(gateway.Options{
				Version: version, Instructions: instructions, Catalogue: h.catalogue, Call: h.broker.Call,
				Mode:  func(cap call.Capability) contract.Mode { k, _ := h.policy.Lookup(cap); return k.Mode },
				Log:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
				Aside: h.aside, Ended: h.upstreams.Forget,
			})
			h.door.Store(door)
			return door.Serve(c.Context(), c.InOrStdin(), c.OutOrStdout(), gateway.Who{Session: n.ID, Principal: n.Principal})
		},
	}
	c.Flags().BoolVar(&stdio, "stdio", false, "serve standard input and output; the default when standard input is a pipe")
	c.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to listen on; refused by this build")
	return c
}
