//go:build linux && (amd64 || arm64)

package namespace

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

// TestAside: writes to a folder go aside: a new file, a changed one, a removed one, and a renamed folder. The folder
// itself stays as it is. The control is the folder without Aside.
func TestAside(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	aside := t.TempDir()
	for _, d := range []string{dir + "/src", aside + "/upper", aside + "/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"a", "b", "src/c"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const script = "cd /project && echo new > a && rm b && mv src lib && echo x > n && cat a lib/c && ls"
	run := func(m sandbox.Mount) string {
		p := sandboxtest.Profile()
		p.Mounts = []sandbox.Mount{m}
		b, err := New(Options{}).Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		got, _ := shell(t, b, script)
		return got
	}
	m := sandbox.Mount{Source: dir, Target: "/project", Writable: true, Live: true, Aside: aside}
	if got := run(m); got != "new\nolda\nlib\nn" {
		t.Errorf("inside %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "old" {
		t.Errorf("the folder has %q %v", b, err)
	}
	st, err := os.Stat(filepath.Join(aside, "upper", "n"))
	if err != nil {
		t.Fatal(err)
	}
	if own, err := os.Stat(dir); err != nil || own.Sys().(*syscall.Stat_t).Uid != st.Sys().(*syscall.Stat_t).Uid {
		t.Errorf("another owner: %v %v", err, st.Sys())
	}
	m.Aside = ""
	run(m)
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "new\n" {
		t.Errorf("control: %q %v", b, err)
	}
}
