//go:build linux && (amd64 || arm64)

package namespace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/userns"
	"waldo/internal/testing/sandboxtest"
)

// TestPartIsNoLink: a file that becomes a link after waldo has looked at it does not lead a sandbox to another file of
// this machine. The control is the file itself.
func TestPartIsNoLink(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "shown")
	for at := top; at != os.TempDir() && at != "/"; at = filepath.Dir(at) { // the sandbox's user goes through it
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(top, "secret"), []byte("of this machine"), 0o644),
		os.WriteFile(filepath.Join(dir, "file"), []byte("shown"), 0o644),
		// from where PID 1 opens it, the host's root is one folder up
		os.Symlink(".."+top+"/secret", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	d := New(Options{})
	host, err := d.cgroups()
	if err != nil {
		t.Fatal(err)
	}
	machine, err := d.machine()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file": "shown", "link": ""} {
		b := &instance{driver: d, profile: sandboxtest.Profile(), host: host}
		if b.uid, b.gid, err = userns.OutsideIDs(); err != nil {
			t.Fatal(err)
		}
		s := &setup{
			profile: b.profile, uid: b.uid, gid: b.gid, counted: host.Memory(), firstTree: landlockFD + 1,
			mounts: []shown{{lower: dir, parts: []part{{name, "/workspace/input", false}}}}, files: 2, late: landlockFD + 2,
		}
		if s.filters, err = d.filtersOf(s); err != nil {
			t.Fatal(err)
		}
		err := b.launch(machine, nil, []*os.File{nil, nil}, s)
		said := ""
		if err == nil {
			said, _ = shell(t, sandbox.Sandbox(b), "cat /workspace/input 2>/dev/null")
		}
		if said != want || strings.Contains(said, "machine") || name == "file" && err != nil {
			t.Errorf("%s: %q %v", name, said, err)
		}
		_ = b.Close()
	}
}
