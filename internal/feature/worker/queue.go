package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"waldo/internal/app"
	"waldo/internal/storage/database"
)

// The tables of the queue: River's, and one row for each run, which decides who carries it out and until when.
const runsTable = `CREATE TABLE IF NOT EXISTS worker_runs (
	id TEXT PRIMARY KEY,
	attempt INTEGER NOT NULL DEFAULT 0,        -- how often a worker began; fences what an earlier one writes
	state TEXT NOT NULL DEFAULT 'waiting',     -- waiting, running, ended, or over: nobody looks at it again
	isolation TEXT NOT NULL,
	size TEXT NOT NULL,
	worker TEXT NOT NULL DEFAULT '',
	queued_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
	started_at TIMESTAMPTZ,
	wanted_until TIMESTAMPTZ NOT NULL,         -- the gateway renews it; in the past: the run must end
	lease_until TIMESTAMPTZ,                   -- the worker renews it; in the past: the worker is lost
	expires BIGINT NOT NULL,
	job BYTEA NOT NULL,
	result BYTEA
)`

// Times of the leases, by the clock of the database unless it says otherwise.
const (
	leased   = 4 * time.Second         // of a worker on its run
	wanted   = 6 * time.Second         // of a gateway on its run
	renewal  = time.Second             // of both
	giveUp   = 3500 * time.Millisecond // a worker that could not renew for so long kills its sandbox, by its own clock
	fetch    = 50 * time.Millisecond   // the queue is polled so often; a notification only makes it faster
	keptRows = time.Hour               // how long a row without its job stays
)

// class is a class of runs, by their memory limit in bytes.
type class struct {
	name string
	most int64
}

var sizes = []class{{"small", 512 << 20}, {"medium", 2 << 30}, {"large", 1 << 62}}

func sizeOf(memory int64) string {
	for _, s := range sizes {
		if memory <= s.most {
			return s.name
		}
	}
	return sizes[len(sizes)-1].name
}

// queueName is the queue of River for an isolation level and a size.
func queueName(isolation, size string) string { return "waldo_" + isolation + "_" + size }

// ticket is the job in River: the name of a row, which has the rest.
type ticket struct {
	Run     string `json:"run"`
	Seconds int    `json:"seconds"`       // the most that the run takes
	Key     string `json:"key,omitempty"` // the id of the key that sealed it; empty: a waldo before this member
}

func (ticket) Kind() string { return "waldo_run" }

// queue is a pool of connections to the database of the queue, beside the one of the store.
type queue struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts
	key    string                // the id of the gateway's key
}

// openQueue connects to the database of a store, and creates the tables that are missing.
func openQueue(ctx context.Context, s *database.Store, connections int) (*queue, error) {
	if !s.Shared() {
		return nil, errors.New("the state directory has its rows in waldo.db: waldo store migrate binds it to PostgreSQL")
	}
	c, err := s.Connection()
	if err != nil {
		return nil, err
	}
	o, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, err
	}
	o.ConnConfig, o.MaxConns = c, int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, o)
	if err != nil {
		return nil, err
	}
	q := &queue{pool: pool}
	if err = q.migrate(ctx); err == nil {
		q.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet(), FetchCooldown: time.Millisecond})
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return q, nil
}

// migrate creates the tables, one process at a time. River's steps cannot share one transaction.
func (q *queue) migrate(ctx context.Context) (err error) {
	const lock = 7743000000001
	one, err := q.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer one.Release()
	if _, err := one.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(lock)); err != nil {
		return err
	}
	defer func() {
		_, uerr := one.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(lock))
		err = errors.Join(err, uerr)
	}()
	m, err := rivermigrate.New(riverpgxv5.New(q.pool), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = one.Exec(ctx, runsTable+`; CREATE INDEX IF NOT EXISTS worker_runs_waiting ON worker_runs (isolation, size)
		WHERE state = 'waiting'`)
	return err
}

// quiet is River's log: warnings alone, with waldo's.
func quiet() *slog.Logger { return slog.New(warnings{slog.Default().Handler()}) }

type warnings struct{ slog.Handler }

func (w warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w warnings) WithAttrs(a []slog.Attr) slog.Handler         { return warnings{w.Handler.WithAttrs(a)} }
func (w warnings) WithGroup(name string) slog.Handler           { return warnings{w.Handler.WithGroup(name)} }

