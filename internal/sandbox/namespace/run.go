//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
)

// box is one prepared box.
type box struct {
	driver   *Driver
	profile  sandbox.Profile
	host     *cgroup.Host
	group    *cgroup.Group
	stage    *stage
	uid, gid int
	warnings []string

	running sync.Mutex
	usage   unix.Rusage // of the commands before
}

// run is one command on its way.
type run struct {
	box      *box
	command  sandbox.Command
	job      *list
	began    time.Time
	before   cgroup.Usage
	ended    atomic.Pointer[facts.Limit] // the limit that waldo ended it for
	killed   atomic.Bool
	kill     func()
	out, err *stream
	written  atomic.Int64
}

// Run runs one command. After a run that was ended by force the box is over.
func (b *box) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	b.running.Lock()
	defer b.running.Unlock()
	if len(c.Argv) == 0 {
		return facts.Facts{}, fmt.Errorf("namespace: no command to run")
	}
	if b.stage == nil || b.stage.init == nil {
		return facts.Facts{}, errGone
	}
	r := &run{box: b, command: c, began: time.Now(), before: b.group.Usage()}
	var once sync.Once
	init := b.stage.init
	r.kill = func() { once.Do(func() { r.killed.Store(true); _ = init.Kill() }) }
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) (facts.Facts, error) {
	b := r.box
	r.job = job(r.command, rlimits(b.profile.Limits, b.host.Memory()))
	finish, err := r.begin()
	if err != nil {
		_ = b.end()
		return facts.Facts{}, err
	}
	stop := r.watch(ctx)
	rec, notRun, err := r.wait()
	stop()
	wall := time.Since(r.began)
	if errors.Is(err, errGone) {
		err = b.end()
	}
	finish()
	if err != nil {
		_ = b.end()
		return facts.Facts{}, err
	}
	return r.facts(ctx, rec, notRun, wall), nil
}

// begin connects the streams and sends the job. What it returns waits for the streams' ends; by
// then nothing in the box holds them any more.
func (r *run) begin() (finish func(), err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	stdin, feed, err := input(r.command.Stdin)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, stdin)
	limit := r.box.profile.Limits.Output
	for _, s := range []struct {
		to   **stream
		copy io.Writer
		all  bool
	}{{&r.out, r.command.Stdout, r.command.Serve}, {&r.err, r.command.Stderr, false}} {
		mine, their, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, their)
		*s.to = &stream{from: mine, limit: limit, copy: s.copy, whole: s.all, flood: r.flood}
	}
	fds := []int{int(theirs[0].Fd()), int(theirs[1].Fd()), int(theirs[2].Fd())}
	if r.command.Bridge != nil {
		fds = append(fds, int(r.command.Bridge.Fd()))
	}
	if err := r.box.stage.sendJob(fds, r.job.link(jobBase)); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(r.out.drain)
	wg.Go(r.err.drain)
	done := feed()
	return func() { done(); wg.Wait() }, nil
}

// sendJob hands over the descriptors, then the program.
func (s *stage) sendJob(fds []int, program []byte) error {
	conn, err := s.ctl.SyscallConn()
	if err != nil {
		return err
	}
	werr := conn.Write(func(fd uintptr) bool {
		err = unix.Sendmsg(int(fd), []byte{1}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err := errors.Join(werr, err); err != nil {
		return fmt.Errorf("namespace: to the box: %w", err)
	}
	return s.send(program)
}

// wait reads what PID 1 reports until the end. What kept the command from running is in notRun.
// errGone means that the box has ended.
func (r *run) wait() (rec record, notRun error, err error) {
	var worst error
	for {
		rec, err = r.box.stage.receive()
		switch {
		case err != nil || rec.kind == recExit:
			return rec, notRun, err
		case rec.kind == recNotRun:
			notRun = worst
			continue
		}
		i, ok := r.job.index(rec, jobBase)
		if !ok {
			return rec, nil, r.job.failure(rec, jobBase)
		}
		name, tried := strings.CutPrefix(r.job.steps[i].name, execve)
		if enter, ok := strings.CutPrefix(r.job.steps[i].name, "enter "); ok {
			return r.notEntered(enter, unix.Errno(rec.b))
		}
		if !tried {
			return rec, nil, r.job.failure(rec, jobBase)
		}
		worst = worse(worst, &os.PathError{Op: "execute", Path: name, Err: unix.Errno(rec.b)})
	}
}

// notEntered waits for the end of a command whose folder is not there.
func (r *run) notEntered(dir string, e unix.Errno) (record, error, error) {
	rec, err := r.box.stage.receive()
	return rec, &os.PathError{Op: "enter", Path: dir, Err: e}, err
}

// worse returns the more telling of two failures to execute: that a file is not there says least.
func worse(a, b error) error {
	if a == nil || errors.Is(a, unix.ENOENT) || errors.Is(a, unix.ENOTDIR) {
		return b
	}
	return a
}

// watch ends the run at its limits. The function that it returns ends the watching.
func (r *run) watch(ctx context.Context) func() {
	l := r.box.profile.Limits
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		wall := time.NewTimer(l.Wall - time.Since(r.began))
		defer wall.Stop()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				r.kill()
				return
			case <-wall.C:
				r.end(facts.LimitWall)
				return
			case <-tick.C:
				if r.box.group.Usage().CPU-r.before.CPU > l.CPU {
					r.end(facts.LimitCPU)
					return
				}
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

// floodFactor is how often a stream may pass its limit before the run is ended for it.
const floodFactor = 64

func (r *run) flood() { r.end(facts.LimitOutput) }

// end ends everything in the box.
func (b *box) end() error {
	if b.stage == nil {
		return nil
	}
	err := b.stage.close()
	b.stage = nil
	return err
}

// Close ends everything in the box and removes its cgroup.
func (b *box) Close() error {
	err := b.end()
	if b.group != nil {
		err = errors.Join(err, b.group.Close())
	}
	return err
}
