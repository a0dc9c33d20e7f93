package mcpserver

import (
	"strings"
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// TestNext: what a model is told after a denial is true of the same call.
func TestNext(t *testing.T) {
	for _, r := range []struct {
		why  call.Reason
		want string
	}{
		{call.Reason{Code: "contract.deny"}, "; try another way, or ask the person you work for."},
		{call.Reason{Code: "rate.exceeded", RetryAfter: 60}, "; make the same call again in 60 s."},
		{call.Reason{Code: "approval.used"}, "; the same call, made again without an approval, asks a human anew."},
		{call.Reason{Code: "hold.differs"}, "; the same call, made again without an approval, asks a human anew."},
	} {
		got := Epilogue(call.Result{Status: facts.Denied, DecisionID: "d_1", Why: []call.Reason{r.why}})
		if !strings.HasSuffix(got, "Decision d_1"+r.want) {
			t.Errorf("%s: %s", r.why.Code, got)
		}
	}
}
