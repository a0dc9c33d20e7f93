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
	"strconv"
	"strings"
	"sync"
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

	mu      sync.Mutex
	looked  time.Time    // by this process: the file's time is only for people
	against *call.Reason // what it found then
}

// copied is what this state directory knows of its bucket: a file beside the segments, for all of its processes.
type copied struct {
	URL     string       `json:"url"`
	Origin  string       `json:"origin"`
	Key     string       `json:"key,omitempty"` // of the checkpoints, as it was put
	Size    int64        `json:"size"`          // records of the newest checkpoint that was stored
	Through int64        `json:"through"`       // the checkpoints up to this size were compared
	Forged  []int64      `json:"forged"`        // numbers of checkpoints that were read, and are not signed
	Good    []int64      `json:"good"`          // of those that were compared in a look that is not finished
	Segment uint64       `json:"segment"`       // the last record of the segments that were stored
	At      time.Time    `json:"at"`            // of the last copy
	Looked  time.Time    `json:"looked"`        // when the bucket was compared with the log, or that was tried
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
	mostRead   = 1 << 20         // numbers of checkpoints that are remembered: 18 MB
	mostSigned = 4 << 10         // bytes of a checkpoint, an origin or a key
)

// The names of objects. Segments and tiles have the names of their files.
const (
	originObject = "origin"
	keyObject    = "key"
	onceObject   = "write-once" // of bucket.WriteOnce
	checkpoints  = "checkpoint/"
	segments     = "segment/"
)

func checkpointObject(size int64) string { return fmt.Sprintf("%s%016d", checkpoints, size) }

// sizeOf returns the number in the name of a checkpoint; false: no checkpoint has this name.
func sizeOf(name string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(name, checkpoints), 10, 64)
	return n, err == nil && n >= 0 && len(name) == len(checkpoints)+16 && checkpointObject(n) == name
}

var (
	errDiffers = errors.New("the bucket has another object under this name")
	errForged  = errors.New("it is not a checkpoint that this log's key signed")
	errPart    = errors.New("the time was over before each checkpoint in the bucket was compared")
	errUnread  = errors.New("checkpoints in the bucket that this waldo did not store are not all read yet")
)

// The codes of findings that stop dangerous calls: the log is not the one of the bucket.
var stopping = []string{"bucket.back", "bucket.other", "tree.differs"}

// copiesOf returns the copies of a log; nil: the configuration has no bucket.
func copiesOf(s *database.Store, c contract.Blobs, value func(secret.Ref) (secret.Value, error)) (*copies, error) {
	if c.URL == "" {
		return nil, nil
	}
	b, err := bucket.Open(c, value)
	return &copies{tree: treeOf(s), store: s, url: c.URL, bucket: b}, err
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
// cannot be reached, or not all was compared.
func (c *copies) look(ctx context.Context) (copied, error) {
	unlock, err := c.tree.lock(ctx, lookLock)
	if errors.Is(err, ErrEmpty) { // no log yet, and no folder for it
		m := c.read()
		_, found, err := c.newest(ctx, &m)
		m.settle(found, err)
		return m, err
	}
	m := c.read()
	if err != nil { // another process looks, and is not finished
		m.settle(nil, fmt.Errorf("%w: %w", errUnread, err))
		return m, err
	}
	defer unlock()
	before := m.count()
	_, found, err := c.newest(ctx, &m)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errUnread) {
		err = errPart
	}
	m.settle(found, err)
	if err != nil && m.count() > before {
		m.Looked = time.Time{} // the next call goes on from there
	}
	return m, errors.Join(err, c.write(m))
}

// count returns how many numbers of checkpoints are remembered.
func (m *copied) count() int { return len(m.Forged) + len(m.Good) }

