package pkgcache

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func keep(t *testing.T, s *Cache, url, text string, length int64) {
	t.Helper()
	b := s.Keep(url, io.NopCloser(strings.NewReader(text)), length)
	if got, err := io.ReadAll(b); err != nil || string(got) != text || b.Close() != nil {
		t.Fatalf("%q %v", got, err)
	}
}

func has(s *Cache, url, text string) bool {
	f, n, ok := s.Get(url)
	if !ok {
		return false
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return err == nil && string(b) == text && n == int64(len(text))
}

func TestPackageCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	s, err := Open(dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, "u", "whole", 5)
	if !has(s, "u", "whole") || has(s, "v", "whole") {
		t.Error("what was kept is not what is there")
	}
	keep(t, s, "cut", "whole", 6)
	keep(t, s, "long", "whole", 4)
	keep(t, s, "large", strings.Repeat("x", 26), 26)
	keep(t, s, "unknown", "whole", -1)
	b := s.Keep("left", io.NopCloser(strings.NewReader("whole")), 5)
	if _, err := io.ReadFull(b, make([]byte, 2)); err != nil || b.Close() != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"cut", "long", "large", "unknown", "left"} {
		if _, _, ok := s.Get(u); ok {
			t.Errorf("%s was kept", u)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

// A stored file that was changed is not served, and is removed.
func TestAChangedFile(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, "u", "whole", 5)
	name, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(name) != 1 || !has(s, "u", "whole") {
		t.Fatalf("control: %q", name)
	}
	if err := os.WriteFile(name[0], []byte("evil!"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := s.Get("u"); ok {
		t.Error("a changed file was served")
	}
	if _, err := os.Stat(name[0]); err == nil {
		t.Error("a changed file stayed")
	}
}

func TestItIsBounded(t *testing.T) {
	s, err := Open(t.TempDir(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		keep(t, s, u, strings.Repeat(u, 20), 20)
	}
	n := 0
	for _, u := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		if has(s, u, strings.Repeat(u, 20)) {
			n++
		}
	}
	if n != 5 || !has(s, "g", strings.Repeat("g", 20)) {
		t.Errorf("%d are kept", n)
	}
}

// TestFilesInTheMakingCount: the bound holds while files are fetched, and one URL is stored once at a time.
func TestFilesInTheMakingCount(t *testing.T) {
	const most = 1 << 20
	dir := t.TempDir()
	s, err := Open(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, "old", strings.Repeat("o", most/4), most/4)
	part := func(url string) io.ReadCloser {
		b := s.Keep(url, io.NopCloser(strings.NewReader(strings.Repeat("x", most/4))), most/4)
		_, _ = io.CopyN(io.Discard, b, most/4-1)
		return b
	}
	onDisk := func() (sum int64, files int) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if i, err := e.Info(); err == nil {
				sum, files = sum+i.Size(), files+1
			}
		}
		return sum, files
	}
	var all []io.ReadCloser
	for range 20 {
		all = append(all, part("one"))
	}
	if sum, files := onDisk(); files != 2 || sum > most {
		t.Errorf("one URL 20 times: %d bytes in %d files", sum, files)
	}
	for n := range 20 {
		all = append(all, part(string(rune('a'+n))))
	}
	if sum, _ := onDisk(); sum > most {
		t.Errorf("21 URLs: %d bytes, the bound is %d", sum, most)
	}
	if _, _, ok := s.Get("old"); ok {
		t.Error("control: an old file stays beside a full set of new ones")
	}
	for _, b := range all {
		_ = b.Close()
	}
	keep(t, s, "again", "whole", 5)
	if !has(s, "again", "whole") {
		t.Error("control: after all were closed nothing is stored")
	}
}

// TestOneDigest: a file that nobody has written since is hashed once, however often it is served.
func TestOneDigest(t *testing.T) {
	s, err := Open(t.TempDir(), 100)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, "u", "whole", 5)
	before := hashed.Load()
	for range 10 {
		if !has(s, "u", "whole") {
			t.Fatal("it is not served")
		}
	}
	if n := hashed.Load() - before; n != 1 && (runtime.GOOS == "linux" || n != 10) {
		t.Errorf("it was hashed %d times", n)
	}
}
