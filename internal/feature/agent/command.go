package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/feature/agent/agentrun"
	"waldo/internal/feature/agent/loop"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/inbox"
)

// screenWait is how long a call waits for a human where a person looks on.
const screenWait = 10 * time.Minute

// maxTask is how many bytes of a task are read from standard input.
const maxTask = 1 << 20

// command holds the flags.
type command struct {
	*cli.Context
	resume string
	list   bool
	serve  bool
	wait   time.Duration
	o      agentrun.Options
	told   bool // a question is printed when it is asked
}

func newAgent(g *cli.Context) *cobra.Command {
	m := &command{Context: g}
	c := &cobra.Command{
		Use: "agent [TASK | -]", Short: "Give a task to the built-in agent, whose tools are those of the contracts",
		Long: "Asks the language models of agent.providers in waldo.yaml, one after another, and makes the calls that a " +
			"model asks for.\nEach call goes through the pipeline as the principal agent:NAME. Results are given to the " +
			"model as data.\n\nEach step is on the disk before the next one. A killed agent goes on with --resume; a call " +
			"that was under way is\nnot made again. Exit status 4: a call waits for a human; answer it, then --resume. " +
			"124: a limit is reached.",
		Example: "  waldo agent 'summarise the open tickets of customer 17'\n  waldo agent --resume n_… --wait 5m\n" +
			"  waldo agent --list",
		Args: cobra.ArbitraryArgs,
		RunE: m.run,
	}
	f := c.Flags()
	f.StringVar(&m.resume, "resume", "", "go on with the agent `ID`; TASK is then a further message to it")
	f.BoolVar(&m.list, "list", false, "list the agents of the state directory")
	f.BoolVar(&m.serve, "serve", false, "work on webhooks with deliver: agent, one after another, until it is ended")
	f.DurationVar(&m.wait, "wait", 0, "`TIME` that a call waits for a human's answer (default: 10m on a terminal, else 0)")
	f.IntVar(&m.o.Steps, "max-steps", 0, "`NUMBER` of answers of the model (default: agent.max_steps)")
	f.IntVar(&m.o.Tokens, "max-tokens", 0, "`NUMBER` of tokens of the conversation (default: agent.max_tokens)")
	f.DurationVar(&m.o.Time, "timeout", 0, "`TIME` that this run takes at most (default: agent.timeout)")
	return c
}

func (m *command) run(c *cobra.Command, args []string) error {
	task := strings.TrimSpace(strings.Join(args, " "))
	if task == "-" {
		b, err := io.ReadAll(io.LimitReader(c.InOrStdin(), maxTask+1))
		if err != nil || len(b) > maxTask {
			return errors.Join(exitcode.Mistake("give a shorter one", "the task is longer than %d bytes", maxTask), err)
		}
		task = strings.TrimSpace(string(b))
	}
	if task == "" && m.resume == "" && !m.list && !m.serve {
		return exitcode.Mistake("as in waldo agent 'list the open tickets'", "the agent has no task")
	}
	if m.o.Steps < 0 || m.o.Tokens < 0 || m.o.Time < 0 || m.wait < 0 {
		return exitcode.Mistake("leave it out for the limit of waldo.yaml", "a limit is above zero")
	}
	s := app.Options{Tells: true, Patience: m.wait}
	if !c.Flags().Changed("wait") && terminal.OnScreen(c.ErrOrStderr()) {
		s.Patience = screenWait
	}
	if s.Patience > 0 && !m.JSON {
		s.Carriers = []approval.Notifier{cli.Teller{W: c.ErrOrStderr()}}
		m.told = m.resume == "" // questions of before are asked already
	}
	h, err := m.Open(c.Context(), s)
	if err != nil {
		return err
	}
	defer h.Close()
	if m.list {
		return m.tellAll(c, agentrun.New(h))
	}
	if m.serve {
		return m.webhooks(c, h)
	}
	return m.one(c, h, task)
}

