//go:build linux && (amd64 || arm64)

package namespace

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
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

// The users that boxes belong to when waldo runs as root: each its own, from a range that nothing
// else claims (systemd's "Users, Groups, UIDs and GIDs": 1879048192 and up is unused).
const (
	firstUID = 0x70000000
	uidBits  = 1<<27 - 1
)

// outsideIDs returns the user and group that a box belongs to outside. As root they are new for
// each box, so that no count, signal or file crosses from one to another.
func outsideIDs() (uid, gid int, err error) {
	if os.Geteuid() != 0 {
		return os.Geteuid(), os.Getegid(), nil
	}
	var b [4]byte
	_, _ = rand.Read(b[:])
	n := int(binary.LittleEndian.Uint32(b[:]) & uidBits)
	for _, kind := range []struct {
		file string
		out  *int
	}{{"/proc/self/uid_map", &uid}, {"/proc/self/gid_map", &gid}} {
		m, err := os.ReadFile(kind.file)
		if err != nil {
			return 0, 0, fmt.Errorf("namespace: %w", err)
		}
		if *kind.out, err = pick(string(m), n); err != nil {
			return 0, 0, fmt.Errorf("namespace: %s: %w", kind.file, err)
		}
	}
	return uid, gid, nil
}

// pick chooses the nth id above firstUID, or, where the map (user_namespaces(7)) does not hold
// it, one from the upper half of the map's last range.
func pick(idMap string, n int) (int, error) {
	var last, size int64
	for line := range strings.Lines(idMap) {
		var inside, outside, count int64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return 0, fmt.Errorf("line %q: %w", line, err)
		}
		if inside <= firstUID+int64(n) && firstUID+int64(n) < inside+count {
			return firstUID + n, nil
		}
		if count > 1 {
			last, size = inside, count
		}
	}
	if size < 2000 {
		return 0, fmt.Errorf("no range of users to take a box's from; start waldo as an ordinary user")
	}
	return int(last + size/2 + int64(n)%(size/2)), nil
}

// groupID makes the name of a box's cgroup, which must be new even where the box's id is not.
func groupID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("s_%x", b)
}

func writeFD(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
