// Command waldo stands between an AI agent and the outside world. Start at application.go, which lists
// every room and how they are joined; each other file is a group of commands.
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
	"golang.org/x/term"

	"waldo/internal/app/fault"
	"waldo/internal/core/redact"
	"waldo/internal/executor/upstream/outside"
	"waldo/internal/model/display"
	"waldo/internal/sandbox/confined"
)

// The exit codes of waldo itself. Where a command ran, its own code is passed on instead.
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

// exitOf returns the exit of an error of a command or of the application; nil: it has none.
func exitOf(err error) *exit {
	var e *exit
	if errors.As(err, &e) {
		return e
	}
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		e = &exit{code: exitFailed, text: f.Text, err: f.Err, hint: f.Tip}
		if f.Usage {
			e.code = exitUsage
		}
	}
	return e
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
		g.json = g.json || asksJSON(args) // a mistake before the flag kept it from being read
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

// stopped gives the error of a command that Ctrl-C or SIGTERM ended one word and exit code. What a command in a
// sandbox ended with is passed on.
func stopped(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if e := exitOf(err); e != nil && e.code != exitFailed && !errors.Is(err, context.Canceled) {
		return err
	}
	return &exit{code: exitCancelled, text: "cancelled"}
}

// report writes an error the one way waldo does and returns the exit code for it.
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
	if text := display.Lines(said); text != "" { // it may name what somebody else has named
		display.Fprintf(w, "waldo: %s\n", text)
	}
	if hint != "" {
		display.Fprintf(w, "hint: %s\n", display.Lines(hint))
	}
	return e.code
}

// failure is an error as --json writes it, one line on standard error.
type failure struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	Code  int    `json:"code"`
}

// global holds the flags that every command takes.
type global struct {
	config string
	state  string
	// trusted is --trusted-config; hosted: an agent host started this process, in a folder that nobody chose.
	trusted string
	hosted  bool
	json    bool
	env     string           // --environment
	redact  bool             // the person at the terminal is shown no more than the model is
	known   *redact.Registry // every secret that was fetched; nil: the application has its own
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
	colours = "auto"
	root.PersistentFlags().Var(&colours, "color", "colours: `WHEN` is auto, always or never")
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

// wrapArgs gives the argument checks of a command, and of those below it, the exit code for usage.
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

// colourChoice is the value of --color.
type colourChoice string

// colours is what --color said. It is set once, before anything is printed.
var colours colourChoice = "auto"

func (v *colourChoice) String() string { return string(*v) }

func (v *colourChoice) Type() string { return "when" }

func (v *colourChoice) Set(s string) error {
	if s != "auto" && s != "always" && s != "never" {
		return errors.New("auto, always or never")
	}
	*v = colourChoice(s)
	return nil
}

// coloured reports whether what is written to w has colours: at a terminal that shows them, or where asked for.
func coloured(w any) bool {
	switch colours {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && onScreen(w)
}

// onScreen reports whether what is written to w is seen by a person as it is written.
func onScreen(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
