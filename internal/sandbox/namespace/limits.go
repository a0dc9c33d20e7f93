//go:build linux && (amd64 || arm64)

package namespace

import (
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
)

// rlimit is one limit that the kernel keeps for each process of a command.
type rlimit struct {
	name       string
	resource   int
	soft, hard uint64
}

// rlimits returns what each process is held to. They catch what no cgroup counts, and are all
// there is where there is no cgroup.
func rlimits(l sandbox.Limits, host *cgroup.Host) []rlimit {
	same := func(name string, resource int, n int64) rlimit { return rlimit{name, resource, uint64(n), uint64(n)} }
	own := int64(1) // PID 1 counts too
	if host.Pids() {
		own = 16 // so that the cgroup is the one that refuses: it counts refusals
	}
	cpu := int64((l.CPU + time.Second - 1) / time.Second)
	out := []rlimit{
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
	if !host.Memory() {
		out = append(out, same("data", unix.RLIMIT_DATA, l.Memory))
	}
	for i := range out {
		var have unix.Rlimit // waldo's own; nobody may have more
		if unix.Getrlimit(out[i].resource, &have) == nil {
			out[i].soft, out[i].hard = min(out[i].soft, have.Max), min(out[i].hard, have.Max)
		}
	}
	return out
}

// groupID makes the name of a box's cgroup, which must be new even where the box's id is not.
func groupID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("s_%x", b)
}

func writeFD(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