// settle notes the result of a comparison.
func (m *copied) settle(found []audit.Finding, err error) {
	m.Looked, m.Error = time.Now().UTC(), ""
	if err != nil {
		if m.Error = err.Error(); m.Against == nil && errors.Is(err, errUnread) {
			m.Against = &call.Reason{Code: "bucket.unread", Text: errUnread.Error() + ": try again, or see waldo log verify"}
		}
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

// newest compares the checkpoints of the bucket that were not compared yet with the log, and returns the size of the
// newest that the log's key signed.
func (c *copies) newest(ctx context.Context, m *copied) (size int64, found []audit.Finding, err error) {
	at, err := c.current(ctx)
	if errors.Is(err, ErrForked) {
		return 0, []audit.Finding{problem("tree.differs", "%v", err)}, nil
	}
	if err != nil {
		return 0, nil, err
	}
	own, vkey := "", ""
	if at != nil {
		own = at.Origin
		if vkey, err = c.tree.Key(own); err != nil {
			return 0, nil, err
		}
	}
	found, err = c.whose(ctx, m, own, vkey)
	if err != nil || at == nil || m.stops(found) {
		return 0, found, err
	}
	if m.Origin != own || m.Key != vkey && m.Key != "" {
		*m = copied{URL: m.URL, Origin: own, Looked: m.Looked}
	}
	after := ""
	if from := min(m.Size, m.Through); from > 0 {
		after = checkpointObject(from - 1)
	}
	names, err := c.listed(ctx, after)
	if err != nil {
		return 0, nil, err
	}
	size, back, err := c.each(ctx, at, vkey, names, m)
	if found = append(back, found...); err != nil || m.stops(found) {
		return size, found, err
	}
	if size < m.Size {
		found = append(found, problem("bucket.missing", "%s is not in the bucket any more: this waldo stored it there",
			checkpointObject(m.Size)))
	}
	return size, found, nil
}

// whose compares the log and the key that a bucket names with those of this log. Who can write to the bucket
// can change
// the names: others stop calls where this waldo remembers them, or with a checkpoint that the other key
// signed. They are
// a finding where this waldo remembers its own.
func (c *copies) whose(ctx context.Context, m *copied, own, vkey string) (found []audit.Finding, err error) {
	named, differs := map[string]string{}, false
	for _, o := range []struct{ name, own, was string }{{originObject, own, m.Origin}, {keyObject, vkey, m.Key}} {
		b, err := c.bucket.Get(ctx, o.name, mostSigned)
		named[o.name] = strings.TrimSpace(string(b))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if m.Size > 0 && o.was != "" {
				found = append(found, problem("bucket.missing", "%s is not in the bucket any more", o.name))
			}
		case err != nil && !errors.Is(err, bucket.ErrUnreadable):
			return nil, err
		case err != nil || named[o.name] != o.own:
			differs = true
			found = append(found, problem("bucket.differs", "%s in the bucket is another than that of this log", o.name))
		}
	}
	another := m.Size > 0 && (m.Origin != own || m.Key != "" && m.Key != vkey) // by what this waldo remembers
	if !differs || m.Size > 0 && !another {
		return found, nil
	}
	origin := m.Origin
	if !another {
		origin, _, _ = strings.Cut(named[keyObject], "+")
		if signed, err := c.signedBy(ctx, origin, named[keyObject]); err != nil || !signed {
			return found, err
		}
	}
	switch own {
	case "":
		return []audit.Finding{problem("bucket.back", "the bucket holds the log %.80q, and this state directory has no log: "+
			"it was removed, or blobs.url needs another prefix", origin)}, nil
	case origin:
		return []audit.Finding{problem("bucket.back", "the bucket has this log by another key: the log went back to before it "+
			"had a key, or its key was replaced")}, nil
	}
	return []audit.Finding{problem("bucket.other", "the bucket holds the log %.80q, and this one is %s: it was replaced, "+
		"or another waldo writes there and blobs.url needs another prefix", origin, own)}, nil
}

// signedBy reports whether the bucket has a checkpoint of an origin that a key signed.
func (c *copies) signedBy(ctx context.Context, origin, vkey string) (bool, error) {
	if _, err := note.NewVerifier(vkey); err != nil {
		return false, nil
	}
	names, err := c.listed(ctx, "")
	if err != nil {
		return false, err
	}
	for _, name := range slices.Backward(names) {
		if _, ok := sizeOf(name); !ok {
			continue
		}
		_, err := c.checkpoint(ctx, origin, vkey, name)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, errForged) {
			return false, fmt.Errorf("%w: %w", errUnread, err)
		}
	}
	return false, nil
}

