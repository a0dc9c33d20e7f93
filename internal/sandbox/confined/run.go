//go:build linux && (amd64 || arm64)

package confined

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

func probeProfile() sandbox.Profile {
	return sandbox.Profile{ID: "s_probe", Template: sandbox.Template{Name: "host"},
		Limits: sandbox.Limits{Wall: 10 * time.Second, CPU: 5 * time.Second,
			Memory: 64 << 20, Pids: 16, Files: 64, Disk: 1 << 20, Inodes: 100, Output: 4 << 10}}
}

// run is one command on its way.
type run struct {
	sandbox  *instance
	life     *os.File // closed: the command ends
	ended    atomic.Pointer[facts.Limit]
	stopped  atomic.Bool
	begun    atomic.Bool // the command runs, and no longer waldo in its place
	once     sync.Once
	out, err *stdio.Capture
	peak     procstat.Sample
	disk     int64 // bytes in the sandbox's folders at the last measurement
}

// end ends the run, for a limit or, with the empty limit, for the caller.
func (r *run) end(l facts.Limit) {
	r.once.Do(func() {
		r.stopped.Store(true)
		if l != "" {
			r.ended.Store(&l)
		}
		r.life.Close()
	})
}

// Run runs one command to its end.
func (b *instance) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	b.running.Lock()
	defer b.running.Unlock()
	if b.dir == "" || b.over {
		return facts.Facts{}, errors.New("confined: the sandbox is closed, or was ended by force")
	}
	if err := errors.Join(c.Validate(), sandbox.NoTTY(c)); err != nil {
		return facts.Facts{}, fmt.Errorf("confined: %w", err)
	}
	before, began := volume.Scan(b.places), time.Now()
	r := &run{sandbox: b}
	p, told, finish, err := r.start(c)
	if err != nil {
		return facts.Facts{}, fmt.Errorf("confined: %w", err)
	}
	b.now.Store(r) // it can be ended from now on
	defer b.now.Store(nil)
	stop := r.watch(ctx, p.Pid, began, c.Clock)
	if b.closing.Load() {
		r.end("")
	}
	text := make([]byte, 1)
	n, _ := told.Read(text)
	r.begun.Store(text[0] == begun)
	rest, _ := io.ReadAll(told)
	text = append(text[:n], rest...)
	told.Close()
	_, werr := p.Wait()
	stop()
	b.over = r.stopped.Load()
	r.end("")
	finish()
	var rep report
	if err := json.Unmarshal(text, &rep); err != nil {
		return facts.Facts{}, errors.Join(fmt.Errorf("confined: the supervisor said %q: %w", text, err), werr)
	}
	return r.facts(ctx, c, rep, before, time.Since(began)), nil
}

// start starts the supervisor of a command.
func (r *run) start(c sandbox.Command) (p *os.Process, told *os.File, finish func(), err error) {
	var ours []*os.File
	w, theirs, err := stdio.Connect(c)
	if err != nil {
		return nil, nil, nil, err
	}
	streams := slices.Clip(theirs)
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			w.Close()
			for _, f := range ours {
				_ = f.Close()
			}
		}
	}()
	pipe := func(reads bool) (mine, their *os.File) {
		from, to, perr := os.Pipe()
		err = errors.Join(err, perr)
		if mine, their = from, to; reads {
			mine, their = to, from
		}
		theirs, ours = append(theirs, their), append(ours, mine)
		return mine, their
	}
	orders, orderT := pipe(true)
	told, tellT := pipe(false)
	life, lifeT := pipe(true)
	bridge := c.Bridge
	if bridge == nil {
		null, nerr := os.Open(os.DevNull)
		err = errors.Join(err, nerr)
		bridge, theirs = null, append(theirs, null)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	p, err = os.StartProcess("/proc/self/exe", []string{supervisor}, &os.ProcAttr{Env: []string{}, Dir: "/",
		Files: append(streams, bridge, orderT, tellT, lifeT), Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return nil, nil, nil, err
	}
	r.life = life
	r.out, r.err = stdio.Captures(c, r.sandbox.profile.Limits.Output, func() { r.end(facts.LimitOutput) })
	done := w.Stream(c, r.out, r.err)
	text, err := json.Marshal(r.sandbox.order(c))
	if err == nil {
		_, err = io.Copy(orders, bytes.NewReader(text))
	}
	_ = orders.Close()
	if err != nil {
		r.end("")
		err = nil // the supervisor says what came of it
	}
	return p, told, func() { done(false) }, nil
}

// order returns the order for the supervisor, with the names that the sandbox's folders have here.
func (b *instance) order(c sandbox.Command) order {
	o := order{Argv: slices.Clone(c.Argv), UID: b.uid, GID: b.gid, Limits: b.profile.Limits, MilliCPU: b.milli,
		Bridge: c.Bridge != nil, Rules: b.rules, Dir: b.here("/workspace")}
	if c.Dir != "" {
		o.Dir = b.here(c.Dir)
	}
	for i := range o.Argv {
		o.Argv[i] = b.here(o.Argv[i])
	}
	temp := false
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		temp = temp || name == "TMPDIR"
		o.Env = append(o.Env, name+"="+b.here(value))
	}
	if !temp {
		o.Env = append(o.Env, "TMPDIR="+b.here("/tmp"))
	}
	return o
}

