package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"waldo/internal/testing/pgtest"
)

func open(t testing.TB, dir string) *Store {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(dir, PlaceFile)); err == nil {
	} else if url := pgtest.Place(t, dir); url != "" {
		if _, _, err := Migrate(t.Context(), dir, url); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestPostgres runs these tests on PostgreSQL, without those about the file of SQLite.
func TestPostgres(t *testing.T) {
	pgtest.Again(t, ".", "Open|Lazy|OddPath|Link|Durable|Full|CopyBefore|Postgres")
}

func TestOpenDir(t *testing.T) {
	root := os.Geteuid() == 0
	rows := []struct {
		why    string
		make   func(t *testing.T, at string)
		wrong  string // part of the error; empty: it opens
		asRoot bool   // needs root to set up
	}{
		{why: "a missing folder is made", make: func(*testing.T, string) {}},
		{why: "a folder of our own opens", make: func(t *testing.T, at string) { mkdir(t, at, 0o700) }},
		{why: "what others may read is closed to them", make: func(t *testing.T, at string) { mkdir(t, at, 0o755) }},
		{why: "a folder that others can write is refused", make: func(t *testing.T, at string) { mkdir(t, at, 0o707) },
			wrong: "others can write"},
		{why: "a folder that the group can write is refused", make: func(t *testing.T, at string) { mkdir(t, at, 0o770) },
			wrong: "others can write"},
		{why: "a link is refused even to a folder of our own", make: func(t *testing.T, at string) {
			mkdir(t, at+"-real", 0o700)
			if err := os.Symlink(at+"-real", at); err != nil {
				t.Fatal(err)
			}
		}, wrong: "is a link"},
		{why: "a file is refused", make: func(t *testing.T, at string) {
			if err := os.WriteFile(at, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, wrong: "not a folder"},
		{why: "another user's folder is refused", asRoot: true, make: func(t *testing.T, at string) {
			mkdir(t, at, 0o700)
			if err := os.Chown(at, 4242, 4242); err != nil {
				t.Fatal(err)
			}
		}, wrong: "another user"},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			if r.asRoot && !root {
				t.Skip("only root can make a folder of another user's")
			}
			at := filepath.Join(t.TempDir(), "state")
			r.make(t, at)
			s, err := Open(at)
			if r.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), r.wrong) {
					t.Fatalf("got %v, want an error with %q", err, r.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(s.Dir())
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Fatalf("mode %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestOpenBelowAFolderThatOthersCanWrite(t *testing.T) {
	above := filepath.Join(t.TempDir(), "shared")
	mkdir(t, above, 0o777)
	if _, err := Open(filepath.Join(above, "state")); err == nil ||
		!strings.Contains(err.Error(), "above the state directory") {
		t.Fatalf("got %v", err)
	}
	if err := os.Chmod(above, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(above, "state")); err != nil {
		t.Fatalf("with the sticky bit nobody can replace the folder: %v", err)
	}
}

func TestOpenBelowAFolderOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a folder away")
	}
	above := filepath.Join(t.TempDir(), "theirs")
	mkdir(t, above, 0o755)
	if _, err := Open(filepath.Join(above, "state")); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := os.Chown(above, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(above, "other")); err == nil ||
		!strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("got %v", err)
	}
}

func TestLazy(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state"))
	if _, err := os.Stat(s.Path("waldo.db")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("Open made a database: %v", err)
	}
	if err := s.Put(context.Background(), "b", "k", "v"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.Path("waldo.db"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
}

func TestOddPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a?b%41 #c&d=e")
	s := open(t, dir)
	if err := s.Put(context.Background(), "b", "k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "waldo.db")); err != nil {
		t.Fatal("the database is not where its folder is: ", err)
	}
}

func TestDatabaseThatIsALink(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state"))
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), s.Path("waldo.db")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(context.Background(), "b", "k", "v"); err == nil ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Fatalf("got %v", err)
	}
}

func TestDurable(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state"))
	err := s.View(context.Background(), func(tx *sql.Tx) error {
		var journal string
		var sync int
		if err := tx.QueryRow(`PRAGMA journal_mode`).Scan(&journal); err != nil {
			return err
		}
		if err := tx.QueryRow(`PRAGMA synchronous`).Scan(&sync); err != nil {
			return err
		}
		if journal != "wal" || sync != 2 {
			t.Errorf("journal %s, synchronous %d; want wal and 2 (FULL)", journal, sync)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpdateFailsAlone(t *testing.T) {
	s, ctx := open(t, filepath.Join(t.TempDir(), "state")), context.Background()
	wrong := errors.New("no")
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			err := s.Update(ctx, func(tx *sql.Tx) error {
				if _, err := tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ('b', $1, 'v', '')`,
					fmt.Sprint(i)); err != nil {
					return err
				}
				switch i % 3 {
				case 1:
					return wrong
				case 2:
					panic("a write that panics")
				}
				return nil
			})
			if (err == nil) != (i%3 == 0) {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	all, err := s.List(ctx, "b")
	if err != nil || len(all) != 20 {
		t.Fatalf("%d rows, %v; want the 20 that succeeded", len(all), err)
	}
}

func TestHeadOnlyMovesForward(t *testing.T) {
	s, ctx := open(t, filepath.Join(t.TempDir(), "state")), context.Background()
	if h, err := s.Head(ctx, "audit"); h != nil || err != nil {
		t.Fatalf("%v %v", h, err)
	}
	for _, seq := range []uint64{5, 9, 7} {
		if err := s.SetHead(ctx, "audit", Head{Seq: seq, Hash: fmt.Sprint(seq)}); err != nil {
			t.Fatal(err)
		}
	}
	if h, err := s.Head(ctx, "audit"); err != nil || h.Seq != 9 || h.Hash != "9" {
		t.Fatalf("%v %v", h, err)
	}
	if err := s.ResetHead(ctx, "audit", Head{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	if h, err := s.Head(ctx, "audit"); err != nil || h.Seq != 1 {
		t.Fatalf("%v %v", h, err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, dir)
	err := s.Update(context.Background(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO migrations (version, at) VALUES ($1, '')`, len(migrations)+1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Put(context.Background(), "b", "k", "v"); err == nil ||
		!strings.Contains(err.Error(), "says schema") {
		t.Fatalf("got %v", err)
	}
}

func TestClosed(t *testing.T) {
	s, ctx := open(t, filepath.Join(t.TempDir(), "state")), context.Background()
	if err := s.Put(ctx, "b", "k", "v"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(ctx, "b", "k", "v"); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
	never := open(t, filepath.Join(t.TempDir(), "state"))
	if err := never.Close(); err != nil {
		t.Fatal(err)
	}
	if err := never.Put(ctx, "b", "k", "v"); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// TestProcesses has several processes open, migrate and write one state directory at once.
func TestProcesses(t *testing.T) {
	ctx := context.Background()
	if dir := os.Getenv("STORE_CHILD_DIR"); dir != "" {
		s := open(t, dir)
		for i := range 50 {
			if err := s.Put(ctx, "b", fmt.Sprint(os.Getpid(), i), "v"); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
			cmd.Env = append(os.Environ(), "STORE_CHILD_DIR="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	all, err := open(t, dir).List(ctx, "b")
	if err != nil || len(all) != 200 {
		t.Fatalf("%d rows, %v; want 200", len(all), err)
	}
}

// TestNewAtOnce: a process that comes second waits for one that makes the database.
func TestNewAtOnce(t *testing.T) {
	dir, err := CheckDir(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := sql.Open("sqlite", filepath.Join(dir, sqliteFile)+"?_txlock=immediate") // has no WAL yet
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	tx, err := first.Begin()
	if err == nil {
		_, err = tx.Exec("CREATE TABLE other (x INT)")
	}
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = tx.Commit() })
	second, err := Open(dir) // on SQLite, also where the other tests have PostgreSQL
	if err == nil {
		err = errors.Join(second.Put(t.Context(), "b", "n", "v"), second.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

func mkdir(t *testing.T, at string, mode os.FileMode) {
	t.Helper()
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(at, mode); err != nil { // past the umask
		t.Fatal(err)
	}
}

func BenchmarkOpenAndReadHead(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "state")
	for b.Loop() {
		s, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Head(context.Background(), "audit"); err != nil {
			b.Fatal(err)
		}
		_ = s.Close()
	}
}

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprint(n, " writers"), func(b *testing.B) {
			s, err := Open(filepath.Join(b.TempDir(), "state"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			b.SetParallelism((n + 1) / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := s.Put(context.Background(), "b", "k", "v"); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// TestFull: a full disk is reported with the system's error, not with a number of SQLite.
func TestFull(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state"))
	put := func(bytes int) error {
		return s.Update(t.Context(), func(tx *sql.Tx) error {
			if _, err := tx.Exec("PRAGMA max_page_count = 40"); err != nil {
				return err
			}
			_, err := tx.Exec("INSERT INTO kv (bucket, name, value, at) VALUES ('b', 'n', $1, '')", strings.Repeat("x", bytes))
			return err
		})
	}
	if err := put(1 << 20); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("more than fits: %v", err)
	}
	if err := put(10); err != nil {
		t.Errorf("control: %v", err)
	}
}
