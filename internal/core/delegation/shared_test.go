package delegation_test

import (
	"database/sql"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/core/delegation"
	"waldo/internal/core/policy"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// newReplicas returns two worlds whose rows are in one database, and its server.
func newReplicas(t *testing.T) (a, b world) {
	t.Helper()
	s := pgtest.New(t)
	one := func() world {
		w, dir := newWorld(t), filepath.Join(t.TempDir(), "state")
		_, _, err := database.Migrate(t.Context(), dir, s.URL("postgres", "postgres"))
		if err == nil {
			w.Log.Store, err = database.Open(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Log.Store.Close() })
		w.Log.Store.MarkWith(func() ([]byte, error) { return []byte(strings.Repeat("k", 32)), nil })
		return w
	}
	return one(), one()
}

// want makes a call under a token at a replica, and holds the first reason against it to a code; empty: none.
func (w world) want(t *testing.T, why, token, code string) {
	t.Helper()
	if _, got := w.call(t, asks(token, "local.read_x", `{}`)); got != code {
		t.Errorf("%s: %q, want %q", why, got, code)
	}
}

// TestReplicas: a delegation of one replica holds at another, with one budget for both, until it is revoked at either.
func TestReplicas(t *testing.T) {
	a, b := newReplicas(t)
	r := wide()
	r.Calls = 3
	top := a.give(t, "", parent, r)
	r.Calls, r.Depth = 2, 0
	below := a.give(t, top, child, r)
	alone := b
	service := *b.Service
	service.Log.Store, alone.Service, alone.log = nil, &service, &memory{}
	service.Log.Log = alone.log
	alone.want(t, "control: without the rows", below, "delegation.absent")
	b.want(t, "elsewhere", below, "")
	a.want(t, "where it was made", below, "")
	a.want(t, "beyond the budget of both", below, "delegation.budget")
	b.want(t, "beyond the budget of both, elsewhere", below, "delegation.budget")
	b.want(t, "the last call of the one above", top, "")
	a.want(t, "beyond the budget above", top, "delegation.budget")
	b.want(t, "another secret", below[:len(below)-4]+"aaaa", "delegation.token")
	if n := len(b.log.all); n != 2 || b.log.all[0].From != a.Log.Store.Place() {
		t.Errorf("%d records, the first from %q", n, b.log.all[0].From)
	}

	second := a.give(t, "", parent, wide())
	b.want(t, "before its end", second, "")
	under, why := a.Under(t.Context(), asks(second, "local.read_x", `{}`))
	if why != nil {
		t.Fatal(why)
	}
	bound, done := a.Bind(t.Context(), under)
	defer done()
	n, _ := delegation.ParseToken(second)
	if _, _, err := delegation.Revoke(t.Context(), b.Log, n, parent); err != nil {
		t.Fatal(err)
	}
	d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Allow}
	d.Call.Chain = under.IDs()
	a.log.decided(d)
	if why := a.Confirm(t.Context(), d, under); why == nil || why.Code != delegation.CodeRevoked {
		t.Errorf("a call that was let in before: %v", why)
	}
	if ended := a.Live.End(t.Context(), a.Log, a.Now()); ended != 1 || bound.Err() == nil {
		t.Errorf("%d calls under way ended", ended)
	}
	a.want(t, "revoked at the other", second, delegation.CodeRevoked)
}

// TestForgedRows: who writes to the database alone hands nothing down, and gives no call more.
func TestForgedRows(t *testing.T) {
	a, b := newReplicas(t)
	exec := func(query string, args ...any) {
		t.Helper()
		err := a.Log.Store.Update(t.Context(), func(tx *sql.Tx) error { _, err := tx.Exec(query, args...); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	r := wide()
	r.Calls = 1
	token := a.give(t, "", parent, r)
	name, _ := delegation.ParseToken(token)
	rows, err := a.Log.Store.List(t.Context(), "delegations")
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	genuine := rows[name]
	put := func(name, value string) {
		t.Helper()
		exec(`INSERT INTO kv (bucket, name, value, at) VALUES ('delegations', $1, $2, '9')
			ON CONFLICT (bucket, name) DO UPDATE SET value = excluded.value`, name, value)
	}
	another := id.New(id.Delegation)
	wider := a.log.all[0]
	bounds := *wider.Bounds
	bounds.Calls, wider.Bounds, wider.From = 1000, &bounds, "sd_x"
	text, err := json.Marshal(wider)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(token, name, another, 1)
	for why, value := range map[string]string{
		"wider":             strings.Replace(genuine, `"calls":1,`, `"calls":1000,`, 1),
		"without a mark":    string(text),
		"of another":        genuine[:1] + strings.Repeat("A", 43) + string(text),
		"a mark, and wider": genuine[:44] + string(text),
	} {
		put(name, value)
		b.want(t, why, token, "delegation.absent")
	}
	put(another, genuine)
	b.want(t, "under another name", other, "delegation.absent")
	if len(b.log.all) != 0 {
		t.Errorf("a forged row is in the log: %v", b.log.all)
	}
	put(name, genuine)
	b.want(t, "control", token, "")
	b.want(t, "control: its one call", token, "delegation.budget")
	put(name+" calls", "0")
	a.want(t, "a forged number of calls", token, "delegation.unproven")
	exec(`DELETE FROM kv WHERE name = $1`, name+" calls")
	b.want(t, "no number of calls", token, "delegation.budget") // its own log knows
	if _, _, err := delegation.Revoke(t.Context(), a.Log, name, parent); err != nil {
		t.Fatal(err)
	}
	put(name+" revoked", "{}")
	b.want(t, "an end that was changed", token, "delegation.unproven")
}
