package evidence

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/app"
	"waldo/internal/core/audit"
	"waldo/internal/feature/evidence/bucket"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// copies puts the closed segments of a log, its tiles and its checkpoints into a bucket, each once, and compares the two.
type copies struct {
	tree   *Tree
	store  *database.Store
	url    string
	bucket bucket.Bucket
}

// copied is what this state directory knows of its bucket: a file beside the segments, for all of its processes.
type copied struct {
	URL     string       `json:"url"`
	Origin  string       `json:"origin"`
	Size    int64        `json:"size"`    // records of the newest checkpoint that was stored
	Segment uint64       `json:"segment"` // the last record of the segments that were stored
	At      time.Time    `json:"at"`      // of the last copy
	Looked  time.Time    `json:"looked"`  // when the bucket was compared with the log, or that was tried
	Against *call.Reason `json:"against,omitempty"`
	Error   string       `json:"error,omitempty"`  // of the last look
	Failed  string       `json:"failed,omitempty"` // of the last copy
}

const (
	copiedFile = "bucket.json"
	lookLock   = "bucket.lock" // over copiedFile and a comparison
	copyLock   = "copy.lock"   // one process at a time copies
	copyEvery  = time.Minute
	looksHold  = 2 * copyEvery   // a comparison is good for so long
	lookWithin = 5 * time.Second // for a call that needs one
	mostNames  = 20              // that findings list
	mostForged = 32              // checkpoints without the log's signature that are passed over
)

// The names of objects. Segments and tiles have the names of their files.
const (
	originObject = "origin"
	onceObject   = "write-once" // of bucket.WriteOnce
	checkpoints  = "checkpoint/"
	segments     = "segment/"
)

func checkpointObject(size int64) string { return fmt.Sprintf("%s%016d", checkpoints, size) }

var (
	errDiffers = errors.New("the bucket has another object under this name")
	errForged  = errors.New("it is not a checkpoint that this log's key signed")
)

// The codes of findings that stop dangerous calls: the log is not the one of the bucket.
var stopping = []string{"bucket.back", "bucket.other", "tree.differs"}

// copiesOf returns the copies of a log; nil: the configuration has no bucket.
func copiesOf(s *database.Store, c contract.Blobs, value func(secret.Ref) (secret.Value, error)) (*copies, error) {
	if c.URL == "" {
		return nil, nil
	}
	b, err := bucket.Open(c, value)
	return &copies{treeOf(s), s, c.URL, b}, err
}

// read returns what is known of the bucket. A file that cannot be read is as none: all is compared anew.
func (c *copies) read() (m copied) {
	b, err := safefile.Read(filepath.Join(c.tree.Dir, copiedFile))
	if err != nil || json.Unmarshal(b, &m) != nil || m.URL != c.url {
		return copied{URL: c.url}
	}
	return m
}

// write stores what is known of the bucket. The caller holds lookLock.
func (c *copies) write(m copied) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return safefile.Replace(filepath.Join(c.tree.Dir, copiedFile), append(b, '\n'), 0o600)
}

// current takes the records up to the head into the tree. Nil: there are none. Another process can take more in between.
func (c *copies) current(ctx context.Context) (*Checkpoint, error) {
	at, err := c.tree.grown(ctx, c.store)
	if errors.Is(err, ErrForked) {
		return c.tree.grown(ctx, c.store)
	}
	return at, err
}

// look compares the bucket with the log, and stores the result. An earlier reason against calls stays while the bucket
// cannot be reached.
func (c *copies) look(ctx context.Context) (copied, error) {
	unlock, err := c.tree.lock(ctx, lookLock)
	if errors.Is(err, ErrEmpty) { // no log yet, and no folder for it
		m := c.read()
		_, found, err := c.newest(ctx, &m)
		m.settle(found, err)
		return m, nil
	}
	if err != nil {
		return c.read(), err
	}
	defer unlock()
	m := c.read()
	_, found, err := c.newest(ctx, &m)
	m.settle(found, err)
	return m, c.write(m)
}

// settle notes the result of a comparison.
func (m *copied) settle(found []audit.Finding, err error) {
	m.Looked, m.Error = time.Now().UTC(), ""
	if err != nil {
		m.Error = err.Error()
		return
	}
	m.Against = nil
	for _, f := range slices.Backward(found) {
		m.Error = f.Text
		if slices.Contains(stopping, f.Code) {
			m.Against = &call.Reason{Code: f.Code, Text: f.Text}
		}
	}
}

