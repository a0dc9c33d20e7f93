package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// ErrUnknown is the error of a write whose commit got no answer: the database may hold it, or not.
var ErrUnknown = errors.New("the connection to the database ended during a commit: whether it took effect is not known")

// ErrAway is the error of a shared store whose server cannot be reached, starts or stops, or does not answer in time.
var ErrAway = errors.New("the store is away")

// The bounds of connections to PostgreSQL.
const (
	connectWithin = 10 * time.Second
	mostOpen      = 10
)

// statementWithin is how long a statement of a store takes at most. A server that vanished, or that is paused, ends no
// connection: TCP alone would wait for a quarter of an hour.
var statementWithin = 20 * time.Second

// vanished has an idle connection whose server is gone end before the first statement that waits for it.
var vanished = net.KeepAliveConfig{Enable: true, Idle: 8 * time.Second, Interval: 4 * time.Second, Count: 3}

// deadline ends each statement in time, and its connection with it.
type deadline struct{}

type endKey struct{}

func (deadline) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	ctx, end := context.WithTimeout(ctx, statementWithin)
	return context.WithValue(ctx, endKey{}, end)
}

func (deadline) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	ctx.Value(endKey{}).(context.CancelFunc)()
}

// postgres reads the URL of a store. A password comes from the environment or a file, as for every client of
// PostgreSQL. A server on another machine must speak TLS unless the URL has an sslmode.
func postgres(raw string) (*pgx.ConnConfig, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errors.New("the store's URL must be of the form postgres://ROLE@HOST/DATABASE")
	}
	_, password := u.User.Password()
	if password || u.Query().Has("password") {
		return nil, errors.New("the store's URL must hold no password: give it as PGPASSWORD, or in the file that PGPASSFILE names")
	}
	if u.User.Username() == "" || u.Path == "" || u.Path == "/" || u.Host == "" && !u.Query().Has("host") {
		return nil, errors.New("the store's URL must name the role, the host and the database, as in postgres://waldo@db.example.com/waldo")
	}
	c, err := pgx.ParseConfig(raw)
	if err != nil {
		return nil, errors.New("the store's URL, or a PG variable of the environment, cannot be read") // the library's error quotes them
	}
	if !Private(u, &c.Config) {
		return nil, errors.New("the store is on another machine and its URL has no TLS: add ?sslmode=verify-full")
	}
	c.ConnectTimeout = connectWithin
	c.DialFunc = (&net.Dialer{Timeout: connectWithin, KeepAliveConfig: vanished}).DialContext
	if c.ValidateConnect == nil { // of several hosts, the one that takes writes
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	c.RuntimeParams["application_name"] = "waldo"
	return c, nil
}

// Private keeps of a connection to PostgreSQL what speaks TLS or stays on this machine. It reports whether the first
// host may be used. An sslmode in the URL or the environment decides instead.
func Private(u *url.URL, c *pgconn.Config) bool {
	if _, given := os.LookupEnv("PGSSLMODE"); given || u.Query().Has("sslmode") {
		return true
	}
	c.Fallbacks = slices.DeleteFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.TLSConfig == nil && !near(f.Host)
	})
	return c.TLSConfig != nil || near(c.Host)
}

// near reports whether a host is this machine: a socket's folder, localhost or a loopback address.
func near(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// openPostgres returns a pool of connections that are made when they are needed.
func openPostgres(raw string) (*sql.DB, error) {
	c, err := postgres(raw)
	if err != nil {
		return nil, err
	}
	return pool(c), nil
}

func pool(c *pgx.ConnConfig) *sql.DB {
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(mostOpen)
	db.SetMaxIdleConns(4)
	db.SetConnMaxIdleTime(time.Minute)
	return db
}

// Connection returns how the PostgreSQL database of a shared store is reached, also for a pool beside the store's. Each
// statement has a bound, unlike those of a migration.
func (s *Store) Connection() (*pgx.ConnConfig, error) {
	c, err := postgres(s.place.URL)
	if err == nil {
		c.Tracer = deadline{}
	}
	return c, err
}

// alone is the first statement of each writing transaction: one writer at a time for the tables of one schema, over all
// hosts, as SQLite has it. A commit waits for the disk, whatever the server's default is. The server ends a transaction
// whose host vanished, and so the wait of all others.
const alone = `SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
	pg_advisory_xact_lock(7743000000000 + to_regclass('migrations')::oid::bigint),
	CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
	THEN set_config('synchronous_commit', 'on', true) END`

// begin begins a writing transaction.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	if !s.Shared() {
		return s.db.BeginTx(ctx, nil) // immediate
	}
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // each statement sees all commits
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, alone); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// snapshot begins a reading transaction.
func (s *Store) snapshot(ctx context.Context) (*sql.Tx, error) {
	o := &sql.TxOptions{ReadOnly: true}
	if s.Shared() {
		o.Isolation = sql.LevelRepeatableRead
	}
	return s.db.BeginTx(ctx, o)
}

// end commits. Only the server's own refusal shows that nothing was written.
func (s *Store) end(tx *sql.Tx) error {
	err := tx.Commit()
	if err == nil || !s.Shared() || errors.Is(err, pgx.ErrTxCommitRollback) {
		return err
	}
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.SeverityUnlocalized == "ERROR" {
		return err
	}
	return fmt.Errorf("%w (%w)", ErrUnknown, err)
}

