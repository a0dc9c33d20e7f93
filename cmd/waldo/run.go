package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/config"
	"waldo/internal/core/approval"
	"waldo/internal/core/session"
	"waldo/internal/executor/runner"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
)

// maxScript is the size limit of a script, in bytes.
const maxScript = 1 << 20

// isolations are the levels that --isolation accepts. The policy refuses a level that this machine lacks.
var isolations = []string{"auto", "gvisor", "namespace", "confined", "engine", "pod", "microvm"}

// boxFlags are the flags of run and exec that configure the sandbox.
type boxFlags struct {
	tty                       bool // exec only
	lang, isolation           string
	cpu                       float64
	memory, pids, files, disk int64
	timeout                   time.Duration
	output                    int64
	workspace, input, servers string
	hosts, env, secrets       []string
	template                  string
	pull                      bool
	file, code                string
	seccomp, firejail         bool
	allowNetwork, denyNetwork bool
	quiet                     bool
	flags                     interface{ Changed(flag string) bool }
}

func (b *boxFlags) add(c *cobra.Command) {
	f := c.Flags()
	b.flags = f
	f.StringVar(&b.isolation, "isolation", "auto", "isolation `LEVEL`: auto, gvisor, namespace or confined; one that this machine cannot give is denied (waldo doctor)")
	f.Float64Var(&b.cpu, "cpu-seconds", 10, "CPU `SECONDS` of the whole process tree")
	f.Int64Var(&b.memory, "memory-mb", 512, "memory of the whole tree in `MB`")
	f.Int64Var(&b.pids, "pids", 64, "`N` processes and threads at a time")
	f.Int64Var(&b.files, "files", 64, "`N` open files of one process")
	f.Int64Var(&b.disk, "disk-mb", 256, "`MB` in each writable place")
	f.DurationVar(&b.timeout, "timeout", 30*time.Second, "wall-clock `TIME`, as in 30s")
	f.Int64Var(&b.output, "output-kb", 200, "`KB` kept of each of stdout and stderr")
	f.StringVar(&b.workspace, "workspace", "", "keep /workspace in `DIR` instead of waldo's state")
	f.StringVar(&b.input, "input", "", "show `DIR` read-only as /workspace/input")
	f.StringSliceVar(&b.hosts, "allow-host", nil, "`HOST` that may be reached, as in api.example.com, *.example.com, db.example.com:5432 or GET api.example.com/v1/*; with a configuration: only what its contract allows too")
	f.StringVar(&b.servers, "servers-dir", "", "not supported by this build: code finds the tools of configured servers without it")
	f.StringArrayVar(&b.env, "env", nil, "`K=V` in the sandbox's environment; nothing else is inherited")
	f.StringSliceVar(&b.secrets, "secret", nil, "expose secret `NAME` as an environment variable ([VARIABLE=]NAME); must be allowed by the contract")
	f.StringVar(&b.template, "template", "host", "root filesystem `T`: host (this machine's /usr, read-only), a folder, a tar or OCI archive by ./path or /path, or an image such as python:3.12-slim")
	f.BoolVar(&b.pull, "pull", false, "ask the registry again for a --template that is here already")
	f.BoolVar(&b.seccomp, "seccomp", true, "filter system calls; always on, and cannot be switched off")
	f.BoolVar(&b.firejail, "firejail", false, "no effect, accepted for old scripts: waldo's own sandbox is always used")
	f.BoolVar(&b.allowNetwork, "allow-network", false, "refused: name the hosts with --allow-host instead")
	f.BoolVar(&b.denyNetwork, "disable-network", true, "no network; the default")
	for _, flag := range []string{"servers-dir", "firejail", "seccomp", "allow-network", "disable-network"} {
		_ = f.MarkHidden(flag) // accepted for compatibility; has no effect
	}
	f.BoolVarP(&b.quiet, "quiet", "q", false, "do not print the usage report")
}