// watch applies limits to the whole tree that the kernel applies only to each process.
func (r *run) watch(ctx context.Context, pid int, began time.Time, clock *sandbox.Clock) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	l := r.sandbox.profile.Limits
	go func() {
		defer close(gone)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-ctx.Done():
				r.end("")
				return
			case <-tick.C:
			}
			var s procstat.Sample
			if r.begun.Load() {
				s = procstat.Within(pid, l.Memory)
			}
			r.peak = procstat.Sample{CPU: max(r.peak.CPU, s.CPU), Memory: max(r.peak.Memory, s.Memory),
				Pids: max(r.peak.Pids, s.Pids)}
			switch {
			case clock.Left(began, l.Wall) <= 0:
				r.end(facts.LimitWall)
			case s.CPU >= l.CPU:
				r.end(facts.LimitCPU)
			case s.Memory > l.Memory:
				r.end(facts.LimitMemory)
			case s.Pids > l.Pids:
				r.end(facts.LimitPids)
			case n%5 == 0 && r.over():
				r.end(facts.LimitDisk)
			}
		}
	}()
	return func() { close(done); <-gone }
}

// over reports whether more is in the sandbox's folders than may be.
func (r *run) over() bool {
	l := r.sandbox.profile.Limits
	n, inodes := r.sandbox.used()
	r.disk = n
	return n > l.Disk || inodes > l.Inodes
}

func (r *run) facts(ctx context.Context, c sandbox.Command, rep report, before volume.State,
	wall time.Duration) facts.Facts {
	b, l := r.sandbox, r.sandbox.profile.Limits
	f := facts.New()
	f.Sandbox = facts.Sandbox{ID: b.profile.ID, Driver: "confined", Template: b.profile.Template.Name}
	f.Limits = facts.Limits{WallMS: l.Wall.Milliseconds(), CPUMS: l.CPU.Milliseconds(), MemoryBytes: l.Memory,
		Pids: l.Pids, Output: l.Output}
	f.Stdout, f.Stderr = r.out.Text(), r.err.Text()
	f.Truncated = facts.Truncated{Stdout: r.out.Truncated(), Stderr: r.err.Truncated()}
	f.Usage = facts.Usage{WallMS: facts.MS(wall), CPUMS: facts.MS(max(rep.CPU, r.peak.CPU)),
		MemoryPeak: cmp.Or(max(rep.Maxrss, r.peak.Memory), rep.Within), // one that no sample found is small
		PidsPeak:   max(r.peak.Pids, 1), OutputBytes: r.out.Total + r.err.Total}
	full := r.over() // the files were written faster than they are measured
	f.Usage.DiskBytes = r.disk
	switch {
	case rep.NotRun != "":
		code := 126
		if rep.Absent {
			code = 127
		}
		f.ExitCode = &code
		f.Stderr += rep.NotRun
		if c.Stderr != nil {
			_, _ = io.WriteString(c.Stderr, rep.NotRun)
		}
	case rep.Status.Signaled():
		name := unix.SignalName(rep.Status.Signal())
		if name == "" {
			name = fmt.Sprintf("SIG%d", int(rep.Status.Signal()))
		}
		f.Signal = &name
	default:
		code := rep.Status.ExitStatus()
		f.ExitCode = &code
	}
	r.judge(ctx, &f, rep)
	if disk := facts.LimitDisk; full && f.Limit == nil {
		f.Limit, f.Status = &disk, facts.Failed
	}
	f.Warnings = append(f.Warnings, b.warnings...)
	volume.Scan(b.places).Changed(&f, before)
	return f
}

// judge fills in how the run ended.
func (r *run) judge(ctx context.Context, f *facts.Facts, rep report) {
	if rep.Status.Signaled() {
		f.Limit = r.ended.Load()
		cpu, disk := facts.LimitCPU, facts.LimitDisk
		switch sig := rep.Status.Signal(); {
		case f.Limit != nil || r.stopped.Load() && ctx.Err() != nil:
		case sig == unix.SIGXFSZ:
			f.Limit = &disk
		case sig == unix.SIGXCPU, sig == unix.SIGKILL && rep.CPU >= r.sandbox.profile.Limits.CPU:
			f.Limit = &cpu
		}
	}
	f.Status = facts.Failed
	switch {
	case f.Limit != nil && (*f.Limit == facts.LimitWall || *f.Limit == facts.LimitCPU):
		f.Status, f.TimedOut = facts.Timeout, true
	case f.Limit != nil && *f.Limit == facts.LimitMemory:
		f.Status, f.OOMKilled = facts.OOM, true
	case ctx.Err() != nil && f.Signal != nil && f.Limit == nil:
		f.Status = facts.Cancelled
	case f.ExitCode != nil && *f.ExitCode == 0:
		f.Status = facts.OK
	}
}

var _ sandbox.Sandbox = (*instance)(nil)
