package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"waldo/internal/feature/sql/answer"
)

func TestQuery(t *testing.T) {
	s := served(t)
	rows, err := ask(t, s, `SELECT id, name, NULL::int AS none, age > 1 AS old, 1.50::numeric AS n, 9007199254740993::int8 AS big,
		'{"a": [1]}'::jsonb AS j, 'NaN'::float8 AS nan, 2.5::float8 AS f, '\x00ff'::bytea AS b, ARRAY[1,2] AS l FROM app.users WHERE id = $1 AND name = $2`,
		2.0, "u2")
	if err != nil {
		t.Fatal(err)
	}
	const want = "id | name | none | old | n | big | j | nan | f | b | l\n" +
		`2 | u2 |  | true | 1.50 | 9007199254740993 | {"a": [1]} | NaN | 2.5 | \x00ff | {1,2}` + "\n(1 row)"
	if shown(rows) != want {
		t.Errorf("%s", shown(rows))
	}
	v, err := rows.Structured()
	if err != nil || !strings.HasPrefix(string(v.Raw()), `{"columns":[{"name":"id","type":"int4"},`) ||
		!strings.Contains(string(v.Raw()), `[2,"u2",null,true,"1.50","9007199254740993",{"a":[1]},"NaN",2.5,`) {
		t.Errorf("%s %v", v.Raw(), err)
	}
	for query, why := range map[string]string{
		"SELECT $1::int": "sql.arguments", "SELECT 1; SELECT 2": "42601", "": "sql.unread", "-- nothing": "sql.unread",
		"SELECT app.touch()": "sql.function", "SELECT * FROM app.v_touch": "sql.function",
		"SELECT * FROM app.v_definer": "sql.function", "SELECT app.definer_sum(age) FROM app.users": "sql.function",
		"SELECT jsonb_populate_record(NULL::app.held, '{\"e\": 1}')":           "sql.function",
		"SELECT * FROM jsonb_to_recordset('[{\"e\": 1}]') AS x(e app.checked)": "sql.function",
		"SELECT 'x'::app.checked": "sql.function", "SELECT name::app.checked FROM app.users": "sql.function",
		"SELECT ARRAY[name]::app.checked[] FROM app.users": "sql.function",
		"SELECT ROW(name)::app.held FROM app.users":        "sql.function",
		"SELECT '{x}'::app.checked[]":                      "sql.function", "SELECT '(x)'::app.held": "sql.function",
		"SELECT $1::app.checked": "sql.function", "SELECT $1::app.checked[]": "sql.function",
		"SELECT * FROM XMLTABLE('/r' PASSING ('<r>x</r>'::xml) COLUMNS e app.checked PATH '.')": "sql.function",
		"DO $$ BEGIN END $$": "sql.statement", "COMMIT": "sql.statement",
		"SELECT * FROM crosstab('SELECT 1,2,3') AS c(a int, b int)": "sql.function",
		"SELECT 'app.users'::regclass, pg_sleep(0)":                 "sql.function",
		"SELECT U&\"\\0070g_sleep\"(0)":                             "sql.function",
		"EXPLAIN ANALYZE SELECT app.touch()":                        "42601",
		"EXPLAIN SELECT app.touch()":                                "sql.function",
		"EXPLAIN DELETE FROM app.film":                              "sql.statement",
	} {
		_, err := ask(t, s, query)
		pg := (*pgconn.PgError)(nil)
		if !isRefusal(err, why) && (!errors.As(err, &pg) || pg.Code != why) {
			t.Errorf("%s: %v, want %s", query, err, why)
		}
	}
	for _, query := range []string{"SELECT app.twice(2)", "SELECT app.plain_sum(age) FROM app.users", "SELECT 'x'::app.unchecked", "SELECT uuid_generate_v4()", "SELECT random(), now()", "EXPLAIN SELECT * FROM app.users",
		"SELECT '{x}'::app.unchecked[]", "SELECT ROW(1, 2) < ROW(2, 3)",
		"SELECT sum(age) OVER (ORDER BY age RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM app.users",
		"SELECT * FROM (VALUES (1, 'a')) v(a, b)", "WITH c AS (SELECT 1 AS a) SELECT * FROM c",
		"SELECT * FROM XMLTABLE('/r' PASSING ('<r>x</r>'::xml) COLUMNS e text PATH '.')",
		"SELECT * FROM pg_locks", "SELECT * FROM information_schema.columns LIMIT 3", "SELECT * FROM pg_sequences", "SHOW server_version"} {
		if _, err := ask(t, s, query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestConstantsOfDomains: PostgreSQL checks a constant of an array of a domain while it reads a statement. Functions that
// do so are within the transaction, which is READ ONLY and limited in time, and have the rights of the role.
func TestConstantsOfDomains(t *testing.T) {
	s := served(t)
	if err := s.SQL("postgres", `CREATE SEQUENCE app.counted; CREATE TABLE app.noted (v text);
CREATE FUNCTION app.note(text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.noted VALUES ($1); RETURN true; END $$;
CREATE FUNCTION app.run(text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; RETURN true; END $$;
CREATE DOMAIN app.noting AS text CHECK (app.note(VALUE)); CREATE DOMAIN app.running AS text CHECK (app.run(VALUE));
GRANT INSERT ON app.noted TO reader; GRANT USAGE ON app.counted TO reader`); err != nil {
		t.Fatal(err)
	}
	// The control: the checks do run, and write where the transaction can.
	if err := s.SQL("postgres", `PREPARE x AS SELECT '{x}'::app.noting[]; DO $$ BEGIN
IF (SELECT count(*) FROM app.noted) <> 1 THEN RAISE 'not run'; END IF; END $$`); err != nil {
		t.Fatal("control:", err)
	}
	for query, why := range map[string]string{
		"SELECT '{x}'::app.noting[]":                                                              "25006",
		"SELECT '{\"INSERT INTO app.noted VALUES (1)\"}'::app.running[]":                          "25006",
		"SELECT '{\"SELECT nextval(''app.counted'')\"}'::app.running[]":                           "25006",
		"SELECT '{\"SET TRANSACTION READ WRITE\"}'::app.running[]":                                "25001",
		"SELECT '{\"SELECT set_config(''transaction_read_only'',''off'',true)\"}'::app.running[]": "25001",
		"SELECT '{\"COPY app.film TO PROGRAM ''true''\"}'::app.running[]":                         "42501",
		"SELECT '{\"SELECT pg_sleep(60)\"}'::app.running[]":                                       "57014",
	} {
		session, err := open(t.Context(), config(s, "reader"), time.Second) // as Query, which refuses this role's grants
		if err != nil {
			t.Fatal(err)
		}
		_, err = session.query(t.Context(), query, nil, wide, nil)
		session.end()
		if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != why {
			t.Errorf("%s: %v, want %s", query, err, why)
		}
	}
	if err := s.SQL("postgres", `DO $$ BEGIN IF (SELECT count(*) FROM app.noted) <> 1 THEN RAISE 'written'; END IF; END $$;
DROP TABLE app.noted; DROP DOMAIN app.noting; DROP DOMAIN app.running; DROP SEQUENCE app.counted;
DROP FUNCTION app.note(text); DROP FUNCTION app.run(text)`); err != nil {
		t.Error(err)
	}
}

// The answer ends at its limits and says so; an endless statement ends with its time, in the database, too.
func TestLimits(t *testing.T) {
	s := served(t)
	query := func(text string, wall time.Duration, l answer.Limits) (*answer.Rows, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return Query(ctx, config(s, "reader"), text, nil, wall, l, nil)
	}
	r, err := query("SELECT generate_series(1, 100000000)", time.Minute, answer.Limits{Rows: 3, Bytes: 1000, Values: 1000})
	if err != nil || len(r.Rows) != 3 || r.Cut != "rows" {
		t.Error(r, err)
	}
	r, err = query("SELECT repeat('x', 400), generate_series(1, 100000000)", time.Minute, answer.Limits{Rows: 10,
		Bytes: 1000, Values: 1000})
	if err != nil || len(r.Rows) != 2 || r.Cut != "bytes" {
		t.Error(r, err)
	}
	if _, err = query("SELECT repeat('x', 20000000)", time.Minute, wide); !isRefusal(err, "sql.large") {
		t.Error("a message over the limit:", err)
	}
	_, err = query("SELECT count(*) FROM generate_series(1, 10000000000)", 500*time.Millisecond, wide)
	if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != "57014" || !strings.Contains(pg.Message,
		"statement timeout") {
		t.Error("statement_timeout:", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err = Query(ctx, config(s, "reader"), "SELECT count(*) FROM generate_series(1, 10000000000) -- cancelled", nil, time.Minute, wide, nil); err == nil {
		t.Error("a cancelled call has an answer")
	}
	admin, err := open(t.Context(), config(s, "postgres"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.end()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left, err := admin.rows(t.Context(), "SELECT pg_stat_clear_snapshot(); SELECT query FROM pg_stat_activity WHERE usename = 'reader' AND state = 'active'")
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a cancelled statement still runs:", left, err)
		}
	}
}

// The session cannot write: each statement is tried without the judgement before it.
func TestSessionReadsOnly(t *testing.T) {
	s := served(t)
	for _, query := range []string{"CREATE TABLE app.x (i int)", "SELECT nextval('app.users_id_seq')", "DELETE FROM app.film",
		"SELECT app.touch()", "SET TRANSACTION READ WRITE; DELETE FROM app.film"} {
		admin, err := open(t.Context(), config(s, "postgres"), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		_, err = admin.rows(t.Context(), query)
		if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != "25006" && pg.Code != "25001" {
			t.Errorf("%s: %v", query, err)
		}
		admin.end()
	}
	before := state(t)
	admin, err := open(t.Context(), config(s, "postgres"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.rows(t.Context(), "SELECT lo_create(0)"); err != nil {
		t.Error("control: PostgreSQL 15 makes a large object in a READ ONLY transaction:", err)
	}
	admin.end()
	if after := state(t); after != before {
		t.Error("the transaction was not rolled back")
	}
}

func TestDescribe(t *testing.T) {
	s := served(t)
	got, err := Describe(t.Context(), config(s, "reader"), "STAFF", time.Minute)
	if err != nil || shown(got) != "app.staff (table)\n  id integer\n  name text\n  email text" {
		t.Errorf("a column without a right is not shown: %v %v", got, err)
	}
	got, err = Describe(t.Context(), config(s, "reader"), "", time.Minute)
	if err != nil || strings.Contains(shown(got), "secret") || !strings.Contains(shown(got),
		"FOREIGN KEY (user_id) REFERENCES app.users(id)") || !strings.Contains(shown(got), "app.mv (materialized view)") {
		t.Errorf("%v %v", got, err)
	}
}

func TestURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"postgres://r:p@127.0.0.1/d": true, "postgresql://r@localhost:5433/d": true, "postgres://r@db.example.com/d": true,
		"postgres:///d?host=/run/postgresql": true, "postgres://r@db.example.com/d?sslmode=disable": true,
		"mysql://x/y": false, "host=127.0.0.1": false, "": false, "postgres://r@h:x/d": false, "/etc/passwd": false,
	} {
		c, err := ParseURL(url)
		if (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
		if err != nil && len(url) > 3 && strings.Contains(err.Error(), url) {
			t.Errorf("%s: the error quotes it", url)
		}
		if err != nil || strings.Contains(url, "disable") {
			continue
		}
		for _, f := range c.Fallbacks {
			if f.TLSConfig == nil && !here(f.Host) {
				t.Errorf("%s: a try without TLS", url)
			}
		}
		if c.TLSConfig == nil && !here(c.Host) {
			t.Errorf("%s: no TLS", url)
		}
	}
}

// here reports whether a host is this machine.
func here(host string) bool {
	return strings.HasPrefix(host, "/") || host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Bootstrap, applied again, changes nothing, and takes away rights that were granted meanwhile.
func TestBootstrapAgain(t *testing.T) {
	s := served(t)
	if err := s.SQL("postgres", "CREATE SCHEMA again; CREATE TABLE again.t (i int); "+
		"CREATE FOREIGN TABLE again.f (line text) SERVER files OPTIONS (filename '/etc/passwd')"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		p, err := Apply(t.Context(), config(s, "postgres"), Reader{Role: `o'd"d %s`, Schemas: []string{"again"}, Password: "correct-horse-battery"}, false,
			func(Step) {})
		if err != nil || len(p.Findings) != 0 {
			t.Fatal(i, p.Findings, err)
		}
		if err := s.SQL("postgres", `GRANT INSERT ON again.t TO "o'd""d %s"; ALTER ROLE "o'd""d %s" CREATEDB`); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "pg_x", "a$do$b", strings.Repeat("x", 64)} {
		if _, err := (Reader{Role: name}).Steps(); err == nil {
			t.Errorf("the role %q", name)
		}
	}
	if _, err := (Reader{Role: "r", Password: "short"}).Steps(); err == nil {
		t.Error("a short password")
	}
}

// shown returns an answer or a schema as it is shown.
func shown(of interface {
	Show(ctx context.Context) (string, error)
}) string {
	s, err := of.Show(context.Background())
	if err != nil {
		return err.Error()
	}
	return s
}
