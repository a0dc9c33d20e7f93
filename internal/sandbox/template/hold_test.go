package template

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bigTar is an archive of a root filesystem with one file of n bytes.
func bigTar(t *testing.T, n int64) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "root.tar")
	f, err := os.Create(at)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	err = errors.Join(w.WriteHeader(&tar.Header{Name: "usr/", Typeflag: tar.TypeDir, Mode: 0o755}),
		w.WriteHeader(&tar.Header{Name: "usr/big", Typeflag: tar.TypeReg, Mode: 0o644, Size: n}))
	if err == nil {
		_, err = io.CopyN(w, zeros{}, n)
	}
	if err := errors.Join(err, w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return at
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// counted calls f with the count so far.
type counted struct {
	n int64
	f func(n int64)
}

func (c *counted) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.f(c.n)
	return len(p), nil
}

func (c *counted) Close() error { return nil }

// Ctrl-C ends the reading and the unpacking of an archive, and leaves nothing.
func TestCancelledArchive(t *testing.T) {
	const size = 64 << 20
	at := bigTar(t, size)
	for _, work := range []string{"none", "reading", "unpacking"} {
		s := roomy(t)
		ctx, cancel := context.WithCancel(t.Context())
		var after int64
		s.Progress = func(what string, _ int64) io.WriteCloser {
			return &counted{f: func(n int64) {
				if strings.HasPrefix(what, work) && n > size/4 {
					cancel()
					after = n
				}
			}}
		}
		_, err := s.Find(ctx, at, false)
		cancel()
		if work == "none" {
			if err != nil {
				t.Errorf("control: %v", err)
			}
			continue
		}
		if !errors.Is(err, context.Canceled) || after > size/2 {
			t.Errorf("cancelled while %s: %v, and %d of %d bytes were read", work, err, after, size)
		}
		left, _ := filepath.Glob(filepath.Join(s.dir, half+"*"))
		if all, _ := s.List(); len(left) > 0 || len(all) > 0 {
			t.Errorf("cancelled while %s: %v and %v are left", work, left, all)
		}
	}
}

// Templates that a dead process was making are removed at the next start; those of a living process stay.
func TestSweepHalfMade(t *testing.T) {
	dir := t.TempDir()
	at, release, err := begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, held := range []bool{true, false} {
		if !held {
			release() // as the system does when the process ends
		}
		if _, err := Open(dir, Defaults()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(at); (err == nil) != held {
			t.Errorf("held %v: %v", held, err)
		}
	}
}

// An archive is read once, until it changes, also where its size and its time are what they were.
func TestArchiveReadOnce(t *testing.T) {
	at := bigTar(t, 1<<20)
	s := roomy(t)
	reads := 0
	s.Progress = func(what string, _ int64) io.WriteCloser {
		if strings.HasPrefix(what, "reading") {
			reads++
		}
		return uncounted{io.Discard}
	}
	find := func(fresh bool) Template {
		t.Helper()
		got, err := s.Find(t.Context(), at, fresh)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	find(false) // too soon after it was written to be remembered
	time.Sleep(settled + 200*time.Millisecond)
	first := find(false)
	if before := reads; find(false).Digest != first.Digest || reads != before || before != 2 {
		t.Errorf("read %d times, then %d", before, reads)
	}
	if before := reads; find(true).Digest != first.Digest || reads != before+1 {
		t.Errorf("waldo template pull did not read it")
	}
	info, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(at, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("x"), 4096)
	if err := errors.Join(err, f.Close(), os.Chtimes(at, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
	if find(false).Digest == first.Digest {
		t.Error("a changed archive was taken for what it was")
	}
}

// roomy is a store with the bounds of a machine.
func roomy(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "templates"), Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
