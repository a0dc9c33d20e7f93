//go:build linux

package volume

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// Volume is a volume of a sandbox: waldo holds its filesystem by a descriptor, which outlives the sandbox.
type Volume struct {
	sandbox.Tmpfs
	Dir   *os.File
	Owner string // the principal, as of the profile
}

// others reports whether an entry at the top of the place belongs to another place.
func (p Volume) others(e Entry) bool { return slices.Contains(p.Except, e.Path) }

// Export copies the contents of the exported volume at target to a folder of the host, and makes the folder if
// needed. Together with its present contents the folder never holds more than the volume could, so that a later
// sandbox can start from it. Export returns the paths of the files, relative to the folder. It skips files that
// cannot be copied and names them in the error.
func Export(places []Volume, target, dir string) ([]string, error) {
	for _, p := range places {
		if p.Target != target || !p.Tmpfs.Export {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("export: %w", err)
		}
		to, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("export: %w", err)
		}
		defer to.Close()
		room, err := roomOf(to, p)
		copied, cerr := copyTree(p.Owner, p.Dir, to, p.Bytes, nil, func(e Entry) bool { return !p.others(e) && room.takes(e) })
		if err = errors.Join(err, cerr, room.err()); err != nil {
			err = fmt.Errorf("export of %s: %w", target, err)
		}
		return copied, err
	}
	return nil, fmt.Errorf("export: %q is not a place of this sandbox that may be exported", target)
}

// Fill copies what a place starts with into it, as the user that the sandbox belongs to.
func (p Volume) Fill(uid, gid int) error {
	if p.Seed == "" {
		return nil
	}
	from, err := os.Open(p.Seed)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Target, err)
	}
	defer from.Close()
	want := func(e Entry) bool { return !e.temporary() && (p.Only == nil || slices.Contains(p.Only, e.Path)) }
	if _, err := copyTree(p.Owner, from, p.Dir, p.Bytes, AsUser(uid, gid), want); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n") // the others are as many as there are files
		return sandbox.WithHint(fmt.Errorf("filling %s: %s: %w", p.Target, first, sandbox.ErrFiles),
			fmt.Sprintf("its files must fit into %d MB and %d files and folders: --disk-mb, or fewer of them", p.Bytes>>20,
				p.Inodes))
	}
	return nil
}

// Used returns the bytes in the place, and whether nothing more fits.
func (p Volume) Used() (bytes int64, full bool) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(p.Dir.Fd()), &st); err != nil {
		return 0, false
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, st.Bfree == 0 || st.Ffree == 0
}

// stamp tells one state of a file from another.
type stamp struct {
	inode   uint64
	size    int64
	changed unix.Timespec
}

// State lists the files and folders in the exported volumes of a sandbox, and the entries that cannot be
// exported. A sandbox chooses their number and the length of their names. So a State holds at most maxSeen of
// them and maxSeenNames bytes of paths, and is partial beyond that.
type State struct {
	Files        map[string]stamp
	folders      map[string]bool
	Unexportable []string
	names        int  // bytes of the paths it holds
	more         int  // entries it does not hold
	unread       bool // an entry could not be read
}

const (
	maxSeen         = 10_000
	maxSeenNames    = 1 << 20
	maxUnexportable = 50
)

// takes reports whether the state has room for one more path, and counts it.
func (s *State) takes(name string) bool {
	if len(s.Files)+len(s.folders) >= maxSeen || s.names+len(name) > maxSeenNames {
		s.more++
		return false
	}
	s.names += len(name)
	return true
}

func (s State) partial() bool { return s.more > 0 || s.unread }

// Scan returns the state of the places.
func Scan(places []Volume) State {
	s := State{Files: map[string]stamp{}, folders: map[string]bool{}}
	odd := 0
	for _, p := range places {
		if !p.Tmpfs.Export {
			continue
		}
		err := Walk(p.Dir, func(e Entry) bool {
			at := path.Join(p.Target, e.Path)
			switch {
			case p.others(e):
				return false
			case !e.Regular() && !e.Directory():
				if odd++; odd <= maxUnexportable {
					s.Unexportable = append(s.Unexportable, clip(at)+" is "+e.Kind()+" and will not be exported")
				}
			case !s.takes(at):
				return false
			case e.Regular():
				s.Files[at] = stamp{e.Stat.Ino, e.Stat.Size, e.Stat.Ctim}
			default:
				s.folders[at] = true
			}
			return true
		})
		if err != nil {
			s.Unexportable, s.unread = append(s.Unexportable, p.Target+": "+err.Error()), true
		}
	}
	if odd > maxUnexportable {
		s.Unexportable = append(s.Unexportable, fmt.Sprintf("%d more that will not be exported", odd-maxUnexportable))
	}
	if s.more > 0 {
		s.Unexportable = append(s.Unexportable,
			fmt.Sprintf("the list of written files is partial: at most %d files and folders, and %d KB of names", maxSeen,
				maxSeenNames>>10))
	}
	return s
}

// Written returns the files that are new or changed since before. If before was partial, a file that it does
// not hold counts as new.
func (s State) Written(before State) []string {
	out := []string{}
	for name, st := range s.Files {
		if old, ok := before.Files[name]; !ok || old != st {
			out = append(out, name)
		}
	}
	return out
}

// Changed fills in the files that differ from before.
func (s State) Changed(f *facts.Facts, before State) {
	f.Files.Written = s.Written(before)
	slices.Sort(f.Files.Written)
	f.Files.Artifacts = append(f.Files.Artifacts, f.Files.Written...)
	f.Warnings = append(f.Warnings, s.Unexportable...)
	f.Files.Partial = s.partial() || before.partial()
	if s.partial() {
		return // a partial state cannot prove a removal
	}
	for name := range before.Files {
		if _, ok := s.Files[name]; !ok {
			f.Files.Removed = append(f.Files.Removed, name)
		}
	}
	for name := range before.folders {
		if !s.folders[name] {
			f.Files.Removed = append(f.Files.Removed, name)
		}
	}
	slices.Sort(f.Files.Removed)
	slices.Reverse(f.Files.Removed)
}

// Disk fills in the use of the volumes and the files that are new in them. It reports whether one volume is
// full.
func Disk(f *facts.Facts, places []Volume, before State) bool {
	anyFull := false
	for _, p := range places {
		n, full := p.Used()
		f.Usage.DiskBytes += n
		anyFull = anyFull || full
	}
	Scan(places).Changed(f, before)
	return anyFull
}
