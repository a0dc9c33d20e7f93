package approval

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// row is a row as an attacker copies it.
func (h *fixture) row(t *testing.T, approvalID string) (state, question, expires string) {
	t.Helper()
	err := h.Store.View(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT state, question, expires FROM approvals WHERE id = $1`, approvalID).
			Scan(&state, &question, &expires)
	})
	if err != nil {
		t.Fatal(err)
	}
	return state, question, expires
}

const setState = `UPDATE approvals SET state = $1 WHERE id = $2`

// TestWithdrawnStaysSo: whatever the row says while a human takes a yes back, the yes is not used afterwards. The
// control uses the yes that nobody takes back.
func TestWithdrawnStaysSo(t *testing.T) {
	for _, during := range []string{"yes", "pending", "used", "void", "no", "declined", "gone", "swapped"} {
		t.Run(during, func(t *testing.T) {
			h := newFixture(t)
			kept := decide(t, `{"n":1}`)
			h.say(t, h.want(t, kept, "waiting"), true)
			h.want(t, kept, "yes") // control
			d := decide(t, `{"n":2}`)
			id := h.want(t, d, "waiting")
			h.say(t, id, true)
			_, question, _ := h.row(t, id)
			switch during {
			case "gone":
				h.exec(t, `UPDATE approvals SET id = 'x' WHERE id = $1`, id)
			case "swapped":
				h.exec(t, `UPDATE approvals SET question = REPLACE(question, '"danger":3', '"danger":1') WHERE id = $1`, id)
			default:
				h.exec(t, setState, during, id)
			}
			h.say(t, id, false)
			h.exec(t, `UPDATE approvals SET id = $1, question = $2, state = 'yes' WHERE id = $1 OR id = 'x'`, id, question)
			h.want(t, d, "no")
		})
	}
}

// TestVetoStaysSo: in a quorum a veto, and a part that is taken back, are undone by no row. The control has two yeses.
func TestVetoStaysSo(t *testing.T) {
	for _, no := range []string{"", "bob", "ann"} {
		t.Run("no of "+no, func(t *testing.T) {
			h := newFixture(t)
			by := map[string]Signer{"ann": h.ann, "bob": h.another(t, "bob"), "carol": h.another(t, "carol")}
			d := two(t, `{"path":"/a"}`)
			id := h.want(t, d, "waiting")
			h.say(t, id, true)
			want := "yes"
			if no != "" {
				if err := h.Answer(ctx, by[no], id, false, ""); err != nil {
					t.Fatal(err)
				}
				h.exec(t, setState, "pending", id)
				want = "no"
			}
			got := code(h.Answer(ctx, by["carol"], id, true, ""))
			if (got == "") != (no == "") || no != "" && got != "approval.answered" {
				t.Errorf("carol's yes: %q", got)
			}
			h.exec(t, setState, "yes", id)
			h.want(t, d, want)
		})
	}
}

// TestTimeoutInForce: a yes lives no longer than the timeout, whatever its row said when a human signed it.
func TestTimeoutInForce(t *testing.T) {
	for _, longer := range []bool{false, true} {
		h := newFixture(t)
		h.about.rules = func() contract.Approvals { return contract.Approvals{Timeout: 5 * time.Second} }
		d := decide(t, `{}`)
		d.Call.ApprovalID = h.want(t, d, "waiting")
		if longer {
			h.exec(t, `UPDATE approvals SET expires = '2027-11-20T12:00:05.000Z', question = REPLACE(question,`+
				` '2026-11-20T12:00:05Z', '2027-11-20T12:00:05Z') WHERE id = $1`, d.Call.ApprovalID)
		}
		h.say(t, d.Call.ApprovalID, true)
		h.pass(6 * time.Second)
		h.want(t, d, "approval.expired")
		h.exec(t, setState, "yes", d.Call.ApprovalID)
		h.want(t, d, "approval.expired")
	}
	h := newFixture(t) // a question of tomorrow would live longer than the timeout allows
	id := h.want(t, decide(t, `{}`), "waiting")
	h.exec(t, `UPDATE approvals SET question = REPLACE(question, '"created":"2026', '"created":"2027') WHERE id = $1`, id)
	if got := code(h.Answer(ctx, h.ann, id, true, "")); got != "approval.forged" {
		t.Errorf("a question of next year: %q", got)
	}
}

// TestOwnPrincipals: an approver's own principals, as the operator names them, count as the approver.
func TestOwnPrincipals(t *testing.T) {
	people := map[string][]string{"ann": {"oidc:ann@corp.example", "oidc:auth0|ann"}}
	for principal, want := range map[string]string{
		"oidc:ann@corp.example": "approval.own", "oidc:Ann@Corp.Example": "approval.own", "oidc:auth0|ann": "approval.own",
		"oidc:ann": "approval.own", "oidc:bob@corp.example": "", "os:1000": "",
		"acme/oidc:ann": "approval.own", "acme/oidc:auth0|ann": "approval.own", "acme/oidc:bob@corp.example": "",
	} {
		h := newFixture(t)
		d := decide(t, `{}`)
		d.Call.Principal = call.Principal(principal)
		id := h.want(t, d, "waiting")
		h.about.rules = func() contract.Approvals { return contract.Approvals{People: people} }
		if got := code(h.Answer(ctx, h.ann, id, true, "")); got != want {
			t.Errorf("%s: %q, want %q", principal, got, want)
		}
		if want == "" {
			h.about.rules = func() contract.Approvals {
				return contract.Approvals{People: map[string][]string{"ann": {principal}}}
			}
			h.want(t, d, "approval.own") // also when the yes is used
		}
	}
}

// TestSameArgumentsAlone: "It had the same arguments" is shown only if all else that is shown is the same, too.
func TestSameArgumentsAlone(t *testing.T) {
	const same = "It had the same arguments, and all else"
	for why, change := range map[string]func(h *fixture, d *policy.Decision){
		"":                           func(*fixture, *policy.Decision) {},
		"what waldo found":           func(h *fixture, _ *policy.Decision) { h.about.notes = found("thief@evil.example") },
		"what it would do":           func(h *fixture, _ *policy.Decision) { h.about.preview = previewed("rm -r /") },
		"the sandbox options":        func(_ *fixture, d *policy.Decision) { d.Call.Run = &call.Run{NoTools: true} },
		"the definition of the tool": func(_ *fixture, d *policy.Decision) { d.Call.ToolDigest = "sha256:other" },
		"the class or the danger":    func(_ *fixture, d *policy.Decision) { d.Danger = 1 },
	} {
		h := newFixture(t)
		h.about.notes, h.about.preview = found("boss@corp.example"), previewed("ls")
		d := decide(t, `{"to":"[EMAIL_1]"}`)
		h.say(t, h.want(t, d, "waiting"), true)
		h.want(t, d, "yes")
		h.pass(time.Second)
		change(h, &d)
		text := h.Since(ctx, h.shown(t, h.want(t, d, "waiting"))).Show()
		if strings.Contains(text, same) != (why == "") || why != "" && !strings.Contains(text, "CHANGED:\n    "+why) {
			t.Errorf("%q:\n%s", why, text)
		}
	}
}

func found(what string) func(policy.Decision) []string {
	return func(policy.Decision) []string { return []string{what} }
}

func previewed(what string) func(context.Context, policy.Decision) []string {
	return func(context.Context, policy.Decision) []string { return []string{what} }
}

// TestHostsAnswerIsOnRecord: an answer of an agent's host is recorded when it is given, and the row restores nothing.
func TestHostsAnswerIsOnRecord(t *testing.T) {
	h := newFixture(t)
	h.about.rules = func() contract.Approvals { return contract.Approvals{Carriers: []string{contract.Elicitation}} }
	d := decide(t, `{}`)
	d.Contract.Approval.By = ""
	var on []Answer
	h.Records.(*records).verdict = func(a Answer) error {
		on = append(on, a)
		return h.log.Look(ctx, func(l *Ledger) { _ = l.Given(recorded(a)) })
	}
	for _, yes := range []bool{true, false} {
		id := h.want(t, d, "waiting")
		if _, ok := h.Put(ctx, "n_one", id); !ok {
			t.Fatal("not shown")
		}
		if err := h.Said(ctx, "n_one", id, yes); err != nil {
			t.Fatal(err)
		}
		last := on[len(on)-1]
		if last.By != "session:n_one" || last.Yes != yes || last.ApprovalID != id {
			t.Errorf("on record: %+v", last)
		}
		if yes {
			h.want(t, d, "yes")
			continue
		}
		h.exec(t, setState, "pending", id)
		h.want(t, d, "approval.declined")
	}
}

// model is what a log says of one question, kept by the test alone.
type model struct {
	yes               []string
	no, used, revoked bool // revoked: of one who said yes
}

func (m model) next(need int, old bool) string {
	switch {
	case m.used:
		return "approval.used"
	case m.no:
		return "no"
	case old:
		return "approval.expired"
	case m.revoked:
		return "approval.revoked"
	case len(m.yes) >= need:
		return "yes"
	}
	return "waiting"
}

// TestTheLogAloneDecides: after random answers, withdrawals, revocations, times and rewritten rows, a call is executed if
// and only if the log alone allows it; while no row is forged, the reason is the log's, too.
func TestTheLogAloneDecides(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomStory(t, rand.New(rand.NewPCG(seed, 26))) })
	}
}

func randomStory(t *testing.T, r *rand.Rand) {
	h := newFixture(t)
	names := []string{"ann", "bob", "carol", "dave"}
	by := map[string]Signer{"ann": h.ann}
	for _, n := range names[1:] {
		by[n] = h.another(t, n)
	}
	need := 1 + r.IntN(3)
	d := decide(t, `{"path":"/a"}`)
	d.Contract.Approval.Need = need
	d.Call.ApprovalID = h.want(t, d, "waiting")
	id, start := d.Call.ApprovalID, h.now()
	var m model
	revoked := map[string]bool{}
	type copied struct{ state, question, expires string }
	var copies []copied
	take := func() {
		s, q, e := h.row(t, id)
		copies = append(copies, copied{s, q, e})
	}
	take()
	forged := false
	for range 12 {
		switch who := names[r.IntN(len(names))]; r.IntN(9) {
		case 0, 1, 2:
			if h.Answer(ctx, by[who], id, true, "") == nil {
				m.yes = append(m.yes, who)
			}
		case 3:
			if r.IntN(3) == 0 && h.Answer(ctx, by[who], id, false, "") == nil {
				m.no = true
			}
		case 4:
			if who != "ann" && !revoked[who] && r.IntN(3) == 0 {
				if err := h.Revoke(ctx, who, h.ann); err != nil {
					t.Fatal(err)
				}
				h.exec(t, `UPDATE approvers SET revoked = '' WHERE name = $1`, who)
				revoked[who] = true
			}
		case 5: // an older row
			c := copies[r.IntN(len(copies))]
			h.exec(t, `UPDATE approvals SET state = $1, question = $2, expires = $3 WHERE id = $4`, c.state, c.question,
				c.expires, id)
		case 6: // any state
			h.exec(t, setState, []string{"pending", "yes", "no", "used", "void", "declined"}[r.IntN(6)], id)
			forged = true
		case 7:
			from, to := []string{`"need":`, `"created":"2026`, `"expires":"2026`, `"danger":3`}[r.IntN(4)], `"x":`
			h.exec(t, `UPDATE approvals SET question = REPLACE(question, $1, $2) WHERE id = $3`, from, to, id)
			forged = true
		case 8:
			h.pass(time.Duration(r.IntN(20)) * time.Minute)
		}
		take()
		m.revoked = slices.ContainsFunc(m.yes, func(n string) bool { return revoked[n] })
		if r.IntN(4) != 0 {
			continue
		}
		want := m.next(need, h.now().Sub(start) >= time.Hour)
		got, _ := h.ask(t, d)
		if got == "yes" {
			m.used = true
		}
		if (got == "yes") && want != "yes" || !forged && got != want {
			t.Fatalf("the call: %s, by the log: %s (%+v)", got, want, m)
		}
		forged = forged || got != "yes" && got != "waiting" && got != "no" // such an answer voids the row
		take()
	}
}
