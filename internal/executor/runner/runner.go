// Package runner executes code. It redeems a grant, derives the sandbox's profile from its contract, runs the code in
// the sandbox, and reports the facts.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"waldo/internal/budget"
	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/commands"
	"waldo/internal/executor/sandboxegress"
	serverfiles "waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/loader"
	"waldo/internal/sandbox/template"
	"waldo/internal/storage/workspace"
)

// Bridge serves the tools of runs.
type Bridge interface {
	// Open serves, over conn, the calls that a run's code makes, as children of the run's own call. It returns at
	// once. stop ends it, closes conn, and returns the side effect of those calls. A program with a place can be
	// suspended in it while its calls wait for a human.
	Open(ctx context.Context, run call.Call, conn net.Conn, place *call.Suspension) (stop func() facts.SideEffect)
}

// Means are what a run takes from the configuration and the session besides its sandbox.
type Means interface {
	// Workspace returns a session's workspace. The runner closes it.
	Workspace(s call.Session) (*workspace.Workspace, error)
	// Egress makes the egress for a contract's hosts.
	Egress(d policy.Decision, n contract.Network) (*sandboxegress.Egress, error)
	// Secret returns the current value of a secret.
	Secret(name secret.Ref) (secret.Value, error)
	// Template finds the root filesystem that a contract names.
	Template(ctx context.Context, c contract.Contract) (sandbox.Template, template.Config, error)
	// Stream returns a writer that hides what the contract hides and passes the rest on.
	Stream(c contract.Contract, w io.Writer) io.WriteCloser
	// Servers returns the names that a script finds as globals.
	Servers(run call.Call) []string
}

// Known are the secrets that no cut may show a part of. redact.Registry has both.
type Known interface {
	// Head returns how many of the first n bytes of output may be kept, as sandbox.Command.Cut has it.
	Head(text string, n int, more bool) int
	// Window returns what may be shown of text[start:end].
	Window(text string, start, end int, before, after bool) string
}

// Carrier carries out a decided run on another machine.
type Carrier interface {
	// Carry returns false where it cannot take the run, which then runs here.
	Carry(ctx context.Context, run Remote) (_ call.Outcome, taken bool, _ error)
}

// Runner runs code in sandboxes. The zero Runner runs nothing: it has no driver and limits of zero. One with
// drivers needs Means and Known.
type Runner struct {
	Drivers map[string]sandbox.Driver // by isolation level
	Auto    string                    // the level where neither contract nor caller names one
	Default sandbox.Limits            // limits of a run that requests none
	Most    sandbox.Limits            // upper bounds of a run's requests
	Warm    bool                      // the drivers start interpreters ahead of their use
	Bridge  Bridge                    // nil: the code has no tools
	Means   Means
	Known   Known
	// Changes lists and keeps what runs change below writable mounts; nil: it is neither listed nor kept.
	Changes Changes
	// State holds a note for each run with writable mounts; empty: a killed waldo leaves what its runs have planted.
	State string
	// Machine decides whether the input folder of a contract may be shown.
	Machine serverfiles.Machine
	// Commands are the programs of cli capabilities, as they were when the configuration was loaded.
	Commands commands.Programs
	// Sandboxes is the room for sandboxes of all principals; nil admits all.
	Sandboxes *budget.Gate

	// Work is waldo's own memory for replies, and for pieces, pictures and tables of files.
	Work *budget.Gate

	// Programs stores programs that are suspended while a human is asked; nil: they wait in memory.
	Programs Programs

	// Elsewhere carries runs out on other machines; nil: every run is carried out here.
	Elsewhere Carrier

	// Shares reports whether others use the files of a session besides its runs, as a server in its workspace does.
	Shares bool

	// Sessions is how many Pythons may stay at a time, between the calls that name them, of all principals; 0: none.
	Sessions int

	streams sync.Map // call id → Streams
	live    sync.Map // call id → share, of runs under way that share the session's files
	stay    residents
	needs   loader.Finder // of the programs of cli capabilities
}

// Options are what one call asks of its sandbox: the request that was decided, and the streams of this process.
type Options struct {
	call.Run
	Streams
	hidden  []string    // of the input folder, as sandbox.Mount has them
	spilled []string    // kept results that the call names
	mounts  []liveMount // of the contract
	start   *start      // nil: no writable mount
}

