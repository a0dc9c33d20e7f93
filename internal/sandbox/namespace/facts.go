//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/seccompnotify"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

// ending is how a command ended. The zero ending: PID 1 was killed before it could report, by
// waldo or by the kernel for memory.
type ending struct {
	reported bool
	status   syscall.WaitStatus
	usage    unix.Rusage // of all processes that were reaped, with those of earlier commands
	notRun   error       // why the command could not be executed
}

// facts returns the facts of the run.
func (r *run) facts(ctx context.Context, e ending, wall time.Duration) facts.Facts {
	b, l := r.sandbox, r.sandbox.profile.Limits
	used := b.group.Usage()
	f := facts.New()
	f.Sandbox = facts.Sandbox{ID: b.profile.ID, Driver: b.driver.Name(), Template: b.profile.Template.Name, Warm: r.warm}
	f.Limits = facts.Limits{
		WallMS: l.Wall.Milliseconds(), CPUMS: l.CPU.Milliseconds(), MemoryBytes: l.Memory, Pids: l.Pids,
		Output: l.Output,
	}
	f.Stdout, f.Stderr = r.out.Text(), r.err.Text()
	f.Truncated = facts.Truncated{Stdout: r.out.Truncated(), Stderr: r.err.Truncated()}
	f.Usage = facts.Usage{WallMS: facts.MS(wall), CPUMS: facts.MS(r.cpu(e, used)), MemoryPeak: used.MemoryPeak,
		PidsPeak: max(used.PidsPeak-1, r.sampled.Pids, 1), OutputBytes: r.out.Total + r.err.Total}
	if !b.host.Memory() {
		f.Usage.MemoryPeak = max(r.sampled.Memory, e.usage.Maxrss<<10)
	}
	r.exit(&f, e)
	r.denials(&f)
	full := volume.Disk(&f, b.places, r.state)
	f.Limit = r.limit(&f, e, used, full)
	f.OOMKilled = f.Limit != nil && *f.Limit == facts.LimitMemory
	f.TimedOut = f.Limit != nil && (*f.Limit == facts.LimitWall || *f.Limit == facts.LimitCPU)
	f.Status = status(&f, !e.reported && ctx.Err() != nil)
	f.Warnings = append(slices.Clone(b.warnings), f.Warnings...)
	if n := used.PidsDenied - r.before.PidsDenied; n > 0 && f.Limit == nil {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%d new processes or threads were refused at the limit of %d", n, l.Pids))
	}
	return f
}

// cpu returns the processor time of the whole tree: the cgroup's count, or else the larger of the time that PID 1
// reaped and the time seen in /proc.
func (r *run) cpu(e ending, used cgroup.Usage) time.Duration {
	if r.sandbox.host.Times() {
		return used.CPU - r.before.CPU
	}
	total := time.Duration(e.usage.Utime.Nano() + e.usage.Stime.Nano())
	reaped := total - r.sandbox.spent
	r.sandbox.spent = max(r.sandbox.spent, total)
	return max(reaped, r.sampled.CPU)
}

// exit fills in how the process ended.
func (r *run) exit(f *facts.Facts, e ending) {
	switch {
	case e.notRun != nil:
		f.ExitCode = new(126)
		if errors.Is(e.notRun, unix.ENOENT) || errors.Is(e.notRun, unix.ENOTDIR) {
			f.ExitCode = new(127)
		}
		why := stdio.NotRun(e.notRun)
		f.Stderr += why
		if r.command.Stderr != nil {
			_, _ = io.WriteString(r.command.Stderr, why) // as a shell would; who cannot read it has the facts
		}
	case !e.reported:
		f.Signal = new("SIGKILL")
	case e.status.Signaled():
		f.Signal = new(procstat.SignalName(e.status.Signal()))
	default:
		f.ExitCode = new(e.status.ExitStatus())
	}
}

// denials fills in the refusals that the listener saw.
func (r *run) denials(f *facts.Facts) {
	n := r.sandbox.notice
	if n == nil {
		return
	}
	f.Seen = []string{"network", "syscall"}
	d, more := n.Take()
	// the egress server reports these
	d = slices.DeleteFunc(d, func(one facts.Denial) bool { return r.sandbox.outside(one.What) })
	f.Denials = append(f.Denials, d...)
	for _, one := range d {
		if one.Kind == "network" {
			f.Network.Denied = append(f.Network.Denied, one.What)
		}
	}
	r.sandbox.lookups.Report(f)
	if more > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%d more denials than the %d that are listed", more, seccompnotify.Max))
	}
}

// limit names the limit that ended the run: one that waldo ended it for, or one that the kernel
// held it to and that it did not get over.
func (r *run) limit(f *facts.Facts, e ending, used cgroup.Usage, full bool) *facts.Limit {
	bad := f.ExitCode == nil || *f.ExitCode != 0
	switch {
	case r.ended.Load() != nil && !e.reported:
		return r.ended.Load()
	case used.OOMKills > r.before.OOMKills:
		// also where the command itself got over it: it ran without one of its processes
		return new(facts.LimitMemory)
	case e.reported && e.status.Signal() == syscall.SIGKILL && f.Usage.CPUMS >= facts.MS(r.sandbox.profile.Limits.CPU):
		return new(facts.LimitCPU) // RLIMIT_CPU was faster than we
	case used.PidsDenied > r.before.PidsDenied && bad:
		return new(facts.LimitPids)
	case full && bad:
		return new(facts.LimitDisk)
	}
	return nil
}

func status(f *facts.Facts, cancelled bool) facts.Status {
	switch {
	case f.TimedOut:
		return facts.Timeout
	case f.OOMKilled:
		return facts.OOM
	case cancelled && f.Limit == nil:
		return facts.Cancelled
	case f.ExitCode != nil && *f.ExitCode == 0:
		return facts.OK
	}
	return facts.Failed
}
