package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// Aside is who sets a log aside, why and by whose authority.
type Aside struct {
	By, Reason string
	Expect     Expect              // its pins name the first approver
	Known      []approval.Approver // enrolments that the state directory holds besides the log
	// Sign adds the first approver's signature, as Prune's does; nil: no person can sign.
	Sign func(root approval.Approver, c *approval.Checkpoint) error
}

// The refusals of SetAside.
var (
	ErrSound        = errors.New("audit: the log is sound; there is nothing to set aside")
	ErrAsideNoRoot  = errors.New("audit: the log names approvers, and the first one is not known, so nobody can sign")
	ErrAsideRevoked = errors.New("audit: the right of the first approver ended, or ended perhaps in a damaged record")
)

// setAsideBody is what the first record of a log holds about the one that was set aside.
type setAsideBody struct {
	Folder string      `json:"folder"` // in the log's
	Files  []asideFile `json:"files"`
	By     string      `json:"by"`
	Reason string      `json:"reason"`
	Report Report      `json:"report"`
	Heads  []Anchor    `json:"heads"`
	// Checkpoint names the last record and all keys of that log, and bears the signature of Root.
	Checkpoint approval.Checkpoint `json:"checkpoint"`
	Root       *approval.Approver  `json:"root,omitempty"`
}

type asideFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// SetAside moves every segment of a log that Verify does not find sound, unchanged, to a folder inside the log's. It
// starts a new chain whose first record says so. A log that ever named approvers needs the first one's signature, and
// no key of it counts in the new one. The heads follow, and keep the head before.
func SetAside(ctx context.Context, dir string, o Options, a Aside) (folder string, err error) {
	if a.By == "" || a.Reason == "" {
		return "", errors.New("audit: setting a log aside needs a name and a reason")
	}
	o = o.filled()
	anchors, err := Anchors(ctx, o)
	if err != nil {
		return "", err
	}
	report, err := Verify(ctx, dir, anchors, o.Now(), a.Expect)
	if err != nil {
		return "", err
	}
	if report.OK {
		return "", ErrSound
	}
	body := setAsideBody{By: short(a.By), Reason: short(a.Reason), Report: report, Heads: anchors}
	body.Report.Findings = report.Findings[:min(len(report.Findings), 20)]
	body.Checkpoint.Through, body.Checkpoint.Hash, body.Checkpoint.Aside = report.LastSeq, report.LastHash, body.Reason
	if body.Files, err = asideFiles(dir); err != nil {
		return "", fmt.Errorf("audit: %w", err)
	}
	if err := a.authorise(ctx, dir, anchors, &body); err != nil {
		return "", err
	}
	l := &Log{dir: dir, o: o}
	if err := l.openLock(); err != nil {
		return "", err
	}
	defer func() { _ = l.lockFile.Close() }()
	if err := lock(l.lockFile, false, o.LockWait); err != nil {
		return "", err
	}
	if b, err := json.Marshal(body); err != nil || len(b) > MaxBody/2 {
		return "", errors.Join(err, fmt.Errorf("audit: the record of it would have %d bytes", len(b))) // cut, it proves nothing
	}
	if folder, err = moveSegments(dir, o.Now()); err != nil {
		return "", fmt.Errorf("audit: %w", err)
	}
	body.Folder = filepath.Base(folder)
	err = l.create(ctx, map[string]any{"set_aside": body}, anchors)
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return folder, err
}

// authorise finds what the log records about approvers, damaged as it is, and has the first one sign.
func (a Aside) authorise(ctx context.Context, dir string, anchors []Anchor, body *setAsideBody) error {
	t, err := readTraces(ctx, dir, anchors)
	if err != nil {
		return err
	}
	pins := slices.DeleteFunc(slices.Clone(a.Expect.Pins), func(p string) bool { return p == "" })
	for _, k := range a.Known {
		t.named = true
		t.void = append(t.void, k.Fingerprint())
	}
	t.void = append(t.void, pins...)
	slices.Sort(t.void)
	body.Checkpoint.Void = slices.Compact(t.void)
	if len(body.Checkpoint.Void) > maxVoid {
		return fmt.Errorf("audit: the log names more than %d keys", maxVoid)
	}
	switch {
	case !t.named && len(pins) == 0:
		return nil
	case a.Sign == nil:
		return ErrUnsigned
	case len(pins) == 0:
		return ErrAsideNoRoot
	case t.doubt:
		return ErrAsideRevoked
	}
	for _, r := range append(t.ledger.Firsts(), a.Known...) {
		if slices.ContainsFunc(pins, func(p string) bool { return p != r.Fingerprint() }) {
			continue
		}
		if slices.Contains(t.ended, r.Name) {
			return ErrAsideRevoked
		}
		body.Root = &r
		return a.Sign(r, &body.Checkpoint)
	}
	return ErrAsideNoRoot
}

