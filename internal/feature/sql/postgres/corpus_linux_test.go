package postgres

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/testing/corpus"

	"github.com/jackc/pgx/v5/pgconn"
)

// row is one line of the corpus.
type row struct {
	ID    string `json:"id"`
	Class string `json:"class"`
	Input struct {
		SQL string `json:"sql"`
	} `json:"input"`
	Expect string `json:"expect"`
}

// disputed are rows whose expectation does not fit: each was taken from another product's tests with a verdict of its
// own meaning. The reason stands with each.
var disputed = map[string]string{
	"sql/peer-awslabs/0120":           "a query of a literal; the row is a unit test of that product's tokenizer",
	"sql/peer-awslabs/0146":           "SELECT 1 with a comment; as before",
	"sql/peer-awslabs/0154":           "SELECT 1; as before",
	"sql/peer-crystaldba/0091":        "CREATE EXTENSION is a write",
	"sql/peer-crystaldba/0036":        "PostgreSQL keeps pg_current_logfile for its own monitors",
	"sql/peer-redaction-evasion/0031": "the row hides a column's values; the database refuses the column, and * names it",
	"sql/peer-redaction-evasion/0036": "pg_stats shows only columns that the role may read: no row comes back",
	"sql/peer-redaction-evasion/0037": "as before",
}

// outcome is the end of a statement: refused by waldo, refused by the database (its SQLSTATE), or its answer.
func outcome(t *testing.T, query string) (waldo, state, text string, took time.Duration) {
	begun := time.Now()
	rows, err := ask(t, served(t), query)
	took = time.Since(begun)
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code, "", e.Text, took
	}
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return "", e.Code, e.Message, took
	}
	if err != nil {
		return "", "broken", err.Error(), took
	}
	return "", "", shown(rows), took
}

// denials are the SQLSTATEs with which PostgreSQL refuses for want of a right, or because the transaction reads only.
var denials = []string{"42501", "25006"}

func TestCorpus(t *testing.T) {
	before := state(t)
	all := corpus.Rows[row](t, "sql.jsonl")
	var wait sync.WaitGroup
	var byWaldo, byDatabase atomic.Int32
	rows := make(chan row)
	for range 6 {
		wait.Go(func() {
			for r := range rows {
				switch waldo, sqlstate := judge(t, r); {
				case waldo != "":
					byWaldo.Add(1)
				case sqlstate != "":
					byDatabase.Add(1)
				}
			}
		})
	}
	for _, r := range all {
		rows <- r
	}
	close(rows)
	wait.Wait()
	if after := state(t); after != before {
		t.Errorf("the database has changed:\n%s\n%s", before, after)
	}
	if len(all) < 100 {
		t.Errorf("only %d rows", len(all))
	}
	t.Logf("%d statements: %d refused by waldo, %d by the database", len(all), byWaldo.Load(), byDatabase.Load())
}

// judge runs one row and compares what became of it with the row's expectation.
func judge(t *testing.T, r row) (waldo, sqlstate string) {
	waldo, sqlstate, text, took := outcome(t, r.Input.SQL)
	for _, secret := range []string{"the-password", "the-secret", "root:x:"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s discloses %q", r.ID, secret)
		}
	}
	text = text[:min(len(text), 150)]
	if _, ok := disputed[r.ID]; ok {
		return waldo, sqlstate
	}
	switch r.Expect {
	case "deny", "deny_if_column_redacted":
		if waldo == "" && sqlstate == "" {
			t.Errorf("%s ran: %s: %s", r.ID, r.Input.SQL, text)
		}
	case "allow":
		if waldo != "" || slices.Contains(denials, sqlstate) {
			t.Errorf("%s is refused: %s: %s%s %s", r.ID, r.Input.SQL, waldo, sqlstate, text)
		}
	case "own_rows_only":
		if sqlstate != "" || waldo != "" || strings.Contains(text, "theirs") {
			t.Errorf("%s: %s", r.ID, text)
		}
	case "bounded":
		if took > 15*time.Second {
			t.Errorf("%s took %v", r.ID, took)
		}
	case "deny_or_no_effect", "policy", "policy_disclosure": // the state of the database is compared
	default:
		t.Errorf("%s: unknown expectation %s", r.ID, r.Expect)
	}
	return waldo, sqlstate
}

// state lists all that a write would change: the rows, the large objects, the sequences, the roles, the settings.
func state(t *testing.T) string {
	t.Helper()
	s, err := open(t.Context(), config(served(t), "postgres"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.end()
	out, err := s.rows(t.Context(), `SELECT (SELECT count(*) FROM app.users), (SELECT count(*) FROM app.orders),
  (SELECT count(*) FROM app.audit), (SELECT count(*) FROM pg_largeobject_metadata), (SELECT md5(string_agg(data, '' ORDER BY loid, pageno)) FROM pg_largeobject),
  (SELECT last_value FROM app.users_id_seq), (SELECT string_agg(rolname, ',' ORDER BY 1) FROM pg_roles WHERE rolname <> 'r'),
  (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM pg_namespace WHERE nspname !~ '^pg_(temp|toast)'),
  (SELECT md5(string_agg(name || setting, ',' ORDER BY name)) FROM pg_settings WHERE source <> 'session' AND name !~ 'timeout|read_only'),
  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), (SELECT count(*) FROM pg_prepared_xacts),
  (SELECT string_agg(md5(u::text), '' ORDER BY id) FROM app.users u)`)
	if err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	return strings.Join(out[0], "|")
}
