package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

func tampered(format string, args ...any) error {
	return fmt.Errorf("%w: %s; see `waldo log verify`", ErrTampered, fmt.Sprintf(format, args...))
}

// start finds the end of the log, from its heads on, and opens the last segment there.
func (l *Log) start(ctx context.Context) error {
	if err := lock(l.lockFile, false, l.o.LockWait); err != nil {
		return err
	}
	defer func() { _ = safefile.Unlock(l.lockFile) }()
	heads, err := l.heads(ctx)
	if err != nil {
		return err
	}
	names, err := segments(l.dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if len(names) == 0 {
		if len(heads) > 0 {
			return tampered("the log has no segment, and its head counts %d records", heads[0].Seq)
		}
		return l.create(ctx, map[string]any{}, nil)
	}
	if err := l.walk(names, heads); err != nil {
		return err
	}
	if l.at.seq == 0 {
		return l.create(ctx, map[string]any{}, nil) // it ended while the first record was being written
	}
	return l.settle(ctx, heads)
}

// heads returns the heads that were ever set, the oldest first.
func (l *Log) heads(ctx context.Context) ([]database.Head, error) {
	var out []database.Head
	for _, h := range []Heads{l.o.Heads, l.o.Second} {
		if h == nil {
			continue
		}
		at, err := h.Head(ctx, Name)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		if at != nil {
			out = append(out, *at)
		}
	}
	if len(out) == 2 && out[0].Seq > out[1].Seq {
		out[0], out[1] = out[1], out[0]
	}
	return out, nil
}

// walk reads the chain from the oldest head to the end, checks every head on the way, and leaves
// l.at and l.file there. Bytes at the very end that are no chained record are set aside, unless a
// head vouches for more.
func (l *Log) walk(names []string, heads []database.Head) error {
	from := place{hash: genesis, segment: names[0]}
	if len(heads) > 0 { // the head's own record is read again, and must be the one that it says
		from = place{seq: heads[0].Seq - 1, segment: heads[0].Segment, end: heads[0].Start}
	}
	if err := from.begin(l.dir, names[0], heads); err != nil {
		return err
	}
	for i, name := range names {
		if name < from.segment {
			continue
		}
		if name != from.segment {
			if name != segmentName(from.seq+1) {
				return tampered("segment %s does not follow record %d", name, from.seq)
			}
			from.segment, from.end = name, 0
		}
		if err := l.walkSegment(&from, heads, i == len(names)-1); err != nil {
			return err
		}
	}
	for _, h := range heads {
		if from.seq < h.Seq {
			return tampered("it ends with record %d, and its head says that there are %d", from.seq, h.Seq)
		}
	}
	if len(heads) == 0 && from.seq > 1 {
		return tampered("there are %d records and no head", from.seq)
	}
	l.at = from
	return nil
}

// begin holds the first record that is there against the heads. A removal moves them before the segments go, so a log
// that begins after the first record of a head was cut.
func (p *place) begin(dir, name string, heads []database.Head) error {
	first, _ := firstOf(name)
	r, ok, err := firstRecord(dir, name)
	if err != nil {
		return err
	}
	for _, h := range heads {
		switch {
		case h.First == 0:
		case first > h.First:
			return tampered("it begins with record %d, and its head says with record %d", first, h.First)
		case first == h.First && (!ok || r.Hash != h.FirstHash):
			return tampered("record %d is not the one that its head names as the first", first)
		}
	}
	if ok {
		p.first, p.firstHash = first, r.Hash
	}
	return nil
}

// errTorn ends the reading of a segment at bytes that are no chained record.
var errTorn = errors.New("torn")

func (l *Log) walkSegment(at *place, heads []database.Head, last bool) error {
	f, err := openSegment(l.dir, at.segment, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	seg := l.o.wrap(f)
	if last {
		l.file = seg
	} else {
		defer func() { _ = seg.Close() }()
	}
	info, err := seg.Stat()
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if len(heads) == 0 && (!last || at.segment != segmentName(1) || info.Size() > MaxLine) {
		return tampered("there are records and no head")
	}
	err = lines(seg, at.end, info.Size(), func(ln line) error { return at.step(ln, heads) })
	if errors.Is(err, errTorn) {
		if !last || at.seq < newest(heads) {
			return tampered("record %d in %s is damaged, and it was on the disk", at.seq+1, at.segment)
		}
		l.recovery, err = l.setAside(seg, *at, info.Size())
	}
	return err
}

// newest returns the last record that any head vouches for.
func newest(heads []database.Head) uint64 {
	seq := uint64(0)
	for _, h := range heads {
		seq = max(seq, h.Seq)
	}
	return seq
}

// step moves a place over the next line.
func (p *place) step(ln line, heads []database.Head) error {
	if !ln.whole {
		return errTorn
	}
	r, err := parseRecord(ln.text)
	if err != nil || r.Seq != p.seq+1 || (p.hash != "" && r.Prev != p.hash) {
		return errTorn
	}
	for _, h := range heads {
		if h.Seq == r.Seq && h.Hash != r.Hash {
			return tampered("record %d is not the one that its head names", r.Seq)
		}
	}
	p.seq, p.hash, p.at, p.in, p.start, p.end = r.Seq, r.Hash, r.At, p.segment, ln.start, ln.start+ln.size
	return nil
}

// setAside copies the torn end of a segment to a file beside it and cuts it off.
func (l *Log) setAside(seg file, at place, size int64) (Recovery, error) {
	name := fmt.Sprintf("torn-%016d-%d.bin", at.seq+1, l.o.Now().UnixMilli())
	out, err := os.OpenFile(filepath.Join(l.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|safefile.NoFollow, 0o600)
	if err != nil {
		return Recovery{}, fmt.Errorf("audit: %w", err)
	}
	_, err = io.Copy(out, io.NewSectionReader(seg, at.end, size-at.end))
	if err = errors.Join(err, out.Sync(), out.Close(), seg.Truncate(at.end), seg.Sync()); err != nil {
		return Recovery{}, fmt.Errorf("audit: setting aside a torn record: %w", err)
	}
	return Recovery{TornBytes: size - at.end, SetAside: name}, nil
}

// settle makes what was found durable, moves the heads to it and records what was recovered. A
// log that another process is writing is always a little past its head; that is not recorded.
func (l *Log) settle(ctx context.Context, heads []database.Head) error {
	if l.at.seq > newest(heads) { // up to the newest head everything is synced
		if err := l.file.Sync(); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	if len(heads) > 0 {
		l.recovery.Past = l.at.seq - heads[len(heads)-1].Seq
	}
	written, err := time.Parse(TimeLayout, l.at.at)
	old := err == nil && l.o.Now().Sub(written).Abs() > 2*time.Second
	unbound := slices.ContainsFunc(heads, func(h database.Head) bool { return h.First == 0 })
	if unbound && l.at.first > 1 && !slices.ContainsFunc(heads, func(h database.Head) bool { return h.First > 0 }) {
		l.recovery.Beginning = l.at.first
	}
	if l.recovery.TornBytes > 0 || (l.recovery.Past > 0 && old) || l.recovery.Beginning > 0 {
		body, _ := json.Marshal(l.recovery)
		if _, err := l.put([]*pending{{kind: "recovered", body: bounded(body)}}); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if err := l.file.Sync(); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	l.synced = l.at
	if len(heads) == 0 || heads[0].Seq < l.at.seq || unbound {
		return l.setHeads(ctx, l.at)
	}
	return nil
}

// create makes the first segment, with a first record that makes this log like no other. before holds the heads of the
// log that was set aside; nil: there was none.
func (l *Log) create(ctx context.Context, body map[string]any, before []Anchor) error {
	if l.file == nil {
		f, err := openSegment(l.dir, segmentName(1), os.O_CREATE|os.O_RDWR)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		l.file = l.o.wrap(f)
	}
	l.at = place{hash: genesis, segment: segmentName(1)}
	body["log"] = id.New("l_")
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if _, err := l.put([]*pending{{kind: kindGenesis, body: bounded(b)}}); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := errors.Join(l.file.Sync(), safefile.SyncDir(l.dir), safefile.SyncDir(filepath.Dir(l.dir))); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	l.at.first, l.at.firstHash = l.at.seq, l.at.hash
	l.synced = l.at
	if before != nil {
		return l.resetHeads(ctx, before)
	}
	return l.setHeads(ctx, l.at)
}

// catchUp moves to the end of other processes' records, and to a new segment if this one is full. The caller holds
// the lock.
func (l *Log) catchUp() error {
	for {
		size, err := l.unchanged()
		if errors.Is(err, errGone) {
			var there bool
			if there, err = l.rejoin(); err == nil && there {
				continue
			}
			if err == nil {
				err = tampered("segment %s is gone while it was in use", l.at.segment)
			}
		}
		if err != nil {
			return err
		}
		if err := l.follow(size); err != nil {
			return err
		}
		followed, err := l.followed()
		if err != nil {
			return err
		}
		if l.at.end < l.o.SegmentBytes && !l.aged() && !followed {
			return nil
		}
		if err := l.next(); err != nil {
			return err
		}
	}
}

// errGone says that the segment in use has no name any more.
var errGone = errors.New("the segment in use is gone")

// unchanged checks that the segment is still the file that its name leads to, and no shorter than
// it was left. It returns its size.
func (l *Log) unchanged() (int64, error) {
	named, err := os.Lstat(filepath.Join(l.dir, l.at.segment))
	if err != nil {
		return 0, errGone
	}
	if l.known != l.file { // which file it is stays as it is while it is open
		info, err := l.file.Stat()
		if err != nil {
			return 0, err
		}
		l.known, l.about = l.file, info
	}
	if !os.SameFile(named, l.about) {
		return 0, tampered("segment %s was replaced while it was in use", l.at.segment)
	}
	if named.Size() < l.at.end {
		return 0, tampered("segment %s was cut while it was in use", l.at.segment)
	}
	return named.Size(), nil
}

// follow reads records that other processes appended. A torn end is the tail of a process that died.
func (l *Log) follow(size int64) error {
	at := l.at
	err := lines(l.file, at.end, size, func(ln line) error { return at.step(ln, nil) })
	l.at = at
	if !errors.Is(err, errTorn) {
		return err
	}
	heads, err := l.heads(context.Background())
	if err != nil {
		return err
	}
	if at.seq < newest(heads) {
		return tampered("record %d in %s is damaged, and it was on the disk", at.seq+1, at.segment)
	}
	l.torn, err = l.setAside(l.file, at, size)
	return err
}

// next goes on to the segment after a full one: the one another process made, or a new one. The
// full one is synced first, so that damage in it is never the work of a crash.
func (l *Log) next() error {
	if err := l.file.Sync(); err != nil {
		l.badSync = true
		return err
	}
	name := segmentName(l.at.seq + 1)
	f, err := openSegment(l.dir, name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	if err := safefile.SyncDir(l.dir); err != nil {
		_ = f.Close()
		return err
	}
	_ = l.file.Close()
	l.file = l.o.wrap(f)
	l.at.segment, l.at.end = name, 0
	return nil
}
