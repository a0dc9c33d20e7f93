package sandboxes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
	"waldo/internal/storage/workspace"
)

// Snapshot is the files of a sandbox at one time, and the settings to start a sandbox from them.
type Snapshot struct {
	ID      string    `json:"id"` // "p_…"
	Owner   string    `json:"owner"`
	Of      Sandbox   `json:"of"` // as it was
	Created time.Time `json:"created"`
	Files   int       `json:"files"`
	Bytes   int64     `json:"bytes"`     // of the files
	New     int64     `json:"new_bytes"` // that no snapshot had before
	Digest  string    `json:"digest"`    // of the list of files
}

// listed is one file of a snapshot. Its content is its chunks, one behind the other.
type listed struct {
	Folder workspace.Folder `json:"folder"`
	Name   string           `json:"name"`
	Size   int64            `json:"size"`
	Exec   bool             `json:"exec,omitempty"`
	Chunks []string         `json:"chunks"` // SHA-256, hexadecimal
}

const snapshots = "snapshot"

// kept are the folders that a snapshot holds; tmp is disposable.
var kept = []workspace.Folder{workspace.Files, workspace.Input, workspace.Output}

// ErrDamaged: the content of a snapshot does not match its digests.
var ErrDamaged = errors.New("the snapshot is damaged")

// blob returns the file of the content with a digest.
func (m *Manager) blob(digest string) string {
	return m.store.Path("blobs", digest[:2], digest)
}

