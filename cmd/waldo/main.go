// Command waldo mediates between an AI agent and the outside world. features.go lists the features; each other file is
// a group of commands.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"waldo/internal/app/memory"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/manual"
	"waldo/internal/core/redact"
	"waldo/internal/executor/runner"
	"waldo/internal/frontend/terminal"
)

func main() {
	memory.Starting()
	child()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: testscript calls it, and it returns the exit code.
func run(args []string, in io.Reader, out, errw io.Writer) (code int) {
	g := withFeatures(&cli.Context{Version: version, Known: &redact.Registry{}})
	errs := exitcode.Hiding{W: errw, Known: g.Known}
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
	if slices.ContainsFunc(args, func(s string) bool { return strings.HasPrefix(s, cobra.ShellCompRequestCmd) }) {
		g.Complete(root)
	}
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if c, _, err := root.Find(args); err == nil && c.Name() != "serve" && !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP, syscall.SIGQUIT) // what a run has planted is taken out without a terminal, too
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	context.AfterFunc(ctx, func() {
		cleaned(ends)
		stop() // from now on a signal ends waldo at once
	})
	err := root.ExecuteContext(ctx)
	if e := exitcode.Of(err); e != nil && e.Code == exitcode.Usage {
		g.JSON = g.JSON || exitcode.AsksJSON(args) // an earlier mistake can hide the flag
	}
	return exitcode.Report(errs, g.JSON, exitcode.Within(exitcode.Stopped(ctx, err)))
}

// cleaned waits until no run has protected names to take out. Signals change nothing meanwhile.
func cleaned(ends []os.Signal) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, ends...)
	defer signal.Stop(again)
	select {
	case <-runner.Cleaned():
	case <-again:
		slog.Warn("cleaning up: what the run planted is taken out first; only SIGKILL ends waldo now")
		<-runner.Cleaned()
	}
}

func newRoot(g *cli.Context) *cobra.Command {
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
	root.PersistentFlags().StringVar(&g.Trusted, "trusted-config", "",
		"configuration `FILE`, loaded only as waldo trust recorded it")
	root.PersistentFlags().StringVar(&g.Config, "config", "",
		"configuration `FILE` (default: $WALDO_CONFIG, ./waldo.yaml once trusted, ~/.config/waldo/waldo.yaml)")
	root.PersistentFlags().StringVar(&g.State, "state", "", "state `DIR` (default: $WALDO_STATE, $XDG_STATE_HOME/waldo)")
	root.PersistentFlags().StringVar(&g.Environment, "environment", "",
		"`NAME` of the environment, as in production (default: $WALDO_ENVIRONMENT, environment: in the configuration)")
	root.PersistentFlags().Var(&g.Delegation, "delegation",
		"`TOKEN` of waldo delegate: make every call under that delegation (default: $WALDO_DELEGATION)")
	root.PersistentFlags().BoolVar(&g.JSON, "json", false, "print JSON")
	root.PersistentFlags().BoolVar(&g.Redact, "redact", false,
		"hide here what is hidden from the model; otherwise a terminal hides known secrets alone")
	terminal.Colours = "auto"
	root.PersistentFlags().Var(&terminal.Colours, "color", "colours: `WHEN` is auto, always or never")
	root.SetFlagErrorFunc(manual.Flag)
	root.AddCommand(commands(g)...)
	root.SetHelpCommand(manual.NewHelp())
	group(root)
	showVersion := root.Flags().BoolP("version", "v", false, "print the version")
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return manual.Unknown(c, args[0])
		case *showVersion:
			return tellVersion(c.OutOrStdout(), g.JSON)
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
