package telemetry

import (
	"testing"

	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// TestRefusedCallIsNoRequest: a call that a contract or a person refuses counts as decided, by the name of its mode, and not
// as a request to a server.
func TestRefusedCallIsNoRequest(t *testing.T) {
	m, err := New(Options{Version: "1", Lasting: true, Source: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tool   call.Capability
		effect policy.Effect
		status facts.Status
	}{{"s.denied", policy.Deny, facts.Denied}, {"s.no", policy.Ask, facts.Denied}, {"s.made", policy.Allow, facts.OK}} {
		d := policy.Decision{Effect: c.effect, Contract: contract.Contract{Pattern: "s.*", Transport: contract.MCP, Mode: contract.Read}}
		n := m.Begin(call.Call{Capability: c.tool, Channel: "rest"})
		n.Step(broker.StepExecute, d)
		n.End(d, call.Result{Status: c.status, Facts: facts.Facts{Status: c.status}}, nil)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string][]string{}
	for _, f := range families {
		for _, each := range f.GetMetric() {
			for _, l := range each.GetLabel() {
				if l.GetName() == "gen_ai_tool_name" || l.GetName() == "waldo_mode" {
					seen[f.GetName()] = append(seen[f.GetName()], l.GetValue())
				}
			}
		}
	}
	if got := seen["mcp_client_operation_duration_seconds"]; len(got) != 1 || got[0] != "s.made" {
		t.Errorf("requests to servers: %q", got)
	}
	if got := seen["waldo_decisions_total"]; len(got) != 2 || got[0] != "read" || got[1] != "read" {
		t.Errorf("modes of decisions: %q", got)
	}
}
