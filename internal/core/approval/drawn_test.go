package approval

import (
	"errors"
	"testing"
)

// TestDrawn: the log counts the calls under one yes, one by one, up to its number; a record out of turn is a fault, and
// its call is not confirmed.
func TestDrawn(t *testing.T) {
	const yes = "a_2al2kqkmerfb2gwndy6t4eqnjo"
	type one struct{ decision, by, code string }
	for _, row := range []struct {
		why   string
		given bool
		said  []one
	}{
		{"counted", true, []one{{"d_1", string(DrawnBy(yes, 1, 2)), ""}, {"d_2", string(DrawnBy(yes, 2, 2)), ""}}},
		{"one too many", true, []one{
			{"d_1", string(DrawnBy(yes, 1, 1)), ""}, {"d_2", string(DrawnBy(yes, 2, 1)), "ceiling.count"},
		}},
		{"twice", true, []one{{"d_1", string(DrawnBy(yes, 1, 2)), ""}, {"d_2", string(DrawnBy(yes, 1, 2)), "ceiling.count"}}},
		{"another number", true, []one{
			{"d_1", string(DrawnBy(yes, 1, 2)), ""}, {"d_2", string(DrawnBy(yes, 2, 9)), "ceiling.count"},
		}},
		{"no yes", false, []one{{"d_1", string(DrawnBy(yes, 1, 2)), "ceiling.absent"}}},
		{"no approval", true, []one{{"d_1", "ceiling:x:1/2", "ceiling.malformed"}}},
		{"no number", true, []one{{"d_1", "ceiling:" + yes, "ceiling.malformed"}}},
	} {
		l := &Ledger{}
		if row.given {
			l.used = map[string]string{yes: "d_0"}
		}
		for _, o := range row.said {
			err := l.Answered(Recorded{DecisionID: o.decision, Yes: true, By: o.by})
			var no *Refused
			if o.code == "" && (err != nil || l.Confirm(o.decision, "") != nil) {
				t.Errorf("%s: %s: %v", row.why, o.decision, err)
			}
			if o.code != "" && (!errors.As(err, &no) || no.Reason.Code != o.code || l.Confirm(o.decision, "") == nil) {
				t.Errorf("%s: %s: %v, want %s", row.why, o.decision, err, o.code)
			}
		}
	}
}
