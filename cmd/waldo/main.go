// Command waldo mediates between an AI agent and the outside world. Start at application.go, which connects all
// packages. Each other file is a group of commands.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"waldo/internal/app/fault"
	"waldo/internal/core/redact"
	"waldo/internal/executor/upstream/outside"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/sandbox/confined"
)

// The exit codes of waldo itself. A command that ran in a sandbox passes its own code on.
const (
	exitProblems  = 1   // a check found problems
	exitUsage     = 2   // usage or configuration
	exitDenied    = 3   // refused by contract
	exitWaiting   = 4   // waiting for a human, or refused by one
	exitTimeout   = 124 // wall-clock or CPU limit
	exitFailed    = 125 // waldo's own failure
	exitCancelled = 130 // by Ctrl-C or SIGTERM
	exitOOM       = 137 // killed for memory
)

// exit is an error with an exit code, a message and a hint.
type exit struct {
	code int
	text string // empty: already printed
	hint string
	err  error
}

func (e *exit) Error() string {
	if e.err != nil && e.text != "" {
		return e.text + ": " + e.err.Error()
	}
	if e.err != nil {
		return e.err.Error()
	}
	return e.text
}

func (e *exit) Unwrap() error { return e.err }

func usage(hint, format string, a ...any) error {
	return &exit{code: exitUsage, text: fmt.Sprintf(format, a...), hint: hint}
}

// exitOf returns the exit in an error of a command or of an application package, or nil.
func exitOf(err error) *exit {
	var e *exit
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, terminal.ErrInterrupted) {
		return &exit{code: exitCancelled, text: terminal.ErrInterrupted.Error()}
	}
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		e = &exit{code: exitFailed, text: f.Text, err: f.Err, hint: f.Tip}
		if f.Usage {
			e.code = exitUsage
		}
	}
	return e
}

// hinted is an error that carries a hint.
type hinted interface{ Hint() string }

func main() {
	confined.Main()
	outside.Main()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: testscript calls it, and it returns the exit code.
func run(args []string, in io.Reader, out, errw io.Writer) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends waldo at once
	g := &global{known: &redact.Registry{}}
	errs := hiding{errw, g.known}
	log.SetOutput(logged{errs})
	defer func() {
		if fault := recover(); fault != nil {
			code = crashed(errs, fault)
		}
	}()
	root := newRoot(g)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errw)
	err := root.ExecuteContext(ctx)
	if e := exitOf(err); e != nil && e.code == exitUsage {
		g.json = g.json || asksJSON(args) // an earlier mistake can hide the flag
	}
	return report(errs, g.json, stopped(ctx, err))
}

// asksJSON reports whether --json is among waldo's own arguments.
func asksJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// stopped maps the error of a command that Ctrl-C or SIGTERM ended to one message and exit code. A command in a
// sandbox passes its own code on.
func stopped(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil && !errors.Is(err, context.Canceled) { // -t takes Ctrl-C itself
		return err
	}
	if e := exitOf(err); e != nil && e.code != exitFailed && !errors.Is(err, context.Canceled) {
		return err
	}
	return &exit{code: exitCancelled, text: "cancelled"}
}

// report prints an error, as text or JSON, and returns its exit code.
func report(w io.Writer, asJSON bool, err error) int {
	if err == nil {
		return 0
	}
	e := exitOf(err)
	if e == nil {
		e = &exit{code: exitFailed, err: err}
	}
	hint := e.hint
	if h := hinted(nil); hint == "" && errors.As(err, &h) {
		hint = h.Hint()
	}
	if hint == "" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		hint = "free space on the disk"
	}
	said := withoutCalls(e.Error())
	if asJSON && said != "" {
		b, _ := json.Marshal(failure{said, hint, e.code}) // of two texts and a number
		_, _ = w.Write(append(display.JSON(b), '\n'))
		return e.code
	}
	if text := display.Lines(said); text != "" { // it can contain names from outside
		display.Fprintf(w, "waldo: %s\n", text)
	}
	if hint != "" {
		display.Fprintf(w, "hint: %s\n", display.Lines(hint))
	}
	return e.code
}

// failure is an error as --json prints it: one line on standard error.
type failure struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	Code  int    `json:"code"`
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
		Use:                   "waldo",
		Short:                 "Run AI agents' code and tools in sandboxes, under contracts",
		Long:                  "waldo runs agent-written code in a sandbox, decides every tool call by contract,\nasks a human where the contract says so, and writes a log that a stranger can verify.",
		Example:               "  waldo demo                       the whole thing in ten seconds\n  waldo run -c 'print(6*7)'        Python in a fresh sandbox\n  waldo serve --stdio              the gateway for an agent host",
		DisableFlagsInUseLine: true,
		SilenceErrors:         true,
		SilenceUsage:          true,
	}
	root.PersistentFlags().StringVar(&g.trusted, "trusted-config", "", "configuration `FILE`, loaded only as waldo trust recorded it")
	root.PersistentFlags().StringVar(&g.config, "config", "", "configuration `FILE` (default: $WALDO_CONFIG, ./waldo.yaml once trusted, ~/.config/waldo/waldo.yaml)")
	root.PersistentFlags().StringVar(&g.state, "state", "", "state `DIR` (default: $WALDO_STATE, $XDG_STATE_HOME/waldo)")
	root.PersistentFlags().StringVar(&g.env, "environment", "", "`NAME` of the environment, as in production (default: $WALDO_ENVIRONMENT, environment: in the configuration)")
	root.PersistentFlags().BoolVar(&g.json, "json", false, "print JSON")
	root.PersistentFlags().BoolVar(&g.redact, "redact", false, "hide here what is hidden from the model; otherwise a terminal hides known secrets alone")
	terminal.Colours = "auto"
	root.PersistentFlags().Var(&terminal.Colours, "color", "colours: `WHEN` is auto, always or never")
	root.SetFlagErrorFunc(plainFlag)
	root.AddCommand(commands(g)...)
	root.SetHelpCommand(newHelp())
	completions(root, g)
	group(root)
	showVersion := root.Flags().BoolP("version", "v", false, "print the version")
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(c, args[0])
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
				return plainArgs(c, args, err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}
