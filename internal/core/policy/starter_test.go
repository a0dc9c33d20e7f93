package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"waldo/internal/config"
	"waldo/internal/config/starter"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestStarterRules: what waldo init writes asks a human about each kind of danger by argument, also where the contract
// asks for no approval. The control is a call of the same tool without it.
func TestStarterRules(t *testing.T) {
	text := "version: 1\ncapabilities:\n  '*': {transport: sandboxed_exec, mode: high_risk, approval: none}\n" + string(starter.Rules())
	cfg, problems := config.Parse("waldo.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	p, err := policy.New(cfg, policy.Machine{Isolations: map[string]bool{"gvisor": true},
		Transports: map[contract.Transport]bool{contract.SandboxedExec: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ capability, args, reason string }{
		{"x.do", `{"command":"git push origin main"}`, "it pushes or merges"},
		{"x.do", `{"argv":["git","-C","a","push"]}`, "it pushes or merges"},
		{"x.do", `{"deep":[{"cmd":"gh pr merge 7"}]}`, "it pushes or merges"},
		{"x.do", `{"command":"git","args":["push"]}`, "it pushes or merges"},
		{"x.do", `{"argv":["push"],"program":"git"}`, "it pushes or merges"},
		{"x.do", `{"command":"git \\\n  push"}`, "it pushes or merges"},
		{"x.do", `{"git":{"push":true}}`, "it pushes or merges"},
		{"x.do", `{"command":"git status"}`, ""},
		{"x.do", `{"command":"git","args":["status"]}`, ""},
		{"x.do", `{"command":"digit","args":["pushed"]}`, ""},
		{"x.do", `{"command":"npm publish --access public"}`, "it publishes"},
		{"x.do", `{"command":"docker push a/b"}`, "it publishes"},
		{"x.do", `{"command":"npm","args":["publish"]}`, "it publishes"},
		{"x.do", `{"args":["upload"],"command":"twine"}`, "it publishes"},
		{"x.do", `{"command":"docker \\\n  push a/b"}`, "it publishes"},
		{"x.do", `{"command":"npm test"}`, ""},
		{"x.do", `{"command":"npm","args":["test"]}`, ""},
		{"x.do", `{"body":"token ghp_` + "Zk3vQ9xT7mLp2Rw8Yb5N" + `cJ4hGdFsA1uE6oKi"}`, "a credential is in the arguments"},
		{"x.do", `{"command":"curl","args":["-u","ghp_` + "Zk3vQ9xT7mLp2Rw8Yb5N" + `cJ4hGdFsA1uE6oKi"]}`, "a credential is in the arguments"},
		{"x.do", `{"env":{"ghp_` + "Zk3vQ9xT7mLp2Rw8Yb5N" + `cJ4hGdFsA1uE6oKi":1}}`, "a credential is in the arguments"},
		{"x.do", `{"body":"token of the day"}`, ""},
		{"x.do", `{"command":"curl","args":["-u","token"],"password":"at least twelve letters","token":"none"}`, ""},
		{"x.do", `{"body":"` + strings.Repeat("x ", 60_000) + `"}`, "the arguments hold much data"},
		{"x.do", `{"command":"tee","args":["` + strings.Repeat("x ", 60_000) + `"]}`, "the arguments hold much data"},
		{"x.do", `{"fields":{"` + strings.Repeat("x ", 60_000) + `":1}}`, "the arguments hold much data"},
		{"x.do", `{"command":"tee","args":["` + strings.Repeat("x ", 40_000) + `"]}`, ""},
		{"run_python", `{"code":"` + strings.Repeat("x ", 60_000) + `"}`, ""},
		{"x.do", `{"command":"chmod -R 777 /"}`, "it changes access"},
		{"x.do", `{"command":"chmod","args":["777","/"]}`, "it changes access"},
		{"x.do", `{"command":"sudo \\\n  visudo"}`, "it changes access"},
		{"x.do", `{"command":"ls","args":["-l","chmods"]}`, ""},
		{"x.add_collaborator", `{}`, "it changes access"},
		{"x.update_user_role", `{}`, "it changes access"},
		{"x.list_users", `{"numbers":[1,null,true]}`, ""},
	} {
		args, err := call.ParseArgs(json.RawMessage(row.args))
		if err != nil {
			t.Fatal(err)
		}
		d := p.Decide(call.Call{Capability: call.Capability(row.capability), Args: args})
		var got string
		for _, r := range d.Reasons {
			if r.Code == "rule.danger" {
				got = r.Text
			}
			if r.Code == "rule.condition_error" {
				t.Errorf("%s %.60s: %s", row.capability, row.args, r.Text)
			}
		}
		if want := map[bool]policy.Effect{true: policy.Allow, false: policy.Ask}[row.reason == ""]; got != row.reason || d.Effect != want {
			t.Errorf("%s %.60s: %v %q, wanted %q: %v", row.capability, row.args, d.Effect, got, row.reason, d.Reasons)
		}
	}
}
