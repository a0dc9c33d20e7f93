package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/grant"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// keeping is a folder with waldo's state, which keeps what calls replace.
type keeping struct {
	t           *testing.T
	root, state string
	tools       direct.Executor
}

func newKeeping(t *testing.T, in map[string]string) keeping {
	state := t.TempDir()
	return keeping{t, folder(t, in), state, direct.New(Tools(state, files.Machine{}, admit.Own(), nil)...)}
}

// use makes a call and returns its id, its outcome and its text.
func (k keeping) use(name string, args m) (string, call.Outcome, string) {
	k.t.Helper()
	a, err := call.ArgsOf(args)
	if err != nil {
		k.t.Fatal(err)
	}
	d := decision(k.root, name, a)
	d.Call.ID = id.New(id.Call)
	g, why := grant.Issue(d, nil, a)
	if why != nil {
		k.t.Fatal(why)
	}
	out, err := k.tools.Execute(k.t.Context(), g)
	if err != nil {
		k.t.Fatal(err)
	}
	out.Release()
	return d.Call.ID, out, text(out.Content)
}

// undoes undoes a call, which must succeed, and checks that it is undone once.
func (k keeping) undoes(callID, want string) {
	k.t.Helper()
	if _, out, got := k.use("files.restore", m{"id": callID}); out.Facts.Status != facts.OK || got != want+"\n" {
		k.t.Errorf("undo: %s, %q, want %q", out.Facts.Status, got, want)
	}
	if _, out, got := k.use("files.restore", m{"id": callID}); out.Facts.Status == facts.OK || got != errNoChange.Error() {
		k.t.Errorf("undone twice: %s, %q", out.Facts.Status, got)
	}
}

