// Package postgres asks a PostgreSQL database one question at a time, through a role that can only read. Each call
// opens a session of its own, proves the role, lets the database analyse the statement, and judges the functions that
// the analysis names. The statement runs in a READ ONLY transaction, which is rolled back.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"waldo/internal/feature/sql/answer"
	"waldo/internal/storage/database"
)

// Error is a refusal of waldo's own: the statement did not run.
type Error = answer.Error

func refuse(code, format string, a ...any) *Error { return answer.Refuse(code, format, a...) }

// maxMessage is the largest message that the server may send, in bytes: a row, or the analysis of a statement.
const maxMessage = 16 << 20

// patience is how long connecting takes at most.
const patience = 10 * time.Second

// session is one connection, with a transaction that is always rolled back.
type session struct {
	*pgconn.PgConn
	notices *notices
}

// notices are the details of the messages that the server sends beside its answers.
type notices struct {
	mu      sync.Mutex
	details []string
}

func (n *notices) add(_ *pgconn.PgConn, m *pgconn.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.details = append(n.details, m.Detail)
}

// take returns the details since the last call.
func (n *notices) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.details
	n.details = nil
	return out
}

// ParseURL reads a postgres:// URL. A server on another machine must speak TLS unless the URL has an sslmode.
func ParseURL(raw string) (*pgconn.Config, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, errors.New("the database's URL must be of the form postgres://ROLE:PASSWORD@HOST/DATABASE")
	}
	c, err := pgconn.ParseConfig(raw)
	if err != nil {
		return nil, errors.New("the database's URL cannot be read") // the library's error quotes parts of it
	}
	if !database.Private(u, c) {
		return nil, errors.New("the database is on another machine and its URL has no TLS")
	}
	c.ConnectTimeout, c.MaxProtocolMessageBodyLen = patience, maxMessage
	c.RuntimeParams["application_name"] = "waldo"
	return c, nil
}

// open connects and begins a transaction that cannot write. The caller closes the session.
func open(ctx context.Context, c *pgconn.Config, wall time.Duration) (*session, error) {
	c = c.Copy()
	s := &session{notices: &notices{}}
	c.OnNotice = s.notices.add
	c.DialFunc = (&net.Dialer{Timeout: patience}).DialContext
	c.BuildContextWatcherHandler = func(p *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: p, DeadlineDelay: 2 * time.Second}
	}
	var err error
	if s.PgConn, err = pgconn.ConnectConfig(ctx, c); err != nil {
		return nil, err
	}
	// The timeouts end the statement within the database, some time before waldo's own deadline.
	ms := max(wall.Milliseconds(), 1)
	begin := fmt.Sprintf(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d;
SET LOCAL client_min_messages = warning; SET LOCAL row_security = on; SET LOCAL standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', 'pg_catalog',
  nullif(pg_catalog.current_setting('search_path'), ''), 'pg_temp'), true)`, ms, min(ms, 2000), ms+60_000)
	if _, err = s.Exec(ctx, begin).ReadAll(); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// end rolls back and closes. It does not wait long for a server that does not answer.
func (s *session) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if !s.IsClosed() && !s.IsBusy() {
		_, _ = s.Exec(ctx, "ROLLBACK").ReadAll() // the server rolls back when the connection ends, too
	}
	_ = s.Close(ctx)
}

// rows returns the rows of waldo's own query as text. It allows no arguments: the text has none.
func (s *session) rows(ctx context.Context, query string) ([][]string, error) {
	results, err := s.Exec(ctx, query).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	var out [][]string
	for _, r := range results[len(results)-1].Rows {
		line := make([]string, len(r))
		for i, v := range r {
			line[i] = string(v)
		}
		out = append(out, line)
	}
	return out, nil
}
