//go:build linux && (amd64 || arm64)

package namespace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/mount"
)

// A folder of the host is shown through an overlay file system of the sandbox's own (overlayfs, read-only, its
// one layer is the folder). The overlay has inodes of its own. Sockets, pipes, locks, leases and inotify marks
// belong to inodes, so none of them connects the sandbox with processes outside, nor with another sandbox.

// shown is a folder of the host on its way into a sandbox.
type shown struct {
	lower  string   // its path on the host
	exact  bool     // no part of the path is a link, and none may be
	tree   *os.File // a detached copy of its mount; nil: PID 1 can reach it by its path
	target string   // where all of it is shown; empty: only its parts are
	parts  []part
	whole  bool // its mount point is inside another shown folder
	// writable: it is the folder itself, without an overlay, and writes stay.
	writable bool
	live     bool
	beside   bool              // it is the folder for the writes to the next one, and is not seen
	over     bool              // writes go to the one before
	seals    []string          // paths below a writable folder that are read-only
	lent     map[string]string // those of them that are links, and where to
	hidden   []string          // paths below it that show as empty
}

// part is a file or folder of a folder that is shown.
type part struct {
	name, target string
	folder       bool
}

// take opens the sources of the mounts, and holds those that the sandbox's user cannot reach. A mount whose overlay
// was refused becomes a volume with a copy of the files.
func (b *instance) take(folders, mounts []sandbox.Mount) (out []shown, err error) {
	if dir := b.profile.Template.Dir; dir != "" {
		source, err := mount.SourceOf(sandbox.Mount{Source: dir, Target: "/"}, b.uid)
		if err != nil {
			return out, err
		}
		m := shown{lower: source.Path}
		for _, f := range folders {
			m.parts = append(m.parts, part{path.Base(f.Source), f.Target, true})
		}
		if out, err = b.hold(out, m, source); err != nil {
			return out, err
		}
	}
	for _, m := range mounts {
		source, err := mount.SourceOf(m, b.uid)
		if err != nil {
			return out, err
		}
		if !source.Info.IsDir() {
			name := path.Base(source.Path)
			source = source.Folder()
			if out, err = b.hold(out, shown{lower: source.Path, parts: []part{{name, m.Target, false}}}, source); err != nil {
				return out, err
			}
			continue
		}
		if out, err = b.folder(out, m, source); err != nil {
			return out, err
		}
	}
	return out, nil
}

