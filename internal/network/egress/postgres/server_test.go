package postgres

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// real is a PostgreSQL of the tests' own: Debian's, on loopback, with TLS. Who may come in, and how,
// is in its pg_hba.conf below.
type real struct {
	port  int
	roots *x509.CertPool
	cert  tls.Certificate
}

const hba = `
local   all all                    trust
hostssl all cleartext 127.0.0.1/32 password
host    all cleartext 127.0.0.1/32 password
host    all digest    127.0.0.1/32 md5
host    all all       127.0.0.1/32 scram-sha-256
`

var (
	once    sync.Once
	one     *real
	whyNone error
	halt    = func() {}
)

func TestMain(m *testing.M) {
	code := m.Run()
	halt()
	os.Exit(code)
}

// database starts the server for the first test that needs it.
func database(t *testing.T) *real {
	t.Helper()
	once.Do(func() { one, whyNone = boot() })
	if whyNone != nil {
		t.Fatalf("PostgreSQL does not start, scripts/setup.sh installs it: %v", whyNone)
	}
	return one
}

func boot() (*real, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return nil, fmt.Errorf("no /usr/lib/postgresql/*/bin/initdb")
	}
	bin := filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "waldo-postgres-")
	if err != nil {
		return nil, err
	}
	halt = func() { os.RemoveAll(dir) }
	r := &real{}
	certificate, key, err := r.certify()
	if err != nil {
		return nil, err
	}
	owner := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		owner.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			return nil, err
		}
	}
	run := func(stdin, name string, args ...string) error {
		c := exec.Command(filepath.Join(bin, name), args...)
		c.SysProcAttr, c.Stdin, c.Dir, c.Env = owner, strings.NewReader(stdin), dir,
			[]string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, out)
		}
		return nil
	}
	data := filepath.Join(dir, "data")
	if err := run("", "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-instructions"); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	conf := fmt.Sprintf("port=%d\nlisten_addresses='127.0.0.1'\nunix_socket_directories='%s'\nfsync=off\nssl=on\n"+
		"max_connections=30\nshared_buffers=16MB\n", r.port, dir)
	for name, text := range map[string]string{
		"postgresql.auto.conf": conf, "pg_hba.conf": hba, "server.crt": certificate, "server.key": key,
	} {
		if err := write(filepath.Join(data, name), text); err != nil {
			return nil, err
		}
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data)
	said := &bytes.Buffer{}
	server.SysProcAttr, server.Dir, server.Stderr, server.Env = owner, dir, said, []string{"LC_ALL=C"}
	if err := server.Start(); err != nil {
		return nil, err
	}
	halt = func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
		os.RemoveAll(dir)
	}
	const people = `SET password_encryption='scram-sha-256'; CREATE ROLE app LOGIN PASSWORD 'the-real-password'; CREATE ROLE cleartext LOGIN PASSWORD 'the-real-password';
SET password_encryption='md5'; CREATE ROLE digest LOGIN PASSWORD 'the-real-password'; `
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := run(people, "psql", "-h", dir, "-p", strconv.Itoa(r.port), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-q")
		if err == nil {
			return r, run("CREATE DATABASE shop", "psql", "-h", dir, "-p", strconv.Itoa(r.port), "-U", "postgres", "-q")
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%w; the server says %s", err, said)
		}
	}
}

// write writes a file as the folder's owner with mode 0600.
func write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		return os.Chown(path, 65534, 65534)
	}
	return nil
}

// certify makes a certificate for db.example and 127.0.0.1 that vouches for itself.
func (r *real) certify() (certificate, key string, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "db.example"}, DNSNames: []string{"db.example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		return "", "", err
	}
	b, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return "", "", err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return "", "", err
	}
	r.roots = x509.NewCertPool()
	r.roots.AddCert(c)
	r.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})), nil
}

func (r *real) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)))
}

// desk stands where a sandbox would reach the database: it opens a session for each connection and
// carries the bytes.
type desk struct {
	port   int
	mu     sync.Mutex
	errors []error
}

func serve(t *testing.T, b *Broker) *desk {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d := &desk{port: l.Addr().(*net.TCPAddr).Port}
	b.Told = d.note
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go d.carry(b, conn)
		}
	}()
	return d
}

func (d *desk) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errors = append(d.errors, err)
}

func (d *desk) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.errors)
}

func (d *desk) carry(b *Broker, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := b.Open(ctx, conn)
	if err != nil {
		d.note(err)
	}
	if s == nil {
		return
	}
	defer s.Close()
	go func() { _, _ = io.Copy(s.Server, s.Sandbox); _ = s.Server.Close() }()
	_, _ = io.Copy(s.Sandbox, s.Server)
}

// psql runs a query as a program in a sandbox would, with the password that stands in its environment.
func psql(port int, user, database, password, query string, more ...string) (string, error) {
	settings := fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s connect_timeout=10 %s", port, user, database,
		strings.Join(more, " "))
	c := exec.Command("psql", settings, "-X", "-A", "-t", "-c", query)
	c.Env = []string{"PGPASSWORD=" + password, "HOME=/nonexistent", "PATH=/usr/bin:/bin", "LC_ALL=C"}
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
