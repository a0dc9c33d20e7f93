//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/keeper"
	"waldo/internal/sandbox/lookup"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/seccompnotify"
	"waldo/internal/sandbox/spawn"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

// instance is one prepared sandbox.
type instance struct {
	driver   *Driver
	profile  sandbox.Profile
	host     *cgroup.Host
	group    *cgroup.Group
	stage    *initproc.Stage // nil: the sandbox has ended
	init     *os.Process     // its PID 1
	uid, gid int
	warnings []string
	shares   *keeper.Hold           // of namespaces that other commands have, too; nil: it shares none
	spaces   map[[2]uint32]*os.File // user namespaces of its mounts by owner and group, until these are taken
	places   []volume.Volume
	overlays []*os.File              // of the folders that it is shown
	egress   io.Closer               // serves the egress; nil: no egress
	lookups  *lookup.Server          // is egress then, and refuses name lookups; nil: there is egress, or a shared network
	notice   *seccompnotify.Listener // nil: the kernel gave no listener
	joined   bool                    // PID 1 was born in the version 2 cgroup
	waiting  *waiting                // a command that waits for its job; nil: none
	held     bool                    // the last command has ended but is still there
	ran      bool                    // a command was run, or is
	leader   *os.Process             // of the command that was started ahead; nil: there was none
	threads  []*os.File              // its threads, before there was a job
	stands   *os.File                // the state of its first thread; nil: not opened yet
	forked   bool                    // PID 1 is a copy of the interpreter that its first command is to be
	left     bool                    // it is no more: it has been told to leave the interpreter to its first command

	running sync.Mutex
	sharing sync.Mutex                // of the places, while a command runs
	shared  map[string]*volume.Syncer // by the target of a place
	spent   time.Duration             // processor time of the commands before, where no cgroup counts it
}

// run is one command on its way.
type run struct {
	sandbox *instance
	command sandbox.Command
	job     *initproc.List
	stdio.Pipes
	began    time.Time
	before   cgroup.Usage
	ended    atomic.Pointer[facts.Limit] // the limit that waldo ended it for
	killed   atomic.Bool
	out, err *stdio.Capture
	state    volume.State // of the exported places before
	sampled  procstat.Sample
	filled   int64 // bytes in its places before, where no cgroup counts them
	warm     bool  // the command was waiting for this job
	inline   bool  // who runs it waits for its end in the kernel
	leader   int   // its process; 0: not known
	held     atomic.Pointer[ending]
}

// Run runs one command. A run that was ended by force ends the sandbox.
func (b *instance) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	b.running.Lock()
	defer b.running.Unlock()
	if err := c.Validate(); err != nil {
		return facts.Facts{}, fmt.Errorf("namespace: %w", err)
	}
	if b.stage == nil {
		return facts.Facts{}, initproc.ErrGone
	}
	if b.ran {
		b.refresh()
	}
	b.ran = true
	if err := b.reapHeld(); err != nil {
		return facts.Facts{}, errors.Join(err, b.end())
	}
	defer b.host.Busy(b.group, b.profile.Owner)()
	r := &run{sandbox: b, command: c, began: time.Now()}
	if b.waiting != nil { // nothing has been denied or ended in there
		r.before.CPU, r.state = b.group.CPU(), b.waiting.State
	} else {
		r.before, r.state = b.group.Usage(), volume.Scan(b.places)
	}
	if !b.host.Memory() {
		r.filled = b.filled()
	}
	if err := r.take(); err != nil {
		return facts.Facts{}, errors.Join(err, b.end())
	}
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) (facts.Facts, error) {
	b := r.sandbox
	if !r.warm {
		job, program, err := b.program(r.command, false)
		if err != nil {
			return facts.Facts{}, err // nothing has happened: the sandbox is as it was
		}
		if r.Pipes, err = b.connect(r.command, program); err != nil {
			return facts.Facts{}, errors.Join(err, b.end())
		}
		r.job = job
	}
	r.out, r.err = stdio.Captures(r.command, b.profile.Limits.Output, r.flood)
	if r.hold() && r.runInline() {
		b.killThreads()
		return r.facts(ctx, *r.held.Load(), time.Since(r.began)), nil
	}
	b.listen()
	finish := r.Stream(r.command, r.out, r.err)
	stop := r.watch(ctx)
	e, err := r.wait()
	stop()
	wall := time.Since(r.began)
	if err != nil || r.killed.Load() || b.shares.Tree() {
		err = errors.Join(err, b.end())
	}
	finish(r.held.Load() != nil) // no process writes to them then
	if err != nil {
		return facts.Facts{}, err
	}
	b.killThreads()
	return r.facts(ctx, e, wall), nil
}

