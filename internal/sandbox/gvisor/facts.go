//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/procstat"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

// facts says what is known of the run. A zero end means that gVisor was killed before it could
// tell: by waldo, or by the kernel for memory.
func (r *run) facts(ctx context.Context, end job.End, wall time.Duration) facts.Facts {
	f := facts.New()
	b, l := r.sandbox, r.sandbox.profile.Limits
	f.Sandbox = facts.Sandbox{ID: b.profile.ID, Driver: b.driver.Name(), Template: b.profile.Template.Name, Warm: r.warm}
	f.Limits = facts.Limits{WallMS: l.Wall.Milliseconds(), CPUMS: l.CPU.Milliseconds(), MemoryBytes: l.Memory,
		Pids: l.Pids, Output: l.Output}
	f.Warnings = slices.Clone(b.warnings)
	f.Stdout, f.Stderr = r.out.Text(), r.err.Text()
	f.Truncated = facts.Truncated{Stdout: r.out.Truncated(), Stderr: r.err.Truncated()}
	f.Usage = facts.Usage{WallMS: facts.MS(wall), CPUMS: facts.MS(end.CPU), MemoryPeak: end.Memory, PidsPeak: end.Pids,
		OutputBytes: r.out.Total + r.err.Total}
	full := volume.Disk(&f, b.places, r.state)
	if !r.gone {
		f.Seen = slices.Clone(job.Seen)
	}
	for _, d := range end.Denials {
		if b.outside(d.What) {
			continue // the egress server reports these
		}
		if d.Kind == "network" {
			d.What = strings.TrimPrefix(d.What, "connect ") // as every driver tells it
			f.Network.Denied = append(f.Network.Denied, d.What)
		}
		f.Denials = append(f.Denials, facts.Denial{Kind: d.Kind, What: d.What, Errno: d.Errno})
	}
	r.exit(&f, end)
	r.limit(&f, end, full)
	f.Status = status(&f, ctx.Err() != nil && r.killed.Load())
	return f
}

// exit fills in how the command ended.
func (r *run) exit(f *facts.Facts, end job.End) {
	ws := syscall.WaitStatus(end.Status)
	switch {
	case end.NoStart != 0:
		e := syscall.Errno(end.NoStart)
		f.ExitCode = new(126)
		if e == unix.ENOENT || e == unix.ENOTDIR {
			f.ExitCode = new(127)
		}
		why := stdio.NotRun(&os.PathError{Op: "execute", Path: r.command.Argv[0], Err: e})
		f.Stderr += why
		if r.command.Stderr != nil {
			_, _ = io.WriteString(r.command.Stderr, why) // as a shell would
		}
	case r.killed.Load() || r.gone || end.Over != "":
		f.Signal = new("SIGKILL")
	case ws.Signaled():
		f.Signal = new(procstat.SignalName(ws.Signal()))
	default:
		f.ExitCode = new(ws.ExitStatus())
	}
}

// limit names the limit that ended the run. A limit that waldo enforced comes before an inferred one.
func (r *run) limit(f *facts.Facts, end job.End, full bool) {
	f.Limit = r.ended.Load()
	f.OOMKilled = end.Over == string(facts.LimitMemory) || r.group().OOMKills > r.before.OOMKills
	failed := f.ExitCode == nil || *f.ExitCode != 0
	switch {
	case f.Limit != nil:
	case end.Over != "":
		f.Limit = new(facts.Limit(end.Over))
	case f.OOMKilled:
		f.Limit = new(facts.LimitMemory)
	case failed && end.PidsDenied:
		f.Limit = new(facts.LimitPids)
	case failed && full:
		f.Limit = new(facts.LimitDisk)
	}
	f.TimedOut = f.Limit != nil && (*f.Limit == facts.LimitWall || *f.Limit == facts.LimitCPU)
}

func status(f *facts.Facts, cancelled bool) facts.Status {
	switch {
	case f.TimedOut:
		return facts.Timeout
	case f.OOMKilled:
		return facts.OOM
	case cancelled:
		return facts.Cancelled
	case f.ExitCode != nil && *f.ExitCode == 0 && (f.Limit == nil || *f.Limit != facts.LimitOutput):
		return facts.OK
	}
	return facts.Failed
}
