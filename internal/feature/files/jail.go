// Package files gives agents the files of one folder: files.read, files.write and their like. Each path is walked
// one component at a time from an open folder, so that no name, link or race leads outside.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"waldo/internal/model/contract"
	"waldo/internal/storage/safefile"
)

// Limits of a path.
const (
	maxPath  = 4000 // bytes
	maxParts = 255
	maxHops  = 40 // links that one path goes through
)

// The ways in which a path is refused. Their texts are for the model.
var (
	errOutside = errors.New("it leads out of the folder of this tool")
	errPath    = errors.New("a path is relative to the folder of this tool, as in src/main.go; at most 4,000 bytes, no NUL")
	errJudged  = errors.New("conditions judge this path: write it plainly, without ./, ../ and links, as in src/main.go")
	errSpecial = errors.New("it is a device, pipe or socket; this tool opens regular files and folders alone")
	errChanged = safefile.ErrChanged
	errNotOurs = errors.New("somebody else changed it since an earlier call of the list")
	errFolder  = errors.New("it is a folder")
	errNoDir   = safefile.ErrNoFolder
)

// jail is the open folder of a contract. Nothing outside of it can be named.
type jail struct {
	root          *os.Root
	dir           string // its path without links
	state, config string // folded names in it of waldo's state directory and configuration; empty: they are elsewhere
	judged        bool   // conditions on the arguments decided the call: a path must say where it leads
}

// openJail opens a folder by a path without links. It goes from folder to folder: a link that appears on the way after
// the path was checked is refused.
func openJail(dir string) (*jail, error) {
	top := filepath.VolumeName(dir) + string(filepath.Separator)
	r, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(strings.Trim(dir[len(top)-1:], string(filepath.Separator)), string(filepath.Separator)) {
		if part == "" {
			continue
		}
		next, err := safefile.Step(r, part)
		_ = r.Close()
		if err != nil {
			return nil, err
		}
		r = next
	}
	return &jail{root: r, dir: dir}, nil
}

// unseen reports a name that files tools do not show: of the trash, of a file being written, or of waldo's state.
func (j *jail) unseen(name string) bool {
	return hidden(name) || j.state != "" && contract.Within(folded(name), j.state)
}

// absolute reports a path that Windows would read as one: with a drive, or its separators.
func absolute(p string) bool { return runtime.GOOS == "windows" && strings.ContainsAny(p, `\:`) }

func (j *jail) Close() { _ = j.root.Close() }

// place is one name in an open folder. Name is the whole path without links, from the root of the jail: "." is the
// root itself. The caller closes it.
type place struct {
	dir    *os.Root
	base   string // without a separator; "." is dir itself
	name   string
	folder bool // the path ended as a folder's does
}

func (p *place) Close() { _ = p.dir.Close() }

// info returns the file information of the place, of a link the link's own.
func (p *place) info() (fs.FileInfo, error) {
	i, err := p.dir.Lstat(p.base)
	if err == nil && p.folder && !i.IsDir() {
		return nil, errNoDir
	}
	return i, err
}

// How a path is walked.
type how uint8

const (
	follow how = 1 << iota // a link at the end is followed, too
	create                 // missing folders on the way are made
)

