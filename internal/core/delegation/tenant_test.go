package delegation_test

import (
	"testing"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// TestAcrossTenants: no authority is handed down from one tenant to another.
func TestAcrossTenants(t *testing.T) {
	w := newWorld(t)
	r := wide()
	r.Allow = []contract.Pattern{"local.read_*"}
	for _, row := range []struct {
		to   call.Principal
		code string
	}{{"acme/token:b", ""}, {"beta/token:c", "delegation.tenant"},
		{"token:c", "delegation.tenant"}} {
		r.For = row.to
		_, _, against, err := w.Delegate(t.Context(), "", "acme/token:a", r)
		if err != nil || (against == nil) != (row.code == "") || against != nil && against.Code != row.code {
			t.Errorf("to %s: %v %v", row.to, against, err)
		}
	}
}
