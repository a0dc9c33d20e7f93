package approval

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
	"waldo/internal/testing/storetest"
)

var ctx = context.Background()

const pass = "correct horse battery"

// A fixture is a service with an approver, ann, and a clock that the test moves.
type fixture struct {
	*Service
	dir string
	ann Signer
	at  atomic.Int64
	log *testLog

	about about
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{dir: filepath.Join(t.TempDir(), "state")}
	h.at.Store(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixMilli())
	h.restart(t)
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	h.ann = NewSigner("ann", private)
	if _, err := h.EnrollKey(ctx, "ann", []string{"manager"}, private.Public().(ed25519.PublicKey), h.ann); err != nil {
		t.Fatal(err)
	}
	return h
}

// restart opens the state directory anew.
func (h *fixture) restart(t *testing.T) {
	t.Helper()
	s, err := storetest.Open(t, h.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h.Service = &Service{Store: s, Calls: &h.about, Now: func() time.Time { return time.UnixMilli(h.at.Load()) }, scryptWork: 10}
	if h.log == nil {
		h.log = &testLog{}
	}
	h.wire(h.log)
}

func (h *fixture) pass(d time.Duration) { h.at.Add(d.Milliseconds()) }

func (h *fixture) exec(t *testing.T, q string, args ...any) {
	t.Helper()
	err := h.Store.Update(ctx, func(tx *sql.Tx) error {
		res, err := tx.Exec(q, args...)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.New("control: no row was touched")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func decide(t *testing.T, args string) policy.Decision {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	return policy.Decision{
		ID: id.New(id.Decision), Effect: policy.Ask, Danger: 3, Policy: "sha256:config",
		Call: call.Call{
			ID: id.New(id.Call), Capability: "files.delete", Args: a, Session: "n_one", Principal: "os:1000", Channel: "mcp",
			ToolDigest: "sha256:tool",
		},
		Contract: contract.Contract{Pattern: "files.*", Approval: contract.Approval{When: contract.Always, By: "manager"}},
	}
}

// ask asks and returns what came: "waiting", "yes", "no", or the code of a refusal.
func (h *fixture) ask(t *testing.T, d policy.Decision) (string, string) {
	t.Helper()
	a, waiting, err := h.Ask(ctx, d)
	switch {
	case err != nil:
		t.Fatal(err)
	case a == nil && waiting != "":
		return "waiting", waiting
	case a == nil:
		return "nothing", ""
	case a.Refusal != "":
		return a.Refusal, a.ApprovalID
	case a.DecisionID != d.ID || a.Capability != d.Call.Capability || a.ArgsDigest != d.Call.Args.Digest():
		t.Fatalf("the answer is for another decision: %+v", a)
	case a.Yes:
		var unheld error
		if err := h.log.Look(ctx, func(l *Ledger) {
			unheld = errors.Join(l.Answered(recorded(*a)), l.Confirm(a.DecisionID, a.ApprovalID))
		}); err != nil || unheld != nil {
			t.Fatal(err, unheld)
		}
		return "yes", a.ApprovalID
	}
	return "no", a.ApprovalID
}

func (h *fixture) want(t *testing.T, d policy.Decision, want string) string {
	t.Helper()
	got, approvalID := h.ask(t, d)
	if got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	return approvalID
}

func (h *fixture) say(t *testing.T, approvalID string, yes bool) {
	t.Helper()
	if err := h.Answer(ctx, h.ann, approvalID, yes, "because"); err != nil {
		t.Fatal(err)
	}
}

// Answer has a human look at a question and answer it.
func (h *fixture) Answer(ctx context.Context, by Signer, approvalID string, yes bool, reason string) error {
	q, _, err := h.Question(ctx, approvalID)
	if err != nil {
		return err
	}
	return h.Service.Answer(ctx, by, q, yes, reason)
}

func code(err error) string {
	var r *Refused
	if errors.As(err, &r) {
		return r.Reason.Code
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOnce(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{"path":"/work/a"}`)
	first := h.want(t, d, "waiting")
	if again := h.want(t, d, "waiting"); again != first {
		t.Fatal("the same call asked two questions")
	}
	h.say(t, first, true)
	d.ID = id.New(id.Decision) // the agent asks again, and that is another decision
	if used := h.want(t, d, "yes"); used != first {
		t.Fatal("another approval")
	}
	if next := h.want(t, d, "waiting"); next == first {
		t.Fatal("a yes was good for two calls")
	}
	d.Call.ApprovalID = first
	h.want(t, d, "approval.used")
}

// TestBinding changes one thing between the yes and the call.
func TestBinding(t *testing.T) {
	rows := []struct {
		why    string
		change func(d *policy.Decision)
	}{
		{"another value", func(d *policy.Decision) { d.Call.Args = decide(t, `{"path":"/work/b","n":1}`).Call.Args }},
		{"an argument more", func(d *policy.Decision) {
			d.Call.Args = decide(t, `{"path":"/work/a","n":1,"x":2}`).Call.Args
		}},
		{"an argument less", func(d *policy.Decision) { d.Call.Args = decide(t, `{"path":"/work/a"}`).Call.Args }},
		{"a number as text", func(d *policy.Decision) { d.Call.Args = decide(t, `{"path":"/work/a","n":"1"}`).Call.Args }},
		{"another capability", func(d *policy.Decision) { d.Call.Capability = "files.delete_all" }},
		{"another definition of the tool", func(d *policy.Decision) { d.Call.ToolDigest = "sha256:other" }},
		{"another principal", func(d *policy.Decision) { d.Call.Principal = "os:1001" }},
		{"another tenant", func(d *policy.Decision) { d.Call.Principal = d.Call.Principal.In("beta") }},
		{"another configuration", func(d *policy.Decision) { d.Policy = "sha256:tighter" }},
		{"another line of the contract", func(d *policy.Decision) { d.Contract.Network.Allow = []string{"evil.example"} }},
		{"another channel, as code in a sandbox", func(d *policy.Decision) { d.Call.Channel = "bridge" }},
		{"another class", func(d *policy.Decision) { d.Contract.Mode = contract.Read }},
		{"another reason", func(d *policy.Decision) {
			d.Reasons = []call.Reason{{Code: "approval.always", Text: "a dry run"}}
		}},
		{"another role", func(d *policy.Decision) { d.Contract.Approval.By = "" }},
		{"another folder for the sandbox", func(d *policy.Decision) { d.Call.Run = &call.Run{Input: "/srv"} }},
		{"more danger", func(d *policy.Decision) { d.Danger = 2 }},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			h := newFixture(t)
			d := decide(t, `{"path":"/work/a","n":1}`)
			approvalID := h.want(t, d, "waiting")
			h.say(t, approvalID, true)
			changed := d
			r.change(&changed)
			changed.Call.ApprovalID = approvalID
			h.want(t, changed, "approval.mismatch")
			changed.Call.ApprovalID = ""
			h.want(t, changed, "waiting")
			d.Call.ApprovalID = approvalID
			h.want(t, d, "yes") // control: unchanged, the same yes is good
		})
	}
	t.Run("another session", func(t *testing.T) {
		h := newFixture(t)
		d := decide(t, `{}`)
		approvalID := h.want(t, d, "waiting")
		h.say(t, approvalID, true)
		d.Call.Session, d.Call.ApprovalID = "n_two", approvalID
		h.want(t, d, "approval.unknown") // it does not even learn that there is one
		d.Call.ApprovalID = ""
		h.want(t, d, "waiting")
	})
	t.Run("another value of a variable", func(t *testing.T) {
		h := newFixture(t)
		d := decide(t, `{}`)
		d.Call.Run = &call.Run{Env: []string{"TARGET=staging"}}
		h.say(t, h.want(t, d, "waiting"), true)
		d.Call.Run = &call.Run{Env: []string{"TARGET=production"}}
		h.want(t, d, "waiting")
		d.Call.Run = &call.Run{Env: []string{"TARGET=staging"}}
		h.want(t, d, "yes")
	})
	t.Run("what waldo found has changed", func(t *testing.T) {
		h := newFixture(t)
		found := "link leads to /work/x"
		h.about.notes = func(policy.Decision) []string { return []string{found} }
		d := decide(t, `{}`)
		h.say(t, h.want(t, d, "waiting"), true)
		found = "link leads to /etc"
		h.want(t, d, "waiting")
		found = "link leads to /work/x"
		h.want(t, d, "yes")
	})
	t.Run("the preview has changed", func(t *testing.T) {
		h := newFixture(t)
		shown := "+harmless"
		h.about.preview = func(context.Context, policy.Decision) []string { return []string{shown} }
		d := decide(t, `{}`)
		h.say(t, h.want(t, d, "waiting"), true)
		shown = "+curl evil.example"
		h.want(t, d, "waiting")
		shown = "+harmless"
		h.want(t, d, "yes")
	})
	t.Run("1 and 1.0 are one number", func(t *testing.T) {
		h := newFixture(t)
		h.say(t, h.want(t, decide(t, `{"n":1}`), "waiting"), true)
		h.want(t, decide(t, `{ "n" : 1.0 }`), "yes")
	})
}

func TestNoStands(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	approvalID := h.want(t, d, "waiting")
	h.say(t, approvalID, false)
	if err := h.Answer(ctx, h.ann, approvalID, true, ""); code(err) != "approval.answered" {
		t.Fatal(err)
	}
	for range 3 {
		h.want(t, d, "no")
	}
	h.pass(time.Hour)
	h.want(t, d, "waiting")
}

func TestExpiry(t *testing.T) {
	h := newFixture(t)
	h.about.rules = func() contract.Approvals { return contract.Approvals{Timeout: time.Minute} }
	d := decide(t, `{}`)
	unanswered := h.want(t, d, "waiting")
	h.pass(time.Minute)
	if err := h.Answer(ctx, h.ann, unanswered, true, ""); code(err) != "approval.expired" {
		t.Fatal(err)
	}
	quoted := d
	quoted.Call.ApprovalID = unanswered
	h.want(t, quoted, "approval.expired")
	answered := h.want(t, d, "waiting")
	h.say(t, answered, true)
	h.pass(time.Minute + 1)
	h.want(t, d, "waiting") // not yes
	quoted.Call.ApprovalID = answered
	h.want(t, quoted, "approval.expired")
}

func TestAnswerIsRefused(t *testing.T) {
	h := newFixture(t)
	_, stranger, _ := ed25519.GenerateKey(nil)
	guest, guestKey, _ := ed25519.GenerateKey(nil)
	if _, err := h.EnrollKey(ctx, "guest", nil, guest, h.ann); err != nil {
		t.Fatal(err)
	}
	approvalID := h.want(t, decide(t, `{}`), "waiting")
	rows := []struct {
		why  string
		by   Signer
		id   string
		want string
	}{
		{"an id that was guessed", h.ann, id.New(id.Approval), "approval.unknown"},
		{"an id that is no id", h.ann, "\x1b[2J", "approval.unknown"},
		{"somebody who is not enrolled", NewSigner("eve", stranger), approvalID, "approval.not_enrolled"},
		{"an enrolled name with another key", NewSigner("ann", stranger), approvalID, "approval.not_enrolled"},
		{"an approver without the role", NewSigner("guest", guestKey), approvalID, "approval.role"},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			if err := h.Answer(ctx, r.by, r.id, true, ""); code(err) != r.want {
				t.Fatalf("got %v, want %s", err, r.want)
			}
		})
	}
	t.Run("the configuration says who has the role", func(t *testing.T) {
		h.about.rules = func() contract.Approvals { return contract.Approvals{Roles: map[string][]string{"manager": {"guest"}}} }
		if err := h.Answer(ctx, h.ann, approvalID, true, ""); code(err) != "approval.role" {
			t.Fatal(err)
		}
		if err := h.Answer(ctx, NewSigner("guest", guestKey), approvalID, true, ""); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a yes whose giver lost the role is void", func(t *testing.T) {
		h.about.rules = nil
		h.want(t, decide(t, `{}`), "approval.role")
		h.want(t, decide(t, `{}`), "waiting")
	})
}

// TestWrittenRows: write access to the database without an approver's key approves nothing.
func TestWrittenRows(t *testing.T) {
	_, eve, _ := ed25519.GenerateKey(nil)
	// plant writes a row, and a record of a log that has no key.
	plant := func(t *testing.T, h *fixture, approvalID string, by Signer, change func(*signedAnswer)) {
		r, err := h.load(ctx, approvalID)
		if err != nil {
			t.Fatal(err)
		}
		said := signedAnswer{
			ApprovalID: approvalID, Binding: r.binding, ArgsDigest: r.q.ArgsDigest, Shown: r.q.Digest(), Yes: true,
			By: by.Name(), Key: Approver{Key: hexKey(by.(key).k)}.Fingerprint(), At: database.Stamp(h.now()),
			Created: database.Stamp(r.q.Created), Expires: database.Stamp(r.q.Expires),
		}
		sig, _ := by.Sign(said.message())
		change(&said)
		h.exec(t, `UPDATE approvals SET state = 'yes' WHERE id = $1`, approvalID)
		_ = h.log.l.Given(recorded(*verdict{said, base64.StdEncoding.EncodeToString(sig)}.answer(r.q, r.q.DecisionID, nil)))
	}
	same := func(*signedAnswer) {}
	rows := []struct {
		why    string
		attack func(t *testing.T, h *fixture, approvalID string)
		want   string
	}{
		{"control: ann's own answer, on record, is as good as given", func(t *testing.T, h *fixture, approvalID string) {
			plant(t, h, approvalID, h.ann, same)
		}, "yes"},
		{"no answer at all", func(t *testing.T, h *fixture, approvalID string) {
			h.exec(t, `UPDATE approvals SET state = 'yes' WHERE id = $1`, approvalID)
		}, "approval.forged"},
		{"signed with a key of the attacker's", func(t *testing.T, h *fixture, approvalID string) {
			plant(t, h, approvalID, NewSigner("ann", eve), same)
		}, "approval.forged"},
		{"signed by an approver that nobody enrolled", func(t *testing.T, h *fixture, approvalID string) {
			plant(t, h, approvalID, NewSigner("eve", eve), same)
		}, "approval.forged"},
		{"signed by an approver that the attacker wrote in, self-signed", func(t *testing.T, h *fixture, approvalID string) {
			a := Approver{Name: "eve", Key: hexKey(eve), Roles: []string{"manager"}, By: "eve"}
			h.insert(t, a, eve)
			plant(t, h, approvalID, NewSigner("eve", eve), same)
		}, "approval.forged"},
		{"signed by an approver that the attacker wrote in, under ann's name",
			func(t *testing.T, h *fixture, approvalID string) {
				a := Approver{Name: "eve", Key: hexKey(eve), Roles: []string{"manager"}, By: "ann"}
				h.insert(t, a, eve)
				plant(t, h, approvalID, NewSigner("eve", eve), same)
			}, "approval.forged"},
		{"ann's key replaced in her row", func(t *testing.T, h *fixture, approvalID string) {
			a := Approver{Name: "ann", Key: hexKey(eve), Roles: []string{"manager"}, By: "ann"}
			sig := ed25519.Sign(eve, append([]byte(forApprover), canonical(a)...))
			h.exec(t, `UPDATE approvers SET record = $1, signature = $2 WHERE name = 'ann'`, string(canonical(a)),
				base64.StdEncoding.EncodeToString(sig))
			plant(t, h, approvalID, NewSigner("ann", eve), same)
		}, "approval.forged"},
		{"control: bob, whom ann enrolled", func(t *testing.T, h *fixture, approvalID string) {
			plant(t, h, approvalID, enrolled(t, h, "bob"), same)
		}, "yes"},
		{"bob, under an edited row of ann's: her enrolment is in the log", func(t *testing.T, h *fixture, approvalID string) {
			bob := enrolled(t, h, "bob")
			h.exec(t, `UPDATE approvers SET record = REPLACE(record, '"at":"', '"at":"1') WHERE name = 'ann'`)
			plant(t, h, approvalID, bob, same)
		}, "yes"},
		{"ann's no turned into a yes", func(t *testing.T, h *fixture, approvalID string) {
			h.say(t, approvalID, false)
			h.exec(t, `UPDATE approvals SET state = 'yes' WHERE id = $1`, approvalID)
		}, "no"},
		{"ann's no, edited", func(t *testing.T, h *fixture, approvalID string) {
			h.say(t, approvalID, false)
			h.exec(t, `UPDATE approvals SET state = 'yes', answer = REPLACE(answer, '"yes":false', '"yes":true') WHERE id = $1`,
				approvalID)
		}, "no"},
		{"ann's yes to another question", func(t *testing.T, h *fixture, approvalID string) {
			other := h.want(t, decide(t, `{"path":"/tmp/harmless"}`), "waiting")
			h.say(t, other, true)
			h.exec(t, `UPDATE approvals SET state = 'yes', answer = (SELECT answer FROM approvals WHERE id = $1) WHERE id = $2`,
				other, approvalID)
			v := h.log.l.questions[other].yes[0]
			r := recorded(*v.answer(h.shown(t, other), "d_x", nil))
			r.ApprovalID = approvalID
			_ = h.log.l.Given(r)
		}, "approval.forged"},
		{"a signed answer with a changed reason", func(t *testing.T, h *fixture, approvalID string) {
			plant(t, h, approvalID, h.ann, func(s *signedAnswer) { s.Reason = "changed" })
		}, "approval.forged"},
		{"the question's time made longer", func(t *testing.T, h *fixture, approvalID string) {
			h.say(t, approvalID, true)
			h.exec(t, `UPDATE approvals SET expires = '2099-01-01T00:00:00.000Z', question = REPLACE(question,`+
				` '2026-11-20T13:00:00Z', '2099-01-01T00:00:00Z') WHERE id = $1`, approvalID)
		}, "approval.forged"},
		{"arguments changed before ann looks", func(t *testing.T, h *fixture, approvalID string) {
			h.exec(t, `UPDATE approvals SET question = REPLACE(question, '/etc', '/tmp') WHERE id = $1`, approvalID)
			if err := h.Answer(ctx, h.ann, approvalID, true, ""); code(err) != "approval.forged" {
				t.Fatalf("ann was shown other arguments: %v", err)
			}
		}, "approval.forged"},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			h := newFixture(t)
			d := decide(t, `{"path":"/etc"}`)
			d.Call.ApprovalID = h.want(t, d, "waiting")
			r.attack(t, h, d.Call.ApprovalID)
			h.want(t, d, r.want)
		})
	}
	t.Run("a used yes set back, and the log knows", func(t *testing.T) {
		h := newFixture(t)
		d := decide(t, `{}`)
		h.say(t, h.want(t, d, "waiting"), true)
		approvalID := h.want(t, d, "yes")
		h.restart(t) // another process
		h.exec(t, `UPDATE approvals SET state = 'yes' WHERE id = $1`, approvalID)
		h.want(t, d, "approval.used")
	})
}

func (h *fixture) insert(t *testing.T, a Approver, by ed25519.PrivateKey) {
	t.Helper()
	sig := ed25519.Sign(by, append([]byte(forApprover), canonical(a)...))
	h.exec(t, `INSERT INTO approvers (name, record, signature, revoked) VALUES ($1, $2, $3, '')`, a.Name,
		string(canonical(a)), base64.StdEncoding.EncodeToString(sig))
}

func hexKey(k ed25519.PrivateKey) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range k.Public().(ed25519.PublicKey) {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func TestEnrollment(t *testing.T) {
	h := newFixture(t)
	ann := h.ann
	if _, err := h.Enroll(ctx, "eve", nil, secret.NewValue(pass), nil); err == nil {
		t.Fatal("a second approver enrolled itself")
	}
	if _, err := os.Stat(h.keyFile("eve")); err == nil {
		t.Fatal("its key stays")
	}
	if _, err := h.Enroll(ctx, "bob", nil, secret.NewValue("short"), ann); err == nil {
		t.Fatal("a short passphrase")
	}
	for _, name := range []string{"", "../x", "Bob", "a b", strings.Repeat("a", 33)} {
		if _, err := h.Enroll(ctx, name, nil, secret.NewValue(pass), ann); err == nil {
			t.Fatalf("%q is a name", name)
		}
	}
	if _, err := h.Enroll(ctx, "bob", []string{"manager"}, secret.NewValue(pass), ann); err != nil {
		t.Fatal(err)
	}
	sealed, err := os.ReadFile(h.keyFile("bob"))
	if err != nil || !strings.HasPrefix(string(sealed), "age-encryption.org/v1\n-> scrypt ") {
		t.Fatalf("%q %v", sealed, err)
	}
	for _, row := range []struct{ why, file, want string }{
		{"another's key", string(sealed), "holds another key"},
		{"a work factor that costs gigabytes", strings.Replace(string(sealed), " 10\n", " 21\n", 1), "work factor too large"},
		{"a damaged file", string(sealed[:len(sealed)-1]), "failed to decrypt"},
	} {
		if err := os.WriteFile(h.keyFile("eve"), []byte(row.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Unseal("eve", secret.NewValue(pass)); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.why, err)
		}
	}
	if info, err := os.Stat(h.keyFile("bob")); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	if _, err := h.Unseal("bob", secret.NewValue(pass+"!")); err == nil {
		t.Fatal("a wrong passphrase opens the key")
	}
	bob, err := h.Unseal("bob", secret.NewValue(pass))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Enroll(ctx, "carl", nil, secret.NewValue(pass), bob); err == nil {
		t.Fatal("bob is not the first and enrolled another")
	}
	d := decide(t, `{}`)
	if err := h.Answer(ctx, bob, h.want(t, d, "waiting"), true, ""); err != nil {
		t.Fatal(err)
	}
	if err := h.Revoke(ctx, "ann", bob); err == nil {
		t.Fatal("bob revoked the first")
	}
	if err := h.Revoke(ctx, "bob", ann); err != nil {
		t.Fatal(err)
	}
	h.want(t, d, "approval.revoked") // the yes of one who was revoked
	all, err := h.Approvers(ctx)
	if err != nil || len(all) != 1 || all[0].Name != "ann" {
		t.Fatal(all, err)
	}
	h.Root = "sha256:another"
	if err := h.Answer(ctx, ann, h.want(t, d, "waiting"), true, ""); code(err) != "approval.not_enrolled" {
		t.Fatal("the first approver is not the one known from elsewhere: ", err)
	}
}

// TestEnrolmentsAreBounded: an approver has a plain name and so many short roles, and is revoked by the first
// approver's key alone.
func TestEnrolmentsAreBounded(t *testing.T) {
	h := newFixture(t)
	pub, other, _ := ed25519.GenerateKey(nil)
	for i, row := range []struct {
		name    string
		roles   []string
		refused string
	}{
		{"bob", slices.Repeat([]string{strings.Repeat("r", maxRole)}, maxRoles), ""},
		{"carl", make([]string, maxRoles+1), "at most 50 roles"},
		{"carl", []string{strings.Repeat("r", maxRole+1)}, "at most 50 roles"},
		{"../carl", nil, "invalid approver name"},
		{"", nil, "invalid approver name"},
		{"carl\n", nil, "invalid approver name"},
	} {
		_, err := h.EnrollKey(ctx, row.name, row.roles, pub, h.ann)
		_, drafted := h.NewApprover(row.name, row.roles, "", "ann") // as the console does before it asks for a signature
		for _, err := range []error{err, drafted} {
			if (err == nil) != (row.refused == "") || err != nil && !strings.Contains(err.Error(), row.refused) {
				t.Errorf("%d %q: %v", i, row.name, err)
			}
		}
	}
	if err := h.Revoke(ctx, "bob", NewSigner("ann", other)); err == nil ||
		!strings.Contains(err.Error(), "only the first approver") {
		t.Errorf("another key in ann's name: %v", err)
	}
	if err := h.Revoke(ctx, "bob", NewSigner("bob", other)); err == nil ||
		!strings.Contains(err.Error(), "only the first approver") {
		t.Errorf("bob himself: %v", err)
	}
	if err := h.Revoke(ctx, "bob", h.ann); err != nil {
		t.Errorf("control: %v", err)
	}
}

func TestTooMany(t *testing.T) {
	h := newFixture(t)
	for i := range MaxPending {
		h.want(t, decide(t, `{"n":`+string(rune('0'+i%10))+`,"m":`+string(rune('0'+i/10))+`}`), "waiting")
	}
	h.want(t, decide(t, `{"n":99}`), "approval.too_many")
	other := decide(t, `{"n":99}`)
	other.Call.Session = "n_two"
	h.want(t, other, "waiting")
}

// TestTooManyBytes: questions that wait hold a few MiB together, and one alone what its call can.
func TestTooManyBytes(t *testing.T) {
	h := newFixture(t)
	large := func(n string) policy.Decision {
		return decide(t, `{"n":"`+n+strings.Repeat("x", MaxPendingBytes/2)+`"}`)
	}
	h.want(t, large("1"), "waiting")
	h.want(t, large("2"), "approval.too_many")
	h.want(t, decide(t, `{"n":2}`), "waiting")
	other := large("2")
	other.Call.Session = "n_two"
	h.want(t, other, "waiting")
	alone := decide(t, `{"n":"`+strings.Repeat("x", MaxPendingBytes-100)+`"}`)
	alone.Call.Session = "n_three"
	h.want(t, alone, "waiting")
}

// TestTooLarge: the agent names its arguments, and so would choose which of too many are left out of a question.
func TestTooLarge(t *testing.T) {
	h := newFixture(t)
	list := func(n int) string { return `{"l":[` + strings.Repeat("1,", n-1) + `1]}` }
	h.want(t, decide(t, list(maxFields)), "waiting")
	h.want(t, decide(t, list(maxFields+1)), "approval.too_large")
}

func TestWaitsForAnAnswer(t *testing.T) {
	h := newFixture(t)
	h.Now = nil
	h.about.wait = func(channel string) time.Duration {
		if channel == "cli" {
			return 2 * time.Minute
		}
		return 0
	}
	d := decide(t, `{}`)
	d.Call.Channel = "cli"
	var wg sync.WaitGroup
	h.Carriers = []Notifier{carrier(func(q Question) {
		wg.Go(func() {
			if err := h.Answer(ctx, h.ann, q.ID, true, ""); err != nil {
				t.Error(err)
			}
		})
	})}
	wg.Add(1)
	h.Carriers = append(h.Carriers, carrier(func(Question) { wg.Done() }))
	h.want(t, d, "yes")
	wg.Wait()
	short, leave := context.WithCancel(ctx)
	h.Carriers = []Notifier{carrier(func(Question) { leave() })}
	if a, waiting, err := h.Ask(short, d); a != nil || waiting == "" || err != nil {
		t.Fatal("a caller who leaves gets the id: ", a, waiting, err)
	}
}

// TestPreviewWhileItWaits: what a call would do changes between its question and the yes, while the call waits for it.
// The yes is used by no call: the question is asked anew, with what the call would do now. A yes to that one counts. A
// call that quotes the old question is refused.
func TestPreviewWhileItWaits(t *testing.T) {
	const one, two = "deletes d and the 1 file in it", "deletes d and the 2 files in it"
	for _, row := range []struct {
		why    string
		change bool
		host   bool // the yes is that of the agent's host
		quoted bool
		want   string
	}{
		{"control: the same preview", false, false, false, one},
		{"another preview", true, false, false, two},
		{"control: the same preview, by the host", false, true, false, one},
		{"another preview, by the host", true, true, false, two},
		{"control: the same preview, quoted", false, false, true, one},
		{"another preview, quoted", true, false, true, "approval.mismatch"},
	} {
		t.Run(row.why, func(t *testing.T) {
			h := newFixture(t)
			h.Now = nil
			h.about.rules = func() contract.Approvals { return contract.Approvals{Carriers: []string{contract.Elicitation}} }
			var preview atomic.Value
			preview.Store(one)
			h.about.preview = func(context.Context, policy.Decision) []string { return []string{preview.Load().(string)} }
			d := decide(t, `{"path":"d","recursive":true}`)
			d.Contract.Approval.By = ""
			if row.quoted {
				d.Call.ApprovalID = h.want(t, d, "waiting")
			}
			h.about.wait = func(string) time.Duration { return time.Minute }
			var shown []Question
			yes := func(q Question) {
				shown = append(shown, q)
				if row.change && len(shown) == 1 {
					preview.Store(two)
				}
				if !row.host {
					if err := h.Answer(ctx, h.ann, q.ID, true, ""); err != nil {
						t.Error(err)
					}
				} else if _, ok := h.Put(ctx, q.Session, q.ID); !ok || h.Said(ctx, q.Session, q.ID, true) != nil {
					t.Error("control: the host answers")
				}
			}
			h.Carriers = []Notifier{carrier(yes)}
			if row.quoted {
				q, _, err := h.Question(ctx, d.Call.ApprovalID)
				if err != nil {
					t.Fatal(err)
				}
				h.Carriers = nil
				waits := untilItWaits{ctx, sync.OnceFunc(func() { yes(q) })}
				a, _, err := h.Ask(waits, d)
				if err != nil || a == nil || row.change && a.Refusal != row.want || !row.change && !a.Yes {
					t.Errorf("%+v %v", a, err)
				}
				return
			}
			used := h.want(t, d, "yes")
			h.Told(time.Minute)
			last := shown[len(shown)-1]
			if used != last.ID || !slices.Equal(last.Preview, []string{row.want}) || row.change != (len(shown) == 2) {
				t.Errorf("the yes to %s was used, of %+v", used, shown)
			}
			if _, state, err := h.Question(ctx, shown[0].ID); err != nil || (state == Used) == row.change {
				t.Errorf("the first question is %s %v", state, err)
			}
		})
	}
}

// untilItWaits is the context of one call to Ask. It notes when the call first waits for its next look at its question,
// which it has found by then.
type untilItWaits struct {
	context.Context
	waits func()
}

func (c untilItWaits) Done() <-chan struct{} {
	if pc, _, _, _ := runtime.Caller(1); strings.HasSuffix(runtime.FuncForPC(pc).Name(), "/approval.sleep") {
		c.waits()
	}
	return c.Context.Done()
}

// TestEqualCallsAtOnce: equal calls at once share one question. Each waits for its answer: a yes is for one of them, and
// the others hear which decision used it. A no is for all.
func TestEqualCallsAtOnce(t *testing.T) {
	for _, yes := range []bool{true, false} {
		h := newFixture(t)
		h.Now = nil
		var asked atomic.Int32
		h.about.wait = func(string) time.Duration { return time.Minute }
		h.Carriers = []Notifier{carrier(func(Question) { asked.Add(1) })}
		const calls = 6
		answers := make(chan *Answer, calls)
		var waits sync.WaitGroup
		for range calls {
			d := decide(t, `{}`)
			waits.Add(1)
			go func() {
				a, waiting, err := h.Ask(untilItWaits{ctx, sync.OnceFunc(waits.Done)}, d)
				if err != nil || a == nil {
					t.Error(waiting, err)
					a = &Answer{}
				}
				answers <- a
			}()
		}
		waits.Wait()
		open, err := h.Pending(ctx)
		if err != nil || len(open) != 1 {
			t.Fatal(open, err)
		}
		h.say(t, open[0].ID, yes)
		made, used, denied, by := 0, 0, 0, ""
		var why []string
		for range calls {
			switch a := <-answers; {
			case a.Yes:
				made, by = made+1, a.DecisionID
			case a.Refusal == "approval.used":
				used++
				why = append(why, a.Reason)
			case a.Refusal == "":
				denied++
			}
		}
		if yes && (made != 1 || used != calls-1) || !yes && denied != calls || asked.Load() != 1 {
			t.Errorf("yes %v: %d made, %d used, %d denied, %d questions", yes, made, used, denied, asked.Load())
		}
		for _, text := range why {
			if !strings.Contains(text, by) {
				t.Errorf("%q does not name %s", text, by)
			}
		}
	}
}

type carrier func(Question)

func (c carrier) Name() string                         { return "test" }
func (c carrier) Notify(_ context.Context, q Question) { c(q) }

func TestDryRunAsksNobody(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	d.DryRun = true
	h.want(t, d, "nothing")
	if p, err := h.Pending(ctx); err != nil || len(p) != 0 {
		t.Fatal(p, err)
	}
}

func TestRestartAndSweep(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{"path":"/work/a"}`)
	approvalID := h.want(t, d, "waiting")
	h.restart(t)
	p, err := h.Pending(ctx)
	if err != nil || len(p) != 1 || p[0].ID != approvalID || string(p[0].Args) != `{"path":"/work/a"}` {
		t.Fatal(p, err)
	}
	h.say(t, approvalID, true)
	h.restart(t)
	h.want(t, d, "yes")
	if _, state, err := h.Question(ctx, approvalID); state != Used || err != nil {
		t.Fatal(state, err)
	}
	h.pass(48 * time.Hour)
	if err := h.Sweep(ctx, h.now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Question(ctx, approvalID); code(err) != "approval.unknown" {
		t.Fatal(err)
	}
}

// TestOneWinner has several people answer at a time, and callers in several processes consume one yes.
func TestOneWinner(t *testing.T) {
	if dir := os.Getenv("APPROVAL_CHILD_DIR"); dir != "" {
		h := &fixture{dir: dir}
		h.restart(t)
		var log childLog
		if err := errors.Join(json.Unmarshal([]byte(os.Getenv("APPROVAL_CHILD_LOG")), &log), h.log.l.Enrolled(log.Ann),
			h.log.l.Given(log.Yes)); err != nil {
			t.Fatal(err)
		}
		h.Now = nil
		d := decide(t, `{}`)
		d.Call.ApprovalID = os.Getenv("APPROVAL_CHILD_ID")
		got, _ := h.ask(t, d)
		t.Log("GOT " + got)
		return
	}
	h := newFixture(t)
	h.Now = nil
	approvalID := h.want(t, decide(t, `{}`), "waiting")
	var yes, no atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := h.Answer(ctx, h.ann, approvalID, true, ""); err == nil {
				yes.Add(1)
			} else if code(err) == "approval.answered" {
				no.Add(1)
			} else {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if yes.Load() != 1 || no.Load() != 7 {
		t.Fatalf("%d answers were taken", yes.Load())
	}
	approvalID = h.want(t, decide(t, `{"second":1}`), "waiting")
	h.say(t, approvalID, true)
	var won, used atomic.Int32
	for range 16 {
		wg.Go(func() {
			d := decide(t, `{"second":1}`)
			d.Call.ApprovalID = approvalID
			switch got, _ := h.ask(t, d); got {
			case "yes":
				won.Add(1)
			case "approval.used":
				used.Add(1)
			default:
				t.Error(got)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || used.Load() != 15 {
		t.Fatalf("%d calls used one yes", won.Load())
	}
	processes(t, h)
}

// childLog is what the log of another process holds.
type childLog struct {
	Ann Enrolment
	Yes Recorded
}

func processes(t *testing.T, h *fixture) {
	d := decide(t, `{}`)
	d.Call.Session = "n_one"
	h.exec(t, `DELETE FROM approvals`)
	approvalID := h.want(t, d, "waiting")
	h.say(t, approvalID, true)
	said := h.log.l.questions[approvalID].yes[0].answer(h.shown(t, approvalID), d.ID, nil)
	log := mustJSON(t, childLog{enrolment(h.log.l.firsts[0], h.ann), recorded(*said)})
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestOneWinner$", "-test.v")
			cmd.Env = append(os.Environ(), "APPROVAL_CHILD_DIR="+h.dir, "APPROVAL_CHILD_ID="+approvalID,
				"APPROVAL_CHILD_LOG="+string(log))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			if strings.Contains(string(out), "GOT yes") {
				won.Add(1)
			} else if !strings.Contains(string(out), "GOT approval.used") {
				t.Errorf("%s", out)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d processes used one yes", won.Load())
	}
}

func TestVerdict(t *testing.T) {
	for typed, want := range map[string][2]bool{
		"yes": {true, true}, "no": {false, true}, "y": {}, "YES": {}, "yes ": {}, "": {}, "yes\nno": {},
	} {
		if yes, ok := Verdict(typed); yes != want[0] || ok != want[1] {
			t.Errorf("%q: %v %v", typed, yes, ok)
		}
	}
}

// slow is a signer that lets something happen while it signs.
type slow struct {
	Signer
	meanwhile func()
}

func (s slow) Sign(m []byte) ([]byte, error) {
	s.meanwhile()
	return s.Signer.Sign(m)
}

// TestBetween puts another caller between the look and the act.
func TestBetween(t *testing.T) {
	h := newFixture(t)
	d := decide(t, `{}`)
	approvalID := h.want(t, d, "waiting")
	by := slow{h.ann, func() { h.say(t, approvalID, false) }}
	if err := h.Answer(ctx, by, approvalID, true, ""); code(err) != "approval.answered" {
		t.Fatalf("a yes went over a no: %v", err)
	}
	h.want(t, d, "no")

	d = decide(t, `{"n":1}`)
	approvalID = h.want(t, d, "waiting")
	h.say(t, approvalID, true)
	r, err := h.load(ctx, approvalID)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if won, err := h.consume(ctx, d, r); won != want || err != nil {
			t.Fatalf("use %d of one yes: %v %v", i+1, won, err)
		}
		h.spent = nil // as in another process
	}
}

// Enrolments are recorded before they take effect, and failed ones as failed. If the record fails, the enrolment
// fails.
func TestEnrolmentsAreOnRecord(t *testing.T) {
	h := newFixture(t)
	var on []Enrolment
	var broken error
	h.Records.(*records).enrolled = func(e Enrolment) error {
		if _, err := h.Approvers(ctx); err != nil {
			t.Error(err)
		}
		on = append(on, e)
		if broken == nil {
			_ = h.log.l.Enrolled(e)
		}
		return broken
	}
	bob, err := h.Enroll(ctx, "bob", []string{"manager"}, secret.NewValue(pass), h.ann)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Enroll(ctx, "eve", nil, secret.NewValue(pass), nil); err == nil {
		t.Fatal("a second approver enrolled itself")
	}
	if err := h.Revoke(ctx, "nobody", h.ann); err == nil {
		t.Fatal("nobody was revoked")
	}
	if err := h.Revoke(ctx, "bob", h.ann); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range on {
		got = append(got, e.Action+" "+e.Approver+" by "+e.By)
		if e.Failed != "" {
			got = append(got, "failed")
		}
	}
	want := []string{
		"enrol bob by ann", "revoke nobody by ann", "revoke nobody by ann",
		"failed", "revoke bob by ann",
	}
	if !slices.Equal(got, want) || on[0].Key != bob.Fingerprint() || !slices.Equal(on[0].Roles, []string{"manager"}) {
		t.Errorf("on record: %q, %+v", got, on[0])
	}
	broken = errors.New("disk full")
	if _, err := h.Enroll(ctx, "carl", nil, secret.NewValue(pass), h.ann); err == nil ||
		!strings.Contains(err.Error(), "disk full") {
		t.Errorf("not recorded: %v", err)
	}
	if err := h.Revoke(ctx, "ann", h.ann); err == nil {
		t.Error("revoked without a record")
	}
	all, err := h.Approvers(ctx)
	if err != nil || len(all) != 1 || all[0].Name != "ann" {
		t.Errorf("who may answer: %v %v", all, err)
	}
	if _, err := os.Stat(h.keyFile("carl")); err == nil {
		t.Error("the key of one who is not enrolled stays")
	}
}

// TestKeyIndex: approvals are looked up by the key of their calls in an index.
func TestKeyIndex(t *testing.T) {
	h := newFixture(t)
	plan := []string{`EXPLAIN QUERY PLAN `}
	if h.Store.Shared() {
		plan = []string{`SET LOCAL enable_seqscan = off`, `EXPLAIN `}
	}
	err := h.Store.Update(ctx, func(tx *sql.Tx) error {
		for _, before := range plan[:len(plan)-1] {
			if _, err := tx.Exec(before); err != nil {
				return err
			}
		}
		for column, want := range map[string]bool{keyOf: true, "used_by": false} {
			rows, err := tx.Query(plan[len(plan)-1] + `SELECT id FROM approvals WHERE ` + column + ` = 'k'`)
			if err != nil {
				return err
			}
			said := ""
			for rows.Next() {
				columns, err := rows.Columns()
				if err != nil {
					return err
				}
				row := make([]any, len(columns))
				for i := range row {
					row[i] = new(any)
				}
				if err := rows.Scan(row...); err != nil {
					return err
				}
				said += fmt.Sprintln(*row[len(row)-1].(*any))
			}
			if err := rows.Close(); err != nil {
				return err
			}
			if strings.Contains(said, "approvals_key") != want {
				t.Errorf("%s: %s", column, said)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeyHasBegun: a call is not asked about once an equal call has begun with its key, or has used its yes and is
// about to begin. A question that such a call waits for is withdrawn.
func TestKeyHasBegun(t *testing.T) {
	h := newFixture(t)
	var begun atomic.Bool
	h.about.begun = func(_ context.Context, d policy.Decision) (string, bool, error) {
		return d.Call.Key, d.Call.Key != "" && begun.Load(), nil
	}
	open := func(want int) {
		t.Helper()
		if all, err := h.Pending(ctx); err != nil || len(all) != want {
			t.Errorf("%d questions, want %d: %v", len(all), want, err)
		}
	}
	keyed := func() policy.Decision {
		d := decide(t, `{}`)
		d.Call.Key = strings.Repeat("k", 64)
		return d
	}
	use := func() {
		t.Helper()
		h.say(t, h.want(t, keyed(), "waiting"), true)
		h.want(t, keyed(), "yes")
	}
	use()
	got := make(chan string)
	later := func(d policy.Decision) {
		go func() {
			a, waiting, err := h.Ask(ctx, d)
			if err != nil || a == nil {
				a = &Answer{Refusal: waiting}
			}
			got <- a.Refusal
		}()
		select {
		case code := <-got:
			t.Errorf("%s, before the equal call began", code)
		case <-time.After(3 * poll): // control: it can only be too early
		}
		begun.Store(true)
		if code := <-got; code != "approval.used" {
			t.Errorf("once it has begun: %s", code)
		}
		begun.Store(false)
		open(0)
	}
	later(keyed())
	h.pass(starting)
	h.want(t, keyed(), "waiting") // that call never began
	open(1)
	h.say(t, h.want(t, keyed(), "waiting"), true)
	h.want(t, keyed(), "yes")
	h.want(t, decide(t, `{}`), "waiting") // control: without a key
	open(1)
	begun.Store(true)
	h.want(t, keyed(), "approval.used") // joins no question
	begun.Store(false)
	if err := h.Withdraw(ctx, h.want(t, decide(t, `{}`), "waiting"), "end"); err != nil {
		t.Fatal(err)
	}
	other := keyed()
	other.Call.Session = "n_two"
	later(other) // the yes of another session was used just now
	h.pass(starting)
	h.want(t, other, "waiting")
	open(1)
	use() // which withdraws the question of the other session
	open(0)
	h.pass(starting)
	h.about.wait = func(string) time.Duration { return time.Hour }
	later(other) // which waits for an answer
}
