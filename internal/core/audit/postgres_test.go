package audit

import (
	"testing"

	"waldo/internal/testing/pgtest"
)

// TestPostgres runs the tests about heads and races on PostgreSQL.
func TestPostgres(t *testing.T) {
	pgtest.Again(t, "^Test(OpenHoldsTheHead|Head|Tampering|TwoProcessesOneYes|Processes|Witness|Beginning|SetAside|ChainGoesOn)",
		"^TestTampering$/^the_head_in_waldo.db_is_removed$") // there each reading refuses it: database.ErrBack
}