// newest compares the newest checkpoint of the bucket with the log, and returns its size.
func (c *copies) newest(ctx context.Context, m *copied) (size int64, found []audit.Finding, err error) {
	at, err := c.current(ctx)
	if errors.Is(err, ErrForked) {
		return 0, []audit.Finding{problem("tree.differs", "%v", err)}, nil
	}
	if err != nil {
		return 0, nil, err
	}
	if at != nil && m.Origin != at.Origin {
		*m = copied{URL: m.URL, Origin: at.Origin, Looked: m.Looked}
	}
	origin, err := c.bucket.Get(ctx, originObject)
	name := strings.TrimSpace(string(origin))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if m.Size > 0 {
			found = append(found, problem("bucket.missing", "%s is not in the bucket any more", originObject))
		}
	case err != nil:
		return 0, nil, err
	case at == nil:
		return 0, []audit.Finding{problem("bucket.back", "the bucket holds the log %.80q, and this state directory has no log: "+
			"it was removed, or blobs.url needs another prefix", name)}, nil
	case name != at.Origin:
		return 0, []audit.Finding{problem("bucket.other", "the bucket holds the log %.80q, and this one is %s: it was replaced, "+
			"or another waldo writes there and blobs.url needs another prefix", name, at.Origin)}, nil
	}
	if at == nil {
		return 0, nil, nil
	}
	after := ""
	if m.Size > 0 {
		after = checkpointObject(m.Size - 1)
	}
	names, err := c.bucket.List(ctx, checkpoints, after)
	if err != nil {
		return 0, nil, err
	}
	for i, name := range slices.Backward(names) {
		was, err := c.checkpoint(ctx, at, name)
		if errors.Is(err, errForged) && len(names)-i <= mostForged {
			found = append(found, problem("bucket.foreign", "%s: %v", name, err))
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		back, err := c.compare(ctx, was)
		if err != nil {
			return 0, nil, err
		}
		size, found = was.N, append(found, back...)
		break
	}
	if size < m.Size {
		found = append(found, problem("bucket.missing", "%s is not in the bucket any more: this waldo stored it there",
			checkpointObject(m.Size)))
	}
	return size, found, nil
}

// checkpoint reads a checkpoint of the bucket, which this log's key signed.
func (c *copies) checkpoint(ctx context.Context, at *Checkpoint, name string) (was torchwood.Checkpoint, err error) {
	b, err := c.bucket.Get(ctx, name)
	if err != nil {
		return was, err
	}
	vkey, err := c.tree.Key(at.Origin)
	if err != nil {
		return was, err
	}
	own, err := note.NewVerifier(vkey)
	if err != nil {
		return was, err
	}
	was, _, err = torchwood.VerifyCheckpoint(b, torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(at.Origin),
		torchwood.SingleVerifierPolicy(own)))
	if err != nil || checkpointObject(was.N) != name {
		return was, errForged
	}
	return was, nil
}

// compare returns the finding against a log that does not continue a checkpoint of its own key.
func (c *copies) compare(ctx context.Context, was torchwood.Checkpoint) ([]audit.Finding, error) {
	at, err := c.current(ctx) // after the bucket was read: other processes of this state directory copy, too
	if err != nil {
		return nil, err
	}
	if at == nil || was.N > at.N {
		return []audit.Finding{problem("bucket.back", "the bucket has a checkpoint of %d records that this log's key signed, and "+
			"the log has fewer: it went back in time, or a copy of this state directory is at work elsewhere", was.N)}, nil
	}
	root, err := tlog.TreeHash(was.N, c.tree.hashes(at))
	if err != nil {
		return nil, fmt.Errorf("the tiles do not fit the checkpoint: %w", err)
	}
	if root != was.Hash {
		return []audit.Finding{problem("bucket.back", "the first %d records of the log are not those of its checkpoint in the "+
			"bucket: it went back in time and was continued, or rewritten", was.N)}, nil
	}
	return nil, nil
}

// copy puts into the bucket what is new in the log. The checkpoint is the last: what it covers is there.
func (c *copies) copy(ctx context.Context) (err error) {
	unlock, err := c.tree.lock(ctx, copyLock)
	if errors.Is(err, ErrEmpty) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	m, err := c.look(ctx)
	if err == nil && m.Error != "" {
		err = errors.New(m.Error)
	}
	if err != nil {
		return err
	}
	m.Failed = ""
	if err = c.more(ctx, &m); err != nil {
		m.Failed = err.Error()
	}
	unlook, lerr := c.tree.lock(ctx, lookLock)
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	defer unlook()
	now := c.read()
	now.Origin, now.Size, now.Segment, now.At, now.Failed = m.Origin, m.Size, m.Segment, m.At, m.Failed
	return errors.Join(err, c.write(now))
}