// walk finds the place of a path. It goes from open folder to open folder and follows links itself, so that ".." and
// links count from where they really are. An error wraps errPath, errOutside or an error of the system.
func (j *jail) walk(p string, h how) (*place, error) {
	if p == "" || len(p) > maxPath || strings.ContainsRune(p, 0) || !utf8.ValidString(p) {
		return nil, errPath
	}
	if path.IsAbs(p) || absolute(p) {
		return nil, fmt.Errorf("%w; write it from there, as in src/main.go", errOutside)
	}
	if c := path.Clean(p); c == ".." || strings.HasPrefix(c, "../") {
		return nil, errOutside
	}
	w := walker{parts: split(p), how: h, jail: j}
	defer w.close()
	top, err := j.root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	w.dirs = []*os.Root{top}
	for w.hops <= maxHops && len(w.names) <= maxParts {
		found, err := w.next()
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, syscall.ELOOP
}

// split cuts a path into its parts. A path that ends as a folder's does has "." as its last part.
func split(p string) []string {
	parts := strings.Split(p, "/")
	if last := len(parts) - 1; parts[last] == "" {
		parts[last] = "."
	}
	return parts
}

// walker is a walk under way.
type walker struct {
	parts []string   // that are left
	dirs  []*os.Root // the open folders on the way, the root first
	names []string   // of all but the first
	how   how
	hops  int

	*jail
}

func (w *walker) close() {
	for _, d := range w.dirs {
		_ = d.Close()
	}
}

// ends reports whether only "." is left, and so the part before it is the last.
func (w *walker) ends() bool {
	for _, p := range w.parts {
		if p != "" && p != "." {
			return false
		}
	}
	return true
}

// next goes one part further. It returns the place at the last part.
func (w *walker) next() (*place, error) {
	if w.ends() {
		return w.place(".", true), nil
	}
	part := w.parts[0]
	w.parts = w.parts[1:]
	here := w.dirs[len(w.dirs)-1]
	switch part {
	case "", ".":
		return nil, nil
	case "..":
		if len(w.names) == 0 {
			return nil, errOutside
		}
		_ = here.Close()
		w.dirs, w.names = w.dirs[:len(w.dirs)-1], w.names[:len(w.names)-1]
		return nil, nil
	}
	last, folder := w.ends(), len(w.parts) > 0
	info, err := here.Lstat(part)
	switch {
	case err == nil && !named(here, part, info, w.judged):
		return nil, errName
	case errors.Is(err, fs.ErrNotExist) && last:
		return w.place(part, folder), nil
	case errors.Is(err, fs.ErrNotExist) && w.how&create != 0 && !w.climbs():
		name := path.Join(path.Join(w.names...), part)
		if w.unseen(name) {
			return nil, fs.ErrNotExist
		}
		if err := protects(name, true); err != nil { // before anything is made
			return nil, err
		}
		if err := here.Mkdir(part, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		return nil, w.enter(here, part)
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0 && (!last || folder || w.how&follow != 0):
		return nil, w.link(here, part)
	case last:
		return w.place(part, folder), nil
	case !info.IsDir():
		return nil, errNoDir
	}
	return nil, w.enter(here, part)
}

// named reports whether a folder lists a file under the name that found it. Where case does not count, and by the short
// names of Windows, other names find it, too. Case matters where a condition judged the name.
func named(here *os.Root, part string, found fs.FileInfo, judged bool) bool {
	other := strings.ToUpper(part)
	if other == part {
		other = strings.ToLower(part)
	}
	if !strings.Contains(part, "~") {
		if info, err := here.Lstat(other); !judged || other == part || err != nil || !os.SameFile(info, found) {
			return true
		}
	}
	f, err := here.Open(".")
	if err != nil {
		return false
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	return err == nil && slices.Contains(names, part)
}

// climbs reports whether a ".." is left: a folder that is only passed through is not made.
func (w *walker) climbs() bool {
	for _, p := range w.parts {
		if p == ".." {
			return true
		}
	}
	return false
}

func (w *walker) enter(here *os.Root, part string) error {
	next, err := safefile.Step(here, part)
	if err != nil {
		return err
	}
	w.dirs, w.names = append(w.dirs, next), append(w.names, part)
	return nil
}

// link puts the target of a link in its place. An absolute one leads outside by definition.
func (w *walker) link(here *os.Root, part string) error {
	target, err := here.Readlink(part)
	if err != nil {
		return err
	}
	if target == "" || path.IsAbs(target) || absolute(target) || len(target) > maxPath {
		return errOutside
	}
	w.hops++
	if w.parts = append(split(target), w.parts...); len(w.parts) > 10*maxParts {
		return syscall.ELOOP
	}
	return nil
}

// place returns the name in the current folder, which the place takes over.
func (w *walker) place(base string, folder bool) *place {
	last := len(w.dirs) - 1
	p := &place{dir: w.dirs[last], base: base, name: path.Join(path.Join(w.names...), base), folder: folder}
	w.dirs = w.dirs[:last]
	return p
}

// open opens the regular file of a place for reading. A pipe does not block it, and a device is not opened.
func (p *place) open() (*os.File, fs.FileInfo, error) {
	was, err := p.info()
	if err != nil {
		return nil, nil, err
	}
	if err := regular(was); err != nil {
		return nil, nil, err
	}
	looked()
	f, err := p.dir.OpenFile(p.base, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	is, err := f.Stat()
	if err == nil && (!os.SameFile(was, is) || regular(is) != nil) {
		err = errChanged
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, is, nil
}

// looked is called between the look at a file and its open, for a test.
var looked = func() {}

func regular(i fs.FileInfo) error {
	switch {
	case i.IsDir():
		return errFolder
	case i.Mode()&fs.ModeSymlink != 0:
		return errChanged
	case !i.Mode().IsRegular():
		return errSpecial
	}
	return nil
}
