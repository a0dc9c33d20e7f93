package broker_test

import (
	"slices"
	"testing"

	"waldo/internal/config"
	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// A vault is the tokens of one session.
type vault map[string]string

func (v vault) Token(call.Session, string, string) (string, bool) { return "", false }
func (v vault) Like(call.Session, string, string) (string, bool)  { return "", false }
func (v vault) Avoid(call.Session, string)                        {}
func (v vault) Value(_ call.Session, token string) (string, bool) { s, ok := v[token]; return s, ok }

// A tokenized is a pipeline with a real policy and a real redactor.
type tokenized struct {
	fixture
	*redact.Redactor
}

func (h *tokenized) Restore(d policy.Decision) (call.Args, error) { return h.Redactor.Restore(d) }
func (h *tokenized) Result(d policy.Decision, o call.Outcome) call.Result {
	return h.fixture.Result(d, o)
}

// TestTheValuesOfTokensAreDecidedOn: rules and approvals count on the arguments as written and as the tool gets them.
func TestTheValuesOfTokensAreDecidedOn(t *testing.T) {
	const (
		deny  = "{mode: write, approval: none, rules: [{when: \"args.to.contains('evil')\", deny: true}]}"
		asks  = "{mode: write, approval: {when: \"args.to.contains('evil')\"}}"
		alone = "{mode: write, approval: none, rules: [{when: \"args.to.startsWith('[')\", deny: true}]}"
		read  = "{mode: read, approval: none, rules: [{when: \"args.to.contains('evil')\", deny: true}]}"
	)
	for _, row := range []struct {
		why, contract, to string
		status            facts.Status
		code              string
	}{
		{"the value itself is refused", deny, "thief@evil.example", facts.Denied, "rule.deny"},
		{"its token is refused", deny, "[EMAIL_2]", facts.Denied, "token.value"},
		{"another's token passes", deny, "[EMAIL_1]", facts.OK, ""},
		{"a token in a URL is refused", deny, "https://x:8443/?to=[EMAIL_2]&b", facts.Denied, "token.value"},
		{"the control in a URL passes", deny, "https://x:8443/?to=[EMAIL_1]&b", facts.OK, ""},
		{"a token that was never given out is text", deny, "[EMAIL_3]", facts.OK, ""},
		{"a question on the value", asks, "thief@evil.example", facts.Waiting, "approval.condition"},
		{"a question on its token", asks, "[EMAIL_2]", facts.Waiting, "token.value"},
		{"no question on another's", asks, "[EMAIL_1]", facts.OK, ""},
		{"a rule about the token as written holds", alone, "[EMAIL_1]", facts.Denied, "rule.deny"},
		{"its control passes", alone, "boss@corp.example", facts.OK, ""},
		{"a tool that gets the token is decided on the token", read, "[EMAIL_2]", facts.OK, ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			cfg, problems := config.Parse("w", []byte("servers: {mail: {command: [a]}}\nredaction: {model: [email], tokens: true}\n"+
				"capabilities:\n  mail.send: "+row.contract+"\n"))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			p, err := policy.New(cfg, policy.Machine{Transports: map[contract.Transport]bool{contract.MCP: true}})
			if err != nil {
				t.Fatal(err)
			}
			h := &tokenized{Redactor: redact.New(cfg.Redaction, &redact.Registry{},
				vault{"[EMAIL_1]": "boss@corp.example", "[EMAIL_2]": "thief@evil.example"})}
			b := broker.Broker{Policy: p, Record: h, Approvals: h, Budget: h, Redact: h,
				Executors: map[contract.Transport]broker.Executor{contract.MCP: h}}
			args, err := call.ParseArgs([]byte(`{"to":"` + row.to + `"}`))
			if err != nil {
				t.Fatal(err)
			}
			r, err := b.Call(t.Context(), call.Call{ID: "c_1", Capability: "mail.send", Args: args})
			if err != nil || r.Status != row.status {
				t.Fatalf("%s, error %v: %v", r.Status, err, r.Why)
			}
			if row.code != "" && !slices.ContainsFunc(r.Why, func(w call.Reason) bool { return w.Code == row.code }) {
				t.Errorf("reasons %v", r.Why)
			}
			if executed := slices.Contains(h.steps, "execute"); executed != (row.status == facts.OK) {
				t.Errorf("steps %v", h.steps)
			}
		})
	}
}