// Each change is undone once, and the outcome of the call says what undoes it.
func TestUndoChanges(t *testing.T) {
	k := newKeeping(t, map[string]string{"a.txt": "one\n", "d/b.txt": "b\n", "to/x": ""})
	for _, row := range []struct {
		name         string
		args         m
		file, before string // before: "absent" for none
		undone       string
	}{
		{"files.write", m{"path": "a.txt", "content": "two"}, "a.txt", "one\n", "restored a.txt"},
		{"files.write", m{"path": "a.txt", "content": "two", "append": true}, "a.txt", "one\n", "restored a.txt"},
		{"files.write", m{"path": "new/n.txt", "content": "n"}, "new/n.txt", "absent",
			"removed new/n.txt, which the call made"},
		{"files.edit", m{"path": "a.txt", "old": "on", "new": "ON"}, "a.txt", "one\n", "restored a.txt"},
		{"files.move", m{"from": "a.txt", "to": "to/c.txt"}, "to/c.txt", "absent", "moved to/c.txt back to a.txt"},
		{"files.move", m{"from": "d", "to": "e"}, "e/b.txt", "absent", "moved e back to d"},
		{"files.delete", m{"path": "d", "recursive": true}, "d/b.txt", "b\n", "restored d"},
	} {
		t.Run(row.name+" "+row.file, func(t *testing.T) {
			k.t = t
			callID, out, got := k.use(row.name, row.args)
			if out.Facts.Status != facts.OK || out.Undo == nil || out.Undo.By != "files.restore" ||
				string(out.Undo.Args.Raw()) != fmt.Sprintf(`{"id":%q}`, callID) {
				t.Fatalf("%s %q, undo %v", out.Facts.Status, got, out.Undo)
			}
			if b, err := os.ReadFile(filepath.Join(k.root, row.file)); row.before == string(b) && err == nil {
				t.Fatal("control: nothing changed")
			}
			k.undoes(callID, row.undone)
			b, err := os.ReadFile(filepath.Join(k.root, row.file))
			if row.before == "absent" != os.IsNotExist(err) || err == nil && string(b) != row.before {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	k.t = t
	if _, out, _ := k.use("files.write", m{"path": "a.txt", "content": "x", "new": true}); out.Undo != nil {
		t.Error("a call that failed can be undone")
	}
	if _, out, _ := k.use("files.read", m{"path": "a.txt"}); out.Undo != nil {
		t.Error("a call that read can be undone")
	}
}

// writes returns what writes a file below a folder.
func writes(name, text string) func(root string) error {
	return func(root string) error { return os.WriteFile(filepath.Join(root, name), []byte(text), 0o600) }
}

// An undo is refused where the file is not as the call left it, also by a link or through one.
func TestUndoRefused(t *testing.T) {
	for _, row := range []struct {
		name, tool string
		args       m
		since      func(root string) error
		want       string
	}{
		{"other content", "files.write", m{"path": "d/a", "content": "new"},
			writes("d/a", "neW"), "d/a: " + errSince.Error()},
		{"gone", "files.write", m{"path": "d/a", "content": "new"},
			func(r string) error { return os.Remove(filepath.Join(r, "d/a")) },
			"d/a: " + plain(fs.ErrNotExist)},
		{"a link with the same content", "files.write", m{"path": "d/a", "content": "same"}, func(r string) error {
			_ = os.Remove(filepath.Join(r, "d/a"))
			return os.Symlink("../same", filepath.Join(r, "d/a"))
		}, "d/a: " + errSince.Error()},
		{"a folder became a link", "files.write", m{"path": "d/a", "content": "new"}, func(r string) error {
			_ = os.Rename(filepath.Join(r, "d"), filepath.Join(r, "d2"))
			return os.Symlink("d2", filepath.Join(r, "d"))
		}, "d/a: " + errLinkSince.Error()},
		{"a new file with more", "files.write", m{"path": "n", "content": "new"},
			writes("n", "new, and more"), "n: " + errSince.Error()},
		{"moved, then changed", "files.move", m{"from": "d/a", "to": "d/b"},
			writes("d/b", "x"), "d/b: " + errSince.Error()},
		{"moved, and its old name is used", "files.move", m{"from": "d/a", "to": "d/b"},
			writes("d/a", "x"), "d/a: it exists already"},
		{"moved, and its old folder is a link", "files.move", m{"from": "d/a", "to": "b"}, func(r string) error {
			_ = os.Rename(filepath.Join(r, "d"), filepath.Join(r, "d2"))
			return os.Symlink("d2", filepath.Join(r, "d"))
		}, "d/a: " + errLinkSince.Error()},
		{"moved, and its old folder leads outside", "files.move", m{"from": "d/a", "to": "b"}, func(r string) error {
			_ = os.RemoveAll(filepath.Join(r, "d"))
			return os.Symlink("/tmp", filepath.Join(r, "d"))
		}, "d/a: " + errOutside.Error()},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := newKeeping(t, map[string]string{"d/a": "old", "same": "same"})
			callID, out, got := k.use(row.tool, row.args)
			if out.Facts.Status != facts.OK {
				t.Fatal("control: ", got)
			}
			if err := row.since(k.root); err != nil {
				t.Fatal(err)
			}
			_, out, got = k.use("files.restore", m{"id": callID})
			acted := out.Facts.SideEffect == facts.Confirmed && !strings.Contains(got, "exists")
			if out.Facts.Status == facts.OK || acted || got != row.want {
				t.Errorf("%s, side effect %s: %q, want %q", out.Facts.Status, out.Facts.SideEffect, got, row.want)
			}
		})
	}
}

// What is kept is the user's alone, belongs to one folder, is bounded, and has an end.
func TestKeptContents(t *testing.T) {
	k := newKeeping(t, map[string]string{"a": "secret"})
	first, _, _ := k.use("files.write", m{"path": "a", "content": "0"})
	other := k
	other.root = folder(t, map[string]string{"a": "0"})
	_, out, got := other.use("files.restore", m{"id": first})
	if out.Facts.Status == facts.OK || content(t, other.root, "a") != "0" {
		t.Errorf("a call on one folder is undone in another: %q", got)
	}
	if _, _, got := k.use("files.restore", m{}); !strings.Contains(got, first+"\ta, written ") {
		t.Errorf("what can be undone: %q", got)
	}
	dir := opener{state: k.state}.replacedIn(k.root)
	for at, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, first): 0o600} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want && runtime.GOOS != "windows" {
			t.Errorf("%v %v", info.Mode(), err)
		}
	}
	for i := range maxChanges + 1 {
		k.use("files.write", m{"path": "a", "content": fmt.Sprint(i)})
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != maxChanges {
		t.Errorf("%d changes are kept: %v", len(all), err)
	}
	if _, out, got := k.use("files.restore", m{"id": first}); out.Facts.Status == facts.OK {
		t.Errorf("the oldest has made room: %q", got)
	}
	put(t, filepath.Join(k.root, "big"), strings.Repeat("x", maxWritten+1))
	_, out, _ = k.use("files.write", m{"path": "big", "content": "x"})
	if out.Undo != nil || len(out.Facts.Warnings) != 1 ||
		!strings.HasPrefix(out.Facts.Warnings[0], "waldo undo cannot undo this call: ") {
		t.Errorf("a large file: %v %v", out.Undo, out.Facts.Warnings)
	}
	if err := sweep(k.state, time.Now().Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != maxChanges {
		t.Errorf("control: %d changes are left: %v", len(all), err)
	}
	if err := sweep(k.state, time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("%d changes are left: %v", len(all), err)
	}
}

// The question about an undo shows what it would change, and fails beforehand where it would.
func TestUndoPreview(t *testing.T) {
	k := newKeeping(t, map[string]string{"a": "old\n", "d/b": "b"})
	preview := func(callID string) string {
		a, err := call.ArgsOf(m{"id": callID})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(k.tools.Preview(t.Context(), decision(k.root, "files.restore", a)), "\n")
	}
	written, _, _ := k.use("files.write", m{"path": "a", "content": "new\n"})
	moved, _, _ := k.use("files.move", m{"from": "d/b", "to": "c"})
	made, _, _ := k.use("files.write", m{"path": "n", "content": "n"})
	gone, _, _ := k.use("files.delete", m{"path": "d", "recursive": true})
	for callID, want := range map[string]string{written: "-new\n+old", moved: "moves c, sha256:",
		made: "removes n, sha256:", gone: "restores d, 0 bytes, sha256:", "c_none": "it would fail: " + errNoChange.Error()} {
		if got := preview(callID); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	put(t, filepath.Join(k.root, "a"), "other")
	if got := preview(written); !strings.Contains(got, "it would fail: a: "+errSince.Error()) {
		t.Error(got)
	}
}
