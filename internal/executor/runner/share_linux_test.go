//go:build linux && (amd64 || arm64)

package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestShared: a resident Python syncs its files with its session at each call. Its end never overwrites newer files
// from other writers with old ones.
func TestShared(t *testing.T) {
	for _, shares := range []bool{true, false} {
		r, files := staying(t)
		r.Shares = shares
		at := func(name string) string { return filepath.Join(files, "output", name) }
		write := func(name, text string) {
			t.Helper()
			if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read := func(name string) string {
			b, _ := os.ReadFile(at(name))
			return string(b)
		}
		if err := os.MkdirAll(at(""), 0o700); err != nil {
			t.Fatal(err)
		}
		write("old", "1")
		write("theirs", "1")
		out := cellOf(t, r, "n_1", "work",
			"import os\nopen('/workspace/output/old', 'w').write('2'); open('/workspace/output/mine', 'w').write('1')")
		if got := read("old") + read("mine"); got != "21" {
			t.Errorf("shares %v: after a call the workspace has %q", shares, got)
		}
		if got := strings.Join(slices.Concat(out.Facts.Files.Artifacts, out.Facts.Files.Written), " "); got != "output/mine "+
			"output/old /workspace/output/mine /workspace/output/old" {
			t.Errorf("shares %v: the call is told to have written %s", shares, got)
		}
		write("theirs", "22")
		write("new", "1")
		out = cellOf(t, r, "n_1", "work",
			"print(open('/workspace/output/theirs').read(), os.path.exists('/workspace/output/new')); "+
				"os.remove('/workspace/output/old')")
		if out.Facts.Stdout != "22 True\n" || len(out.Facts.Files.Artifacts) != 0 {
			t.Errorf("shares %v: the next call sees %q, and gave %q", shares, out.Facts.Stdout, out.Facts.Files.Artifacts)
		}
		write("theirs", "333")
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if got := read("theirs") + read("old"); got != "333" {
			t.Errorf("shares %v: at its end the workspace has %q", shares, got)
		}
	}
}
