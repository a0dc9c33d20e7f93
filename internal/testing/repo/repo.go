// Package repo finds the folder of this repository for tests.
package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Root is the folder of the repository: the one with go.mod, at or above the test's working directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, ok := Find()
	if !ok {
		t.Fatal("no go.mod at or above the working directory")
	}
	return dir
}

// Find is Root for tests that also run elsewhere, as an ordinary user: there it finds none.
func Find() (dir string, ok bool) {
	at, err := os.Getwd()
	for ; err == nil; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, true
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return "", false
}

// Cache is a path in .cache, where the scripts put what tests need, and whether something is there.
func Cache(t testing.TB, parts ...string) (path string, found bool) {
	t.Helper()
	path = filepath.Join(append([]string{Root(t), ".cache"}, parts...)...)
	_, err := os.Stat(path)
	return path, err == nil
}

// Packages returns Node and the node_modules of a folder of .cache that has npm packages. Where one of them or Node is
// missing, the test fails in CI, and is skipped elsewhere.
func Packages(t testing.TB, folder string, names ...string) (node, modules string) {
	t.Helper()
	node, err := exec.LookPath("node")
	modules, _ = Cache(t, folder, "node_modules")
	for _, name := range names {
		if _, found := Cache(t, folder, "node_modules", filepath.FromSlash(name)); err == nil && found {
			continue
		}
		why := "Node or the npm package " + name + " is not installed: run scripts/setup-npm.sh " + folder
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return node, modules
}
