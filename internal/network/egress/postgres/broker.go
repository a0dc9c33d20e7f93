// Package postgres opens PostgreSQL sessions for a sandbox with a password that the sandbox never gets. It speaks the
// start-up with both sides (PostgreSQL 15, chapter 55.2). Once both are ready, the caller relays the bytes unchanged.
package postgres

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"waldo/internal/model/secret"
)

// Broker opens sessions of one sandbox at one database, as one user. Every field but Sandbox, TLS and Told is required.
type Broker struct {
	User     string
	Database string
	Password func() (secret.Value, error)                // asked for every session, so that it may change
	Dial     func(ctx context.Context) (net.Conn, error) // to the server
	// for the server, whose certificate must verify; nil: no TLS, and no password that could be read on the way
	TLS *tls.Config
	// for the sandbox, whose clients may ask for TLS; nil: TLS is declined
	Sandbox *tls.Config
	// called with the server's reason for a refused login; can be nil
	Told func(err error)

	mu    sync.Mutex
	alive map[key]bool // the sessions that the sandbox may cancel
}

// key is a server's identifier of a session, with which another connection can cancel its query.
type key struct {
	pid    uint32
	secret uint32
}

// Refusal is why a session was refused. The text holds no part of the password.
type Refusal struct {
	Code string // one of this package's: user, database, replication, protocol, server
	Text string
}

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }

// maxStart is how many bytes the first message of a client may have, as in PostgreSQL.
const maxStart = 10_000

// The codes that stand in place of a protocol's version.
const (
	codeCancel = 80877102
	codeTLS    = 80877103
	codeGSS    = 80877104
)

// Session is a connection on either side, both ready for queries.
type Session struct {
	Sandbox, Server net.Conn
	end             func()
}

// Close ends both sides.
func (s *Session) Close() {
	s.end()
	_, _ = s.Sandbox.Close(), s.Server.Close()
}

// Open speaks the start-up with a client in the sandbox and with the server. A nil Session without an error means
// that the client sent a cancel request. The client has received a Refusal. Both sides have until ctx's deadline. The
// caller closes conn.
func (b *Broker) Open(ctx context.Context, conn net.Conn) (*Session, error) {
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
		defer conn.SetDeadline(time.Time{})
	}
	conn, msg, err := b.start(conn)
	if err != nil {
		return nil, err
	}
	version := binary.BigEndian.Uint32(msg)
	if version == codeCancel {
		return nil, b.cancel(ctx, msg)
	}
	sb := pgproto3.NewBackend(conn, conn)
	ask, refusal := b.judge(msg)
	if refusal != nil {
		return nil, errors.Join(refusal, tell(sb, "28000", refusal))
	}
	out, err := b.enter(ctx, ask)
	if err != nil {
		if b.Told != nil {
			b.Told(err)
		}
		refusal = &Refusal{"server", "the database did not let waldo in; its operator can see why"}
		return nil, errors.Join(refusal, tell(sb, "08004", refusal))
	}
	k := key{out.PID, keyOf(out.SecretKey)}
	if err := welcome(sb, version, msg, out); err != nil {
		_ = out.Conn.Close()
		return nil, err
	}
	b.mu.Lock()
	if b.alive == nil {
		b.alive = map[key]bool{}
	}
	b.alive[k] = true
	b.mu.Unlock()
	return &Session{Sandbox: conn, Server: out.Conn, end: func() {
		b.mu.Lock()
		delete(b.alive, k)
		b.mu.Unlock()
	}}, nil
}

