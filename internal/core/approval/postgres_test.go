package approval

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// TestPostgres runs the tests of races, of use and of changed rows on PostgreSQL.
func TestPostgres(t *testing.T) {
	pgtest.Again(t, "^Test(Once|OneWinner|EqualCallsAtOnce|WrittenRows|RestartAndSweep|TheLogAloneDecides|Gone|Quorum|KeyHasBegun|KeyIndex|FigureWaiting)$", "^$")
}

// newHosts returns two state directories on one database, with one clock that stands still.
func newHosts(t *testing.T) (a, b *fixture) {
	t.Helper()
	s := pgtest.New(t)
	a, b = &fixture{}, &fixture{}
	now := time.Now().UnixMilli()
	for _, h := range []*fixture{a, b} {
		h.dir = filepath.Join(t.TempDir(), "state")
		h.at.Store(now)
		if _, _, err := database.Migrate(ctx, h.dir, s.URL("postgres", "postgres")); err != nil {
			t.Fatal(err)
		}
		h.restart(t)
	}
	return a, b
}

// TestElsewhere: of two state directories on one database, each uses the answers of its own log alone.
func TestElsewhere(t *testing.T) {
	a, b := newHosts(t)
	for _, h := range []*fixture{a, b} {
		_, private, _ := ed25519.GenerateKey(nil)
		h.ann = NewSigner("ann", private)
		if _, err := h.EnrollKey(ctx, "ann", []string{"manager"}, private.Public().(ed25519.PublicKey), h.ann); err != nil {
			t.Fatal(err)
		}
	}
	d := decide(t, `{"path":"x"}`)
	asked := a.want(t, d, "waiting")
	if all, err := b.Pending(ctx); err != nil || len(all) != 0 {
		t.Errorf("the other host lists %v %v", all, err)
	}
	var no *Refused
	if err := b.Answer(ctx, b.ann, asked, true, ""); !errors.As(err, &no) || no.Reason.Code != "approval.elsewhere" {
		t.Errorf("an answer at the other host: %v", err)
	}
	a.say(t, asked, true)
	there := decide(t, `{"path":"x"}`)
	there.Call.ApprovalID = asked
	b.want(t, there, "approval.elsewhere")
	if own := b.want(t, d, "waiting"); own == asked {
		t.Error("the other host found the question of the first")
	}
	a.want(t, there, "yes") // control: where it was answered
	b.want(t, there, "approval.elsewhere")
}