// limits returns the limits of the flags. Every number must be positive.
func (b *boxFlags) limits() (sandbox.Limits, error) {
	l := sandbox.Limits{
		Wall: b.timeout, CPU: time.Duration(b.cpu * float64(time.Second)), Memory: b.memory << 20, Pids: b.pids,
		Files: b.files, Disk: b.disk << 20, Inodes: app.DefaultLimits.Inodes, Output: b.output << 10,
	}
	for _, n := range []struct {
		flag, want string
		ok         bool
	}{
		{"--timeout", "more than 0", l.Wall > 0}, {"--cpu-seconds", "more than 0", l.CPU > 0},
		{"--memory-mb", "between 1 and 1048575", b.memory > 0 && b.memory < 1<<20}, {"--pids", "1 or more", b.pids > 0},
		{"--files", "4 or more", b.files > 3}, {"--disk-mb", "between 1 and 1048575", b.disk > 0 && b.disk < 1<<20},
		{"--output-kb", "between 1 and 1048575", b.output > 0 && b.output < 1<<20},
	} {
		if !n.ok {
			return l, usage("leave it out for the default", "%s must be %s", n.flag, n.want)
		}
	}
	if b.changed("timeout") && !b.changed("cpu-seconds") {
		l.CPU = max(l.CPU, l.Wall) // CPU time covers the requested wall time
	}
	return l, nil
}

// changed reports whether a flag was given.
func (b *boxFlags) changed(flag string) bool { return b.flags != nil && b.flags.Changed(flag) }

// asked returns the limits whose flags were given. The others are zero, so that the contract decides.
func (b *boxFlags) asked(l sandbox.Limits) sandbox.Limits {
	for flag, forget := range map[string]func(){
		"timeout": func() { l.Wall = 0 }, "memory-mb": func() { l.Memory = 0 }, "pids": func() { l.Pids = 0 },
		"files": func() { l.Files = 0 }, "disk-mb": func() { l.Disk = 0 }, "output-kb": func() { l.Output = 0 },
	} {
		if !b.changed(flag) {
			forget()
		}
	}
	if !b.changed("cpu-seconds") && !b.changed("timeout") {
		l.CPU = 0
	}
	l.Inodes = 0
	return l
}

// refused returns an error for a flag that this build does not support. No flag is ignored.
func (b *boxFlags) refused() error {
	switch {
	case b.allowNetwork:
		return usage("name the hosts with --allow-host", "--allow-network would open every host; a sandbox opens named hosts only")
	case !b.seccomp:
		return usage("leave --seccomp out", "system calls are always filtered")
	case !b.denyNetwork:
		return usage("name the hosts with --allow-host", "--disable-network=false would open every host; a sandbox opens named hosts only")
	case !slices.Contains(isolations, b.isolation):
		return usage("one of "+strings.Join(isolations, ", "), "unknown isolation level %q", b.isolation)
	case b.servers != "":
		return usage("tools of configured servers are there as servers.NAME.TOOL without it", "--servers-dir is not supported by this build")
	}
	if rules, err := egress.ParseRules(b.hosts); err != nil {
		return usage("name a host, as in --allow-host api.example.com", "--allow-host: %v", err)
	} else if i := slices.IndexFunc(rules, loopback); i >= 0 {
		return usage("let the server listen on an address of this machine's network, and name that one, as in --allow-host 192.168.1.5:8765",
			"--allow-host %s: localhost is the sandbox itself there, and it cannot reach this machine's", b.hosts[i])
	}
	for _, s := range b.secrets {
		if v, ref := secretFlag(s); !secret.Variable(v) || !usableRef(ref) {
			// The message must not repeat the text, which can be a secret.
			return usage("--secret NAME, where NAME can name a variable, or --secret VARIABLE=NAME", "--secret is not the name of a secret")
		}
	}
	for _, kv := range b.env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
			return usage("write it as K=V", "--env %s has no =", kv)
		}
	}
	return nil
}

// loopback reports whether a rule names the loopback of this machine. A sandbox has its own loopback.
func loopback(r egress.Rule) bool {
	return r.Host.Name == "localhost" || r.Host.Prefix.IsValid() && r.Host.Prefix.Addr().IsLoopback()
}

// widen applies the flags to the built-in contracts. A configuration replaces those: flags then only narrow its
// contracts.
func (b *boxFlags) widen(cfg *contract.Config, l sandbox.Limits) {
	for i := range cfg.Contracts {
		c := &cfg.Contracts[i]
		if !c.BuiltIn {
			continue
		}
		c.Timeout = l.Wall
		c.ResponseBudget += 2 * int(l.Output) // show all output within --output-kb
		c.Network.Allow = slices.Clone(b.hosts)
		for _, s := range b.secrets {
			v, ref := secretFlag(s)
			if c.Secrets == nil {
				c.Secrets = map[string]secret.Ref{}
			}
			c.Secrets[v] = ref
			c.Reveal = append(c.Reveal, v)
		}
		if b.isolation != "auto" {
			c.Isolation = b.isolation
		}
	}
}

