//go:build unix

package agenthosts

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func put(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // independent of the umask
		t.Fatal(err)
	}
	return path
}

func got(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t *testing.T, path, project string) *File {
	t.Helper()
	f, err := Open(path, project)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A file is replaced whole, with its mode and owner, and nothing is left beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := put(t, filepath.Join(dir, "a.json"), "old", 0o640)
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 1234, 4321); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := os.Stat(path)
	if err := open(t, path, "").Replace([]byte("new")); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(path)
	if got(t, path) != "new" || after.Mode() != before.Mode() || ownerOf(after) != ownerOf(before) {
		t.Errorf("%s %v %v, was %v %v", got(t, path), after.Mode(), ownerOf(after), before.Mode(), ownerOf(before))
	}
	if os.SameFile(before, after) {
		t.Error("it was written in place: a crash would leave half of it")
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left beside it: %v", names)
	}
	fresh := filepath.Join(dir, "x", "y", "b.json")
	if err := open(t, fresh, "").Replace([]byte("new")); err != nil || got(t, fresh) != "new" {
		t.Errorf("a file in a folder that was not there: %v", err)
	}
	if st, _ := os.Stat(fresh); st.Mode().Perm() != 0o600 {
		t.Errorf("a new file of the person's own: %v", st.Mode())
	}
}

// A change by another writer between read and write is not lost.
func TestReplaceSeesAnotherWriter(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "a"), "old", 0o600)
	f := open(t, path, "")
	put(t, path, "the host's own", 0o600)
	if err := f.Replace([]byte("new")); err == nil || got(t, path) != "the host's own" {
		t.Errorf("%v, %q", err, got(t, path))
	}
	if err := f.Remove(); err == nil || got(t, path) != "the host's own" {
		t.Errorf("removed: %v", err)
	}
	gone := open(t, filepath.Join(t.TempDir(), "b"), "")
	put(t, gone.Path, "made meanwhile", 0o600)
	if err := gone.Replace([]byte("new")); err == nil || got(t, gone.Path) != "made meanwhile" {
		t.Errorf("%v, %q", err, got(t, gone.Path))
	}
}

// The person's own links are followed and stay links; a project's lead nowhere.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	outside := put(t, filepath.Join(dir, "outside", "secret.json"), "{}", 0o600)
	project := filepath.Join(dir, "project")
	put(t, filepath.Join(project, "real.json"), "{}", 0o644)
	for link, to := range map[string]string{
		"file.json": outside, "inside.json": "real.json", "folder": filepath.Dir(outside),
		"dangling.json": filepath.Join(dir, "nowhere"),
	} {
		if err := os.Symlink(to, filepath.Join(project, link)); err != nil {
			t.Fatal(err)
		}
	}
	mine := open(t, filepath.Join(project, "file.json"), "") // the control: as the person's own it is followed
	if err := mine.Replace([]byte("changed")); err != nil || got(t, outside) != "changed" {
		t.Fatalf("control: %v", err)
	}
	if st, err := os.Lstat(filepath.Join(project, "file.json")); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	for name, want := range map[string]string{
		"file.json": "a project's links are not followed", "inside.json": "a project's links are not followed",
		"folder/secret.json": "path escapes from parent",
	} {
		if _, err := Open(filepath.Join(project, name), project); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: wanted %q, got %v", name, want, err)
		}
	}
	if _, err := Open(filepath.Join(project, "dangling.json"), ""); err == nil ||
		!strings.Contains(err.Error(), "a link to a file that is not there") {
		t.Errorf("a dangling link: %v", err)
	}
	f := open(t, filepath.Join(project, "folder2", "new.json"), project)
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(project, "folder2")); err != nil {
		t.Fatal(err)
	}
	if err := f.Replace([]byte("x")); err == nil {
		t.Error("a folder that became a link was followed out of the project")
	}
}

// A pipe or a device is refused at once, without waiting for a writer.
func TestOddFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", t.TempDir()} {
		done := make(chan error, 1)
		go func() { _, err := Open(path, ""); done <- err }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: still waiting", path)
		}
	}
}

// Undo gives every byte back; where the file has changed since, it takes back only what was done.
func TestLedger(t *testing.T) {
	h, _ := Find("claude")
	l := Ledger{Dir: filepath.Join(t.TempDir(), "ledger")}
	before := "{\n  \"a\": 1,\n  \"mcpServers\": {\"x\": {\"command\": \"c\", \"env\": {\"K\": \"v\"}}}\n}"
	after, err := h.Put("f", []byte(before), "waldo", entry(t, h))
	if err != nil {
		t.Fatal(err)
	}
	if after, err = h.Take("f", after, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Keep(Change{Path: "/f", Server: "waldo", Existed: true, Before: []byte(before), Removed: []string{"x"}},
		after); err != nil {
		t.Fatal(err)
	}
	c, err := l.Last("/f")
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	if st, _ := os.Stat(c.File()); st.Mode().Perm() != 0o600 {
		t.Errorf("others can read what may hold secrets: %v", st.Mode())
	}
	if text, exact, err := c.Undone(h, after); err != nil || !exact || string(text) != before {
		t.Errorf("%v %v\n%s", exact, err, text)
	}
	changed := strings.Replace(string(after), `"a": 1`, `"a": 2`, 1)
	text, exact, err := c.Undone(h, []byte(changed))
	if err != nil || exact {
		t.Fatalf("%v %v", exact, err)
	}
	want, _ := Parse(JSON, "f", []byte(strings.Replace(before, `"a": 1`, `"a": 2`, 1)))
	if v, err := Parse(JSON, "f", text); err != nil || !same(v, want) {
		t.Errorf("%v\n%s", err, text)
	}
	// A second change of the same text is merged with the first.
	if _, err := l.Keep(Change{Path: "/f", Server: "waldo", Existed: true, Before: after}, []byte("third")); err != nil {
		t.Fatal(err)
	}
	if c, err = l.Last("/f"); err != nil || string(c.Before) != before {
		t.Errorf("%v %s", err, c.Before)
	}
	if err := l.Forget(c); err != nil {
		t.Fatal(err)
	}
	if c, err = l.Last("/f"); c != nil || err != nil {
		t.Errorf("%+v %v", c, err)
	}
}

// Diff shows the changed lines and no others.
func TestDiff(t *testing.T) {
	diff := Diff([]byte("same\nold\nkept\nlast\n"), []byte("same\nnew\x1b[2J\nmore\nkept\nlast\nadded"))
	if want := "-   2 old|+   2 new\\u001b[2J|+   3 more|+   6 added"; strings.Join(diff, "|") != want {
		t.Errorf("%q", diff)
	}
	if d := Diff([]byte("a\n"), []byte("a\n")); d != nil {
		t.Errorf("%q", d)
	}
}
