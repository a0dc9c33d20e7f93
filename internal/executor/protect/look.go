package protect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"waldo/internal/detect/pattern"
	"waldo/internal/executor/keyfiles"
	"waldo/internal/storage/safefile"
)

// Found is a protected name that exists in a folder.
type Found struct {
	Path   string // below the folder, with slashes
	Row    Row
	Mode   fs.FileMode
	Hidden bool   // it shows as empty
	Link   string // where a link in a repository leads; empty: it is none
}

// MarshalJSON keeps names that are not UTF-8.
func (f Found) MarshalJSON() ([]byte, error) {
	type plain Found
	f.Path, f.Link = safefile.Text(f.Path), safefile.Text(f.Link)
	return json.Marshal(plain(f))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Found) UnmarshalJSON(b []byte) error {
	type plain Found
	err := json.Unmarshal(b, (*plain)(f))
	f.Path, f.Link = safefile.Name(f.Path), safefile.Name(f.Link)
	return err
}

// linked is the row of a link in a repository, as logs/HEAD to a hook or a shell's start file.
var linked = Row{Pattern: "git:", Kind: Seal, Reason: "git writes through this link"}

// irregular is the row of a pipe, socket or device that appeared in a repository, as .git/index.
var irregular = Row{Pattern: "git:", Kind: Seal, Reason: "git waits at it, because it is no file"}

func isIrregular(mode fs.FileMode) bool {
	return mode&(fs.ModeSocket|fs.ModeNamedPipe|fs.ModeDevice|fs.ModeIrregular) != 0
}

// MaxFound bounds the protected names of one folder: each is a mount.
const MaxFound = 400

// ErrMany is returned for a folder with too many protected names.
var ErrMany = errors.New("too many protected names")

// Look returns the protected names of a folder, outermost ones alone, sorted. Below node_modules, repositories alone
// count, and the objects of a folder .git are left out, where git takes no path. It follows no link.
func (r Rules) Look(root *os.Root) ([]Found, error) {
	if err := keyfiles.OutsideState(root.Name()); err != nil {
		return nil, err
	}
	return r.found(&walk{rules: r, root: root})
}

// lookInto is Look after a run: it looks into folders whose modes the run has taken from their owner, too.
func (r Rules) lookInto(root *os.Root) ([]Found, error) {
	return r.found(&walk{rules: r, root: root, after: true})
}

func (r Rules) found(w *walk) ([]Found, error) {
	if err := w.folder(".", r.base, r.inGit); err != nil {
		return nil, err
	}
	slices.SortFunc(w.found, func(a, b Found) int { return strings.Compare(a.Path, b.Path) })
	return w.found, nil
}

// made is the row of a name that makes a folder a repository: what is in it counts from then on.
var made = Row{Pattern: "git:", Kind: Seal, Reason: "with it, git takes the folder for a repository"}

// Marks returns the names of a folder of writes that went aside which a person must look at before taking them: those of
// Look, and those that are shown. A folder is a repository by what it holds together with the same folder below: those
// are returned, too.
func (r Rules) Marks(aside, below *os.Root) (marks map[string]Row, repositories []string, err error) {
	w := walk{rules: r, root: aside, below: below, marks: map[string]Row{}}
	err = w.folder(".", r.base, r.inGit)
	return w.marks, w.repositories, err
}

// maxDepth is how many folders deep a folder is looked through: the time grows with the square of the depth.
const maxDepth = 256

// deep is the row of a folder below that.
var deep = Row{Pattern: "deep", Kind: Seal, Reason: "it is too deep to be looked through"}

// Deep reports a folder that is too deep to be looked through, or copied.
func (f Found) Deep() bool { return f.Row.Pattern == deep.Pattern }

type walk struct {
	rules Rules
	marks map[string]Row // with it, what is found goes there
	root  *os.Root
	below *os.Root // what the names of root go over; nil: nothing
	after bool     // the run is over: a folder that cannot be read is opened, or an error
	found []Found

	repositories []string
}

func (w *walk) folder(dir string, names, inGit []string) error {
	all, err := list(w.root, dir)
	if err != nil && w.after && errors.Is(err, fs.ErrPermission) {
		var close func()
		if close, err = w.opened(dir); err == nil {
			defer close()
			all, err = list(w.root, dir)
		}
	}
	if err != nil && !w.after || errors.Is(err, fs.ErrNotExist) {
		return unreadable(err)
	}
	if err != nil {
		return err
	}
	if keyfiles.IsState(all) && w.marks == nil {
		return fmt.Errorf("%s: %w", dir, keyfiles.ErrState)
	}
	if isGit(names, w.with(dir, all)) && !branches(names, inGit) {
		inGit, w.repositories = []string{}, append(w.repositories, dir)
	}
	for _, e := range all {
		if err := w.entry(dir, e, names, inGit); err != nil {
			return err
		}
	}
	return nil
}

// with adds what a folder below has to the entries of one, and marks those that make it a repository.
func (w *walk) with(dir string, all []fs.DirEntry) []fs.DirEntry {
	if w.below == nil {
		return all
	}
	low, err := list(w.below, dir)
	both := slices.Concat(all, low)
	if err != nil || len(low) == 0 || isGit(nil, low) || !isGit(nil, both) {
		return both
	}
	for _, e := range all {
		if slices.Contains(repository, keyfiles.Folded(e.Name())) {
			w.marks[path.Join(dir, e.Name())] = made
		}
	}
	return both
}

