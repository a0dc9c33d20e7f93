package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/app"
	"waldo/internal/core/redact"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// TestDoctor: a server that waits for its disk is sound. One with fsync or full_page_writes off is not.
func TestDoctor(t *testing.T) {
	for _, c := range []struct{ settings, alter, want string }{
		{"fsync=on", "", ""},
		{"fsync=on", "ALTER SYSTEM SET full_page_writes = off", "it runs with full_page_writes = off"},
		{"fsync=off", "", "it runs with fsync = off"},
	} {
		s := pgtest.New(t, c.settings)
		if c.alter != "" {
			if err := errors.Join(s.SQL("postgres", c.alter), s.Kill(), s.Restart()); err != nil {
				t.Fatal(err)
			}
		}
		state := filepath.Join(t.TempDir(), "state")
		if _, _, err := database.Migrate(t.Context(), state, s.URL("postgres", "postgres")); err != nil {
			t.Fatal(err)
		}
		got := doctor(t.Context(), app.Place{State: state, Known: &redact.Registry{}})
		if len(got) != 2 || got[0].OK != (c.want == "") || !strings.Contains(got[0].What, c.want) || got[0].OK != (got[0].Hint == "") {
			t.Errorf("%s, %s: %+v", c.settings, c.alter, got)
		}
		cfg := &contract.Config{}
		for _, key := range []secret.Ref{"", "k"} {
			cfg.StoreKey = key
			got := doctor(t.Context(), app.Place{State: state, Config: cfg, Known: &redact.Registry{}})
			if len(got) != 2 || got[1].Name != "store.key" || got[1].OK != (key != "") || got[1].Need {
				t.Errorf("with the key %q: %+v", key, got)
			}
		}
		s.Stop()
	}
	if got := doctor(t.Context(), app.Place{State: t.TempDir(), Known: &redact.Registry{}}); len(got) != 0 {
		t.Errorf("without PostgreSQL: %+v", got)
	}
}
