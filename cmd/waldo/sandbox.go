package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"waldo/internal/cli"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/background"
	"waldo/internal/app/forward"
	"waldo/internal/cli/exitcode"
	"waldo/internal/cli/sandboxflags"
	"waldo/internal/config"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/sandboxes"
	"waldo/internal/storage/workspace"
)

func newSandbox(g *cli.Context) *cobra.Command {
	c := &cobra.Command{
		Use: "sandbox", Short: "Named sandboxes: files, a template and limits that outlive a command", Args: cobra.NoArgs,
		Long: "A named sandbox keeps its files, template and limits, across commands and across restarts of waldo. " +
			"Commands\nthat run at the same time share processes and ports. Nothing that one leaves running outlives it.",
		Example: "  waldo sandbox create work --template python:3.12-slim --idle 1h\n" +
			"  waldo sandbox cp data.csv work:input/data.csv\n  waldo sandbox exec work -- wc -l /workspace/input/data.csv\n" +
			"  waldo sandbox snapshot work\n  waldo sandbox rm work",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSandboxCreate(g), newSandboxList(g), newSandboxExec(g), newSandboxPs(g), newSandboxLogs(g),
		newSandboxKill(g), newSandboxCopy(g), newSandboxPort(g), newSandboxPause(g), newSandboxResume(g),
		newSandboxSnapshot(g), newSandboxRestore(g), newSandboxReset(g), newSandboxRemove(g))
	return c
}

// withSandboxes runs f with the named sandboxes of the state directory and an open application.
func withSandboxes(
	g *cli.Context, f func(c *cobra.Command, h *app.App, m *sandboxes.Manager, args []string) error,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		h, err := g.Open(c.Context(), app.Options{})
		if err != nil {
			return err
		}
		defer h.Close()
		m, err := h.Sandboxes(c.Context())
		if err != nil {
			return err
		}
		return inWords(f(c, h, m, args), args...)
	}
}

// inWords adds messages and hints to the errors of named sandboxes. The first argument is the name of the sandbox.
func inWords(err error, args ...string) error {
	for _, row := range []struct {
		is   error
		code int
		hint string
	}{
		{sandboxes.ErrAbsent, exitcode.Usage, "waldo sandbox list"},
		{sandboxes.ErrNoPicture, exitcode.Usage, "waldo sandbox snapshot --list"},
		{workspace.ErrName, exitcode.Usage, "as in work:input/data.csv"},
		{sandboxes.ErrKind, exitcode.Usage, "give a file or folder"},
		{workspace.ErrApart, exitcode.Usage, "copy it by itself, as in work:output/report"},
		{workspace.ErrTooMuch, exitcode.Usage, "waldo sandbox create --disk-mb says how much a sandbox holds"},
		{workspace.ErrArchive, exitcode.Usage, "as in: tar c DIR | waldo sandbox cp - work:input"},
		{sandboxes.ErrNoCommand, exitcode.Usage, "waldo sandbox ps NAME"},
		{sandboxes.ErrExists, exitcode.Usage, "give another name, or remove that one first"},
		{sandboxes.ErrName, exitcode.Usage, "as in: waldo sandbox create work"},
		{sandboxes.ErrPaused, exitcode.Usage, "start it again with: waldo sandbox resume NAME"},
		{sandboxes.ErrStopped, exitcode.Usage, "start it again with: waldo sandbox resume NAME"},
		{sandboxes.ErrBusy, exitcode.Usage,
			"wait until they have ended, or: waldo sandbox kill NAME CALL, or: waldo sandbox rm --force NAME"},
		{sandboxes.ErrDamaged, exitcode.Failed, "the sandbox is as it was; restore another"},
	} {
		if errors.Is(err, row.is) && exitcode.Of(err) == nil {
			hint := row.hint
			if len(args) > 0 && !strings.ContainsAny(args[0], ":/") {
				hint = strings.ReplaceAll(hint, "NAME", args[0])
			}
			return &exitcode.Exit{Code: row.code, Err: err, Hint: hint}
		}
	}
	return err
}

