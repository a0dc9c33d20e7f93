package protect

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestModes: what a run planted is found and removed for an ordinary user, whatever modes the run gave to folders.
func TestModes(t *testing.T) {
	if os.Getuid() == 0 { // root reads whatever the modes say
		asNobody(t)
		return
	}
	dir := t.TempDir()
	for _, f := range []string{"h/n/.git/hooks/post-commit", ".claude/settings.json", ".vscode/tasks.json", "p/.envrc"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"h": 0o311, ".claude": 0o555, ".vscode": 0, "p": 0o555} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.ReadDir(filepath.Join(dir, "h")); err == nil {
		t.Fatal("control: the folder can be read")
	}
	defer func() { _ = os.Chmod(filepath.Join(dir, "h"), 0o755) }() // for the end of the test
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	rules, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	found, err := rules.Appeared(root, nil)
	if err != nil || len(found) != 4 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, f := range found {
		if err := Remove(root, f.Path); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "p")); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("the folder has another mode now: %v, %v", info, err)
	}
}

// asNobody runs the test in a process of an ordinary user.
func asNobody(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "modes")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test"), self, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(filepath.Join(dir, "test"), "-test.run=^TestModes$", "-test.v")
	child.Dir, child.Env = dir, []string{"TMPDIR=" + dir, "HOME=" + dir}
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
