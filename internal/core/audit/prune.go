package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
)

// KindPruned is the kind of the record that replaces removed records: a checkpoint of the chain.
const KindPruned = "pruned"

// Pruned is the body of that record: the removed segments, and where the chain continues.
type Pruned struct {
	approval.Checkpoint
	Segments []string `json:"segments"`
	Bytes    int64    `json:"bytes"`
	Newest   string   `json:"newest"` // when that record was written
	Keep     string   `json:"keep"`   // the configured retention
	By       string   `json:"by"`

	said  string // when the record was written
	named bool   // the log names approvers
}

// ErrUnsigned is returned where a removal, or setting a log aside, needs the signature of the first approver.
var ErrUnsigned = errors.New("audit: the log names approvers, so the first one must sign: run this at a terminal")

// Prunable returns the oldest segments whose records were all written before a time, as the record of their removal.
// Through is 0 if there are none. The current segment and those that the heads have not passed are excluded.
func Prunable(ctx context.Context, dir string, o Options, before time.Time) (p Pruned, err error) {
	names, sizes, err := extent(dir)
	if err != nil {
		return p, fmt.Errorf("audit: %w", err)
	}
	anchors, err := Anchors(ctx, o)
	if err != nil {
		return p, err
	}
	for i := 0; i+1 < len(names); i++ {
		next, _ := firstOf(names[i+1])
		passed := func(a Anchor) bool { return a.Head != nil && a.Head.Seq >= next }
		if slices.ContainsFunc(anchors, func(a Anchor) bool { return !passed(a) }) {
			break
		}
		last, ok, err := lastRecord(ctx, dir, names[i], sizes[i])
		if err != nil {
			return p, err
		}
		if at, known := when(last.At); !ok || !known || !at.Before(before) || last.Seq+1 != next {
			break
		}
		p.Through, p.Hash, p.Newest = last.Seq, last.Hash, last.At
		p.Segments, p.Bytes = append(p.Segments, names[i]), p.Bytes+sizes[i]
	}
	return p, p.carry(ctx, dir, names)
}

// carry collects the approval records from the segments to remove. If there are none and an earlier removal is
// unsigned, it makes the checkpoint of that removal, to be signed now.
func (p *Pruned) carry(ctx context.Context, dir string, names []string) (err error) {
	unsigned := false
	err = (&Witness{Dir: dir}).Look(ctx, func(l *approval.Ledger) {
		p.named, p.Began, p.Void, unsigned = l.Named(), l.Began, l.Void(), !l.Signed()
	})
	if err != nil {
		return err
	}
	if p.Through == 0 && p.named && unsigned {
		r, ok, err := firstRecord(dir, names[0])
		if err != nil || !ok {
			return err
		}
		p.Through, p.Hash = r.Seq-1, r.Prev
	}
	if p.Through > 0 {
		p.Approvers, p.Configurations, err = signed(ctx, dir, p.Through)
	}
	return err
}

// signed returns the records of who can answer and the newest signed configurations, up to one of the log and those
// that were carried over its removals. Each bears a signature that holds, and stands once.
func signed(
	ctx context.Context, dir string, through uint64,
) (out []approval.Enrolment, newest []approval.Configuration, err error) {
	var l approval.Ledger
	old, err := checkpoint(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	if old != nil {
		l.Restore(old.Checkpoint)
	}
	err = each(ctx, dir, nil, func(r Record) error {
		if r.Seq <= through && slices.Contains([]string{kindGenesis, KindTrust, KindApprover}, r.Kind) {
			_ = tell(&l, r) // the keys that do not count; what does not hold is not carried
		}
		return nil
	})
	return l.Enrolments(), l.Signatures(), err
}

// checkpoint returns the prune record to use. A record signed by a first approver that goes furthest wins, else the
// newest; nil if there are none.
func checkpoint(ctx context.Context, dir string) (p *Pruned, err error) {
	match := func(b []byte) bool { return bytes.Contains(b, []byte(`"kind":"`+KindPruned+`"`)) }
	signed := false
	err = each(ctx, dir, match, func(r Record) error {
		found, ok := prunedRecord(r)
		if holds := ok && found.Signed(); ok && (holds && (!signed || found.Through >= p.Through) || !signed) {
			p, signed = &found, holds
		}
		return nil
	})
	return p, err
}

// lastRecord reads the last record of a segment; false if its end is not a record.
func lastRecord(ctx context.Context, dir, name string, size int64) (r Record, ok bool, err error) {
	f, err := openSegment(dir, name, os.O_RDONLY)
	if err != nil {
		return r, false, fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = f.Close() }()
	var text []byte
	err = lines(f, 0, size, func(ln line) error {
		ok = ln.whole
		text = append(text[:0], ln.text...)
		return ctx.Err()
	})
	if err != nil || !ok {
		return r, false, err
	}
	r, err = parseRecord(text)
	return r, err == nil, nil
}

// Prune removes the segments that Prunable names, once a record of that is on disk. If the log names approvers, sign
// adds the first one's signature; without sign it then removes nothing.
func (l *Log) Prune(
	ctx context.Context, keep time.Duration, by string, sign func(*approval.Checkpoint) error,
) (Pruned, error) {
	before := time.Time{} // without a retention every record stays
	if keep > 0 {
		before = l.o.Now().Add(-keep)
	}
	p, err := Prunable(ctx, l.dir, l.o, before)
	if err != nil || p.Through == 0 {
		return p, err
	}
	p.Keep, p.By = keep.String(), by
	if p.named && sign == nil {
		return Pruned{}, ErrUnsigned
	}
	if p.named {
		if err := sign(&p.Checkpoint); err != nil {
			return Pruned{}, err
		}
	}
	body, err := json.Marshal(p)
	if err == nil && len(body) > MaxBody/2 {
		err = fmt.Errorf("the record of the removal would have %d bytes", len(body)) // cut, it would carry nothing
	}
	if err != nil {
		return p, fmt.Errorf("audit: %w", err)
	}
	first, ok, err := firstRecord(l.dir, segmentName(p.Through+1))
	if err != nil || !ok {
		return p, errors.Join(err, fmt.Errorf("audit: record %d cannot be read", p.Through+1))
	}
	l.mu.Lock()
	l.at.first, l.at.firstHash = first.Seq, first.Hash // the heads move with the record of the removal
	l.mu.Unlock()
	if _, err := l.Append(ctx, KindPruned, body, true); err != nil {
		return p, err
	}
	var errs []error
	for _, name := range p.Segments { // the oldest first: the rest is always a whole end of the chain
		if err := os.Remove(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("audit: %w", err))
			break
		}
	}
	return p, errors.Join(append(errs, safefile.SyncDir(l.dir))...)
}

