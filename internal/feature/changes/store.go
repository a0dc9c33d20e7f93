package changes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/executor/protect"
	"waldo/internal/executor/runner"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
)

// Store keeps the changes of runs in a folder each, by the id of their call.
type Store struct{ dir string }

// The modes of a record, and what became of it.
const (
	Listed  = "listed" // as Keep, without copies: no --changes was given
	Keep    = "keep"
	Review  = "review"
	Discard = "discard"
)

// Record is the changes of one run.
type Record struct {
	ID      string    `json:"id"`
	Mode    string    `json:"mode"`
	Begun   time.Time `json:"begun"` // by the clock of file systems: a later change of a file has a later time, or this one
	Folders []*Folder `json:"folders"`
}

// stays reports whether the run wrote to the folders themselves.
func (r *Record) stays() bool { return r.Mode == Keep || r.Mode == Listed }

// Folder is what changed below one writable mount.
type Folder struct {
	Source  string   `json:"source"`
	Target  string   `json:"target"`
	Entries []*Entry `json:"entries"` // sorted: removed names before those that take their places
	Partial bool     `json:"partial,omitempty"`
	Held    []string `json:"held,omitempty"` // protected names that appeared; copies are in held/N

	Repositories []string `json:"repositories,omitempty"` // folders of writes aside that git took for repositories
}

// Op is what happened to a name.
type Op string

// The changes.
const (
	Added    Op = "added"
	Modified Op = "modified"
	Removed  Op = "removed"
	Renamed  Op = "renamed"
)

// Entry is one change of a name below a folder.
type Entry struct {
	Path      string      `json:"path"`
	Op        Op          `json:"op"`
	From      string      `json:"from,omitempty"`      // of Renamed
	Mode      fs.FileMode `json:"mode"`                // after it; of Removed before it
	Was       fs.FileMode `json:"was,omitempty"`       // of Modified: before it
	Copied    bool        `json:"copied,omitempty"`    // it had a lower file, which went aside
	Protected string      `json:"protected,omitempty"` // the reason of the table
	State     string      `json:"state"`               // made, waiting, dropped, undone
	After     *stamp      `json:"after,omitempty"`     // of the file that waldo or the run has left
	Before    bool        `json:"before,omitempty"`    // a copy of what was there is in before/N
}

// MarshalJSON keeps names that are not UTF-8.
func (e *Entry) MarshalJSON() ([]byte, error) {
	type plain Entry
	p := plain(*e)
	p.Path, p.From = safefile.Text(p.Path), safefile.Text(p.From)
	return json.Marshal(p)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Entry) UnmarshalJSON(b []byte) error {
	type plain Entry
	err := json.Unmarshal(b, (*plain)(e))
	e.Path, e.From = safefile.Name(e.Path), safefile.Name(e.From)
	return err
}

// The states of an entry.
const (
	made    = "made"
	waiting = "waiting"
	dropped = "dropped"
	undone  = "undone"
)

// ErrAbsent is returned for an id without a record.
var ErrAbsent = errors.New("no such changes")

func (s *Store) at(call string, names ...string) string {
	return filepath.Join(append([]string{s.dir, call}, names...)...)
}

