package audit

import (
	"testing"

	"waldo/internal/testing/pgtest"
)

// TestPostgres runs the tests about heads and races on PostgreSQL.
func TestPostgres(t *testing.T) {
	pgtest.Again(t, "^Test(OpenHoldsTheHead|Head|Tampering|TwoProcessesOneYes|Processes|Witness|Beginning|SetAside|ChainGoesOn)", "^$")
}