// list returns the entries of a folder below a root, whatever its name.
func list(root *os.Root, dir string) ([]fs.DirEntry, error) {
	f, err := safefile.OpenFolder(root, dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return entries(f)
}

// opened gives the owner the rights to a folder, until close.
func (w *walk) opened(dir string) (close func(), err error) {
	info, err := w.root.Lstat(dir)
	if err == nil && info.IsDir() {
		err = w.root.Chmod(dir, info.Mode().Perm()|0o700)
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = w.root.Chmod(dir, info.Mode().Perm()) }, nil
}

// unreadable drops the error of a folder that the person cannot read, because a sandbox cannot either, and of one that
// is gone.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func (w *walk) entry(dir string, e fs.DirEntry, names, inGit []string) error {
	at, folded := path.Join(dir, e.Name()), keyfiles.Folded(e.Name())
	names = append(names[:len(names):len(names)], folded)
	if inGit != nil {
		inGit = append(inGit[:len(inGit):len(inGit)], folded)
	}
	row, ok := w.rules.match(names, inGit)
	if branches(names, inGit) {
		ok = false
	}
	link := w.link(at, e, inGit)
	if link != "" && !ok {
		row, ok = linked, true
	}
	if ok && !row.git && row.Pattern != ".git" && slices.Contains(names[len(w.rules.base):len(names)-1], modules) {
		ok = false // a package's own settings
	}
	if ok && folded == ".git" && row.Pattern == ".git" && e.IsDir() {
		ok = false // a repository: what is in it counts
	}
	if !ok && w.after && inGit != nil && isIrregular(e.Type()) {
		row, ok = irregular, true
	}
	if !ok && w.marks == nil && isIrregular(e.Type()) {
		row, ok = Row{Pattern: e.Name(), Kind: Hide, Reason: "connects with programs of this machine"}, true
	}
	if !ok && e.IsDir() && len(names)-len(w.rules.base) > maxDepth {
		row, ok = deep, true
	}
	if ok && w.marks != nil {
		w.marks[at] = row
		return nil
	}
	if ok && row.Kind != Show {
		hidden := row.Kind == Hide && (e.IsDir() || !ifPrivate[row.Pattern] || w.holds(at, private())) ||
			row.Kind == Key && w.holds(at, password())
		if row.Kind == Hide && !hidden {
			return nil
		}
		if len(w.found) == MaxFound && !w.after { // to take a name out needs no mount
			return fmt.Errorf("%w: more than %d", ErrMany, MaxFound)
		}
		w.found = append(w.found, Found{Path: at, Row: row, Mode: e.Type(), Hidden: hidden, Link: link})
		return nil
	}
	if !e.IsDir() || plain(names, inGit) {
		return w.objects(at, e)
	}
	return w.folder(at, names, inGit)
}

// objects looks for pipes and the like in a folder that holds nothing but objects, after a run.
func (w *walk) objects(dir string, e fs.DirEntry) error {
	if !e.IsDir() || !w.after {
		return nil
	}
	all, err := list(w.root, dir)
	for _, o := range all {
		if isIrregular(o.Type()) {
			w.found = append(w.found, Found{Path: path.Join(dir, o.Name()), Row: irregular, Mode: o.Type()})
		}
	}
	return unreadable(err)
}

// modules is the name of folders of packages, which hold many names like the protected ones.
const modules = "node_modules"

// link returns where a link in a repository leads: git writes through it. Empty: it is none, or a HEAD that is a link to a
// branch, which git replaces.
func (w *walk) link(at string, e fs.DirEntry, inGit []string) string {
	if inGit == nil || e.Type()&fs.ModeSymlink == 0 {
		return ""
	}
	to, err := w.root.Readlink(at)
	if err != nil {
		return "?"
	}
	if len(inGit) == 1 && inGit[0] == "head" && strings.HasPrefix(path.Clean(to), "refs/heads/") {
		return ""
	}
	return to
}

// branches reports a folder or file of a folder .git that branches give their names to.
func branches(names, inGit []string) bool {
	return len(inGit) > 0 && (inGit[0] == "refs" || inGit[0] == "logs") && slices.Contains(names[:len(names)-len(inGit)], ".git")
}

// plain reports whether a folder of a repository holds nothing but objects. Git refuses paths through a
// folder .git in its index; a repository below no such folder can hold others at any depth.
func plain(names, inGit []string) bool {
	if !slices.Contains(names[:len(names)-len(inGit)], ".git") {
		return false
	}
	return len(inGit) == 2 && inGit[0] == "objects" && inGit[1] != "info"
}

// repository holds the names by which git knows a repository.
var repository = []string{"head", "commondir", "objects", "refs"}

// isGit reports whether git takes a folder for a repository, or for the part of one that belongs to a working tree.
func isGit(names []string, all []fs.DirEntry) bool {
	if len(names) > 0 && names[len(names)-1] == ".git" {
		return true
	}
	has := map[string]bool{}
	for _, e := range all {
		has[keyfiles.Folded(e.Name())] = true
	}
	return has["head"] && (has["commondir"] || has["objects"] && has["refs"])
}

// ifPrivate are the patterns of files that are hidden only if they hold a private key.
var ifPrivate = map[string]bool{"*.pem": true, "*.key": true}

var (
	private  = pattern.Lazy(`PRIVATE KEY|AGE-SECRET-KEY|^[^ -~]`)
	password = pattern.Lazy(`(?i)_auth|token|passw|secret|api_?key|credential`)
)

// holds reports whether the first bytes of a file match. A file that cannot be read does.
func (w *walk) holds(at string, what *regexp.Regexp) bool {
	const most = 64 << 10
	f, err := safefile.OpenIn(w.root, at)
	if err != nil {
		return !errors.Is(err, safefile.ErrIrregular)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	return err != nil || what.Match(bytes.TrimSpace(b))
}
