package policy

import (
	"testing"

	"waldo/internal/call"
	"waldo/internal/contract"
)

// everything is a machine that has what these tests name.
var everything = Machine{
	Isolations: map[string]bool{"namespace": true, "gvisor": true},
	Transports: map[contract.Transport]bool{contract.Direct: true, contract.MCP: true, contract.SandboxedExec: true},
	Secrets:    map[string]bool{"service_account_helpdesk": true},
}

// compileText compiles the text of a waldo.yaml, which must be sound.
func compileText(t testing.TB, text string, m Machine) *Policy {
	t.Helper()
	cfg, problems := contract.Parse("waldo.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, text)
	}
	p, err := New(cfg, m)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// ask makes a call with arguments as JSON.
func ask(t testing.TB, capability, args string) call.Call {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return call.Call{Capability: call.Capability(capability), Args: a, Door: "mcp", Principal: "os:1000", Session: "n_1"}
}

// seed is section 7 of the first seed document, as it stands there.
const seed = `capabilities:
  search_docs:
    transport: mcp
    mode: read
    network: internal_only
    secrets: none
    timeout_seconds: 8
    approval: none
  create_ticket:
    transport: mcp
    mode: write
    network: internal_only
    secrets: service_account_helpdesk
    timeout_seconds: 15
    approval: manager_for_high_priority
  run_shell:
    transport: sandboxed_exec
    mode: high_risk
    network: denied
    filesystem: workspace_only
    secrets: none
    timeout_seconds: 10
    approval: always
`

func TestSeedLoadsAsItStands(t *testing.T) {
	cfg, problems := contract.Parse("waldo.yaml", []byte(seed))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var got []string
	for _, w := range cfg.Warnings {
		got = append(got, w.String())
	}
	t.Log(got)
	p, err := New(cfg, everything)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"search_docs", "create_ticket", "run_shell", "run_python"} {
		d := p.Decide(ask(t, c, `{"priority":"low"}`))
		t.Log(c, d.Effect, d.Reasons)
	}
}
