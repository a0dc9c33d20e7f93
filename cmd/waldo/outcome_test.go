package main

import (
	"errors"
	"strings"
	"testing"

	"waldo/internal/cli/exitcode"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// TestOutcome: the exit code is that of the command where it ran to its end, and says of nothing that
// failed that it went well.
func TestOutcome(t *testing.T) {
	zero, seven, kill, disk := 0, 7, "SIGKILL", facts.Limit("disk")
	for _, row := range []struct {
		why  string
		f    facts.Facts
		code int
		text string
	}{
		{"it failed by itself", facts.Facts{Status: facts.Failed, ExitCode: &seven}, 7, ""},
		{"it was killed", facts.Facts{Status: facts.Failed, Signal: &kill}, 137, "killed by SIGKILL"},
		{"it was killed for a limit", facts.Facts{Status: facts.Failed, Signal: &kill, Limit: &disk}, 137, "disk"},
		{"it was at its end when the limit was seen", facts.Facts{Status: facts.Failed, ExitCode: &zero, Limit: &disk},
			exitcode.Failed, "disk"},
		{"nothing ran", facts.Facts{Status: facts.Failed, Warnings: []string{"why"}}, exitcode.Failed, "why"},
	} {
		var e *exitcode.Exit
		if err := exitcode.OfResult(call.Result{Facts: row.f}); !errors.As(err, &e) || e.Code != row.code ||
			!strings.Contains(e.Error(), row.text) {
			t.Errorf("%s: %+v", row.why, err)
		}
	}
	if err := exitcode.OfResult(call.Result{Facts: facts.Facts{Status: facts.OK, ExitCode: &zero}}); err != nil {
		t.Errorf("it went well: %v", err)
	}
}
