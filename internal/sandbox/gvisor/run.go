//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

// run is one command on its way.
type run struct {
	stdio.Pipes
	sandbox  *instance
	command  sandbox.Command
	began    time.Time
	before   cgroup.Usage
	state    volume.State
	ended    atomic.Pointer[facts.Limit] // the limit that waldo ended it for
	killed   atomic.Bool
	late     atomic.Bool   // its kernel was not up in time
	started  chan struct{} // closed at the first instruction of the command
	warm     bool          // the command was waiting for this job
	gone     bool          // the sandbox ended without a word
	out, err *stdio.Capture
	once     sync.Once
}

// Run runs one command, in a gVisor of its own. A run that was ended by force ends the sandbox.
func (b *instance) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	b.running.Lock()
	defer b.running.Unlock()
	if err := c.Validate(); err != nil {
		return facts.Facts{}, fmt.Errorf("gvisor: %w", err)
	}
	if b.over() {
		return facts.Facts{}, errGone
	}
	b.ran = true
	defer b.host.Busy(b.group, b.profile.Owner)()
	r := &run{sandbox: b, command: c, began: time.Now(), started: make(chan struct{})}
	if b.waiting != nil { // nothing has been written or ended in there
		r.state = b.waiting.State
	} else {
		r.before, r.state = b.group.Usage(), volume.Scan(b.places)
	}
	f, err := r.run(ctx)
	if err != nil {
		b.end()
		return facts.Facts{}, fmt.Errorf("gvisor: %w", err)
	}
	return f, nil
}

func (r *run) run(ctx context.Context) (facts.Facts, error) {
	if err := r.take(); err != nil {
		return facts.Facts{}, err
	}
	if !r.warm {
		var err error
		if r.Pipes, err = r.sandbox.connect(r.command); err != nil {
			return facts.Facts{}, err
		}
	}
	r.out, r.err = stdio.Captures(r.command, r.sandbox.profile.Limits.Output, func() { r.end(facts.LimitOutput) })
	if r.warm {
		r.start()
	}
	end, over, err := r.straight()
	finish := func(bool) { r.Pipes.Close() } // all that it wrote has been read
	if !over || !end.Still {
		finish = r.Stream(r.command, r.out, r.err)
	}
	if !over {
		stop := r.watch(ctx)
		end, err = r.wait()
		stop()
	}
	wall := time.Since(r.began)
	if r.sandbox.host.Times() {
		end.CPU = r.sandbox.group.CPU() - r.before.CPU
	}
	if err != nil {
		r.gone = true
		r.sandbox.end() // so that the streams end
	}
	finish(end.Still)
	if r.killed.Load() || end.Over != "" {
		r.sandbox.end() // a sandbox ended by force is not used again
	}
	if r.late.Load() {
		if !r.begun() {
			return facts.Facts{}, fmt.Errorf("its kernel was not up within %s; the command did not begin", patience)
		}
		r.ended.CompareAndSwap(nil, new(facts.LimitWall)) // it began while it was being ended
	}
	if err != nil && !r.killed.Load() && r.group().OOMKills == r.before.OOMKills {
		return facts.Facts{}, err
	}
	return r.facts(ctx, end, wall), nil
}

func (r *run) group() cgroup.Usage { return r.sandbox.group.Usage() }

// straight runs a waiting command in the caller's thread, if all its input is in memory. It reports whether PID
// 1 has reported the command's end. A command that outlasts the first measurement continues as any other.
func (r *run) straight() (end job.End, over bool, err error) {
	if !r.warm || !r.FeedWhole(r.command) {
		return end, false, nil
	}
	first := r.began.Add(min(look, r.sandbox.profile.Limits.Wall))
	r.Watch(first, r.out, r.err, []int{r.sandbox.conn.FD()}, func(int) bool {
		r.sandbox.conn.SetReadDeadline(time.Now().Add(killPatience)) // it says all that it begins to say
		end, err = r.wait()
		r.sandbox.conn.SetReadDeadline(time.Time{})
		over = true
		return true
	})
	return end, over, err
}

// wait reads PID 1's messages until the command's end.
func (r *run) wait() (job.End, error) {
	for {
		a, err := r.sandbox.hear()
		switch {
		case err != nil:
			return job.End{}, fmt.Errorf("waiting for the command's end: %w", err)
		case a.End != nil:
			return *a.End, nil
		case a.Started != nil:
			r.start()
		}
	}
}

// hear reads one message of PID 1. A failure that it reports is the error.
func (b *instance) hear() (job.Answer, error) {
	var a job.Answer
	files, err := b.conn.Receive(&a)
	for _, f := range files {
		_ = f.Close()
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

// start starts the clock of the command, once.
func (r *run) start() {
	if !r.begun() {
		r.began = time.Now()
		r.before.CPU = r.sandbox.group.CPU()
		close(r.started)
	}
}

// begun reports whether the command has begun.
func (r *run) begun() bool {
	select {
	case <-r.started:
		return true
	default:
		return false
	}
}

// watch ends the run at its limit of time, which counts from the command's first instruction: its
// kernel has patience to be up before. The function that it returns ends the watching.
func (r *run) watch(ctx context.Context) func() {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		wall := time.NewTimer(patience)
		defer wall.Stop()
		tick := time.NewTicker(look)
		defer tick.Stop()
		started := r.started
		for {
			select {
			case <-done:
				return
			case <-started:
				started = nil
				wall.Reset(time.Until(r.began.Add(r.sandbox.profile.Limits.Wall)))
			case <-tick.C:
				if started == nil && r.sandbox.host.Times() &&
					r.sandbox.group.CPU()-r.before.CPU > r.sandbox.profile.Limits.CPU {
					r.end(facts.LimitCPU)
				}
			case <-ctx.Done():
				r.kill()
				return
			case <-wall.C:
				if left := r.command.Clock.Left(r.began, r.sandbox.profile.Limits.Wall); started == nil && left > 0 {
					wall.Reset(sandbox.Again(left))
					continue
				}
				if r.late.Store(started != nil); started != nil {
					r.kill()
				} else {
					r.end(facts.LimitWall)
				}
				return
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// end ends the run for a limit. The first limit counts.
func (r *run) end(l facts.Limit) {
	r.ended.CompareAndSwap(nil, &l)
	r.kill()
}

// kill asks PID 1 to end the command; when it does not answer soon, the whole sandbox ends.
func (r *run) kill() {
	r.once.Do(func() {
		r.killed.Store(true)
		_ = r.sandbox.group.Freeze(false) // a paused sandbox would not read the message
		_ = r.sandbox.conn.Send(job.Ask{Kill: &job.Kill{}})
		r.sandbox.conn.SetReadDeadline(time.Now().Add(killPatience))
	})
}

// look is the time between two measurements of a command.
const look = 20 * time.Millisecond

// killPatience is how long a killed gVisor may take to be gone before its sandbox is ended.
const killPatience = 5 * time.Second
