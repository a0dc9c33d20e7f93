package database

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/testing/pgtest"
)

// bound returns the store of a new state directory with its rows in a schema of a server.
func bound(t *testing.T, s *pgtest.Server, schema, more string) *Store {
	t.Helper()
	if err := s.SQL("postgres", "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		t.Fatal(err)
	}
	return boundTo(t, s.URL("postgres", "postgres")+"&search_path="+schema+more)
}

func boundTo(t *testing.T, url string) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if _, _, err := Migrate(t.Context(), dir, url); err != nil {
		t.Fatal(err)
	}
	return open(t, dir)
}

func TestPostgresStore(t *testing.T) {
	s := pgtest.New(t)
	t.Run("migrate", func(t *testing.T) { migrates(t, s) })
	t.Run("two hosts", func(t *testing.T) { twoHosts(t, s) })
	t.Run("snapshot", func(t *testing.T) { snapshots(t, s) })
	t.Run("a commit waits for the disk", func(t *testing.T) { waits(t, s) })
	t.Run("a lost commit", func(t *testing.T) { loses(t, s) })
	t.Run("a server that vanishes", func(t *testing.T) { vanishes(t, s) })
	t.Run("a statement whose error is passed over", func(t *testing.T) { passesOver(t, s) })
	t.Run("back in time", func(t *testing.T) { wentBack(t, s) })
	t.Run("copy", func(t *testing.T) { copies(t, s) })
	t.Run("paused", func(t *testing.T) { paused(t, s) })
	t.Run("kill", func(t *testing.T) { killed(t, s) }) // the last: it ends the server
}

