package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
)

// trashDir is the folder of deleted files, at the top of the jail. No tool sees it.
const trashDir = ".waldo-trash"

// deletion is the prefix of the id of a deletion.
const deletion id.Kind = "x_"

// Limits of the trash. The oldest deletions make room.
const (
	maxTrash     = 1 << 30 // bytes
	maxDeletions = 500
	maxDeleted   = 50_000 // entries of one deletion
)

// deleted is one deletion: a folder of the trash, named by its id and size, with the deleted file or folder as "it"
// and its description as "about".
type deleted struct {
	id    string
	bytes int64
	Path  string    `json:"path"`
	At    time.Time `json:"at"`
	Call  string    `json:"call,omitempty"` // that deleted it
}

// slot is the name of its folder in the trash.
func (d deleted) slot() string { return fmt.Sprintf("%s-%d", d.id, d.bytes) }

// at is the place of the deleted file or folder in its open slot.
func (d deleted) at(slot *os.Root) *place {
	return &place{dir: slot, base: "it", name: trashDir + "/" + d.slot() + "/it"}
}

// trash opens the trash, and makes it where it is not there. A .gitignore in it, which git applies to that folder
// alone, leaves it out of git status. One that is there is not changed.
func (w *work) trash() (*os.Root, error) {
	if err := w.root.Mkdir(trashDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	t, err := safefile.Step(w.root, trashDir)
	if err != nil {
		return nil, err
	}
	if f, err := t.OpenFile(".gitignore", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil { // else git shows it
		_, err = f.WriteString("*\n")
		_ = errors.Join(err, f.Close())
	}
	return t, nil
}

// deleting finds what files.delete would delete, with its size and number of entries.
func (w *work) deleting(a call.Args) (p *place, bytes int64, n int, err error) {
	var in struct {
		Path      string `json:"path"`
		Recursive bool   `json:"recursive"`
	}
	if err := decode(a, &in); err != nil {
		return nil, 0, 0, err
	}
	if p, err = w.find(in.Path, 0, true); err != nil {
		return nil, 0, 0, err
	}
	info, err := p.info()
	switch {
	case err != nil:
	case p.base == ".":
		err = errors.New("a folder is deleted by its name, and the folder of this tool is not deleted")
	case info.IsDir():
		if bytes, n, err = measure(p); err == nil && !in.Recursive {
			err = errors.New("it is a folder: set recursive to delete it with its content")
		}
	default:
		bytes = info.Size()
	}
	if err == nil && bytes > maxTrash {
		err = fmt.Errorf("it has %d bytes, and the trash holds %d: a person deletes it", bytes, maxTrash)
	}
	if err != nil {
		p.Close()
		return nil, 0, 0, about(in.Path, err)
	}
	return p, bytes, n, nil
}

// measure returns the bytes and entries of a folder.
func measure(p *place) (bytes int64, n int, err error) {
	top, err := safefile.Step(p.dir, p.base)
	if err != nil {
		return 0, 0, err
	}
	defer top.Close()
	err = fs.WalkDir(top.FS(), ".", func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == "." {
			return err
		}
		if n++; n > maxDeleted {
			return fmt.Errorf("it has more than %d entries: a person deletes it", maxDeleted)
		}
		if i, err := e.Info(); err == nil {
			bytes += i.Size()
		}
		return nil
	})
	return bytes, n, err
}

func remove(w *work, a call.Args) ([]call.Content, error) {
	p, size, n, err := w.deleting(a)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	t, err := w.trash()
	if err != nil {
		return nil, fmt.Errorf("the trash cannot be opened: %w", err)
	}
	defer t.Close()
	if err := makeRoom(t, size); err != nil {
		return nil, err
	}
	gone := deleted{id: id.New(deletion), bytes: size, Path: p.name, At: time.Now().UTC().Truncate(time.Second),
		Call: w.callID}
	b, err := json.Marshal(gone)
	if err != nil {
		return nil, err
	}
	if err := t.Mkdir(gone.slot(), 0o700); err != nil {
		return nil, err
	}
	slot, err := safefile.Step(t, gone.slot())
	if err != nil {
		return nil, err
	}
	defer slot.Close()
	if err := slot.WriteFile("about", b, 0o600); err != nil {
		return nil, err
	}
	w.acted = true
	if err := w.renameOnto(p, gone.at(slot)); err != nil {
		return nil, about(p.name, errors.Join(err, t.RemoveAll(gone.slot())))
	}
	w.written, w.undo = append(w.written, p.name), true
	return say("deleted %s%s. To undo: files.restore id=%s\n", facts.Name(p.name), with(n), gone.id), nil
}

// with says how many entries a folder had.
func with(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and the %d files and folders in it", n)
}

// showDelete says what files.delete would do.
func showDelete(w *work, a call.Args) ([]call.Content, error) {
	p, size, n, err := w.deleting(a)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	stamp, err := p.stamp()
	if err != nil {
		return nil, about(p.name, err)
	}
	return say("deletes %s%s, %d bytes, %s; files.restore can undo it", facts.Name(p.name), with(n), size, stamp), nil
}

// deletions lists the slots of the trash, the oldest first, without reading the descriptions. It leaves out other
// names.
func deletions(t *os.Root) ([]deleted, error) {
	d, err := t.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(10 * maxDeletions)
	if err != nil && err != io.EOF {
		return nil, err
	}
	slices.Sort(names) // an id begins with its time
	var all []deleted
	for _, n := range names {
		name, size, _ := strings.Cut(n, "-")
		bytes, err := strconv.ParseInt(size, 10, 64)
		if one := (deleted{id: name, bytes: bytes}); err == nil && id.Is(deletion, name) && bytes >= 0 && one.slot() == n {
			all = append(all, one)
		}
	}
	return all, nil
}

// describe reads the description of a deletion.
func (d *deleted) describe(t *os.Root) error {
	slot, err := safefile.Step(t, d.slot())
	if err != nil {
		return err
	}
	defer slot.Close()
	f, _, err := (&place{dir: slot, base: "about"}).open()
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, d)
}

