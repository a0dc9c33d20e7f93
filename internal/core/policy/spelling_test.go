package policy

import (
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/config"
)

// TestOneDigest: a file has one digest by whatever path it is named; another file with the same text has another.
func TestOneDigest(t *testing.T) {
	dir := t.TempDir()
	text := []byte("version: 1\ncapabilities:\n  exec: {transport: sandboxed_exec, mode: high_risk, approval: {when: \"danger > 1\"}}\n")
	for _, p := range []string{"waldo.yaml", "other/waldo.yaml"} {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o700)
		if err := os.WriteFile(filepath.Join(dir, p), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	digest := func(path string) string {
		cfg, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(cfg, Machine{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Digest()
	}
	want := digest("waldo.yaml")
	for _, path := range []string{"./waldo.yaml", "other/../waldo.yaml", filepath.Join(dir, "waldo.yaml")} {
		if got := digest(path); got != want {
			t.Errorf("%s: digest %s, want %s", path, got, want)
		}
	}
	if got := digest("other/waldo.yaml"); got == want {
		t.Error("another file has the same digest")
	}
}
