//go:build linux

package common

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// maxDepth is how deep a tree may be that is copied into or out of a box.
const maxDepth = 64

// Entry is one file, folder or other thing of a tree that a box may have written.
type Entry struct {
	Path string // from the tree's root, without a slash before it
	Stat unix.Stat_t
	dir  int // descriptor of the folder it is in, open during the visit only
}

func (e Entry) name() string { return path.Base(e.Path) }

// Regular reports whether it is a file.
func (e Entry) Regular() bool { return e.Stat.Mode&unix.S_IFMT == unix.S_IFREG }

// Directory reports whether it is a folder.
func (e Entry) Directory() bool { return e.Stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// Kind says in words what is neither file nor folder.
func (e Entry) Kind() string {
	switch e.Stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a pipe"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// Walk visits what is below the folder, names in order, folders before what is in them. It
// follows no link and leaves the filesystem of the folder at no place. A visit that returns
// false is not gone into.
func Walk(root *os.File, visit func(Entry) bool) error {
	return walkInto(int(root.Fd()), ".", "", 0, visit)
}

var errDeep = fmt.Errorf("deeper than %d folders", maxDepth)

func walkInto(parent int, name, prefix string, depth int, visit func(Entry) bool) error {
	fd, err := openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(parent, name, 0o700, 0) == nil {
		fd, err = openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: prefix, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	var errs []error
	for _, n := range names {
		e := Entry{Path: path.Join(prefix, n), dir: fd}
		if err := unix.Fstatat(fd, n, &e.Stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			errs = append(errs, &os.PathError{Op: "stat", Path: e.Path, Err: err})
			continue
		}
		if !visit(e) || !e.Directory() {
			continue
		}
		if depth+1 >= maxDepth {
			errs = append(errs, &os.PathError{Op: "enter", Path: e.Path, Err: errDeep})
			continue
		}
		if err := walkInto(fd, n, e.Path, depth+1, visit); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openBeneath opens one name of a folder, never a link, never another filesystem.
func openBeneath(dir int, name string, flags int) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// copier copies files and folders of one tree into another, and not more than left bytes.
type copier struct {
	to     *os.File
	left   int64
	create func(f func() error) error // what makes files runs in it; nil: as it is
	want   func(Entry) bool           // what is copied; nil: everything
	dirs   map[string]int             // descriptors of the folders made, closed at the end
	copied []string
	errs   []error
}

// CopyTree copies regular files and folders and returns the paths of the files. What it cannot
// copy is in the error; the rest is copied all the same. Links and the like are left out in silence.
func CopyTree(from, to *os.File, most int64, create func(f func() error) error) ([]string, error) {
	return copyTree(from, to, most, create, nil)
}

func copyTree(from, to *os.File, most int64, create func(f func() error) error, want func(Entry) bool) ([]string, error) {
	if create == nil {
		create = func(f func() error) error { return f() }
	}
	c := &copier{to: to, left: most, create: create, want: want, dirs: map[string]int{".": int(to.Fd())}}
	defer func() {
		for p, fd := range c.dirs {
			if p != "." {
				unix.Close(fd)
			}
		}
	}()
	err := Walk(from, c.visit)
	return c.copied, errors.Join(append(c.errs, err)...)
}

func (c *copier) visit(e Entry) bool {
	parent, ok := c.dirs[path.Dir(e.Path)]
	if !ok || c.want != nil && (e.Directory() || e.Regular()) && !c.want(e) {
		return false
	}
	var err error
	switch {
	case e.Directory():
		err = c.folder(parent, e)
	case e.Regular():
		err = c.file(parent, e)
	}
	if err != nil {
		c.errs = append(c.errs, &os.PathError{Op: "copy", Path: e.Path, Err: err})
	}
	return err == nil
}

func (c *copier) folder(parent int, e Entry) error {
	return c.create(func() error {
		if err := unix.Mkdirat(parent, e.name(), 0o755); err != nil && err != unix.EEXIST {
			return err
		}
		fd, err := openBeneath(parent, e.name(), unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			c.dirs[e.Path] = fd
		}
		return err
	})
}

// temporary is how the names of files begin that are not whole yet.
const temporary = ".waldo-"

// errExists is what keeps a file from being copied over something that is not a file.
var errExists = errors.New("there is something else of that name that is not a file")

// file copies by way of a file of its own and a rename, which follows no link and never shows
// half a file.
func (c *copier) file(parent int, e Entry) error {
	if e.Stat.Size > c.left {
		return fmt.Errorf("%d bytes, and only %d more may be copied", e.Stat.Size, c.left)
	}
	from, err := openBeneath(e.dir, e.name(), unix.O_RDONLY)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(e.dir, e.name(), 0o600, 0) == nil {
		from, err = openBeneath(e.dir, e.name(), unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(from), e.Path)
	defer source.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(parent, e.name(), &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errExists
	}
	mode := uint32(0o644) | e.Stat.Mode&0o111
	temp := fmt.Sprintf("%s%d", temporary, e.Stat.Ino)
	var fd int
	err = c.create(func() error {
		_ = unix.Unlinkat(parent, temp, 0)
		fd, err = unix.Openat(parent, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return err
	}
	sink := os.NewFile(uintptr(fd), e.Path)
	n, err := io.Copy(sink, io.LimitReader(source, e.Stat.Size)) // it may be growing
	if err = errors.Join(err, sink.Close()); err == nil {
		err = c.create(func() error { return unix.Renameat(parent, temp, parent, e.name()) })
	}
	if err != nil {
		_ = unix.Unlinkat(parent, temp, 0)
		return err
	}
	c.left -= n
	c.copied = append(c.copied, e.Path)
	return nil
}

// AsUser returns a function that runs another with a user and group as the owner of what it
// makes. It is for root, whose own files could not be in a box's filesystem at all: its id is
// not mapped there.
func AsUser(uid, gid int) func(f func() error) error {
	if uid == os.Geteuid() {
		return nil
	}
	return func(f func() error) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		set := func(u, g int) {
			_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(g), 0, 0)
			_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(u), 0, 0)
		}
		set(uid, gid)
		defer set(os.Geteuid(), os.Getegid())
		return f()
	}
}