// listed returns the names below checkpoints that sort behind another. A list that ends too early is errUnread.
func (c *copies) listed(ctx context.Context, after string) ([]string, error) {
	names, err := c.bucket.List(ctx, checkpoints, after)
	if err != nil && len(names) > 0 {
		err = fmt.Errorf("%w: %w", errUnread, err)
	}
	return names, err
}

// each compares checkpoints with the log, the newest first, up to one that is not of it, and returns the size of the
// newest that is. m remembers what was read, forged or not: the next look goes on from there. An error before each
// number beyond m.Size was read is errUnread.
func (c *copies) each(
	ctx context.Context, at *Checkpoint, vkey string, names []string, m *copied,
) (size int64, found []audit.Finding, err error) {
	foreign := 0
	read, there := map[int64]bool{}, map[int64]bool{} // by number: whether it is signed; whether it is listed
	for _, n := range m.Forged {
		read[n] = false
	}
	for _, n := range m.Good {
		read[n] = true
	}
	for _, name := range slices.Backward(names) {
		n, ok := sizeOf(name)
		signed, known := read[n]
		if there[n] = true; ok && !known {
			var back []audit.Finding
			if back, err = c.one(ctx, at, vkey, n, m); len(back) > 0 {
				return size, append(back, found...), nil
			}
			signed = err == nil
			if err != nil && !errors.Is(err, errForged) {
				if n > m.Size {
					err = fmt.Errorf("%w: %w", errUnread, err)
				}
				return size, found, err
			}
		}
		if ok && signed {
			size = max(size, n)
		} else if foreign++; foreign <= mostNames {
			found = append(found, problem("bucket.foreign", "%.200q: %v", name, cmp.Or(err, errForged)))
		}
		err = nil
	}
	if more := foreign - mostNames; more > 0 {
		found = append(found, problem("bucket.more", "the bucket has %d more such objects", more))
	}
	m.Through, m.Good = max(m.Through, size), nil
	m.Forged = slices.DeleteFunc(m.Forged, func(n int64) bool { return !there[n] })
	return size, found, nil
}

// one compares the checkpoint of a number with the log, and remembers it in m. One that cannot be read is errForged,
// and is read again by the next look.
func (c *copies) one(ctx context.Context, at *Checkpoint, vkey string, n int64, m *copied) ([]audit.Finding, error) {
	if m.count() >= mostRead {
		return nil, fmt.Errorf("there are more than %d", mostRead)
	}
	was, err := c.checkpoint(ctx, at.Origin, vkey, checkpointObject(n))
	if err == errForged { // not one that cannot be read
		m.Forged = append(m.Forged, n)
	}
	if err != nil {
		return nil, err
	}
	back, err := c.compare(ctx, at, was)
	if err == nil && len(back) == 0 {
		m.Good = append(m.Good, n)
	}
	return back, err
}

// checkpoint reads a checkpoint of the bucket, which a log's key signed. What is no such checkpoint is errForged.
func (c *copies) checkpoint(ctx context.Context, origin, vkey, name string) (was torchwood.Checkpoint, err error) {
	own, err := note.NewVerifier(vkey)
	if err != nil {
		return was, err
	}
	b, err := c.bucket.Get(ctx, name, mostSigned)
	if errors.Is(err, bucket.ErrUnreadable) || errors.Is(err, fs.ErrNotExist) {
		return was, fmt.Errorf("%w: %w", errForged, err)
	}
	if err != nil {
		return was, err
	}
	was, _, err = verified(b, torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(origin),
		torchwood.SingleVerifierPolicy(own)))
	if err != nil || checkpointObject(was.N) != name {
		return was, errForged
	}
	return was, nil
}

