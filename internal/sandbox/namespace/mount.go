//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/common"
)

// shown is a mount of the profile on its way into a box.
type shown struct {
	sandbox.Mount
	folder bool
	tree   *os.File // a detached copy of the mount; nil: PID 1 can reach the source by its path
}

// take looks at the sources of the mounts. As root it also takes hold of them, because the box's
// user cannot go where only root can.
func (b *box) take(mounts []sandbox.Mount) ([]shown, error) {
	var out []shown
	for _, m := range mounts {
		source, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return out, fmt.Errorf("namespace: mount %s: %w", m.Target, err)
		}
		info, err := os.Stat(source)
		if err != nil {
			return out, fmt.Errorf("namespace: mount %s: %w", m.Target, err)
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return out, fmt.Errorf("namespace: mount %s: %s is neither a folder nor a file", m.Target, m.Source)
		}
		s := shown{Mount: m, folder: info.IsDir()}
		s.Source = source
		held, err := common.Holds(source, b.uid)
		if err != nil {
			return out, fmt.Errorf("namespace: mount %s: %w", m.Target, err)
		}
		if held {
			owner := info.Sys().(*syscall.Stat_t)
			if err := b.hold(&s, owner.Uid, owner.Gid); err != nil {
				return out, fmt.Errorf("namespace: mount %s: %w", m.Target, err)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// hold copies the mount, and lets the box's user stand for the owner of the source in the copy.
func (b *box) hold(s *shown, owner, group uint32) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, s.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	s.tree = os.NewFile(uintptr(fd), s.Source)
	ns, err := b.driver.userNamespace(owner, group, b.uid, b.gid)
	if err != nil {
		return err
	}
	defer ns.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		b.warnings = append(b.warnings, fmt.Sprintf("files in %s that only their owner may read cannot be read: no id-mapped mount of %s: %v", s.Target, s.Source, err))
	}
	return nil
}

// userNamespace returns a user namespace in which owner and group are the user outside.
func (d *Driver) userNamespace(owner, group uint32, uid, gid int) (*os.File, error) {
	h, ok := d.holders.take(struct{}{})
	if !ok {
		var err error
		if h, err = d.holder(); err != nil {
			return nil, err
		}
	}
	defer d.holders.end(h) // its namespace lives on in the file
	proc := fmt.Sprintf("/proc/%d/", h.Init.Pid)
	err := errors.Join(
		os.WriteFile(proc+"uid_map", fmt.Appendf(nil, "%d %d 1", owner, uid), 0),
		os.WriteFile(proc+"gid_map", fmt.Appendf(nil, "%d %d 1", group, gid), 0))
	if err != nil {
		return nil, err
	}
	return os.Open(proc + "ns/user")
}

// show appends the steps that put the mount into the box; fd is where the copy is, if there is one.
func (s *setup) show(made map[string]bool, m shown, fd int) {
	if m.folder {
		s.mkdir(made, m.Target)
	} else {
		s.mkdir(made, path.Dir(m.Target))
		s.write(m.Target, "", unix.O_CREAT)
	}
	if m.tree == nil {
		s.bind(m.Source, m.Target)
		return
	}
	s.Call("show "+m.Target, unix.SYS_MOVE_MOUNT, fd, "", atCWD, m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	s.attributes(m.Target, sealed, true)
}