// Request returns the request as it goes into the call.
func (o Options) Request() *call.Run {
	run := o.Run
	run.Template = o.Root.Name
	return &run
}

// Streams belong to one call and to this process alone. They are no part of the decision.
type Streams struct {
	Stdin  io.Reader // stdin of the code; nil: empty
	Stdout io.Writer // a copy as it comes; may be nil
	Stderr io.Writer
	Pass   bool             // Stdout and Stderr get all of it: Limits.Output holds for the facts alone
	TTY    *os.File         // the command's end of a terminal of its own; nil: it has none
	Root   sandbox.Template // the template that the call names, as it was found; zero: the host
	Image  template.Config  // the template's settings for commands
	// Furnished is what a session of an agent host is shown besides its contract's mounts: its home, its programs.
	Furnished []sandbox.Mount
	// Lend returns where a session of an agent host has its own copy of a sealed file of git's configuration; empty: it
	// has none. It may be nil.
	Lend func(file string) (at string)
	// Share is a folder of a named sandbox whose commands share processes and ports; empty: this one shares none.
	Share string
	// Started gets the sandbox before the code runs in it; over is called after the code has ended. It may be nil.
	Started func(sandbox.Sandbox) (over func())
}

func (o Options) template() sandbox.Template {
	if o.Root == (sandbox.Template{}) {
		return host
	}
	return o.Root
}

// Attach sets the streams of a call that is about to be made. The returned function forgets them.
func (r *Runner) Attach(callID string, s Streams) (forget func()) {
	r.streams.Store(callID, s)
	return func() { r.streams.Delete(callID) }
}

// Execute redeems g and runs its code. A run that fails, is killed, or lacks its interpreter is an Outcome; an error
// means that waldo itself failed.
func (r *Runner) Execute(ctx context.Context, g *grant.Grant) (call.Outcome, error) {
	d, err := g.Redeem()
	if err != nil {
		return call.Outcome{}, err
	}
	var o Options
	if v, ok := r.streams.LoadAndDelete(d.Call.ID); ok {
		o.Streams = v.(Streams)
	}
	if d.Call.Run != nil {
		o.Run = *d.Call.Run
	}
	if o.Root.Name != o.Run.Template {
		return refuse(d, call.Reason{
			Code: "template.request", Text: "the template that was decided is not the one that was found",
		}), nil
	}
	if d.Call.Capability == ReadOutput {
		return r.readOutput(ctx, d)
	}
	if why := o.shorten(d); why != nil {
		return refuse(d, *why), nil
	}
	driver, why := r.driver(d.Contract.Isolation, o.Isolation)
	if why != nil {
		return refuse(d, *why), nil
	}
	if out, taken, err := r.elsewhere(ctx, d, o, driver); taken || err != nil {
		return out, err
	}
	if o, why = r.equip(ctx, d, o); why == nil {
		o, why = o.hide()
	}
	if why == nil {
		why = r.place(ctx, d, &o, driver)
		defer o.release()
		defer o.start.end()
	}
	if why != nil {
		return refuse(d, *why), nil
	}
	name, why := session(d)
	if why != nil {
		return refuse(d, *why), nil
	}
	if d.Contract.Hold && name != "" {
		return refuse(d, call.Reason{Code: "hold.kept",
			Text: "the contract holds writes until the program ends: leave session out"}), nil
	}
	if name != "" && driver.Name() != engineLevel {
		if len(o.mounts) > 0 {
			return refuse(d, call.Reason{Code: "mounts.session", Text: "a named session has no mounts: leave session out"}), nil
		}
		return r.cell(ctx, d, o, driver, name)
	}
	j, why := r.jobFor(d, o, driver)
	if why != nil {
		return refuse(d, *why), nil
	}
	out, err := r.run(ctx, d, o, driver, j)
	return out, errors.Join(err, r.settle(j, out))
}

