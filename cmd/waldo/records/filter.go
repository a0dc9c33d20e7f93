package records

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/core/audit"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// Filter selects records by their fields. Empty fields select all.
type Filter struct {
	Denied                        bool
	Principal, Capability, Effect string
	About                         string // an id: of a call, a decision or an approval
}

// Counted says how many of how many records were shown.
func Counted(w io.Writer, n audit.Counted) {
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

// Match returns a filter for records in order, oldest first. It attributes later records of a call to the principal
// of its decision.
func (f Filter) Match() func(audit.Record) bool {
	callers := map[string]string{}
	return func(r audit.Record) bool {
		var l Line
		if json.Unmarshal(r.Body, &l) != nil {
			return false
		}
		if r.Kind == audit.KindDecision && f.Principal != "" {
			callers[l.CallID] = l.Principal
		}
		who := l.Principal
		if who == "" {
			who = callers[l.CallID]
		}
		ids := []string{r.ID, l.CallID, l.DecisionID, l.ApprovalID, l.Parent}
		switch {
		case f.Principal != "" && !wild(f.Principal, who), f.Capability != "" && !wild(f.Capability, l.Capability),
			f.Effect != "" && l.Effect != f.Effect, f.Denied && !denial(r, l):
			return false
		}
		return f.About == "" || within(ids, f.About)
	}
}

func within(ids []string, one string) bool {
	for _, id := range ids {
		if id == one {
			return true
		}
	}
	return false
}

// denial reports whether a record says that something was denied.
func denial(r audit.Record, l Line) bool {
	switch r.Kind {
	case audit.KindDecision:
		return l.Effect == "deny"
	case audit.KindAnswer:
		return l.Yes == nil || !*l.Yes
	case audit.KindOutcome:
		return l.Status == "denied" || len(l.Facts.Network.Denied) > 0
	case app.KindEgress:
		var e app.EgressBody
		_ = json.Unmarshal(r.Body, &e)
		for _, a := range e.Attempts {
			if !a.Allowed {
				return true
			}
		}
	}
	return false
}

// wild reports whether a name is the one asked for, in which * stands for any characters.
func wild(pattern, name string) bool { return contract.Pattern(pattern).Match(name) }

// Since reads a time ago, or a time.
func Since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
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
	return time.Time{}, fault.Usage("a time ago as in 30m, 2h or 7d, or a time as in 2026-11-22 or 2026-11-22T10:00:00Z",
		"--since %q is not a time", text)
}
