package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"waldo/internal/app"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
)

// config is a command as a client asks for it.
type config struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Envs map[string]string `json:"envs"`
	Cwd  *string           `json:"cwd,omitempty"`
}

// size is that of a terminal.
type size struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// screen asks for one.
type screen struct {
	Size *size `json:"size"`
}

// starting is the body of Start.
type starting struct {
	Process config  `json:"process"`
	PTY     *screen `json:"pty"`
	Tag     *string `json:"tag"`
	Stdin   *bool   `json:"stdin"`
}

// maxArgs bounds the words and variables of a command.
const maxArgs = 4096

func (c *starting) check() error {
	if c.Process.Cmd == "" || len(c.Process.Args) > maxArgs || len(c.Process.Envs) > maxArgs {
		return fail(400, "a process has cmd, and at most %d args and envs", maxArgs)
	}
	if c.Process.Cwd != nil && *c.Process.Cwd != "" {
		at := place(*c.Process.Cwd)
		c.Process.Cwd = &at
	}
	if c.Tag != nil && len(*c.Tag) > 256 {
		return fail(400, "tag: at most 256 bytes")
	}
	for k := range c.Process.Envs {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return fail(400, "envs: %.50q is not a name", k)
		}
	}
	return nil
}

// event is one of a process.
type event struct {
	Event any `json:"event"`
}

// process is one command, which outlives the stream that started it.
type process struct {
	pid    uint32
	tag    string
	config config
	call   string
	now    *app.App // whose configuration was in force when it started
	stdin  *os.File // nil: none, or a terminal
	master *os.File // of its terminal; nil: it has none
	kill   context.CancelFunc
	begun  chan struct{} // closed when its sandbox runs
	over   chan struct{} // closed when it has ended
	ended  event         // after over
	failed *failure      // after over: it never began, or ran out of time

	mu        sync.Mutex
	listeners map[*listener]struct{}
}

// listener is one stream that follows a process. A client that takes nothing stops the process, for slowWrite at most.
type listener struct {
	events chan event
	gone   chan struct{}
}

// follow adds a listener, until leave is called.
func (p *process) follow() (l *listener, leave func()) {
	l = &listener{events: make(chan event, 16), gone: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners[l] = struct{}{}
	return l, sync.OnceFunc(func() {
		close(l.gone)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.listeners, l)
	})
}

// emit hands an event to every listener.
func (p *process) emit(e event) {
	p.mu.Lock()
	all := make([]*listener, 0, len(p.listeners))
	for l := range p.listeners {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		select {
		case l.events <- e:
		case <-l.gone:
		}
	}
}

// output writes one of the outputs of a process to its listeners.
type output struct {
	p    *process
	name string // stdout, stderr, pty
}

// maxPiece bounds one event.
const maxPiece = 64 << 10

// Write satisfies io.Writer.
func (o output) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), maxPiece)
		o.p.emit(event{map[string]any{"data": map[string][]byte{o.name: append([]byte{}, rest[:n]...)}}})
		rest = rest[n:]
	}
	return len(b), nil
}

// start starts a command. It returns when its sandbox runs, or when it was refused.
func (s *server) start(ctx context.Context, b box, in starting, limit time.Duration) (p *process, l *listener, leave func(), err error) {
	is, err := s.m.Get(ctx, b.Owner, b.ID)
	if err != nil {
		return nil, nil, nil, err
	}
	life, kill := context.WithCancel(s.ctx)
	p = &process{config: in.Process, call: id.New(id.Call), kill: kill, begun: make(chan struct{}), over: make(chan struct{}),
		listeners: map[*listener]struct{}{}, now: s.h.InForce()}
	if in.Tag != nil {
		p.tag = *in.Tag
	}
	o, err := s.options(p.now, b, is, "exec")
	if err != nil {
		kill()
		return nil, nil, nil, err
	}
	o.NoTools, o.Pass, o.Limits.Wall = true, true, app.MostLimits.Wall
	if limit > 0 {
		o.Limits.Wall = limit
	}
	o.Limits.CPU, o.Dir = o.Limits.Wall, home
	if in.Process.Cwd != nil {
		o.Dir = *in.Process.Cwd
	}
	if err := p.streams(&o, in); err != nil {
		kill()
		return nil, nil, nil, err
	}
	live := s.of(b.ID)
	live.share() // so that it begins with what the others wrote
	live.mu.Lock()
	live.next++
	p.pid = live.next
	live.commands[p.pid] = p
	live.mu.Unlock()
	l, leave = p.follow()
	go s.run(life, live, b, is.Name, p, o)
	select {
	case <-p.begun:
		return p, l, leave, nil
	case <-p.over:
		if p.failed != nil {
			leave()
			return nil, nil, nil, p.failed
		}
		return p, l, leave, nil
	case <-ctx.Done(): // nobody waits for a command that has not begun
		p.kill()
		leave()
		return nil, nil, nil, ctx.Err()
	}
}

// argv is what runs: the command, after env with its variables where it has any.
func (p *process) argv(b box) (argv []string) {
	all, names := b.variables(p.config.Envs)
	if len(names) > 0 {
		argv = append(argv, "env", "--")
	}
	for _, k := range names {
		argv = append(argv, k+"="+all[k])
	}
	return append(append(argv, p.config.Cmd), p.config.Args...)
}

