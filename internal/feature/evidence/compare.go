package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/app/secrets"
	"waldo/internal/core/audit"
	"waldo/internal/core/redact"
	"waldo/internal/feature/evidence/bucket"
	"waldo/internal/model/contract"
	"waldo/internal/storage/database"
)

// inBucket compares the log with its copy in the bucket of a configuration.
func inBucket(ctx context.Context, s *database.Store, cfg *contract.Config, whole bool) []audit.Finding {
	if cfg == nil || cfg.Blobs.URL == "" {
		if whole {
			return []audit.Finding{audit.Unchecked("bucket.none", "the configuration has no blobs.url")}
		}
		return nil
	}
	c, err := copiesOf(s, cfg.Blobs, secrets.New(s.Dir(), cfg, &redact.Registry{}, nil).Get)
	if err != nil {
		return []audit.Finding{audit.Unchecked("bucket.unreachable", "%v", err)}
	}
	return c.verify(ctx, whole)
}

// verify compares the bucket with the log: the names of its objects and all its checkpoints, or with whole every byte.
func (c *copies) verify(ctx context.Context, whole bool) []audit.Finding {
	unreachable := func(err error) []audit.Finding {
		return []audit.Finding{audit.Unchecked("bucket.unreachable", "%s was not compared: %v", c.url, err)}
	}
	m := c.read()
	m.Through, m.Forged, m.Good = 0, nil, nil
	size, found, err := c.newest(ctx, &m)
	if err != nil {
		return unreachable(err)
	}
	at, err := c.current(ctx)
	if err != nil || at == nil || m.stops(found) {
		return found
	}
	names, err := c.bucket.List(ctx, "", "")
	if err != nil {
		return unreachable(err)
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	expected, err := c.expected(at, size)
	if size > 0 && (m.Size == 0 || m.Key != "") { // else an earlier version of waldo copied last, which put none
		expected = append(expected, keyObject)
	}
	if err != nil {
		return append(found, audit.Unchecked("bucket.unread", "%v", err))
	}
	for _, name := range expected {
		if !there[name] {
			found = append(found, problem("bucket.missing", "%s is not in the bucket", name))
		}
	}
	for _, name := range names {
		f, err := c.object(ctx, at, name, there, whole)
		if err != nil {
			return append(found, unreachable(err)...)
		}
		found = append(found, f...)
	}
	switch {
	case len(found) > mostNames:
		more := len(found) - mostNames
		return append(found[:mostNames], problem("bucket.more", "the bucket has %d more such objects", more))
	case len(found) > 0:
		return found
	case size == 0:
		return []audit.Finding{audit.Unchecked("bucket.empty", "%s has no copy of this log yet", c.url)}
	}
	how := "by name: --bucket compares every byte"
	if whole {
		how = "byte for byte"
	}
	return []audit.Finding{{Code: "bucket.seen",
		Text: fmt.Sprintf("%s has a checkpoint of this log's first %d records, and %d objects, compared %s", c.url, size, len(names), how)}}
}

// stops reports whether findings stop dangerous calls.
func (copied) stops(found []audit.Finding) bool {
	var m copied
	m.settle(found, nil)
	return m.Against != nil
}

// expected returns the names that a bucket has whose newest checkpoint has a size.
func (c *copies) expected(at *Checkpoint, size int64) (names []string, err error) {
	if size == 0 {
		return nil, nil
	}
	names = append(names, originObject)
	closed, err := audit.ClosedSegments(c.tree.Dir)
	for _, s := range closed {
		if s.Through+1 < at.First+uint64(size) { // it was closed when that checkpoint was copied
			names = append(names, segments+s.Name)
		}
	}
	for _, tile := range tlog.NewTiles(torchwood.TileHeight, 0, size) {
		names = append(names, torchwood.TilePath(tile))
	}
	return names, err
}

// object returns the finding against one object. whole: its bytes are read, too.
func (c *copies) object(
	ctx context.Context, at *Checkpoint, name string, there map[string]bool, whole bool,
) ([]audit.Finding, error) {
	foreign := []audit.Finding{problem("bucket.foreign", "%.200q is not an object of this log", name)}
	differs := []audit.Finding{problem("bucket.differs", "%s is another than that of the log", name)}
	kind, rest, _ := strings.Cut(name, "/")
	var want func(b []byte) (bool, error)
	switch {
	case name == originObject || name == keyObject || name == onceObject || kind+"/" == checkpoints:
		return nil, nil // compared before, and by bucket.WriteOnce
	case kind == "tile":
		tile, err := torchwood.ParseTilePath(name)
		if err != nil || tile.L < 0 || tile.L > 7 || tile.N > at.N || tile.N<<8+int64(tile.W) > at.N>>(8*tile.L) {
			return foreign, nil
		}
		want = func(b []byte) (bool, error) {
			data, err := tlog.ReadTileData(tile, c.tree.hashes(at))
			return bytes.Equal(b, data), err
		}
	case kind+"/" == segments && audit.IsSegment(rest):
		want = func(b []byte) (bool, error) { return c.isSegment(at, rest, b, there) }
	default:
		return foreign, nil
	}
	if !whole {
		return nil, nil
	}
	b, err := c.bucket.Get(ctx, name, bucket.MaxObject)
	if errors.Is(err, bucket.ErrUnreadable) {
		return differs, nil
	}
	if err != nil {
		return nil, err
	}
	same, err := want(b)
	if err == nil && !same {
		return differs, nil
	}
	return nil, err
}

// isSegment reports whether bytes are a segment of the log. Where its records were removed here, they are compared with
// the hashes of the tree, and the next segment says where it ends.
func (c *copies) isSegment(at *Checkpoint, name string, b []byte, there map[string]bool) (bool, error) {
	own, err := c.segment(name)
	if err == nil {
		return bytes.Equal(own, b), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	next := uint64(0)
	err = audit.ReadSegment(name, b, func(r audit.Record) error {
		if next = r.Seq + 1; r.Seq < at.First {
			return nil
		}
		if r.Seq >= at.First+uint64(at.N) {
			return errDiffers
		}
		leaf, err := c.tree.leaf(at, int64(r.Seq-at.First))
		if want, bad := Leaf(r.Hash); err == nil && (bad != nil || want != leaf) {
			err = errDiffers
		}
		return err
	})
	if err != nil {
		return false, nil // it is no segment, or another
	}
	_, err = os.Lstat(filepath.Join(c.tree.Dir, audit.SegmentName(next)))
	return err == nil || there[segments+audit.SegmentName(next)], nil
}
