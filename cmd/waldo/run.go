package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/sandboxflags"
	"waldo/internal/config"
	"waldo/internal/core/approval"
	"waldo/internal/executor/runner"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

func newRun(g *cli.Context) *cobra.Command {
	b := &sandboxflags.Flags{}
	c := &cobra.Command{
		Use:   "run [flags] FILE | -c CODE",
		Short: "Run agent-written code in a fresh sandbox, with tools through the bridge",
		Long: "Runs Python, JavaScript, TypeScript or shell in a sandbox of its own: no network, no files of this machine\n" +
			"but /usr, limits on everything, nothing left behind. Prints its output, then what is known of the run.",
		Example: "  waldo run agent.py\n  waldo run -c 'print(6*7)'\n  waldo run --lang javascript -c 'console.log(6*7)'\n" +
			"  waldo run --timeout 5s --memory-mb 128 agent.py\n  waldo run --json -c 'print(1)'",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			name, code, err := b.Script(c.InOrStdin(), args)
			if err != nil {
				return err
			}
			capability, field, err := sandboxflags.Language(b.Lang, name)
			if err != nil {
				return err
			}
			return inSandbox(c, g, b, capability, map[string]any{field: code},
				runner.Options{Run: call.Run{Name: filepath.Base(name)}})
		},
	}
	b.Add(c)
	c.Flags().StringVar(&b.Lang, "lang", "",
		"`LANGUAGE`: python, javascript, typescript or shell (default: by the file's ending)")
	c.Flags().StringVarP(&b.Code, "code", "c", "", "run `CODE` instead of a file")
	c.Flags().StringVar(&b.File, "file", "", "`FILE` to run, the same as giving it as argument; - is standard input")
	return c
}

func newExec(g *cli.Context) *cobra.Command {
	b := &sandboxflags.Flags{}
	c := &cobra.Command{
		Use:   "exec [flags] -- CMD [ARG..]",
		Short: "Run any command in a fresh sandbox, with its own standard input and output",
		Example: "  waldo exec -- ls -la /\n  waldo exec --input . -- grep -r needle /workspace/input\n" +
			"  echo hello | waldo exec -- tr a-z A-Z",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			b.Quiet = true
			if b.Tty && g.JSON {
				return exitcode.Mistake("leave one out", "-t and --json do not go together")
			}
			return inSandbox(c, g, b, "exec", map[string]any{"argv": args},
				runner.Options{Run: call.Run{NoTools: true}, Streams: runner.Streams{Stdin: c.InOrStdin()}})
		},
	}
	b.Add(c)
	c.Flags().BoolVarP(&b.Tty, "tty", "t", false, "give the command a terminal of its own, connected with yours")
	c.Flags().SetInterspersed(false)
	return c
}

// inSandbox opens the application, makes one call and prints its result.
func inSandbox(
	c *cobra.Command, g *cli.Context, b *sandboxflags.Flags, capability call.Capability, args any, o runner.Options,
) error {
	if err := b.Refused(); err != nil {
		return err
	}
	limits, err := b.Limits()
	if err != nil {
		return err
	}
	if b.Input != "" {
		if info, err := os.Stat(b.Input); err != nil || !info.IsDir() {
			return exitcode.Mistake("give a folder that is there", "--input %s is not a folder", b.Input)
		}
		if b.Input, err = filepath.Abs(b.Input); err != nil {
			return err
		}
	}
	if info, err := os.Stat(b.Workspace); b.Workspace != "" && err == nil && !info.IsDir() {
		return exitcode.Mistake("give a folder; waldo makes a missing one", "--workspace %s is not a folder", b.Workspace)
	}
	s := app.Options{Limits: app.MostLimits, Workspace: b.Workspace, Patience: time.Minute}
	if !g.JSON {
		s.Carriers = []approval.Notifier{cli.Teller{W: c.ErrOrStderr()}}
	}
	if path, _ := g.Source().File(); path == "" {
		s.Cfg = config.Default()
		b.Widen(s.Cfg, limits)
	} else {
		limits = b.Asked(limits)
	}
	h, err := g.Open(c.Context(), s)
	if err != nil {
		return err
	}
	defer h.Close()
	if o.Hosts, o.Public = b.Hosts, b.AllowNetwork; o.Public {
		display.Fprintf(c.ErrOrStderr(), "waldo: --allow-network: this run reaches every public host at ports 80 and 443, "+
			"and can send there whatever it reads; --allow-host names single hosts\n")
	}
	for _, s := range b.Secrets {
		v, _ := sandboxflags.Secret(s)
		o.Secrets = append(o.Secrets, v)
	}
	o.Limits, o.Input, o.Env, o.Isolation = call.Limits(limits), b.Input, b.Env, b.Isolation
	o.Mounts, o.Changes = b.Mounts(), b.Changes
	t, err := h.Template(c.Context(), b.Template, b.Pull)
	if err != nil {
		return inWords(err)
	}
	o.Root, o.Image, o.Whole = app.Root(t), t.Config, h.Snapshot != ""
	flush := func() error { return nil }
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	if b.Tty {
		if flush, err = onTerminal(h, c, &o, b.Isolation, cancel); err != nil {
			return err
		}
		defer func() { _ = flush() }() // also after a panic
	} else if !g.JSON {
		o.Stdout, o.Stderr, flush = through(h, c.OutOrStdout(), c.ErrOrStderr(), cancel)
		o.Pass = capability == "exec" && !c.Flags().Changed("output-kb")
	}
	r, err := h.Once(ctx, capability, args, &o)
	masked := flush()
	if errors.Is(masked, terminal.ErrUnread) {
		return masked
	}
	if err != nil {
		return err
	}
	if o.Pass {
		r.Facts.Truncated = facts.Truncated{} // concerns the facts, which this output omits
	}
	k, _ := h.Policy.Lookup(capability)
	return cmp.Or(tellRun(c, g, b, r, k.Hold), masked)
}

