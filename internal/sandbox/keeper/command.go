//go:build linux && (amd64 || arm64)

package keeper

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/initproc"
)

// Enter returns the namespaces that a profile shares. Processes are shared where a cgroup of the command can end all
// that the command has started; otherwise each command has a PID namespace of its own.
func Enter(machine *os.File, host *cgroup.Host, p sandbox.Profile) (*Hold, error) {
	if len(p.Network.Ports) > 0 {
		return nil, errors.New("namespace: a sandbox with an egress shares no ports")
	}
	uid, gid := p.Template.IDs()
	// of fixed length: another waldo reads 4096 bytes of terms
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(p.Touches())))
	return Join(machine, Want{Dir: p.Share.Dir, Key: key, Processes: host.EndsAtOnce(), UID: uid, GID: gid})
}

// Tree reports whether the command shares its PID namespace: waldo then ends what is left of it by its cgroup. A nil
// Hold shares nothing.
func (h *Hold) Tree() bool { return h != nil && h.Processes }

// Spawn makes the first process of a command in a cgroup of its own, and a guard that ends its processes when waldo is
// gone.
func (h *Hold) Spawn(machine *os.File, host *cgroup.Host,
	l cgroup.Limits) (st *initproc.Stage, g *cgroup.Group, joined bool, err error) {
	if g, err = host.New(cgroup.NewID(), l); err != nil {
		return nil, nil, false, err
	}
	if h.Processes {
		killer := g.Killer()
		if killer == nil {
			return nil, g, false, errors.New("namespace: the command's cgroup cannot end its processes")
		}
		defer killer.Close()
		if h.guard, err = watch(machine, killer); err != nil {
			return nil, g, false, err
		}
	}
	h.group = g
	if host.CPUs() {
		l.MilliCPU = 0 // there it is the group that bounds them
	}
	st, joined, err = initproc.SpawnJoined(machine, h.UID, h.GID, g, l.MilliCPU, h.shared())
	return st, g, joined, err
}

// Kill has the processes of the command end where its first process would not take them along.
func (h *Hold) Kill() {
	if h.Tree() && h.group != nil {
		_ = h.group.Kill()
	}
}

// End is Kill, and returns when they have ended.
func (h *Hold) End() error {
	if h.Tree() && h.group != nil {
		return h.group.End()
	}
	return nil
}
