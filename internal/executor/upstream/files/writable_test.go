package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/model/contract"
)

// project makes a folder with a configuration and returns a server with a writable mount of it.
func project(t *testing.T, from string) (dir string, s contract.Server) {
	t.Helper()
	dir = resolved(t.TempDir())
	for _, name := range []string{"work", "work/.git/hooks", "work/src"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"work/waldo.yaml", "work/.git/config", "work/src/a.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := contract.Position{File: filepath.Join(dir, "work", "waldo.yaml"), Line: 3}
	return dir, contract.Server{Name: "s", At: at, Command: []string{"/bin/true"},
		Mounts: []contract.Mount{{Target: "/project", From: from, Writable: true, At: at}}}
}

// TestWritable: in a writable folder, names that make other programs run something are read-only. A folder that
// connects with this machine is refused.
func TestWritable(t *testing.T) {
	_, s := project(t, ".")
	shown, faults := Machine{}.mounts(s)
	if len(faults) != 0 || len(shown) != 1 || !shown[0].Writable ||
		!slices.Equal(shown[0].Sealed, []string{"waldo.yaml", ".git"}) {
		t.Fatalf("control: %+v %v", shown, faults)
	}
	for _, row := range []struct {
		name, from, want string
		change           func(dir string) error
	}{
		{"the folder above the configuration", "..", "could exchange the folder of its own contract", nil},
		{"a file", "src/a.go", "is not a folder", nil},
		{"hooks behind a link", ".", "a link cannot be kept", func(dir string) error {
			return errors.Join(os.Rename(dir+"/work/.git", dir+"/git"), os.Symlink(dir+"/git", dir+"/work/.git"))
		}},
		{"a socket in it", ".", "connects with programs", func(dir string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Bind(fd, &unix.SockaddrUnix{Name: dir + "/work/src/s"})
		}},
		{"a pipe in it", ".", "connects with programs", func(dir string) error {
			return unix.Mkfifo(dir+"/work/src/p", 0o600)
		}},
		{"a device in it", ".", "connects with programs", func(dir string) error {
			if os.Geteuid() != 0 { // only root makes one: a pipe stands for it
				return unix.Mkfifo(dir+"/work/src/d", 0o600)
			}
			return unix.Mknod(dir+"/work/src/d", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
		}},
	} {
		dir, s := project(t, row.from)
		if row.change != nil {
			if err := row.change(dir); err != nil {
				t.Fatal(row.name, err)
			}
		}
		shown, faults := Machine{}.mounts(s)
		if len(shown) != 0 || len(faults) != 1 || !faults[0].Refused || !strings.Contains(faults[0].Text, row.want) {
			t.Errorf("%s: %+v %v", row.name, shown, faults)
		}
	}
}

// TestLedger: a file written to a writable folder is reported once, also if its times are set back.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Open([]Mount{{Source: "/nonexistent", Target: "/ro"}, {Source: dir, Target: "/project", Writable: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	written := func(want ...string) {
		t.Helper()
		if got, err := l.Written(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q %v, wanted %q", got, err, want)
		}
	}
	written()
	st, err := os.Stat(old)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(old, []byte("2"), 0o644), os.Chtimes(old, st.ModTime(), st.ModTime()),
		os.Mkdir(dir+"/sub", 0o755),
		os.WriteFile(dir+"/sub/new", nil, 0o644), os.Symlink("/etc", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	written("/project/old", "/project/sub/new")
	written()
	for i := range maxLooked + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := l.Written(); !errors.Is(err, ErrMany) || len(got) > maxLooked {
		t.Errorf("%d names, %v", len(got), err)
	}
	if l, err := Open([]Mount{{Source: dir, Target: "/ro"}}); l != nil || err != nil {
		t.Errorf("nothing is writable: %v %v", l, err)
	}
}
