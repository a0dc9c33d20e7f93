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

func server(t *testing.T) *pgtest.Server {
	t.Helper()
	s, err := pgtest.Start()
	if errors.Is(err, pgtest.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

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
	s := server(t)
	t.Run("migrate", func(t *testing.T) { migrates(t, s) })
	t.Run("two hosts", func(t *testing.T) { twoHosts(t, s) })
	t.Run("snapshot", func(t *testing.T) { snapshots(t, s) })
	t.Run("a commit waits for the disk", func(t *testing.T) { waits(t, s) })
	t.Run("a lost commit", func(t *testing.T) { loses(t, s) })
	t.Run("a statement whose error is passed over", func(t *testing.T) { passesOver(t, s) })
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
	if err := open(t, dir).Put(ctx, "b", "n", "v"); err == nil || !strings.Contains(err.Error(), "run waldo store migrate") {
		t.Fatalf("an old schema: %v", err)
	}
	if from, to, err := Migrate(ctx, dir, url); err != nil || from != len(all)-1 || to != len(all) {
		t.Fatal(from, to, err)
	}
	if err := open(t, dir).Put(ctx, "b", "n", "v"); err != nil {
		t.Fatalf("control: %v", err)
	}
	if _, _, err := Migrate(ctx, dir, s.URL("postgres", "template1")); err == nil || !strings.Contains(err.Error(), "cannot be bound") {
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

// waits: a role whose commits do not wait for the disk has commits that do.
func waits(t *testing.T, s *pgtest.Server) {
	store := bound(t, s, "weak", "&options=-c%20synchronous_commit%3Doff")
	var view, update string
	show := func(to *string) func(tx *sql.Tx) error {
		return func(tx *sql.Tx) error { return tx.QueryRow(`SHOW synchronous_commit`).Scan(to) }
	}
	if err := errors.Join(store.View(t.Context(), show(&view)), store.Update(t.Context(), show(&update))); err != nil {
		t.Fatal(err)
	}
	if view != "off" {
		t.Errorf("control: the role's commits are %s", view)
	}
	if update != "on" {
		t.Errorf("a write commits with %s", update)
	}
}

// cutter is a relay to a server that ends a connection at a word of the client, before or after it is passed on.
type cutter struct {
	word   atomic.Pointer[string]
	passes atomic.Bool
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
	if err := put("after"); !errors.Is(err, ErrUnknown) || !there("after") {
		t.Errorf("cut after the commit arrives: %v", err)
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
		if (r.wrong == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), r.wrong) || strings.Contains(err.Error(), "hunter2")) {
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
	_, _, err := Migrate(t.Context(), filepath.Join(t.TempDir(), "state"), "postgres://waldo@127.0.0.1:1/waldo?sslmode=disable")
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
