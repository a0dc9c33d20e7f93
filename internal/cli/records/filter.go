package records

import (
	"io"
	"strconv"
	"strings"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Counted says how many of how many records were shown.
func Counted(w io.Writer, n audit.Counted) {
	if n.Missing > 0 {
		display.Fprintf(w, "warning: %d records in between are damaged or gone; waldo log verify says which\n", n.Missing)
	}
	if n.Rebuilt {
		display.Fprintf(w, "note: a part of the index did not fit the log, and was made again\n")
	}
	switch {
	case n.Shown < n.Matched && n.Matched < n.Total:
		display.Fprintf(w, "(last %d of %d selected, of %d in the log; -n 0 for all)\n", n.Shown, n.Matched, n.Total)
	case n.Shown < n.Matched:
		display.Fprintf(w, "(last %d of %d; -n 0 for all)\n", n.Shown, n.Total)
	case n.Shown < n.Total:
		display.Fprintf(w, "(%d of %d records)\n", n.Shown, n.Total)
	default:
		display.Fprintf(w, "(all %d records)\n", n.Total)
	}
}

// Indexing returns a progress of a selection that shows on a terminal how far the index is.
func Indexing(w io.Writer) func(done, all int64) {
	var bar io.WriteCloser
	shown, zeros := int64(0), make([]byte, 1<<16)
	return func(done, all int64) {
		if bar == nil {
			bar = terminal.Progress(w, "indexing the log", all)
		}
		for shown < done {
			n, _ := bar.Write(zeros[:min(done-shown, int64(len(zeros)))])
			shown += int64(n)
		}
		if done == all {
			_ = bar.Close()
			bar, shown = nil, 0
		}
	}
}

// Time reads the value of a flag: a time ago, today, yesterday, or a time.
func Time(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch text {
	case "today":
		return midnight, nil
	case "yesterday":
		return midnight.AddDate(0, 0, -1), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 1e5 {
			return now.Add(-time.Duration(n * 24 * float64(time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
	} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fault.Usage("a time ago as in 30m, 2h or 7d, today, yesterday, or a time as in 2026-11-22 or 2026-11-22T10:00:00Z",
		"%s %q is not a time", flag, text)
}
