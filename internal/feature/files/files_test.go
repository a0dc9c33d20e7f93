package files

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/budget"
	"waldo/internal/core/grant"
	"waldo/internal/core/hold"
	"waldo/internal/core/policy"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
)

// use makes a call of a tool on a folder, as the pipeline does, and returns its outcome with its text.
func use(t testing.TB, root, name string, args any) (call.Outcome, string) {
	t.Helper()
	return useIn(t, t.Context(), root, name, args)
}

func useIn(t testing.TB, ctx context.Context, root, name string, args any) (call.Outcome, string) {
	t.Helper()
	return useOf(t, ctx, direct.New(Tools("", files.Machine{}, admit.Own(), nil)...), root, name, args)
}

func useOf(t testing.TB, ctx context.Context, tools direct.Executor, root, name string, args any) (call.Outcome,
	string) {
	t.Helper()
	a, err := call.ArgsOf(args)
	if err != nil {
		t.Fatal(err)
	}
	return decided(t, ctx, tools, decision(root, name, a))
}

func decided(t testing.TB, ctx context.Context, tools direct.Executor, d policy.Decision) (call.Outcome, string) {
	t.Helper()
	g, why := grant.Issue(d, nil, d.Call.Args)
	if why != nil {
		t.Fatal(why)
	}
	out, err := tools.Execute(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	return out, text(out.Content)
}

func decision(root, name string, a call.Args) policy.Decision {
	return policy.Decision{ID: "d_1", Effect: policy.Allow,
		Call:     call.Call{ID: "c_1", Capability: call.Capability(name), Args: a},
		Contract: contract.Contract{Transport: contract.Direct, Root: root, Timeout: time.Minute}}
}

func text(content []call.Content) string {
	var b strings.Builder
	for _, c := range content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// folder makes a folder with files: by name their text; a name that ends in "/" is a folder, a text "=> x" a link.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "ROOT")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		put(t, filepath.Join(root, name), content)
	}
	return root
}