// signed reports whether the root whose key the log named signed that it is set aside.
func (b setAsideBody) signed() bool {
	c := b.Checkpoint
	return b.Root != nil && c.Aside != "" && slices.Contains(c.Void, b.Root.Fingerprint()) && c.SignedBy(*b.Root)
}

// changed compares the folder of the log that was set aside with what the record holds about it.
func (b setAsideBody) changed(dir string) (code, text string) {
	if b.Folder == "" || filepath.Base(b.Folder) != b.Folder {
		return "aside.missing", "the record names no folder"
	}
	files, err := asideFiles(filepath.Join(dir, b.Folder))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "aside.missing", "its folder " + b.Folder + " is gone"
	case err != nil:
		return "aside.missing", "its folder " + b.Folder + " cannot be read: " + err.Error()
	case !slices.Equal(files, b.Files):
		return "aside.changed", "its folder " + b.Folder + " was changed since"
	}
	return "", ""
}

// asideFiles lists the segments of a folder with their digests.
func asideFiles(folder string) ([]asideFile, error) {
	if _, err := os.Lstat(folder); err != nil {
		return nil, err
	}
	names, err := segments(folder)
	out := make([]asideFile, 0, len(names))
	for _, name := range names {
		f, err := openSegment(folder, name, os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		info, err := f.Stat()
		if err == nil {
			_, err = io.Copy(sum, io.NewSectionReader(f, 0, info.Size()))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		out = append(out, asideFile{name, info.Size(), hex.EncodeToString(sum.Sum(nil))})
	}
	return out, err
}

// treeFiles are those of the tree over the log, which package evidence writes. The new log gets a tree of its own.
var treeFiles = []string{"checkpoint", "checkpoint.cosigned", "tile"}

func moveSegments(dir string, now time.Time) (string, error) {
	names, err := segments(dir)
	if err != nil {
		return "", err
	}
	for _, name := range treeFiles {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			names = append(names, name)
		}
	}
	folder := filepath.Join(dir, fmt.Sprintf("aside-%d", now.UnixMilli()))
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(folder, name)); err != nil {
			return "", err
		}
	}
	return folder, errors.Join(safefile.SyncDir(folder), safefile.SyncDir(dir))
}

// resetHeads sets the heads to the first record of a log. Each keeps the head before, which is of the log that was set
// aside.
func (l *Log) resetHeads(ctx context.Context, before []Anchor) error {
	var errs []error
	for _, a := range before {
		h := l.at.head(l.o.Now())
		h.Before = a.Head
		to := l.o.Heads
		if a.Name == secondHead {
			to = l.o.Second
		}
		errs = append(errs, to.ResetHead(ctx, Name, h))
	}
	return errors.Join(errs...)
}

// asideOf returns what a first record holds about a log that was set aside; nil: nothing.
func asideOf(r Record) *setAsideBody {
	var b struct {
		SetAside *setAsideBody `json:"set_aside"`
	}
	if r.Kind != kindGenesis || r.Seq != 1 || json.Unmarshal(r.Body, &b) != nil {
		return nil
	}
	return b.SetAside
}

// before holds a head's memory of the log before against the first record.
func (b *setAsideBody) before(h *database.Head) bool {
	return b != nil && slices.ContainsFunc(b.Heads, func(a Anchor) bool {
		return a.Head != nil && a.Head.Seq == h.Seq && a.Head.Hash == h.Hash
	})
}