// full reports whether PostgreSQL said that its disk is full.
func full(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "53100"
}

// away reports whether an error of PostgreSQL means ErrAway. Of the server's own refusals (SQLSTATE) these do: it
// starts, stops or ended the session (57P), lost the connection (08), or has too many (53300).
func away(err error) bool {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		return strings.HasPrefix(refusal.Code, "57P") || strings.HasPrefix(refusal.Code, "08") || refusal.Code == "53300"
	}
	var network net.Error // a time that is over, too
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, ErrUnknown)
}

// now is the database's time, as Stamp writes times.
const now = `to_char(clock_timestamp() AT TIME ZONE 'UTC' %s, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

// Renew notes in a shared database, by its own clock, that a name of a bucket is in use now.
func (s *Store) Renew(ctx context.Context, bucket, name string) error {
	return s.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO kv (bucket, name, value, at) VALUES ($1, $2, '', `+fmt.Sprintf(now, "")+`)
			ON CONFLICT (bucket, name) DO UPDATE SET at = excluded.at`, bucket, name)
		return err
	})
}

// Fresh reports whether a name was renewed within a time.
func (s *Store) Fresh(ctx context.Context, bucket, name string, within time.Duration) (fresh bool, err error) {
	err = s.View(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRow(`SELECT at > `+fmt.Sprintf(now, "- $3 * interval '1 second'")+
			` FROM kv WHERE bucket = $1 AND name = $2`, bucket, name, within.Seconds()).Scan(&fresh)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return fresh, err
}

// ErrVolatile is the error of a server that does not wait for its disk: a power cut loses or damages what it acknowledged.
var ErrVolatile = errors.New("a power cut loses or damages writes that the server acknowledged")

// Lasting returns ErrVolatile where the server of a shared store has such settings.
func (s *Store) Lasting(ctx context.Context) error {
	if !s.Shared() {
		return nil
	}
	return s.View(ctx, func(tx *sql.Tx) error {
		for _, name := range []string{"fsync", "full_page_writes"} {
			var value string
			if err := tx.QueryRowContext(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
				return err
			}
			if value != "on" {
				return fmt.Errorf("%w: it runs with %s = %s", ErrVolatile, name, value)
			}
		}
		return nil
	})
}

// upToDate returns an error unless the tables have the version that this waldo knows.
func upToDate(ctx context.Context, db *sql.DB) error {
	have, err := version(ctx, db)
	var refusal *pgconn.PgError
	switch {
	case errors.As(err, &refusal) && refusal.Code == "42P01":
		return errors.New("the database has no tables of waldo: run waldo store migrate")
	case err != nil:
		return err
	case have < len(migrations):
		return fmt.Errorf("the schema has version %d and this waldo needs %d: run waldo store migrate", have, len(migrations))
	}
	return newer(have)
}

// Migrate brings the tables of a PostgreSQL database up to date, and returns their versions before and after. It binds
// the state directory to the database for good. A state directory with a waldo.db is refused: Copy takes its rows along.
func Migrate(ctx context.Context, dir, raw string) (from, to int, err error) {
	dir, err = CheckDir(dir)
	if err != nil {
		return 0, 0, err
	}
	p, err := readPlace(dir)
	if err != nil {
		return 0, 0, err
	}
	if p.URL != "" && p.URL != raw {
		return 0, 0, fmt.Errorf("store: %s has its rows in %s, so it cannot be bound to %s", dir, p.URL, raw)
	}
	if _, err := os.Lstat(filepath.Join(dir, sqliteFile)); p.URL == "" && err == nil {
		return 0, 0, fmt.Errorf("store: %s has its rows in %s: waldo store copy brings them along", dir, sqliteFile)
	}
	from, err = raise(ctx, raw)
	if err == nil && p.URL == "" {
		_, err = bind(dir, raw)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("store: %w", plain(err))
	}
	return from, len(migrations), nil
}

// raise brings the tables of a database up to date, and returns the version before.
func raise(ctx context.Context, raw string) (from int, err error) {
	db, err := openPostgres(raw)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(7742)`); err != nil {
		return 0, err
	}
	var there bool
	if err := tx.QueryRowContext(ctx, `SELECT to_regclass('migrations') IS NOT NULL`).Scan(&there); err != nil {
		return 0, err
	}
	if there {
		if _, err := tx.ExecContext(ctx, alone); err != nil { // a waldo that writes now is waited for
			return 0, err
		}
	}
	if from, err = upgrade(ctx, tx, sortedAsBytes); err != nil {
		return 0, err
	}
	return from, tx.Commit()
}

// sortedAsBytes makes texts of a table sort as SQLite sorts them, in any locale of the database.
func sortedAsBytes(statement string) string {
	return strings.ReplaceAll(statement, " TEXT NOT NULL", ` TEXT COLLATE "C" NOT NULL`)
}

// plain says in one line why a database cannot be reached. The text holds no password.
func plain(err error) error {
	var c *pgconn.ConnectError
	if !errors.As(err, &c) {
		return err
	}
	text := strings.Join(strings.Fields(c.Error()), " ")
	return unreachable{fmt.Sprintf("the database cannot be reached: %s", text), err}
}

type unreachable struct {
	text string
	err  error
}

func (u unreachable) Error() string { return u.text }
func (u unreachable) Unwrap() error { return u.err }
