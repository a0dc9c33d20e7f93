package telemetry

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// TestRunsOfSandboxes: a call of a server that lives in a sandbox is no run of one.
func TestRunsOfSandboxes(t *testing.T) {
	m, err := New(Options{Version: "1", Lasting: true, Source: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []contract.Transport{contract.MCP, contract.Direct} {
		d := policy.Decision{Effect: policy.Allow, Contract: contract.Contract{Pattern: "s.*", Transport: by}}
		f := facts.Facts{Status: facts.OK, Sandbox: facts.Sandbox{Driver: "namespace"}}
		n := m.Begin(call.Call{Capability: "s.x"})
		n.Step(broker.StepExecute, d)
		n.Step(broker.StepRedact, d)
		n.End(d, call.Result{Status: facts.OK, Facts: f}, nil)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	runs := 0.0
	for _, f := range families {
		if f.GetName() == "waldo_sandbox_runs_total" {
			runs = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if runs != 1 {
		t.Errorf("%v runs, not 1", runs)
	}
}

// TestComplaints: failures to send are logged once for each kind and minute.
func TestComplaints(t *testing.T) {
	var out bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(was)
	now := time.Unix(0, 0)
	c := &complaints{now: func() time.Time { return now }, last: map[string]time.Time{}}
	for _, row := range []struct {
		after time.Duration
		text  string
		lines int // so far
	}{
		{0, "traces export: refused", 1}, {0, "failed to upload metrics: refused", 2}, {0, "traces export: refused", 2},
		{59 * time.Second, "traces export: refused", 2}, {time.Second, "traces export: refused", 3},
	} {
		now = now.Add(row.after)
		c.Handle(errors.New(row.text))
		if got := strings.Count(out.String(), "\n"); got != row.lines {
			t.Errorf("%+v: %d lines:\n%s", row, got, out.String())
		}
	}
}
