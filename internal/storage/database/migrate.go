package database

import (
	"context"
	"database/sql"
	"fmt"
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
}

// migrate brings the schema up to date. A database written by a newer waldo is refused.
func migrate(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if have, err := version(ctx, db); err == nil && have == len(migrations) {
		return nil // the usual case costs one read
	}
	tx, err := db.BeginTx(ctx, nil) // immediate: of several processes one migrates, the rest find it done
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`CREATE TABLE IF NOT EXISTS migrations (version BIGINT NOT NULL PRIMARY KEY,` +
		` at TEXT NOT NULL)`); err != nil {
		return err
	}
	have, err := version(ctx, tx)
	if err != nil {
		return err
	}
	if have > len(migrations) {
		return fmt.Errorf("the schema has version %d and this waldo knows up to %d; use the newer waldo",
			have, len(migrations))
	}
	for i := have; i < len(migrations); i++ {
		if _, err := tx.Exec(migrations[i]); err != nil {
			return fmt.Errorf("migration %d: %w", i+1, err)
		}
		if _, err := tx.Exec(`INSERT INTO migrations (version, at) VALUES ($1, $2)`, i+1, Stamp(time.Now())); err != nil {
			return err
		}
	}
	return tx.Commit()
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
