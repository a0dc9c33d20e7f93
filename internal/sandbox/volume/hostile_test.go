//go:build linux

package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
)

// opened opens a folder for the time of the test.
func opened(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// exchanging exchanges two names of a folder as fast as it can until the test ends, as code in a live
// sandbox does.
func exchanging(t *testing.T, dir *os.File, a, b string) {
	t.Helper()
	var over atomic.Bool
	done := make(chan error, 1)
	go func() {
		for !over.Load() {
			if err := unix.Renameat2(int(dir.Fd()), a, int(dir.Fd()), b, unix.RENAME_EXCHANGE); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	t.Cleanup(func() {
		over.Store(true)
		if err := <-done; err != nil {
			t.Errorf("exchanging %s and %s: %v", a, b, err)
		}
	})
}

// within fails the test when f takes longer than a minute, which here means for ever.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: still waiting", what)
	}
}

// TestNoModeOutside: giving an entry its owner's rights changes the mode of nothing that it is exchanged for.
func TestNoModeOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	mode := func() os.FileMode {
		st, err := os.Stat(outside)
		if err != nil {
			t.Fatal(err)
		}
		return st.Mode()
	}
	dir := t.TempDir()
	err := errors.Join(os.WriteFile(outside, nil, 0o400), os.Symlink(outside, filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0))
	if err != nil {
		t.Fatal(err)
	}
	d := opened(t, dir)
	if err := unix.Fchmodat(int(d.Fd()), "link", 0o440, 0); err != nil || mode() != 0o440 {
		t.Fatalf("control: by its name a link changes what it leads to: %v %v", err, mode())
	}
	if _, err := openClosed(int(d.Fd()), "link", unix.S_IFREG); !errors.Is(err, errKind) {
		t.Errorf("a link: %v", err)
	}
	fd, err := openClosed(int(d.Fd()), "file", unix.S_IFREG)
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	unix.Close(fd)
	if st, err := os.Stat(filepath.Join(dir, "file")); err != nil || st.Mode() != 0o600 {
		t.Fatalf("control: %v %v", err, st)
	}
	exchanging(t, d, "file", "link")
	opens, refused := 0, 0
	for end := time.Now().Add(time.Second); time.Now().Before(end) || opens == 0 || refused == 0; {
		if fd, err := openClosed(int(d.Fd()), "file", unix.S_IFREG); err == nil {
			opens++
			unix.Close(fd)
		} else {
			refused++
		}
		if mode() != 0o440 {
			t.Fatalf("the file outside has mode %v after %d opens and %d refusals", mode(), opens, refused)
		}
	}
}

