package approval

import (
	"context"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
)

// The answer of an agent's host counts if the operator trusts hosts, for its own session, once, and never in place of
// a role.
func TestHostsAnswer(t *testing.T) {
	for _, row := range []struct {
		why      string
		carriers []string
		role     string
		session  string // that answers
		yes      bool
		said     string // the code of a refusal
		want     string // of the next call
	}{
		{"control: a yes", []string{"elicitation"}, "", "n_one", true, "", "yes"},
		{"a no", []string{"elicitation"}, "", "n_one", false, "", "approval.declined"},
		{"the operator has not listed elicitation", []string{"console", "terminal"}, "", "n_one", true,
			"approval.carrier", "waiting"},
		{"the operator lists no carriers", nil, "", "n_one", true, "approval.carrier", "waiting"},
		{"somebody with a role is wanted", []string{"elicitation"}, "manager", "n_one", true, "approval.carrier", "waiting"},
		{"the host of another session", []string{"elicitation"}, "", "n_two", true, "approval.unknown", "waiting"},
	} {
		t.Run(row.why, func(t *testing.T) {
			h := newFixture(t)
			h.about.rules = func() contract.Approvals { return contract.Approvals{Timeout: time.Hour, Carriers: row.carriers} }
			d := decide(t, `{"path":"/work/a"}`)
			d.Contract.Approval.By = row.role
			first := h.want(t, d, "waiting")
			d.Call.Session = "n_one"
			n := d.Call.Session
			if row.session != "n_one" {
				n = "n_two"
			}
			text, ok := h.Put(ctx, n, first)
			if ok != (row.said == "") || ok && !strings.Contains(text, "/work/a") {
				t.Errorf("shown: %v %q", ok, text)
			}
			if got := code(h.Said(ctx, n, first, row.yes)); got != row.said {
				t.Errorf("said: %q, want %q", got, row.said)
			}
			h.want(t, d, row.want)
		})
	}
}

// A host's approval is for one call with these arguments, in this process, before it expires. The operator can
// disable hosts at any time.
func TestHostsYesIsSpent(t *testing.T) {
	carriers := []string{"elicitation"}
	h := newFixture(t)
	rules := func() contract.Approvals { return contract.Approvals{Timeout: time.Hour, Carriers: carriers} }
	h.about.rules = rules
	d := decide(t, `{"path":"/work/a"}`)
	d.Contract.Approval.By = ""
	say := func() string {
		t.Helper()
		first := h.want(t, d, "waiting")
		h.Put(ctx, "n_one", first)
		if err := h.Said(ctx, "n_one", first, true); err != nil {
			t.Fatal(err)
		}
		return first
	}
	first := say()
	other := decide(t, `{"path":"/work/b"}`)
	other.Contract.Approval.By = ""
	h.want(t, other, "waiting")
	h.want(t, d, "yes")
	if next := h.want(t, d, "waiting"); next == first {
		t.Error("a yes was good for two calls")
	}
	if got := code(h.Said(ctx, "n_one", first, true)); got != "approval.answered" {
		t.Errorf("answered twice: %q", got)
	}
	say()
	carriers = []string{"terminal"}
	h.want(t, d, "waiting")
	carriers = []string{"elicitation"}
	h.restart(t)
	h.about.rules = rules
	h.want(t, d, "waiting")
	second := say()
	h.pass(2 * time.Hour)
	if third := h.want(t, d, "waiting"); third == second {
		t.Error("a yes outlived its question")
	}
}

// A host answers only the question that it was given to show. It never gets a question with notes that the agent must
// not see.
func TestHostsAnswerWhatWasShown(t *testing.T) {
	h := newFixture(t)
	h.about.rules = func() contract.Approvals {
		return contract.Approvals{Timeout: time.Hour, Carriers: []string{"elicitation"}}
	}
	ask := func(args string) (string, policy.Decision) {
		d := decide(t, args)
		d.Contract.Approval.By = ""
		return h.want(t, d, "waiting"), d
	}
	harmless, _ := ask(`{"path":"/tmp/a"}`)
	harm, d := ask(`{"path":"/etc"}`)
	if _, ok := h.Put(ctx, "n_one", harmless); !ok {
		t.Fatal("control: the host is given the question")
	}
	h.exec(t, `DELETE FROM approvals WHERE id = $1`, harmless)
	h.exec(t, `UPDATE approvals SET id = $1, question = REPLACE(question, $2, $1) WHERE id = $2`, harmless, harm)
	if err := h.Said(ctx, "n_one", harmless, true); code(err) != "approval.changed" {
		t.Errorf("an answer to what was not shown: %v", err)
	}
	h.want(t, d, "waiting")
	if _, ok := h.Put(ctx, "n_one", harmless); !ok {
		t.Fatal("control: the host is given the other question")
	}
	if err := h.Said(ctx, "n_one", harmless, true); err != nil {
		t.Fatal("control: ", err)
	}
	h.want(t, d, "yes")
	h.about.preview = func(context.Context, policy.Decision) []string { return []string{"-old", "+new"} }
	previewed, _ := ask(`{"path":"/tmp/b"}`)
	if text, ok := h.Put(ctx, "n_one", previewed); !ok || !strings.Contains(text, "  | -old\n  | +new\n") {
		t.Errorf("the host shows a preview: %t, %s", ok, text)
	}
	h.about.notes = func(policy.Decision) []string { return []string{`[EMAIL_2] stands for "ann@example.com"`} }
	noted, _ := ask(`{"to":"[EMAIL_2]"}`)
	if text, ok := h.Put(ctx, "n_one", noted); ok {
		t.Errorf("the host is told what a token stands for: %s", text)
	}
}

// The no of a host ends the question: the call is denied, also after a restart, no approver can turn it into a yes, and
// it is not listed any more.
func TestAHostsNoIsADenial(t *testing.T) {
	h := newFixture(t)
	rules := func() contract.Approvals {
		return contract.Approvals{Timeout: time.Hour, Carriers: []string{"elicitation"}}
	}
	h.about.rules = rules
	d := decide(t, `{"path":"/work/a"}`)
	d.Contract.Approval.By = ""
	first := h.want(t, d, "waiting")
	q, _, err := h.Question(ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	h.Put(ctx, "n_one", first)
	if err := h.Said(ctx, "n_one", first, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.want(t, d, "approval.declined")
		if open, err := h.Pending(ctx); err != nil || len(open) != 0 {
			t.Errorf("still listed: %v %v", open, err)
		}
		if _, state, _ := h.Question(ctx, first); state != Declined {
			t.Errorf("state %q", state)
		}
		if got := code(h.Service.Answer(ctx, h.ann, q, true, "")); got != "approval.answered" {
			t.Errorf("an approver's yes after it: %q", got)
		}
		h.restart(t)
		h.about.rules = rules
	}
	h.pass(2 * time.Hour)
	if second := h.want(t, d, "waiting"); second == first {
		t.Error("a no outlived its question")
	}
}