// driver returns the driver of the level that the contract asks for. A level that is missing is
// refused: a weaker one never takes its place.
func (r *Runner) driver(contract, asked string) (sandbox.Driver, *call.Reason) {
	level := contract
	if level == "" || level == "auto" {
		level = asked
	}
	if level == "" || level == "auto" {
		level = r.Auto
	}
	if asked != "" && asked != "auto" && asked != level {
		return nil, &call.Reason{
			Code: "isolation.contract", Text: fmt.Sprintf("the contract says isolation %s; %s was asked for. "+
				"To allow it, the operator writes isolation: %s in the contract", level, asked, asked),
		}
	}
	d := r.Drivers[level]
	if d == nil {
		return nil, &call.Reason{
			Code: "isolation.absent", Text: fmt.Sprintf("isolation %q cannot be had here; `waldo doctor` says why", level),
		}
	}
	return d, nil
}

// run starts the sandbox, runs the job in it, stores its files and closes it.
func (r *Runner) run(
	ctx context.Context, d policy.Decision, o Options, driver sandbox.Driver, j job,
) (out call.Outcome, err error) {
	nothing := facts.New()
	nothing.Status, nothing.SideEffect = facts.Failed, facts.None
	way, why := r.way(d, o)
	if why != nil {
		return refuse(d, *why), nil
	}
	defer func() { err = errors.Join(err, way.End()) }()
	ws, err := r.open(d, o, j)
	if errors.Is(err, workspace.ErrTooMuch) {
		return refuse(d, call.Reason{Code: "args.invalid", Text: err.Error()}), nil
	}
	if err != nil {
		return outcome(d, nothing), fmt.Errorf("run %s: %w", d.Call.ID, err)
	}
	if ws != nil {
		defer func() { err = errors.Join(err, ws.Close()) }()
		if o.spilled, err = ws.Spilled(d.Call.Args.Raw()); err != nil {
			return outcome(d, nothing), fmt.Errorf("run %s: %w", d.Call.ID, err)
		}
	}
	ledger, why := r.ledger(d, &o)
	if why != nil {
		return refuse(d, *why), nil
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	p := r.profile(d, o, ws)
	o.Env = slices.Concat(o.Env, way.Open(&p))
	p.Prestart, p.Only = j.ahead(o, d.Call.Principal), j.only
	if len(j.env) > 0 {
		p.Prestart = nil // a prewarmed sandbox has no secrets
	}
	vacate, why := r.admit(ctx, d, p, true)
	if why != nil {
		return refuse(d, *why), nil
	}
	defer vacate()
	own := o.share(driver, &p, way != nil, j)
	sb, err := way.Start(ctx, driver, p)
	if errors.Is(err, sandbox.ErrApart) {
		own, p.Share = "this command has processes and ports of its own: "+sandbox.ErrApart.Error(), nil
		sb, err = way.Start(ctx, driver, p)
	}
	if why := notStarted(driver, err); why != nil {
		return refuse(d, *why), nil
	}
	if err != nil {
		return unstarted(d, driver, p, nothing), fmt.Errorf("run %s: starting a sandbox of isolation %s: %w",
			d.Call.ID, driver.Name(), err)
	}
	defer func() { err = errors.Join(err, sb.Close()) }()
	var give share
	if r.Shares || o.At != "" {
		give = sharing(sb, ws, o.places())
	}
	if give != nil {
		r.live.Store(d.Call.ID, give)
		defer r.live.Delete(d.Call.ID)
	}
	stand := &standstill{}
	if r.Programs != nil && driver.Name() == engineLevel && scripts[d.Call.Capability] != guest.Python {
		j.place = &call.Suspension{Held: d.Contract.Hold, Approvals: j.waits}
	} else if stand.can(sb, o) {
		j.place = &call.Suspension{Still: stand.still}
	}
	f, err := r.inside(ctx, d, o, sb, j)
	stand.end(&f)
	o.appeared(ledger, &f)
	f.Warnings = append(f.Warnings, narrowed(o.Limits, p.Limits)...)
	f.Warnings = append(f.Warnings, o.notShown()...)
	if starved := f.Starved(); starved != "" {
		f.Warnings = append(f.Warnings, starved)
	}
	if own != "" {
		f.Warnings = append(f.Warnings, own)
	}
	way.Report(&f)
	if err != nil {
		return outcome(d, f), fmt.Errorf("run %s: %w", d.Call.ID, err)
	}
	f.Files.Artifacts = []string{}
	if ws != nil {
		leave(sb, ws, o.places(), give, &f)
		if o.Whole && o.At == "" {
			keep(sb, ws, all, &f)
		}
	} else if n := len(f.Files.Written); n > 0 {
		f.Warnings = append(f.Warnings,
			fmt.Sprintf("files written to /workspace/output were not kept: %d; the contract gives no workspace", n))
	}
	if out, err = r.suspended(d, j, outcome(d, f)); err != nil {
		return out, err
	}
	if ws != nil {
		r.show(ctx, &out, d.Call.Principal, ws, f.Files.Artifacts)
	}
	return out, nil
}

// notStarted returns the reason of a start that the agent or the operator can change; nil: another error, or none.
func notStarted(driver sandbox.Driver, err error) *call.Reason {
	var hint sandbox.HintError
	switch {
	case errors.Is(err, sandbox.ErrDiffers):
		return &call.Reason{Code: "sandbox.differs", Text: err.Error() + "; this one starts when they have ended"}
	case errors.Is(err, sandbox.ErrFiles) && errors.As(err, &hint):
		return &call.Reason{Code: "workspace.full",
			Text: "the files of this session do not fit into a sandbox: " + hint.Hint()}
	case errors.Is(err, sandbox.ErrOnly):
		return &call.Reason{Code: "isolation.narrow", Text: "isolation " + driver.Name() + " cannot keep this program " +
			"from other programs and files here; the operator can write isolation: namespace"}
	case errors.Is(err, syscall.ELOOP): // nothing but the source of a mount is opened so that a link is an error
		return &call.Reason{Code: "mounts.refused", Text: "a folder that this run shows became a link, " +
			"and is not shown through " +
			"it", Cause: err.Error()}
	}
	return nil
}

// unstarted is the outcome of a run whose sandbox could not be made.
func unstarted(d policy.Decision, driver sandbox.Driver, p sandbox.Profile, f facts.Facts) call.Outcome {
	f.Sandbox = facts.Sandbox{Driver: driver.Name(), Template: p.Template.Name}
	f.Warnings = append(f.Warnings, "no sandbox of isolation "+driver.Name()+
		" can be made on this machine; nothing ran, and no weaker sandbox was taken")
	return outcome(d, f)
}

func (r *Runner) admit(
	ctx context.Context, d policy.Decision, p sandbox.Profile, patience bool,
) (func(), *call.Reason) {
	if r.Sandboxes == nil {
		return func() {}, nil
	}
	return admit.Sandbox(ctx, r.Sandboxes, d.Call.Principal, p.Limits.Memory, patience)
}

// open opens the session's workspace where the contract lets the code see it, and puts the job's
// files into its input.
func (r *Runner) open(d policy.Decision, o Options, j job) (*workspace.Workspace, error) {
	if !files(d) {
		return nil, nil
	}
	ws, err := r.Means.Workspace(d.Call.Session)
	if err != nil {
		return nil, err
	}
	if o.Whole {
		if err := ws.Add(workspace.Files); err != nil {
			return nil, errors.Join(err, ws.Close())
		}
	}
	var room workspace.Bounds
	if len(j.files) > 0 { // the sandbox must hold all input files of the session
		room, err = ws.Room(workspace.Input, workspace.Bounds{Bytes: r.Default.Disk, Entries: int(r.Default.Inodes)})
	}
	for _, f := range j.files {
		err = errors.Join(err, room.Take(f.name, int64(len(f.text))))
	}
	if err != nil {
		return nil, errors.Join(err, ws.Close())
	}
	for _, f := range j.files {
		if err := ws.Put(workspace.Input, f.name, strings.NewReader(f.text), int64(len(f.text))); err != nil {
			return nil, errors.Join(err, ws.Close())
		}
	}
	return ws, nil
}

// inside runs the job in the sandbox, with the bridge beside it, and judges its side effect. Without a network the
// bridge is the only exit, so the effect is that of its calls.
func (r *Runner) inside(
	ctx context.Context, d policy.Decision, o Options, sb sandbox.Sandbox, j job,
) (facts.Facts, error) {
	c := sandbox.Command{Argv: j.argv, Env: o.imaged(with(o.Env, j.env)), Stdout: o.Stdout, Stderr: o.Stderr,
		Pass: o.Pass, Cut: r.Known.Head, Stdin: o.Stdin, TTY: o.TTY}
	if d.Call.Capability == "exec" || d.Call.Capability == call.Launch {
		c.Dir = o.dir() // code finds its files where it starts, a program of the image's expects the image's
	}
	if j.dir != "" {
		c.Dir = j.dir
	}
	if j.only != nil {
		c.Env = o.imaged(j.env) // without what the contract gives: its program needs none of it
	}
	if j.head != nil {
		c.Stdin = guest.Stdin(j.first, j.head, o.Stdin)
	}
	stop := func() facts.SideEffect { return facts.None }
	if j.tools {
		ours, theirs, err := connect(sb)
		if err != nil {
			return facts.New(), fmt.Errorf("making the bridge: %w", err)
		}
		c.Bridge = theirs
		defer func() { _ = theirs.Close() }()
		c.Clock = &sandbox.Clock{}
		stop = r.Bridge.Open(call.WithWait(ctx, c.Clock.Stop), j.caller(d.Call), ours, j.place)
	}
	if c.Stdout == nil && o.TTY == nil {
		if out := r.said(ctx, d); out != nil {
			c.Stdout = out
			defer func() { _ = out.Close() }() // the host can be gone
		}
	}
	over := func() {}
	if o.Started != nil {
		over = o.Started(sb)
	}
	f, err := sb.Run(ctx, c)
	over()
	f.SideEffect = stop()
	if d := c.Clock.Stopped(); d >= time.Second {
		f.Warnings = append(f.Warnings,
			fmt.Sprintf("the wall clock stood still for %v while a human was asked", d.Round(time.Second)))
	}
	if err != nil || d.Contract.Network.Reaches() {
		f.SideEffect = facts.Unknown // an effect over the network cannot be verified
	}
	return f, err
}

// said returns a writer that reports the output of a call to its host as progress; nil: the host did not ask for it.
func (r *Runner) said(ctx context.Context, d policy.Decision) io.WriteCloser {
	told := call.Progress(ctx)
	if told == nil {
		return nil
	}
	return r.Means.Stream(d.Contract, &spoken{told: told})
}

// spoken reports the output of a run as its progress: bytes so far, and the newest of them.
type spoken struct {
	told call.Told
	n    int
}

// mostSpoken limits one message, in bytes.
const mostSpoken = 4 << 10

func (s *spoken) Write(b []byte) (int, error) {
	s.n += len(b)
	s.told(float64(s.n), 0, strings.ToValidUTF8(string(b[max(0, len(b)-mostSpoken):]), "\uFFFD"))
	return len(b), nil
}

// whole is the folder of a named sandbox's workspace, without the paths that are stored apart.
const whole = "/workspace"

// apart are the names in /workspace that are places of their own, and the old name of output.
var apart = []string{string(workspace.Input), string(workspace.Output), string(workspace.Tmp), string(workspace.Spill),
	".workspace"}

// dir is where a command starts.
func (o Options) dir() string {
	if o.Dir == "" && !o.Whole {
		return o.Image.Dir
	}
	return o.Dir
}

// target returns the path in the sandbox of a workspace folder.
func target(f workspace.Folder) string {
	if f == workspace.Files {
		return whole
	}
	return path.Join(whole, string(f))
}

// kept is a folder of the workspace and where a sandbox has it.
type kept struct {
	folder workspace.Folder
	target string
}

// all is a named sandbox's workspace, without the paths that are stored apart.
var all = kept{workspace.Files, whole}

// places are the folders that can be shared with others while the run goes on, and outlive it.
func (o Options) places() []kept {
	out := []kept{{workspace.Output, target(workspace.Output)}}
	if o.At != "" {
		out = append(out, kept{workspace.Files, o.At}, kept{workspace.Tmp, "/tmp"})
	}
	return out
}

// below returns the name of a sandbox path within a place.
func below(p kept, at string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(at, p.target+"/"); !ok || p.target != whole {
		return name, ok
	}
	top, _, _ := strings.Cut(name, "/")
	return name, !slices.Contains(apart, top)
}

// keep copies a run's files in a folder to the workspace, and deletes there the files that the run deleted. Its
// artifacts are the written files, by their names in /workspace. A file that cannot be stored adds a warning.
func keep(sb sandbox.Sandbox, ws *workspace.Workspace, p kept, f *facts.Facts) {
	remove(ws, p, f)
	at := p.target
	names, err := sb.Export(at, ws.Path(p.folder))
	if err != nil {
		unkept(f, err)
	}
	written := map[string]bool{}
	for _, n := range f.Files.Written {
		written[n] = true
	}
	for _, n := range names {
		if n = path.Join(at, n); written[n] {
			f.Files.Artifacts = append(f.Files.Artifacts, p.name(strings.TrimPrefix(n, at+"/")))
		}
	}
}

// remove removes from a folder of the workspace what the run removed there.
func remove(ws *workspace.Workspace, p kept, f *facts.Facts) {
	var err error
	for _, n := range f.Files.Removed {
		if name, ok := below(p, n); ok {
			err = errors.Join(err, ws.Remove(p.folder, name)) // and those after it, too
		}
	}
	if err != nil {
		f.Warnings = append(f.Warnings, "a file that was deleted in "+p.target+" is still in the workspace")
	}
}

// unkept warns of files that could not be stored, with the reason of the first.
func unkept(f *facts.Facts, err error) {
	why, more, _ := strings.Cut(err.Error(), "\n")
	if more != "" {
		why += fmt.Sprintf("; and %d more", strings.Count(more, "\n")+1)
	}
	f.Warnings = append(f.Warnings, "some files in /workspace/output could not be kept: "+why)
}

// outcome describes a run: its facts, and as text what it wrote, with the reason where it failed.
func outcome(d policy.Decision, f facts.Facts) call.Outcome {
	f = f.Bounded()
	f.CallID, f.DecisionID = d.Call.ID, d.ID
	o := call.Outcome{Facts: f, IsError: f.Status != facts.OK}
	text := f.Stdout
	if o.IsError {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if f.Stderr != "" {
			text += strings.TrimRight(f.Stderr, "\n") + "\n"
		}
		text += Sentence(f)
	}
	o.Content = []call.Content{call.Text(text)}
	return o
}

// refuse ends a call before anything was started.
func refuse(d policy.Decision, why call.Reason) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.Denied, facts.None
	if code, ok := missing[why.Code]; ok {
		f.Status, f.ExitCode = facts.Failed, &code
	}
	f.CallID, f.DecisionID = d.Call.ID, d.ID
	f.Warnings = []string{why.Code + ": " + why.Text}
	return call.Outcome{IsError: true, Refused: &why, Facts: f, Content: []call.Content{call.Text(why.Text)}}
}