func newSandboxCreate(g *cli.Context) *cobra.Command {
	b := &sandboxflags.Flags{}
	var idle time.Duration
	var from string
	var forwarded []string
	c := &cobra.Command{
		Use: "create [NAME]", Short: "Keep a new sandbox", Args: cobra.MaximumNArgs(1),
		Example: "  waldo sandbox create work\n  waldo sandbox create work --template ./root.tar --memory-mb 1024 --idle " +
			"30m\n  waldo sandbox create copy --from p_…",
		RunE: withSandboxes(g, func(c *cobra.Command, h *app.App, m *sandboxes.Manager, args []string) error {
			if id.Is(id.Snapshot, b.Template) && from == "" { // as for run and exec
				from = b.Template
			}
			if err := b.OnlyKept(c, from != ""); err != nil {
				return err
			}
			if idle <= 0 {
				return exitcode.Mistake("as in --idle 1h", "--idle is out of range")
			}
			if b.Isolation != "auto" && h.Drivers[b.Isolation] == nil {
				return &exitcode.Exit{
					Code: exitcode.Denied, Text: "isolation " + b.Isolation + " is not in this build",
					Hint: "waldo doctor says what there is",
				}
			}
			for _, text := range forwarded {
				if _, _, err := forward.Parse(text); err != nil {
					return err
				}
			}
			if len(forwarded) > 0 && h.Reacher(b.Isolation) == nil {
				return noPorts(b.Isolation)
			}
			s := sandboxes.Sandbox{
				Owner: app.Owner(), Isolation: b.Isolation, Idle: idle, Ports: forwarded,
				CPUFixed: c.Flags().Changed("cpu-seconds"),
			}
			if len(args) == 1 {
				s.Name = args[0]
			}
			var err error
			if s.Limits, err = b.Limits(); err != nil {
				return err
			}
			if from != "" {
				s, err = m.From(c.Context(), app.Owner(), s.Name, from)
			} else if s.Template, s.Digest, err = h.Pinned(c.Context(), b.Template, b.Pull); err == nil {
				s, err = m.Create(c.Context(), s)
			}
			if err != nil || g.JSON {
				return orJSON(c, err, s)
			}
			display.Fprintf(c.OutOrStdout(), "%s\n", s.Name)
			return nil
		}),
	}
	b.Add(c)
	c.Flags().StringArrayVar(&forwarded, "port", nil, portUsage+" while one of its commands runs")
	c.Flags().DurationVar(&idle, "idle", time.Hour,
		"`TIME` without a command, after which it is paused, and after as long again stopped")
	c.Flags().StringVar(&from, "from", "", "start with the files, template and limits of the snapshot `ID`")
	return c
}

const listRow = "%-20s %-8s %-11s %-5s %-21s %-10s %s\n"

func newSandboxList(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Your sandboxes", Args: cobra.NoArgs,
		Example: "  waldo sandbox list --json",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, _ []string) error {
			all, err := m.List(c.Context(), app.Owner())
			if err != nil || g.JSON {
				return orJSON(c, err, all)
			}
			out, now := c.OutOrStdout(), time.Now()
			if len(all) == 0 {
				display.Fprintf(c.ErrOrStderr(), "no sandboxes\n")
				return nil
			}
			display.Fprintf(out, listRow, "NAME", "STATE", "RUNNING", "RUN", "USED", "TEMPLATE", "ID")
			for _, s := range all {
				display.Fprintf(out, listRow, s.Name, s.State, display.Count(s.Running, "command"), strconv.Itoa(s.Runs),
					terminal.Ago(out, s.Used.Format(time.RFC3339), now), s.Template, s.ID)
			}
			return nil
		}),
	}
}

// execFlags are the flags of a command in a named sandbox.
type execFlags struct {
	code, lang, as, dir string
	env, ports          []string
	background, tty     bool
	timeout             time.Duration
	cpu                 float64            // seconds; 0: not given
	shown               sandboxflags.Flags // its mounts, and what becomes of writes to them
}

