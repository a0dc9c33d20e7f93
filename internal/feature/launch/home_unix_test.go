//go:build unix

package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBrokenSeeds: a seeded file that a session made into something else starts anew, and is not waited for.
func TestBrokenSeeds(t *testing.T) {
	for what, leave := range map[string]func(at string) error{
		"control": func(at string) error { return os.WriteFile(at, []byte(`{"own": 1}`), 0o600) },
		"pipe":    func(at string) error { return unix.Mkfifo(at, 0o600) },
		"folder":  func(at string) error { return os.Mkdir(at, 0o700) },
		"long": func(at string) error {
			return os.WriteFile(at, []byte(`{"own": "`+strings.Repeat("x", maxSettings)+`"}`), 0o600)
		},
	} {
		dir := t.TempDir()
		if err := leave(filepath.Join(dir, "s.json")); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		b, err := home{}.seeded(root, "s.json", Seed{Merge: `{"ours": 1}`})
		own, ours := strings.Contains(string(b), `"own"`), strings.Contains(string(b), `"ours"`)
		if err != nil || !ours || own != (what == "control") {
			t.Errorf("%s: %.80s %v", what, b, err)
		}
		root.Close()
	}
}
