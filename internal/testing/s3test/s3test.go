// Package s3test starts an S3 server of a test's own: versitygw over a temporary folder, at a port of loopback. Only
// tests import it.
package s3test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"waldo/internal/testing/repo"
)

// The key of every server.
const (
	ID     = "waldo-test-key"
	Secret = "waldo-test-secret-0123456789"
	Bucket = "audit"
)

// Server is a running server with one empty bucket.
type Server struct {
	Endpoint string
	Folder   string // of the bucket's objects
}

// Start starts a server that ends with the test, or skips the test.
func Start(t *testing.T) Server {
	t.Helper()
	program, found := repo.Cache(t, "s3", "versitygw")
	if !found {
		t.Skip("no S3 server: make s3 builds it, and runs these tests")
	}
	dir := t.TempDir()
	s := Server{Folder: filepath.Join(dir, Bucket)}
	if err := os.Mkdir(s.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.Endpoint = "http://" + at
	c := exec.Command(program, "--quiet", "--port", at, "--access", ID, "--secret", Secret, "posix", "--sidecar", t.TempDir(), dir)
	c.Env, c.Stdout, c.Stderr = []string{"PATH=/usr/bin:/bin"}, os.Stderr, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(s.Endpoint) //nolint:noctx // it is on loopback
		if err == nil {
			_ = r.Body.Close()
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatal("the server ended: ", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatal(fmt.Errorf("the server does not answer: %w", err))
		}
	}
}
