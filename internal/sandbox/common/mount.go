//go:build linux

package common

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// Source is what a mount of a profile shows to a box.
type Source struct {
	Path string // without links
	Info fs.FileInfo
	Held bool // by a copy of which waldo takes hold (Copy): the box's user cannot go where only waldo can
}

// SourceOf looks at what a mount shows to a box of that user outside. Where no mount can be copied, only what everybody
// may look at can be shown to another user than waldo.
func SourceOf(m sandbox.Mount, uid int) (s Source, err error) {
	if s.Path, err = filepath.EvalSymlinks(m.Source); err == nil {
		s.Info, err = os.Stat(s.Path)
	}
	switch {
	case err != nil:
	case !s.Info.IsDir() && !s.Info.Mode().IsRegular():
		err = fmt.Errorf("%s is neither a folder nor a file", m.Source)
	case uid == os.Geteuid():
	case Administers():
		s.Held = true
	default:
		err = openToAll(s.Path)
	}
	if err != nil {
		err = fmt.Errorf("mount %s: %w", m.Target, err)
	}
	return s, err
}

// openToAll returns an error where not everybody may look at a file or folder.
func openToAll(source string) error {
	want := fs.FileMode(0o004)
	for at := source; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if info.IsDir() {
			want |= 0o001
		}
		if info.Mode()&want != want {
			return Advise(&fs.PathError{Op: "show", Path: at, Err: errors.New("a box's user may not look at it, and root of this container has no CAP_SYS_ADMIN to show it all the same")}, hintShow)
		}
		if at == "/" {
			return nil
		}
		want = 0o001
	}
}

// Copy copies the mount, and lets the box's user stand for the owner of the source in the copy, by the user
// namespace that is asked for. The warning says that it could not.
func (s Source) Copy(target string, namespace func(owner, group uint32) (*os.File, error)) (tree *os.File, warning string, err error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, s.Path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, "", fmt.Errorf("mount %s: %w", target, err)
	}
	tree = os.NewFile(uintptr(fd), s.Path)
	owner := s.Info.Sys().(*syscall.Stat_t)
	ns, err := namespace(owner.Uid, owner.Gid)
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("mount %s: %w", target, err), tree.Close())
	}
	defer ns.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		warning = fmt.Sprintf("files in %s that only their owner may read cannot be read: no id-mapped mount of %s: %v", target, s.Path, err)
	}
	return tree, warning, nil
}
