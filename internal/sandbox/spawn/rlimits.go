//go:build linux

package spawn

import (
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// Rlimit is one limit that the kernel keeps for each process of a command.
type Rlimit struct {
	Name       string
	Resource   int
	Soft, Hard uint64
}

// Rlimits returns the resource limits of each process. They catch use that no cgroup counts. They are the only
// limits if no cgroup counts processes (counted) or bounds memory (bounded).
func Rlimits(l sandbox.Limits, counted, bounded bool) []Rlimit {
	same := func(name string, resource int, n int64) Rlimit { return Rlimit{name, resource, uint64(n), uint64(n)} }
	own := int64(1) // PID 1 counts too
	if counted {
		own = 16 // so that the cgroup is the one that refuses: it counts refusals
	}
	cpu := int64((l.CPU + time.Second - 1) / time.Second)
	out := []Rlimit{
		same("processes", unix.RLIMIT_NPROC, l.Pids+own),
		same("open files", unix.RLIMIT_NOFILE, l.Files),
		same("file size", unix.RLIMIT_FSIZE, l.Disk),
		same("core", unix.RLIMIT_CORE, 0),
		same("stack", unix.RLIMIT_STACK, 8<<20),
		same("locked memory", unix.RLIMIT_MEMLOCK, 64<<10),
		same("message queues", unix.RLIMIT_MSGQUEUE, 64<<10),
		same("pending signals", unix.RLIMIT_SIGPENDING, 256),
		{"processor time", unix.RLIMIT_CPU, uint64(cpu + 1), uint64(cpu + 1)},
	}
	if !bounded {
		out = append(out, same("data", unix.RLIMIT_DATA, l.Memory))
	}
	for i := range out {
		var have unix.Rlimit // waldo's own limit, which children cannot exceed
		if unix.Getrlimit(out[i].Resource, &have) == nil {
			out[i].Soft, out[i].Hard = min(out[i].Soft, have.Max), min(out[i].Hard, have.Max)
		}
	}
	return out
}
