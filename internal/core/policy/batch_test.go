package policy

import (
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestBatch: request_approval asks a human if the contract of the named capability allows that many calls.
func TestBatch(t *testing.T) {
	p := &Policy{digest: "p", exact: map[string][]*entry{},
		machine: Machine{Transports: map[contract.Transport]bool{contract.MCP: true}},
		cfg:     &contract.Config{Servers: map[string]contract.Server{"s": {}}}}
	add := func(name string, c contract.Contract) {
		c.Pattern, c.Keys = name, map[string]contract.Position{"approval": {Line: 7}}
		c.Mode, c.Danger = contract.Write, 2
		p.exact[name] = []*entry{{contract: c}}
		p.cfg.Contracts = append(p.cfg.Contracts, c)
	}
	ask := func(text string) Decision {
		a, err := call.ParseArgs([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p.Decide(call.Call{Capability: contract.RequestApproval, Args: a, Session: "n_1"})
	}
	add("s.one", contract.Contract{})
	if p.Visible(contract.RequestApproval) || p.Usable(contract.RequestApproval, "os:1", "bridge") {
		t.Error("it is shown, and no contract allows it")
	}
	add("s.make", contract.Contract{Approval: contract.Approval{Ceiling: 50, By: ""}})
	add("s.free", contract.Contract{Approval: contract.Approval{Ceiling: 50, When: contract.Never}})
	add("s.no", contract.Contract{Denied: true, Approval: contract.Approval{Ceiling: 50}})
	if !p.Visible(contract.RequestApproval) || !p.Usable(contract.RequestApproval, "os:1", "bridge") {
		t.Error("it is hidden")
	}
	for text, code := range map[string]string{
		`{"capability":"s.make","count":50,"arguments":{"a":1}}`:                    "",
		`{"capability":"s__make","count":1,"minutes":60,"arguments":{"a":1}}`:       "",
		`{"capability":"s.make","count":51,"arguments":{"a":1}}`:                    "ceiling.exceeded",
		`{"capability":"s.one","count":1,"arguments":{"a":1}}`:                      "ceiling.absent",
		`{"capability":"s.free","count":1,"arguments":{"a":1}}`:                     "ceiling.needless",
		`{"capability":"s.no","count":1,"arguments":{"a":1}}`:                       "contract.deny",
		`{"capability":"s.absent","count":1,"arguments":{"a":1}}`:                   "contract.absent",
		`{"capability":"request_approval","count":1,"arguments":{"a":1}}`:           "args.invalid",
		`{"capability":"s.make","count":0,"arguments":{"a":1}}`:                     "args.invalid",
		`{"capability":"s.make","count":1,"arguments":{}}`:                          "args.invalid",
		`{"capability":"s.make","count":1}`:                                         "args.invalid",
		`{"capability":"s.make","count":1,"minutes":61,"arguments":{"a":1}}`:        "args.invalid",
		`{"capability":"s.make","count":1,"arguments":{"a":1},"session":"n_other"}`: "args.invalid",
	} {
		d := ask(text)
		if code == "" && (d.Effect != Ask || d.Contract.Transport != contract.Batch || d.Danger != 2 ||
			d.Reasons[0].Code != "ceiling.asked") {
			t.Errorf("%s: %v %+v", text, d.Effect, d.Reasons)
		}
		if code != "" && (d.Effect != Deny || d.Reasons[0].Code != code) {
			t.Errorf("%s: %v %+v, want %s", text, d.Effect, d.Reasons, code)
		}
	}
}