// aged reports whether the current segment is old enough that another must follow it, so that retention can remove
// it.
func (l *Log) aged() bool {
	if l.o.SegmentAge == 0 || l.at.end == 0 {
		return false
	}
	if l.dated != l.at.segment {
		r, ok, err := firstRecord(l.dir, l.at.segment)
		if err != nil || !ok {
			return false
		}
		l.dated = l.at.segment
		l.began, _ = when(r.At)
	}
	return l.o.Now().Sub(l.began) >= l.o.SegmentAge
}

// folderClock is how coarse the times of a folder can be.
const folderClock = 10 * time.Second

// followed reports whether another process has gone on to the next segment, which changes the folder. The kernel caches
// the folder's state, while each look for the next segment is for a name that was never looked for. An error says that
// the beginning of the log was taken away.
func (l *Log) followed() (bool, error) {
	folder, err := os.Lstat(l.dir)
	if err == nil && folder.ModTime().Equal(l.last) {
		return false, nil
	}
	if err := l.begins(); err != nil {
		return false, err
	}
	name := segmentName(l.at.seq + 1)
	if name == l.at.segment { // it is empty
		return false, nil
	}
	_, none := os.Lstat(filepath.Join(l.dir, name))
	if err == nil && none != nil && time.Since(folder.ModTime()) > folderClock { // else a change could leave it as it is
		l.last = folder.ModTime()
	}
	return none == nil, nil
}

// begins looks whether the first segment is still there. Where another process pruned it, its heads say so.
func (l *Log) begins() error {
	if _, err := os.Lstat(filepath.Join(l.dir, segmentName(l.at.first))); err == nil {
		return nil
	}
	names, err := segments(l.dir)
	if err != nil || len(names) == 0 {
		return err
	}
	heads, err := l.heads(context.Background())
	if err != nil {
		return err
	}
	if err := l.at.moved(names[0], heads); err != nil {
		return err
	}
	return l.at.begin(l.dir, names[0], heads)
}

// moved refuses a beginning other than the one that this process knows, unless a head names it.
func (p *place) moved(name string, heads []database.Head) error {
	first, _ := firstOf(name)
	if first != p.first && !slices.ContainsFunc(heads, func(h database.Head) bool { return h.First >= first }) {
		return tampered("it begins with record %d, and no head says so", first)
	}
	return nil
}

// rejoin goes to the end of the log again, as Open does, after the segment in use was pruned. It reports
// false where no later segment is there: then the segment was taken away.
func (l *Log) rejoin() (bool, error) {
	names, err := segments(l.dir)
	if err != nil || len(names) == 0 || names[len(names)-1] <= l.at.segment {
		return false, err
	}
	heads, err := l.heads(context.Background())
	if err != nil {
		return false, err
	}
	if newest(heads) < l.at.seq {
		return false, nil
	}
	if err := l.at.moved(names[0], heads); err != nil {
		return false, err
	}
	_ = l.file.Close()
	return true, l.walk(names, heads)
}

// prunedRecord parses the body of a record that replaces removed ones; false for any other record.
func prunedRecord(r Record) (p Pruned, ok bool) {
	if r.Kind != KindPruned || json.Unmarshal(r.Body, &p) != nil {
		return p, false
	}
	p.said = r.At
	return p, p.Through > 0 && isHash([]byte(p.Hash))
}
