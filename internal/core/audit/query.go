package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"waldo/internal/model/facts"
)

// named are the fields by which a record is found; every kind of the pipeline has some.
type named struct {
	CallID     string `json:"call_id"`
	DecisionID string `json:"decision_id"`
	ApprovalID string `json:"approval_id"`
	Parent     string `json:"parent"`
	DeliveryID string `json:"delivery_id"`
}

func (r Record) named() named {
	var n named
	_ = json.Unmarshal(r.Body, &n) // a body without these has no names
	return n
}

// each calls fn for every record that parses, oldest first. match looks at the raw line before it is parsed; nil: every
// line.
func each(ctx context.Context, dir string, match func([]byte) bool, fn func(Record) error) error {
	names, sizes, err := extent(dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for i, name := range names {
		if err := within(ctx, dir, name, sizes[i], match, fn); err != nil {
			return err
		}
	}
	return nil
}

// within is each for one segment.
func within(
	ctx context.Context, dir, name string, size int64, match func([]byte) bool, fn func(Record) error,
) error {
	f, err := openSegment(dir, name, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	err = lines(f, 0, size, func(ln line) error {
		if !ln.whole || (match != nil && !match(ln.text)) {
			return nil
		}
		r, err := parseRecord(ln.text)
		if err != nil {
			return nil // Verify reports it; a search goes on
		}
		return errors.Join(fn(r), ctx.Err())
	})
	return errors.Join(err, f.Close())
}

// All calls fn for every record of a log, oldest first, without the index.
func All(ctx context.Context, dir string, fn func(Record) error) (n Counted, err error) {
	err = each(ctx, dir, nil, func(r Record) error {
		if n.Last > 0 && r.Seq > n.Last+1 {
			n.Missing += r.Seq - n.Last - 1
		}
		n.Last = r.Seq
		n.Shown, n.Matched, n.Total = n.Shown+1, n.Matched+1, n.Total+1
		return fn(r)
	})
	n.Total += n.Missing
	return n, err
}

// Find returns the records about a call, a decision, an approval, a delivery, or with a record's own id, the
// oldest first. A parent's records do not bring those of its calls, but each of those names it. It reads the log and no
// index, for those who act by what they find; Select is faster.
func Find(ctx context.Context, dir, id string) ([]Record, error) { return findTo(ctx, dir, id, nil) }

// InSession returns the records that name a session (n_…), or the runs in a sandbox (s_…), the oldest first: the start
// of a session, its decisions and orders, the outcomes of a sandbox. It reads the whole log.
func InSession(ctx context.Context, dir, id string) (out []Record, err error) {
	quoted := []byte(strconv.Quote(id))
	match := func(b []byte) bool { return bytes.Contains(b, quoted) }
	err = each(ctx, dir, match, func(r Record) error {
		var b struct {
			Session string `json:"session"`
			Facts   struct {
				Sandbox struct {
					ID string `json:"id"`
				} `json:"sandbox"`
			} `json:"facts"`
		}
		if json.Unmarshal(r.Body, &b) == nil && (b.Session == id || b.Facts.Sandbox.ID == id) {
			out = append(out, r)
		}
		return nil
	})
	return out, err
}

// findTo is Find that reads the newest segment first, and none older than the one with the record that last accepts.
func findTo(ctx context.Context, dir, id string, last func(Record) bool) ([]Record, error) {
	names, sizes, err := extent(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	quoted, out, done := []byte(strconv.Quote(id)), []Record{}, false
	match := func(b []byte) bool { return bytes.Contains(b, quoted) }
	for i := len(names) - 1; i >= 0 && !done; i-- {
		var some []Record
		err := within(ctx, dir, names[i], sizes[i], match, func(r Record) error {
			n := r.named()
			if slices.Contains([]string{r.ID, n.CallID, n.DecisionID, n.ApprovalID, n.Parent, n.DeliveryID}, id) {
				some, done = append(some, r), last != nil && last(r) || done
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(some, out...)
	}
	return out, nil
}

// Fate returns what the log knows of the effect of a call that has ended; false where it does not say that
// it has.
func Fate(ctx context.Context, dir, callID string) (effect facts.SideEffect, ended bool) {
	_, _ = findTo(ctx, dir, callID, func(r Record) bool { // unreadable records are skipped
		var e struct {
			CallID string `json:"call_id"`
			Facts  struct {
				SideEffect facts.SideEffect `json:"side_effect"`
			} `json:"facts"`
		}
		ends := r.Kind == KindOutcome && json.Unmarshal(r.Body, &e) == nil && e.CallID == callID
		if ends {
			effect, ended = e.Facts.SideEffect, true
		}
		return ends
	})
	return effect, ended
}

// Follow calls fn for every record after number seq, including later ones, until the context ends. It then returns
// nil.
func Follow(ctx context.Context, dir string, seq uint64, fn func(Record) error) error {
	for t := NewTail(dir, seq); ; {
		if err := t.Read(fn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Tail reads a log as it grows, each record once.
type Tail struct {
	dir     string
	seq     uint64 // of the last record
	segment string // that it has read up to start
	start   int64
}

// NewTail returns a tail of the records after number seq.
func NewTail(dir string, seq uint64) *Tail { return &Tail{dir: dir, seq: seq} }

// Read calls fn for every record that has come since the last Read.
func (t *Tail) Read(fn func(Record) error) error {
	names, sizes, err := extent(t.dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for i, name := range names {
		if name < t.segment {
			continue
		}
		if name != t.segment {
			t.segment, t.start = name, 0
		}
		if err := t.read(sizes[i], fn); err != nil {
			return err
		}
	}
	return nil
}

// read reads the segment from start to end.
func (t *Tail) read(end int64, fn func(Record) error) error {
	if t.start >= end {
		return nil
	}
	f, err := openSegment(t.dir, t.segment, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = f.Close() }()
	return lines(f, t.start, end, func(ln line) error {
		t.start = ln.start + ln.size
		r, err := parseRecord(ln.text)
		if !ln.whole || err != nil || r.Seq <= t.seq {
			return nil
		}
		t.seq = r.Seq
		return fn(r)
	})
}

// Range calls fn for every record after number after, up to number through, oldest first.
func Range(ctx context.Context, dir string, after, through uint64, fn func(Record) error) error {
	names, sizes, err := extent(dir)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	t := NewTail(dir, after)
	for i, name := range names {
		if i+1 < len(names) {
			if next, _ := firstOf(names[i+1]); next <= t.seq+1 {
				continue
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		t.segment, t.start = name, 0
		err := t.read(sizes[i], func(r Record) error {
			if r.Seq > through {
				return errThrough
			}
			return fn(r)
		})
		if errors.Is(err, errThrough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errThrough = errors.New("audit: the range is over")

// Dir returns the folder of the log in a state directory.
func Dir(state string) string { return filepath.Join(state, "log") }