func put(t testing.TB, at, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	if target, link := strings.CutPrefix(content, "=> "); err == nil && link {
		err = os.Symlink(target, at)
	} else if err == nil {
		err = os.WriteFile(at, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, at ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(at...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type m map[string]any

func TestTools(t *testing.T) {
	root := folder(t, map[string]string{"a.txt": "one\ntwo\nthree\n", "sub/b.go": "package b\n", "bin": "a\x00b",
		"long.txt": strings.Repeat("x\n", 3000)})
	for _, c := range []struct {
		name   string
		args   m
		status facts.Status
		effect facts.SideEffect
		want   string
	}{
		{"files.read", m{"path": "a.txt"}, facts.OK, facts.None, "one\ntwo\nthree\n"},
		{"files.read", m{"path": "a.txt", "line": 2, "lines": 1}, facts.OK, facts.None,
			"two\n\nwaldo: there is more (14 bytes in all): go on with line 3"},
		{"files.read", m{"path": "a.txt", "line": 9}, facts.Failed, facts.None, "a.txt: it has 3 lines"},
		{"files.read", m{"path": "long.txt"}, facts.OK, facts.None, "go on with line 2001"},
		{"files.read", m{"path": "bin"}, facts.OK, facts.None, "bin is a binary file: application/octet-stream, 3 bytes"},
		{"files.read", m{"path": "absent"}, facts.Failed, facts.None,
			"absent: no such file or folder; files.list shows what there is"},
		{"files.read", m{"path": "sub"}, facts.Failed, facts.None, "sub: it is a folder"},
		{"files.read", m{"path": "../x"}, facts.Denied, facts.None, "../x: it leads out of the folder of this tool"},
		{"files.read", m{"path": "/etc/passwd"}, facts.Denied, facts.None, "/etc/passwd: it leads out of the folder"},
		{"files.list", m{}, facts.OK, facts.None, "a.txt\tfile, 14 bytes\nbin\tfile, 3 bytes\nlong.txt\tfile, 6000 bytes\nsub/\n"},
		{"files.list", m{"depth": 2, "path": "sub"}, facts.OK, facts.None, "sub/b.go\tfile, 10 bytes\n"},
		{"files.stat", m{"path": "a.txt"}, facts.OK, facts.None, "a.txt: file, 14 bytes, changed 20"},
		{"files.search", m{"query": "t[wh]", "regex": true}, facts.OK, facts.None, "a.txt:2:two\na.txt:3:three\n"},
		{"files.search", m{"query": "package", "glob": "*.go"}, facts.OK, facts.None, "sub/b.go:1:package b\n"},
		{"files.search", m{"query": "t["}, facts.OK, facts.None, "no line matches"},
		{"files.write", m{"path": "new/c.txt", "content": "hi"}, facts.OK, facts.Confirmed, "wrote new/c.txt, now 2 bytes"},
		{"files.write", m{"path": "new/c.txt", "content": "!", "append": true}, facts.OK, facts.Confirmed,
			"appended 1 bytes to new/c.txt, now 3 bytes"},
		{"files.write", m{"path": "new/c.txt", "content": "x", "new": true}, facts.Failed, facts.None,
			"new/c.txt: it exists already"},
		{"files.write", m{"path": "new"}, facts.Failed, facts.None, "give content or base64"},
		{"files.write", m{"path": "new", "content": "x"}, facts.Failed, facts.None, "new: it is a folder"},
		{"files.edit", m{"path": "a.txt", "old": "two", "new": "2"}, facts.OK, facts.Confirmed,
			"--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"},
		{"files.edit", m{"path": "a.txt", "old": "e", "new": "E"}, facts.Failed, facts.None, "more than once"},
		{"files.edit", m{"path": "a.txt", "old": "two", "new": "E"}, facts.Failed, facts.None,
			"does not contain the old text"},
		{"files.move", m{"from": "a.txt", "to": "sub/b.go"}, facts.Failed, facts.Confirmed, "sub/b.go: it exists already"},
		{"files.move", m{"from": "a.txt", "to": "sub/a.txt"}, facts.OK, facts.Confirmed, "moved a.txt to sub/a.txt"},
		{"files.delete", m{"path": "sub"}, facts.Failed, facts.None, "set recursive"},
		{"files.write", m{"path": ".git/hooks/pre-commit", "content": "x"}, facts.Denied, facts.None,
			"programs of this machine run something"},
		{"files.read", m{"path": ".env"}, facts.Denied, facts.None, "passwords and keys"},
	} {
		out, got := use(t, root, c.name, c.args)
		if out.Facts.Status != c.status || out.Facts.SideEffect != c.effect || !strings.Contains(got, c.want) {
			t.Errorf("%s %v: %s, %s: %q", c.name, c.args, out.Facts.Status, out.Facts.SideEffect, got)
		}
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		t.Error("a refused write made a folder")
	}
	if got := content(t, root, "sub/a.txt"); got != "one\n2\nthree\n" {
		t.Errorf("edited and moved: %q", got)
	}
}

// TestUndo: a deletion can be undone, the trash is hidden from every tool, and it never exceeds its bounds.
func TestUndo(t *testing.T) {
	root := folder(t, map[string]string{"d/a.txt": "keep me", "d/b.txt": "2"})
	_, got := use(t, root, "files.delete", m{"path": "d", "recursive": true})
	_, id, ok := strings.Cut(strings.TrimSpace(got), "id=")
	if _, err := os.Stat(filepath.Join(root, "d")); !ok || err == nil {
		t.Fatalf("not deleted: %q", got)
	}
	for name, args := range map[string]m{
		"files.read": {"path": trashDir + "/" + id + "-8/it/a.txt"}, "files.list": {"path": trashDir},
		"files.move": {"from": trashDir + "/" + id, "to": "x"}, "files.stat": {"path": "./" + trashDir},
	} {
		if out, got := use(t, root, name, args); out.Facts.Status != facts.Failed || !strings.Contains(got, "no such file") {
			t.Errorf("%s in the trash: %s, %q", name, out.Facts.Status, got)
		}
	}
	if _, got := use(t, root, "files.list", m{"depth": 9}); got != "the folder is empty\n" {
		t.Errorf("the trash is listed: %q", got)
	}
	if _, got := use(t, root, "files.restore", m{}); !strings.Contains(got, id+"\td, 8 bytes, deleted ") {
		t.Errorf("the list of deletions: %q", got)
	}
	if _, got := use(t, root, "files.restore", m{"id": id}); got != "restored d\n" || content(t, root,
		"d/a.txt") != "keep me" {
		t.Errorf("restored: %q", got)
	}
	if out, _ := use(t, root, "files.restore", m{"id": id}); out.Facts.Status != facts.Failed {
		t.Error("restored twice")
	}
	for range maxDeletions + 3 {
		put(t, filepath.Join(root, "x"), "x")
		if out, got := use(t, root, "files.delete", m{"path": "x"}); out.IsError {
			t.Fatal(got)
		}
	}
	if all, err := os.ReadDir(filepath.Join(root, trashDir)); err != nil || len(all) != maxDeletions+1 { // and .gitignore
		t.Errorf("the trash holds %d, %v", len(all), err)
	}
}

// TestTrashIsIgnored: git leaves the trash out of its status, by a file in the trash alone. The control is git without
// it.
func TestTrashIsIgnored(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	root := folder(t, map[string]string{"a.txt": "gone", "b.txt": "there"})
	status := func() string {
		out, err := exec.Command("git", "-C", root, "status", "--porcelain").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out, err := exec.Command("git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, got := use(t, root, "files.delete", m{"path": "a.txt"}); out.IsError {
		t.Fatal(got)
	}
	if got := status(); got != "?? b.txt\n" {
		t.Errorf("git status: %q", got)
	}
	ignore := filepath.Join(root, trashDir, ".gitignore")
	if err := os.Remove(ignore); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != "?? .waldo-trash/\n?? b.txt\n" {
		t.Errorf("control: %q", got)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, ignore); err != nil {
		t.Fatal(err)
	}
	if out, got := use(t, root, "files.delete", m{"path": "b.txt"}); out.IsError {
		t.Fatal(got)
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a link in the trash leads out of it")
	}
	if err := os.Remove(ignore); err != nil {
		t.Fatal(err)
	}
	put(t, ignore, "of a person")
	put(t, filepath.Join(root, "c.txt"), "there")
	if out, got := use(t, root, "files.delete", m{"path": "c.txt"}); out.IsError {
		t.Fatal(got)
	}
	if b, err := os.ReadFile(ignore); err != nil || string(b) != "of a person" {
		t.Errorf("a file that was there: %q %v", b, err)
	}
}

// TestWritesAreWhole: a file is replaced and never written into, so a hard link outside keeps its content, and a
// reader sees the old text or the new.
func TestWritesAreWhole(t *testing.T) {
	root := folder(t, map[string]string{"a": "old"})
	outside := filepath.Join(root, "..", "outside")
	put(t, outside, "mine")
	if err := os.Link(outside, filepath.Join(root, "linked")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "a"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "linked"} {
		if out, got := use(t, root, "files.write", m{"path": name, "content": "new"}); out.IsError {
			t.Fatal(got)
		}
	}
	if got := content(t, outside); got != "mine" {
		t.Errorf("a hard link was written through: %q", got)
	}
	if i, err := os.Stat(filepath.Join(root, "a")); err != nil || i.Mode().Perm() != 0o750 || content(t, root,
		"a") != "new" {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
	if all, err := os.ReadDir(root); err != nil || len(all) != 2 {
		t.Errorf("left behind: %v, %v", all, err)
	}
}

// TestRoot: a contract must name a folder, and not one of the system. No name reaches waldo's state, and none changes
// the configuration.
func TestRoot(t *testing.T) {
	for _, root := range []string{"", "/", "/proc", "/proc/self", "/sys", "/nowhere/at/all"} {
		out, got := use(t, root, "files.list", m{})
		if out.Refused == nil || out.Refused.Code != "files.root" {
			t.Errorf("%q: %s", root, got)
		}
	}
	root := folder(t, map[string]string{"conf/w.yaml": "version: 1", "state/waldo.db": "secret",
		"way":            "=> state/waldo.db",
		"STATE/waldo.db": "as a system shows it that knows no case", "conf/W.YAML": "too", "STATES/x": "another folder"})
	tools := direct.New(Tools(filepath.Join(root, "state"), files.Machine{}, admit.Own(), nil)...)
	for _, c := range []struct {
		name string
		args m
		want string
	}{
		{"files.read", m{"path": "conf/w.yaml"}, "version: 1"}, // the control: it can be read
		{"files.write", m{"path": "conf/w.yaml", "content": "x"}, errRuns.Error()},
		{"files.move", m{"from": "conf", "to": "other"}, errRuns.Error()},
		{"files.delete", m{"path": "conf", "recursive": true}, errRuns.Error()},
		{"files.read", m{"path": "state/waldo.db"}, "no such file"},
		{"files.read", m{"path": "way"}, "no such file"},
		{"files.read", m{"path": "STATE/waldo.db"}, "no such file"},
		{"files.search", m{"query": "knows no case"}, "no line matches"},
		{"files.write", m{"path": "conf/W.YAML", "content": "x"}, errRuns.Error()},
		{"files.read", m{"path": "STATES/x"}, "another folder"}, // the control
		{"files.search", m{"query": "secret"}, "no line matches"},
		{"files.move", m{"from": "state", "to": "other"}, "no such file"},
		{"files.write", m{"path": "state/new/x", "content": "x"}, "no such file"},
		{"files.write", m{"path": "other/new/x", "content": "x"}, "x"}, // the control: folders are made
	} {
		a, err := call.ArgsOf(c.args)
		if err != nil {
			t.Fatal(err)
		}
		d := decision(root, c.name, a)
		d.Contract.At.File = filepath.Join(root, "conf/w.yaml")
		d.Contract.Root = root
		g, _ := grant.Issue(d, nil, a)
		if out, err := tools.Execute(t.Context(), g); err != nil || !strings.Contains(text(out.Content), c.want) {
			t.Errorf("%s %v: %q, %v", c.name, c.args, text(out.Content), err)
		}
	}
	for dir, made := range map[string]bool{"other/new": true, "state/new": false} {
		if _, err := os.Stat(filepath.Join(root, dir)); (err == nil) != made {
			t.Errorf("%s was made: %v", dir, err == nil)
		}
	}
}

// FuzzChanged: a diff of two texts names both of their differing middles, and never fails.
func FuzzChanged(f *testing.F) {
	f.Add("one\ntwo\n", "one\nthree\n")
	f.Add("aaa", "aaaa")
	f.Add("é", "è")
	f.Fuzz(func(t *testing.T, old, new string) {
		got := changed("a", old, new)
		if same := got == "the content stays the same"; same != (old == new) || !same && !strings.HasPrefix(got,
			"--- a\n+++ a\n@@ ") {
			t.Errorf("%q %q: %q", old, new, got)
		}
	})
}

func TestPreview(t *testing.T) {
	root := folder(t, map[string]string{"a.txt": "one\n\ttwo\n", "d/x": "12"})
	tools := direct.New(Tools("", files.Machine{}, admit.Own(), nil)...)
	for _, c := range []struct {
		name string
		args m
		want string
	}{
		{"files.edit", m{"path": "a.txt", "old": "two", "new": "2\n3"},
			"--- a.txt|+++ a.txt|@@ -1,2 +1,3 @@| one|-    two|+    2|+3"},
		{"files.edit", m{"path": "a.txt", "old": "absent", "new": "x"}, "it would fail: a.txt: it does not contain the old " +
			"text; read it again and copy the text exactly"},
		{"files.write", m{"path": "a.txt", "content": "x"}, "replaces all 9 bytes of a.txt by 1|" +
			"--- a.txt|+++ a.txt|@@ -1,3 +1,1 @@|-one|-    two|-|+x"},
		{"files.write", m{"path": "a.txt", "content": "one\n\tthree\n"}, "replaces all 9 bytes of a.txt by 11|" +
			"--- a.txt|+++ a.txt|@@ -1,2 +1,2 @@| one|-    two|+    three"},
		{"files.write", m{"path": "a.txt", "content": "one\n\ttwo\n"}, "replaces all 9 bytes of a.txt by 9|" +
			"the content stays the same"},
		{"files.write", m{"path": "a.txt", "base64": "AAE="}, "replaces all 9 bytes of a.txt by 2; it is binary, sha256:…"},
		{"files.write", m{"path": "a.txt", "content": "x\ny", "append": true}, "appends 3 bytes to a.txt, which has 9|" +
			"the content has 2 lines:|   1  x|   2  y"},
		{"files.write", m{"path": "n/b", "content": "x"}, "creates n/b and its folder, 1 bytes|the content has 1 line:|   1  x"},
		{"files.delete", m{"path": "d", "recursive": true},
			"deletes d and the 1 files and folders in it, 2 bytes, sha256:…; " +
				"files.restore can undo it"},
		{"files.delete", m{"path": "../x"}, "it would fail: ../x: it leads out of the folder of this tool"},
		{"files.read", m{"path": "a.txt"}, ""},
		{"files.move", m{"from": "a.txt", "to": "b.txt"}, "moves a.txt, sha256:…, to b.txt"},
	} {
		a, err := call.ArgsOf(c.args)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSuffix("in the folder "+root+"|"+c.want, "|")
		got := strings.Join(tools.Preview(t.Context(), decision(root, c.name, a)), "|")
		if got = regexp.MustCompile(`sha256:[0-9a-f]{32,64}`).ReplaceAllString(got, "sha256:…"); got != want {
			t.Errorf("%s %v: %q", c.name, c.args, got)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "n")); err == nil || content(t, root, "a.txt") != "one\n\ttwo\n" {
		t.Error("a preview acted")
	}
}

// TestArchives: a good archive is unpacked; an entry that leads outside refuses the whole; links, devices and names
// that run programs are left out and named; a bomb leaves nothing.
func TestArchives(t *testing.T) {
	pack := func(entries ...tar.Header) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, e := range entries {
			if e.Typeflag == 0 {
				e.Typeflag = tar.TypeReg
			}
			err := w.WriteHeader(&e)
			if err == nil && e.Size > 0 {
				_, err = w.Write(make([]byte, e.Size))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	root := folder(t, map[string]string{
		"good.tgz": pack(tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "d/run", Mode: 0o4755, Size: 3},
			tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, tar.Header{Name: ".git/config",
				Size: 1},
			tar.Header{Name: "dev", Typeflag: tar.TypeChar}),
		"out.tgz":  pack(tar.Header{Name: "a", Size: 1}, tar.Header{Name: "d/../../../b", Size: 1}),
		"bomb.tgz": pack(tar.Header{Name: "a", Size: 20 << 20}), "no.tgz": "text",
		"many.tgz": pack(slices.Repeat([]tar.Header{{Name: "d/", Typeflag: tar.TypeDir}}, maxEntries+1)...),
		"most.tgz": pack(slices.Repeat([]tar.Header{{Name: "d/", Typeflag: tar.TypeDir}}, maxEntries)...),
	})
	for _, c := range []struct{ name, want string }{
		{"good.tgz", "unpacked 1 files, 3 bytes, into good\nleft out, as links, devices and names that this tool does not " +
			"write are: 3, such as link, .git/config, dev\n"},
		{"out.tgz", "out.tgz: the entry d/../../../b: it leads out of the folder of this tool"},
		{"bomb.tgz", "bomb.tgz: it unpacks to more than is allowed: 256 MiB, 200 times its size, 10,000 entries"},
		{"many.tgz", "many.tgz: it unpacks to more than is allowed: 256 MiB, 200 times its size, 10,000 entries"},
		{"most.tgz", "unpacked 0 files, 0 bytes, into most\n"},
		{"no.tgz", "no.tgz: not a zip, tar or tar.gz file"},
	} {
		into := strings.TrimSuffix(c.name, ".tgz")
		_, got := use(t, root, "files.extract", m{"path": c.name, "into": into})
		if got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
		if _, err := os.Stat(filepath.Join(root, into)); (err == nil) != (into == "good" || into == "most") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if i, err := os.Stat(filepath.Join(root, "good/d/run")); err != nil || i.Mode() != 0o755 {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
	if _, got := use(t, root, "files.extract", m{"path": "good.tgz",
		"into": "good"}); got != "good: the folder is not empty; name a new one" {
		t.Errorf("over a folder with files: %q", got)
	}
}

// TestZipDirectory: a zip of too many entries is refused before they are read, and one at the limit costs little.
func TestZipDirectory(t *testing.T) {
	pack := func(n, comment int) string {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for range n {
			if _, err := z.CreateHeader(&zip.FileHeader{Name: "d/", Comment: strings.Repeat("c", comment)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	root := folder(t, map[string]string{"most.zip": pack(maxEntries, maxDirectory/maxEntries-60),
		"many.zip": pack(maxEntries+1, 0),
		"long.zip": pack(maxEntries, maxDirectory/maxEntries)})
	for name, want := range map[string]string{
		"most.zip": "unpacked 0 files, 0 bytes, into most\n",
		"many.zip": "many.zip: it has 10001 entries; at most 10000 are unpacked",
		"long.zip": "long.zip: its list of entries is longer than 4194304 bytes",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, got := use(t, root, "files.extract", m{"path": name, "into": strings.TrimSuffix(name, ".zip")})
		runtime.ReadMemStats(&after)
		if got != want {
			t.Errorf("%s: %q", name, got)
		}
		bytes, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20)
		if name == "most.zip" {
			most = 64 << 20
		}
		if t.Logf("%s: %d KiB allocated in all", name, bytes>>10); bytes > most {
			t.Errorf("%s: %d bytes", name, bytes)
		}
	}
}

// TestExchanged: a file that takes the place of another between the look and the open is not read.
// TestFolded: a protected name is one also in the spellings that file systems of other systems take for it.
func TestFolded(t *testing.T) {
	for name, want := range map[string]error{
		".git/config": errRuns, ".GIT/config": errRuns, "a/.gi\u200ct/config": errRuns, ".g\ufeffit": errRuns, ".git. /x": errRuns,
		".\u017f\u017fh/x": errRuns, ".\u00dfh/x": errRuns, ".\u1e9eH/x": errRuns, ".en\u115fv": errKeys, ".e\u3164nv": errKeys,
		".con\ufb01g/x": errRuns, ".\u00dfx": nil, "\u212aeys": nil, ".gitx": nil, "git": nil, ".en\u200dv": errKeys, ".v\ufe0fscode": errRuns,
	} {
		if got := protects(name, true); !errors.Is(got, want) {
			t.Errorf("%+q: %v", name, got)
		}
	}
	for name, want := range map[string]bool{".waldo-trash/x": true, ".Waldo-Trash. ": true, ".waldo-tra\u200dsh/x": true,
		"a/.WALDO-NEW-1": true, ".waldo-trashes": false, "a/.waldo-trash": false, ".": false} {
		if hidden(name) != want {
			t.Errorf("%+q: hidden is %t", name, !want)
		}
	}
}

// TestWindowsNames: on Windows no part of a path is a second name of a file, a device, a stream or a name whose end is
// dropped. Elsewhere these are names as any.
func TestWindowsNames(t *testing.T) {
	for _, name := range []string{"GIT~1/config", "git~1/hooks/x", "a/WALDO~1/waldo.db", "ENV~1", "ENVEXA~1.LOC", "GI1A2B~1", "~1",
		"a~123456", "README.md::$DATA", ".git::$INDEX_ALLOCATION/config", "a:b", `a\..\.git\config`, "C:x", "notes.", "notes ", "a./b",
		"NUL", "nul.txt", "a/con", "COM1.log", "lpt\u00b9", "CONIN$", "aux .txt", "COM\u200c1"} {
		for _, write := range []bool{false, true} {
			if err := protectsOn("windows", name, write); !errors.Is(err, errName) {
				t.Errorf("%+q: %v", name, err)
			}
			if err := protectsOn("linux", name, false); err != nil {
				t.Errorf("control: %+q elsewhere: %v", name, err)
			}
		}
	}
	for _, name := range []string{"main.go", "a/b.tar.gz", "backup~", "notes~2024-01.txt", "long name~1.txt", "a~b", "com10", "console",
		"null", "nul_test.go", ".", "..", "./a/../b", "a//b/", ".gitignore", ".env.example"} {
		if err := protectsOn("windows", name, true); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := protectsOn("windows", ".git/config", true); !errors.Is(err, errRuns) {
		t.Error(err)
	}
}

// TestSearchEnds: a search ends soon after its call does, and no expression makes one line take long.
func TestSearchEnds(t *testing.T) {
	dir := folder(t, map[string]string{"a": strings.Repeat(strings.Repeat("a", 16_000)+"\n", 200)})
	if _, got := use(t, dir, "files.search", m{"query": "a{10}b|^aaa", "regex": true}); !strings.Contains(got, "a:1:aaa") {
		t.Fatal("control:", got)
	}
	if _, got := use(t, dir, "files.search", m{"query": strings.Repeat("a", 900)}); !strings.Contains(got, "a:1:aaa") {
		t.Fatal("control, a long text:", got)
	}
	for _, q := range []string{"(?:a?){900}(?:a?){900}b", "(a{1,30}){33}b"} {
		if _, got := use(t, dir, "files.search", m{"query": q, "regex": true}); !strings.Contains(got, "too large") {
			t.Errorf("%s: %s", q, display.Clip(got, 200))
		}
	}
	j, err := openJail(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	a, err := call.ArgsOf(m{"query": "(?:a?){300}b", "regex": true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := search(&work{jail: j, ctx: ctx}, a); ended <- err }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the search goes on after its call")
	}
}

func TestExchanged(t *testing.T) {
	root := folder(t, map[string]string{"a": "=> b", "b": "inside"})
	j, err := openJail(root)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	p, err := j.walk("b", follow)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if f, _, err := p.open(); err != nil {
		t.Fatal("control: ", err)
	} else {
		_ = f.Close()
	}
	looked = func() { // between the two
		put(t, filepath.Join(root, "c"), "another")
		if err := os.Rename(filepath.Join(root, "c"), filepath.Join(root, "b")); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { looked = func() {} }()
	if _, _, err := p.open(); !errors.Is(err, errChanged) {
		t.Errorf("an exchanged file: %v", err)
	}
}

// TestJudge: a change of a name that runs programs is refused when it is decided; reads and other names are not.
func TestJudge(t *testing.T) {
	for _, row := range []struct {
		tool, args string
		refused    bool
	}{
		{"files.write", `{"path":"src/a.go","content":"x"}`, false},
		{"files.write", `{"path":"waldo.yaml","content":"x"}`, true},
		{"files.edit", `{"path":"sub/.git/config"}`, true},
		{"files.move", `{"from":"a","to":".vscode/tasks.json"}`, true},
		{"files.move", `{"from":".npmrc","to":"a"}`, true},
		{"files.write", `{"path":"a/.gitattributes","content":"* filter=x"}`, true},
		{"files.move", `{"from":"a","to":".GitAttributes"}`, true},
		{"files.write", `{"path":"sub/.git/info/attributes","content":"* filter=x"}`, true},
		{"files.write", `{"path":".gitmodules","content":"x"}`, true},
		{"files.write", `{"path":"gitattributes","content":"x"}`, false},
		{"files.read", `{"path":".gitattributes"}`, false},
		{"files.extract", `{"path":"a.zip","into":".ssh"}`, true},
		{"files.extract", `{"path":"waldo.yaml","into":"b"}`, false},
		{"files.read", `{"path":"waldo.yaml"}`, false},
	} {
		args, err := call.ParseArgs([]byte(row.args))
		if err != nil {
			t.Fatal(err)
		}
		_, why := judge(call.Call{Capability: call.Capability(row.tool), Args: args}, contract.Contract{})
		if (why != nil) != row.refused || why != nil && why.Code != "files.refused" {
			t.Errorf("%s %s: %v", row.tool, row.args, why)
		}
	}
}

// TestJudgedPaths: where conditions judge a path, it says where it leads. Without them, other spellings are harmless.
func TestJudgedPaths(t *testing.T) {
	root := folder(t, map[string]string{"docs/a": "A", "secret/k": "K", "docs/l": "=> ../secret", "docs/m": "=> ../secret/k"})
	rules := []contract.Rule{{When: contract.Condition{Source: "!args.path.startsWith('docs/')"}}}
	for _, row := range []struct {
		path     string
		anywhere string // what is read without conditions
		refused  bool
	}{
		{"docs/a", "A", false}, {"docs/../secret/k", "K", true}, {"docs/l/k", "K", true}, {"docs/m", "K", true},
		{"./secret/k", "K", true}, {"secret//k", "K", true}, {"docs/./a", "A", true},
	} {
		args, err := call.ArgsOf(m{"path": row.path})
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range []func(d *policy.Decision){
			func(*policy.Decision) {},
			func(d *policy.Decision) { d.Contract.Rules = rules },
			func(d *policy.Decision) { d.Contract.Approval.Condition = &rules[0].When },
			func(d *policy.Decision) { d.Call.Chain = []string{"g_1"} },
		} {
			d := decision(root, "files.read", args)
			change(&d)
			judged := len(d.Contract.Rules)+len(d.Call.Chain) > 0 || d.Contract.Approval.Condition != nil
			out, got := decided(t, t.Context(), direct.New(Tools("", files.Machine{}, admit.Own(), nil)...), d)
			refused := out.Refused != nil && out.Refused.Code == "files.refused"
			if refused != (judged && row.refused) || !refused && !strings.Contains(got, row.anywhere) {
				t.Errorf("%s, judged %t: %v %q", row.path, judged, out.Refused, got)
			}
		}
	}
}

// TestNamed: a name that finds a file, and is not listed, is a second name of it.
func TestNamed(t *testing.T) {
	root, err := os.OpenRoot(folder(t, map[string]string{"SECRET": "", "b": "", "draft~1": ""}))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	upper, err := root.Lstat("SECRET")
	if err != nil {
		t.Fatal(err)
	}
	other, err := root.Lstat("b")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		part   string
		found  fs.FileInfo
		judged bool
		want   bool
	}{
		{"secret", upper, true, false}, {"secret", upper, false, true}, {"SECRET", upper, true, true},
		{"secret", other, true, true}, {"GIT~1", upper, false, false}, {"draft~1", upper, false, true},
	} {
		if got := named(root, row.part, row.found, row.judged); got != row.want {
			t.Errorf("%s, judged %t: %t", row.part, row.judged, got)
		}
	}
}

// TestAppendsInOrder: appends at once lose nothing, also from two processes' tools.
func TestAppendsInOrder(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	var tools [2]direct.Executor
	for i := range tools {
		tools[i] = direct.New(Tools(state, files.Machine{}, admit.Own(), nil)...)
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			args, err := call.ArgsOf(map[string]any{"path": "log.txt", "content": fmt.Sprintf("%d\n", i), "append": true})
			if err != nil {
				t.Error(err)
				return
			}
			d := policy.Decision{Call: call.Call{ID: id.New(id.Call), Capability: "files.write", Args: args},
				Contract: contract.Contract{
					Transport: contract.Direct, Root: dir, Timeout: time.Minute}}
			if out, err := tools[i%2]["files.write"].Run(t.Context(), d); err != nil || out.IsError {
				t.Error(out, err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(filepath.Join(dir, "log.txt"))
	if n := strings.Count(string(text), "\n"); err != nil || n != 40 {
		t.Errorf("%d of 40 lines: %v", n, err)
	}
}

// TestStamp: the preview of a move, a deletion and an archive changes with the content that it is about.
func TestStamp(t *testing.T) {
	dir := t.TempDir()
	tools := direct.New(Tools(t.TempDir(), files.Machine{}, admit.Own(), nil)...)
	show := func(name, args string) string {
		a, err := call.ParseArgs([]byte(args))
		if err != nil {
			t.Fatal(err)
		}
		d := policy.Decision{Call: call.Call{Capability: call.Capability(name), Args: a}, Contract: contract.Contract{
			Transport: contract.Direct, Root: dir}}
		return strings.Join(tools[call.Capability(name)].Preview(t.Context(), d), "\n")
	}
	then := time.Unix(1e9, 0)
	write := func(at, text string) {
		at = filepath.Join(dir, at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	rewrite := func(at, text string) { // with the same size and time of the last change
		write(at, text)
		if err := os.Chtimes(filepath.Join(dir, at), then, then); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string]string{
		"files.extract": `{"path":"a","into":"y"}`, "files.move": `{"from":"a","to":"b"}`, "files.delete": `{"path":"a"}`,
	} {
		rewrite("a", "good")
		before, again := show(name, args), show(name, args)
		rewrite("a", "EVIL")
		if after := show(name, args); before != again || after == before || !strings.Contains(before, "sha256:") {
			t.Errorf("%s: %q %q %q", name, before, again, after)
		}
	}
	for name, args := range map[string]string{
		"files.move": `{"from":"d","to":"b"}`, "files.delete": `{"path":"d","recursive":true}`,
	} {
		rewrite("d/a", "good")
		if err := os.Symlink("a-good", filepath.Join(dir, "d", "link-"+name)); err != nil {
			t.Fatal(err)
		}
		before := show(name, args)
		rewrite("d/a", "good")
		again := show(name, args)
		rewrite("d/a", "EVIL")
		evil := show(name, args)
		rewrite("d/a", "good")
		link := filepath.Join(dir, "d", "link-"+name)
		if err := errors.Join(os.Remove(link), os.Symlink("a-evil", link)); err != nil {
			t.Fatal(err)
		}
		if linked := show(name, args); before != again || evil == before || linked == before ||
			strings.Contains(before, "only") {
			t.Errorf("%s of a folder: %q %q %q %q", name, before, again, evil, linked)
		}
	}

	// Of more than waldo reads, the question says what the digest is of. A file that is changed in place, with its size and
	// times as before, is another one.
	big := filepath.Join(dir, "d", "big")
	if err := errors.Join(os.WriteFile(big, nil, 0o644), os.Truncate(big, maxHashed+1)); err != nil {
		t.Fatal(err)
	}
	change := func(text string) {
		f, err := os.OpenFile(filepath.Join(dir, "d", "a"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // longer than the tick of the kernel's clock
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close(), os.Chtimes(f.Name(), then, then)); err != nil {
			t.Fatal(err)
		}
	}
	change("good")
	before := show("files.move", `{"from":"d","to":"b"}`)
	if again := show("files.move", `{"from":"d","to":"b"}`); again != before ||
		!strings.Contains(before, " of names, sizes and times only, to ") {
		t.Errorf("a large folder: %q %q", before, again)
	}
	change("EVIL")
	if after := show("files.move", `{"from":"d","to":"b"}`); after == before && runtime.GOOS == "linux" {
		t.Errorf("a large folder that was changed: %q", after)
	}
}

// TestAPreviewOfManyLines: what a preview makes of a file of line ends is a few times the file, and it shows the same
// lines as of a short one.
func TestAPreviewOfManyLines(t *testing.T) {
	end := strings.Repeat("\n", 8<<20-10)
	root := folder(t, map[string]string{"a.txt": "X" + end, "few.txt": "X" + end[:100]})
	tools := direct.New(Tools("", files.Machine{}, admit.Own(), nil)...)
	show := func(ctx context.Context, path, new string) string {
		a, err := call.ArgsOf(m{"path": path, "old": "X", "new": new})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(tools.Preview(ctx, decision(root, "files.edit", a)), "\n")
	}
	want := strings.ReplaceAll(show(t.Context(), "few.txt", "Y"), "few.txt", "a.txt")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := show(t.Context(), "a.txt", "Y"); got != want || !strings.Contains(got, "@@ -1,4 +1,4 @@") {
		t.Errorf("%q, want %q", got, want)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 80<<20 {
		t.Errorf("%d MB are allocated for a file of 8", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
	if got := show(t.Context(), "few.txt", strings.Repeat("\n", 1<<20)); len(got) > 64<<10 ||
		!strings.Contains(got, "more lines") {
		t.Errorf("many new lines: %d bytes", len(got))
	}
}

// TestNoRoomForAFile: a call that finds no room in waldo's own memory is refused within its time, a preview says so.
func TestNoRoomForAFile(t *testing.T) {
	root := folder(t, map[string]string{"a.txt": strings.Repeat("a\n", 1<<20) + "X\n", "small.txt": "X\n"})
	work := budget.New(budget.Limits{Memory: 10 << 20, Share: 10 << 20, Each: 100, Wait: time.Minute})
	over, err := work.Enter(t.Context(), "another", 6<<20)
	if err != nil {
		t.Fatal(err)
	}
	tools := direct.New(Tools("", files.Machine{}, work, nil)...)
	edit := func(path string) (call.Outcome, string) {
		a, err := call.ArgsOf(m{"path": path, "old": "X", "new": "Y"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		d := decision(root, "files.edit", a)
		out, err := tools["files.edit"].Run(ctx, d)
		if err != nil {
			t.Fatal(err)
		}
		out.Release()
		asked, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return out, strings.Join(tools.Preview(asked, d), "\n")
	}
	out, shown := edit("a.txt")
	if out.Refused == nil || out.Refused.Code != "memory.busy" || !strings.Contains(shown, "memory.busy") ||
		out.Facts.SideEffect != facts.None {
		t.Errorf("a large file: %+v %q", out.Refused, shown)
	}
	if out, _ := edit("small.txt"); out.Refused != nil || out.IsError {
		t.Errorf("control: a small file: %+v", out)
	}
	over()
	if out, _ := edit("a.txt"); out.Refused != nil || out.IsError {
		t.Errorf("control: with room: %+v", out)
	}
}

// TestAbsoluteLink: an absolute link leads outside, also where the folder has a file of that path.
func TestAbsoluteLink(t *testing.T) {
	root := folder(t, map[string]string{"a.txt": "one\n", "abs": "=> /a.txt", "rel": "=> a.txt"})
	out, got := use(t, root, "files.read", m{"path": "abs"})
	if out.Facts.Status != facts.Denied || !strings.Contains(got, "abs: it leads out of the folder of this tool") {
		t.Errorf("%s %s", out.Facts.Status, got)
	}
	if out, got = use(t, root, "files.read", m{"path": "rel"}); out.Facts.Status != facts.OK || got != "one\n" {
		t.Errorf("control: %s %s", out.Facts.Status, got)
	}
}

// TestLeftByTheList: a call of a list changes no file that somebody else changed after an earlier call of the list.
func TestLeftByTheList(t *testing.T) {
	for _, row := range []struct {
		tool string
		args map[string]any
	}{
		{"files.edit", map[string]any{"path": "a", "old": "o", "new": "0"}},
		{"files.write", map[string]any{"path": "./a", "content": "x"}},
		{"files.write", map[string]any{"path": "a", "content": "x", "append": true}},
		{"files.delete", map[string]any{"path": "a"}},
		{"files.move", map[string]any{"from": "a", "to": "b"}},
	} {
		for _, changed := range []bool{true, false} {
			root := folder(t, map[string]string{})
			ctx := hold.Leaves(t.Context())
			one := map[string]any{"path": "a", "content": "one"}
			if _, said := useIn(t, ctx, root, "files.write", one); !strings.Contains(said, "wrote a") {
				t.Fatal(said)
			}
			if changed {
				put(t, filepath.Join(root, "a"), "two")
			}
			out, said := useIn(t, ctx, root, row.tool, row.args)
			if differs := out.Refused != nil && out.Refused.Code == "hold.differs"; differs != changed {
				t.Errorf("%s, changed %v: %+v %s", row.tool, changed, out.Refused, said)
			}
			if changed && content(t, root, "a") != "two" {
				t.Errorf("%s: it was changed", row.tool)
			}
		}
	}
}

// TestLedByTheList: a path leads where it led when a call of the list first named it. A link of before can be written
// through, and a call of the list can replace a folder.
func TestLedByTheList(t *testing.T) {
	for _, swapped := range []bool{true, false} {
		root := folder(t, map[string]string{"e/b": "old", "f/c": "c"})
		if err := os.Symlink("f", filepath.Join(root, "l")); err != nil {
			t.Fatal(err)
		}
		ctx := hold.Leaves(t.Context())
		use := func(tool string, args map[string]any) string {
			out, said := useIn(t, ctx, root, tool, args)
			if out.Refused != nil {
				return out.Refused.Code
			}
			return said
		}
		for i := range 2 {
			if said := use("files.write", map[string]any{"path": "l/c", "content": fmt.Sprint("c", i)}); !strings.Contains(said, "f/c") {
				t.Errorf("through a link of before: %s", said)
			}
		}
		if said := use("files.write", map[string]any{"path": "n/b", "content": "one"}); !strings.Contains(said, "wrote") {
			t.Fatal(said)
		}
		if swapped {
			if err := errors.Join(os.Rename(filepath.Join(root, "n"), filepath.Join(root, "n0")),
				os.Symlink("e", filepath.Join(root, "n"))); err != nil {
				t.Fatal(err)
			}
		} else if said := use("files.delete", map[string]any{"path": "n", "recursive": true}); !strings.Contains(said, "deleted") {
			t.Errorf("control: %s", said)
		}
		said := use("files.write", map[string]any{"path": "n/b", "content": "two"})
		if (said == "hold.differs") != swapped || content(t, root, "e/b") != "old" {
			t.Errorf("swapped %v: %s, %q", swapped, said, content(t, root, "e/b"))
		}
	}
}
