package effects

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// TestPostgres runs the tests of this package on PostgreSQL.
func TestPostgres(t *testing.T) { pgtest.Again(t, ".", "^$") }

// TestMarks: what another host can have written of a call is believed with the mark of the store's key alone, and a
// change of a forged row gives it none.
func TestMarks(t *testing.T) {
	b := newBench(t)
	if !b.Store.Shared() {
		t.Skip("the rows of one state directory have no marks")
	}
	for _, keyed := range []bool{false, true} {
		if keyed {
			b.Store.MarkWith(func() ([]byte, error) { return []byte("of all hosts"), nil })
		}
		for _, set := range []string{`process = 'q_gone'`, `at = '2020-01-01T00:00:00.000Z'`,
			`body = replace(body, 'first', 'other')`, `principal = 'os:2'`, `capability = 's.other'`} {
			d := keyedCall(t, fmt.Sprint(keyed, set))
			b.end(t, d, "first")
			err := b.Store.Update(t.Context(), func(tx *sql.Tx) error {
				_, err := tx.Exec(`UPDATE calls SET `+set+` WHERE id = $1`, d.Call.ID)
				return err
			})
			for range 2 {
				e, gerr := b.Get(t.Context(), d.Call.ID)
				if err != nil || gerr != nil || b.foreign(e) != (!keyed || strings.HasPrefix(set, "process")) {
					t.Errorf("keyed %v, %s: %+v %v %v", keyed, set, e, err, gerr)
				}
				err = b.Recorded(t.Context(), d.Call.ID)
			}
		}
	}
}

func keyedCall(t *testing.T, key string) policy.Decision { return keyed(t, key, `{"a":1}`) }

// TestDatabaseAway: a call ends while the database cannot be written. Its key stays in use until the database is back,
// and then has the result.
func TestDatabaseAway(t *testing.T) {
	if pgtest.Place(t, t.TempDir()) != "" {
		t.Skip("it has a server of its own")
	}
	s, state, log := pgtest.New(t), filepath.Join(t.TempDir(), "state"), &meanwhile{}
	if _, _, err := database.Migrate(t.Context(), state, s.URL("postgres", "postgres")); err != nil {
		t.Fatal(err)
	}
	store, err := database.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &Book{Store: store, Process: "q_own", Log: &open{log}, Gone: func(string) bool { return false }, Now: time.Now}
	d := keyed(t, "k", `{"a":1}`)
	if _, r, why, err := b.Begin(t.Context(), d, d.Call.Args); r != nil || why != nil || err != nil {
		t.Fatal(r, why, err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	f := facts.New()
	f.Status, f.SideEffect = facts.OK, facts.Confirmed
	r := call.Result{CallID: d.Call.ID, Status: facts.OK, Facts: f, Content: []call.Content{call.Text("made")}}
	if _, _, err := b.End(t.Context(), d, r, true); err == nil {
		t.Fatal("control: the end was stored")
	}
	b.Later(t.Context(), d, r, true, false)
	if b.Finish(200 * time.Millisecond) {
		t.Error("control: the end is recorded while the database is away")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if !b.Finish(time.Minute) {
		t.Error("the end is not recorded")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(poll) {
		again := keyed(t, "k", `{"a":1}`)
		r, why, err := b.Earlier(t.Context(), again, again.Call.Args)
		if r != nil && r.Content[0].Text == "made" {
			break
		}
		if r != nil || err == nil && (why == nil || why.Code != "idempotency.in_progress") || time.Now().After(end) {
			t.Fatalf("%+v %+v %v", r, why, err)
		}
	}
	if len(log.results) != 1 || log.results[0].Row == "" {
		t.Errorf("recorded: %+v", log.results)
	}
}

// open is a log whose calls have no outcome yet.
type open struct{ *meanwhile }

func (o *open) Standing(context.Context, policy.Decision, bool) Standing {
	return Standing{Allowed: true, Ended: len(o.results) > 0}
}
func (*open) Bound(context.Context, string, string, bool) *call.Reason { return nil }

// elsewhere is the log of another host than that of the call.
type elsewhere struct{ *open }

func (elsewhere) Standing(context.Context, policy.Decision, bool) Standing {
	return Standing{Allowed: true, Foreign: true}
}

// TestForeign: a host that finds a killed call of another makes it unknown. The outcome is recorded by its own host,
// once it is back.
func TestForeign(t *testing.T) {
	b, log := newBench(t), &meanwhile{}
	b.Contract = contracts("")
	d := killed(t, b, "")
	for _, step := range []struct {
		log      Recorder
		recorded int
		process  string
	}{{elsewhere{&open{log}}, 0, "q_gone"}, {elsewhere{&open{log}}, 0, "q_gone"}, {&open{log}, 1, ""}} {
		b.Log = step.log
		if err := b.Recover(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		e, err := b.Get(t.Context(), d.Call.ID)
		if err != nil || e.State != Unknown || e.process != step.process || len(log.results) != step.recorded {
			t.Errorf("%T: %+v, recorded %d, %v", step.log, e, len(log.results), err)
		}
	}
}