// add adds a run: its row and its job in one transaction. committed reports whether workers can see it; after an error
// it is true where that is not known.
func (q *queue) add(ctx context.Context, e envelope, isolation, size string, wall time.Duration, sealed []byte) (
	committed bool, err error,
) {
	tx, err := q.pool.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	_, err = tx.Exec(ctx, `INSERT INTO worker_runs (id, isolation, size, wanted_until, expires, job)
		VALUES ($1, $2, $3, clock_timestamp() + $4, $5, $6)`, e.run, isolation, size, wanted, e.expires, sealed)
	if err != nil {
		return false, err
	}
	t := ticket{Run: e.run, Seconds: int(wall/time.Second) + 30, Key: q.key}
	_, err = q.client.InsertTx(ctx, tx, t, &river.InsertOpts{Queue: queueName(isolation, size), MaxAttempts: 1})
	if err != nil {
		return false, err
	}
	return true, tx.Commit(ctx)
}

// row is what a gateway sees of a run.
type row struct {
	state  string
	lost   bool // its worker has no lease any more
	result []byte
}

// look reads the row of a run, and renews that it is wanted.
func (q *queue) look(ctx context.Context, run string, renew bool) (r row, err error) {
	const seen = `state, COALESCE(lease_until < clock_timestamp(), false), result`
	if renew {
		err = q.pool.QueryRow(ctx, `UPDATE worker_runs SET wanted_until = clock_timestamp() + $2 WHERE id = $1
			RETURNING `+seen, run, wanted).Scan(&r.state, &r.lost, &r.result)
		return r, err
	}
	err = q.pool.QueryRow(ctx, `SELECT `+seen+` FROM worker_runs WHERE id = $1`, run).Scan(&r.state, &r.lost, &r.result)
	return r, err
}

// unwanted has the worker of a run end it.
func (q *queue) unwanted(ctx context.Context, run string) error {
	_, err := q.pool.Exec(ctx, `UPDATE worker_runs SET wanted_until = clock_timestamp() WHERE id = $1`, run)
	return err
}

// waiting returns how many runs of each queue no worker has taken yet.
func (q *queue) waiting(ctx context.Context) (all []app.Waiting, err error) {
	rows, err := q.pool.Query(ctx, `SELECT isolation, size, count(*), clock_timestamp() - min(queued_at) FROM worker_runs
		WHERE state = 'waiting' AND wanted_until > clock_timestamp() GROUP BY isolation, size`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[app.Waiting])
}

// over ends a row that is in a state, whose lease is over if it is running. It reports whether it was.
func (q *queue) over(ctx context.Context, run, state string) (bool, error) {
	t, err := q.pool.Exec(ctx, `UPDATE worker_runs SET state = 'over', job = '', result = NULL
		WHERE id = $1 AND state = $2 AND (state <> 'running' OR lease_until < clock_timestamp())`, run, state)
	return t.RowsAffected() == 1, err
}

// claim gives a run to a worker, once. It returns false where nobody wants it, or it was given away.
func (q *queue) claim(ctx context.Context, run, worker string) (e envelope, sealed []byte, ok bool, err error) {
	e.run = run
	err = q.pool.QueryRow(ctx, `UPDATE worker_runs SET state = 'running', attempt = attempt + 1, worker = $2,
			started_at = clock_timestamp(), lease_until = clock_timestamp() + $3
		WHERE id = $1 AND state = 'waiting' AND attempt = 0 AND wanted_until > clock_timestamp()
		RETURNING attempt, expires, job`, run, worker, leased).Scan(&e.attempt, &e.expires, &sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, nil, false, nil
	}
	return e, sealed, err == nil, err
}

// holds is the condition under which a worker still has its run.
const holds = ` WHERE id = $1 AND attempt = $2 AND worker = $3 AND state = 'running'
	AND lease_until > clock_timestamp()`

// renew renews the lease of a worker. held is false where it has lost it; needed is false where the gateway gave the
// run up.
func (q *queue) renew(ctx context.Context, e envelope, worker string) (held, needed bool, err error) {
	err = q.pool.QueryRow(ctx, `UPDATE worker_runs SET lease_until = clock_timestamp() + $4`+holds+
		` RETURNING wanted_until > clock_timestamp()`, e.run, e.attempt, worker, leased).Scan(&needed)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, false, nil
	}
	return err == nil, needed, err
}

// end stores a result. It returns false where the worker has lost its lease: the result is late, and refused.
func (q *queue) end(ctx context.Context, e envelope, worker string, sealed []byte) (bool, error) {
	t, err := q.pool.Exec(ctx, `UPDATE worker_runs SET state = 'ended', job = '', result = $4`+holds,
		e.run, e.attempt, worker, sealed)
	return t.RowsAffected() == 1, err
}

// sweep removes rows that have been over for long.
func (q *queue) sweep(ctx context.Context) error {
	_, err := q.pool.Exec(ctx, `DELETE FROM worker_runs WHERE wanted_until < clock_timestamp() - $1::interval`, keptRows)
	return err
}
