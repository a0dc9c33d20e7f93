package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	driver "modernc.org/sqlite"

	"waldo/internal/budget"
	"waldo/internal/feature/sql/answer"
	"waldo/internal/testing/corpus"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

var wide = answer.Limits{Rows: 100, Bytes: 1 << 20, Values: 10_000}

// file makes a database, in WAL mode or not, and returns its path.
func file(t *testing.T, wal bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a b?#%.db")
	db := raw(t, path)
	text := "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born DATE); " +
		"CREATE TABLE orders (id INTEGER, user_id INTEGER REFERENCES users(id), total REAL, raw BLOB); " +
		"INSERT INTO users VALUES (1, 'ann', '2001-02-03'), (9007199254740993, 'bob', NULL); " +
		"INSERT INTO orders VALUES (1, 1, 2.5, x'00ff'); CREATE VIEW v AS SELECT name FROM users; " +
		"CREATE VIRTUAL TABLE words USING fts5(body); INSERT INTO words VALUES ('hello there')"
	if wal {
		text = "PRAGMA journal_mode = wal; " + text
	}
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func isRefusal(err error, code string) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Code == code
}

func TestQuery(t *testing.T) {
	for _, wal := range []bool{false, true} {
		path := file(t, wal)
		for query, want := range map[string]string{
			"SELECT * FROM users ORDER BY id":                                                                       "id | name | born\n1 | ann | 2001-02-03T00:00:00Z\n9007199254740993 | bob | \n(2 rows)",
			"SELECT total, raw, NULL AS n, 'a|b' AS t, 9e999 AS i FROM orders":                                      "total | raw | n | t | i\n2.5 | \\x00ff |  | a\\|b | +Inf\n(1 row)",
			"SELECT name FROM v WHERE name = ?":                                                                     "name\nann\n(1 row)",
			"SELECT body FROM words WHERE words MATCH 'hello'":                                                      "body\nhello there\n(1 row)",
			"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT sum(i) AS s FROM n": "s\n6\n(1 row)",
			"EXPLAIN QUERY PLAN SELECT 1 AS one":                                                                    "",
			"PRAGMA table_info(users)":                                                                              "",
		} {
			var arguments []any
			if strings.Contains(query, "?") {
				arguments = []any{"ann"}
			}
			got, err := Query(t.Context(), path, query, arguments, wide, nil)
			if err != nil || want != "" && text(got) != want {
				t.Errorf("wal %v: %s: %v %q", wal, query, err, text(got))
			}
		}
		entries, _ := os.ReadDir(filepath.Dir(path))
		if len(entries) != 1 {
			t.Errorf("wal %v: reading left files: %v", wal, entries)
		}
		if s, err := Describe(t.Context(), path, "USER", nil); err != nil || text(s) != "\"users\" (table)\n  id INTEGER\n"+
			"  name TEXT not null\n  born DATE\n  PRIMARY KEY (id)" {
			t.Errorf("%v %q", err, text(s))
		}
	}
}

