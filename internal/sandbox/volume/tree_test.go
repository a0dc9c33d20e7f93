//go:build linux

package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpenBeneath: no entry of a tree that a sandbox wrote leads outside it. In each row the flag alone causes
// the refusal.
func TestOpenBeneath(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(dir, "in"), 0o755),
		os.WriteFile(filepath.Join(dir, "in", "file"), nil, 0o600),
		os.Symlink("in", filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		why, from, name string
		want            error
	}{
		{"a file (control)", dir, "in/file", nil},
		{"the folder above", filepath.Join(dir, "in"), "../in/file", unix.EXDEV},
		{"a link on the way, although it leads inside", dir, "link/file", unix.ELOOP},
		{"a link at the end", dir, "link", unix.ELOOP},
		{"another filesystem", "/", "proc", unix.EXDEV},
		{"a pipe that nobody writes to", dir, "pipe", nil},
	} {
		d, err := os.Open(r.from)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			fd, err := openBeneath(int(d.Fd()), r.name, unix.O_RDONLY)
			if err == nil {
				err = unix.Close(fd)
			}
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, r.want) {
				t.Errorf("%s: %v, want %v", r.why, err, r.want)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: still waiting", r.why)
		}
		d.Close()
	}
}

// TestCopyIsBounded: a copy never exceeds its limit in bytes, and files that fit are copied.
func TestCopyIsBounded(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, size := range map[string]int{"a": 6, "b": 5, "c": 4} {
		if err := os.WriteFile(filepath.Join(from, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(dir string) *os.File {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	copied, err := CopyTree(open(from), open(to), 10, nil)
	if err == nil || !strings.Contains(err.Error(), "b: 5 bytes, and only 4 more may be copied") ||
		!slices.Equal(copied, []string{"a", "c"}) {
		t.Errorf("copied %q: %v", copied, err)
	}
}

// TestCopyOpensFewFolders: the copy of many folders holds those open that lead to one entry, and no others. All
// files are in it, each in its own folder.
func TestCopyOpensFewFolders(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	want := 0
	for _, dir := range []string{"a/b/c", "a/b2", "z"} {
		for i := range 40 {
			at := filepath.Join(from, dir, strconv.Itoa(i))
			if err := errors.Join(os.MkdirAll(at, 0o755),
				os.WriteFile(filepath.Join(at, "file"), []byte(at[len(from):]), 0o600)); err != nil {
				t.Fatal(err)
			}
			want++
		}
	}
	opened := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	source, err1 := os.Open(from)
	sink, err2 := os.Open(to)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	defer sink.Close()
	before, most := opened(), 0
	copied, err := CopyTree(source, sink, 1<<20, func(f func() error) error {
		err := f()
		most = max(most, opened()-before)
		return err
	})
	if err != nil || len(copied) != want {
		t.Fatalf("control: copied %d files, want %d: %v", len(copied), want, err)
	}
	for _, name := range copied {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != "/"+filepath.Dir(name) {
			t.Errorf("%s holds %q: %v", name, got, err)
		}
	}
	if most > 16 { // four folders of each tree, and the files on their way
		t.Errorf("%d descriptors were open at once", most)
	}
	if left := opened(); left != before {
		t.Errorf("%d descriptors are open, %d before", left, before)
	}
}
