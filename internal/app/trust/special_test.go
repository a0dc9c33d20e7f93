//go:build unix

package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/model/contract"
)

// TestReplaced: a trusted file that another kind of file replaces is refused, as is one behind a changed link.
func TestReplaced(t *testing.T) {
	pipe := func(t *testing.T, path string) {
		if err := syscall.Mkfifo(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Symlink(to, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	gone := "%s is gone, and was trusted with %[2]s: bring it back, or run: waldo trust %[2]s"
	other := "%s is not the program that was trusted with %[2]s: read it, then run: waldo trust %[2]s"
	for _, x := range []struct {
		name  string
		argv  []string
		file  string // that is replaced
		by    func(t *testing.T, path string)
		named string // below the folder, in the error
		want  string
	}{
		{"nothing", []string{"sh", "./x.sh"}, "x.sh", func(*testing.T, string) {}, "x.sh", gone},
		{"a pipe", []string{"sh", "./x.sh"}, "x.sh", pipe, "x.sh", gone},
		{"its own input", []string{"sh", "./x.sh"}, "x.sh", link("/dev/null"), "x.sh", gone},
		{"a folder", []string{"python3", "./x.py"}, "x.py", func(t *testing.T, path string) {
			put(t, filepath.Join(path, "data"), "")
		}, "x.py", gone},
		{"a link to another file", []string{"sh", "./x.sh"}, "x.sh", link("/etc/passwd"), "x.sh", other},
		{"a link to elsewhere by another", []string{"sh", "./out.sh"}, "out.sh", link("/etc/passwd"), "out.sh", other},
	} {
		t.Run(x.name, func(t *testing.T) {
			state, cfg, path := project(t, "x.sh", server(x.argv...))
			dir, evil := filepath.Dir(path), t.TempDir()
			put(t, filepath.Join(dir, "x.py"), "")
			put(t, filepath.Join(dir, "a", "b"), "")
			put(t, filepath.Join(evil, "x.sh"), "evil")
			put(t, filepath.Join(evil, "sub", "b"), "")
			if err := os.Symlink(evil, filepath.Join(dir, "EVIL")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(evil, "x.sh"), filepath.Join(dir, "out.sh")); err != nil {
				t.Fatal(err)
			}
			keep(t, state, cfg)
			if refused := starts(t, state, cfg); len(refused) > 0 {
				t.Fatalf("control: %s", refused)
			}
			if err := os.RemoveAll(filepath.Join(dir, x.file)); err != nil {
				t.Fatal(err)
			}
			x.by(t, filepath.Join(dir, x.file))
			want := "server o: " + fmt.Sprintf(x.want, dir+"/"+x.named, cfg.File)
			if refused := starts(t, state, cfg); len(refused) != 1 || refused[0] != want {
				t.Errorf("%q, want %q", refused, want)
			}
		})
	}
}

// TestSpecial: no digest covers a pipe or a device, so a configuration that names one is not trusted.
func TestSpecial(t *testing.T) {
	for _, x := range []struct {
		name string
		make func(path string) error
		want string // empty: it is trusted
	}{
		{"a pipe", func(path string) error { return syscall.Mkfifo(path, 0o700) }, "is a pipe or a device"},
		{"a device", func(path string) error { return os.Symlink("/dev/zero", path) }, "is a pipe or a device"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }, ""},
		{"a link to itself", func(path string) error { return os.Symlink(path, path) }, ""},
		{"nothing", func(string) error { return nil }, ""},
	} {
		for _, change := range []func(*contract.Config){
			server("sh", "./pipe"),
			func(c *contract.Config) { c.Approval.Notify = []string{"sh", "--init-file=./pipe"} },
		} {
			state, cfg, path := project(t, "other", change)
			if err := x.make(filepath.Join(filepath.Dir(path), "pipe")); err != nil {
				t.Fatal(err)
			}
			_, err := Programs(state, cfg)
			if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("%s: %v, want %q", x.name, err, x.want)
			}
		}
	}
	// A program that PATH finds, and a digest by itself: neither waits for a writer.
	state, cfg, path := project(t, "bin/other", server("pipe"))
	pipe := filepath.Join(filepath.Dir(path), "pipe")
	if err := syscall.Mkfifo(pipe, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(path))
	done := make(chan [2]error, 1)
	go func() {
		_, found := Programs(state, cfg)
		_, single := Digest(pipe)
		done <- [2]error{found, single}
	}()
	select {
	case refused := <-done:
		for _, err := range refused {
			if err == nil || !strings.Contains(err.Error(), pipe+" is a pipe or a device") {
				t.Errorf("%v", err)
			}
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a digest waits for a writer")
	}
}