// webhooks works on webhooks until the command is ended. A message of each try goes to standard error.
func (m *command) webhooks(c *cobra.Command, h *app.App) error {
	v := m.view(c, h)
	m.o.Watch = v.event
	err := agentrun.New(h).Serve(c.Context(), h.Inbox(), m.o, func(d *inbox.Delivery, o loop.Outcome, err error) {
		why := o.Why
		if err != nil {
			why = h.Clean(err.Error())
		}
		if v.json {
			v.line(map[string]any{"event": "webhook", "delivery": d.ID, "hook": d.Hook, "id": d.Work, "end": o.End,
				"why": why})
			return
		}
		v.endLine()
		if why != "" {
			why = ": " + why
		}
		display.Fprintf(v.err, "waldo: webhook %s of %s: %s, agent %s%s\n", d.ID, d.Hook, cmp.Or(o.End, loop.Failed),
			d.Work, why)
	})
	if c.Context().Err() != nil {
		return nil // it was told to end
	}
	return err
}

// one starts or resumes one agent and shows what it does.
func (m *command) one(c *cobra.Command, h *app.App, task string) (err error) {
	v := m.view(c, h)
	m.o.Watch = v.event
	var r *agentrun.Run
	if m.resume == "" {
		r, err = agentrun.New(h).Start(task, loop.Channel, m.o)
	} else {
		r, err = agentrun.New(h).Resume(c.Context(), m.resume, task, m.o)
	}
	if err != nil {
		return err
	}
	v.start(r)
	out, err := r.Go(c.Context())
	v.end(r, out)
	if err != nil && out.End == loop.Failed {
		return &exitcode.Exit{Code: exitcode.Failed, Text: out.Why,
			Hint: keyHint(h) + "go on with waldo agent --resume " + string(r.ID)}
	}
	return errors.Join(err, exit(r.ID, out))
}

// keyHint says how to define the missing keys of the providers; "" without one.
func keyHint(h *app.App) string {
	var steps []string
	for _, p := range h.Config.Agent.Providers {
		if p.Key == "" {
			continue
		}
		if _, err := h.Secret(p.Key); err == nil {
			continue
		}
		place, ok := cmp.Or(h.Config.Secrets[string(p.Key)].Spec.From, p.Key).Place()
		step := "waldo secret set " + string(p.Key)
		switch {
		case ok && place.Kind == "env":
			step = "export " + place.Name + "=…"
		case ok && place.Kind == "store":
			step = "waldo secret set " + place.Name
		case ok:
			step = "put the key at " + place.Kind + ":" + place.Path
		}
		if !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		return ""
	}
	return "define a missing key: " + strings.Join(steps, ", or ") + "; then "
}

// exit is the exit code of an outcome.
func exit(n call.Session, o loop.Outcome) error {
	again := "waldo agent --resume " + string(n)
	switch o.End {
	case loop.Done:
		return nil
	case loop.Declined:
		return &exitcode.Exit{Code: exitcode.Problems, Text: "every provider refused the task", Hint: "put it differently"}
	case loop.Waiting:
		return &exitcode.Exit{Code: exitcode.Waiting, Text: "a call waits for a human",
			Hint: "waldo approve " + strings.Join(o.Approvals, ", waldo approve ") + "; then " + again}
	case loop.Steps, loop.Tokens, loop.Time:
		return &exitcode.Exit{Code: exitcode.Timeout, Text: o.Why,
			Hint: "go on with a higher limit: " + again + " --max-steps, --max-tokens or --timeout"}
	case loop.Cancelled:
		return &exitcode.Exit{Code: exitcode.Cancelled, Text: "cancelled", Hint: "go on with " + again}
	case loop.Stopped:
		return &exitcode.Exit{Code: exitcode.Denied, Text: o.Why}
	}
	return &exitcode.Exit{Code: exitcode.Failed, Text: cmp.Or(o.Why, "the agent failed"), Hint: "go on with " + again}
}

// view shows what an agent does: its words on standard output, its calls on standard error.
type view struct {
	json     bool
	told     bool // Teller prints the questions
	out, err io.Writer
	words    io.WriteCloser // hides known secrets, and escapes what a terminal would obey
	escaped  io.WriteCloser
	danger   func(tool string, input json.RawMessage) int
	midline  bool
}

