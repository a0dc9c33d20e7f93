package database

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCopyBeforeAMigration: a database of an earlier version is copied, then migrated; one of a later version is
// refused, with the version that is needed.
func TestCopyBeforeAMigration(t *testing.T) {
	dir, all := t.TempDir(), migrations
	defer func() { migrations = all }()
	migrations = all[:len(all)-1]
	write := func() error {
		s, err := Open(dir)
		if err != nil {
			return err
		}
		if err = s.Put(t.Context(), "b", "n", "kept"); err != nil {
			_ = s.Close()
			return err
		}
		return s.Close()
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "waldo.db.v*")); len(found) != 0 {
		t.Errorf("control: a new database was copied: %v", found)
	}
	migrations = all
	for range 2 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	found, _ := filepath.Glob(filepath.Join(dir, "waldo.db.v*"))
	if len(found) != 1 {
		t.Fatalf("copies: %v", found)
	}
	if info, err := os.Stat(found[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy: %v %v", info, err)
	}
	old := t.TempDir()
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, "waldo.db"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	migrations = all[:len(all)-1] // the waldo of before takes the copy, and not the migrated database
	s, err := Open(old)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, ok, err := s.Get(context.Background(), "b", "n"); err != nil || !ok || v != "kept" {
		t.Errorf("the copy holds %q %v %v", v, ok, err)
	}
	if err := write(); err == nil || !strings.Contains(err.Error(), "says schema") {
		t.Errorf("a newer database: %v", err)
	}
}
