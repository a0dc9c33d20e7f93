package redact

import (
	"strings"
	"testing"

	"waldo/internal/call"
	"waldo/internal/facts"
	"waldo/internal/policy"
	"waldo/internal/secret"
)

// Where a worker refuses what the contract allowed, the worker's reason is the reason, without secrets.
func TestWorkersReason(t *testing.T) {
	known := &Registry{}
	if err := known.Add("token", secret.NewValue("hunter2-canary-value")); err != nil {
		t.Fatal(err)
	}
	r := &Redactor{Known: known}
	d := policy.Decision{Effect: policy.Allow, Reasons: []call.Reason{{Code: "approval.none"}}}
	o := call.Outcome{Facts: facts.New(), IsError: true}
	o.Facts.Status = facts.Denied
	if res := r.Result(d, o); len(res.Why) != 1 || res.Why[0].Code != "approval.none" {
		t.Errorf("control: %+v", res.Why)
	}
	o.Refused = &call.Reason{Code: "program.denied", Text: "no program hunter2-canary-value"}
	res := r.Result(d, o)
	if len(res.Why) != 1 || res.Why[0].Code != "program.denied" || strings.Contains(res.Why[0].Text, "hunter2") || res.Status != facts.Denied {
		t.Errorf("%+v", res)
	}
}
