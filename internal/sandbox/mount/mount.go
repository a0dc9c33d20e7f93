//go:build linux

package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/userns"
)

// Source is the file or folder that a mount of a profile shows to a sandbox.
type Source struct {
	Path  string // without links
	Exact bool   // of the mount
	Info  fs.FileInfo
	Held  bool // by a copy of which waldo takes hold (Copy): the sandbox's user cannot go where only waldo can
}

// SourceOf opens the source of a mount for a sandbox that runs as uid outside. If mounts cannot be copied, a
// user other than waldo's can only be shown a source that all users can read.
func SourceOf(m sandbox.Mount, uid int) (s Source, err error) {
	if s.Path, s.Exact = m.Source, m.Exact; !s.Exact {
		s.Path, err = filepath.EvalSymlinks(m.Source)
	}
	if err == nil {
		var f *os.File
		if f, err = s.open(); err == nil {
			s.Info, err = f.Stat()
			_ = f.Close()
		}
	}
	switch {
	case err != nil:
	case !s.Info.IsDir() && !s.Info.Mode().IsRegular():
		err = fmt.Errorf("%s is neither a folder nor a file", m.Source)
	case uid == os.Geteuid():
	case userns.Administers():
		s.Held = true
	default:
		err = openToAll(s.Path)
	}
	if err != nil {
		err = fmt.Errorf("mount %s: %w", m.Target, err)
	}
	return s, err
}

// open opens the source for what needs no right to read it. An exact one is not opened through a link.
func (s Source) open() (*os.File, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	if s.Exact {
		how.Resolve = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, s.Path, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: s.Path, Err: err}
	}
	return os.NewFile(uintptr(fd), s.Path), nil
}

// Folder is the folder of a file, with the file's owner.
func (s Source) Folder() Source {
	return Source{Path: filepath.Dir(s.Path), Exact: s.Exact, Info: s.Info, Held: s.Held}
}

// Below returns the paths at which other file systems are mounted below a folder, outer ones first.
func Below(folder string) (paths []string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return below(string(b), folder), nil
}

// below reads proc_pid_mountinfo(5): the fifth field is the mount point, with \040 for a space and the like.
func below(mountinfo, folder string) (paths []string) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at := octal.Replace(fields[4])
		if strings.HasPrefix(at, strings.TrimSuffix(folder, "/")+"/") && !slices.Contains(paths, at) {
			paths = append(paths, at)
		}
	}
	slices.Sort(paths)
	return paths
}

var octal = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

const hintShow = `start waldo as the owner of the folder, who is not root (in Docker --user),` +
	` or with that capability (--cap-add SYS_ADMIN), or let everybody look at the folder`

// openToAll returns an error if some user cannot read a file or folder.
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
			return sandbox.WithHint(&fs.PathError{Op: "show", Path: at,
				Err: errors.New("a sandbox's user may not look at it, and root of this container has no CAP_SYS_ADMIN to show it " +
					"all the same")}, hintShow)
		}
		if at == "/" {
			return nil
		}
		want = 0o001
	}
}

// Copy copies the mount with those below it. With the given user namespace it maps the source's owner to the
// sandbox's user in the copy. The warning says that the mapping failed.
func (s Source) Copy(target string, namespace Namespace) (tree *os.File, warning string, err error) {
	return s.copy(target, unix.AT_RECURSIVE, namespace)
}

// CopyAlone is Copy without the mounts below.
func (s Source) CopyAlone(target string, namespace Namespace) (tree *os.File, warning string, err error) {
	return s.copy(target, 0, namespace)
}

// Namespace returns a user namespace in which owner and group are the sandbox's user outside.
type Namespace func(owner, group uint32) (*os.File, error)

func (s Source) copy(target string, how uint, namespace Namespace) (tree *os.File, warning string, err error) {
	f, err := s.open()
	if err != nil {
		return nil, "", fmt.Errorf("mount %s: %w", target, err)
	}
	defer f.Close()
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|how)
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
		warning = fmt.Sprintf("files in %s that only their owner may read cannot be read: no id-mapped mount of %s: %v",
			target, s.Path, err)
	}
	return tree, warning, nil
}
