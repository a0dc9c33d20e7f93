package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Selection says which records Select returns. The zero value selects the last of all.
type Selection struct {
	Since time.Time         // records of this time or later; zero: all
	Match func(Record) bool // nil: every record
	Last  int               // at most this many, the newest; 0: all
}

// Counted says how many records a selection took of how many.
type Counted struct {
	Shown, Matched, Total uint64
	Last                  uint64 // the number of the last record of the log
	Missing               uint64 // records between others that are damaged or gone: Verify finds which
}

// Select calls fn for the records of a selection, oldest first, and counts them.
func Select(ctx context.Context, dir string, s Selection, fn func(Record) error) (n Counted, err error) {
	first, err := firstSince(ctx, dir, s.Since)
	if err != nil {
		return n, err
	}
	var kept []Record
	err = each(ctx, dir, first, nil, func(r Record) error {
		if n.Last > 0 && r.Seq > n.Last+1 {
			n.Missing += r.Seq - n.Last - 1
		}
		n.Last = r.Seq
		if at, ok := when(r.At); ok && at.Before(s.Since) || s.Match != nil && !s.Match(r) {
			return nil
		}
		n.Matched++
		if s.Last == 0 {
			n.Shown++
			return fn(r)
		}
		if kept = append(kept, r); len(kept) > 2*s.Last+64 {
			kept = slices.Clone(kept[len(kept)-s.Last:])
		}
		return nil
	})
	if err != nil {
		return n, err
	}
	for _, r := range kept[max(0, len(kept)-s.Last):] {
		n.Shown++
		if err := fn(r); err != nil {
			return n, err
		}
	}
	names, err := segments(dir)
	if err == nil && len(names) > 0 && n.Last > 0 {
		oldest, _ := firstOf(names[0])
		n.Total = n.Last - oldest + 1
	}
	return n, err
}

// firstSince returns the oldest segment that can hold a record of a time or later.
func firstSince(ctx context.Context, dir string, since time.Time) (string, error) {
	names, err := segments(dir)
	if err != nil {
		return "", fmt.Errorf("audit: %w", err)
	}
	first := ""
	for _, name := range names {
		r, ok, err := firstRecord(dir, name)
		if err != nil {
			return "", err
		}
		if at, known := when(r.At); ok && known && at.Before(since.Add(-clockSlack)) {
			first = name
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	return first, nil
}

// clockSlack is how far a clock may be set back between two records.
const clockSlack = time.Hour

// firstRecord reads the first record of a segment; false if the segment is empty.
func firstRecord(dir, name string) (r Record, ok bool, err error) {
	f, err := openSegment(dir, name, os.O_RDONLY)
	if err != nil {
		return r, false, fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return r, false, fmt.Errorf("audit: %w", err)
	}
	err = lines(f, 0, min(info.Size(), MaxLine), func(ln line) error {
		var bad error
		r, bad = parseRecord(ln.text)
		ok = bad == nil && ln.whole
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return r, ok, err
}

// errStop ends the reading of lines early.
var errStop = errors.New("stop")