// Each statement succeeds in a session without the guards, and is refused by the authorizer, and changes nothing.
func TestAuthorizer(t *testing.T) {
	path := file(t, false)
	other := file(t, false)
	sum := func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", sha256.Sum256(b))
	}
	before := sum()
	for _, query := range []string{
		"INSERT INTO users VALUES (7, 'x', NULL)", "UPDATE users SET name = 'x'", "DELETE FROM users", "DROP TABLE orders",
		"CREATE TABLE t (x)", "CREATE TEMP TABLE t (x)", "ALTER TABLE users RENAME TO u", "CREATE INDEX i ON users (name)",
		"REINDEX", "ANALYZE", "VACUUM INTO '" + other + ".copy'", "ATTACH '" + strings.ReplaceAll(other, "'",
			"''") + "' AS o",
		"PRAGMA user_version = 7", "PRAGMA journal_mode = delete", "PRAGMA query_only = 0", "PRAGMA writable_schema = 1",
		"PRAGMA trusted_schema = 1", "PRAGMA database_list", "BEGIN", "SAVEPOINT s", "CREATE VIEW w AS SELECT 1",
		"CREATE TRIGGER g AFTER INSERT ON users BEGIN SELECT 1; END", "CREATE VIRTUAL TABLE f USING fts5(x)",
		"SELECT 1; DELETE FROM users", "WITH x AS (SELECT 1) DELETE FROM users", "REPLACE INTO users VALUES (1, 'x', NULL)",
		"INSERT INTO words(words) VALUES ('optimize')",
	} {
		free := raw(t, file(t, false))
		if _, err := free.Exec(query); err != nil {
			t.Errorf("control: %s: %v", query, err)
		}
		_ = free.Close()
		if _, err := Query(t.Context(), path, query, nil, wide, nil); !isRefusal(err, "sql.statement") {
			t.Errorf("%s is not refused: %v", query, err)
		}
	}
	for name := range outward { // a build that has the function, or not: it does not run
		if _, err := Query(t.Context(), path, "SELECT "+name+"('x')", nil, wide, nil); err == nil {
			t.Errorf("%s runs", name)
		}
	}
	if authorize(99, "", "", "", "") == driver.AuthorizerOK ||
		authorize(driver.AuthFunction, "", "LOAD_EXTENSION", "", "") == driver.AuthorizerOK {
		t.Error("unknown actions and outward functions are denied")
	}
	if sum() != before {
		t.Error("the file has changed")
	}
}

