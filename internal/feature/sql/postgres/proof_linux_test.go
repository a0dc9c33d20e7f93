package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"waldo/internal/feature/sql/answer"
	"waldo/internal/testing/pgtest"
)

var (
	once   sync.Once
	one    *pgtest.Server
	noneOf error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if one != nil {
		one.Stop()
	}
	os.Exit(code)
}

// fixture is the database that the corpus of SQL speaks of.
const fixture = `
CREATE EXTENSION dblink; CREATE EXTENSION file_fdw; CREATE EXTENSION tablefunc; CREATE EXTENSION "uuid-ossp";
CREATE SCHEMA app; CREATE SCHEMA closed;
CREATE TABLE app.users (id serial PRIMARY KEY, name text, age int, status text, email text);
INSERT INTO app.users (name, age, status, email) SELECT 'u' || i, i, 'active', i || '@example.com' FROM generate_series(1, 200) i;
CREATE TABLE app.orders (id serial PRIMARY KEY, user_id int REFERENCES app.users, total numeric);
INSERT INTO app.orders (user_id, total) SELECT i, i * 2 FROM generate_series(1, 100) i;
CREATE TABLE app.film (id int, title text); INSERT INTO app.film VALUES (1, 'Metropolis');
CREATE TABLE app.audit (id serial, what text);
CREATE TABLE app.staff (id int, name text, password text, email text); INSERT INTO app.staff VALUES (1, 'ann', 'the-password', 'ann@example.com');
CREATE TABLE app.secret (v text); INSERT INTO app.secret VALUES ('the-secret');
CREATE TABLE app.tenant (who text, v text); INSERT INTO app.tenant VALUES ('reader', 'ours'), ('other', 'theirs');
ALTER TABLE app.tenant ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON app.tenant USING (who = current_user);
CREATE VIEW app.v_users AS SELECT id, name FROM app.users;
CREATE MATERIALIZED VIEW app.mv AS SELECT count(*) FROM app.users;
CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE app.passwd (line text) SERVER files OPTIONS (filename '/etc/passwd', delimiter E'\x01');
CREATE FUNCTION app.touch() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.audit(what) VALUES ('t'); RETURN 1; END $$;
CREATE VIEW app.v_touch AS SELECT app.touch();
CREATE FUNCTION app.step(int, int) RETURNS int LANGUAGE sql IMMUTABLE SECURITY DEFINER AS 'SELECT $1 + $2';
REVOKE EXECUTE ON FUNCTION app.step(int, int) FROM PUBLIC;
CREATE AGGREGATE app.definer_sum(int) (SFUNC = app.step, STYPE = int, INITCOND = '0');
CREATE AGGREGATE app.plain_sum(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
CREATE FUNCTION app.check_it(text) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$ BEGIN RETURN true; END $$;
CREATE DOMAIN app.checked AS text CHECK (app.check_it(VALUE));
CREATE DOMAIN app.unchecked AS text CHECK (length(VALUE) < 9);
CREATE TYPE app.held AS (e app.checked);
CREATE FUNCTION app.reader_write() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO app.audit(what) VALUES ('t'); RETURN 1; END $$;
CREATE FUNCTION app.trg() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN END $$;
CREATE FUNCTION app.twice(int) RETURNS int STABLE LANGUAGE sql AS 'SELECT $1 * 2';
CREATE FUNCTION closed.definer() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';
CREATE VIEW app.v_definer AS SELECT closed.definer();
SELECT lo_from_bytea(424242, 'x');
`

// served starts the server for the first test that needs it, with the role reader made by waldo's own steps.
func served(t *testing.T) *pgtest.Server {
	t.Helper()
	once.Do(func() {
		if one, noneOf = pgtest.Start(); noneOf != nil {
			return
		}
		if noneOf = one.SQL("postgres", fixture); noneOf != nil {
			return
		}
		var p Proof
		if p, noneOf = Apply(context.Background(), config(one, "postgres"), Reader{Role: "reader",
			Schemas: []string{"app"}}, true,
			func(Step) {}); noneOf == nil && len(p.Findings) > 0 {
			noneOf = fmt.Errorf("the role that waldo makes is refused: %v", p.Findings)
		}
		if noneOf == nil {
			noneOf = one.SQL("postgres", `REVOKE SELECT ON app.secret FROM reader; REVOKE SELECT ON app.staff FROM reader;
GRANT SELECT (id, name, email) ON app.staff TO reader`)
		}
	})
	if errors.Is(noneOf, pgtest.ErrAbsent) {
		t.Skip(noneOf)
	}
	if noneOf != nil {
		t.Fatal(noneOf)
	}
	return one
}

func config(s *pgtest.Server, role string) *pgconn.Config {
	c, err := ParseURL(s.URL(role, "postgres"))
	if err != nil {
		panic(err)
	}
	return c
}

var wide = answer.Limits{Rows: 1000, Bytes: 1 << 20, Values: 100_000}

func ask(t *testing.T, s *pgtest.Server, query string, arguments ...any) (*answer.Rows, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return Query(ctx, config(s, "reader"), query, arguments, 3*time.Second, wide, nil)
}