func (m *command) view(c *cobra.Command, h *app.App) *view {
	v := &view{json: m.JSON, told: m.told, out: c.OutOrStdout(), err: c.ErrOrStderr()}
	v.escaped = display.Writer(terminal.Words(v.out))
	v.words = h.Redact.TerminalStream(v.escaped)
	v.danger = func(tool string, input json.RawMessage) int {
		args, err := call.ParseArgs(input)
		if err != nil {
			return 3
		}
		return h.Policy.Explain(call.Call{ID: id.New(id.Call), Capability: call.Capability(tool), Args: args,
			Channel: loop.Channel, Principal: agentrun.New(h).Principal()}).Danger
	}
	return v
}

func (v *view) line(value any) {
	b, err := json.Marshal(value)
	if err == nil {
		_, _ = v.out.Write(append(display.JSON(b), '\n')) // a reader that is gone misses the rest
	}
}

func (v *view) start(r *agentrun.Run) {
	if v.json {
		v.line(map[string]any{"event": "start", "id": r.ID, "principal": r.Who})
		return
	}
	display.Fprintf(v.err, "waldo: agent %s, as %s\n", r.ID, r.Who)
}

// dangerous is an event of a call with the danger of that call.
type dangerous struct {
	loop.Event
	Danger int `json:"danger"`
}

func (v *view) event(e loop.Event) {
	if v.json {
		switch e.Event {
		case "text": // the whole answer follows, with secrets hidden across its parts
		case "call":
			v.line(dangerous{e, v.danger(e.Tool, e.Input)})
		default:
			v.line(e)
		}
		return
	}
	switch e.Event {
	case "text":
		_, _ = io.WriteString(v.words, e.Text)
		v.midline = !strings.HasSuffix(e.Text, "\n")
		return
	case "reply":
		v.endLine()
		return
	}
	v.endLine()
	switch e.Event {
	case "retry":
		v.say("waldo: %s\n", e.Text)
	case "call":
		v.say("waldo: %s (danger %d) %s\n", e.Tool, v.danger(e.Tool, e.Input),
			terminal.Brief(string(e.Input), 300))
	case "result":
		why := ""
		if e.Status != facts.OK {
			why = " (" + e.Text + "; waldo explain " + e.DecisionID + ")"
		}
		v.say("waldo:   %s%s\n", e.Status, why)
	case "waiting":
		if v.told {
			return
		}
		v.say("waldo:   waits for a human: waldo approve %s, or waldo deny %s\n", e.ApprovalID, e.ApprovalID)
	}
}

// say prints a line of waldo's own.
func (v *view) say(format string, args ...any) {
	display.Fprintf(v.err, "%s", terminal.Own(v.err, display.Sprintf(format, args...)))
}

// endLine ends a text of the model. All of it is out before the next call: nothing waits for a secret across texts.
func (v *view) endLine() {
	if v.midline {
		_, _ = io.WriteString(v.words, "\n")
	}
	v.midline = false
	_, _ = v.words.Close(), v.escaped.Close() // both take more afterwards; the text is out, or its reader is gone
}

// end shows how the run ended.
func (v *view) end(r *agentrun.Run, o loop.Outcome) {
	if v.json {
		v.line(struct {
			Event string       `json:"event"`
			ID    call.Session `json:"id"`
			loop.Outcome
		}{"end", r.ID, o})
		return
	}
	v.endLine()
	how := string(o.End)
	switch o.End {
	case loop.Steps, loop.Tokens, loop.Time:
		how = "stopped at the limit on " + how
	}
	display.Fprintf(v.err, "waldo: %s after %s, %s\n", how, display.Count(o.Steps, "step"),
		display.Count(o.Tokens, "token"))
}

// tellAll lists the agents.
func (m *command) tellAll(c *cobra.Command, s agentrun.Service) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	if m.JSON {
		return terminal.JSON(c.OutOrStdout(), all)
	}
	var rows [][]string
	for _, a := range all {
		started := ""
		if !a.Started.IsZero() {
			started = a.Started.Local().Format("2006-01-02 15:04")
		}
		rows = append(rows, []string{a.ID, started, string(a.End), terminal.Brief(a.Task, 80)})
	}
	terminal.Table(c.OutOrStdout(), []string{"AGENT", "STARTED", "STATE", "TASK"}, rows)
	return nil
}