func newSandboxExec(g *cli.Context) *cobra.Command {
	e := &execFlags{}
	c := &cobra.Command{
		Use: "exec NAME [-c CODE | -- CMD [ARG..]]", Short: "Run a command, or code with its tools, over a sandbox's files",
		Args: cobra.MinimumNArgs(1),
		Long: "Each command is decided by the contract of exec or run_*, and runs with the sandbox's limits over " +
			"its files. It shares\nprocesses and ports with those that run in the sandbox, and has limits and a copy of the " +
			"files of its own.\nIts remaining processes end with it. With --background it goes on when this command " +
			"has ended, until it ends\nitself, its time is up, or the sandbox is stopped or removed; its number is printed.",
		Example: "  waldo sandbox exec work -- ls -l /workspace/output\n  waldo sandbox exec work -c " +
			"'print(open(\"/workspace/input/data.csv\").read())'\n  waldo sandbox exec --background --timeout 2h work -- sh " +
			"watch.sh",
		RunE: func(c *cobra.Command, args []string) error {
			name := args[:1:1]
			if err := c.Flags().Parse(args[1:]); err != nil { // flags can follow the name, too
				return c.FlagErrorFunc()(c, err)
			}
			if c.Flags().Changed("help") {
				return c.Help()
			}
			args = append(name, c.Flags().Args()...)
			if e.as != "" {
				if !id.Is(id.Call, e.as) {
					return exitcode.Mistake("leave it out", "--as is for waldo itself")
				}
				var err error
				if e.env, err = variables(); err != nil {
					return exitcode.Mistake("leave it out", "--as is for waldo itself: %v", err)
				}
			}
			capability, a := call.Capability("exec"), map[string]any{"argv": args[1:]}
			if e.code != "" {
				name, field, err := sandboxflags.Language(e.lang, "")
				if err != nil {
					return err
				}
				capability, a = name, map[string]any{field: e.code}
			}
			if (e.code != "") == (len(args) > 1) {
				return exitcode.Mistake("waldo sandbox exec NAME -- CMD, or waldo sandbox exec NAME -c CODE",
					"give a command or code")
			}
			if e.timeout < 0 || e.timeout > app.MostLimits.Wall {
				return exitcode.Mistake("as in --timeout 2h", "--timeout is out of range")
			}
			if e.cpu < 0 || e.cpu > app.MostLimits.CPU.Seconds() {
				return exitcode.Mistake("as in --cpu-seconds 60", "--cpu-seconds is out of range")
			}
			if err := e.shown.RefusedMounts(); err != nil {
				return err
			}
			if e.dir != "" && !path.IsAbs(e.dir) {
				e.dir = path.Join("/workspace", e.dir)
			}
			if e.tty && (e.background || e.code != "" || g.JSON) {
				return exitcode.Mistake("as in: waldo sandbox exec -t work -- bash -i",
					"-t is for a command in front, without --background, --code or --json")
			}
			if e.background && e.as == "" {
				return e.inBackground(c, g, args)
			}
			return inWords(e.execIn(c, g, args[0], capability, a), args[0])
		},
	}
	c.Flags().SetInterspersed(false)
	e.shown.AddMounts(c)
	c.Flags().StringVarP(&e.code, "code", "c", "", "run `CODE` instead of a command")
	c.Flags().StringVar(&e.lang, "lang", "python", "`LANGUAGE` of the code: python, javascript, typescript or shell")
	c.Flags().StringArrayVar(&e.env, "env", nil, "`K=V` in the sandbox's environment; nothing else is inherited")
	c.Flags().StringArrayVar(&e.ports, "port", nil, portUsage+" while the command runs")
	c.Flags().BoolVarP(&e.background, "background", "b", false, "go on in the background, and print the command's number")
	c.Flags().BoolVarP(&e.tty, "tty", "t", false, "give the command a terminal of its own, connected with yours")
	c.Flags().DurationVar(&e.timeout, "timeout", 0,
		"wall-clock `TIME` of this command, as in 2h (default: the sandbox's, in the background a day)")
	c.Flags().Float64Var(&e.cpu, "cpu-seconds", 0,
		"CPU `SECONDS` of this command (default: the sandbox's, and without one what its time allows)")
	c.Flags().StringVarP(&e.dir, "workdir", "w", "", "`DIR` that it starts in, from /workspace (default: /workspace)")
	c.Flags().StringVar(&e.as, "as", "", "the command's number, given by the waldo that waits for it")
	_ = c.Flags().MarkHidden("as")
	return c
}