func keyOf(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// start reads messages until the one that says what the client wants: a session or a cancellation.
// Before it the client may ask for encryption, each kind once.
func (b *Broker) start(conn net.Conn) (net.Conn, []byte, error) {
	asked := map[uint32]bool{}
	for {
		msg, err := first(conn)
		if err != nil {
			return nil, nil, err
		}
		code := binary.BigEndian.Uint32(msg)
		if code != codeTLS && code != codeGSS {
			return conn, msg, nil
		}
		if asked[code] || len(msg) != 4 {
			return nil, nil, &Refusal{"protocol", "encryption was asked for twice"}
		}
		asked[code] = true
		if code == codeGSS || b.Sandbox == nil {
			if _, err := conn.Write([]byte{'N'}); err != nil {
				return nil, nil, err
			}
			continue
		}
		if _, err := conn.Write([]byte{'S'}); err != nil {
			return nil, nil, err
		}
		inside := tls.Server(conn, b.Sandbox)
		if err := inside.Handshake(); err != nil {
			return nil, nil, &Refusal{"protocol", "the TLS of the client: " + err.Error()}
		}
		conn = inside
	}
}

// first reads one message of the start-up, and not a byte more: its body, with the code in front.
func first(conn net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 8 || n > maxStart {
		return nil, &Refusal{"protocol", "the first message is not a PostgreSQL start-up"}
	}
	msg := make([]byte, n-4)
	_, err := io.ReadFull(conn, msg)
	return msg, err
}

// judge checks the client's start-up parameters against the contract. A parameter that it could set within a session
// is allowed.
func (b *Broker) judge(msg []byte) (map[string]string, *Refusal) {
	var m pgproto3.StartupMessage
	if err := m.Decode(msg); err != nil {
		return nil, &Refusal{"protocol", "the start-up is not one of protocol 3"}
	}
	user, database := m.Parameters["user"], m.Parameters["database"]
	if database == "" {
		database = user // as PostgreSQL reads it
	}
	if user != b.User {
		return nil, &Refusal{"user", fmt.Sprintf("the contract lets this sandbox in as %q, not as %.40q", b.User, user)}
	}
	if database != b.Database {
		return nil, &Refusal{
			"database", fmt.Sprintf("the contract lets this sandbox into the database %q, not into %.40q", b.Database, database),
		}
	}
	if _, asked := m.Parameters["replication"]; asked {
		return nil, &Refusal{"replication", "a sandbox may not replicate the database"}
	}
	ask := map[string]string{}
	for k, v := range m.Parameters {
		if k != "user" && k != "database" && !extension(k) {
			ask[k] = v
		}
	}
	return ask, nil
}

// extension reports whether a parameter belongs to the protocol rather than to the session.
func extension(name string) bool { return strings.HasPrefix(name, "_pq_.") }

// enter opens a session at the server and takes the connection over.
func (b *Broker) enter(ctx context.Context, ask map[string]string) (*pgconn.HijackedConn, error) {
	password, err := b.Password()
	if err != nil {
		return nil, err
	}
	// Parsed from nothing of the machine's: everything that matters is set below.
	c, err := pgconn.ParseConfig("host=server port=5432 user=none password=none dbname=none sslmode=disable " +
		"servicefile='' passfile=''")
	if err != nil {
		return nil, err
	}
	c.User, c.Database, c.Password, c.RuntimeParams = b.User, b.Database, password.Reveal(), ask
	c.Fallbacks, c.TLSConfig, c.MaxProtocolMessageBodyLen = nil, b.TLS, 1<<20
	c.MinProtocolVersion, c.MaxProtocolVersion, c.ChannelBinding = "3.0", "3.0", "prefer"
	c.RequireAuth = "scram-sha-256" // which authenticates both sides and does not reveal the password
	if b.TLS != nil {
		c.RequireAuth = "none,password,md5,scram-sha-256"
	}
	c.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"server"}, nil }
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return b.Dial(ctx) }
	p, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return nil, scrubbed(err, password)
	}
	if err := p.SyncConn(ctx); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p.Hijack()
}

// scrubbed is a server's error, unless it holds the password.
func scrubbed(err error, password secret.Value) error {
	if v := password.Reveal(); v != "" && strings.Contains(err.Error(), v) {
		return errors.New("the server's error holds the password, and is not shown")
	}
	return err
}