// makeRoom removes the oldest deletions until one more of so many bytes fits.
func makeRoom(t *os.Root, bytes int64) error {
	all, err := deletions(t)
	if err != nil {
		return err
	}
	for _, d := range all {
		bytes += min(d.bytes, maxTrash)
	}
	for len(all) > 0 && (bytes > maxTrash || len(all) >= maxDeletions) {
		if err := t.RemoveAll(all[0].slot()); err != nil {
			return err
		}
		bytes -= min(all[0].bytes, maxTrash)
		all = all[1:]
	}
	return nil
}

// restoring are the arguments of files.restore.
type restoring struct {
	ID string `json:"id"`
}

// deletion finds a deletion by its id or that of its call. The caller closes its open slot and the trash.
func (w *work) deletion(given string) (t, slot *os.Root, d deleted, err error) {
	if t, err = safefile.Step(w.root, trashDir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, d, errNoChange
	}
	if err != nil {
		return nil, nil, d, fmt.Errorf("the trash cannot be opened: %w", err)
	}
	all, err := deletions(t)
	i := slices.IndexFunc(all, func(d deleted) bool {
		return d.id == given || id.Is(id.Call, given) && d.describe(t) == nil && d.Call == given
	})
	if err == nil && (i < 0 || all[i].describe(t) != nil) {
		err = errNoChange
	}
	if err == nil {
		d = all[i]
		slot, err = safefile.Step(t, d.slot())
	}
	if err != nil {
		_ = t.Close()
		return nil, nil, d, err
	}
	return t, slot, d, nil
}

func restore(w *work, a call.Args) ([]call.Content, error) {
	var in restoring
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	if in.ID == "" {
		return say("%s", w.undoable()), nil
	}
	if c, old, err := w.change(in.ID); !errors.Is(err, errNoChange) {
		if err != nil {
			return nil, err
		}
		return w.takeBack(in.ID, c, old)
	}
	t, slot, d, err := w.deletion(in.ID)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	defer slot.Close()
	to, err := w.find(d.Path, create, true)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	if to.name != d.Path {
		return nil, about(d.Path, errLinkSince)
	}
	w.acted = true
	if err := w.renameOnto(d.at(slot), to); err != nil {
		return nil, about(d.Path, err)
	}
	w.written = append(w.written, to.name)
	if err := t.RemoveAll(d.slot()); err != nil {
		return nil, err
	}
	return say("restored %s\n", facts.Name(to.name)), nil
}

// showRestore says what files.restore would do.
func showRestore(w *work, a call.Args) ([]call.Content, error) {
	var in restoring
	if err := decode(a, &in); err != nil {
		return nil, err
	}
	if in.ID == "" {
		return say("lists what can be undone"), nil
	}
	if c, old, err := w.change(in.ID); !errors.Is(err, errNoChange) {
		if err != nil {
			return nil, err
		}
		return w.showTakeBack(c, old)
	}
	t, slot, d, err := w.deletion(in.ID)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	defer slot.Close()
	stamp, err := d.at(slot).stamp()
	if err != nil {
		return nil, about(d.Path, err)
	}
	return say("restores %s, %d bytes, %s", facts.Name(d.Path), d.bytes, stamp), nil
}

// undoable describes the newest deletions and changes.
func (w *work) undoable() string {
	const most = 50
	var b strings.Builder
	var all []deleted
	t, err := safefile.Step(w.root, trashDir)
	if err == nil {
		defer t.Close()
		all, _ = deletions(t) // none: nothing can be listed
	}
	fmt.Fprintf(&b, "in the trash: %d\n", len(all))
	for n, d := range slices.Backward(all) {
		if len(all)-n > most {
			break
		}
		if d.describe(t) == nil {
			fmt.Fprintf(&b, "%s\t%s, %d bytes, deleted %s\n", d.id, facts.Name(d.Path), d.bytes, d.At.Format(time.RFC3339))
		}
	}
	return b.String() + w.changes(most)
}
