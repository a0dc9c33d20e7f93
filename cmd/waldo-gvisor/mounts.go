//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/gvisor/job"
)

// makeRoot makes the sandbox's root and its writable folders in our own mount namespace, which ends with us:
// nothing of it is ever on the host. It returns a descriptor of each writable folder.
func makeRoot(b job.Sandbox, held []*os.File) ([]*os.File, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mounting /proc of our own: %w", err)
	}
	// gVisor would tell its guest the name of this machine's hardware.
	if err := unix.Mount("waldo", "/sys", "tmpfs", unix.MS_RDONLY, "size=0,nr_inodes=1"); err != nil {
		return nil, fmt.Errorf("covering /sys: %w", err)
	}
	sources, err := openSources(b.Tree, held)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("waldo", workPlace, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		"mode=0755,size=16m,nr_inodes=4096"); err != nil {
		return nil, fmt.Errorf("mounting a tmpfs on %s: %w", workPlace, err)
	}
	for _, dir := range []string{rootDir, guestsDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	var folders []*os.File
	for i, n := range b.Tree {
		if err := makeNode(n, sources[i]); err != nil {
			return nil, fmt.Errorf("making %s %s of the sandbox: %w", n.Kind, n.Path, err)
		}
		if n.Kind != job.Tmpfs {
			continue
		}
		f, err := os.Open(rootDir + n.Path)
		if err != nil {
			return nil, err
		}
		folders = append(folders, f)
	}
	return folders, nil
}

// openSources opens what is bound into the sandbox before anything of ours covers it. A link at the end of a
// source is not followed: the caller has resolved it.
func openSources(tree []job.Node, held []*os.File) ([]*os.File, error) {
	sources := make([]*os.File, len(tree))
	for i, n := range tree {
		if n.Kind != job.Bind {
			continue
		}
		if n.Held {
			if len(held) == 0 {
				return nil, fmt.Errorf("%s: the descriptor of the held mount is missing", n.Path)
			}
			sources[i], held = held[0], held[1:]
			continue
		}
		how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC}
		if n.Exact {
			how.Resolve = unix.RESOLVE_NO_SYMLINKS
		}
		fd, err := unix.Openat2(unix.AT_FDCWD, n.From, how)
		if err != nil {
			return nil, fmt.Errorf("opening %s to show it in the sandbox as %s: %w", n.From, n.Path, err)
		}
		sources[i] = os.NewFile(uintptr(fd), n.From)
	}
	return sources, nil
}

// inside returns where a path of the sandbox is in our namespace. Every parent of it is a folder that we made:
// a link among them is refused, so that nothing is made outside of the root.
func inside(path string) (string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return "", fmt.Errorf("%q is not a clean absolute path", path)
	}
	at := rootDir
	for part := range strings.SplitSeq(filepath.Dir(path)[1:], "/") {
		if part == "" {
			continue
		}
		at = filepath.Join(at, part)
		if err := folder(at); err != nil {
			return "", err
		}
	}
	return filepath.Join(rootDir, path), nil
}

// folder makes a folder unless it is there. A link to one is not one.
func folder(at string) error {
	if err := os.Mkdir(at, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if st, err := os.Lstat(at); err != nil || !st.IsDir() {
		return fmt.Errorf("%s is not a folder", at)
	}
	return nil
}

func makeNode(n job.Node, source *os.File) error {
	if n.Kind == job.Hide {
		return hide(n)
	}
	at, err := inside(n.Path)
	if err != nil {
		return err
	}
	switch n.Kind {
	case job.Dir:
		return folder(at)
	case job.File:
		return os.WriteFile(at, []byte(n.From), 0o644)
	case job.Link:
		return os.Symlink(n.From, at)
	case job.Tmpfs:
		return tmpfs(n, at)
	case job.Bind:
		return bind(source, at, n.Held)
	}
	return fmt.Errorf("unknown kind %q", n.Kind)
}

// hide covers a file or folder of the tree. Its path was found without links; the kernel follows none that came since.
func hide(n job.Node) error {
	root, err := unix.Open(rootDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	at, err := unix.Openat2(root, strings.TrimPrefix(n.Path, "/"), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err == unix.ENOENT || err == unix.ENOTDIR { // of a folder that the sandbox does not show, or removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	cover := filepath.Join(workPlace, "cover-file")
	if n.From == "/" {
		cover = filepath.Join(workPlace, "cover-folder")
		err = folder(cover)
	} else {
		err = os.WriteFile(cover, nil, 0o644)
	}
	if err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, cover, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// bind shows a folder or file of the host, with the mounts below it, read-only.
func bind(source *os.File, at string, held bool) error {
	defer source.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := folder(at); err != nil {
			return err
		}
	case unix.S_IFREG:
		f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o644)
		if err != nil {
			return err
		}
		_ = f.Close()
	default:
		return fmt.Errorf("%s is neither a folder nor a regular file", source.Name())
	}
	if held {
		if err := unix.MoveMount(int(source.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("putting a held mount at %s: %w", at, err)
		}
		return readOnly(at)
	}
	from := fmt.Sprintf("/proc/self/fd/%d", source.Fd())
	if err := unix.Mount(from, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s: %w", source.Name(), err)
	}
	return readOnly(at)
}

// readOnly makes a mount and those below it read-only, without devices and setuid.
func readOnly(at string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("making %s read-only: %w", at, err)
	}
	return nil
}

// tmpfs mounts a writable folder of bounded size.
func tmpfs(n job.Node, at string) error {
	if n.Bytes <= 0 || n.Inodes <= 0 {
		return fmt.Errorf("%d bytes and %d inodes bound nothing", n.Bytes, n.Inodes)
	}
	if err := folder(at); err != nil {
		return err
	}
	mode := "0755"
	if n.Path == "/tmp" || n.Path == "/dev/shm" {
		mode = "1777"
	}
	how := fmt.Sprintf("mode=%s,size=%d,nr_inodes=%d", mode, n.Bytes, n.Inodes)
	return unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, how)
}
