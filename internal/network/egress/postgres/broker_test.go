package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"waldo/internal/model/secret"
)

const placeholder = "waldo-placeholder-3f"

// brokered is a broker for the role app at the database shop, with the real password.
func brokered(r *real) *Broker {
	return &Broker{User: "app", Database: "shop", Dial: r.dial,
		Password: func() (secret.Value, error) { return secret.NewValue("the-real-password"), nil },
		TLS:      &tls.Config{ServerName: "db.example", RootCAs: r.roots}}
}

func TestARealClientWorksWithoutThePassword(t *testing.T) {
	r := database(t)
	if out, err := psql(r.port, "app", "shop", placeholder, "select 6*7"); err == nil ||
		!strings.Contains(out, "password authentication failed") {
		t.Fatalf("control: the placeholder opened the database itself: %s", out)
	}
	if out, err := psql(r.port, "app", "shop", "the-real-password", "select 6*7"); err != nil || out != "42" {
		t.Fatalf("control: the password: %s", out)
	}
	for why, make := range map[string]func(*Broker){
		"TLS to the server, none in the sandbox": func(b *Broker) {},
		"TLS on both sides": func(b *Broker) {
			b.Sandbox = &tls.Config{Certificates: []tls.Certificate{r.cert}}
		},
		"no TLS: the password is only proved": func(b *Broker) { b.TLS = nil },
	} {
		b := brokered(r)
		make(b)
		d := serve(t, b)
		query := "select current_user || ' ' || current_database() || ' ' || (select ssl from pg_stat_ssl where pid = " +
			"pg_backend_pid())::text"
		out, err := psql(d.port, "app", "shop", placeholder, query)
		if want := "app shop " + map[bool]string{true: "true", false: "false"}[b.TLS != nil]; err != nil || out != want {
			t.Errorf("%s: %q %v, want %q; %s", why, out, err, want, d.said())
		}
		if b.Sandbox != nil {
			if out, err := psql(d.port, "app", "shop", placeholder, "select 1", "sslmode=require"); err != nil || out != "1" {
				t.Errorf("%s: a client that insists on TLS: %s", why, out)
			}
		}
	}
}

// Much goes through, in both directions, as it is.
func TestMuchIsCarried(t *testing.T) {
	r := database(t)
	d := serve(t, brokered(r))
	query := "select string_agg(x::text, ','), length('" + strings.Repeat("y", 1<<16) +
		"') from generate_series(1, 200000) x"
	want, err := psql(r.port, "app", "shop", "the-real-password", query)
	if err != nil || len(want) < 1<<20 {
		t.Fatalf("control: %v, %d bytes", err, len(want))
	}
	if out, err := psql(d.port, "app", "shop", placeholder, query); err != nil || out != want {
		t.Errorf("%v, %d bytes, want %d", err, len(out), len(want))
	}
	if out, err := psql(d.port, "app", "shop", placeholder, "show application_name",
		"application_name=till"); err != nil || out != "till" {
		t.Errorf("a setting of the client: %s", out)
	}
}

func TestWhoMayComeIn(t *testing.T) {
	r := database(t)
	d := serve(t, brokered(r))
	for _, row := range []struct{ user, database, more, want string }{
		{"postgres", "shop", "", `lets this sandbox in as "app", not as "postgres"`},
		{"app", "postgres", "", `into the database "shop", not into "postgres"`},
		{"app", "shop", "replication=database", "may not replicate"},
		{"app", "shop", "replication=false", "may not replicate"},
	} {
		out, err := psql(d.port, row.user, row.database, placeholder, "select 1", row.more)
		if err == nil || !strings.Contains(out, "waldo: ") || !strings.Contains(out, row.want) {
			t.Errorf("%v: %q, want %q", row, out, row.want)
		}
	}
	if out, err := psql(d.port, "app", "shop", placeholder, "select 1"); err != nil || out != "1" {
		t.Errorf("control: %s", out)
	}
}

func TestTheServerMustBeWhoItIs(t *testing.T) {
	r := database(t)
	for why, tlsOf := range map[string]*tls.Config{
		"nobody vouches for the certificate": {ServerName: "db.example", RootCAs: x509.NewCertPool()},
		"the certificate is another host's":  {ServerName: "other.example", RootCAs: r.roots},
	} {
		b := brokered(r)
		b.TLS = tlsOf
		d := serve(t, b)
		out, err := psql(d.port, "app", "shop", placeholder, "select 1")
		if err == nil || !strings.Contains(out, "did not let waldo in") || !strings.Contains(d.said(), "certificate") {
			t.Errorf("%s: %s; %s", why, out, d.said())
		}
	}
}

// Without TLS no password leaves that could be read or tried offline, for any request of the server.
func TestNoReadablePasswordWithoutTLS(t *testing.T) {
	r := database(t)
	for _, role := range []string{"cleartext", "digest"} {
		b := brokered(r)
		b.User = role
		d := serve(t, b)
		if out, err := psql(d.port, role, "shop", placeholder, "select 1"); err != nil || out != "1" {
			t.Errorf("control: %s within TLS: %s; %s", role, out, d.said())
		}
		b = brokered(r)
		b.User, b.TLS = role, nil
		d = serve(t, b)
		if out, err := psql(d.port, role, "shop", placeholder, "select 1"); err == nil ||
			!strings.Contains(d.said(), "require_auth") {
			t.Errorf("%s without TLS: %s; %s", role, out, d.said())
		}
	}
}

