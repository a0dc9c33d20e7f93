//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/facts"
)

// facts says what is known of the run. A record that is zero means that PID 1 was killed before
// it could report: by waldo, or by the kernel for memory.
func (r *run) facts(ctx context.Context, rec record, notRun error, wall time.Duration) facts.Facts {
	f := facts.New()
	b, l := r.box, r.box.profile.Limits
	f.Sandbox = facts.Sandbox{ID: b.profile.ID, Driver: b.driver.Name(), Template: b.profile.Template.Name}
	f.Limits = facts.Limits{WallMS: l.Wall.Milliseconds(), CPUMS: l.CPU.Milliseconds(), MemoryBytes: l.Memory, Pids: l.Pids}
	f.Warnings = slices.Clone(b.warnings)
	f.Stdout, f.Stderr = text(r.out.kept), text(r.err.kept)
	f.Truncated = facts.Truncated{Stdout: r.out.truncated(), Stderr: r.err.truncated()}
	u := b.group.Usage()
	f.Usage = facts.Usage{WallMS: ms(wall), CPUMS: ms(u.CPU - r.before.CPU), MemoryPeak: u.MemoryPeak, PidsPeak: max(u.PidsPeak-1, 1), OutputBytes: r.out.total + r.err.total}
	if rec.kind == recExit {
		r.exit(&f, syscall.WaitStatus(rec.b), notRun)
	} else {
		signal := "SIGKILL"
		f.Signal = &signal
	}
	f.OOMKilled = u.OOMKills > r.before.OOMKills
	f.Limit = r.ended.Load()
	f.TimedOut = f.Limit != nil && (*f.Limit == facts.LimitWall || *f.Limit == facts.LimitCPU)
	if f.Limit == nil && f.OOMKilled {
		f.Limit = ptr(facts.LimitMemory)
	}
	if f.Limit == nil && u.PidsDenied > r.before.PidsDenied {
		f.Limit = ptr(facts.LimitPids)
	}
	f.Status = status(&f, ctx.Err() != nil && r.killed.Load())
	return f
}

func (r *run) exit(f *facts.Facts, ws syscall.WaitStatus, notRun error) {
	switch {
	case notRun != nil:
		f.ExitCode = ptr(126)
		if errors.Is(notRun, unix.ENOENT) || errors.Is(notRun, unix.ENOTDIR) {
			f.ExitCode = ptr(127)
		}
		f.Stderr += "waldo: " + notRun.Error() + "\n"
	case ws.Signaled():
		f.Signal = ptr(unix.SignalName(ws.Signal()))
	default:
		f.ExitCode = ptr(ws.ExitStatus())
	}
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

// text makes what a command wrote fit for JSON.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func ptr[T any](v T) *T { return &v }
