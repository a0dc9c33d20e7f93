//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path"

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

// take looks at the sources of the mounts, and takes hold of those that the box's user cannot reach.
func (b *box) take(mounts []sandbox.Mount) ([]shown, error) {
	var out []shown
	for _, m := range mounts {
		source, err := common.SourceOf(m, b.uid)
		if err != nil {
			return out, fmt.Errorf("namespace: %w", err)
		}
		s := shown{Mount: m, folder: source.Info.IsDir()}
		s.Source = source.Path
		if source.Held {
			var warning string
			s.tree, warning, err = source.Copy(m.Target, func(owner, group uint32) (*os.File, error) {
				return b.driver.userNamespace(owner, group, b.uid, b.gid)
			})
			if err != nil {
				return out, fmt.Errorf("namespace: %w", err)
			}
			if warning != "" {
				b.warnings = append(b.warnings, warning)
			}
		}
		out = append(out, s)
	}
	return out, nil
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
