// Command waldo stands between an AI agent and the outside world. Start at house.go, which lists
// every room and how they are joined; each other file is a group of commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"waldo/internal/redact"
	"waldo/internal/sandbox/confined"
	"waldo/internal/upstream/outside"
)

// version is set by the linker for a release.
var version = "0.1.0-dev"

// The exit codes of waldo itself. Where a command ran, its own code is passed on instead.
const (
	exitProblems = 1   // a check found problems
	exitUsage    = 2   // usage or configuration
	exitDenied   = 3   // refused by contract
	exitWaiting  = 4   // waiting for a human, or refused by one
	exitTimeout  = 124 // wall-clock or CPU limit
	exitFailed   = 125 // waldo's own failure
	exitOOM      = 137 // killed for memory
)

// exit is an error that carries an exit code, what was wrong, and what to do about it.
type exit struct {
	code int
	text string // empty: already told
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

// hinted is any error that knows what to do about it.
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
	context.AfterFunc(ctx, stop) // whoever asks twice to end does not wait
	g := &global{known: &redact.Registry{}}
	errs := hiding{errw, g.known}
	log.SetOutput(errs)
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
	return report(errs, root.ExecuteContext(ctx))
}

// report writes an error the one way waldo does and returns the exit code for it.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	var e *exit
	if !errors.As(err, &e) {
		e = &exit{code: exitFailed, err: err}
	}
	if text := redact.Clean(e.Error()); text != "" { // it may name what somebody else has named
		fmt.Fprintf(w, "waldo: %s\n", text)
	}
	hint := e.hint
	if h := hinted(nil); hint == "" && errors.As(err, &h) {
		hint = h.Hint()
	}
	if hint == "" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		hint = "make room on the disk"
	}
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", hint)
	}
	return e.code
}

// global holds the flags that every command takes.
type global struct {
	config string
	state  string
	json   bool
	known  *redact.Registry // every secret that was fetched; nil: the house has its own
}

func newRoot(g *global) *cobra.Command {
	root := &cobra.Command{
		Use:                        "waldo",
		Short:                      "The sealed box between an AI agent and the outside world",
		Long:                       "waldo runs agent-written code in a sealed box, decides every tool call by contract,\nasks a human where the contract says so, and writes a log that a stranger can verify.",
		Example:                    "  waldo demo                       the whole thing in ten seconds\n  waldo run -c 'print(6*7)'        Python in a fresh sandbox\n  waldo serve --stdio              the gateway for an agent host",
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		SilenceUsage:               true,
	}
	root.PersistentFlags().StringVar(&g.config, "config", "", "configuration `FILE` (default: $WALDO_CONFIG, ./waldo.yaml once trusted, ~/.config/waldo/waldo.yaml)")
	root.PersistentFlags().StringVar(&g.state, "state", "", "state `DIR` (default: $WALDO_STATE, $XDG_STATE_HOME/waldo)")
	root.PersistentFlags().BoolVar(&g.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("see "+c.CommandPath()+" --help", "%v", err)
	})
	root.AddCommand(commands(g)...)
	group(root)
	root.Args = cobra.ArbitraryArgs
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := "see waldo --help"
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "did you mean waldo " + near[0] + "?"
		}
		return usage(hint, "there is no command %q", args[0])
	}
	for _, c := range root.Commands() {
		wrapArgs(c)
	}
	return root
}

// wrapArgs gives the argument checks of a command, and of those below it, the exit code for usage.
func wrapArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usage("see "+c.CommandPath()+" --help", "%v", err)
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// terminal reports whether w is a terminal, so that colour and progress are for people alone.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}