// through returns writers that mask secrets in the output of a run, and a function that flushes them and reports the
// masking.
func through(h *app.App, out, errw io.Writer, end func()) (io.Writer, io.Writer, func() error) {
	so, se, flush := terminal.Through(out, errw,
		func(w io.Writer) terminal.Masking { return h.Redact.TerminalStream(w) }, end)
	return so, se, func() error {
		switch err := flush(); {
		case errors.Is(err, terminal.ErrUnread): // the reader knows: no message
			return &exitcode.Exit{Code: exitcode.Signal("SIGPIPE"), Err: terminal.ErrUnread}
		case err != nil:
			return &exitcode.Exit{Code: exitcode.Failed, Err: err}
		}
		return nil
	}
}

// onTerminal gives a command a terminal of its own and connects it with the person's until done is called.
func onTerminal(
	h *app.App, c *cobra.Command, o *runner.Options, level string, end func(),
) (done func() error, err error) {
	if h.Reacher(level) == nil {
		return nil, &exitcode.Exit{
			Code: exitcode.Denied, Text: "a sandbox of isolation " + cmp.Or(level, h.Runner.Auto) +
				" gives a command no terminal", Hint: "--isolation namespace",
		}
	}
	in, ok := c.InOrStdin().(*os.File)
	if !ok || !terminal.OnScreen(in) {
		return nil, exitcode.Mistake("leave -t out", "-t needs a terminal as standard input")
	}
	if o.TTY, done, err = terminal.Connect(in, h.Redact.TerminalStream(terminal.Whole{Writer: c.OutOrStdout()}),
		end); err != nil {
		return nil, err
	}
	o.Stdin, o.Env = nil, append([]string{"TERM=" + cmp.Or(os.Getenv("TERM"), "xterm")}, o.Env...)
	return done, nil
}

// tellRun prints the facts, after what became of held calls, and turns the result into an exit code.
func tellRun(c *cobra.Command, g *cli.Context, b *sandboxflags.Flags, r call.Result, held bool) error {
	if held && !g.JSON {
		tellHeld(c, r)
	}
	if r.Status == facts.OK && c.Flags().Changed("quiet") && b.Quiet {
		r.Facts.Warnings = slices.DeleteFunc(slices.Clone(r.Facts.Warnings), func(w string) bool { return w == facts.NoMemoryCgroup })
	}
	r = g.Daily(r)
	if g.JSON {
		var shown any = r.Facts
		if held {
			shown = cli.HeldJSON(r)
		}
		if err := terminal.JSON(c.OutOrStdout(), shown); err != nil {
			return err
		}
	} else if r.Facts.Sandbox.ID != "" && !b.Quiet {
		w := c.ErrOrStderr()
		display.Fprintf(w, "\n%s%s", display.Text(runner.Report(r.Facts)), display.Text(artifacts(r.Facts)))
		display.Fprintf(w, "Decision: %s\n", r.DecisionID)
	} else {
		warnings := r.Facts.Warnings
		if r.Status == facts.Denied { // the line of the denial gives the cause
			_, warnings = cli.Once(r)
		}
		for _, warning := range warnings {
			display.Fprintf(c.ErrOrStderr(), "waldo: %s\n", warning)
		}
		if r.Status != facts.OK { // a program seldom says that it was waldo that refused
			for _, line := range runner.Refused(r.Facts) {
				display.Fprintf(c.ErrOrStderr(), "waldo: %s\n", display.Text(line))
			}
		}
		if r.Facts.Truncated.Stdout || r.Facts.Truncated.Stderr {
			display.Fprintf(c.ErrOrStderr(), "waldo: the output was cut after %d KB\nhint: --output-kb\n", b.Output)
		}
	}
	if !g.JSON {
		cli.TellChanges(c.ErrOrStderr(), r.Facts.Files.Changes, b.Changes)
	}
	return exitcode.OfResult(r)
}

// tellHeld prints what became of the held calls of a program: the last text, after what the program printed.
func tellHeld(c *cobra.Command, r call.Result) {
	if n := len(r.Content); n > 1 || n == 1 && r.Facts.Sandbox.ID == "" {
		for line := range strings.Lines(r.Content[n-1].Text) {
			display.Fprintf(c.OutOrStdout(), "%s\n", strings.TrimSuffix(line, "\n"))
		}
	}
}

func artifacts(f facts.Facts) string {
	if len(f.Files.Artifacts) == 0 {
		return ""
	}
	names := make([]string, len(f.Files.Artifacts))
	for i, n := range f.Files.Artifacts {
		names[i] = facts.Name(n)
	}
	where := ""
	if f.Files.KeptIn != "" {
		where = " in " + f.Files.KeptIn
	}
	return "Kept" + where + ": " + strings.Join(names, ", ") + "\n"
}