func newRun(g *global) *cobra.Command {
	b := &boxFlags{}
	c := &cobra.Command{
		Use:   "run [flags] FILE | -c CODE",
		Short: "Run agent-written code in a fresh sandbox, with tools through the bridge",
		Long: "Runs Python, JavaScript, TypeScript or shell in a sandbox of its own: no network, no files of this machine\n" +
			"but /usr, limits on everything, nothing left behind. Prints its output, then what is known of the run.",
		Example: "  waldo run agent.py\n  waldo run -c 'print(6*7)'\n  waldo run --lang javascript -c 'console.log(6*7)'\n  waldo run --timeout 5s --memory-mb 128 agent.py\n  waldo run --json -c 'print(1)'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			name, code, err := b.script(c.InOrStdin(), args)
			if err != nil {
				return err
			}
			capability, field, err := language(b.lang, name)
			if err != nil {
				return err
			}
			return b.inBox(c, g, capability, map[string]any{field: code}, runner.Options{Run: call.Run{Name: filepath.Base(name)}})
		},
	}
	b.add(c)
	c.Flags().StringVar(&b.lang, "lang", "", "`LANGUAGE`: python, javascript, typescript or shell (default: by the file's ending)")
	c.Flags().StringVarP(&b.code, "code", "c", "", "run `CODE` instead of a file")
	c.Flags().StringVar(&b.file, "file", "", "`FILE` to run, the same as giving it as argument; - is standard input")
	return c
}

func newExec(g *global) *cobra.Command {
	b := &boxFlags{}
	c := &cobra.Command{
		Use:     "exec [flags] -- CMD [ARG..]",
		Short:   "Run any command in a fresh sandbox, with its own standard input and output",
		Example: "  waldo exec -- ls -la /\n  waldo exec --input . -- grep -r needle /workspace/input\n  echo hello | waldo exec -- tr a-z A-Z",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			b.quiet = true
			if b.tty && g.json {
				return usage("leave one out", "-t and --json do not go together")
			}
			return b.inBox(c, g, "exec", map[string]any{"argv": args}, runner.Options{Run: call.Run{NoTools: true}, Streams: runner.Streams{Stdin: c.InOrStdin()}})
		},
	}
	b.add(c)
	c.Flags().BoolVarP(&b.tty, "tty", "t", false, "give the command a terminal of its own, connected with yours")
	c.Flags().SetInterspersed(false)
	return c
}

// script returns the name and text of the script to run.
func (b *boxFlags) script(in io.Reader, args []string) (name, code string, err error) {
	given := slices.DeleteFunc([]string{b.code, b.file, strings.Join(args, " ")}, func(s string) bool { return s == "" })
	if len(given) != 1 || len(args) > 1 {
		return "", "", usage("waldo run FILE, or waldo run -c CODE", "give one script: a file or -c")
	}
	if b.code != "" {
		name, code = "-c", b.code
	} else if name = given[0]; name == "-" {
		text, err := io.ReadAll(io.LimitReader(in, maxScript+1))
		if err != nil {
			return "", "", usage("", "standard input: %v", err)
		}
		code = string(text)
	} else {
		info, err := os.Stat(name)
		if err != nil {
			return "", "", usage("give a file that is there and can be read", "%v", err)
		}
		if !info.Mode().IsRegular() {
			return "", "", usage("give a file", "%s is not a regular file", name)
		}
		if info.Size() > maxScript {
			return "", "", usage("keep data in a file and show it with --input", "%s has %d bytes; a script may have %d", name, info.Size(), maxScript)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return "", "", usage("give a file that can be read", "%v", err)
		}
		code = string(text)
	}
	if len(code) > maxScript {
		return "", "", usage("keep data in a file and show it with --input", "the script is longer than %d bytes", maxScript)
	}
	if !utf8.ValidString(code) { // the log records the exact script, and a record is UTF-8
		return "", "", usage("save it as UTF-8", "%s is not UTF-8 text", name)
	}
	return name, code, nil
}

