package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/model/contract"
)

// TestPlaces: a path that the configuration opens is refused once it leads elsewhere, and where it is too much.
func TestPlaces(t *testing.T) {
	dir, away := resolved(t.TempDir()), resolved(t.TempDir())
	for _, name := range []string{"docs", "deep/in", "home/.ssh", "home/work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	at := contract.Position{File: filepath.Join(dir, "waldo.yaml")}
	cfg := &contract.Config{File: at.File, Contracts: []contract.Contract{
		{Pattern: "files.read", At: at, Root: "./docs"}, {Pattern: "run_python", At: at, Input: "deep/in", Template: "./later"},
	}, Servers: map[string]contract.Server{"s": {Name: "s", At: at, Mounts: []contract.Mount{{From: "docs", At: at}}}}}
	cfg.Places = Places(cfg)
	m := Machine{Homes: []string{filepath.Join(dir, "home")}}.For(cfg)
	refused := func(name string) bool {
		_, err := m.Place(at, name)
		var f Fault
		return errors.As(err, &f) && f.Refused
	}
	for _, name := range []string{"docs", "deep/in", "home/work"} {
		if real, err := m.Place(at, name); err != nil || real != filepath.Join(dir, name) {
			t.Errorf("control %s: %s %v", name, real, err)
		}
	}
	for _, name := range []string{"home", "home/.ssh", "/etc", "/", "/proc/self"} {
		if !refused(name) {
			t.Errorf("%s is taken", name)
		}
	}
	for _, x := range []struct{ link, name string }{{"docs", "docs"}, {"deep", "deep/in"}, {"later", "later"}} {
		path := filepath.Join(dir, x.link)
		if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(away, "in"), 0o700), os.Symlink(away, path)); err != nil {
			t.Fatal(err)
		}
		if !refused(x.name) {
			t.Errorf("%s is taken by a link", x.name)
		}
		if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(dir, x.name), 0o700)); err != nil {
			t.Fatal(err)
		}
		if refused(x.name) {
			t.Errorf("%s is refused, and is as it was", x.name)
		}
	}
	if faults := m.Opened(cfg); len(faults) > 0 {
		t.Errorf("control: %v", faults)
	}
	cfg.Contracts[0].Root, cfg.Contracts[1].Input = "home/.ssh", "home"
	if faults := m.Opened(cfg); len(faults) != 2 {
		t.Errorf("a home and its keys: %v", faults)
	}
}