// portUsage is the help text of --port.
const portUsage = "forward `PORT[:LOCAL]` of the sandbox to this machine's loopback"

// wall returns the wall-clock limit of the command.
func (e *execFlags) wall(sandboxs time.Duration) time.Duration {
	switch {
	case e.timeout > 0:
		return e.timeout
	case e.as != "":
		return app.MostLimits.Wall
	}
	return sandboxs
}

// processor returns the CPU limit of the command: its flag, or the limit of the sandbox. Without either it is the
// wall clock, for one processor.
func (e *execFlags) processor(s sandboxes.Sandbox) time.Duration {
	switch {
	case e.cpu > 0:
		return time.Duration(e.cpu * float64(time.Second))
	case s.CPUFixed:
		return s.Limits.CPU
	}
	return max(s.Limits.CPU, e.wall(s.Limits.Wall))
}

// execIn makes one call in a named sandbox, in its session.
func (e *execFlags) execIn(
	c *cobra.Command, g *cli.Context, name string, capability call.Capability, args any,
) (err error) {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	h, run, k, err := e.openIn(ctx, g, name, capability, args)
	if err != nil {
		return err
	}
	defer h.Close()
	defer func() { err = errors.Join(err, run.End(context.WithoutCancel(ctx))) }()
	s := run.Sandbox
	o, err := h.InSandbox(s)
	if err != nil {
		return err
	}
	o.Env, o.Dir, o.Mounts, o.Changes = e.env, e.dir, e.shown.Mounts(), e.shown.Changes
	if e.code == "" {
		o.NoTools, o.Stdin = true, c.InOrStdin()
	} else {
		o.Name = "-c"
	}
	o.Limits = call.Limits(s.Limits)
	o.Limits.Wall, o.Limits.CPU = e.wall(s.Limits.Wall), e.processor(s)
	h.Runner.Default = s.Limits // also bounds output stored beside the command's files
	o.Started = func(b sandbox.Sandbox) func() {
		if e.as != "" {
			background.Ready()
		}
		return run.Watch(b, cancel)
	}
	flush := func() error { return nil }
	if e.tty {
		if flush, err = onTerminal(h, c, &o, s.Isolation, cancel); err != nil {
			return err
		}
		defer func() { _ = flush() }() // also after a panic
	} else if !g.JSON {
		o.Stdout, o.Stderr, flush = through(h, c.OutOrStdout(), c.ErrOrStderr(), cancel)
		o.Pass = true
	}
	end, err := forwards(ctx, h, c.ErrOrStderr(), s, e.ports)
	if err != nil {
		return err
	}
	defer end()
	k.Run = o.Request()
	defer h.Runner.Attach(k.ID, o.Streams)()
	r, err := h.Broker.Call(ctx, k)
	masked := flush()
	if errors.Is(masked, terminal.ErrUnread) {
		return masked
	}
	if err != nil {
		return err
	}
	if o.Pass {
		r.Facts.Truncated = facts.Truncated{}
	}
	return cmp.Or(tellRun(c, g, &sandboxflags.Flags{Quiet: true, Changes: e.shown.Changes}, r, false), masked)
}

