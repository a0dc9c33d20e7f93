package cpython

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	wasi "github.com/tetratelabs/wazero/experimental/sys"
)

// folders makes a workspace, and a secret beside it to which a link leads.
func folders(t testing.TB) (w workspace, dir string) {
	t.Helper()
	dir = t.TempDir()
	f := &Files{Roots: map[string]*os.Root{}, Fixed: map[string]bool{"input": true}, Bytes: 100, Names: 3}
	for _, name := range []string{"input", "output", "tmp"} {
		at := filepath.Join(dir, name)
		err := os.Mkdir(at, 0o700)
		if err == nil {
			f.Roots[name], err = os.OpenRoot(at)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Roots[name].Close() })
	}
	err := errors.Join(os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(dir, "input", "a"), []byte("given"), 0o600),
		os.Symlink("../secret", filepath.Join(dir, "output", "link")))
	if err != nil {
		t.Fatal(err)
	}
	return workspace{late: &late{job: Job{Files: f}}}, dir
}

func read(w workspace, name string) string {
	f, errno := w.OpenFile(name, wasi.O_RDONLY, 0)
	if errno != 0 {
		return "!" + errno.Error()
	}
	defer f.Close()
	b := make([]byte, 100)
	n, _ := f.Read(b)
	return string(b[:n])
}

// TestWorkspace: permitted uses of files, each beside a refusal.
func TestWorkspace(t *testing.T) {
	w, dir := folders(t)
	if got := read(w, "input/a"); got != "given" {
		t.Error(got)
	}
	for _, name := range []string{"output/link", "output/../../secret", "../secret", "secret", "other/a", "input/none"} {
		if got := read(w, name); !strings.HasPrefix(got, "!") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, flag := range []wasi.Oflag{
		wasi.O_WRONLY, wasi.O_RDWR, wasi.O_RDONLY | wasi.O_TRUNC, wasi.O_RDONLY | wasi.O_CREAT,
	} {
		if _, errno := w.OpenFile("input/a", flag, 0o644); errno != wasi.EROFS {
			t.Errorf("%x: the input was opened for writing: %v", flag, errno)
		}
	}
	for why, errno := range map[string]wasi.Errno{
		"rename out of the input":   w.Rename("input/a", "output/a"),
		"rename into the input":     w.Rename("output/link", "input/b"),
		"removal of the input":      w.Unlink("input/a"),
		"a folder in the input":     w.Mkdir("input/d", 0o755),
		"removal of a whole folder": w.Rmdir("output"),
		"a whole folder moved":      w.Rename("tmp", "tmp/x"),
		"a link":                    w.Symlink("/etc", "output/l"),
	} {
		if errno == 0 {
			t.Error(why, "worked")
		}
	}
	f, errno := w.OpenFile("output/new", wasi.O_WRONLY|wasi.O_CREAT, 0o644)
	if errno != 0 {
		t.Fatal(errno)
	}
	if n, errno := f.Write(make([]byte, 90)); n != 90 || errno != 0 {
		t.Error("90 of 100 bytes are written:", n, errno)
	}
	if _, errno := f.Write(make([]byte, 20)); errno == 0 {
		t.Error("more than the limit was written")
	}
	if _, errno := f.Pwrite(make([]byte, 20), 0); errno == 0 {
		t.Error("more than the limit was written, at a place")
	}
	if errno := f.Truncate(1 << 30); errno == 0 {
		t.Error("a file was made longer than the limit")
	}
	_ = f.Close()
	if errno := errors.Join(errnoOf(w.Mkdir("tmp/a", 0o755)), errnoOf(w.Mkdir("tmp/b", 0o755))); errno != nil {
		t.Error("three names are made:", errno)
	}
	if w.Mkdir("tmp/c", 0o755) == 0 {
		t.Error("a fourth name was made")
	}
	if text, err := os.ReadFile(filepath.Join(dir, "secret")); string(text) != "secret" {
		t.Error(string(text), err)
	}
}

func errnoOf(e wasi.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// FuzzNames: a program with any name reads and changes files of its workspace alone.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"output/link", "output/../../secret", "../secret", "tmp//x", ".workspace/link", "./output/./link/", "",
	} {
		f.Add(name, uint32(0))
		f.Add(name, uint32(wasi.O_RDWR|wasi.O_CREAT|wasi.O_TRUNC))
	}
	f.Fuzz(func(t *testing.T, name string, flag uint32) {
		w, dir := folders(t)
		if file, errno := w.OpenFile(name, wasi.Oflag(flag), 0o666); errno == 0 {
			b := make([]byte, 100)
			n, _ := file.Read(b)
			if bytes.Contains(b[:n], []byte("secret")) {
				t.Errorf("%q shows the secret", name)
			}
			_, _ = file.Write([]byte("x"))
			_ = file.Close()
		}
		_, _ = w.Stat(name)
		_ = w.Rename(name, "output/moved")
		_ = w.Unlink(name)
		_ = w.Mkdir(name, 0o755)
		if text, err := os.ReadFile(filepath.Join(dir, "secret")); string(text) != "secret" {
			t.Errorf("%q changed the secret: %q %v", name, text, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "input", "a")); string(text) != "given" {
			t.Errorf("%q changed the input: %q %v", name, text, err)
		}
		if all, _ := os.ReadDir(dir); len(all) != 4 {
			t.Errorf("%q made a file outside: %v", name, all)
		}
	})
}
