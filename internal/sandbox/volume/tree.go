//go:build linux

package volume

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/budget"
	"waldo/internal/model/facts"
)

// Bounds of a tree that code in a sandbox may have written.
const (
	maxDepth = 64      // folders, one in the other
	maxPath  = 4096    // bytes of one path
	maxNames = 8 << 20 // bytes of all the paths that a copy or a comparison of trees holds
)

// Entry is one file, folder or other thing of a tree that a sandbox may have written.
type Entry struct {
	Path string // from the tree's root, without a slash before it
	Stat unix.Stat_t
	dir  int // descriptor of the folder it is in, open during the visit only
}

func (e Entry) name() string { return path.Base(e.Path) }

// Regular reports whether it is a file.
func (e Entry) Regular() bool { return is(&e.Stat, unix.S_IFREG) }

// Directory reports whether it is a folder.
func (e Entry) Directory() bool { return is(&e.Stat, unix.S_IFDIR) }

func is(st *unix.Stat_t, kind uint32) bool { return st.Mode&unix.S_IFMT == kind }

// Kind names the kind of an entry that is neither file nor folder.
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
// false is not gone into. Deeper than maxDepth and longer than maxPath is an error, and not visited.
func Walk(root *os.File, visit func(Entry) bool) error { return walk(root, math.MaxInt, visit) }

// walk is Walk over paths of at most names bytes in all; the rest is an error.
func walk(root *os.File, names int, visit func(Entry) bool) error {
	w := &walker{left: names, visit: visit}
	w.into(int(root.Fd()), ".", "", 0)
	return w.err()
}

type walker struct {
	faults
	visit func(Entry) bool
	left  int // bytes of paths
}

var (
	errDeep  = fmt.Errorf("deeper than %d folders", maxDepth)
	errLong  = fmt.Errorf("its path is longer than %d bytes", maxPath)
	errNames = errors.New("it has more names than are read")
)