func migrates(t *testing.T, s *pgtest.Server) {
	if err := s.SQL("postgres", "CREATE SCHEMA m"); err != nil {
		t.Fatal(err)
	}
	ctx, url := t.Context(), s.URL("postgres", "postgres")+"&search_path=m"
	dir := filepath.Join(t.TempDir(), "state")
	all := migrations
	defer func() { migrations = all }()
	migrations = all[:len(all)-1]
	if from, to, err := Migrate(ctx, dir, url); err != nil || from != 0 || to != len(all)-1 {
		t.Fatal(from, to, err)
	}
	migrations = all
	if err := open(t, dir).Put(ctx, "b", "n", "v"); err == nil || !strings.Contains(err.Error(),
		"run waldo store migrate") {
		t.Fatalf("an old schema: %v", err)
	}
	if from, to, err := Migrate(ctx, dir, url); err != nil || from != len(all)-1 || to != len(all) {
		t.Fatal(from, to, err)
	}
	if err := open(t, dir).Put(ctx, "b", "n", "v"); err != nil {
		t.Fatalf("control: %v", err)
	}
	if _, _, err := Migrate(ctx, dir, s.URL("postgres", "template1")); err == nil || !strings.Contains(err.Error(),
		"cannot be bound") {
		t.Errorf("another database: %v", err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := open(t, old).Put(ctx, "b", "n", "v"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Migrate(ctx, old, url); err == nil || !strings.Contains(err.Error(), "waldo store copy") {
		t.Errorf("a directory with rows: %v", err)
	}
}

// twoHosts: of two state directories on one database, writes come one after another, and each has names of its own.
func twoHosts(t *testing.T, s *pgtest.Server) {
	stores := []*Store{bound(t, s, "two", ""), bound(t, s, "two", "")}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			err := stores[i%2].Modify(t.Context(), "b", "n", func(old string, _ bool) (string, bool, error) {
				n, _ := strconv.Atoi(old)
				return strconv.Itoa(n + 1), true, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if v, _, err := stores[0].Get(t.Context(), "b", "n"); v != "200" || err != nil {
		t.Errorf("200 increments made %s (%v)", v, err)
	}
	if a, b := stores[0].Own("n"), stores[1].Own("n"); a == b {
		t.Errorf("both call their own %s", a)
	}
	for bucket, shared := range map[string]bool{"b": true, "sandbox": false, "snapshot": false} {
		err := stores[0].Put(t.Context(), bucket, "row", "v")
		if _, there, _ := stores[1].Get(t.Context(), bucket, "row"); err != nil || there != shared {
			t.Errorf("the other directory sees a row of %s: %v (%v)", bucket, there, err)
		}
	}
	for i, seq := range []uint64{7, 3} {
		if err := stores[i].SetHead(t.Context(), "audit", Head{Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	if h, err := stores[1].Head(t.Context(), "audit"); err != nil || h == nil || h.Seq != 3 {
		t.Errorf("the second directory's head is %v %v", h, err)
	}
}

func snapshots(t *testing.T, s *pgtest.Server) {
	store := bound(t, s, "snap", "")
	read := func(tx *sql.Tx) (n int) {
		if err := tx.QueryRow(`SELECT COUNT(*) FROM kv`).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	err := store.View(t.Context(), func(tx *sql.Tx) error {
		before := read(tx)
		if err := store.Put(t.Context(), "b", "n", "v"); err != nil {
			return err
		}
		if after := read(tx); after != before {
			t.Errorf("%d rows, then %d in one view", before, after)
		}
		_, err := tx.Exec(`DELETE FROM kv`)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "read-only transaction") {
		t.Errorf("a write in a view: %v", err)
	}
}

// waits: a role whose commits do not wait for the disk has commits that do. The server waits for no host that vanished
// in the middle of a write, and holds the lock.
func waits(t *testing.T, s *pgtest.Server) {
	store := bound(t, s, "weak", "&options=-c%20synchronous_commit%3Doff")
	var view, update, idle string
	show := func(to *string) func(tx *sql.Tx) error {
		return func(tx *sql.Tx) error {
			return tx.QueryRow(`SELECT current_setting('synchronous_commit'),
				current_setting('idle_in_transaction_session_timeout')`).Scan(to, &idle)
		}
	}
	if err := errors.Join(store.View(t.Context(), show(&view)), store.Update(t.Context(), show(&update))); err != nil {
		t.Fatal(err)
	}
	if view != "off" {
		t.Errorf("control: the role's commits are %s", view)
	}
	if update != "on" || idle != "10s" {
		t.Errorf("a write commits with %s, and can be idle for %s", update, idle)
	}
}

// cutter is a relay to a server that ends a connection at a word of the client, before or after it is passed on.
type cutter struct {
	word   atomic.Pointer[string]
	passes atomic.Bool
	silent atomic.Bool // it takes bytes and passes none on
}

func (c *cutter) listen(t *testing.T, port int) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go c.relay(in, port)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func (c *cutter) relay(in net.Conn, port int) {
	defer in.Close()
	out, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return
	}
	defer out.Close()
	go io.Copy(in, out)
	b := make([]byte, 64<<10)
	for {
		n, err := in.Read(b)
		if err != nil {
			return
		}
		if c.silent.Load() {
			_, _ = io.Copy(io.Discard, in) // until the client gives up
			return
		}
		w := c.word.Load()
		cut := w != nil && bytes.Contains(b[:n], []byte(*w))
		if cut && !c.passes.Load() {
			return
		}
		if cut {
			in.Close() // the answer never arrives
		}
		if _, err := out.Write(b[:n]); err != nil {
			return
		}
		if cut {
			time.Sleep(200 * time.Millisecond) // the server reads it
			return
		}
	}
}

// vanishes: a server that goes silent, in the middle of a write or between two, holds the one writer and a reader for
// the time of a statement alone.
func vanishes(t *testing.T, s *pgtest.Server) {
	defer func(was time.Duration) { statementWithin = was }(statementWithin)
	statementWithin = time.Second
	direct := bound(t, s, "silent", "")
	var c cutter
	store := boundTo(t, strings.Replace(direct.URL(), strconv.Itoa(s.Port), strconv.Itoa(c.listen(t, s.Port)), 1))
	if err := store.Put(t.Context(), "b", "control", "v"); err != nil {
		t.Fatal(err)
	}
	ends := func(what string, do func() error) {
		t.Helper()
		ended := make(chan error, 1)
		go func() { ended <- do() }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: no error", what)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s still waits", what)
		}
	}
	const slow = `SELECT pg_sleep(0.1)`
	ends("a write", func() error {
		return store.Update(t.Context(), func(tx *sql.Tx) error {
			c.silent.Store(true)
			_, err := tx.Exec(slow)
			return err
		})
	})
	c.silent.Store(false)
	ends("a read", func() error {
		return store.View(t.Context(), func(tx *sql.Tx) error {
			c.silent.Store(true)
			_, err := tx.Exec(slow)
			return err
		})
	})
	c.silent.Store(false)
	err := store.Put(t.Context(), "b", "again", "v")
	for end := time.Now().Add(2 * time.Minute); err != nil && time.Now().Before(end); { // connections of before; their locks
		err = store.Put(t.Context(), "b", "again", "v")
	}
	if err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// paused: a server that does not answer, or that ends, is away. What it refuses itself is an ordinary failure.
func paused(t *testing.T, s *pgtest.Server) {
	defer func(was time.Duration) { statementWithin = was }(statementWithin)
	statementWithin = 300 * time.Millisecond
	store := bound(t, s, "paused", "")
	if err := store.Put(t.Context(), "b", "control", "v"); err != nil {
		t.Fatal(err)
	}
	refused := store.Update(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`SELECT 1/0`)
		return err
	})
	if refused == nil || errors.Is(refused, ErrAway) {
		t.Errorf("control: %v", refused)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	err := store.Put(t.Context(), "b", "n", "v")
	if _, _, gone := store.Get(t.Context(), "b", "n"); !errors.Is(err, ErrAway) || !errors.Is(gone, ErrAway) {
		t.Errorf("%v; %v", err, gone)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
}

// loses: a commit without an answer is said to be unknown, also where the database holds it. A write that was cut before
// is an ordinary failure.
func loses(t *testing.T, s *pgtest.Server) {
	direct := bound(t, s, "lost", "")
	var c cutter
	port := c.listen(t, s.Port)
	store := boundTo(t, strings.Replace(direct.URL(), strconv.Itoa(s.Port), strconv.Itoa(port), 1))
	put := func(name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return store.Put(ctx, "b", name, "v")
	}
	there := func(name string) bool {
		_, ok, err := direct.Get(t.Context(), "b", name)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	if err := put("control"); err != nil || !there("control") {
		t.Fatalf("control: %v", err)
	}
	commit, insert := "\x0bcommit\x00", "SAVEPOINT" // as a simple query: its length comes before
	c.word.Store(&commit)
	if err := put("before"); !errors.Is(err, ErrUnknown) || there("before") {
		t.Errorf("cut before the commit arrives: %v", err)
	}
	c.passes.Store(true)
	if err := put("after"); !errors.Is(err, ErrUnknown) {
		t.Errorf("cut after the commit arrives: %v", err)
	}
	for end := time.Now().Add(10 * time.Second); !there("after"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("control: the server did not commit")
		}
	}
	c.word.Store(&insert)
	if err := put("early"); err == nil || errors.Is(err, ErrUnknown) || there("early") {
		t.Errorf("cut before any commit: %v", err)
	}
	c.word.Store(nil)
	if err := put("again"); err != nil || !there("again") {
		t.Errorf("after the cuts: %v", err)
	}
}

// passesOver: PostgreSQL ends a transaction at the first error. A write that goes on after one fails, and no other.
func passesOver(t *testing.T, s *pgtest.Server) {
	store := bound(t, s, "over", "")
	if err := store.Put(t.Context(), "b", "n", "v"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := store.Update(t.Context(), func(tx *sql.Tx) error {
				_, _ = tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ('b', $1, '', '')`, map[bool]string{true: "n",
					false: fmt.Sprint(i)}[i%2 == 0])
				return nil
			})
			if (err != nil) != (i%2 == 0) {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if all, err := store.List(t.Context(), "b"); err != nil || len(all) != 11 {
		t.Errorf("%d rows, %v; want 11", len(all), err)
	}
}

// killed: no write that was acknowledged is lost when the server is killed.
func killed(t *testing.T, s *pgtest.Server) {
	stores := []*Store{bound(t, s, "kill", ""), bound(t, s, "kill", "")}
	var acked sync.Map
	var n, failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprint(w, " ", i)
				if err := stores[w%2].Put(ctx, "b", name, "v"); err != nil {
					failed.Add(1)
					time.Sleep(50 * time.Millisecond)
					continue
				}
				acked.Store(name, true)
				n.Add(1)
			}
		})
	}
	for range 2 {
		time.Sleep(time.Second)
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	before := n.Load()
	time.Sleep(500 * time.Millisecond)
	if n.Load() == before {
		t.Error("the stores do not write again")
	}
	stop()
	wg.Wait()
	all, err := stores[0].List(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	acked.Range(func(k, _ any) bool {
		if _, ok := all[k.(string)]; !ok {
			lost++
		}
		return true
	})
	t.Logf("%d acknowledged, %d refused, %d lost", n.Load(), failed.Load(), lost)
	if lost > 0 || failed.Load() == 0 || n.Load() < 100 {
		t.Error("lost, or the kill was not in the middle of writes")
	}
}

func TestPostgresURL(t *testing.T) {
	for _, r := range []struct{ url, wrong string }{
		{"postgres://waldo@127.0.0.1/waldo", ""},
		{"postgres://waldo@db.example.com/waldo", ""},
		{"postgres://waldo@db.example.com/waldo?sslmode=verify-full", ""},
		{"postgres://waldo@a.example.com,b.example.com/waldo", ""},
		{"postgres://waldo:hunter2@127.0.0.1/waldo", "no password"},
		{"postgres://waldo@127.0.0.1/waldo?password=hunter2", "no password"},
		{"postgres://127.0.0.1/waldo", "must name the role"},
		{"postgres://waldo@127.0.0.1/", "must name the role"},
		{"mysql://waldo@127.0.0.1/waldo", "of the form"},
		{"postgres://waldo@127.0.0.1/waldo?sslmode=hunter2", "cannot be read"},
	} {
		c, err := postgres(r.url)
		if (r.wrong == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), r.wrong) ||
			strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v", r.url, err)
		}
		if err == nil && strings.Contains(r.url, "example.com") {
			for _, f := range c.Fallbacks {
				if f.TLSConfig == nil {
					t.Errorf("%s falls back to plain text", r.url)
				}
			}
		}
	}
	t.Setenv("PGPASSWORD", "hunter2")
	_, _, err := Migrate(t.Context(), filepath.Join(t.TempDir(), "state"),
		"postgres://waldo@127.0.0.1:1/waldo?sslmode=disable")
	if err == nil || !strings.Contains(err.Error(), "cannot be reached") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("no server: %v", err)
	}
}

// TestDamagedPlace: a state directory that names its database badly never falls back to a new waldo.db.
func TestDamagedPlace(t *testing.T) {
	for _, text := range []string{"", "{", `{"url":""}`, `{"url":"postgres://a@b/c"}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, PlaceFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// wentBack: a database whose heads are those of an old dump is noticed by a store that opens, and by one that is open.
func wentBack(t *testing.T, s *pgtest.Server) {
	store := bound(t, s, "back", "")
	set := func(seq uint64) error {
		return store.SetHead(t.Context(), "audit", Head{Seq: seq, Hash: fmt.Sprint("h", seq)})
	}
	if err := errors.Join(set(1), set(5), s.SQL("postgres", "CREATE TABLE back.dump AS SELECT * FROM back.heads"),
		set(9)); err != nil {
		t.Fatal(err)
	}
	if h, err := store.Head(t.Context(), "audit"); err != nil || h.Seq != 9 {
		t.Fatalf("control: %v %v", h, err)
	}
	restore := "DELETE FROM back.heads; INSERT INTO back.heads SELECT * FROM back.dump"
	if err := s.SQL("postgres", restore); err != nil {
		t.Fatal(err)
	}
	if err := set(10); !errors.Is(err, ErrBack) {
		t.Errorf("an open store: %v", err)
	}
	if _, err := open(t, store.Dir()).Head(t.Context(), "audit"); !errors.Is(err, ErrBack) ||
		!strings.Contains(err.Error(), "it holds 5 records of this log, and held 9") {
		t.Errorf("a store that opens: %v", err)
	}
	if err := s.SQL("postgres", "DELETE FROM back.heads"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Head(t.Context(), "audit"); !errors.Is(err, ErrBack) {
		t.Errorf("an empty database: %v", err)
	}
	for _, text := range []string{"", "{", "null", "{}"} { // "": it is gone
		err := os.Remove(store.Path(seenFile))
		if text != "" {
			err = os.WriteFile(store.Path(seenFile), []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Head(t.Context(), "audit")
		if !errors.Is(err, errUnseen) || !errors.Is(set(10), errUnseen) {
			t.Errorf("waldo.seen is %q: %v", text, err)
		}
	}
	if err := errors.Join(s.SQL("postgres", restore), Restored(store.Dir()), set(10)); err != nil {
		t.Errorf("after the operator accepted it: %v", err)
	}
}

// copies: every row of a waldo.db comes along, and those of the state directory's own keep their meaning.
func copies(t *testing.T, s *pgtest.Server) {
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "state")
	before := open(t, dir)
	if err := errors.Join(before.Put(ctx, "confirms", "n", "ü\n\"'$1?"), before.Put(ctx, "cli", "os:0", "own"),
		before.SetHead(ctx, "audit", Head{Seq: 4, Hash: "h"}), before.Update(ctx, func(tx *sql.Tx) error {
			_, err := tx.Exec(`INSERT INTO approvers (name, record, signature, revoked) VALUES ('ann', 'r', 's', '')`)
			return err
		})); err != nil {
		t.Fatal(err)
	}
	if err := s.SQL("postgres", "CREATE SCHEMA copied; CREATE SCHEMA taken"); err != nil {
		t.Fatal(err)
	}
	url := s.URL("postgres", "postgres") + "&search_path="
	other := boundTo(t, url+"taken")
	if err := other.Put(ctx, "b", "n", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := CopyToPostgres(ctx, dir, url+"taken"); err == nil || !strings.Contains(err.Error(),
		"not empty: its table kv has 1 rows") {
		t.Errorf("a database with rows: %v", err)
	}
	if _, ok, err := before.Get(ctx, "cli", "os:0"); !ok || err != nil {
		t.Errorf("after the refusal: %v %v", ok, err)
	}
	all, err := CopyToPostgres(ctx, dir, url+"copied")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if want := map[string]int{"kv": 2, "heads": 1, "approvers": 1}[c.Table]; c.Rows != want || len(c.Digest) != 71 {
			t.Errorf("%+v; want %d rows", c, want)
		}
	}
	if err := before.Put(ctx, "b", "late", "v"); err == nil {
		t.Error("a waldo with the old file open still writes to it")
	}
	after := open(t, dir)
	if !after.Shared() || after.URL() != url+"copied" {
		t.Fatalf("the directory is bound to %s", after.URL())
	}
	for _, name := range []struct{ bucket, name, want string }{{"confirms", "n", "ü\n\"'$1?"}, {"cli", "os:0", "own"}} {
		if v, _, err := after.Get(ctx, name.bucket, name.name); v != name.want || err != nil {
			t.Errorf("%s: %q %v", name.bucket, v, err)
		}
	}
	if h, err := after.Head(ctx, "audit"); err != nil || h == nil || h.Seq != 4 {
		t.Errorf("the head: %v %v", h, err)
	}
	for name, want := range map[string]bool{"waldo.db": false, "waldo.db-wal": false, CopiedFile: true, PlaceFile: true} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := CopyToPostgres(ctx, dir, url+"copied"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second copy: %v", err)
	}
}

// BenchmarkStores is one write and one read of SQLite and of PostgreSQL, which waits for the disk.
func BenchmarkStores(b *testing.B) {
	s, err := pgtest.Start("fsync=on")
	if err != nil {
		b.Skip(err)
	}
	defer s.Stop()
	shared := filepath.Join(b.TempDir(), "state")
	if _, _, err := Migrate(b.Context(), shared, s.URL("postgres", "postgres")); err != nil {
		b.Fatal(err)
	}
	for name, dir := range map[string]string{"sqlite": filepath.Join(b.TempDir(), "state"), "postgres": shared} {
		store := open(b, dir)
		b.Run(name+"/write", func(b *testing.B) {
			for b.Loop() {
				if err := store.Put(b.Context(), "b", "k", "v"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/read", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := store.Get(b.Context(), "b", "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