// aheadCPU is what a command started ahead of its job may have used before, in processor time. The kernel's own limit
// counts it with the job's: without room for it, a busy machine's job would be ended early and for no stated limit.
const aheadCPU = 10 * time.Second

// program makes the program of a command, as steps and as bytes.
func (b *instance) program(c sandbox.Command, forked bool) (*initproc.List, []byte, error) {
	limits := b.profile.Limits
	if ahead := b.profile.Prestart; ahead != nil && slices.Equal(c.Argv, ahead.Argv) {
		limits.CPU += aheadCPU
	}
	l := job(c, spawn.Rlimits(limits, b.host.Pids(), b.host.Memory()), forked)
	program := l.LinkAt(initproc.JobBase)
	if len(program) > initproc.JobMax {
		return nil, nil, fmt.Errorf("namespace: %d bytes of arguments and environment: at most %d fit",
			len(program), initproc.JobMax)
	}
	return l, program, nil
}

// connect makes the streams of a command and sends its program, which starts it.
func (b *instance) connect(c sandbox.Command, program []byte) (stdio.Pipes, error) {
	make := func() (stdio.Pipes, []*os.File, error) { return stdio.Connect(c) }
	if c.TTY != nil {
		make = func() (stdio.Pipes, []*os.File, error) { return stdio.ConnectTTY(c.TTY, b.uid, b.gid) }
	}
	w, theirs, err := make()
	if err != nil {
		return w, fmt.Errorf("namespace: the streams: %w", err)
	}
	var fds []int
	for _, f := range theirs {
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	if c.Bridge != nil {
		fds = append(fds, int(c.Bridge.Fd()))
	}
	err = b.stage.SendJob(fds, program)
	if err == nil && b.forked && !b.left {
		b.left, err = true, b.stage.Send(afterInterpreter())
	}
	if err != nil {
		w.Close()
	}
	return w, err
}

// wait reads PID 1's reports until the end. For a sandbox that ended without a report it returns the zero ending, and
// the sandbox is closed.
func (r *run) wait() (ending, error) {
	var e ending
	var worst error
	for {
		rec, err := r.sandbox.stage.Receive()
		switch {
		case r.held.Load() != nil && errors.Is(err, os.ErrDeadlineExceeded):
			r.sandbox.held = true
			_ = r.sandbox.stage.Ctl.SetReadDeadline(time.Time{})
			return *r.held.Load(), nil
		case errors.Is(err, initproc.ErrGone):
			r.killed.Store(true)
			return ending{}, nil
		case err != nil:
			return e, err
		case rec.Kind == initproc.RecExit:
			e.reported, e.status, e.usage = true, syscall.WaitStatus(rec.B), rec.Usage
			return e, nil
		case rec.Kind == initproc.RecNotRun:
			e.notRun = worst
			continue
		}
		i, ok := r.job.Index(rec, initproc.JobBase)
		if !ok {
			return e, r.job.Failure(rec, initproc.JobBase)
		}
		name, what := r.job.Steps[i].Name, unix.Errno(rec.B)
		if file, ok := strings.CutPrefix(name, execve); ok {
			worst = worse(worst, &os.PathError{Op: "execute", Path: file, Err: what})
		} else if dir, ok := strings.CutPrefix(name, enter); ok {
			e.notRun = &os.PathError{Op: "enter", Path: dir, Err: what}
		} else {
			return e, r.job.Failure(rec, initproc.JobBase)
		}
	}
}

// worse returns the more telling of two failures to execute: that a file is not there says least.
func worse(a, b error) error {
	if a == nil || errors.Is(a, unix.ENOENT) || errors.Is(a, unix.ENOTDIR) {
		return b
	}
	return a
}

// look is the time between two measurements of the whole tree.
const look = 20 * time.Millisecond

// fresh is how many looks old a folder may be as a command sees it.
const fresh = 50

// watch ends the run at its limits. The function that it returns ends the watching.
func (r *run) watch(ctx context.Context) func() {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		wall := time.NewTimer(r.sandbox.profile.Limits.Wall - time.Since(r.began))
		defer wall.Stop()
		tick := time.NewTicker(look)
		defer tick.Stop()
		looks := 0
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				r.kill()
				return
			case <-wall.C:
				if left := r.command.Clock.Left(r.began, r.sandbox.profile.Limits.Wall); left > 0 {
					wall.Reset(sandbox.Again(left))
					continue
				}
				r.end(facts.LimitWall)
				return
			case <-tick.C:
				r.measure()
				if looks++; looks%fresh == 0 {
					r.sandbox.refresh()
				}
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// measure ends the run when the whole tree has exceeded a limit. Use that no cgroup bounds is added up from /proc,
// which misses processes that live between two measurements. If the kernel killed only one process for lack of
// memory, as with version 1 cgroups, measure ends the rest.
func (r *run) measure() {
	l, used := r.sandbox.profile.Limits, r.sandbox.group.Usage()
	cpu := used.CPU - r.before.CPU
	if used.OOMKills > r.before.OOMKills {
		r.end(facts.LimitMemory)
	}
	if !r.sandbox.host.Times() || !r.sandbox.host.Memory() {
		filled := int64(0)
		if !r.sandbox.host.Memory() {
			filled = max(0, r.sandbox.filled()-r.filled)
		}
		s := procstat.Within(r.sandbox.init.Pid, l.Memory-filled)
		s.Memory += filled
		r.sampled.Memory = max(r.sampled.Memory, s.Memory)
		r.sampled.Pids = max(r.sampled.Pids, s.Pids)
		r.sampled.CPU = max(r.sampled.CPU, s.CPU-r.sandbox.spent)
		if !r.sandbox.host.Times() {
			cpu = r.sampled.CPU
		}
		if !r.sandbox.host.Memory() && s.Memory > l.Memory {
			r.end(facts.LimitMemory)
		}
	}
	if cpu > l.CPU {
		r.end(facts.LimitCPU)
	}
}

// filled returns what is in the places of the sandbox, which is memory of this machine, too.
func (b *instance) filled() (bytes int64) {
	for _, p := range b.places {
		n, _ := p.Used()
		bytes += n
	}
	return bytes
}

// kill ends the sandbox by its PID 1, and with it everything in it.
func (r *run) kill() {
	r.killed.Store(true)
	_ = r.sandbox.init.Kill()
	r.sandbox.shares.Kill()
}

// end ends the run for a limit. The first limit counts.
func (r *run) end(l facts.Limit) {
	r.ended.CompareAndSwap(nil, &l)
	r.kill()
}

func (r *run) flood() { r.end(facts.LimitOutput) }

// end ends everything in the sandbox.
func (b *instance) end() error {
	if b.stage == nil {
		return nil
	}
	err := errors.Join(b.stage.Close(), b.shares.End())
	b.stage = nil
	if b.egress != nil {
		err = errors.Join(err, b.egress.Close())
		b.egress = nil
	}
	if b.waiting != nil {
		b.waiting.Close()
	}
	b.waiting = nil
	return err
}

// Close ends everything in the sandbox, also a command that runs, and removes its cgroup.
func (b *instance) Close() error {
	if b.init != nil {
		_ = b.init.Kill()
		b.shares.Kill()
	}
	b.running.Lock()
	defer b.running.Unlock()
	err := b.end()
	if b.notice != nil {
		b.notice.Close()
		b.notice = nil
	}
	b.closeOverlays()
	b.sharing.Lock()
	for _, p := range b.places {
		p.Dir.Close()
	}
	b.places = nil
	b.sharing.Unlock()
	if b.leader != nil {
		_ = b.leader.Release()
	}
	for _, t := range append(b.threads, b.stands) {
		t.Close() // nil: an error and no more
	}
	b.threads, b.stands = nil, nil
	if b.group != nil {
		err = errors.Join(err, b.group.Close())
	}
	return errors.Join(err, b.shares.Close())
}
