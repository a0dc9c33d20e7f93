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
	Kind, Channel                 string
	Agent                         string    // the name that an agent host gave itself
	Until                         time.Time // records before it; zero: all
	About                         string    // an id: of a call, a decision or an approval
}

// Counted says how many of how many records were shown.
func Counted(w io.Writer, n audit.Counted) {
	if n.Missing > 0 {
		display.Fprintf(w, "warning: %d records in between are damaged or gone; waldo log verify says which\n", n.Missing)
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

// Match returns a filter for records in order, oldest first. It attributes later records of a call to the principal
// of its decision.
func (f Filter) Match() func(audit.Record) bool {
	type origin struct{ principal, agent, channel string }
	origins := map[string]origin{}
	return func(r audit.Record) bool {
		var l Line
		if json.Unmarshal(r.Body, &l) != nil {
			return false
		}
		from := origin{l.Principal, l.Agent, l.Channel}
		if r.Kind == audit.KindDecision && (f.Principal != "" || f.Agent != "" || f.Channel != "") {
			origins[l.CallID] = from
		} else if of, known := origins[l.CallID]; known {
			from = of
		}
		ids := []string{r.ID, l.CallID, l.DecisionID, l.ApprovalID, l.Parent}
		switch {
		case f.Kind != "" && r.Kind != f.Kind:
			return false
		case !f.Until.IsZero() && r.At >= f.Until.UTC().Format(audit.TimeLayout):
			return false
		case f.Agent != "" && !wild(f.Agent, from.agent), f.Channel != "" && f.Channel != from.channel:
			return false
		case f.Principal != "" && !wild(f.Principal, from.principal) && !wild(f.Principal, l.By), f.Capability != "" && !wild(f.Capability, l.Capability),
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
	case audit.KindVerdict, audit.KindAnswer:
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
