package programs

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// hosts are stores of state directories on one PostgreSQL, with one key.
func hosts(t *testing.T, n int) (all []Store) {
	t.Helper()
	pg := pgtest.New(t)
	for range n {
		dir := t.TempDir()
		if _, _, err := database.Migrate(t.Context(), dir, pg.URL("postgres", "postgres")); err != nil {
			t.Fatal(err)
		}
		s, err := database.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		s.MarkWith(func() ([]byte, error) { return []byte(strings.Repeat("k", 32)), nil })
		all = append(all, Store{Dir: filepath.Join(dir, "programs"), Rows: s, Shares: true})
	}
	return all
}

func (s Store) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	err := s.Rows.Update(context.Background(), func(tx *sql.Tx) error {
		_, err := tx.Exec(text, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s Store) suspend(t *testing.T) (name string) {
	t.Helper()
	name, err := s.Save(Program{Capability: "run_javascript", Session: "n_1", Principal: "os:7",
		Approvals: []string{"a_1"}, At: time.Now(), Start: []byte("{\"code\":\n\"canary\"}"), Image: []byte("x\ny\x00")})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestElsewhere: a program that one replica suspended goes on at another, once, and only for its principal.
func TestElsewhere(t *testing.T) {
	all := hosts(t, 3)
	a, b, c := all[0], all[1], all[2]
	name := a.suspend(t)
	if files, _ := os.ReadDir(a.Dir); len(files) != 0 {
		t.Errorf("files: %v", files)
	}
	if l, err := b.List(); err != nil || len(l) != 1 || l[0].ID != name || l[0].Taken || l[0].Session != "n_1" ||
		l[0].Bytes == 0 {
		t.Errorf("%+v %v", l, err)
	}
	if _, err := b.Take(name, "os:8"); !errors.Is(err, ErrAbsent) {
		t.Errorf("another principal: %v", err)
	}
	p, err := b.Take(name, "os:7")
	if err != nil || string(p.Image) != "x\ny\x00" || !strings.Contains(string(p.Start), "canary") ||
		p.Approvals[0] != "a_1" {
		t.Fatalf("%+v %v", p, err)
	}
	for _, s := range all {
		if _, err := s.Take(name, "os:7"); !errors.Is(err, ErrRunning) {
			t.Errorf("while it goes on: %v", err)
		}
	}
	if err := b.Return(name); err != nil {
		t.Error(err)
	}
	if _, err := c.Look(name, "os:7"); err != nil {
		t.Errorf("a look: %v", err)
	}
	if _, err := c.Take(name, "os:7"); err != nil {
		t.Errorf("control: after its return: %v", err)
	}
	if err := c.End(name); err != nil {
		t.Error(err)
	}
	if _, err := a.Take(name, "os:7"); !errors.Is(err, ErrAbsent) {
		t.Errorf("after its end: %v", err)
	}
	name = a.suspend(t)
	for _, row := range []struct {
		session string
		want    int
	}{{"n_2", 0}, {"n_1", 1}} {
		if n, err := b.Remove(func(p Program) bool { return p.Session == row.session }); n != row.want || err != nil {
			t.Errorf("removed of %s: %d %v", row.session, n, err)
		}
	}
	if _, err := a.Take(name, "os:7"); !errors.Is(err, ErrAbsent) {
		t.Errorf("after its removal: %v", err)
	}
	a.Shares = false
	if name, err = a.Save(Program{Principal: "os:7", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Take(name, "os:7"); !errors.Is(err, ErrAbsent) {
		t.Errorf("of a host that is no replica: %v", err)
	}
	old := time.Now().Add(-Retention - time.Hour)
	if name, err = b.Save(Program{Principal: "os:7", At: old}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Take(name, "os:7"); !errors.Is(err, ErrAbsent) {
		t.Errorf("past its retention: %v", err)
	}
	if b.Sweep(time.Now()); func() int { l, _ := b.List(); return len(l) }() != 0 {
		t.Error("it is not swept")
	}
}

// TestTakenAtOnce: of replicas that take a program at the same time, one gets it.
func TestTakenAtOnce(t *testing.T) {
	all := hosts(t, 3)
	for range 20 {
		name := all[0].suspend(t)
		var got atomic.Int32
		var takers sync.WaitGroup
		for _, s := range all {
			takers.Go(func() {
				if _, err := s.Take(name, "os:7"); err == nil {
					got.Add(1)
				} else if !errors.Is(err, ErrRunning) {
					t.Error(err)
				}
			})
		}
		if takers.Wait(); got.Load() != 1 {
			t.Errorf("%d took it", got.Load())
		}
	}
}

// TestForgedPrograms: who can write to the database reads no program, changes none, and gives none to another. An older
// row that is put back does not go on again where it went on.
func TestForgedPrograms(t *testing.T) {
	all := hosts(t, 2)
	a, b := all[0], all[1]
	take := func(name string) error { _, err := b.Take(name, "os:7"); return err }
	var clear int
	name, other := a.suspend(t), a.suspend(t)
	err := a.Rows.View(t.Context(), func(tx *sql.Tx) error {
		return tx.QueryRow(`SELECT COUNT(*) FROM kv WHERE value LIKE '%canary%' OR value LIKE '%' || $1 || '%'`,
			"Y2FuYXJ5").Scan(&clear)
	})
	if err != nil || clear != 0 {
		t.Errorf("code in clear text: %d %v", clear, err)
	}
	for why, change := range map[string]string{
		"a bit": `UPDATE kv SET value = 'AAAA' || SUBSTR(value, 5) WHERE bucket = 'programs.sealed' AND name = $1`,
		"another's content": `UPDATE kv SET value = (SELECT value FROM kv WHERE bucket = 'programs.sealed' AND name = 'OTHER')
			WHERE bucket = 'programs.sealed' AND name = $1`,
		"another's name":     `UPDATE kv SET name = $1 WHERE name = 'OTHER'`,
		"its principal":      `UPDATE kv SET value = REPLACE(value, 'os:7', 'os:8') WHERE bucket = 'programs' AND name = $1`,
		"hidden from a stop": `UPDATE kv SET value = REPLACE(value, 'n_1', 'n_2') WHERE bucket = 'programs' AND name = $1`,
	} {
		name, other := a.suspend(t), a.suspend(t)
		if err := take(other); err != nil {
			t.Fatalf("control: %v", err)
		}
		if err := b.Return(other); err != nil {
			t.Fatal(err)
		}
		if why == "another's name" {
			a.exec(t, `DELETE FROM kv WHERE name = $1`, name)
		}
		a.exec(t, strings.ReplaceAll(change, "OTHER", other), name)
		if err := take(name); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", why, err)
		}
	}
	a.exec(t, `CREATE TABLE before AS SELECT * FROM kv WHERE name = '`+name+`'`)
	back := func() {
		a.exec(t, `DELETE FROM kv WHERE name = $1`, name)
		a.exec(t, `INSERT INTO kv SELECT * FROM before`)
	}
	if err := take(name); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"while it goes on", "after its end"} {
		back()
		if err := take(name); !errors.Is(err, ErrRunning) {
			t.Errorf("put back %s: %v", when, err)
		}
		if when == "while it goes on" {
			if err := b.End(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Remove(filepath.Join(b.Dir, name+taken)); err != nil {
		t.Fatal(err)
	}
	if err := take(name); err != nil {
		t.Errorf("control: without the note it goes on again: %v", err)
	}
	b.Rows.MarkWith(func() ([]byte, error) { return []byte(strings.Repeat("x", 32)), nil })
	if err := take(other); !errors.Is(err, ErrDamaged) {
		t.Errorf("a host with another key: %v", err)
	}
}
