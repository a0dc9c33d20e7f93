package pkginstall

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/protocol/strictjson"
)

// Sweep deletes packages that were unused for long, and nothing else. A package that is used at that moment stays.
func TestSweep(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	month := 30 * 24 * time.Hour
	lock, err := strictjson.Parse([]byte(`{"packages":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	pinned := &Pin{Lock: lock}
	make := func(name string, age time.Duration) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "index.js"), []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(at, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	digest := func(c string) string { return strings.Repeat(c, 64) }
	named := filepath.Base((&Installer{Dir: dir}).folder(pinned))
	make(digest("a"), 2*month) // unused
	make(digest("b"), month/2) // another configuration's, which was started from lately
	make(named, 2*month)       // in our lock
	make("notes", 2*month)
	make(".new-1", 48*time.Hour)
	make(".seed-2", time.Hour) // an install under way
	make(".gone-"+digest("c"), 2*month)
	if err := os.Symlink(dir, filepath.Join(dir, digest("d"))); err != nil {
		t.Fatal(err)
	}
	gone, err := Sweep(dir, now, now.Add(-month), []*Pin{pinned})
	slices.Sort(gone)
	if want := []string{".gone-" + digest("c"), ".new-1", digest("a")}; err != nil || !slices.Equal(gone, want) {
		t.Errorf("swept %v %v", gone, err)
	}
	for _, name := range []string{digest("b"), named, "notes", ".seed-2", digest("d")} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	make(digest("e"), 2*month)
	make(digest("f"), 2*month)
	gone, err = sweep(dir, now, now.Add(-month), func(folder string) {
		if filepath.Base(folder) == digest("e") {
			if err := use(folder, now); err != nil { // a server starts from it
				t.Error(err)
			}
		}
	})
	if err != nil || !slices.Equal(gone, []string{digest("f")}) {
		t.Errorf("while a server starts: %v %v", gone, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, digest("e"), "index.js")); err != nil || string(b) != "1" {
		t.Errorf("the package of the server that starts: %q %v", b, err)
	}
	if gone, err := Sweep(filepath.Join(dir, "none"), now, now, []*Pin{pinned}); err != nil || len(gone) != 0 {
		t.Errorf("where there are none: %v %v", gone, err)
	}
}

// A package that a server was started from stays, also if another lock names it. A swept package is installed again.
func TestAStartedPackageStays(t *testing.T) {
	i, f, p, w := accepted(t)
	month := 30 * 24 * time.Hour
	for _, started := range []bool{true, false} {
		old := time.Now().Add(-2 * month)
		if err := os.Chtimes(i.folder(p), old, old); err != nil {
			t.Fatal(err)
		}
		if started {
			if _, _, err := i.Open(t.Context(), p, w, ""); err != nil {
				t.Fatal(err)
			}
		}
		gone, err := Sweep(i.Dir, time.Now(), time.Now().Add(-month), nil)
		if err != nil || len(gone) == 1 == started {
			t.Errorf("started %v: swept %v %v", started, gone, err)
		}
	}
	before := len(f.jobs)
	if _, _, err := i.Open(t.Context(), p, w, ""); err != nil || len(f.jobs) == before {
		t.Errorf("once swept: %v, installed by %d jobs", err, len(f.jobs)-before)
	}
}