// compare returns the finding against a log that does not continue a checkpoint of its own key.
func (c *copies) compare(ctx context.Context, at *Checkpoint, was torchwood.Checkpoint) (_ []audit.Finding, err error) {
	if was.N > at.N { // other processes of this state directory copy, too
		if at, err = c.current(ctx); err != nil {
			return nil, err
		}
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
	var m copied
	for until, more := time.Now().Add(copyEvery), true; more; {
		short, cancel := context.WithTimeout(ctx, copyEvery/4)
		before := m.count()
		m, err = c.look(short)
		cancel()
		more = errors.Is(err, errUnread) && m.count() > before && time.Now().Before(until)
	}
	if m.Against != nil {
		return errors.New(m.Against.Text)
	}
	if err != nil && (!errors.Is(err, errPart) || ctx.Err() != nil) {
		return err
	}
	m.Failed = ""
	if err = c.more(ctx, &m); err != nil {
		m.Failed = err.Error()
	} else if m.Error != "" {
		err = fmt.Errorf("the log was copied, and its bucket has a fault: %s", m.Error)
	}
	unlook, lerr := c.tree.lock(ctx, lookLock)
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	defer unlook()
	now := c.read()
	now.Origin, now.Key, now.Size, now.Segment, now.At, now.Failed = m.Origin, m.Key, m.Size, m.Segment, m.At, m.Failed
	return errors.Join(err, c.write(now))
}

// more puts what is new, and notes in m what was put. A name that has another object is passed over, and is
// the error.
func (c *copies) more(ctx context.Context, m *copied) (err error) {
	at, err := c.current(ctx)
	if err != nil || at == nil || m.Origin != at.Origin {
		return err
	}
	var taken error
	if m.Key == "" {
		vkey, err := c.tree.Key(at.Origin)
		if err == nil {
			err = errors.Join(bucket.WriteOnce(ctx, c.bucket), c.put(ctx, originObject, []byte(at.Origin+"\n"), &taken),
				c.put(ctx, keyObject, []byte(vkey+"\n"), &taken))
		}
		if err != nil {
			return err
		}
		m.Key = vkey
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
			err = c.put(ctx, segments+s.Name, b, &taken)
		}
		if err != nil {
			return err
		}
		m.Segment, m.At = s.Through, time.Now().UTC()
	}
	if m.Size == at.N {
		return taken
	}
	for _, tile := range tlog.NewTiles(torchwood.TileHeight, m.Size, at.N) {
		data, err := tlog.ReadTileData(tile, c.tree.hashes(at))
		if err == nil {
			err = c.put(ctx, torchwood.TilePath(tile), data, &taken)
		}
		if err != nil {
			return err
		}
	}
	var last error
	if err := c.put(ctx, checkpointObject(at.N), at.Signed, &last); err != nil || last != nil {
		return cmp.Or(err, last) // the next one has another name
	}
	m.Size, m.At = at.N, time.Now().UTC()
	return taken
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

// put writes an object that is not there yet. taken is the first error of names that had another object.
func (c *copies) put(ctx context.Context, name string, b []byte, taken *error) error {
	err := c.bucket.Put(ctx, name, b)
	if !errors.Is(err, bucket.ErrExists) {
		return err
	}
	was, err := c.bucket.Get(ctx, name, len(b))
	if errors.Is(err, bucket.ErrUnreadable) || err == nil && !bytes.Equal(was, b) {
		*taken, err = cmp.Or(*taken, fmt.Errorf("%w: %s", errDiffers, name)), nil
	}
	return err
}

// Back compares the log with its bucket before a dangerous call, unless this process did so lately.
func (w witness) Back(ctx context.Context) *call.Reason {
	c := w.copies
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < looksHold {
		return cmp.Or(c.against, c.read().Against)
	}
	short, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	m, err := c.look(short)
	if err != nil {
		slog.Warn("the log's bucket was not compared", "why", err)
	}
	if c.against = m.Against; !m.Looked.IsZero() {
		c.looked = time.Now()
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
		short, cancel := context.WithTimeout(ctx, copyEvery/4)
		defer cancel()
		var m copied
		if m, err = c.look(short); err == nil && m.Error+m.Failed != "" {
			err, hint = errors.New(cmp.Or(m.Error, m.Failed)), "waldo log verify --bucket names each object"
		}
		what = fmt.Sprintf("%s keeps what is written once; it has the first %d records", c.url, m.Size)
		if head, _ := s.Head(ctx, audit.Name); head != nil && err == nil {
			what += fmt.Sprintf(" of %d", head.Seq)
		}
	}
	return []sandbox.Ability{place.Ability("blobs", what, err, hint)}
}
