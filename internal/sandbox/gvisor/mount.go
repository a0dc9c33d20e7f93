//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/common"
	"waldo/internal/sandbox/gvisor/job"
)

// mounts returns the nodes of the profile's mounts. As root it takes hold of
// each by a detached copy, because the box's user cannot go where only root can.
func (b *box) mounts() (nodes []job.Node, held map[string]*os.File, err error) {
	held = map[string]*os.File{}
	folders, _, err := common.Top(b.profile.Template)
	if err != nil {
		return nil, held, err
	}
	for _, m := range slices.Concat(folders, b.profile.Mounts) {
		from, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return nil, held, fmt.Errorf("mount %s: %w", m.Target, err)
		}
		info, err := os.Stat(from)
		if err != nil {
			return nil, held, fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return nil, held, fmt.Errorf("mount %s: %s is neither a folder nor a file", m.Target, m.Source)
		}
		n := job.Node{Path: m.Target, Kind: job.Bind, From: from}
		hold, err := common.Holds(from, b.uid)
		if err != nil {
			return nil, held, fmt.Errorf("mount %s: %w", m.Target, err)
		}
		if hold {
			f, err := b.hold(m.Target, from, info)
			if err != nil {
				return nil, held, fmt.Errorf("mount %s: %w", m.Target, err)
			}
			n.Held, held[m.Target] = true, f
		}
		nodes = append(nodes, n)
	}
	return nodes, held, nil
}

// hold copies a mount, and lets the box's user stand for the owner of the source in the copy.
func (b *box) hold(target, source string, info os.FileInfo) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), source)
	owner := info.Sys().(*syscall.Stat_t)
	ns, err := userNamespace(owner.Uid, owner.Gid, b.uid, b.gid)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	defer ns.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		b.warnings = append(b.warnings, fmt.Sprintf("files in %s that only their owner may read cannot be read: no id-mapped mount of %s: %v", target, source, err))
	}
	return f, nil
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
	common.OnLauncher(func() {
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
