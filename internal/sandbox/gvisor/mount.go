//go:build linux && (amd64 || arm64)

package gvisor

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/mount"
	"waldo/internal/sandbox/spawn"
)

// mounts returns the nodes of the profile's mounts, and the copies of those that are held.
func (b *instance) mounts() (nodes []job.Node, held map[string]*os.File, err error) {
	held = map[string]*os.File{}
	folders, _, err := mount.Top(b.profile.Template)
	if err != nil {
		return nil, held, err
	}
	for _, m := range slices.Concat(folders, b.profile.Mounts) {
		source, err := mount.SourceOf(m, b.uid)
		if err != nil {
			return nil, held, err
		}
		n := job.Node{Path: m.Target, Kind: job.Bind, From: source.Path, Held: source.Held, Exact: true}
		if source.Held {
			tree, warning, err := source.Copy(m.Target, func(owner, group uint32) (*os.File, error) {
				return userNamespace(owner, group, b.uid, b.gid)
			})
			if err != nil {
				return nil, held, err
			}
			if held[m.Target] = tree; warning != "" {
				b.warnings = append(b.warnings, warning)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, held, nil
}

// userNamespace returns a user namespace in which owner and group are the user outside.
func userNamespace(owner, group uint32, uid, gid int) (*os.File, error) {
	program, err := job.Sleeper()
	if err != nil {
		return nil, err
	}
	defer program.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	var p *os.Process
	spawn.OnLauncher(func() {
		p, err = os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", sleeperFD), []string{"waldo-namespace"}, &os.ProcAttr{
			Files: []*os.File{null, null, null, program}, Env: []string{},
			Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: int(owner), HostID: uid, Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: int(group), HostID: gid, Size: 1}}}})
	})
	if err != nil {
		return nil, fmt.Errorf("a user namespace for a mount: %w", err)
	}
	defer func() {
		_ = p.Kill()
		_, _ = p.Wait()
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
}

// sleeperFD is where the program is in the new process at the moment of its exec.
const sleeperFD = 3
