// Command waldo mediates between an AI agent and the outside world. Start at application.go, which connects all
// packages. Each other file is a group of commands.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/exitcode"
	"waldo/cmd/waldo/manual"
	"waldo/internal/app"
	"waldo/internal/core/redact"
	"waldo/internal/frontend/terminal"
)

func main() {
	app.Child()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: testscript calls it, and it returns the exit code.
func run(args []string, in io.Reader, out, errw io.Writer) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends waldo at once
	g := &global{known: &redact.Registry{}}
	errs := exitcode.Hiding{W: errw, Known: g.known}
	slog.SetDefault(slog.New(exitcode.NewLogger(errs, slog.LevelInfo, false)))
	defer func() {
		if fault := recover(); fault != nil {
			code = exitcode.Crashed(errs, fault)
		}
	}()
	root := newRoot(g)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	manual.Completion(root)
	err := root.ExecuteContext(ctx)
	if e := exitcode.Of(err); e != nil && e.Code == exitcode.Usage {
		g.json = g.json || exitcode.AsksJSON(args) // an earlier mistake can hide the flag
	}
	return exitcode.Report(errs, g.json, exitcode.Stopped(ctx, err))
}

// global holds the flags of every command.
type global struct {
	config string
	state  string
	// trusted is --trusted-config. hosted: an agent host started this process, in an arbitrary folder.
	trusted string
	hosted  bool
	json    bool
	env     string           // --environment
	redact  bool             // redact terminal output as for the model
	known   *redact.Registry // all fetched secrets; nil: the application creates its own registry
}

func newRoot(g *global) *cobra.Command {
	root := &cobra.Command{
		Use:   "waldo",
		Short: "Run AI agents' code and tools in sandboxes, under contracts",
		Long: "waldo runs agent-written code in a sandbox, decides every tool call by contract,\n" +
			"asks a human where the contract says so, and writes a log that a stranger can verify.",
		Example: "  waldo demo                       the whole thing in ten seconds\n" +
			"  waldo run -c 'print(6*7)'        Python in a fresh sandbox\n  waldo serve --stdio              the gateway for " +
			"an agent host",
		DisableFlagsInUseLine: true,
		SilenceErrors:         true,
		SilenceUsage:          true,
	}
	root.PersistentFlags().StringVar(&g.trusted, "trusted-config", "",
		"configuration `FILE`, loaded only as waldo trust recorded it")
	root.PersistentFlags().StringVar(&g.config, "config", "",
		"configuration `FILE` (default: $WALDO_CONFIG, ./waldo.yaml once trusted, ~/.config/waldo/waldo.yaml)")
	root.PersistentFlags().StringVar(&g.state, "state", "", "state `DIR` (default: $WALDO_STATE, $XDG_STATE_HOME/waldo)")
	root.PersistentFlags().StringVar(&g.env, "environment", "",
		"`NAME` of the environment, as in production (default: $WALDO_ENVIRONMENT, environment: in the configuration)")
	root.PersistentFlags().BoolVar(&g.json, "json", false, "print JSON")
	root.PersistentFlags().BoolVar(&g.redact, "redact", false,
		"hide here what is hidden from the model; otherwise a terminal hides known secrets alone")
	terminal.Colours = "auto"
	root.PersistentFlags().Var(&terminal.Colours, "color", "colours: `WHEN` is auto, always or never")
	root.SetFlagErrorFunc(manual.Flag)
	root.AddCommand(commands(g)...)
	root.SetHelpCommand(manual.NewHelp())
	completes(g).Give(root)
	group(root)
	showVersion := root.Flags().BoolP("version", "v", false, "print the version")
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return manual.Unknown(c, args[0])
		case *showVersion:
			return tellVersion(c.OutOrStdout(), g.json)
		}
		return c.Help()
	}
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// wrapArgs makes argument errors of a command and its subcommands exit with the usage code.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return manual.Args(c, args, err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}
