package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/audit"
	"waldo/internal/storage/database"
)

// waldo prune removes what log.keep does not keep, and the log is sound afterwards; without log.keep it stays.
func TestPruneCommand(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	s, err := database.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(-200 * 24 * time.Hour)
	o := app.LogOptions(s)
	o.SegmentAge, o.Now = 9*24*time.Hour, func() time.Time { return now }
	l, err := audit.Open(context.Background(), s.Path("log"), o)
	if err != nil {
		t.Fatal(err)
	}
	for range 199 {
		now = now.Add(24 * time.Hour)
		if _, err := l.Append(context.Background(), "day", []byte(`{}`), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	waldo := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := run(append([]string{"--state", state}, args...), strings.NewReader(""), &out, &out)
		return code, out.String()
	}
	config := filepath.Join(dir, "waldo.yaml")
	for text, want := range map[string]string{
		"version: 1\n": "every record is kept", "log: {keep: 250d}\n": "no whole segment is older",
	} {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, said := waldo("--config", config, "prune"); code != 0 || !strings.Contains(said, want) {
			t.Fatalf("control: %d %s", code, said)
		}
	}
	if err := os.WriteFile(config, []byte("log: {keep: 90d}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said := waldo("--config", config, "prune", "--dry-run"); code != 0 ||
		!strings.Contains(said, "would remove 12 segments") {
		t.Fatal(code, said)
	}
	if code, said := waldo("log", "verify"); code != 0 || !strings.Contains(said, "\nsound: 2") {
		t.Fatal("a dry run removed something: ", code, said)
	}
	if code, said := waldo("--config", config, "prune"); code != 0 || !strings.Contains(said, "removed 12 segments") {
		t.Fatal(code, said)
	}
	if code, said := waldo("--config", config, "log", "verify"); code != 0 || !strings.Contains(said, "were pruned at") {
		t.Fatal(code, said)
	}
	if code, said := waldo("log", "verify"); code != exitcode.Usage || !strings.Contains(said, "(prune.unchecked)") {
		t.Fatal("without the configuration: ", code, said)
	}
	if err := os.WriteFile(config, []byte("log: {keep: 250d}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said := waldo("--config", config, "log", "verify"); code != exitcode.Problems ||
		!strings.Contains(said, "(prune.early)") {
		t.Fatal("a longer retention: ", code, said)
	}
	if code, said := waldo("log"); code != 0 || !strings.Contains(said, "pruned ") {
		t.Fatal(code, said)
	}
	if code, said := waldo("du"); code != 0 || !strings.Contains(said, "audit log") || !strings.Contains(said, "total") {
		t.Fatal(code, said)
	}
}
