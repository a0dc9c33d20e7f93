//go:build linux && (amd64 || arm64)

package runner

import (
	"os"
	"path/filepath"
	"testing"
)

// TestShared: where others have the files of a session too, a Python that stays gives and takes them with
// each call, and its end puts nothing old in the place of what they have written since; without, its
// files are its own until it ends, and all stand then.
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
		cellOf(t, r, "n_1", "work", "import os\nopen('/workspace/output/old', 'w').write('2'); open('/workspace/output/mine', 'w').write('1')")
		if got := read("old") + read("mine"); got != map[bool]string{true: "21", false: "1"}[shares] {
			t.Errorf("shares %v: after a call the workspace has %q", shares, got)
		}
		write("theirs", "22")
		write("new", "1")
		out := cellOf(t, r, "n_1", "work", "print(open('/workspace/output/theirs').read(), os.path.exists('/workspace/output/new'))")
		if want := map[bool]string{true: "22 True\n", false: "1 False\n"}[shares]; out.Facts.Stdout != want {
			t.Errorf("shares %v: the next call sees %q", shares, out.Facts.Stdout)
		}
		write("theirs", "333")
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if got := read("theirs"); got != map[bool]string{true: "333", false: "1"}[shares] {
			t.Errorf("shares %v: at its end the workspace has %q", shares, got)
		}
	}
}