// Load reads a record.
func (s *Store) Load(call string) (*Record, error) {
	if !id.Is(id.Call, call) {
		return nil, fmt.Errorf("%w: %q is not the id of a call", ErrAbsent, call)
	}
	b, err := os.ReadFile(s.at(call, "record.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrAbsent, call)
	}
	var r Record
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return &r, err
}

// List returns all records, the newest first.
func (s *Store) List() (all []*Record, err error) {
	names, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, n := range slices.Backward(names) { // ids sort by time
		if r, bad := s.Load(n.Name()); bad == nil {
			all = append(all, r)
		}
	}
	return all, err
}

func (s *Store) save(r *Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := s.at(r.ID, "record.json.tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, s.at(r.ID, "record.json"))
}

// remove deletes a run's folder, also the folders of an overlay that nobody may enter.
func (s *Store) remove(call string) error { return os.RemoveAll(s.at(call)) }

// sweep removes the records that are older than a time, and what ended waldos have left of runs.
func (s *Store) sweep(before time.Time) error {
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return nil // nothing is kept
	}
	var errs []error
	for _, n := range names {
		info, err := n.Info()
		if err == nil && info.ModTime().Before(before) {
			errs = append(errs, s.remove(n.Name()))
		}
	}
	return errors.Join(errs...)
}

// ledger is one run under way.
type ledger struct {
	store   *Store
	record  *Record
	rules   []protect.Rules
	roots   []*os.Root // of the folders
	before  []*tree    // where the changes stay
	copies  []*archive // with Keep, where they were asked for
	discard bool
	done    bool
}

// Begin implements runner.Changes.
func (s *Store) Begin(call, mode string, folders []runner.Folder) (_ runner.Ledger, err error) {
	l := &ledger{store: s, record: &Record{ID: call, Mode: mode, Begun: coarse()}, discard: mode == Discard}
	if mode == "" {
		l.record.Mode = Listed
	}
	if err := os.MkdirAll(s.at(call), 0o700); err != nil {
		return nil, err
	}
	for i, f := range folders {
		l.record.Folders = append(l.record.Folders, &Folder{Source: f.Source, Target: f.Target})
		l.rules, l.roots = append(l.rules, f.Rules), append(l.roots, f.Root)
		if !l.record.stays() {
			err = errors.Join(err, s.makeAside(call, i, f.Root))
			continue
		}
		t := look(f.Root)
		l.before, l.copies = append(l.before, t), append(l.copies, nil)
		if mode == Keep {
			var bad error
			l.copies[i], bad = pack(f.Root, t, s.at(call, fmt.Sprint("copies", i)))
			err = errors.Join(err, bad)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.remove(call))
	}
	return l, nil
}

// makeAside makes the folders of an overlay, which belong to the owner of the folder.
func (s *Store) makeAside(call string, n int, source *os.Root) error {
	info, err := source.Stat(".")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(s.at(call))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, d := range []string{"", "upper", "work"} {
		d = path.Join(asideDir(n), d)
		if err := root.Mkdir(d, 0o700); err != nil {
			return err
		}
		if err := ownedAs(root, d, info); err != nil {
			return err
		}
	}
	return root.Chmod(path.Join(asideDir(n), "upper"), info.Mode().Perm())
}

// Aside implements runner.Ledger.
func (l *ledger) Aside(folder int) string {
	if l.record.stays() {
		return ""
	}
	at, err := filepath.Abs(l.store.at(l.record.ID, asideDir(folder)))
	if err != nil {
		return l.store.dir // no folder of an overlay: the sandbox does not start
	}
	return at
}

// Hold implements runner.Ledger: a copy goes to held/N. What is too large or cannot be read has none.
func (l *ledger) Hold(folder int, path string) error {
	f := l.record.Folders[folder]
	f.Held = append(f.Held, path)
	left, err := safefile.CopyTree(l.roots[folder], path, l.store.at(l.record.ID, heldDir(folder)), maxCopies)
	if len(left) > 0 {
		slog.Warn("a planted name is removed without a whole copy", "changes", l.record.ID, "path", path, "without", left)
	}
	return err
}

// End implements runner.Ledger.
func (l *ledger) End() (*facts.Changes, error) {
	l.done = true
	var err error
	for i, f := range l.record.Folders {
		if l.record.stays() {
			err = errors.Join(err, l.endKept(i, f))
		} else {
			err = errors.Join(err, l.endAside(i, f))
		}
	}
	c := l.facts()
	if l.discard {
		return c, errors.Join(err, l.store.remove(l.record.ID))
	}
	if empty(l.record) {
		c.ID = ""
		return c, errors.Join(err, l.store.remove(l.record.ID))
	}
	return c, errors.Join(err, l.store.save(l.record))
}

func empty(r *Record) bool {
	return !slices.ContainsFunc(r.Folders, func(f *Folder) bool { return len(f.Entries)+len(f.Held) > 0 })
}

// Close implements runner.Ledger.
func (l *ledger) Close() error {
	if l.done {
		return nil
	}
	return l.store.remove(l.record.ID)
}

// facts lists the changes of files and links.
func (l *ledger) facts() *facts.Changes {
	c := &facts.Changes{ID: l.record.ID, Mode: l.record.Mode, Written: []string{}, Renamed: []string{}, Removed: []string{},
		Protected: []string{}}
	if l.discard {
		c.ID = ""
	}
	for _, f := range l.record.Folders {
		c.Partial = c.Partial || f.Partial
		for _, e := range f.Entries {
			name := filepath.Join(f.Target, e.Path)
			if e.Mode.IsDir() {
				continue
			}
			switch e.Op {
			case Renamed:
				c.Renamed = append(c.Renamed, filepath.Join(f.Target, e.From)+" -> "+name)
			case Removed:
				c.Removed = append(c.Removed, name)
			default:
				c.Written = append(c.Written, name)
			}
			if e.Protected != "" {
				c.Protected = append(c.Protected, name)
			}
		}
	}
	return c
}

// mark notes the entries with a protected name, and those below a name in marks.
func mark(entries []*Entry, rules protect.Rules, marks map[string]protect.Row) {
	for _, e := range entries {
		if row, ok := rules.Name(e.Path); ok {
			e.Protected = row.Reason
		}
		for at := e.Path; at != "."; at = filepath.Dir(at) {
			if row, ok := marks[at]; ok {
				e.Protected = row.Reason
			}
		}
	}
}

// order sorts entries: what is removed first, deepest first, then the rest, outer folders first.
func order(entries []*Entry) {
	slices.SortFunc(entries, func(a, b *Entry) int {
		switch {
		case (a.Op == Removed) != (b.Op == Removed):
			if a.Op == Removed {
				return -1
			}
			return 1
		case a.Op == Removed:
			return strings.Compare(b.Path, a.Path)
		}
		return strings.Compare(a.Path, b.Path)
	})
}