func TestProof(t *testing.T) {
	s := served(t)
	if err := s.SQL("postgres", "CREATE ROLE r LOGIN; CREATE ROLE g; GRANT USAGE ON SCHEMA app TO r; "+
		"GRANT SELECT ON app.users TO r; CREATE ROLE writer; GRANT INSERT ON app.film TO writer"); err != nil {
		t.Fatal(err)
	}
	prove := func() Proof {
		p, err := Prove(t.Context(), config(s, "r"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := prove(); len(p.Findings) != 0 || p.Refusal() != nil || p.Role != "r" {
		t.Fatalf("control: a role that reads is taken: %v", p.Findings)
	}
	for _, row := range []struct{ grant, want, revoke string }{
		{"ALTER ROLE r SUPERUSER", "SUPERUSER on role r (through r)", "ALTER ROLE r NOSUPERUSER"},
		{"ALTER ROLE r CREATEDB", "CREATEDB on role r (through r)", "ALTER ROLE r NOCREATEDB"},
		{"ALTER ROLE r CREATEROLE", "CREATEROLE on role r (through r)", "ALTER ROLE r NOCREATEROLE"},
		{"ALTER ROLE r REPLICATION", "REPLICATION on role r (through r)", "ALTER ROLE r NOREPLICATION"},
		{"ALTER ROLE r BYPASSRLS", "BYPASSRLS on role r (through r)", "ALTER ROLE r NOBYPASSRLS"},
		{"ALTER ROLE g CREATEDB; GRANT g TO r; ALTER ROLE r NOINHERIT", "CREATEDB on role g (through g)",
			"REVOKE g FROM r; ALTER ROLE g NOCREATEDB; ALTER ROLE r INHERIT"},
		{"GRANT pg_write_all_data TO r", "membership on role pg_write_all_data (through r)",
			"REVOKE pg_write_all_data FROM r"},
		{"GRANT pg_execute_server_program TO g; GRANT g TO r",
			"membership on role pg_execute_server_program (through r)", "REVOKE g FROM r; REVOKE pg_execute_server_program FROM g"},
		{"GRANT pg_read_server_files TO r", "membership on role pg_read_server_files (through r)",
			"REVOKE pg_read_server_files FROM r"},
		{"GRANT pg_write_server_files TO r", "membership on role pg_write_server_files (through r)",
			"REVOKE pg_write_server_files FROM r"},
		{"GRANT pg_signal_backend TO r", "membership on role pg_signal_backend (through r)",
			"REVOKE pg_signal_backend FROM r"},
		{"GRANT g TO r WITH ADMIN OPTION", "ADMIN OPTION on role g (through r)",
			"REVOKE ADMIN OPTION FOR g FROM r; REVOKE g FROM r"},
		{"GRANT SELECT ON app.film TO r WITH GRANT OPTION", "GRANT OPTION for SELECT on table app.film (through r)",
			"REVOKE GRANT OPTION FOR SELECT ON TABLE app.film FROM r; REVOKE SELECT ON app.film FROM r"},
		{"GRANT SELECT (title) ON app.film TO r WITH GRANT OPTION",
			"GRANT OPTION for SELECT on column app.film.title (through r)", "REVOKE GRANT OPTION FOR SELECT (title) ON app.film FROM r; REVOKE SELECT (title) ON app.film FROM r"},
		{"GRANT USAGE ON SCHEMA app TO g WITH GRANT OPTION; GRANT g TO r",
			"GRANT OPTION for USAGE on schema app (through g)", "REVOKE USAGE ON SCHEMA app FROM g; REVOKE g FROM r"},
		{"GRANT writer TO r; ALTER ROLE r NOINHERIT", "INSERT on table app.film (through writer)",
			"REVOKE writer FROM r; ALTER ROLE r INHERIT"},
		{"ALTER TABLE app.film OWNER TO r", "ownership on table app.film (through r)",
			"ALTER TABLE app.film OWNER TO postgres"},
		{"ALTER SCHEMA app OWNER TO r", "ownership on schema app (through r)",
			"ALTER SCHEMA app OWNER TO postgres; GRANT USAGE ON SCHEMA app TO r"},
		{"ALTER DATABASE postgres OWNER TO r", "ownership on database postgres (through r)",
			"ALTER DATABASE postgres OWNER TO postgres"},
		{"ALTER LARGE OBJECT 424242 OWNER TO r", "ownership on large object 424242 (through r)",
			"ALTER LARGE OBJECT 424242 OWNER TO postgres"},
		{"GRANT INSERT ON app.film TO r", "INSERT on table app.film (through r)", "REVOKE INSERT ON app.film FROM r"},
		{"GRANT UPDATE ON app.film TO PUBLIC", "UPDATE on table app.film (through PUBLIC)",
			"REVOKE UPDATE ON app.film FROM PUBLIC"},
		{"GRANT DELETE ON app.v_users TO r", "DELETE on table app.v_users (through r)",
			"REVOKE DELETE ON app.v_users FROM r"},
		{"GRANT TRUNCATE ON app.film TO r", "TRUNCATE on table app.film (through r)", "REVOKE TRUNCATE ON app.film FROM r"},
		{"GRANT REFERENCES ON app.film TO r", "REFERENCES on table app.film (through r)",
			"REVOKE REFERENCES ON app.film FROM r"},
		{"GRANT TRIGGER ON app.film TO r", "TRIGGER on table app.film (through r)", "REVOKE TRIGGER ON app.film FROM r"},
		{"GRANT UPDATE (title) ON app.film TO r", "UPDATE on column app.film.title (through r)",
			"REVOKE UPDATE (title) ON app.film FROM r"},
		{"GRANT USAGE ON SEQUENCE app.users_id_seq TO r", "USAGE on sequence app.users_id_seq (through r)",
			"REVOKE USAGE ON SEQUENCE app.users_id_seq FROM r"},
		{"GRANT SELECT ON app.passwd TO r", "SELECT on foreign table app.passwd (through r)",
			"REVOKE SELECT ON app.passwd FROM r"},
		{"GRANT CREATE ON SCHEMA app TO r", "CREATE on schema app (through r)", "REVOKE CREATE ON SCHEMA app FROM r"},
		{"GRANT CREATE ON DATABASE postgres TO r", "CREATE on database postgres (through r)",
			"REVOKE CREATE ON DATABASE postgres FROM r"},
		{"GRANT CREATE ON TABLESPACE pg_default TO r", "CREATE on tablespace pg_default (through r)",
			"REVOKE CREATE ON TABLESPACE pg_default FROM r"},
		{"GRANT USAGE ON FOREIGN SERVER files TO r", "USAGE on foreign server files (through r)",
			"REVOKE USAGE ON FOREIGN SERVER files FROM r"},
		{"GRANT USAGE ON FOREIGN DATA WRAPPER file_fdw TO r", "USAGE on foreign-data wrapper file_fdw (through r)",
			"REVOKE USAGE ON FOREIGN DATA WRAPPER file_fdw FROM r"},
		{"GRANT UPDATE ON LARGE OBJECT 424242 TO r", "UPDATE on large object 424242 (through r)",
			"REVOKE UPDATE ON LARGE OBJECT 424242 FROM r"},
		{"GRANT SET ON PARAMETER lo_compat_privileges TO r", "SET on parameter lo_compat_privileges (through r)",
			"REVOKE SET ON PARAMETER lo_compat_privileges FROM r"},
		{"GRANT EXECUTE ON FUNCTION app.reader_write() TO r",
			"EXECUTE on SECURITY DEFINER function app.reader_write() (through r)", "REVOKE EXECUTE ON FUNCTION app.reader_write() FROM r"},
		{"GRANT USAGE ON SCHEMA closed TO r", "EXECUTE on SECURITY DEFINER function closed.definer() (through PUBLIC)", "REVOKE USAGE ON SCHEMA closed FROM r"},
		{"GRANT EXECUTE ON FUNCTION dblink_exec(text) TO r",
			"EXECUTE on dblink function dblink_exec(text) (through r)", "REVOKE EXECUTE ON FUNCTION dblink_exec(text) FROM r"},
		{"GRANT EXECUTE ON FUNCTION pg_read_file(text) TO r",
			"EXECUTE on reserved function pg_read_file(text) (through r)", "REVOKE EXECUTE ON FUNCTION pg_read_file(text) FROM r"},
	} {
		if err := s.SQL("postgres", row.grant); err != nil {
			t.Fatal(err)
		}
		p := prove()
		found := false
		for _, f := range p.Findings {
			found = found || f.String() == row.want
		}
		if !found {
			t.Errorf("%s: found %v, want %s", row.grant, p.Findings, row.want)
		}
		if _, err := Query(t.Context(), config(s, "r"), "SELECT 1", nil, time.Second, wide, nil); !isRefusal(err,
			"sql.role") {
			t.Errorf("%s: a query runs: %v", row.grant, err)
		}
		if err := s.SQL("postgres", row.revoke); err != nil {
			t.Fatal(err)
		}
		if p := prove(); len(p.Findings) != 0 {
			t.Fatalf("after %s: %v", row.revoke, p.Findings)
		}
	}
	// The whole statement of a fix works as it is printed.
	if err := s.SQL("postgres", "GRANT INSERT, UPDATE ON app.film TO r"); err != nil {
		t.Fatal(err)
	}
	for _, f := range prove().Findings {
		if err := s.SQL("postgres", f.Fix); err != nil {
			t.Error(err)
		}
	}
	if p := prove(); len(p.Findings) != 0 {
		t.Error("the fixes do not help:", p.Findings)
	}
}

// A session that a role was set for is still the user who logged in.
func TestProofIsOfTheSessionUser(t *testing.T) {
	s := served(t)
	c := config(s, "postgres")
	c.RuntimeParams["role"] = "reader"
	_, err := Query(t.Context(), c, "SELECT 1", nil, time.Second, wide, nil)
	if !isRefusal(err, "sql.role") || !strings.Contains(err.Error(), "SUPERUSER") {
		t.Error("a superuser who set a role is refused:", err)
	}
}