// more puts what is new, and notes in m what was put.
func (c *copies) more(ctx context.Context, m *copied) error {
	at, err := c.current(ctx)
	if err != nil || at == nil || m.Origin != at.Origin {
		return err
	}
	if m.Size == 0 {
		if err := errors.Join(bucket.WriteOnce(ctx, c.bucket), c.put(ctx, originObject, []byte(at.Origin+"\n"))); err != nil {
			return err
		}
	}
	closed, err := audit.ClosedSegments(c.tree.Dir)
	if err != nil {
		return err
	}
	for _, s := range closed {
		if s.Through <= m.Segment || s.Through >= at.First+uint64(at.N) {
			continue
		}
		b, err := c.segment(s.Name)
		if err == nil {
			err = c.put(ctx, segments+s.Name, b)
		}
		if err != nil {
			return err
		}
		m.Segment, m.At = s.Through, time.Now().UTC()
	}
	if m.Size == at.N {
		return nil
	}
	for _, tile := range tlog.NewTiles(torchwood.TileHeight, m.Size, at.N) {
		data, err := tlog.ReadTileData(tile, c.tree.hashes(at))
		if err == nil {
			err = c.put(ctx, torchwood.TilePath(tile), data)
		}
		if err != nil {
			return err
		}
	}
	if err := c.put(ctx, checkpointObject(at.N), at.Signed); err != nil {
		return err
	}
	m.Size, m.At = at.N, time.Now().UTC()
	return nil
}

// segment reads a segment of the log.
func (c *copies) segment(name string) ([]byte, error) {
	f, err := safefile.Open(filepath.Join(c.tree.Dir, name), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, bucket.MaxObject))
}

// put writes an object that is not there yet. One that is there must be the same.
func (c *copies) put(ctx context.Context, name string, b []byte) error {
	err := c.bucket.Put(ctx, name, b)
	if !errors.Is(err, bucket.ErrExists) {
		return err
	}
	was, err := c.bucket.Get(ctx, name)
	if err == nil && !bytes.Equal(was, b) {
		err = fmt.Errorf("%w: %s", errDiffers, name)
	}
	return err
}

// Back compares the log with its bucket before a dangerous call, unless that was done lately.
func (w witness) Back(ctx context.Context) *call.Reason {
	if w.copies == nil {
		return nil
	}
	m := w.copies.read()
	if age := time.Since(m.Looked); age < 0 || age > looksHold {
		short, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		var err error
		if m, err = w.copies.look(short); err != nil {
			slog.Warn("the log's bucket was not compared", "why", err)
		}
	}
	return m.Against
}

// behind returns how many records of the log are not in the bucket, as far as this state directory knows.
func (c *copies) behind(ctx context.Context) (uint64, error) {
	head, err := c.store.Head(ctx, audit.Name)
	if err != nil || head == nil {
		return 0, err
	}
	return head.Seq - min(head.Seq, uint64(c.read().Size)), nil
}

// keepCopying copies the log while waldo serves, to the bucket of the configuration in force.
func keepCopying(ctx context.Context, h *app.App) {
	said := ""
	tick := time.NewTicker(copyEvery)
	defer tick.Stop()
	for {
		now := h.InForce()
		c, err := copiesOf(h.Store, now.Config.Blobs, now.Secret)
		if err == nil && c != nil {
			err = c.copy(ctx)
		}
		if text := fmt.Sprint(err); err != nil && text != said && ctx.Err() == nil {
			slog.Warn("the log was not copied to blobs.url", "why", err)
			said = text
		} else if err == nil {
			said = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// doctor writes to the bucket, and says how far the copy is.
func doctor(ctx context.Context, place app.Place) []sandbox.Ability {
	if place.Config.Blobs.URL == "" {
		return nil
	}
	s, err := database.Open(place.State)
	if err != nil {
		return []sandbox.Ability{place.Ability("blobs", "", err, "")}
	}
	defer func() { _ = s.Close() }()
	hint, what := "docs/evidence.md has the set-up of a bucket", ""
	c, err := copiesOf(s, place.Config.Blobs, place.Secret)
	if err == nil {
		err = bucket.WriteOnce(ctx, c.bucket)
	}
	if err == nil {
		var m copied
		if m, err = c.look(ctx); err == nil && m.Error+m.Failed != "" {
			err, hint = errors.New(cmp.Or(m.Error, m.Failed)), "waldo log verify --bucket names each object"
		}
		what = fmt.Sprintf("%s keeps what is written once; it has the first %d records", c.url, m.Size)
		if head, _ := s.Head(ctx, audit.Name); head != nil && err == nil {
			what += fmt.Sprintf(" of %d", head.Seq)
		}
	}
	return []sandbox.Ability{place.Ability("blobs", what, err, hint)}
}
