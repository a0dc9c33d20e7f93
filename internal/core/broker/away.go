package broker

import (
	"errors"
	"slices"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/storage/database"
)

// away completes the result of a call that failed because the store is away: its id, its side effect, and when the same
// call can be made again. A result without an id is of a call that was sent, so its side effect is unknown. Such a call
// can be made again only under a key.
func away(d policy.Decision, r call.Result, err error) call.Result {
	if !errors.Is(err, database.ErrAway) {
		return r
	}
	if r.CallID == "" {
		r = unexecuted(d, facts.Failed)
		r.Facts.SideEffect = facts.Unknown
	}
	why := call.StoreAway()
	if r.Facts.SideEffect != facts.None && !d.Tracked() {
		why.RetryAfter = 0
	}
	r.Why = slices.Insert(slices.Clone(r.Why), 0, why)
	return r
}