func (w *walker) into(parent int, name, prefix string, depth int) {
	fd, err := openEntry(parent, name, unix.S_IFDIR)
	if err != nil {
		w.add("open", prefix, err)
		return
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := w.names(f, len(prefix))
	if err != nil {
		w.add("read", prefix, err)
	}
	slices.Sort(names)
	for _, n := range names {
		e := Entry{Path: path.Join(prefix, n), dir: fd}
		if len(e.Path) > maxPath {
			w.add("enter", prefix, errLong)
			continue
		}
		if err := unix.Fstatat(fd, n, &e.Stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			w.add("stat", e.Path, err)
			continue
		}
		if !w.visit(e) || !e.Directory() {
			continue
		}
		if depth+1 >= maxDepth {
			w.add("enter", e.Path, errDeep)
			continue
		}
		w.into(fd, n, e.Path, depth+1)
	}
}

// names reads the names in a folder until the bytes of their paths are used up.
func (w *walker) names(f *os.File, prefix int) (all []string, err error) {
	for {
		some, err := f.Readdirnames(1024)
		for i, n := range some {
			if w.left -= prefix + 1 + len(n); w.left < 0 {
				return append(all, some[:i]...), errNames
			}
		}
		all = append(all, some...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// faults are the first errors about the entries of a tree, and the number of further ones. The author of the
// tree is hostile and chooses their number and length.
type faults struct {
	list []error
	more int
}

const maxFaults = 16

func (f *faults) add(op, name string, err error) {
	if len(f.list) >= maxFaults {
		f.more++
		return
	}
	f.list = append(f.list, &os.PathError{Op: op, Path: clip(name), Err: err})
}

func (f *faults) err() error {
	if f.more > 0 {
		return errors.Join(append(slices.Clip(f.list), fmt.Errorf("%d more", f.more))...)
	}
	return errors.Join(f.list...)
}

// clip is a path as a line shows it. It shows only the size of a long one: a part could be that of a secret.
func clip(name string) string {
	if len(name) > 256 {
		return fmt.Sprintf("a name of %d bytes", len(name))
	}
	return facts.Name(name)
}

// openBeneath opens one name of a folder, never a link, never another filesystem, and never waits.
func openBeneath(dir int, name string, flags int) (int, error) {
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK
	}
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   uint64(flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// errKind is the error for an entry whose kind has changed or is not the expected one.
var errKind = errors.New("its kind has changed")

// openEntry opens a file (S_IFREG) or a folder (S_IFDIR) for reading. Code in a sandbox may exchange the
// entry at any time, so its kind is read from the descriptor. One whose mode keeps its owner out gets
// the owner's rights first.
func openEntry(dir int, name string, kind uint32) (int, error) {
	flags := unix.O_RDONLY
	if kind == unix.S_IFDIR {
		flags |= unix.O_DIRECTORY
	}
	fd, err := openBeneath(dir, name, flags)
	if errors.Is(err, unix.EACCES) {
		fd, err = openClosed(dir, name, kind)
	}
	return checked(fd, err, kind)
}

// openClosed gives an entry its owner's rights and opens it. One descriptor names it for both: a name
// could be a link to something else by the second time.
func openClosed(dir int, name string, kind uint32) (int, error) {
	held, err := openBeneath(dir, name, unix.O_PATH)
	if held, err = checked(held, err, kind); err != nil {
		return -1, err
	}
	defer unix.Close(held)
	mode := uint32(0o600)
	if kind == unix.S_IFDIR {
		mode = 0o700
	}
	self := fmt.Sprintf("/proc/self/fd/%d", held)
	if err := unix.Chmod(self, mode); err != nil {
		return -1, err
	}
	return unix.Open(self, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// checked returns a descriptor of such a kind, and closes any other.
func checked(fd int, err error, kind uint32) (int, error) {
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && !is(&st, kind) {
		err = errKind
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// copier copies files and folders of one tree into another, and not more than left bytes.
type copier struct {
	faults
	owner  string // the principal whose turns the copy takes
	to     *os.File
	left   int64
	create func(f func() error) error // runs the creation of files; nil calls it directly
	want   func(Entry) bool           // selects the entries to copy; nil selects all
	dirs   []made                     // the folders that lead to the entry visited last, outermost first
	copied []string
}

// made is a folder of the copy, held open. No more than maxDepth of them are open at a time.
type made struct {
	path string
	fd   int
}

// parent returns the descriptor of the folder that an entry goes to, and closes those that the walk has left.
func (c *copier) parent(e Entry) (fd int, ok bool) {
	dir := path.Dir(e.Path)
	if dir == "." {
		c.leave(0)
		return int(c.to.Fd()), true
	}
	for i := len(c.dirs) - 1; i >= 0; i-- {
		if c.dirs[i].path == dir {
			c.leave(i + 1)
			return c.dirs[i].fd, true
		}
	}
	return 0, false
}

// leave closes all but the outermost n folders.
func (c *copier) leave(n int) {
	for _, d := range c.dirs[n:] {
		unix.Close(d.fd)
	}
	c.dirs = c.dirs[:n]
}

// CopyTree copies regular files and folders and returns the paths of the files. It skips links, devices and the
// like silently. It skips entries that cannot be copied and names them in the error.
func CopyTree(from, to *os.File, most int64, create func(f func() error) error) ([]string, error) {
	return copyTree("", from, to, most, create, nil)
}

func copyTree(owner string, from, to *os.File, most int64, create func(f func() error) error,
	want func(Entry) bool) ([]string, error) {
	if create == nil {
		create = func(f func() error) error { return f() }
	}
	c := &copier{owner: owner, to: to, left: most, create: create, want: want}
	defer c.leave(0)
	err := walk(from, maxNames, c.visit)
	return c.copied, errors.Join(c.err(), err)
}

func (c *copier) visit(e Entry) bool {
	parent, ok := c.parent(e)
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
		c.add("copy", e.Path, err)
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
			c.dirs = append(c.dirs, made{e.Path, fd})
		}
		return err
	})
}

// temporary is how the names of files begin that are not whole yet.
const temporary = ".waldo-"

func (e Entry) temporary() bool { return e.Regular() && strings.HasPrefix(e.name(), temporary) }

// errExists is the error for a file whose target exists and is not a file.
var errExists = errors.New("there is something else of that name that is not a file")

// file copies by way of a file of its own and a rename, which follows no link and never shows
// half a file.
func (c *copier) file(parent int, e Entry) error {
	if e.Stat.Size > c.left {
		return fmt.Errorf("%d bytes, and only %d more may be copied", e.Stat.Size, c.left)
	}
	from, err := openEntry(e.dir, e.name(), unix.S_IFREG)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(from), e.Path)
	defer source.Close()
	var st unix.Stat_t
	if err := unix.Fstatat(parent, e.name(), &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && !is(&st, unix.S_IFREG) {
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
	leave := budget.Turn(c.owner, e.Stat.Size)
	n, err := io.Copy(sink, io.LimitReader(source, e.Stat.Size)) // it may be growing
	leave()
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

// AsUser returns a function that runs another one such that new files belong to the user and group. Root needs
// it: its own id is not mapped in a sandbox's filesystem, so it could not create files there.
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
