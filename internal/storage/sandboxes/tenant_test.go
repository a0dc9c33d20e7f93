package sandboxes

import (
	"errors"
	"testing"
)

// TestOwnersOfTenants: a sandbox exists for its owner alone, also where one owner's spelling begins as another's.
func TestOwnersOfTenants(t *testing.T) {
	m, _ := again(t, t.TempDir())
	owners := []string{"acme/oidc:ann", "beta/oidc:ann", "oidc:ann", "acme/oidc:ann/x", "acme"}
	for _, owner := range owners {
		create(t, m, owner, "box")
	}
	for _, owner := range owners {
		all, err := m.List(t.Context(), owner)
		if err != nil || len(all) != 1 || all[0].Owner != owner {
			t.Fatalf("%s has %v %v", owner, all, err)
		}
		for _, other := range owners {
			s, err := m.Get(t.Context(), other, all[0].ID)
			if (err == nil) != (other == owner) || err == nil && s.ID != all[0].ID || err != nil && !errors.Is(err, ErrAbsent) {
				t.Errorf("%s gets the one of %s: %v", other, owner, err)
			}
		}
	}
	for owner, name := range map[string]string{"acme/oidc:ann": "x/box", "acme": "oidc:ann/box"} {
		if s, err := m.Get(t.Context(), owner, name); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s gets %s: of %s", owner, name, s.Owner)
		}
	}
}
