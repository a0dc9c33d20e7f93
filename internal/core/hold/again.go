package hold

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// AgainCode is the code of the reasons that name calls of a statement that were made before.
const AgainCode = "hold.again"

// Ended is the end of a held call, as a report has it.
func Ended(r call.Result) string {
	switch {
	case r.Facts.SideEffect == facts.Unknown:
		return "unknown"
	case r.Settled == call.Happened: // without its answer, so the list ends here
		return "done"
	case r.Status != facts.OK && r.Facts.SideEffect == facts.None:
		return "not done"
	case r.Status != facts.OK:
		return "failed"
	}
	return "done"
}

// Ended is the same for a row of the log.
func (r Row) Ended() string {
	switch {
	case r.Struck:
		return "struck out"
	case r.Undone:
		return "undone"
	}
	return Ended(r.Result)
}

// Same returns the calls of an earlier statement that are equal to calls of this one, by their numbers from 1, with the
// numbers that they have here. Each call here counts once.
func (s Statement) Same(earlier Statement) map[int]int {
	here, out := map[string][]int{}, map[int]int{}
	for i, one := range s.Calls {
		k := one.name()
		here[k] = append(here[k], i+1)
	}
	for i, one := range earlier.Calls {
		if left := here[one.name()]; len(left) > 0 {
			out[i+1], here[one.name()] = left[0], left[1:]
		}
	}
	return out
}

// name is equal for equal calls.
func (h Held) name() string {
	args, _ := call.ParseArgs(h.Args)
	return string(h.Capability) + " " + args.Digest()
}

// maxReason is how long one reason is, in bytes. A question shows a little more of it.
const maxReason = 280

// Again names the calls of a statement that an earlier one, of an answered question, has made. same are their numbers
// there and here. There are none where each call did nothing or was undone.
func Again(q approval.Question, same map[int]int, made map[int]Row) (notes []call.Reason) {
	var words []string
	for n := 1; len(words) < len(same) && n <= MaxCalls; n++ {
		here, equal := same[n]
		row, known := made[n]
		if end := row.Ended(); equal && known && !slices.Contains([]string{"struck out", "undone", "not done"}, end) {
			words = append(words, fmt.Sprintf("call %d %s (%s)", here, end, row.CallID))
		}
	}
	if len(words) == 0 {
		return nil
	}
	whole := "in part"
	if len(words) == len(q.Calls()) {
		whole = "whole"
	}
	text := fmt.Sprintf("an equal or overlapping list was carried out %s, by approval %s of %s. Numbered as here, "+
		"it made:", whole, q.ID, q.Created.UTC().Format(time.RFC3339))
	for _, w := range words {
		if len(text)+len(w)+2 > maxReason {
			notes, text = append(notes, call.Reason{Code: AgainCode, Text: strings.TrimSuffix(text, ",")}), "it also made:"
		}
		text += " " + w + ","
	}
	return append(notes, call.Reason{Code: AgainCode, Text: strings.TrimSuffix(text, ",")})
}