// Without the authorizer the file is still open for reading only.
func TestFileIsReadOnly(t *testing.T) {
	path := file(t, false)
	options, err := inspect(path)
	if err != nil || options.Get("mode") != "ro" {
		t.Fatal(options, err)
	}
	db, c, err := open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	defer c.Close()
	if err := c.Raw(func(r any) error { return r.(driver.AuthorizerRegisterer).RegisterAuthorizer(nil) }); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"DELETE FROM users", "PRAGMA query_only = 0; DELETE FROM users"} {
		if _, err := ask(t.Context(), c, query, nil, wide); !isRefusal(err, "sql.statement") {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestBounds(t *testing.T) {
	path := file(t, false)
	got, err := Query(t.Context(), path, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n", nil,
		answer.Limits{Rows: 5, Bytes: 1000, Values: 1000}, nil)
	if err != nil || len(got.Rows) != 5 || got.Cut != "rows" {
		t.Error("rows are cut:", got, err)
	}
	got, err = Query(t.Context(), path, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "+
		"SELECT printf('%.100c', 'x') FROM n", nil, answer.Limits{Rows: 50, Bytes: 1000, Values: 1000}, nil)
	if err != nil || len(got.Rows) != 9 || got.Cut != "bytes" {
		t.Error("bytes are cut:", got, err)
	}
	if _, err = Query(t.Context(), path, "SELECT printf('%.2000c', 'x')", nil, answer.Limits{Rows: 50, Bytes: 1000,
		Values: 1000}, nil); !isRefusal(err, "sql.large") {
		t.Error("a row too large:", err)
	}
	if _, err = Query(t.Context(), path, "SELECT zeroblob(1000000000)", nil, wide, nil); err == nil {
		t.Error("a value too large is made")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err = Query(ctx, path, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", nil, wide, nil)
	if err == nil || time.Since(begun) > 20*time.Second {
		t.Error("an endless query ends with its context:", err, time.Since(begun))
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	real := file(t, false)
	link, text, folder := filepath.Join(dir, "link"), filepath.Join(dir, "text"), filepath.Join(dir, "none")
	if err := os.Symlink(real, link); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(text, []byte("root:x:0:0:root:/root:/bin/bash\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if Check(real) != nil {
		t.Error("control: a database is taken")
	}
	for _, path := range []string{link, text, folder, dir} {
		if _, err := Query(t.Context(), path, "SELECT 1", nil, wide, nil); !isRefusal(err, "sql.file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestExchangedFolder: a folder on the way that became a link after it was looked at leads to no other database.
func TestExchangedFolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says which files a process has open")
	}
	for _, wal := range []bool{false, true} {
		real := file(t, wal)
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(filepath.Dir(real), link); err != nil {
			t.Fatal(err)
		}
		if _, err := Query(t.Context(), real, "SELECT 1", nil, wide, nil); err != nil {
			t.Errorf("control: %v", err)
		}
		for what, err := range map[string]error{
			"query":  second(Query(t.Context(), filepath.Join(link, filepath.Base(real)), "SELECT 1", nil, wide, nil)),
			"schema": second(Describe(t.Context(), filepath.Join(link, filepath.Base(real)), "", nil)),
		} {
			if !isRefusal(err, "sql.file") {
				t.Errorf("%s, WAL %t: %v", what, wal, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

type sqlRow struct{ Input struct{ SQL string } }

// The denied rows of the corpus that SQLite can parse change nothing there, either.
func TestCorpus(t *testing.T) {
	path := file(t, false)
	before, _ := os.ReadFile(path)
	for _, r := range corpus.Rows[sqlRow](t, "sql.jsonl") {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, _ = Query(ctx, path, strings.ReplaceAll(r.Input.SQL, "app.", ""), nil, wide, nil)
		cancel()
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the file has changed")
	}
}

// TestProcess: a question whose functions compute for hours, or take all memory, ends alone, and with its reason.
func TestProcess(t *testing.T) {
	path := file(t, false)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := Query(ctx, path, "SELECT instr(zeroblob(8000000), zeroblob(4000000) || x'01')", nil, wide, nil)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 20*time.Second {
		t.Errorf("an endless function: %v after %s", err, time.Since(begun))
	}
	_, err = Query(t.Context(), path, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200) "+
		"SELECT max(length(b)) FROM (SELECT zeroblob(15000000) || i AS b FROM n ORDER BY b DESC LIMIT 200 OFFSET 1)", nil, wide, nil)
	if !isRefusal(err, "sql.memory") && Message(err) == "" {
		t.Errorf("all memory: %v", err)
	}
	rows, err := Query(t.Context(), path, "SELECT instr(zeroblob(80), zeroblob(40) || x'01'), ?, NULL", []any{"x"},
		wide, nil)
	if err != nil || !strings.Contains(text(rows), "0 | x |") {
		t.Errorf("control: %v %v", rows, err)
	}
}

// text returns an answer or a schema as it is shown.
func text(of interface {
	Show(ctx context.Context) (string, error)
}) string {
	s, err := of.Show(context.Background())
	if err != nil {
		return err.Error()
	}
	return s
}

// TestALongReplyNeedsRoom: a reply beyond answer.Part covers what it may become, or its question is refused.
func TestALongReplyNeedsRoom(t *testing.T) {
	path := file(t, false)
	limits := answer.Limits{Rows: 10_000, Bytes: 8 << 20, Values: 100_000}
	long := "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 400) SELECT printf('%.1000c', 'x') FROM n"
	small := budget.New(budget.Limits{Memory: 8 << 20, Each: 10, Wait: time.Millisecond})
	over, err := small.Enter(t.Context(), "another", 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	var full *budget.Full
	if _, err := Query(t.Context(), path, long, nil, limits, small.Lease("a")); !errors.As(err, &full) {
		t.Errorf("without room: %v", err)
	}
	if got, err := Query(t.Context(), path, "SELECT 1", nil, limits, small.Lease("a")); err != nil || len(got.Rows) != 1 {
		t.Errorf("control: a short one: %v", err)
	}
	over()
	room := small.Lease("a")
	if got, err := Query(t.Context(), path, long, nil, limits, room); err != nil || len(got.Rows) != 400 {
		t.Errorf("control: with room: %v", err)
	}
	if _, err := small.Enter(t.Context(), "b", 1); !errors.As(err, &full) {
		t.Errorf("a long reply covers nothing: %v", err)
	}
	_ = room.Close()
}
