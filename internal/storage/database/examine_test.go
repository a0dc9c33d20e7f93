package database

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestExamine: a schema of a later waldo is found without a change, and a state directory without a database is sound.
func TestExamine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if there, err := Examine(t.Context(), dir); there || err != nil {
		t.Errorf("control: no state directory: %t %v", there, err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if there, err := Examine(t.Context(), dir); there || err != nil {
		t.Errorf("control: no database: %t %v", there, err)
	}
	if err := s.Put(t.Context(), "b", "n", "v"); err != nil {
		t.Fatal(err)
	}
	if there, err := Examine(t.Context(), dir); !there || err != nil {
		t.Errorf("control: %t %v", there, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := migrations
	defer func() { migrations = all }()
	migrations = all[:len(all)-1]
	there, err := Examine(t.Context(), dir)
	if !there || err == nil || !strings.Contains(err.Error(), "use a waldo whose") {
		t.Errorf("a later schema: %t %v", there, err)
	}
}
