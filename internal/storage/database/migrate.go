package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"
)

// migrations are the steps of the schema, in order; a step that was released is never edited.
// They use TEXT and BIGINT alone, and ON CONFLICT, which SQLite and PostgreSQL read alike.
// Times are RFC 3339 in UTC with milliseconds, so that they sort as text.
var migrations = []string{
	`CREATE TABLE kv (
		bucket TEXT NOT NULL,
		name TEXT NOT NULL,
		value TEXT NOT NULL,
		at TEXT NOT NULL,
		PRIMARY KEY (bucket, name));
	CREATE TABLE heads (
		log TEXT NOT NULL PRIMARY KEY,
		seq BIGINT NOT NULL,
		hash TEXT NOT NULL,
		segment TEXT NOT NULL,
		start BIGINT NOT NULL,
		at TEXT NOT NULL);
	CREATE TABLE pins (
		capability TEXT NOT NULL PRIMARY KEY,
		server TEXT NOT NULL,
		digest TEXT NOT NULL,
		definition TEXT NOT NULL,
		accepted_by TEXT NOT NULL,
		at TEXT NOT NULL);
	CREATE TABLE approvals (
		id TEXT NOT NULL PRIMARY KEY,
		binding TEXT NOT NULL,
		session TEXT NOT NULL,
		state TEXT NOT NULL,
		created TEXT NOT NULL,
		expires TEXT NOT NULL,
		question TEXT NOT NULL,
		answer TEXT NOT NULL,
		used_by TEXT NOT NULL);
	CREATE INDEX approvals_binding ON approvals (binding, state);
	CREATE INDEX approvals_state ON approvals (state, session);
	CREATE TABLE approvers (
		name TEXT NOT NULL PRIMARY KEY,
		record TEXT NOT NULL,
		signature TEXT NOT NULL,
		revoked TEXT NOT NULL);`,
	`CREATE TABLE deliveries (
		id TEXT NOT NULL PRIMARY KEY,
		hook TEXT NOT NULL,
		target TEXT NOT NULL,
		state TEXT NOT NULL,
		due TEXT NOT NULL,
		tries BIGINT NOT NULL,
		claim BIGINT NOT NULL,
		holder TEXT NOT NULL,
		work TEXT NOT NULL,
		reason TEXT NOT NULL,
		size BIGINT NOT NULL,
		about TEXT NOT NULL,
		body TEXT NOT NULL);
	CREATE INDEX deliveries_due ON deliveries (target, state, due);
	CREATE INDEX deliveries_hook ON deliveries (hook);
	CREATE TABLE seen_webhooks (
		hook TEXT NOT NULL,
		name TEXT NOT NULL,
		signed BIGINT NOT NULL,
		until TEXT NOT NULL,
		PRIMARY KEY (hook, name));
	CREATE INDEX seen_webhooks_until ON seen_webhooks (until);`,
	`ALTER TABLE heads ADD COLUMN beginning TEXT NOT NULL DEFAULT '';`,
	`CREATE TABLE calls (
		id TEXT NOT NULL PRIMARY KEY,
		name TEXT NOT NULL,
		principal TEXT NOT NULL,
		capability TEXT NOT NULL,
		state TEXT NOT NULL,
		process TEXT NOT NULL,
		size BIGINT NOT NULL,
		at TEXT NOT NULL,
		until TEXT NOT NULL,
		body TEXT NOT NULL);
	CREATE INDEX calls_name ON calls (name, state);
	CREATE INDEX calls_state ON calls (state, at);
	CREATE INDEX calls_principal ON calls (principal);
	CREATE INDEX calls_process ON calls (process);
	CREATE TABLE uses (
		id TEXT NOT NULL PRIMARY KEY,
		scope TEXT NOT NULL,
		name TEXT NOT NULL,
		process TEXT NOT NULL,
		live BIGINT NOT NULL,
		at TEXT NOT NULL);
	CREATE INDEX uses_scope ON uses (scope, at);`,
	`CREATE TABLE a2a_tasks (
		id TEXT NOT NULL PRIMARY KEY,
		principal TEXT NOT NULL,
		first TEXT NOT NULL,
		context TEXT NOT NULL,
		state TEXT NOT NULL,
		changed TEXT NOT NULL,
		holder TEXT NOT NULL,
		approval TEXT NOT NULL,
		size BIGINT NOT NULL,
		body TEXT NOT NULL);
	CREATE INDEX a2a_tasks_principal ON a2a_tasks (principal, changed);
	CREATE UNIQUE INDEX a2a_tasks_first ON a2a_tasks (principal, first);
	CREATE INDEX a2a_tasks_state ON a2a_tasks (state, changed);
	CREATE TABLE a2a_pushes (
		task TEXT NOT NULL,
		id TEXT NOT NULL,
		due TEXT NOT NULL,
		tries BIGINT NOT NULL,
		sent BIGINT NOT NULL,
		want BIGINT NOT NULL,
		body TEXT NOT NULL,
		PRIMARY KEY (task, id));
	CREATE INDEX a2a_pushes_due ON a2a_pushes (due);`,
	// Questions and approvers belong to the log of one state directory, which place names in a database that more share.
	`ALTER TABLE approvals ADD COLUMN place TEXT NOT NULL DEFAULT '';
	ALTER TABLE approvers RENAME TO approvers_before;
	CREATE TABLE approvers (
		place TEXT NOT NULL DEFAULT '',
		name TEXT NOT NULL,
		record TEXT NOT NULL,
		signature TEXT NOT NULL,
		revoked TEXT NOT NULL,
		PRIMARY KEY (place, name));
	INSERT INTO approvers (place, name, record, signature, revoked)
		SELECT '', name, record, signature, revoked FROM approvers_before;
	DROP TABLE approvers_before;`,
	// The name of a call's key is the end of used_by, 64 bytes.
	`CREATE INDEX approvals_key ON approvals (substr(used_by, length(used_by) - 63));`,
}

