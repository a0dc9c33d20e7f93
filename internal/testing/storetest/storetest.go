// Package storetest opens stores for tests that run on SQLite and, under pgtest.Again, on PostgreSQL. Only tests import
// it.
package storetest

import (
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// Open opens the store of a state directory. The caller closes it.
func Open(t testing.TB, dir string) (*database.Store, error) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(dir, database.PlaceFile)); err != nil {
		if url := pgtest.Place(t, dir); url != "" {
			if _, _, err := database.Migrate(t.Context(), dir, url); err != nil {
				return nil, err
			}
		}
	}
	return database.Open(dir)
}