func TestAPasswordMayChange(t *testing.T) {
	r := database(t)
	b := brokered(r)
	now := "wrong"
	b.Password = func() (secret.Value, error) { return secret.NewValue(now), nil }
	d := serve(t, b)
	out, err := psql(d.port, "app", "shop", placeholder, "select 1")
	if err == nil || !strings.Contains(out, "did not let waldo in") || strings.Contains(out, "authentication") {
		t.Errorf("the wrong password: %s", out)
	}
	now = "the-real-password"
	if out, err := psql(d.port, "app", "shop", placeholder, "select 1"); err != nil || out != "1" {
		t.Errorf("the next session: %s", out)
	}
	b.Password = func() (secret.Value, error) { return secret.Value{}, errors.New("no such secret") }
	if _, err := psql(d.port, "app", "shop", placeholder, "select 1"); err == nil ||
		!strings.Contains(d.said(), "no such secret") {
		t.Errorf("no password at all: %v", d.said())
	}
}

func client(t *testing.T, port int, user, password string) *pgconn.PgConn {
	t.Helper()
	c, err := pgconn.ParseConfig("host=127.0.0.1 sslmode=disable dbname=shop user=" + user + " password=" + password)
	if err != nil {
		t.Fatal(err)
	}
	c.Port = uint16(port)
	conn, err := pgconn.ConnectConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// slow runs a query that takes so many seconds and returns how it ended.
func slow(c *pgconn.PgConn, seconds int) chan error {
	ended := make(chan error, 1)
	go func() { ended <- c.Exec(context.Background(), fmt.Sprintf("select pg_sleep(%d)", seconds)).Close() }()
	time.Sleep(300 * time.Millisecond) // until it runs
	return ended
}

func TestASandboxCancelsItsOwnAlone(t *testing.T) {
	r := database(t)
	d := serve(t, brokered(r))
	mine := client(t, d.port, "app", placeholder)
	ended := slow(mine, 60)
	for over := false; !over; { // on a busy machine it may not run yet
		if err := mine.CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if over = true; err == nil || !strings.Contains(err.Error(), "canceling statement") {
				t.Errorf("control: its own query ended with %v", err)
			}
		case <-time.After(time.Second):
		}
	}
	other := client(t, r.port, "app", "the-real-password")
	ended = slow(other, 2)
	conn, err := net.Dial("tcp", mine.Conn().RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	msg := binary.BigEndian.AppendUint32(nil, 16)
	msg = binary.BigEndian.AppendUint32(msg, codeCancel)
	msg = binary.BigEndian.AppendUint32(msg, other.PID())
	if _, err := conn.Write(append(msg, other.SecretKey()...)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(conn)
	if err := <-ended; err != nil {
		t.Errorf("a sandbox cancelled the query of another: %v", err)
	}
	if !strings.Contains(d.said(), "what it began itself") {
		t.Errorf("%s", d.said())
	}
}

func TestAnErrorDoesNotCarryThePassword(t *testing.T) {
	v := secret.NewValue("the-real-password")
	if err := scrubbed(errors.New(`no user "the-real-password"`), v); strings.Contains(err.Error(), "real") {
		t.Errorf("%v", err)
	}
	if err := scrubbed(errors.New("connection refused"), v); err.Error() != "connection refused" {
		t.Errorf("control: %v", err)
	}
}

// pipe is a client whose words are all there from the start.
type pipe struct {
	net.Conn
	in  io.Reader
	out strings.Builder
}

func (p *pipe) Read(b []byte) (int, error)      { return p.in.Read(b) }
func (p *pipe) Write(b []byte) (int, error)     { return p.out.Write(b) }
func (p *pipe) SetDeadline(time.Time) error     { return nil }
func (p *pipe) SetReadDeadline(time.Time) error { return nil }
func (p *pipe) Close() error                    { return nil }

// For any first message of a client, the server is dialled only for the contract's role and database, without
// replication.
func FuzzOpen(f *testing.F) {
	start := func(params map[string]string) []byte {
		b, err := (&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: params}).Encode(nil)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add(start(map[string]string{"user": "app", "database": "shop"}))
	f.Add(start(map[string]string{"user": "app", "database": "shop", "replication": "true"}))
	f.Add([]byte("\x00\x00\x00\x08\x04\xd2\x16\x2f\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02"))
	f.Add([]byte("\xff\xff\xff\xff"))
	errDialled := errors.New("dialled")
	f.Fuzz(func(t *testing.T, b []byte) {
		dialled := false
		br := &Broker{User: "app", Database: "shop",
			Password: func() (secret.Value, error) { return secret.NewValue("x"), nil },
			Dial:     func(context.Context) (net.Conn, error) { dialled = true; return nil, errDialled }}
		c := &pipe{in: strings.NewReader(string(b))}
		s, err := br.Open(context.Background(), c)
		if s != nil || err == nil {
			t.Fatalf("%q opened a session", b)
		}
		if !dialled {
			return
		}
		i := strings.LastIndex(string(b), "user\x00app\x00")
		if i < 0 || !strings.Contains(string(b), "database\x00shop\x00") {
			t.Fatalf("%q reached the server", b)
		}
	})
}