// language returns the capability that runs a language, and the name of its code argument.
func language(lang, name string) (call.Capability, string, error) {
	if lang == "" {
		lang = map[string]string{".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".ts": "typescript", ".mts": "typescript", ".sh": "shell", ".bash": "shell"}[filepath.Ext(name)]
		if lang == "" {
			lang = "python"
		}
	}
	switch strings.ToLower(lang) {
	case "python", "py", "python3":
		return "run_python", "code", nil
	case "javascript", "js", "node":
		return "run_javascript", "code", nil
	case "typescript", "ts":
		return "run_typescript", "code", nil
	case "shell", "sh", "bash":
		return "run_shell", "command", nil
	}
	return "", "", usage("python, javascript, typescript or shell", "unknown language %q", lang)
}

// inBox opens the application, makes one call and prints its result.
func (b *boxFlags) inBox(c *cobra.Command, g *global, capability call.Capability, args any, o runner.Options) error {
	if err := b.refused(); err != nil {
		return err
	}
	limits, err := b.limits()
	if err != nil {
		return err
	}
	if b.input != "" {
		if info, err := os.Stat(b.input); err != nil || !info.IsDir() {
			return usage("give a folder that is there", "--input %s is not a folder", b.input)
		}
		if b.input, err = filepath.Abs(b.input); err != nil {
			return err
		}
	}
	s := app.Options{Limits: app.MostLimits, Workspace: b.workspace, Patience: time.Minute}
	if terminal.OnScreen(c.ErrOrStderr()) {
		s.Carriers = []approval.Notifier{teller{c.ErrOrStderr()}}
	}
	if path, _ := g.source().File(); path == "" {
		s.Cfg = config.Default()
		b.widen(s.Cfg, limits)
	} else {
		limits = b.asked(limits)
	}
	h, err := openApplication(c.Context(), g, s)
	if err != nil {
		return err
	}
	defer h.Close()
	o.Hosts = b.hosts
	for _, s := range b.secrets {
		v, _ := secretFlag(s)
		o.Secrets = append(o.Secrets, v)
	}
	o.Limits, o.Input, o.Env, o.Isolation = call.Limits(limits), b.input, b.env, b.isolation
	t, err := h.Template(c.Context(), b.template, b.pull)
	if err != nil {
		return inWords(err)
	}
	o.Root, o.Image, o.Whole = app.Root(t), t.Config, h.Snapshot != ""
	flush := func() error { return nil }
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	if b.tty {
		if flush, err = onTerminal(h, c, &o, b.isolation, cancel); err != nil {
			return err
		}
		defer func() { _ = flush() }() // also after a panic
	} else if !g.json {
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
	return cmp.Or(b.show(c, g, r), masked)
}

// through returns writers that mask secrets in the output of a run, and a function that flushes them and reports the
// masking.
func through(h *app.App, out, errw io.Writer, end func()) (io.Writer, io.Writer, func() error) {
	so, se, flush := terminal.Through(out, errw, func(w io.Writer) terminal.Masking { return h.Redact.TerminalStream(w) }, end)
	return so, se, func() error {
		switch err := flush(); {
		case errors.Is(err, terminal.ErrUnread): // the reader knows: no message
			return &exit{code: signalled("SIGPIPE"), err: terminal.ErrUnread}
		case err != nil:
			return &exit{code: exitFailed, err: err}
		}
		return nil
	}
}

// onTerminal gives a command a terminal of its own and connects it with the person's until done is called.
func onTerminal(h *app.App, c *cobra.Command, o *runner.Options, level string, end func()) (done func() error, err error) {
	if h.Reacher(level) == nil {
		return nil, &exit{code: exitDenied, text: "a sandbox of isolation " + cmp.Or(level, h.Runner.Auto) + " gives a command no terminal", hint: "--isolation namespace"}
	}
	in, ok := c.InOrStdin().(*os.File)
	if !ok || !terminal.OnScreen(in) {
		return nil, usage("leave -t out", "-t needs a terminal, and standard input is none")
	}
	if o.TTY, done, err = terminal.Connect(in, h.Redact.TerminalStream(terminal.Whole{Writer: c.OutOrStdout()}), end); err != nil {
		return nil, err
	}
	o.Stdin, o.Env = nil, append([]string{"TERM=" + cmp.Or(os.Getenv("TERM"), "xterm")}, o.Env...)
	return done, nil
}

// show prints the facts and turns the result into an exit code.
func (b *boxFlags) show(c *cobra.Command, g *global, r call.Result) error {
	if g.json {
		if err := printJSON(c.OutOrStdout(), r.Facts); err != nil {
			return err
		}
	} else if r.Facts.Sandbox.ID != "" && !b.quiet {
		w := c.ErrOrStderr()
		display.Fprintf(w, "\n%s%s", display.Text(runner.Report(r.Facts)), display.Text(artifacts(r.Facts)))
		display.Fprintf(w, "Decision: %s\n", r.DecisionID)
	} else {
		for _, warning := range r.Facts.Warnings {
			display.Fprintf(c.ErrOrStderr(), "waldo: %s\n", warning)
		}
		if r.Facts.Truncated.Stdout || r.Facts.Truncated.Stderr {
			display.Fprintf(c.ErrOrStderr(), "waldo: the output was cut after %d KB\nhint: --output-kb\n", b.output)
		}
	}
	return outcome(r)
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

// outcome turns a result into an error with the documented exit code. A command that ran passes its own code on;
// otherwise the code gives the reason.
func outcome(r call.Result) error {
	f := r.Facts
	switch f.Status {
	case facts.OK:
		return nil
	case facts.Denied:
		return &exit{code: deniedCode(r.Why), text: "denied: " + reasons(first(r.Why)), hint: deniedHint(r)}
	case facts.Waiting:
		return &exit{code: exitWaiting, text: "waiting for a human: " + r.ApprovalID, hint: "waldo approve " + r.ApprovalID + ", then ask again"}
	case facts.Timeout:
		return &exit{code: exitTimeout, text: strings.ToLower(runner.Sentence(f)[:1]) + runner.Sentence(f)[1:]}
	case facts.OOM:
		return &exit{code: exitOOM, text: strings.ToLower(runner.Sentence(f)[:1]) + runner.Sentence(f)[1:]}
	case facts.Cancelled:
		if why := r.Ended(); len(why) > 0 {
			return &exit{code: 130, text: "cancelled: " + reasons(why)}
		}
		return &exit{code: 130, text: "cancelled"}
	}
	if f.Limit != nil && (f.Signal != nil || f.ExitCode != nil && *f.ExitCode == 0) {
		code := exitFailed // a failed call never exits with 0
		if f.Signal != nil {
			code = signalled(*f.Signal)
		}
		return &exit{code: code, text: strings.ToLower(runner.Sentence(f)[:1]) + runner.Sentence(f)[1:]}
	}
	if f.ExitCode != nil && *f.ExitCode != 0 {
		return &exit{code: *f.ExitCode}
	}
	if f.Signal != nil {
		return &exit{code: signalled(*f.Signal), text: "killed by " + *f.Signal}
	}
	return &exit{code: exitFailed, text: "the run failed: " + strings.Join(append(f.Warnings, reasons(r.Cause())), "; ")}
}

// first returns the deciding reason. waldo explain shows the others.
func first(why []call.Reason) []call.Reason { return why[:min(1, len(why))] }

// deniedHint returns a hint for a denial.
func deniedHint(r call.Result) string {
	if len(r.Why) > 0 && r.Why[0].Code == session.Ended {
		return "the operator lets everybody in again with: waldo stop --release --all (or NAME in place of --all)"
	}
	if len(r.Why) > 0 && r.Why[0].Code == "contract.absent" && r.Why[0].File != "" {
		return "add a contract for it to " + r.Why[0].File
	}
	return "waldo explain " + r.DecisionID
}

// deniedCode returns the exit code of a denial. The first reason tells a human's answer from a contract's rule.
func deniedCode(why []call.Reason) int {
	if len(why) > 0 && strings.HasPrefix(why[0].Code, "approval.") {
		return exitWaiting
	}
	return exitDenied
}

// reasons joins the code, text and position of each reason in one line.
func reasons(why []call.Reason) string {
	parts := make([]string, 0, len(why))
	for _, r := range why {
		s := r.Code
		if r.Text != "" {
			s += " (" + r.Text + ")"
		}
		if r.File != "" && r.Line > 0 {
			s += fmt.Sprintf(" at %s:%d", r.File, r.Line)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

func printJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(b), '\n'))
	return err
}
