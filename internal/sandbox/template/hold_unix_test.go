//go:build unix

package template

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file has another stamp once it was written to, also with its old size and time; one that may still be written to
// within the same tick of the clock has none.
func TestStamp(t *testing.T) {
	at := filepath.Join(t.TempDir(), "root.tar")
	if err := os.WriteFile(at, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	before, info := stamp(at, later), stat(t, at)
	if before == "" || stamp(at, later) != before {
		t.Errorf("control: %q, then %q", before, stamp(at, later))
	}
	if got := stamp(at, time.Now()); got != "" {
		t.Errorf("just written to: %q", got)
	}
	time.Sleep(50 * time.Millisecond) // some ticks
	err := errors.Join(os.WriteFile(at, []byte("behind"), 0o600), os.Chtimes(at, info.ModTime(), info.ModTime()))
	if err != nil {
		t.Fatal(err)
	}
	if now := stat(t, at); now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()) {
		t.Fatalf("control: size %d, time %v", now.Size(), now.ModTime())
	}
	if stamp(at, later) == before {
		t.Error("a changed file has the stamp that it had")
	}
}

func stat(t *testing.T, at string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