// missing are the reasons that a shell has an exit code for, though no process ran.
var missing = map[string]int{"interpreter.absent": 127, "program.absent": 127}

// connect makes the two ends of a bridge. If the sandbox has one already, theirs is nil.
func connect(sb sandbox.Sandbox) (net.Conn, *os.File, error) {
	bridge := sb.Abilities().Bridge
	if bridge == nil {
		return pair()
	}
	ours := bridge()
	if ours == nil {
		return pair()
	}
	defer func() { _ = ours.Close() }()
	conn, err := connOf(ours)
	return conn, nil, err
}

// pair makes the two ends of a bridge.
func pair() (net.Conn, *os.File, error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = ours.Close() }()
	conn, err := connOf(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// narrow returns the limits of a run: the requested ones or else the default, never more than most and never longer
// than the contract's time.
func narrow(asked, def, most sandbox.Limits, contract time.Duration) sandbox.Limits {
	l := sandbox.Limits{
		Wall:   least(asked.Wall, def.Wall, most.Wall),
		CPU:    least(asked.CPU, def.CPU, most.CPU),
		Memory: least(asked.Memory, def.Memory, most.Memory),
		Pids:   least(asked.Pids, def.Pids, most.Pids),
		Files:  least(asked.Files, def.Files, most.Files),
		Disk:   least(asked.Disk, def.Disk, most.Disk),
		Inodes: least(asked.Inodes, def.Inodes, most.Inodes),
		Output: least(asked.Output, def.Output, most.Output),
	}
	if contract > 0 {
		if asked.Wall <= 0 {
			l.Wall = min(contract, most.Wall)
		}
		l.Wall = min(l.Wall, contract)
	}
	return l
}

// least returns asked, or def if it is zero, and at most most.
func least[N int64 | time.Duration](asked, def, most N) N {
	if asked <= 0 {
		asked = def
	}
	return min(asked, most)
}