// openIn opens the application with the limits of a sandbox, and returns the sandbox's session and next call.
func (e *execFlags) openIn(
	ctx context.Context, g *cli.Context, name string, capability call.Capability, args any,
) (h *app.App, run *sandboxes.Run, k call.Call, err error) {
	a, err := call.ArgsOf(args)
	if err != nil {
		return nil, nil, k, exitcode.Mistake("", "%v", err)
	}
	set := app.Options{Limits: app.MostLimits, Patience: time.Minute}
	path, _ := g.Source().File()
	if path == "" {
		level, err := levelOf(ctx, g, name)
		if err != nil {
			return nil, nil, k, err
		}
		set.Cfg = config.Default()
		e.shown.Isolation = level
		e.shown.Widen(set.Cfg, app.MostLimits) // the sandbox's own limits apply
	}
	if h, err = g.Open(ctx, set); err != nil {
		return nil, nil, k, err
	}
	opened := h
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close())
		}
	}()
	m, err := h.Sandboxes(ctx)
	if err != nil {
		return nil, nil, k, err
	}
	k = call.Call{
		ID: id.New(id.Call), Capability: capability, Args: a, Principal: app.Principal(), Channel: "cli",
	}
	if e.as != "" {
		k.ID = e.as
	}
	if run, err = m.Begin(ctx, app.Owner(), name, k.ID, e.as != ""); err != nil {
		return nil, nil, k, err
	}
	s := run.Sandbox
	info, err := h.Sessions.Resume(call.Session(s.Session), app.Principal(), s.Workspace)
	if err != nil {
		return nil, nil, k, errors.Join(err, run.End(ctx))
	}
	k.Session = info.ID
	run.Tell(e.line(args))
	return h, run, k, nil
}

// line returns the words of a command, as ps shows them.
func (e *execFlags) line(args any) string {
	asked, _ := args.(map[string]any)
	words, ok := asked["argv"].([]string)
	if !ok {
		return e.lang + " -c " + e.code
	}
	return strings.Join(words, " ")
}

// levelOf returns the isolation level that a sandbox was created with.
func levelOf(ctx context.Context, g *cli.Context, name string) (string, error) {
	kept, err := g.OpenStorage()
	if err != nil {
		return "", err
	}
	s, err := kept.NamedSandboxes().Get(ctx, app.Owner(), name)
	return s.Isolation, errors.Join(err, kept.Close())
}

func newSandboxPause(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "pause NAME", Short: "Let nothing new start, and stop what runs where it stands", Args: cobra.ExactArgs(1),
		Example: "  waldo sandbox pause work",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			still, going, err := m.Pause(c.Context(), app.Owner(), args[0])
			if err != nil {
				return err
			}
			if going > 0 {
				return &exitcode.Exit{Code: exitcode.Failed,
					Text: fmt.Sprintf("%s cannot be stopped and will run to the end; nothing new starts",
						display.Count(going, "command")),
					Hint: "stopping needs a cgroup of version 2: waldo doctor"}
			}
			display.Fprintf(c.ErrOrStderr(), "paused; %s stopped in place\n", display.Count(still, "command"))
			return nil
		}),
	}
}

func newSandboxResume(g *cli.Context) *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME", Short: "Use a paused or stopped sandbox again", Args: cobra.ExactArgs(1),
		Example: "  waldo sandbox resume work",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			_, err := m.Resume(c.Context(), app.Owner(), args[0])
			return err
		}),
	}
}

func newSandboxReset(g *cli.Context) *cobra.Command {
	var next string
	c := &cobra.Command{
		Use: "reset NAME", Short: "Make a sandbox as if it were new: no file, no session, nothing of its owner",
		Args:    cobra.ExactArgs(1),
		Example: "  waldo sandbox reset work",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			if next == "" {
				next = app.Owner()
			}
			if kind, who, _ := strings.Cut(next, ":"); who == "" ||
				!slices.Contains([]string{"os", "oidc", "token", "session"}, kind) {
				return exitcode.Mistake("as in os:1001", "%q cannot own a sandbox", next)
			}
			s, err := m.Reset(c.Context(), app.Owner(), args[0], next)
			if err != nil || g.JSON {
				return orJSON(c, err, s)
			}
			return nil
		}),
	}
	c.Flags().StringVar(&next, "owner", "", "`PRINCIPAL` that it goes to, as in os:1001 (default: you)")
	return c
}

func newSandboxRemove(g *cli.Context) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "rm NAME", Short: "Delete a sandbox and its files; its snapshots stay", Args: cobra.ExactArgs(1),
		Example: "  waldo sandbox rm work",
		RunE: withSandboxes(g, func(c *cobra.Command, _ *app.App, m *sandboxes.Manager, args []string) error {
			return m.Remove(c.Context(), app.Owner(), args[0], force)
		}),
	}
	c.Flags().BoolVarP(&force, "force", "f", false, "end the commands that run in it")
	return c
}
