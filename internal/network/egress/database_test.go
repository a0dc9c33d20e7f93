package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"waldo/internal/model/secret"
)

// desk is a PostgreSQL server that accepts any user with the password; heard gets the received messages.
func desk(t *testing.T, cert tls.Certificate, heard chan<- string) (addr string) {
	return answering(t, func(c net.Conn) {
		defer c.Close()
		var ask [8]byte
		if _, err := c.Read(ask[:]); err != nil {
			return
		}
		_, _ = c.Write([]byte{'S'})
		safe := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		b := pgproto3.NewBackend(safe, safe)
		m, err := b.ReceiveStartupMessage()
		if err != nil {
			return
		}
		heard <- "user " + m.(*pgproto3.StartupMessage).Parameters["user"]
		b.Send(&pgproto3.AuthenticationCleartextPassword{})
		_ = b.SetAuthType(pgproto3.AuthTypeCleartextPassword)
		_ = b.Flush()
		for {
			m, err := b.Receive()
			if err != nil {
				return
			}
			switch m := m.(type) {
			case *pgproto3.PasswordMessage:
				heard <- "password " + m.Password
				b.Send(&pgproto3.AuthenticationOk{})
				b.Send(&pgproto3.BackendKeyData{ProcessID: 7, SecretKey: []byte{1, 2, 3, 4}})
			case *pgproto3.Query:
				heard <- "query " + m.String
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
			}
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			_ = b.Flush()
		}
	})
}

// TestDatabase: a client in the sandbox is logged in with a password that it never gets. It can only be the
// contract's user, at the server that its certificate proves, and the placeholder never leaves.
func TestDatabase(t *testing.T) {
	right, roots := certificate(t, "db.example.com")
	wrong, _ := certificate(t, "db.example.com") // signed by no known authority
	for _, row := range []struct {
		why            string
		cert           tls.Certificate
		user, database string
		query          string
		limits         Limits
		code           string // of the last attempt
		heard          string // by the server, in all
	}{
		{"control", right, "reader", "shop", "select 1", Limits{}, "",
			"user reader, password " + hidden + ", query select 1"},
		{"another user", right, "postgres", "shop", "select 1", Limits{}, "egress.postgres.user", ""},
		{"another database", right, "reader", "postgres", "select 1", Limits{}, "egress.postgres.database", ""},
		{"another server", wrong, "reader", "shop", "select 1", Limits{}, "egress.postgres.server", ""},
		{"the placeholder in a query", right, "reader", "shop", "select 'PLACEHOLDER'", Limits{}, "egress.secret.placeholder",
			"user reader, password " + hidden},
		{"more than its rate", right, "reader", "shop", "select 1", Limits{PerSec: 1}, "egress.limit.requests", ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			heard := make(chan string, 9)
			at := desk(t, row.cert, heard)
			rules, err := ParseRules([]string{"db.example.com:5432"})
			if err != nil {
				t.Fatal(err)
			}
			c := Credential{Name: "db", Placeholder: NewPlaceholder(), Host: "db.example.com", Port: 5432, As: Postgres,
				Field: "reader", Database: "shop", Value: func() (secret.Value, error) { return secret.NewValue(hidden), nil }}
			d := &Dialer{Policy: &Policy{Rules: rules, Limits: row.limits}, Resolver: fixed{"db.example.com": {"93.184.215.40"}},
				Roots: roots,
				Connect: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
					return at443{c, to}, err
				}}
			s, err := NewServer(d, Options{Credentials: []Credential{c}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			g := &rig{Server: s}
			if row.limits.PerSec > 0 {
				_ = g.pace.request() // the one of this second
			}
			err = client(g.direct(t, "db.example.com", 5432), row.user, row.database,
				strings.ReplaceAll(row.query, "PLACEHOLDER", c.Placeholder))
			if (err == nil) != (row.code == "") {
				t.Errorf("the client: %v", err)
			}
			var got []string
			for len(heard) > 0 {
				got = append(got, <-heard)
			}
			if strings.Join(got, ", ") != row.heard {
				t.Errorf("the server heard %q", got)
			}
			codes := g.codes()
			for end := time.Now().Add(time.Minute); len(codes) == 0 || codes[len(codes)-1] != row.code; codes = g.codes() {
				if time.Sleep(time.Millisecond); time.Now().After(end) {
					t.Fatalf("told: %q", codes)
				}
			}
		})
	}
}

// client asks one query, without a password, and waits for the end of the answer.
func client(c net.Conn, user, database, query string) error {
	f := pgproto3.NewFrontend(c, c)
	f.Send(&pgproto3.StartupMessage{
		ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": user, "database": database},
	})
	if err := f.Flush(); err != nil {
		return err
	}
	for ready := 0; ready < 2; {
		m, err := f.Receive()
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *pgproto3.AuthenticationCleartextPassword, *pgproto3.AuthenticationMD5Password, *pgproto3.AuthenticationSASL:
			return errors.New("a password was asked for")
		case *pgproto3.ErrorResponse:
			return errors.New(m.Message)
		case *pgproto3.ReadyForQuery:
			if ready++; ready == 1 {
				f.Send(&pgproto3.Query{String: query})
				if err := f.Flush(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