// TestNoPipeForAFile: an entry that was a file at its stat, and is a pipe with a writer when it is opened, is
// not read.
func TestNoPipeForAFile(t *testing.T) {
	sb, host := t.TempDir(), t.TempDir()
	write(t, sb, "file", strings.Repeat("x", 5000))
	if err := unix.Mkfifo(filepath.Join(sb, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(filepath.Join(sb, "pipe"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	from, to := opened(t, sb), opened(t, host)
	e := Entry{Path: "file", dir: int(from.Fd())}
	if err := unix.Fstatat(e.dir, "file", &e.Stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	c := &copier{left: 1 << 20, create: func(f func() error) error { return f() }}
	if err := c.file(int(to.Fd()), e); err != nil || holds(t, host) != "file=xxxxxxxxxx" {
		t.Fatalf("control: %v", err)
	}
	if err := unix.Renameat2(e.dir, "file", e.dir, "pipe", unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	within(t, "a pipe in the place of a file", func() {
		if err := c.file(int(to.Fd()), e); !errors.Is(err, errKind) {
			t.Errorf("a pipe in the place of a file: %v", err)
		}
	})
	exchanging(t, from, "file", "pipe")
	within(t, "copying while they are exchanged", func() {
		for range 300 {
			if _, err := CopyTree(from, to, 1<<20, nil); err != nil && !strings.Contains(err.Error(), errKind.Error()) {
				t.Errorf("copying while they are exchanged: %v", err)
			}
		}
	})
}

// deep makes n folders one in the other, with a file in each, and names of 250 bytes.
func deep(t *testing.T, dir string, n int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for i := range n {
		if err != nil {
			t.Fatalf("folder %d: %v", i, err)
		}
		fd, ferr := unix.Openat(at, "f"+strings.Repeat("x", 249), unix.O_CREAT|unix.O_WRONLY, 0o600)
		name := strings.Repeat("d", 250)
		err = errors.Join(ferr, unix.Close(fd), unix.Mkdirat(at, name, 0o700))
		next, oerr := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(at)
		at, err = next, errors.Join(err, oerr)
	}
	unix.Close(at)
}

// TestWalkIsBounded: neither the paths nor the errors about them take more memory than waldo gives them.
func TestWalkIsBounded(t *testing.T) {
	dir := t.TempDir()
	deep(t, dir, 30)
	files, longest := 0, 0
	err := Walk(opened(t, dir), func(e Entry) bool {
		if e.Regular() {
			files++
		}
		longest = max(longest, len(e.Path))
		return true
	})
	if files != 16 || longest > maxPath || !errors.Is(err, errLong) { // 16 paths of 251 bytes are 4016
		t.Errorf("%d files, the longest path has %d bytes: %v", files, longest, err)
	}
	flat := t.TempDir()
	for i := range 100 {
		write(t, flat, fmt.Sprintf("name%06d", i), "1")
	}
	for _, r := range []struct{ names, files int }{{100 * 11, 100}, {100*11 - 1, 99}, {0, 0}} {
		files = 0
		err := walk(opened(t, flat), r.names, func(Entry) bool { files++; return true })
		if files != r.files || errors.Is(err, errNames) != (r.files < 100) {
			t.Errorf("%d bytes of names: %d files: %v", r.names, files, err)
		}
	}
	var f faults
	for range 1000 {
		f.add("copy", strings.Repeat("x", maxPath), io.EOF)
	}
	if text := f.err().Error(); len(text) > 10_000 || !strings.HasSuffix(text, "\n984 more") {
		t.Errorf("%d bytes that end with %q", len(text), text[max(0, len(text)-20):])
	}
}

// TestScanIsBounded: a State holds a number of entries and of bytes, and says that it is partial.
func TestScanIsBounded(t *testing.T) {
	look := func(dir string) (State, facts.Facts) {
		p := Volume{Tmpfs: sandbox.Tmpfs{Target: "/out", Export: true}, Dir: opened(t, dir)}
		s, f := Scan([]Volume{p}), facts.New()
		s.Changed(&f, State{})
		return s, f
	}
	size := func(l []string) (n int) {
		for _, s := range l {
			n += len(s)
		}
		return n
	}
	few := t.TempDir()
	write(t, few, "a/b", "1")
	if s, f := look(few); len(s.Files) != 1 || f.Files.Partial || len(f.Warnings) != 0 {
		t.Errorf("control: %+v %v", s, f.Warnings)
	}
	many := t.TempDir()
	for i := range maxSeen + 10 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, f := look(many); len(s.Files) != maxSeen || !f.Files.Partial || len(f.Warnings) != 1 {
		t.Errorf("many: %d files, partial %v, %v", len(s.Files), f.Files.Partial, f.Warnings)
	}
	long := t.TempDir()
	deep(t, long, 15)
	at := filepath.Join(long, strings.Repeat(strings.Repeat("d", 250)+"/", 15))
	for i := range 400 {
		if err := os.WriteFile(filepath.Join(at, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, f := look(long); size(f.Files.Written) > maxSeenNames || len(s.Files) < 200 || len(s.Files) > 300 ||
		!f.Files.Partial {
		t.Errorf("long: %d files, %d bytes, partial %v", len(s.Files), size(f.Files.Written), f.Files.Partial)
	}
	odd := t.TempDir()
	for i := range 1000 {
		if err := os.Symlink("x", filepath.Join(odd, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if s, f := look(odd); len(s.Unexportable) != maxUnexportable+1 ||
		!strings.Contains(f.Warnings[maxUnexportable], "950 more") {
		t.Errorf("odd: %d lines, %q", len(s.Unexportable), f.Warnings[len(f.Warnings)-1])
	}
}
