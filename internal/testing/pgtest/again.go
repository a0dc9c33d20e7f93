package pgtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// variable holds the URL of the server in tests that Again runs.
const variable = "WALDO_TEST_STORE"

// New starts a server for a test, until its end. Without PostgreSQL on this machine the test is skipped.
func New(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := Start(settings...)
	if errors.Is(err, ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Again runs the tests of a package that match run, and do not match skip, once more: their state directories have
// their rows in PostgreSQL. The test that calls it is skipped there.
func Again(t *testing.T, run, skip string) {
	t.Helper()
	if os.Getenv(variable) != "" {
		t.Skip("the tests run on PostgreSQL now")
	}
	s := New(t)
	c := exec.Command(os.Args[0], "-test.run", run, "-test.skip", skip+"|^"+t.Name()+"$", "-test.v", "-test.timeout", "5m")
	c.Env = append(os.Environ(), variable+"="+s.URL("postgres", "postgres"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%d tests on PostgreSQL\n%s", strings.Count(string(out), "\n--- PASS"), out)
	if !strings.Contains(string(out), "\n--- PASS") {
		t.Fatalf("no test ran:\n%s", out)
	}
}

// Place returns the URL for the rows of a state directory, a schema of its own; empty: the test runs on SQLite.
func Place(t testing.TB, dir string) string {
	t.Helper()
	url := os.Getenv(variable)
	if url == "" {
		return ""
	}
	schema := fmt.Sprintf("s%x", sha256.Sum256([]byte(dir)))[:20]
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
	one := "SELECT pg_advisory_xact_lock(1); CREATE SCHEMA IF NOT EXISTS " + schema // two at once would collide
	out, err := exec.Command(found[len(found)-1], url, "-qc", one).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return url + "&search_path=" + schema
}
