package app

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/app/configfile"
	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// TestReadyPaused: a paused database makes waldo not ready within two seconds, with the reason. Nothing waits for it.
func TestReadyPaused(t *testing.T) {
	s, dir := pgtest.New(t), t.TempDir()
	file, state, url := filepath.Join(dir, "waldo.yaml"), filepath.Join(dir, "state"), s.URL("postgres", "postgres")
	if _, _, err := database.Migrate(t.Context(), state, url); err != nil {
		t.Fatal(err)
	}
	rewrite(t, file, "version: 1\nstore: {url: '"+url+"'}\n")
	h, err := New(t.Context(), Options{State: state, Source: configfile.Source{Config: file}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	if err := h.ready(t.Context()); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = h.ready(t.Context())
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "store") || took > 2*time.Second {
		t.Errorf("%v after %s", err, took)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
}