// folder is take for one folder and for the file systems mounted below it. Only root can show those: other users
// cannot copy a mount without them.
func (b *instance) folder(out []shown, m sandbox.Mount, source mount.Source) ([]shown, error) {
	below, err := mount.Below(source.Path)
	if err != nil {
		return out, err
	}
	errno, refused := b.driver.refused.of(source.Path)
	switch {
	case m.Writable && len(below) > 0:
		return out, fmt.Errorf("mount %s: another file system is mounted in it, at %s, so it cannot be writable",
			m.Target, below[0])
	case m.Aside != "":
		return b.aside(out, m, source)
	case m.Writable:
		return b.hold(out, shown{lower: source.Path, target: m.Target, writable: true, live: m.Live, seals: m.Sealed,
			lent: m.Lent, hidden: m.Hidden}, source)
	case !source.Held && len(below) > 0:
		return out, sandbox.WithHint(fmt.Errorf("mount %s: another file system is mounted in it, at %s", m.Target, below[0]),
			"show folders that have no mounts in them, each by a line of its own")
	case refused && len(below)+len(m.Hidden) > 0:
		return out, fmt.Errorf("mount %s: no overlay of %s: %w", m.Target, source.Path, errno)
	case refused:
		l := b.profile.Limits
		b.profile.Tmpfs = append(b.profile.Tmpfs[:len(b.profile.Tmpfs):len(b.profile.Tmpfs)],
			sandbox.Tmpfs{Target: m.Target, Bytes: l.Disk, Inodes: l.Inodes, Seed: source.Path, Sealed: true})
		b.warnings = append(b.warnings,
			fmt.Sprintf("%s is a copy, without links: no overlay of %s: %v", m.Target, source.Path, errno))
		return out, nil
	}
	if out, err = b.hold(out, shown{lower: source.Path, target: m.Target, hidden: m.Hidden}, source); err != nil {
		return out, err
	}
	for _, at := range below {
		mounted := source
		mounted.Path = at
		out, err = b.hold(out, shown{lower: at, target: m.Target + strings.TrimPrefix(at, source.Path), whole: true}, mounted)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// aside is folder for one whose writes go aside: the folder for them comes first.
func (b *instance) aside(out []shown, m sandbox.Mount, source mount.Source) ([]shown, error) {
	beside := source
	beside.Path, beside.Exact = m.Aside, false // waldo's own
	out, err := b.hold(out, shown{lower: m.Aside, target: m.Target, beside: true}, beside)
	if err != nil {
		return out, err
	}
	return b.hold(out, shown{lower: source.Path, target: m.Target, over: true, live: m.Live, hidden: m.Hidden}, source)
}

// hold appends what is shown, with a copy of its mount where waldo takes hold of it.
func (b *instance) hold(out []shown, m shown, source mount.Source) ([]shown, error) {
	var warning string
	var err error
	m.exact = source.Exact
	if source.Held {
		m.tree, warning, err = source.CopyAlone(m.name(), b.userNamespace)
	}
	if warning != "" {
		b.warnings = append(b.warnings, warning)
	}
	if err != nil {
		return out, err
	}
	if errno, ok := b.driver.refused.of(m.lower); ok && !m.writable && !m.beside && !m.over {
		b.warnings = append(b.warnings, asItIs(m.name(), errno))
	}
	return append(out, m), nil
}

// name is the mount's name in errors and warnings.
func (m shown) name() string {
	if m.target == "" && len(m.parts) > 0 {
		return m.parts[0].target
	}
	return m.target
}

// asItIs is the warning about a file or folder that is shown without an overlay.
func asItIs(target string, errno unix.Errno) string {
	return fmt.Sprintf("%s is shown as it is, since the kernel refuses an overlay of it (%v): file locks there are seen "+
		"outside, and nothing can be watched", target, errno)
}

// userNamespace returns a user namespace in which owner and group are the user outside: one for all mounts of theirs.
func (b *instance) userNamespace(owner, group uint32) (*os.File, error) {
	whose := [2]uint32{owner, group}
	if b.spaces[whose] == nil {
		space, err := b.driver.userNamespace(owner, group, b.uid, b.gid)
		if err != nil {
			return nil, err
		}
		if b.spaces == nil {
			b.spaces = map[[2]uint32]*os.File{}
		}
		b.spaces[whose] = space
	}
	fd, err := unix.FcntlInt(b.spaces[whose].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), ""), err
}

// userNamespace makes one.
func (d *Driver) userNamespace(owner, group uint32, uid, gid int) (*os.File, error) {
	d.usernsHolders.Want(struct{}{}, 1)
	h, ok := d.usernsHolders.Take(struct{}{})
	if !ok {
		var err error
		if h, err = d.usernsHolder(); err != nil {
			return nil, err
		}
	}
	defer d.usernsHolders.Discard(h) // its namespace lives on in the file
	proc := fmt.Sprintf("/proc/%d/", h.Init.Pid)
	err := errors.Join(
		os.WriteFile(proc+"uid_map", fmt.Appendf(nil, "%d %d 1", owner, uid), 0),
		os.WriteFile(proc+"gid_map", fmt.Appendf(nil, "%d %d 1", group, gid), 0))
	if err != nil {
		return nil, err
	}
	return os.Open(proc + "ns/user")
}

// refusals are the folders of which the kernel refused an overlay, and its reasons.
type refusals struct {
	mu  sync.Mutex
	all map[string]unix.Errno
}

// overlayOf is the prefix of the steps that mount an overlay.
const overlayOf = "overlay of "

// learn reports whether a sandbox failed because an overlay was refused, and remembers the folder. Lack of memory or
// descriptors is temporary and does not count.
func (r *refusals) learn(err error) bool {
	var step *initproc.StepError
	if !errors.As(err, &step) || !strings.HasPrefix(step.Step, overlayOf) {
		return false
	}
	switch step.Errno {
	case unix.ENOMEM, unix.ENOSPC, unix.EMFILE, unix.ENFILE, unix.EINTR, unix.EAGAIN:
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	folder := strings.TrimPrefix(step.Step, overlayOf)
	if _, known := r.all[folder]; known {
		return false
	}
	if r.all == nil {
		r.all = map[string]unix.Errno{}
	}
	r.all[folder] = step.Errno
	return true
}

func (r *refusals) of(folder string) (errno unix.Errno, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	errno, refused = r.all[folder]
	return errno, refused
}

// snapshot returns a copy of the known refusals.
func (r *refusals) snapshot() map[string]unix.Errno {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.all)
}

// Paths of an overlay's layers. The lower folder is the current one, because its name can hold any byte. The kernel
// requires a second layer for a read-only overlay: an empty folder that the sandbox's /proc covers.
const (
	layers = "lowerdir=.:/proc"
	lobby  = old + "/proc" // mounts here go with the host's root
	annex  = old + "/sys"  // so do these: the folders for writes that go aside
	// the layers of a folder whose writes go aside; a sandbox's user can set no "trusted." attributes
	asideLayers = "lowerdir=.,upperdir=" + annex + "/upper,workdir=" + annex + "/work,userxattr"
)

// show appends the steps that put a folder, or parts of it, into the sandbox; fd is where the copy of its mount is,
// if there is one. A descriptor of the overlay stays open, for waldo.
func (s *setup) show(made map[string]bool, m shown, fd int) {
	name := "show " + m.name()
	if m.beside {
		if m.tree != nil {
			s.Call(name, unix.SYS_MOVE_MOUNT, fd, "", atCWD, annex, unix.MOVE_MOUNT_F_EMPTY_PATH)
		} else {
			s.Call(name, unix.SYS_MOUNT, old+m.lower, annex, 0, unix.MS_BIND, 0)
		}
		return
	}
	at := m.target
	switch {
	case at == "":
		at = lobby
	case m.whole:
		made[at] = true
	default:
		s.mkdir(made, at)
	}
	_, refused := s.refused[m.lower]
	from := old + m.lower
	if m.tree != nil {
		s.Call(name, unix.SYS_MOVE_MOUNT, fd, "", atCWD, lobby, unix.MOVE_MOUNT_F_EMPTY_PATH)
		from = lobby
	} else if m.exact {
		s.enter(name, from)
		from = "."
	}
	switch {
	case m.over:
		s.Call(name, unix.SYS_CHDIR, from)
		s.Call("put aside the writes to "+m.lower, unix.SYS_MOUNT, "waldo", at, "overlay", quiet, asideLayers)
		s.Hint("the kernel needs Linux 5.11 or later, and waldo's state directory a file system that overlays can write to")
		s.Call("return to the root", unix.SYS_CHDIR, "/")
	case m.writable:
		s.bindWritable(name, from, at, m)
	case !refused:
		s.overlay(from, m.lower, at, name)
		s.Call("take hold of "+m.name(), unix.SYS_FSPICK, atCWD, at, unix.FSPICK_CLOEXEC|unix.FSPICK_NO_AUTOMOUNT)
		s.free++
		s.overlays++
	default:
		s.unwatched = true
		s.Call(name, unix.SYS_MOUNT, from, at, 0, unix.MS_BIND, 0)
		s.attributes(at, sealed, false)
	}
	if from == "." {
		s.Call("return to the root", unix.SYS_CHDIR, "/")
	}
	for _, p := range m.parts {
		if p.folder {
			s.mkdir(made, p.target)
		} else {
			s.mkdir(made, path.Dir(p.target))
			s.write(p.target, "", unix.O_CREAT)
		}
		s.Call("show "+p.target, unix.SYS_OPEN_TREE, atCWD, lobby+"/"+p.name,
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		s.Call("show "+p.target, unix.SYS_MOVE_MOUNT, s.free, "", atCWD, p.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
		s.Call("close "+p.target, unix.SYS_CLOSE, s.free)
	}
}

// enter appends steps that make a folder the current one, and go through no link.
func (s *setup) enter(name, folder string) {
	how := binary.LittleEndian.AppendUint64(nil, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	how = binary.LittleEndian.AppendUint64(how, 0) // the mode of a new file
	how = binary.LittleEndian.AppendUint64(how, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	s.Call(name, unix.SYS_OPENAT2, atCWD, folder, how, len(how))
	s.Hint("a part of " + strings.TrimPrefix(folder, old) + " is a link by now, or the kernel has no openat2 (Linux 5.6)")
	s.Call(name, unix.SYS_FCHDIR, s.free)
	s.Call(name, unix.SYS_CLOSE, s.free)
}

// hide appends steps that cover the hidden paths of the shown folders and the template's credentials, with an empty file
// or folder each. It comes after all other mounts. The overlay's names are covered, so a file that a process outside
// puts there stays hidden too.
func (s *setup) hide() {
	paths := slices.Clone(s.credentials)
	for _, m := range s.mounts {
		for _, h := range m.hidden {
			paths = append(paths, m.target+"/"+h)
		}
	}
	if len(paths) == 0 {
		return
	}
	const file, folder = lobby + "/file", lobby + "/folder"
	s.Call("cover for hidden files", unix.SYS_MOUNT, "waldo", lobby, "tmpfs", quiet, "size=4096,nr_inodes=4,mode=755")
	s.Call("cover for hidden files", unix.SYS_MKDIRAT, atCWD, folder, 0o755)
	s.write(file, "", unix.O_CREAT)
	for i, p := range paths {
		from, at := file, path.Clean(p)
		if strings.HasSuffix(p, "/") {
			from = folder
		}
		there := len(s.Steps)
		if i < len(s.credentials) { // those are of the template's root, of which not every folder is shown
			s.Call("look for "+at, unix.SYS_FACCESSAT, atCWD, at, 0)
		}
		s.Call("hide "+at, unix.SYS_MOUNT, from, at, 0, unix.MS_BIND, 0)
		s.attributes(at, sealed, false)
		if i < len(s.credentials) {
			s.Steps[there].Fail = initvm.To(len(s.Steps))
		}
	}
}

// bindWritable appends the mounting of a folder itself. A sealed path is bind-mounted on itself, read-only: a mount
// point can be neither renamed nor removed. Each folder above it or a hidden path is a mount point too, below the mount
// that is seen, so that files can be renamed and linked across it. Only the files of a live folder can be watched:
// inodes are the host's.
func (s *setup) bindWritable(name, from, at string, m shown) {
	s.unwatched = true
	s.Call(name, unix.SYS_MOUNT, from, at, 0, unix.MS_BIND, 0)
	pinned := map[string]bool{}
	for _, kept := range slices.Concat(m.seals, m.hidden) {
		below := ""
		for part := range strings.SplitSeq(path.Dir(strings.TrimSuffix(kept, "/")), "/") {
			if below = path.Join(below, part); below != "." && !pinned[below] {
				pinned[below] = true
				pin := path.Join(at, below)
				s.Call("pin "+pin, unix.SYS_MOUNT, pin, pin, 0, unix.MS_BIND, 0)
			}
		}
	}
	if len(pinned) > 0 {
		s.Call(name, unix.SYS_MOUNT, from, at, 0, unix.MS_BIND, 0)
	}
	s.attributes(at, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, false)
	s.lend(at, m.lent)
	for _, seal := range m.seals {
		if m.lent[seal] != "" {
			continue
		}
		seal = path.Join(at, seal)
		s.Call("cover "+seal, unix.SYS_MOUNT, seal, seal, 0, unix.MS_BIND|unix.MS_REC, 0)
		s.attributes(seal, sealed, true)
	}
}

// lend appends the mounting of a link over each lent file: a mount point can be neither renamed nor removed, and nothing
// is opened through it but what the link leads to.
func (s *setup) lend(at string, lent map[string]string) {
	if len(lent) == 0 {
		return
	}
	s.Call("links of lent files", unix.SYS_MOUNT, "waldo", lobby, "tmpfs", quiet,
		fmt.Sprintf("size=4096,nr_inodes=%d,mode=755", len(lent)+2))
	for i, name := range slices.Sorted(maps.Keys(lent)) {
		link, over := fmt.Sprintf("%s/%d", lobby, i), path.Join(at, name)
		s.Call("link for "+over, unix.SYS_SYMLINKAT, lent[name], atCWD, link)
		s.Call("lend "+over, unix.SYS_OPEN_TREE, atCWD, link,
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		s.Call("lend "+over, unix.SYS_MOVE_MOUNT, s.free, "", atCWD, over, unix.MOVE_MOUNT_F_EMPTY_PATH)
		s.Call("close "+over, unix.SYS_CLOSE, s.free)
	}
}

// overlay appends the mounting of an overlay of a folder, which the host knows as lower.
func (s *setup) overlay(from, lower, at, name string) {
	s.Call(name, unix.SYS_CHDIR, from)
	s.Call(overlayOf+lower, unix.SYS_MOUNT, "waldo", at, "overlay", quiet|unix.MS_RDONLY, layers)
	s.Call("return to the root", unix.SYS_CHDIR, "/")
}

// refresh lets the sandbox see what has changed in the folders that it is shown: an overlay keeps the names that it
// has looked up. Remounting it, with the flags that it has, forgets them.
func (b *instance) refresh() {
	for _, f := range b.overlays {
		fd := int(f.Fd())
		_ = unix.FsconfigSetFlag(fd, "ro") // a failure leaves the names as they were
		_ = unix.FsconfigReconfigure(fd)
	}
}

// closeOverlays closes the overlays' descriptors.
func (b *instance) closeOverlays() {
	for _, f := range slices.Backward(b.overlays) {
		f.Close()
	}
	b.overlays = nil
}