// marks returns what live pages of two hosts look at.
func marks(t *testing.T, a, b *fixture) (out [2]string) {
	t.Helper()
	for i, h := range []*fixture{a, b} {
		var err error
		if out[i], err = h.Mark(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestReplicas: two state directories on one database, whose configuration names one first approver, use each other's
// signed statements. A row with something else counts for nothing.
func TestReplicas(t *testing.T) {
	_, private, _ := ed25519.GenerateKey(nil)
	ann := NewSigner("ann", private)
	a, b := newHosts(t)
	for _, h := range []*fixture{a, b} {
		h.ann, h.Root = ann, fingerprint(hexKey(private))
	}
	if _, err := a.EnrollKey(ctx, "ann", []string{"manager"}, private.Public().(ed25519.PublicKey), ann); err != nil {
		t.Fatal(err)
	}
	enrol := func(name string, roles ...string) Signer {
		pub, key, _ := ed25519.GenerateKey(nil)
		if _, err := a.EnrollKey(ctx, name, roles, pub, ann); err != nil {
			t.Fatal(err)
		}
		return NewSigner(name, key)
	}
	bob, clerk := enrol("bob", "manager"), enrol("clerk")
	if _, err := a.EnrollKey(ctx, "bob", nil, private.Public().(ed25519.PublicKey), ann); err == nil {
		t.Error("a second bob is enrolled")
	}

	// Each way: asked at one, answered at the other, used once at either.
	for i, way := range [][3]*fixture{{a, b, a}, {b, a, b}, {a, b, b}, {a, a, b}} {
		d := decide(t, fmt.Sprintf(`{"path":"%d"}`, i))
		before := marks(t, a, b)
		asked := way[0].want(t, d, "waiting")
		between := marks(t, a, b)
		way[1].say(t, asked, true)
		if after := marks(t, a, b); before[0] == between[0] || before[1] == between[1] || between[0] == after[0] ||
			between[1] == after[1] {
			t.Errorf("live pages hear nothing: %q %q %q", before, between, after)
		}
		way[2].want(t, d, "yes")
		d.Call.ApprovalID = asked
		a.want(t, d, "approval.used")
		b.want(t, d, "approval.used")
	}

	// What a writer of the rows tries between a question at A and the call there.
	forge := func(bucket, name string, s carried) {
		t.Helper()
		if err := a.tellOthers(ctx, bucket+a.Root, name, database.Stamp(a.now().Add(time.Hour)), s); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(asked string, by Signer, key ed25519.PrivateKey, change func(s *signedAnswer)) {
		t.Helper()
		q, _, err := a.Question(ctx, asked)
		if err != nil {
			t.Fatal(err)
		}
		said := signedAnswer{ApprovalID: asked, Binding: q.Binding(), ArgsDigest: q.ArgsDigest, Shown: q.Digest(), Yes: true,
			By: by.Name(), Key: fingerprint(hexKey(key)), At: database.Stamp(a.now()), Created: database.Stamp(q.Created),
			Expires: database.Stamp(q.Expires)}
		if change != nil {
			change(&said)
		}
		sig, _ := by.Sign(said.message())
		one := verdict{said, base64.StdEncoding.EncodeToString(sig)}.record()
		forge(answersBucket, asked+" forged", carried{From: "sd_x", Answer: &one})
	}
	eve := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	for i, row := range []struct {
		why, want string
		attack    func(asked string)
	}{
		{"control: a signed yes that only the row carries", "yes", func(asked string) {
			answer(asked, bob, bob.(key).k, nil)
		}},
		{"signed by a key that no one enrolled", "waiting", func(asked string) {
			answer(asked, NewSigner("bob", eve), eve, nil)
		}},
		{"the key of another", "waiting", func(asked string) {
			answer(asked, NewSigner("bob", eve), bob.(key).k, nil)
		}},
		{"without the role", "waiting", func(asked string) { answer(asked, clerk, clerk.(key).k, nil) }},
		{"a no without the role", "waiting", func(asked string) {
			answer(asked, clerk, clerk.(key).k, func(s *signedAnswer) { s.Yes = false })
		}},
		{"for other arguments", "waiting", func(asked string) {
			answer(asked, bob, bob.(key).k, func(s *signedAnswer) { s.ArgsDigest = "sha256:other" })
		}},
		{"for a question that was shown otherwise", "waiting", func(asked string) {
			answer(asked, bob, bob.(key).k, func(s *signedAnswer) { s.Shown = "sha256:other" })
		}},
		{"for a longer time", "waiting", func(asked string) {
			answer(asked, bob, bob.(key).k, func(s *signedAnswer) { s.Expires = database.Stamp(a.now().Add(48 * time.Hour)) })
		}},
		{"a first approver of its own", "waiting", func(asked string) {
			own := NewSigner("eve", eve)
			e := enrolment(Approver{Name: "eve", Key: hexKey(eve), Roles: []string{"manager"}, By: "eve",
				At: database.Stamp(a.now())}, own)
			forge(rightsBucket, "eve", carried{From: "sd_x", Right: &e})
			answer(asked, own, eve, nil)
		}},
		{"an enrolment that ann did not sign", "waiting", func(asked string) {
			e := enrolment(Approver{Name: "mallory", Key: hexKey(eve), Roles: []string{"manager"}, By: "ann",
				At: database.Stamp(a.now())}, NewSigner("ann", eve))
			forge(rightsBucket, "mallory", carried{From: "sd_x", Right: &e})
			answer(asked, NewSigner("mallory", eve), eve, nil)
		}},
		{"a word in the row alone", "approval.forged", func(asked string) {
			a.exec(t, `UPDATE approvals SET state = 'yes' WHERE id = $1`, asked)
		}},
		{"a yes that ann took back at the other", "no", func(asked string) {
			a.say(t, asked, true)
			if err := b.Answer(ctx, bob, asked, false, ""); err != nil {
				t.Fatal(err)
			}
		}},
		{"a yes of bob, who was revoked at the other", "approval.revoked", func(asked string) {
			if err := a.Answer(ctx, bob, asked, true, ""); err != nil {
				t.Fatal(err)
			}
			if err := b.Revoke(ctx, "bob", ann); err != nil {
				t.Fatal(err)
			}
		}},
		{"a yes of bob after that", "waiting", func(asked string) { answer(asked, bob, bob.(key).k, nil) }},
	} {
		d := decide(t, fmt.Sprintf(`{"attack":%d}`, i))
		asked := a.want(t, d, "waiting")
		row.attack(asked)
		if got, _ := a.ask(t, d); got != row.want {
			t.Errorf("%s: got %s, want %s", row.why, got, row.want)
		}
	}
	if all, err := b.Approvers(ctx); err != nil || len(all) != 2 { // ann and clerk
		t.Errorf("approvers at B: %v %v", all, err)
	}
}
