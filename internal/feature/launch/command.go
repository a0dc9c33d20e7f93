package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/forward"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/executor/runner"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
)

// command is one waldo launch.
type command struct {
	*cli.Context
	program, token  string
	changes         string
	hosts, ports    []string
	explain, bridge bool
}

func newLaunch(g *cli.Context) *cobra.Command {
	l := &command{Context: g}
	c := &cobra.Command{
		Use:   "launch HOST [-- ARGS] | --command PROGRAM [-- ARGS]",
		Short: "Start an agent host inside a sandbox, with this folder as its project",
		Long: "HOST is " + strings.Join(Names(), ", ") + ". The agent changes this folder and nothing else of this machine, " +
			"reaches the API of\nits model and nothing else, and holds no key. Everything beyond goes through waldo, which is " +
			"its only MCP server:\na contract decides each call. Its home is kept for each project. The contract launch in " +
			"waldo.yaml adds hosts,\npackages, secrets and limits; launch: deny forbids it.",
		Example: "  waldo launch claude\n  waldo launch claude --explain\n  waldo launch codex -- exec 'mend the tests'\n" +
			"  waldo launch --command aider -- --model sonnet",
		Args: cobra.ArbitraryArgs, ValidArgs: Names(),
		RunE: func(c *cobra.Command, args []string) error { return l.run(c, args) },
	}
	f := c.Flags()
	f.StringVar(&l.program, "command", "", "start `PROGRAM` in place of a known host")
	f.BoolVar(&l.explain, "explain", false, "say what the agent could read, write, reach and ask for, and start nothing")
	f.StringSliceVar(&l.hosts, "allow-host", nil, "`HOST` that may be reached too, as in api.example.com or "+
		"GET api.example.com/v1/*; with a configuration its contract launch says which")
	f.StringArrayVar(&l.ports, "port", nil, "forward `PORT[:LOCAL]` of the sandbox to this machine's loopback, for your user")
	f.StringVar(&l.changes, "changes", "", "`MODE` of writes to this folder: keep (with copies for waldo changes --undo), "+
		"review (they go aside until waldo changes apply) or discard; without it they are kept, and listed")
	f.BoolVar(&l.bridge, "bridge", false, "the MCP server that a host in a sandbox starts")
	f.StringVar(&l.token, "token", "", "print the token of a host's login")
	_ = errors.Join(f.MarkHidden("bridge"), f.MarkHidden("token")) // they are there
	return c
}

func (l *command) run(c *cobra.Command, args []string) error {
	switch {
	case l.bridge:
		return relay(c.InOrStdin(), c.OutOrStdout())
	case l.token != "":
		return l.printToken(c, args)
	}
	a, err := l.asked(c, args)
	if err != nil {
		return err
	}
	state, cfg, err := l.Configured()
	if err != nil {
		return err
	}
	if len(l.hosts) > 0 && cfg.File != "" {
		return exitcode.Mistake("write launch: {network: {allow: [HOST]}} in waldo.yaml",
			"--allow-host cannot widen a configuration")
	}
	if !slices.Contains([]string{"", "keep", "review", "discard"}, l.changes) {
		return exitcode.Mistake("keep, review or discard", "--changes %s is not a mode", l.changes)
	}
	p, err := prepare(a, state, cfg)
	if f := (files.Fault{}); errors.As(err, &f) {
		return &exitcode.Exit{Code: exitcode.Denied, Text: f.Text, Hint: cmp.Or(f.Hint, "start it in the folder of a project")}
	}
	if err != nil {
		return exitcode.Mistake("waldo launch --help", "%v", err)
	}
	if l.explain {
		if err := p.look(); err != nil {
			return err
		}
		return l.tellPlan(c, p)
	}
	cfg.Contracts = append(dropped(cfg.Contracts), p.contract)
	if !slices.ContainsFunc(cfg.Contracts, func(k contract.Contract) bool { return k.Pattern == contract.GitConfig }) {
		cfg.Contracts = append(cfg.Contracts, gitContract())
	}
	for name, s := range p.secrets {
		cfg.Secrets[name] = s
	}
	var patience time.Duration
	if in, ok := c.InOrStdin().(*os.File); ok && terminal.OnScreen(in) { // a person is there to answer
		patience = time.Minute
	}
	h, err := l.Open(c.Context(), app.Options{Cfg: cfg, Limits: most, Sessions: app.MaxSessions, Patience: patience,
		Carriers: []approval.Notifier{cli.Teller{W: c.ErrOrStderr()}}})
	if err != nil {
		return err
	}
	defer h.Close()
	return l.session(c, h, p)
}