// streams makes the streams of a command.
func (p *process) streams(o *runner.Options, in starting) (err error) {
	switch {
	case in.PTY != nil:
		if p.master, o.TTY, err = newTerminal(); err != nil {
			return err
		}
		if in.PTY.Size != nil {
			err = resize(p.master, *in.PTY.Size)
		}
	case in.Stdin == nil || *in.Stdin:
		var r *os.File
		if r, p.stdin, err = os.Pipe(); err == nil {
			o.Stdin = r
		}
	}
	return err
}

// run makes the call of a command, and ends with it.
func (s *server) run(ctx context.Context, live *live, b box, name string, p *process, o runner.Options) {
	defer p.kill()
	err := s.call(ctx, b, name, p, &o)
	if f := (*failure)(nil); errors.As(err, &f) {
		p.failed = f
	} else if err != nil {
		p.failed = failed(err)
	}
	live.mu.Lock()
	delete(live.commands, p.pid)
	live.mu.Unlock()
	close(p.over)
	p.kill()
	closing := []io.Closer{}
	for _, f := range []*os.File{p.stdin, p.master, o.TTY} {
		if f != nil {
			closing = append(closing, f)
		}
	}
	if r, ok := o.Stdin.(*os.File); ok {
		closing = append(closing, r)
	}
	for _, c := range closing {
		_ = c.Close()
	}
}

// call passes a command through the pipeline. An error means that it never began.
func (s *server) call(ctx context.Context, b box, name string, p *process, o *runner.Options) error {
	now := p.now
	run, err := s.m.Begin(ctx, b.Owner, name, p.call, false)
	if err != nil {
		return err
	}
	defer func() { _ = run.End(context.WithoutCancel(ctx)) }()
	run.Tell(strings.Join(append([]string{p.config.Cmd}, p.config.Args...), " "))
	session, err := s.session(run.Sandbox)
	if err != nil {
		return err
	}
	args, err := call.ArgsOf(map[string]any{"argv": p.argv(b)})
	if err != nil {
		return fail(400, "%v", err)
	}
	c, _ := now.Policy.Lookup("exec")
	out, errs := now.Redact.StreamOf(c, output{p, "stdout"}), now.Redact.StreamOf(c, output{p, "stderr"})
	read := make(chan struct{})
	if p.master != nil {
		out = now.Redact.StreamOf(c, output{p, "pty"})
		go func() {
			defer close(read)
			_, _ = io.Copy(out, p.master)
		}()
	} else {
		close(read)
		o.Stdout, o.Stderr = out, errs
	}
	o.Started = func(sb sandbox.Sandbox) func() {
		close(p.begun)
		return run.Watch(sb, p.kill)
	}
	defer now.Runner.Attach(p.call, o.Streams)()
	r, err := now.Broker.Call(ctx, call.Call{ID: p.call, Capability: "exec", Args: args, Session: session,
		Principal: call.Principal(b.Owner), Channel: channel, Run: o.Request()})
	if o.TTY != nil {
		_ = o.TTY.Close()
	}
	select {
	case <-read:
	case <-time.After(slowWrite):
	}
	_, _ = out.Close(), errs.Close()
	if err != nil {
		return err
	}
	return p.end(r)
}

// end turns a result into the last event of a process, or into the error of one that never began.
func (p *process) end(r call.Result) error {
	select {
	case <-p.begun:
	default:
		return refused(r)
	}
	f := r.Facts
	end := map[string]any{"exited": f.ExitCode != nil, "exitCode": -1, "status": "signal: killed"}
	switch {
	case f.ExitCode != nil:
		end["exitCode"], end["status"] = *f.ExitCode, fmt.Sprintf("exit status %d", *f.ExitCode)
	case f.Signal != nil:
		end["status"] = "signal: " + strings.ToLower(strings.TrimPrefix(*f.Signal, "SIG"))
	}
	switch {
	case f.Status != facts.OK && f.Status != facts.Failed || f.ExitCode == nil:
		end["error"] = runner.Sentence(f)
	case *f.ExitCode != 0:
		end["error"] = end["status"]
	}
	p.ended = event{map[string]any{"end": end}}
	return nil
}

// refused is the error of a call that nothing was run for.
func refused(r call.Result) *failure {
	var why []string
	for _, w := range r.Why {
		why = append(why, w.Code+": "+w.Text)
	}
	if len(why) == 0 {
		why = r.Facts.Warnings
	}
	text := strings.Join(why, "; ")
	switch {
	case r.ApprovalID != "":
		return fail(403, "a human must agree first: waldo approve %s; then try again", r.ApprovalID)
	case r.Status == facts.Denied:
		return fail(403, "waldo refuses this: %s", text)
	case r.Status == facts.Cancelled:
		return fail(504, "the command was ended before it began")
	}
	return fail(500, "the command did not begin: %s", text)
}

// place returns the absolute path of a client's, which begins at home.
func place(name string) string {
	if name == "~" || strings.HasPrefix(name, "~/") {
		name = strings.TrimPrefix(name[1:], "/")
	}
	if !path.IsAbs(name) {
		name = path.Join(home, name)
	}
	return path.Clean(name)
}