// hold keeps the blobs from being swept (or, alone, from being written) until release is called.
func (m *Manager) hold(alone bool) (release func(), err error) {
	if err := os.MkdirAll(m.store.Path("blobs"), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(m.store.Path("blobs", "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := safefile.Lock(f, !alone); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// put keeps content, and returns its digest and how many bytes of it are new.
func (m *Manager) put(b []byte) (string, int64, error) {
	sum := sha256.Sum256(b)
	digest := hex.EncodeToString(sum[:])
	at := m.blob(digest)
	if old, err := whole(at); err == nil && bytes.Equal(old, b) { // damaged content is written anew
		return digest, 0, nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return "", 0, err
	}
	f, err := os.CreateTemp(filepath.Dir(at), ".new-")
	if err != nil {
		return "", 0, err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(0o400), f.Close()); err == nil {
		err = os.Rename(f.Name(), at)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return digest, int64(len(b)), err
}

// whole reads a regular file: a pipe in the place of content would keep the caller waiting.
func whole(name string) ([]byte, error) {
	f, err := safefile.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// get returns content by its digest, and no other.
func (m *Manager) get(digest string) ([]byte, error) {
	if len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("%q: %w", digest, ErrDamaged)
	}
	b, err := whole(m.blob(digest))
	if err != nil {
		return nil, errors.Join(ErrDamaged, err)
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("blob %s: %w", digest, ErrDamaged)
	}
	return b, nil
}

// Snapshot keeps the files of a sandbox as they are. It refuses one in which commands run and do not
// stand still.
func (m *Manager) Snapshot(ctx context.Context, owner, name string) (Snapshot, error) {
	s, w, done, err := m.Files(ctx, owner, name)
	if err != nil {
		return Snapshot{}, err
	}
	defer done()
	if err := m.still(s); err != nil {
		return Snapshot{}, err
	}
	release, err := m.hold(false)
	if err != nil {
		return Snapshot{}, err
	}
	defer release()
	p := Snapshot{ID: id.New(id.Snapshot), Owner: owner, Of: s, Created: m.now().UTC().Truncate(time.Millisecond)}
	var list []listed
	for _, folder := range kept {
		files, err := w.List(folder, math.MaxInt)
		if err != nil {
			return p, err
		}
		for _, f := range files {
			l, fresh, err := m.keep(ctx, w, folder, f)
			if err != nil {
				return p, fmt.Errorf("%s/%s: %w", folder, f.Name, err)
			}
			list, p.New, p.Bytes = append(list, l), p.New+fresh, p.Bytes+l.Size
		}
	}
	if now, err := m.Get(ctx, owner, name); err != nil || now.Workspace != s.Workspace || now.Runs != s.Runs ||
		!now.Used.Equal(s.Used) {
		return p,
			errors.Join(err, fmt.Errorf("sandbox %s: %w, and changed its files meanwhile; pause it first", s.Name, ErrBusy))
	}
	if err := m.still(s); err != nil {
		return p, err
	}
	p.Files = len(list)
	text, err := json.Marshal(list)
	if err != nil {
		return p, err
	}
	if p.Digest, _, err = m.put(text); err != nil {
		return p, err
	}
	if err := durable(m.store.Path("blobs")); err != nil { // or its record might outlast it
		return p, err
	}
	record, err := json.Marshal(p)
	if err != nil {
		return p, err
	}
	return p, m.store.Put(ctx, snapshots, p.ID, string(record))
}

// still returns an error where commands run in a sandbox and do not stand still.
func (m *Manager) still(s Sandbox) error {
	if slices.ContainsFunc(m.live(s.ID), func(c Command) bool { return c.State != frozen }) {
		return fmt.Errorf("sandbox %s: %w; pause it first", s.Name, ErrBusy)
	}
	return nil
}

// keep keeps one file.
func (m *Manager) keep(
	ctx context.Context, w *workspace.Workspace, folder workspace.Folder, f workspace.File,
) (l listed, fresh int64, err error) {
	l = listed{Folder: folder, Name: f.Name, Exec: f.Exec, Chunks: []string{}}
	file, err := w.Get(folder, f.Name)
	if err != nil {
		return l, 0, err
	}
	defer func() { _ = file.Close() }()
	err = chunks(until(ctx, file), func(b []byte) error {
		digest, n, err := m.put(b)
		l.Chunks, l.Size, fresh = append(l.Chunks, digest), l.Size+int64(len(b)), fresh+n
		return err
	})
	return l, fresh, err
}

// Snapshots returns the snapshots of an owner, oldest first.
func (m *Manager) Snapshots(ctx context.Context, owner string) ([]Snapshot, error) {
	all, err := m.store.List(ctx, snapshots)
	if err != nil {
		return nil, err
	}
	out := []Snapshot{}
	for ident, text := range all {
		p, err := picture(ident, text)
		if err != nil {
			return nil, err
		}
		if p.Owner == owner {
			out = append(out, p)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out, nil
}

// picture reads the row of a snapshot, by its id.
func picture(ident, text string) (Snapshot, error) {
	var p Snapshot
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return Snapshot{}, fmt.Errorf("snapshot: its stored form cannot be read: %w", err)
	}
	if p.ID != ident || !id.Is(id.Snapshot, p.ID) || !p.Of.sound() {
		return Snapshot{}, fmt.Errorf("snapshot %q: %w", ident, ErrRow)
	}
	return p, nil
}

// Picture returns a snapshot of an owner by its id. Another owner's is absent.
func (m *Manager) Picture(ctx context.Context, owner, ident string) (Snapshot, error) {
	var p Snapshot
	text, ok, err := m.store.Get(ctx, snapshots, ident)
	if err != nil {
		return p, err
	}
	if ok {
		p, err = picture(ident, text)
	}
	if err != nil || !ok || p.Owner != owner {
		return Snapshot{}, errors.Join(err, fmt.Errorf("snapshot %s: %w", ident, ErrNoPicture))
	}
	return p, nil
}

// Restore gives a sandbox the files of a snapshot in place of its own. The files are complete and
// checked before the sandbox has them; one in which commands run is refused.
func (m *Manager) Restore(ctx context.Context, owner, name, ident string) (Sandbox, error) {
	s, err := m.Get(ctx, owner, name)
	if err != nil {
		return s, err
	}
	p, err := m.Picture(ctx, owner, ident)
	if err != nil {
		return s, err
	}
	fresh := s
	fresh.Workspace = id.New(id.Workspace)
	done, err := m.mark(fresh.Workspace, s.Workspace)
	if err != nil {
		return s, err
	}
	defer done()
	w, err := m.open(fresh)
	if err != nil {
		return s, err
	}
	if err := m.fill(ctx, w, p, s.Limits.Disk); err != nil {
		return s, errors.Join(fmt.Errorf("snapshot %s: %w", p.ID, err), w.Destroy())
	}
	old := s
	s, err = m.change(ctx, s, func(now *Sandbox) error {
		err := errors.Join(m.quiet(*now), same(*now, old))
		now.Workspace, now.Last = fresh.Workspace, ""
		return err
	})
	if err != nil {
		return s, errors.Join(err, w.Destroy())
	}
	gone, err := m.open(old)
	if err != nil {
		return s, errors.Join(err, w.Close())
	}
	return s, errors.Join(gone.Destroy(), w.Close())
}

// Fill gives an empty workspace the files of an owner's snapshot, at most disk bytes into each folder.
func (m *Manager) Fill(ctx context.Context, owner, ident string, w *workspace.Workspace, disk int64) error {
	p, err := m.Picture(ctx, owner, ident)
	if err != nil {
		return err
	}
	if err := m.fill(ctx, w, p, disk); err != nil {
		return fmt.Errorf("snapshot %s: %w", p.ID, err)
	}
	return nil
}

// fill writes the files of a snapshot into a workspace, at most disk bytes into each folder.
func (m *Manager) fill(ctx context.Context, w *workspace.Workspace, p Snapshot, disk int64) error {
	text, err := m.get(p.Digest)
	if err != nil {
		return err
	}
	var list []listed
	if err := json.Unmarshal(text, &list); err != nil {
		return errors.Join(ErrDamaged, err)
	}
	left := map[workspace.Folder]int64{workspace.Files: disk, workspace.Input: disk, workspace.Output: disk}
	for _, l := range list {
		if left[l.Folder] -= l.Size; l.Size < 0 || left[l.Folder] < 0 {
			return fmt.Errorf("more than the %d bytes that the sandbox may keep: %w", disk, workspace.ErrTooMuch)
		}
		if err := w.Put(l.Folder, l.Name, until(ctx, &parts{m: m, left: l.Chunks}), l.Size); err != nil {
			return fmt.Errorf("%s/%s: %w", l.Folder, l.Name, err)
		}
		if l.Exec {
			if err := w.Executable(l.Folder, l.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// parts reads chunks one behind the other, each checked before a byte of it is given.
type parts struct {
	m    *Manager
	left []string
	now  []byte
}

func (p *parts) Read(b []byte) (int, error) {
	for len(p.now) == 0 {
		if len(p.left) == 0 {
			return 0, io.EOF
		}
		var err error
		if p.now, err = p.m.get(p.left[0]); err != nil {
			return 0, err
		}
		p.left = p.left[1:]
	}
	n := copy(b, p.now)
	p.now = p.now[n:]
	return n, nil
}

// Forget deletes a snapshot, and the content that no other has.
func (m *Manager) Forget(ctx context.Context, owner, ident string) error {
	p, err := m.Picture(ctx, owner, ident)
	if err != nil {
		return err
	}
	if err := m.store.Delete(ctx, snapshots, p.ID); err != nil {
		return err
	}
	return m.sweepBlobs(ctx)
}

// sweepBlobs deletes content that no snapshot uses, while no process writes content. It deletes nothing if a list
// cannot be read.
func (m *Manager) sweepBlobs(ctx context.Context) error {
	release, err := m.hold(true)
	if err != nil {
		return err
	}
	defer release()
	all, err := m.store.List(ctx, snapshots)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for ident, text := range all {
		p, err := picture(ident, text)
		if err != nil {
			return err
		}
		b, err := m.get(p.Digest)
		if err != nil {
			return err
		}
		var list []listed
		if err := json.Unmarshal(b, &list); err != nil {
			return err
		}
		used[p.Digest] = true
		for _, l := range list {
			for _, c := range l.Chunks {
				used[c] = true
			}
		}
	}
	names, err := filepath.Glob(m.store.Path("blobs", "??", "*"))
	if err != nil {
		return err
	}
	for _, n := range names {
		if !used[filepath.Base(n)] {
			err = errors.Join(err, os.Remove(n))
		}
	}
	return err
}

// From keeps a new sandbox that starts with the files, template and limits of a snapshot.
func (m *Manager) From(ctx context.Context, owner, name, ident string) (Sandbox, error) {
	p, err := m.Picture(ctx, owner, ident)
	if err != nil {
		return Sandbox{}, err
	}
	s := p.Of
	s.Owner, s.Name = owner, name
	if s, err = m.Create(ctx, s); err != nil {
		return s, err
	}
	restored, err := m.Restore(ctx, owner, s.Name, ident)
	if err != nil {
		return s, errors.Join(err, m.Remove(ctx, owner, s.Name, false))
	}
	return restored, nil
}
