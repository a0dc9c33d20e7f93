//go:build lint

package waldo_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// features is the list of main.
const features = "cmd/waldo/features.go"

// TestEachFeatureCanGo: the tree builds without the folder of a feature and its line in the list.
func TestEachFeatureCanGo(t *testing.T) {
	list, err := os.ReadFile(features)
	if err != nil {
		t.Fatal(err)
	}
	folders, err := os.ReadDir("internal/feature")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, d := range folders {
		if !d.IsDir() {
			continue
		}
		seen++
		t.Run(d.Name(), func(t *testing.T) {
			lines := regexp.MustCompile(`(?m)^\t("waldo/internal/feature/` + d.Name() + `"|` + d.Name() + `\.Feature,)\n`)
			if n := len(lines.FindAll(list, -1)); n != 2 {
				t.Fatalf("%s has %d lines of %s, wanted an import and an entry", features, n, d.Name())
			}
			without(t, d.Name(), lines.ReplaceAll(list, nil))
		})
	}
	if seen < 5 {
		t.Errorf("only %d features found", seen)
	}
}

// without builds the tree with another list and without the folder of a feature.
func without(t *testing.T, feature string, list []byte) {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	replaced := filepath.Join(dir, "features.go")
	overlay := map[string]string{filepath.Join(root, features): replaced}
	err = filepath.WalkDir(filepath.Join(root, "internal/feature", feature), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			overlay[p] = "" // as if it were not there
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	for name, content := range map[string][]byte{replaced: list, file: text} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"build", "-overlay", file, "./..."}, {"vet", "-overlay", file, "./cmd/waldo"}} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", args[0], err, out)
		}
	}
}
