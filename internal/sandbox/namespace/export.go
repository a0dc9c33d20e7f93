//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// place is a writable place of a box: waldo holds its filesystem by a descriptor, which outlives
// the box.
type place struct {
	sandbox.Tmpfs
	dir *os.File
}

// Export copies what the last run left in an exported Tmpfs to a folder of the host, which it
// makes if need be. It returns the paths of the files, from the folder. Files that cannot be
// copied are in the error; the rest is copied all the same.
func (b *box) Export(target, dir string) ([]string, error) {
	b.running.Lock()
	defer b.running.Unlock()
	for _, p := range b.places {
		if p.Target != target || !p.Export {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("namespace: export: %w", err)
		}
		to, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("namespace: export: %w", err)
		}
		defer to.Close()
		copied, err := copyTree(p.dir, to, p.Bytes, nil)
		if err != nil {
			err = fmt.Errorf("namespace: export of %s: %w", target, err)
		}
		return copied, err
	}
	return nil, fmt.Errorf("namespace: export: %q is not a place of this box that may be exported", target)
}

// seed copies what a place starts with into it.
func (p place) seed(uid, gid int) error {
	if p.Seed == "" {
		return nil
	}
	from, err := os.Open(p.Seed)
	if err != nil {
		return fmt.Errorf("namespace: %s: %w", p.Target, err)
	}
	defer from.Close()
	if _, err := copyTree(from, p.dir, p.Bytes, asUser(uid, gid)); err != nil {
		return fmt.Errorf("namespace: filling %s: %w", p.Target, err)
	}
	return nil
}

// used returns the bytes in the place, and whether nothing more fits.
func (p place) used() (bytes int64, full bool) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(p.dir.Fd()), &st); err != nil {
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

// state is what is in the exported places of a box: every file, and what cannot be exported.
type state struct {
	files map[string]stamp
	odd   []string
}

func (b *box) look() state {
	s := state{files: map[string]stamp{}}
	for _, p := range b.places {
		if !p.Export {
			continue
		}
		err := walk(p.dir, func(e entry) bool {
			at := path.Join(p.Target, e.path)
			switch {
			case e.regular():
				s.files[at] = stamp{e.stat.Ino, e.stat.Size, e.stat.Ctim}
			case !e.directory():
				s.odd = append(s.odd, at+" is "+e.kind()+" and will not be exported")
			}
			return true
		})
		if err != nil {
			s.odd = append(s.odd, p.Target+": "+err.Error())
		}
	}
	return s
}
