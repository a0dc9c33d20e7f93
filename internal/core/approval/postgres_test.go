package approval

import (
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// TestPostgres runs the tests of races, of use and of changed rows on PostgreSQL.
func TestPostgres(t *testing.T) {
	pgtest.Again(t, "^Test(Once|OneWinner|EqualCallsAtOnce|WrittenRows|RestartAndSweep|TheLogAloneDecides|Gone|Quorum)$", "^$")
}

// TestElsewhere: of two state directories on one database, each uses the answers of its own log alone.
func TestElsewhere(t *testing.T) {
	s, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	host := func() *fixture {
		h := &fixture{dir: filepath.Join(t.TempDir(), "state")}
		h.at.Store(time.Now().UnixMilli())
		if _, _, err := database.Migrate(ctx, h.dir, s.URL("postgres", "postgres")); err != nil {
			t.Fatal(err)
		}
		h.restart(t)
		_, private, _ := ed25519.GenerateKey(nil)
		h.ann = NewSigner("ann", private)
		if _, err := h.EnrollKey(ctx, "ann", []string{"manager"}, private.Public().(ed25519.PublicKey), h.ann); err != nil {
			t.Fatal(err)
		}
		return h
	}
	a, b := host(), host()
	defer func() { _, _ = a.Store.Close(), b.Store.Close() }()
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
