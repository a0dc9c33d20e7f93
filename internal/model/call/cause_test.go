package call

import (
	"slices"
	"testing"

	"waldo/internal/model/facts"
)

// TestCause: a caller gets the deciding reason of a denial, and no reasons of the decision that allowed a failed call.
func TestCause(t *testing.T) {
	of := func(codes ...string) (why []Reason) {
		for _, c := range codes {
			why = append(why, Reason{Code: c})
		}
		return why
	}
	for _, row := range []struct {
		status    facts.Status
		has, want []Reason
	}{
		{facts.OK, of("mode.read", "approval.none"), nil},
		{facts.Denied, of("environment.excluded", "mode.write", "approval.none"), of("environment.excluded")},
		{facts.Denied, nil, nil},
		{facts.Waiting, of("approval.always", "mode.write"), of("approval.always", "mode.write")},
		{facts.Failed, of("mode.write", "approval.none", "annotation.write", "rule.danger"), nil},
		{facts.Failed, of("args.schema"), of("args.schema")},
		{facts.Cancelled, of("mode.write", SessionStopped), of(SessionStopped)},
	} {
		r := Result{Status: row.status, Why: row.has}
		if got := r.Cause(); !slices.Equal(got, row.want) {
			t.Errorf("%s %v: %v, want %v", row.status, row.has, got, row.want)
		}
	}
}
