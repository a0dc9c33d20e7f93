package runner

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"waldo/internal/budget"
	"waldo/internal/core/policy"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
	"waldo/internal/storage/workspace"
)

// Bounds of an interpreter that stays. Those of a call are the call's own.
const (
	sessionLife  = 8 * time.Hour    // of its sandbox, regardless of its use
	sessionCPU   = time.Hour        // of all its cells together
	sessionIdle  = 15 * time.Minute // without a cell, after which it ends
	maxReply     = 16 << 20         // bytes of one answer
	replyMemory  = 3                // bytes of memory for each of them
	maxNameOfOne = 64
)

// errGone is the error for an interpreter that ended by itself.
var errGone = errors.New("the interpreter has ended")

// residents are the Pythons that stay, by agent's session and name.
type residents struct {
	mu     sync.Mutex
	open   map[string]*resident
	starts map[string]making // those in the making
}

// resident is one long-lived Python, in a sandbox of its own. Between cells it is paused, if the sandbox supports
// that.
type resident struct {
	key     string
	whose   call.Principal
	busy    chan struct{} // holds a token while a cell runs
	used    time.Time     // the end of the last cell; read and written with the token
	id      string
	level   string
	sandbox sandbox.Sandbox
	ws      *workspace.Workspace
	way     *sandboxegress.Egress // nil: it reaches nothing
	in      *io.PipeWriter
	from    *io.PipeReader
	out     *bufio.Reader // of from
	root    string        // the template's name
	kill    context.CancelFunc
	over    chan struct{} // closed when Run has returned
	last    facts.Facts   // of Run; read after over
	idle    *time.Timer
	share   share // nil: its files are its own until it ends
	places  []kept

	vacate func() // gives back its room
}

// making is an interpreter in the making.
type making struct {
	whose call.Principal
	done  chan struct{} // closed when it is on the list, or cannot be
}

// reply is the interpreter's answer to a cell. It is untrusted content.
type reply struct {
	Code    *uint8 `json:"code"` // nil: it failed
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Data string `json:"data"`
	} `json:"content"`
	room *budget.Lease // of waldo's own memory
	full error         // there was none, and the reply was dropped
}

// session returns the name of the interpreter that a call asks for; empty: none.
func session(d policy.Decision) (name string, why *call.Reason) {
	v, ok := d.Call.Args.Values()["session"]
	if !ok || d.Call.Capability != "run_python" {
		return "", nil
	}
	name, ok = v.(string)
	if !ok || name == "" || len(name) > maxNameOfOne ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return "", &call.Reason{Code: "args.invalid", Text: "session is a name of 1 to 64 letters, digits, '-' and '_'"}
	}
	return name, nil
}

// cell runs code in a resident interpreter. It starts one if the name is new.
func (r *Runner) cell(
	ctx context.Context, d policy.Decision, o Options, driver sandbox.Driver, name string,
) (call.Outcome, error) {
	if r.Sessions <= 0 {
		return refuse(d, call.Reason{
			Code: "session.absent", Text: "only a running waldo serve retains variables between calls; leave session out",
		}), nil
	}
	var a struct {
		Code *string `json:"code"`
	}
	others := len(d.Call.Args.Values()) - 2
	if _, ok := d.Call.Args.Values()["timeout_s"]; ok {
		others--
	}
	if decode(d.Call.Args, &a) != nil || a.Code == nil || others != 0 {
		return refuse(d, call.Reason{
			Code: "args.invalid", Text: "with session, run_python takes code (text), timeout_s, and nothing else",
		}), nil
	}
	if len(d.Contract.Reveal) > 0 {
		return refuse(d, call.Reason{Code: "secrets.session", Text: "an interpreter that stays gets no secret itself"}), nil
	}
	l := r.limits(d, o)
	in, err := guest.Cell(*a.Code, l.Output)
	if err != nil {
		return refuse(d, call.Reason{Code: "args.invalid", Text: err.Error()}), nil
	}
	i, why, err := r.interpreter(ctx, d, o, driver, name)
	if why != nil {
		return refuse(d, *why), nil
	}
	if err != nil {
		f := facts.New()
		f.Status, f.SideEffect = facts.Failed, facts.None
		return outcome(d, f), fmt.Errorf("run %s: session %s: %w", d.Call.ID, name, err)
	}
	defer func() { <-i.busy }()
	if i.ws != nil {
		if kept, err := i.ws.Spilled(d.Call.Args.Raw()); err != nil || len(kept) > 0 {
			return refuse(d, call.Reason{Code: "session.spill", Text: "an interpreter that stays has no /workspace/spill: " +
				"read the result in a run_python without session, and write to /workspace/output what this one needs"}), err
		}
	}
	return r.ask(ctx, d, i, in, l), nil
}

