package workspace

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"waldo/internal/model/id"
	"waldo/internal/testing/corpus"
)

func fresh(t testing.TB) *Workspace {
	t.Helper()
	w, err := Open(filepath.Join(t.TempDir(), "workspaces"), id.New(id.Workspace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestOpen(t *testing.T) {
	w := fresh(t)
	for _, f := range []Folder{Input, Output, Tmp} {
		if st, err := os.Stat(w.Path(f)); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", f, st, err)
		}
	}
	for _, ident := range []string{
		"", "..", "w_", "../w_aaaaaaaaaaaaaaaaaaaaaaaaaa", "n_aaaaaaaaaaaaaaaaaaaaaaaaaa", "w_aaaaaaaaaaaaaaaaaaaaaaaaa/",
	} {
		if _, err := Open(t.TempDir(), ident); err == nil {
			t.Errorf("%q was taken for a workspace id", ident)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "output"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "output"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(dir); err == nil {
		t.Error("a folder that others can write was opened")
	}
	dir = t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "input")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(dir); err == nil {
		t.Error("a link was opened as input")
	}
	if err := new(Workspace).Put(Output, "a", strings.NewReader(""), 1); err == nil {
		t.Error("the zero workspace has a folder")
	}
}

func TestNames(t *testing.T) {
	for _, row := range []struct{ why, name, want string }{
		{"a plain name", "a.txt", "a.txt"},
		{"a folder", "a/b.txt", "a/b.txt"},
		{"a dot", "./a", "a"},
		{"dots that stay below", "a/../b", "b"},
		{"an encoded climb is only a name", "..%2f..%2fetc", "..%2f..%2fetc"},
		{"full-width dots are only a name", "．．/moo", "．．/moo"},
		{"empty", "", ""},
		{"the folder itself", ".", ""},
		{"above", "..", ""},
		{"above, hidden", "a/../../b", ""},
		{"absolute", "/etc/passwd", ""},
		{"absolute twice", "//tmp/x", ""},
		{"NUL", "a\x00b", ""},
		{"a backslash, which Windows takes for a slash", `..\a`, ""},
		{"not UTF-8", "a\xff", ""},
		{"too long", strings.Repeat("a", MaxName+1), ""},
		{"too deep", strings.Repeat("d/", MaxDepth) + "x", ""},
	} {
		got, err := Clean(row.name)
		if got != row.want || (err == nil) == (row.want == "") {
			t.Errorf("%s: %q gave %q, %v", row.why, row.name, got, err)
		}
	}
}

// outside makes a workspace with links out of it, as no sandbox can leave them but a person can.
func outside(t *testing.T) (w *Workspace, canary string) {
	t.Helper()
	w = fresh(t)
	canary = filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"file": canary, "dir": filepath.Dir(canary), "up": "..", "in": "hard"} {
		if err := os.Symlink(target, filepath.Join(w.Path(Output), name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(canary, filepath.Join(w.Path(Output), "hard")); err != nil {
		t.Fatal(err)
	}
	return w, canary
}

func TestNothingIsWrittenOrReadThroughALink(t *testing.T) {
	for _, name := range []string{"file", "dir/canary", "up/canary", "hard", "dir/new", "up/new"} {
		w, canary := outside(t)
		werr := w.Put(Output, name, strings.NewReader("overwritten"), 100)
		if b, _ := os.ReadFile(canary); string(b) != "untouched" {
			t.Errorf("%s: the canary is %q", name, b)
		}
		if below := !strings.Contains(name, "/"); below != (werr == nil) {
			t.Errorf("%s: %v", name, werr) // a link is replaced by a file; a folder that is a link is not entered
		}
		for _, at := range []string{
			filepath.Join(filepath.Dir(canary), "new"), filepath.Join(w.dir, "new"), filepath.Join(w.dir, "canary"),
		} {
			if _, err := os.Lstat(at); err == nil {
				t.Errorf("%s: %s was made", name, at)
			}
		}
	}
	for _, name := range []string{"file", "in", "dir/canary", "up/output/x"} {
		w, _ := outside(t)
		if f, err := w.Get(Output, name); err == nil {
			_ = f.Close()
			t.Errorf("%s was opened", name)
		}
	}
	w, _ := outside(t)
	if files, err := w.List(Output, 10); err != nil || len(files) != 1 || files[0].Name != "hard" {
		t.Errorf("%v %v", files, err)
	}
}

// TestWholeOrNothing: a file that cannot be written whole leaves what was there, and nothing else.
func TestWholeOrNothing(t *testing.T) {
	w := fresh(t)
	for _, row := range []struct {
		why, name string
		from      io.Reader
		want      string
		err       error
	}{
		{"a new file", "a/b", strings.NewReader("12345"), "12345", nil},
		{"another in its place", "a/b", strings.NewReader("678"), "678", nil},
		{"longer than its limit", "a/b", strings.NewReader("123456"), "678", ErrTooMuch},
		{"its source fails", "a/b", io.MultiReader(strings.NewReader("12"), iotest.ErrReader(os.ErrDeadlineExceeded)), "678",
			os.ErrDeadlineExceeded},
		{"in the place of a folder that holds something", "a", strings.NewReader("1"), "678", syscall.ENOTEMPTY},
	} {
		if err := w.Put(Output, row.name, row.from, 5); !errors.Is(err, row.err) {
			t.Errorf("%s: %v", row.why, err)
		}
		b, err := os.ReadFile(w.Path(Output) + "/a/b")
		if err != nil || string(b) != row.want {
			t.Errorf("%s: %q %v", row.why, b, err)
		}
		if files, err := w.List(Output, 9); err != nil || len(files) != 1 {
			t.Errorf("%s: %+v %v", row.why, files, err)
		}
	}
	if err := w.Put("other", "a", strings.NewReader(""), 5); err == nil {
		t.Error("a fourth folder was there")
	}
}

// ---- archives ----

type entry struct {
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Content  string            `json:"content"`
	Link     string            `json:"link"`
	Mode     string            `json:"mode"`
	Repeat   int               `json:"repeat"`
	Size     int64             `json:"size"`
	Declared *int64            `json:"declared_size"`
	Sparse   int64             `json:"sparse_size"`
	Pax      map[string]string `json:"pax"`
}

func (e entry) names() []string {
	if e.Repeat == 0 {
		return []string{e.Name}
	}
	var out []string
	for i := range min(e.Repeat, 500) { // enough to be too many
		out = append(out, strings.ReplaceAll(e.Name, "%d", fmt.Sprint(i)))
	}
	return out
}

func (e entry) mode(def int64) int64 {
	var m int64
	if _, err := fmt.Sscanf(strings.TrimPrefix(e.Mode, "0o"), "%o", &m); err != nil {
		return def
	}
	return m & 0o7777
}

func (e entry) bytes() []byte {
	if e.Size > 0 {
		return make([]byte, min(e.Size, 16<<20))
	}
	return []byte(e.Content)
}

func makeTar(entries []entry) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	types := map[string]byte{
		"file": tar.TypeReg, "dir": tar.TypeDir, "symlink": tar.TypeSymlink, "hardlink": tar.TypeLink, "fifo": tar.TypeFifo,
		"char": tar.TypeChar, "block": tar.TypeBlock,
	}
	for _, e := range entries {
		for _, n := range e.names() {
			b := e.bytes()
			h := &tar.Header{
				Name: n, Typeflag: types[e.Type], Linkname: e.Link, Mode: e.mode(0o644), PAXRecords: map[string]string{},
			}
			for k, v := range e.Pax {
				if strings.Contains(k, ".") {
					h.PAXRecords[k] = v
				}
			}
			if h.Typeflag == tar.TypeReg {
				h.Size = int64(len(b))
			}
			if w.WriteHeader(h) == nil && h.Typeflag == tar.TypeReg {
				_, _ = w.Write(b)
			}
		}
	}
	_ = w.Close()
	return buf.Bytes()
}

var bounds = Bounds{Bytes: 4 << 20, Entries: 300}

func extract(w *Workspace, archive []byte, dest string, b Bounds) (Unpacked, error) {
	return w.ExtractTar(Output, dest, bytes.NewReader(archive), b)
}

type row struct {
	ID, Class, Expect, Name string
	Input                   struct {
		Entries []entry `json:"entries"`
	} `json:"input"`
}

var own = []row{
	{ID: "own/climb", Name: "climbs", Input: input(entry{Name: "../moo", Type: "file", Content: "x"})},
	{ID: "own/absolute", Name: "absolute", Input: input(entry{Name: "/tmp/waldo-moo", Type: "file", Content: "x"})},
	{ID: "own/link-dir", Name: "through a link it brought",
		Input: input(entry{Name: "l", Type: "symlink", Link: ".."}, entry{Name: "l/moo", Type: "file", Content: "x"})},
	{ID: "own/link-file", Name: "over a link it brought",
		Input: input(entry{Name: "l", Type: "symlink", Link: "../moo"}, entry{Name: "l", Type: "file", Content: "x"})},
	{ID: "own/hard", Name: "a hard link",
		Input: input(entry{Name: "l", Type: "hardlink", Link: "/etc/passwd"}, entry{Name: "l", Type: "file", Content: "x"})},
	{ID: "own/device", Name: "a device", Input: input(entry{Name: "d", Type: "char"}, entry{Name: "f", Type: "fifo"})},
	{ID: "own/setuid", Name: "set-id bits", Input: input(entry{Name: "s", Type: "file", Content: "x", Mode: "06755"})},
	{ID: "own/bomb", Name: "a bomb of bytes", Expect: "bounded",
		Input: input(entry{Name: "b", Type: "file", Size: 16 << 20})},
	{ID: "own/many", Name: "a bomb of entries", Expect: "bounded",
		Input: input(entry{Name: "f%d", Type: "file", Content: "x", Repeat: 500})},
	{ID: "own/dirs", Name: "a bomb of folders", Expect: "bounded",
		Input: input(entry{Name: "d%d", Type: "dir", Repeat: 500})},
}

func input(e ...entry) (in struct {
	Entries []entry `json:"entries"`
}) {
	in.Entries = e
	return in
}

func TestArchivesStayInside(t *testing.T) {
	for _, r := range append(own, corpus.Rows[row](t, "paths.jsonl", "archive")...) {
		w := fresh(t)
		if err := w.Put(Tmp, "outside.txt", strings.NewReader("outside"), 100); err != nil {
			t.Fatal(err)
		}
		_, err := extract(w, makeTar(r.Input.Entries), "dest", bounds)
		if r.Expect == "bounded" && strings.HasPrefix(r.ID, "own/") && !errors.Is(err, ErrTooMuch) {
			t.Errorf("%s: %v, want too much", r.ID, err)
		}
		judge(t, w, r.ID+" ("+r.Name+")")
		if err := w.Destroy(); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
	}
}

// judge fails if anything is in the workspace but plain private files below output/dest.
func judge(t testing.TB, w *Workspace, what string) {
	t.Helper()
	total := int64(0)
	err := filepath.WalkDir(w.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(w.dir, p)
		st, err := d.Info()
		if err != nil {
			return err
		}
		inside := rel == "output/dest" || strings.HasPrefix(rel, "output/dest/")
		if !inside && !slices.Contains([]string{".", "input", "output", "tmp", "tmp/outside.txt"}, rel) {
			t.Errorf("%s: %s was made", what, rel)
		}
		if m := st.Mode(); !m.IsDir() && m != 0o600 || m.IsDir() && m.Perm() != 0o700 && rel != "." {
			t.Errorf("%s: %s has mode %v", what, rel, m)
		}
		total += st.Size()
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if b, _ := os.ReadFile(filepath.Join(w.dir, "tmp/outside.txt")); string(b) != "outside" {
		t.Errorf("%s: the file outside is %q", what, b)
	}
	if _, err := os.Lstat("/tmp/waldo-moo"); err == nil {
		t.Errorf("%s: /tmp/waldo-moo was made", what)
	}
	if total > 2*bounds.Bytes+int64(bounds.Entries)*4096 {
		t.Errorf("%s: %d bytes were written", what, total)
	}
}

func TestArchivesThatAreFineComeOut(t *testing.T) {
	entries := []entry{
		{Name: "./", Type: "dir"}, {Name: "a/", Type: "dir"}, {Name: "./a/b.txt", Type: "file", Content: "hello"},
		{Name: "c.txt", Type: "file", Content: "x"}, {Name: "link", Type: "symlink", Link: "c.txt"},
	}
	made, w := makeTar(entries), fresh(t)
	u, err := extract(w, made, "in", bounds)
	if err != nil || !slices.Equal(u.Files, []string{"in/a/b.txt", "in/c.txt"}) || len(u.Skipped) != 1 {
		t.Fatalf("%+v %v", u, err)
	}
	f, err := w.Get(Output, "in/a/b.txt")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(f); string(b) != "hello" {
		t.Errorf("%q", b)
	}
	_ = f.Close()
	for why, empty := range map[string][]byte{
		"an archive of nothing": makeTar(nil), "no bytes": {}, "no archive": []byte(strings.Repeat("no archive ", 100)),
	} {
		if _, err := extract(w, empty, "in", bounds); !errors.Is(err, ErrArchive) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if _, err := extract(w, made, "in", Bounds{}); !errors.Is(err, ErrTooMuch) {
		t.Errorf("zero bounds let something out: %v", err)
	}
	if _, err := extract(w, made, "../in", bounds); !errors.Is(err, ErrName) {
		t.Errorf("a destination outside: %v", err)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a", "../a", "a/../..", "/a", "a//b", "./.", "a\\b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := Clean(name)
		if err != nil {
			return
		}
		if !filepath.IsLocal(c) || c == "." || strings.Contains(c, "\\") || strings.Contains(c, "\x00") {
			t.Errorf("%q became %q", name, c)
		}
		if again, err := Clean(c); again != c || err != nil {
			t.Errorf("%q became %q and then %q, %v", name, c, again, err)
		}
	})
}

func FuzzExtractTar(f *testing.F) {
	for _, r := range own[:7] {
		f.Add(makeTar(r.Input.Entries))
	}
	w := fresh(f)
	if err := w.Put(Tmp, "outside.txt", strings.NewReader("outside"), 100); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = w.ExtractTar(Output, "dest", bytes.NewReader(b), Bounds{Bytes: 1 << 16, Entries: 100})
		judge(t, w, "fuzz")
		if err := w.folders[Output].RemoveAll("dest"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestGetOpensWhatItLookedAt: a file that is exchanged for a pipe or a link is neither waited for nor read.
func TestGetOpensWhatItLookedAt(t *testing.T) {
	w, err := Open(t.TempDir(), id.New(id.Workspace))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Put(Output, "file", strings.NewReader("text"), 10); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(w.Path(Output), name) }
	if f, err := w.Get(Output, "file"); err != nil || f.Close() != nil {
		t.Fatalf("control: %v", err)
	}
	if err := errors.Join(syscall.Mkfifo(at("pipe"), 0o600), os.Symlink("file", at("link"))); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"pipe", "link"} {
		if _, err := w.Get(Output, other); !errors.Is(err, ErrName) {
			t.Errorf("%s: %v", other, err)
		}
		over, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-over:
					return
				default:
				}
				_ = os.Rename(at("file"), at("moved"))
				_ = os.Rename(at(other), at("file"))
				_ = os.Rename(at("file"), at(other))
				_ = os.Rename(at("moved"), at("file"))
			}
		}()
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			f, err := w.Get(Output, "file")
			if err != nil {
				continue
			}
			if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
				t.Errorf("%s: %v", other, st.Mode())
			}
			f.Close()
		}
		close(over)
		<-done
	}
}

// TestApart: nothing that comes into Files takes the name of another folder, as the code finds them.
func TestApart(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "outputs/a": true, "a/output/b": true, "output": false, "output/a": false, "./input/a": false,
		"a/../tmp/b": false,
	} {
		w := fresh(t)
		err := w.Put(Files, name, strings.NewReader("x"), 1)
		if ok != (err == nil) || !ok && !errors.Is(err, ErrApart) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = w.ExtractTar(Files, "", bytes.NewReader(makeTar([]entry{{Name: name, Content: "x"}})),
			Bounds{Bytes: 1 << 20, Entries: 100})
		if ok != (err == nil) || !ok && !errors.Is(err, ErrApart) {
			t.Errorf("%s in an archive: %v", name, err)
		}
		if err := w.Put(Output, name, strings.NewReader("x"), 1); err != nil {
			t.Errorf("control: %s: %v", name, err)
		}
	}
}
