package approval

import (
	"fmt"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// drawnPrefix begins the name of who answers for a call that a yes to several calls covers.
const drawnPrefix = "ceiling:"

// DrawnBy names the answer to the n-th call of those that one yes allowed.
func DrawnBy(approvalID string, n, of int) call.Principal {
	return call.Principal(fmt.Sprintf("%s%s:%d/%d", drawnPrefix, approvalID, n, of))
}

// draws counts the calls that a yes to several calls has covered.
type draws struct{ n, of int }

// drawn takes in an answer that rests on a yes to several calls. The log must hold that yes, and the calls must be
// counted one by one up to its number.
func (l *Ledger) drawn(a Recorded) error {
	rest := strings.TrimPrefix(a.By, drawnPrefix)
	approvalID, count, _ := strings.Cut(rest, ":")
	var n, of int
	if _, err := fmt.Sscanf(count, "%d/%d", &n, &of); err != nil || !id.Is(id.Approval, approvalID) || !a.Yes {
		return refused("ceiling.malformed", "the answer for decision %s names no approval of several calls",
			Escape(a.DecisionID))
	}
	if l.draws == nil {
		l.draws, l.drew = map[string]draws{}, map[string]bool{}
	}
	before := l.draws[approvalID]
	_, given := l.used[approvalID]
	switch {
	case !given:
		return refused("ceiling.absent", "decision %s rests on approval %s, to which no record says yes",
			Escape(a.DecisionID), approvalID)
	case n != before.n+1 || n > of || before.of != 0 && of != before.of:
		return refused("ceiling.count", "decision %s is call %d of %d under approval %s, after %d", Escape(a.DecisionID), n,
			of, approvalID, before.n)
	}
	l.draws[approvalID], l.drew[a.DecisionID] = draws{n, of}, true
	return nil
}