// session connects the streams of this process with the host, and runs it.
func (l *command) session(c *cobra.Command, h *app.App, p plan) error {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	ports, err := p.listen(c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer ports.close()
	var s runner.Streams
	var flush func() error
	in, onTerminal := c.InOrStdin().(*os.File)
	if onTerminal = onTerminal && terminal.OnScreen(in) && terminal.OnScreen(c.OutOrStdout()); onTerminal {
		if s.TTY, flush, err = terminal.Connect(in, h.Redact.TerminalStream(terminal.Whole{Writer: c.OutOrStdout()}),
			cancel); err != nil {
			return err
		}
	} else {
		s.Stdin, s.Pass = c.InOrStdin(), true
		s.Stdout, s.Stderr, flush = terminal.Through(c.OutOrStdout(), c.ErrOrStderr(),
			func(w io.Writer) terminal.Masking { return h.Redact.TerminalStream(w) }, cancel)
	}
	flush = sync.OnceValue(flush)
	r, err := p.start(ctx, h, s, ports, flush)
	masked := flush()
	if err != nil {
		return err
	}
	l.tellEnd(c, r)
	return cmp.Or(exitcode.OfResult(r), masked)
}

// asked reads the arguments.
func (l *command) asked(c *cobra.Command, args []string) (a asked, err error) {
	a.hosts, a.command, a.changes = l.hosts, l.program, l.changes
	for _, text := range l.ports {
		port, local, err := forward.Parse(text)
		if err != nil {
			return a, err
		}
		a.ports = append(a.ports, [2]uint16{port, local})
	}
	if a.command == "" {
		if len(args) == 0 || c.ArgsLenAtDash() == 0 {
			return a, exitcode.Mistake("as in waldo launch claude", "name a host: %s", strings.Join(Names(), ", "))
		}
		if a.profile, err = Find(args[0]); err != nil {
			return a, exitcode.Mistake("one of "+strings.Join(Names(), ", ")+", or --command PROGRAM", "%v", err)
		}
		args = args[1:]
	}
	a.args = args
	dir, err := os.Getwd()
	if err == nil {
		a.project, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return a, err
	}
	a.person, err = os.UserHomeDir()
	return a, err
}

// dropped returns contracts without those of launch.
func dropped(all []contract.Contract) (out []contract.Contract) {
	for _, k := range all {
		if k.Pattern != call.Launch {
			out = append(out, k)
		}
	}
	return out
}

// loginPatience is how long the issuer of a login is waited for.
const loginPatience = 20 * time.Second

// printToken prints the token of a login, renewed where it is about to end, for the source of its secret. The argument is
// the credential's variable. It runs outside of every sandbox.
func (l *command) printToken(c *cobra.Command, args []string) error {
	p, err := Find(l.token)
	if err != nil {
		return err
	}
	person, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	k := p.Credentials[strings.Join(args, "")]
	if k.File == "" || !k.there(person) {
		return exitcode.Mistake("log in with "+p.Program+" outside of waldo", "no login of %s was found", p.Title)
	}
	token, err := k.token(c.Context(), person, &http.Client{Timeout: loginPatience})
	if err == nil {
		_, err = io.WriteString(c.OutOrStdout(), token)
	}
	return err
}

// tellEnd prints what became of the session.
func (l *command) tellEnd(c *cobra.Command, r call.Result) {
	w := c.ErrOrStderr()
	if l.JSON {
		b, err := json.Marshal(r.Facts)
		if err == nil {
			display.Fprintf(w, "%s\n", b)
		}
		return
	}
	for _, warning := range r.Facts.Warnings {
		display.Fprintf(w, "waldo: %s\n", warning)
	}
	if r.Status != facts.OK {
		for _, line := range runner.Refused(r.Facts) {
			display.Fprintf(w, "waldo: %s\n", display.Text(line))
		}
	}
	if r.Status == facts.Denied {
		return // it has not begun
	}
	cli.TellChanges(w, r.Facts.Files.Changes, l.changes)
	display.Fprintf(w, "waldo: the session has ended; waldo explain %s shows it\n", r.Facts.CallID)
}
