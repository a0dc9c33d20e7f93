package main

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/storage/database"
)

// TestStoreReport: doctor reports a database of a later waldo as one that this waldo cannot use.
func TestStoreReport(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	s, err := database.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, there := storeReport(t.Context(), state); there {
		t.Error("control: there is no database")
	}
	if err := s.Put(t.Context(), "b", "n", "v"); err != nil {
		t.Fatal(err)
	}
	if r, there := storeReport(t.Context(), state); !there || !r.OK {
		t.Errorf("control: %+v", r)
	}
	err = s.Update(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO migrations (version, at) VALUES ($1, '')`, database.Schema()+1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r, there := storeReport(t.Context(), state)
	if !there || r.OK || !strings.Contains(r.Abilities[0].What, "the schema has version") {
		t.Errorf("%+v", r)
	}
}
