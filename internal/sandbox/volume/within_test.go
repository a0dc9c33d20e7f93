//go:build linux

package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"waldo/internal/sandbox"
)

// TestPlaceWithin: volumes inside an exported volume are neither compared nor copied with it.
func TestPlaceWithin(t *testing.T) {
	from := t.TempDir()
	for _, name := range []string{"input/a", "kept/input/b", "c"} {
		at := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, row := range []struct {
		except, want []string
	}{
		{nil, []string{"c", "input/a", "kept/input/b"}},
		{[]string{"input"}, []string{"c", "kept/input/b"}},
	} {
		p := Volume{Tmpfs: sandbox.Tmpfs{Target: "/w", Bytes: 1 << 20, Inodes: 100, Export: true, Except: row.except},
			Dir: dir}
		copied, err := Export([]Volume{p}, "/w", t.TempDir())
		if err != nil || !slices.Equal(copied, row.want) {
			t.Errorf("without %v copied %v: %v", row.except, copied, err)
		}
		var looked []string
		for name := range Scan([]Volume{p}).Files {
			looked = append(looked, name[len("/w/"):])
		}
		if slices.Sort(looked); !slices.Equal(looked, row.want) {
			t.Errorf("without %v looked at %v", row.except, looked)
		}
	}
}