// interpreter returns the interpreter of a name, held for one cell.
func (r *Runner) interpreter(
	ctx context.Context, d policy.Decision, o Options, driver sandbox.Driver, name string,
) (*resident, *call.Reason, error) {
	// Another agent's session, another policy in force, or another delegation is another interpreter.
	key := strings.Join(append([]string{string(d.Call.Session), d.Policy, driver.Name(), name}, d.Call.Chain...), " ")
	wait := time.NewTimer(r.limits(d, o).Wall)
	defer wait.Stop()
	for over := false; !over; {
		r.stay.mu.Lock()
		var busy chan struct{}
		i, s := r.stay.open[key], r.stay.starts[key]
		switch {
		case i != nil:
			busy = i.busy
		case s.done == nil:
			return r.begin(ctx, d, o, driver, key)
		}
		r.stay.mu.Unlock()
		select {
		case busy <- struct{}{}:
			return i, nil, nil
		case <-s.done: // another call has started it, or could not
		case <-wait.C:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	return nil, &call.Reason{Code: "session.busy", Text: "another call runs in session " + name + " still"}, nil
}

// begin starts the interpreter of a key that has none, held for its first cell. r.stay.mu is held at first. Others get
// their interpreters while this one starts and the one in its place stores its files.
func (r *Runner) begin(
	ctx context.Context, d policy.Decision, o Options, driver sandbox.Driver, key string,
) (*resident, *call.Reason, error) {
	var oldest *resident
	if n := len(r.stay.open) + len(r.stay.starts); n >= r.Sessions {
		if oldest = r.makeRoom(d.Call.Principal); oldest == nil {
			r.stay.mu.Unlock()
			return nil, &call.Reason{
				Code: "session.limit", Text: fmt.Sprintf("%d sessions are open, which is the most, and no other principal has more "+
					"of them; they end after %v without a call", n, sessionIdle),
			}, nil
		}
	}
	s := making{whose: d.Call.Principal, done: make(chan struct{})}
	if r.stay.starts == nil {
		r.stay.open, r.stay.starts = map[string]*resident{}, map[string]making{}
	}
	r.stay.starts[key] = s
	r.stay.mu.Unlock()
	var i *resident
	defer func() {
		r.stay.mu.Lock()
		defer r.stay.mu.Unlock()
		delete(r.stay.starts, key)
		close(s.done)
		if i != nil {
			r.stay.open[key] = i
		}
	}()
	if oldest != nil {
		oldest.end()
		<-oldest.busy // a call that waits for it ends with an error
	}
	i, why, err := r.fresh(ctx, d, o, driver)
	if i != nil {
		i.key = key
		i.idle = time.AfterFunc(sessionIdle, func() { r.retire(i) })
	}
	return i, why, err
}

// fresh starts an interpreter that is on no list yet, held for its first cell.
func (r *Runner) fresh(
	ctx context.Context, d policy.Decision, o Options, driver sandbox.Driver,
) (*resident, *call.Reason, error) {
	exe, why := o.interpreter(guest.Python)
	if why != nil {
		return nil, why, nil
	}
	way, why := r.way(d, o)
	if why != nil {
		return nil, why, nil
	}
	i, why, err := r.stays(ctx, d, o, driver, exe, way)
	if err != nil || why != nil {
		return nil, why, errors.Join(err, way.End())
	}
	return i, nil, nil
}

// makeRoom takes the longest idle interpreter of the principal that has the most off the list, held, if that one has
// more than another principal would have with one more; nil: none. The caller ends it. r.stay.mu is held.
func (r *Runner) makeRoom(another call.Principal) (oldest *resident) {
	count := map[call.Principal]int{}
	most := another
	for _, s := range r.stay.starts {
		count[s.whose]++
	}
	for _, i := range r.stay.open {
		if count[i.whose]++; count[i.whose] > count[most] {
			most = i.whose
		}
	}
	if count[most] <= count[another]+1 {
		return nil
	}
	for _, i := range r.stay.open {
		if i.whose != most {
			continue
		}
		select {
		case i.busy <- struct{}{}:
		default:
			continue // a cell runs
		}
		if oldest == nil || i.used.Before(oldest.used) {
			i, oldest = oldest, i
		}
		if i != nil {
			<-i.busy
		}
	}
	if oldest != nil {
		delete(r.stay.open, oldest.key)
	}
	return oldest
}

// stays starts an interpreter, held for its first cell.
func (r *Runner) stays(
	ctx context.Context, d policy.Decision, o Options, driver sandbox.Driver, exe string, way *sandboxegress.Egress,
) (*resident, *call.Reason, error) {
	ws, err := r.open(d, o, job{})
	if err != nil {
		return nil, nil, err
	}
	p := r.profile(d, o, ws)
	vacate, why := r.admit(ctx, d, p, false) // a call without a session has the line
	if why != nil {
		if ws != nil {
			err = ws.Close()
		}
		return nil, why, err
	}
	p.Limits.Wall, p.Limits.CPU = sessionLife, sessionCPU
	o.Env = slices.Concat(o.Env, way.Open(&p))
	sb, err := way.Start(ctx, driver, p)
	if err != nil {
		vacate()
		if ws != nil {
			err = errors.Join(err, ws.Close())
		}
		return nil, nil, err
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	run, kill := context.WithCancel(context.WithoutCancel(ctx))
	i := &resident{
		id: p.ID, level: driver.Name(), sandbox: sb, ws: ws, way: way, in: inW, from: outR, out: bufio.NewReader(outR),
		root: p.Template.Name, kill: kill, busy: make(chan struct{}, 1), over: make(chan struct{}), share: sharing(sb, ws, o.places()), places: o.places(),
		vacate: vacate, whose: d.Call.Principal,
	}
	i.busy <- struct{}{}
	go func() {
		env := o.imaged(append([]string{"MPLBACKEND=Agg"}, o.Env...))
		i.last, _ = sb.Run(run, sandbox.Command{
			Argv: append([]string{exe}, guest.SessionCommand()...), Env: env, Dir: o.At, Stdin: inR, Stdout: outW, Serve: true,
		})
		_ = errors.Join(outW.Close(), inR.Close())
		close(i.over)
	}()
	return i, nil, nil
}

// ask runs one cell and describes it. A cell that takes longer than it may ends its interpreter.
func (r *Runner) ask(
	ctx context.Context, d policy.Decision, i *resident, cell io.Reader, l sandbox.Limits,
) call.Outcome {
	began := time.Now()
	i.idle.Stop()
	can := i.sandbox.Abilities()
	if can.Resume != nil {
		_ = can.Resume()
	}
	wall := min(l.Wall, l.CPU) // a sandbox has one processor at a time, so CPU bounds wall time
	within, cancel := context.WithTimeout(ctx, wall)
	defer cancel()
	got := make(chan reply, 1)
	failed := make(chan error, 1)
	var given []string
	var lost error
	go func() { // sharing files takes time too, as code in the sandbox has it
		if i.share != nil {
			_, _ = i.share() // new files of the workspace are there; a failed sync is retried at the next cell
		}
		v, err := i.exchange(within, cell, r.Work.Lease(string(i.whose)), r.said(ctx, d))
		if err != nil {
			failed <- err
			return
		}
		if i.share != nil {
			given, lost = i.share()
		}
		got <- v
	}()
	f := facts.New()
	f.SideEffect = facts.None // no tools
	if i.way != nil {
		f.SideEffect = facts.Unknown // an effect over the network cannot be verified
	}
	f.Sandbox = facts.Sandbox{ID: i.id, Driver: i.level, Template: i.root, Warm: true}
	f.Limits = facts.Limits{WallMS: wall.Milliseconds(), CPUMS: wall.Milliseconds(), MemoryBytes: l.Memory, Pids: l.Pids}
	f.Warnings = append(f.Warnings, "processor, memory and processes are counted for the whole session, not for one call")
	clock := time.NewTimer(wall)
	defer clock.Stop()
	var v reply
	select {
	case v = <-got:
		code := 1
		if v.Code != nil {
			code = int(*v.Code)
		}
		if f.Status = facts.Failed; code == 0 {
			f.Status = facts.OK
		}
		f.ExitCode = &code
		for _, name := range given {
			f.Files.Written = append(f.Files.Written, path.Join("/workspace", name))
		}
		if f.Files.Artifacts = append(f.Files.Artifacts, given...); lost != nil {
			unkept(&f, lost)
		}
		if can.Pause != nil {
			_ = can.Pause()
		}
		i.used = time.Now()
		i.idle.Reset(sessionIdle)
	case <-failed:
		r.retire(i)
		<-i.over // also where another call was faster
		f.Status, f.Limit, f.OOMKilled, f.ExitCode, f.Signal = i.last.Status, i.last.Limit, i.last.OOMKilled,
			i.last.ExitCode, i.last.Signal
		if f.Status == facts.OK || f.Status == "" || f.Status == facts.Cancelled {
			f.Status = facts.Failed
		}
		f.Warnings = append(f.Warnings, "the session has ended, and its variables are gone")
	case <-clock.C:
		r.retire(i)
		go forgotten(got, failed)
		limit := facts.LimitWall
		f.Status, f.Limit, f.TimedOut, f.Signal = facts.Timeout, &limit, true, new("SIGKILL")
		f.Warnings = append(f.Warnings, "the session was ended, and its variables are gone")
	case <-ctx.Done():
		r.retire(i)
		go forgotten(got, failed)
		f.Status = facts.Cancelled
		f.Warnings = append(f.Warnings, "the session was ended, and its variables are gone")
	}
	f.Usage.WallMS = facts.MS(time.Since(began))
	f.Stdout, f.Truncated.Stdout = r.clip(v.Stdout, l.Output)
	f.Stderr, f.Truncated.Stderr = r.clip(v.Stderr, l.Output)
	f.Usage.OutputBytes = int64(len(f.Stdout) + len(f.Stderr))
	i.way.Report(&f)
	out := outcome(d, f)
	out.Content = append(out.Content, r.blocks(v, l.Output)...)
	if v.room != nil {
		out.Held = v.room
	}
	if v.full != nil {
		why := admit.NoMemory(v.full)
		out.Facts.Warnings = append(out.Facts.Warnings, why.Code+": the cell ran, and its output was dropped: "+why.Text)
		out.Content = append(out.Content, call.Text("\n"+why.Code+": the cell ran, and its output was dropped: "+why.Text))
	}
	return out
}

// forgotten gives back what a reply holds that comes too late.
func forgotten(got chan reply, failed chan error) {
	select {
	case v := <-got:
		_ = v.room.Close() // never fails
	case <-failed:
	}
}

// clip cuts text to the output limit of a call, before a secret that reaches over it.
func (r *Runner) clip(s string, most int64) (string, bool) {
	if int64(len(s)) <= most {
		return s, false
	}
	return strings.ToValidUTF8(s[:r.Known.Head(s, int(most), false)], ""), true
}

// blocks are the figures and tables of a reply, as far as they are what they say.
func (r *Runner) blocks(v reply, most int64) []call.Content {
	var out []call.Content
	for _, b := range v.Content {
		switch {
		case b.Type == "text":
			text, _ := r.clip(b.Text, most)
			out = append(out, call.Text(text))
		case b.Type == "image" && isPNG(b.Data):
			raw, err := strictjson.Parse([]byte(`{"type":"image","mimeType":"image/png","data":"` + b.Data + `"}`))
			if err == nil {
				out = append(out, call.Content{Type: "image", Raw: raw})
			}
		}
	}
	return out
}

// isPNG reports whether data is valid base64 that begins with the PNG signature.
func isPNG(data string) bool {
	b, err := base64.StdEncoding.Strict().DecodeString(data)
	return err == nil && !strings.ContainsAny(data, "\r\n") && bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n"))
}

// exchange sends a cell and reads the answer: a line of its length, then strict JSON. Pieces of output can come before
// it, for said. It leaves the memory that it takes with the reply.
func (i *resident) exchange(
	ctx context.Context, cell io.Reader, room *budget.Lease, said io.WriteCloser,
) (v reply, err error) {
	var to io.Writer = io.Discard
	if said != nil {
		defer func() { _ = said.Close() }() // the host can be gone
		to = said
	}
	defer func() {
		if v.room = room; err != nil {
			_ = room.Close() // never fails
		}
	}()
	if _, err := io.Copy(i.in, cell); err != nil {
		return v, errors.Join(errGone, err)
	}
	n := 0
	for piece := true; piece; {
		head := make([]byte, 12)
		if _, err := io.ReadFull(i.out, head); err != nil {
			return v, errors.Join(errGone, err)
		}
		piece = head[0] == '+'
		n, err = strconv.Atoi(strings.TrimLeft(strings.TrimSpace(string(head)), "+ "))
		if err != nil || n < 0 || n > maxReply || piece && n > mostSpoken {
			return v, fmt.Errorf("an answer of %q bytes", head)
		}
		if piece {
			_, _ = io.CopyN(to, i.out, int64(n)) // what is missing fails the next head
		}
	}
	if full := room.Cover(ctx, replyMemory*int64(n)); full != nil {
		_, err := io.CopyN(io.Discard, i.out, int64(n))
		return reply{full: full}, err
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(i.out, b); err != nil {
		return v, errors.Join(errGone, err)
	}
	defer room.Turn(int64(n))()
	parsed, err := strictjson.Parse(b)
	if err != nil {
		return v, err
	}
	return v, parsed.Decode(&v)
}

// retire removes an interpreter from the list and ends it.
func (r *Runner) retire(i *resident) {
	r.stay.mu.Lock()
	if r.stay.open[i.key] != i {
		r.stay.mu.Unlock()
		return // another was faster
	}
	delete(r.stay.open, i.key)
	r.stay.mu.Unlock()
	i.end()
}

// end ends an interpreter that is on no list any more, and stores its output.
func (i *resident) end() {
	i.idle.Stop()
	i.kill()
	_ = i.in.Close()
	_ = i.from.Close() // so that nothing it still writes holds it
	<-i.over
	if i.ws != nil {
		f := i.last
		leave(i.sandbox, i.ws, i.places, i.share, &f)
		_ = i.ws.Close()
	}
	_ = i.sandbox.Close()
	i.vacate()
	_ = i.way.End()
}

// Close ends every interpreter that stays, keeping what they left in output.
func (r *Runner) Close() error { return r.End("") }

// End ends those of one session; of all, where it names none.
func (r *Runner) End(n call.Session) error { return r.EndNamed(n, "") }

// EndNamed ends the interpreter of a name in a session; empty: all of them.
func (r *Runner) EndNamed(n call.Session, name string) error {
	meant := func(key string) bool {
		return (n == "" || strings.HasPrefix(key, string(n)+" ")) && (name == "" || strings.HasSuffix(key, " "+name))
	}
	r.stay.mu.Lock()
	starts := maps.Clone(r.stay.starts)
	r.stay.mu.Unlock()
	for key, s := range starts {
		if meant(key) {
			<-s.done
		}
	}
	r.stay.mu.Lock()
	var all []*resident
	for key, i := range r.stay.open {
		if meant(key) {
			all = append(all, i)
		}
	}
	r.stay.mu.Unlock()
	for _, i := range all {
		r.retire(i)
	}
	return nil
}
