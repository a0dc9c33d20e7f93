//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/gvisor/job"
)

// run is one command on its way.
type run struct {
	box      *box
	command  sandbox.Command
	began    time.Time
	before   cgroup.Usage
	state    common.State
	ended    atomic.Pointer[facts.Limit] // the limit that waldo ended it for
	killed   atomic.Bool
	gone     bool // the box ended without a word
	out, err *common.Stream
	once     sync.Once
}

// Run runs one command, in a gVisor of its own.
func (b *box) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	b.running.Lock()
	defer b.running.Unlock()
	if len(c.Argv) == 0 {
		return facts.Facts{}, errors.New("gvisor: no command to run")
	}
	if b.init == nil {
		return facts.Facts{}, errGone
	}
	r := &run{box: b, command: c, began: time.Now(), before: b.group.Usage(), state: common.Look(b.places)}
	f, err := r.run(ctx)
	if err != nil {
		b.end()
		return facts.Facts{}, fmt.Errorf("gvisor: %w", err)
	}
	return f, nil
}

func (r *run) run(ctx context.Context) (facts.Facts, error) {
	finish, err := r.begin()
	if err != nil {
		return facts.Facts{}, err
	}
	stop := r.watch(ctx)
	end, err := r.wait()
	stop()
	wall := time.Since(r.began)
	if err != nil {
		r.gone = true
		r.box.end() // so that the streams end
	}
	r.box.conn.SetReadDeadline(time.Time{})
	finish()
	if err != nil && !r.killed.Load() && r.group().OOMKills == r.before.OOMKills {
		return facts.Facts{}, err
	}
	return r.facts(ctx, end, wall), nil
}

func (r *run) group() cgroup.Usage { return r.box.group.Usage() }

// begin connects the streams and asks for the command. What it returns waits for the streams'
// ends; by then nothing in the box holds them any more.
func (r *run) begin() (finish func(), err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	stdin, feed, err := common.Input(r.command.Stdin)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, stdin)
	l := r.box.profile.Limits
	for _, s := range []struct {
		to   **common.Stream
		copy io.Writer
		all  bool
	}{{&r.out, r.command.Stdout, r.command.Serve}, {&r.err, r.command.Stderr, false}} {
		mine, their, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, their)
		*s.to = &common.Stream{From: mine, Limit: l.Output, Copy: s.copy, Whole: s.all, Flood: func() { r.end(facts.LimitOutput) }}
	}
	files := theirs
	if r.command.Bridge != nil {
		files = append(files[:3:3], r.command.Bridge)
	}
	dir := r.command.Dir
	if dir == "" {
		dir = "/workspace"
	}
	ask := job.Run{Argv: r.command.Argv, Env: r.command.Env, Dir: dir, Bridge: r.command.Bridge != nil}
	if err := r.box.conn.Send(job.Ask{Run: &ask}, files...); err != nil {
		return nil, fmt.Errorf("asking for the command: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(r.out.Drain)
	wg.Go(r.err.Drain)
	done := feed()
	return func() { done(); wg.Wait() }, nil
}

// wait hears PID 1 until the command's end.
func (r *run) wait() (job.End, error) {
	for {
		var a job.Answer
		files, err := r.box.conn.Receive(&a)
		for _, f := range files {
			_ = f.Close()
		}
		switch {
		case err != nil:
			return job.End{}, fmt.Errorf("waiting for the command's end: %w", err)
		case a.Error != "":
			return job.End{}, errors.New(a.Error)
		case a.End != nil:
			return *a.End, nil
		case a.Started != nil:
		}
	}
}

// watch ends the run at its limits of time. The function that it returns ends the watching.
func (r *run) watch(ctx context.Context) func() {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		wall := time.NewTimer(r.box.profile.Limits.Wall - time.Since(r.began))
		defer wall.Stop()
		select {
		case <-done:
		case <-ctx.Done():
			r.kill()
		case <-wall.C:
			r.end(facts.LimitWall)
		}
	})
	return func() { close(done); wg.Wait() }
}

// end ends the run for a limit. The first limit counts.
func (r *run) end(l facts.Limit) {
	r.ended.CompareAndSwap(nil, &l)
	r.kill()
}

// kill asks PID 1 to end the command; when it does not answer soon, the whole box ends.
func (r *run) kill() {
	r.once.Do(func() {
		r.killed.Store(true)
		_ = r.box.conn.Send(job.Ask{Kill: &job.Kill{}})
		r.box.conn.SetReadDeadline(time.Now().Add(killPatience))
	})
}

// killPatience is how long a killed gVisor may take to be gone before its box is ended.
const killPatience = time.Second