// migrate brings the schema up to date. A database written by a newer waldo is refused.
func migrate(db *sql.DB, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if have, err := version(ctx, db); err == nil && have == len(migrations) {
		return nil // the usual case costs one read
	}
	if have, err := version(ctx, db); err == nil && have > 0 && have < len(migrations) {
		if err := keep(ctx, db, fmt.Sprintf("%s.v%d", path, have)); err != nil {
			return fmt.Errorf("the copy before a migration: %w", err)
		}
	}
	tx, err := db.BeginTx(ctx, nil) // immediate: of several processes one migrates, the rest find it done
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := upgrade(ctx, tx, func(statement string) string { return statement }); err != nil {
		return err
	}
	return tx.Commit()
}

// upgrade runs the steps that the schema lacks, and returns the version before. dialect changes what a database wants
// otherwise.
func upgrade(ctx context.Context, tx *sql.Tx, dialect func(string) string) (have int, err error) {
	if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migrations (version BIGINT NOT NULL PRIMARY KEY,`+
		` at TEXT NOT NULL)`); err != nil {
		return 0, err
	}
	if have, err = version(ctx, tx); err != nil {
		return 0, err
	}
	for i := have; i < len(migrations); i++ {
		if _, err := tx.ExecContext(ctx, dialect(migrations[i])); err != nil {
			return 0, fmt.Errorf("migration %d: %w", i+1, err)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO migrations (version, at) VALUES ($1, $2)`, i+1,
			Stamp(time.Now())); err != nil {
			return 0, err
		}
	}
	return have, newer(have)
}

// newer refuses a schema that only a later waldo knows.
func newer(have int) error {
	if have <= len(migrations) {
		return nil
	}
	return fmt.Errorf("the schema has version %d and this waldo knows up to %d; use a waldo whose "+
		"waldo version --json says schema %d or more", have, len(migrations), have)
}

// Examine returns why this waldo cannot use the database of a state directory: it cannot be read, or its schema is
// later. It changes nothing. false: there is no database yet.
func Examine(ctx context.Context, dir string) (there bool, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	s, err := Open(dir)
	if err != nil {
		return true, err
	}
	if s.Shared() {
		return true, errors.Join(s.open(), s.Close())
	}
	file := s.Path(sqliteFile)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+
		"?_pragma=busy_timeout(10000)&_pragma=query_only(1)")
	if err != nil {
		return true, err
	}
	var tables int // none: a waldo was killed before its first step
	err = db.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_master WHERE name = 'migrations'`).Scan(&tables)
	if err == nil && tables > 0 {
		var have int
		if have, err = version(ctx, db); err == nil {
			err = newer(have)
		}
	}
	return true, errors.Join(err, db.Close())
}

// Schema returns the version of the schema that this waldo writes.
func Schema() int { return len(migrations) }

// keep copies the database to a file, unless another process has. The copy is whole or absent.
func keep(ctx context.Context, db *sql.DB, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	temp := fmt.Sprintf("%s.%d", to, os.Getpid())
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := copyTo(ctx, db, temp); err != nil {
		return err
	}
	return os.Rename(temp, to)
}

// copyTo writes a copy of the database, as one transaction sees it, to a new file of mode 0600.
func copyTo(ctx context.Context, db *sql.DB, to string) error {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // VACUUM INTO takes an empty file
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `VACUUM INTO ?`, to)
	return err
}

// ErrShared is the error of a copy of rows that are in PostgreSQL.
var ErrShared = errors.New("the rows of this state directory are in PostgreSQL: its own tools copy them, as pg_dump does")

// Copy writes a copy of the database, as one transaction sees it, to a new file.
func (s *Store) Copy(ctx context.Context, to string) error {
	if s.Shared() {
		return ErrShared
	}
	if err := s.open(); err != nil {
		return err
	}
	return s.told(copyTo(ctx, s.db, to))
}

type queryer interface {
	QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row
}

func version(ctx context.Context, q queryer) (int, error) {
	var n int
	err := q.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM migrations`).Scan(&n)
	return n, err
}

// Stamp writes a time as RFC 3339 in UTC with milliseconds, always 24 bytes for years up to 9999.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
