package effects

import (
	"testing"

	"waldo/internal/testing/pgtest"
)

// TestPostgres runs the tests of this package on PostgreSQL.
func TestPostgres(t *testing.T) { pgtest.Again(t, ".", "^$") }
