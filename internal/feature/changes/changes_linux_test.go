package changes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/executor/protect"
	"waldo/internal/executor/runner"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/testing/sandboxtest"
)

// session is one run over a folder, with its record.
type session struct {
	t     *testing.T
	store *Store
	dir   string
	id    string
	facts *facts.Changes
}

// begin makes a folder of files and runs a shell script in it, in a real sandbox.
func begin(t *testing.T, mode, script string, files map[string]string) *session {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, store: In(t.TempDir()), dir: dir, id: id.New(id.Call)}
	for name, text := range files {
		s.put(name, text)
	}
	rules, err := protect.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // the clock of files has moved on
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	l, err := s.store.Begin(s.id, mode, []runner.Folder{{Source: dir, Target: "/p", Root: root, Rules: rules}})
	if err != nil {
		t.Fatal(err)
	}
	d := namespace.New(namespace.Options{})
	if rep := d.Probe(context.Background()); !rep.OK {
		t.Skipf("this machine gives no namespace sandboxes: %+v", rep)
	}
	p := sandboxtest.Profile()
	p.Mounts = []sandbox.Mount{{Source: dir, Target: "/p", Writable: true, Live: true, Aside: l.Aside(0)}}
	b, err := d.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-ec", "cd /p\n" + script}})
	if err := errors.Join(err, b.Close()); err != nil || f.ExitCode == nil || *f.ExitCode != 0 {
		t.Fatalf("%v %s", err, f.Stderr)
	}
	if s.facts, err = l.End(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *session) put(name, text string) {
	s.t.Helper()
	at := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// tree lists the folder's files with what they hold.
func (s *session) tree() string {
	s.t.Helper()
	var out []string
	err := filepath.WalkDir(s.dir, func(at string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(s.dir, at)
		if err != nil || e.IsDir() {
			return err
		}
		if to, err := os.Readlink(at); err == nil {
			out = append(out, rel+"->"+to)
			return nil
		}
		b, err := os.ReadFile(at)
		info, _ := e.Info()
		text := rel + "=" + strings.TrimSpace(string(b))
		if info.Mode()&0o111 != 0 {
			text += "*"
		}
		out = append(out, text)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *session) record() *Record {
	s.t.Helper()
	r, err := s.store.Load(s.id)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

var project = map[string]string{"a": "a1\n", "b": "b1\n", "d/1": "1", "d/2": "2", "e/x": "x", ".claude/settings.json": "{}"}

const (
	work = `printf 'a2\n' > a; chmod +x a; mv b bb; rm -r d; mkdir -p n/m; echo f > n/m/f; ln -s /etc/passwd l
rm -r e; mkdir e; echo y > e/y; rm -r .claude; mkdir .vscode; echo t > .vscode/tasks.json`
	before    = ".claude/settings.json={} a=a1 b=b1 d/1=1 d/2=2 e/x=x"
	after     = "a=a2* bb=b1 e/y=y l->/etc/passwd n/m/f=f"
	protected = ".claude/settings.json={}"
)

// TestReview: the folder stays as it is until the changes are taken; protected names are taken by their path alone; all
// can be taken back.
func TestReview(t *testing.T) {
	s := begin(t, Review, work, project)
	if got := s.tree(); got != before {
		t.Fatalf("before: %s", got)
	}
	if want := []string{"/p/.claude/settings.json", "/p/.vscode/tasks.json"}; !slices.Equal(sorted(s.facts.Protected), want) {
		t.Errorf("protected %q, want %q", s.facts.Protected, want)
	}
	if want := []string{"/p/.claude/settings.json", "/p/b", "/p/d/1", "/p/d/2", "/p/e/x"}; !slices.Equal(sorted(s.facts.Removed), want) {
		t.Errorf("removed %q", s.facts.Removed)
	}
	var text strings.Builder
	if err := s.store.Show(&text, s.record(), nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"M a  mode -rw-r--r-- -> -rwxr-xr-x", "  -a1\n  +a2\n", "link to /etc/passwd  (leads out",
		"A .vscode/tasks.json  mode -rw-r--r--  (protected"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("wanted %q in\n%s", want, text.String())
		}
	}
	r := s.record()
	if _, left, err := s.store.Apply(r, nil); err != nil || len(left) != 4 { // .claude, its file, .vscode, its file
		t.Fatalf("%v %v", left, err)
	}
	if got := s.tree(); got != protected+" "+after {
		t.Errorf("applied: %s", got)
	}
	if _, _, err := s.store.Apply(r, []string{".vscode/tasks.json"}); err != nil {
		t.Fatal(err)
	}
	if got := s.tree(); got != protected+" .vscode/tasks.json=t "+after {
		t.Errorf("applied by its path: %s", got)
	}
	if _, left, err := s.store.Undo(s.record(), nil); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
	if got := s.tree(); got != before {
		t.Errorf("undone: %s", got)
	}
}

func sorted(l []string) []string { slices.Sort(l); return l }

// TestPartOfANewFolder: the folder that waldo makes for one file is no change from outside for the next one. It goes with
// the last. One that somebody else makes is.
func TestPartOfANewFolder(t *testing.T) {
	script := "mkdir -p -m 750 src/in; echo 1 > src/in/one; echo 2 > src/two"
	s := begin(t, Review, script, project)
	was := s.tree()
	for _, paths := range [][]string{{"src/in/one"}, nil} {
		if _, left, err := s.store.Apply(s.record(), paths); err != nil || len(left) > 0 {
			t.Errorf("%q: %v %v", paths, left, err)
		}
	}
	info, err := os.Stat(filepath.Join(s.dir, "src/in"))
	if err != nil || info.Mode().Perm() != 0o750 || s.tree() != was+" src/in/one=1 src/two=2" {
		t.Errorf("%v, %v: %s", info, err, s.tree())
	}
	if _, left, err := s.store.Undo(s.record(), nil); err != nil || len(left) > 0 {
		t.Errorf("undo: %v %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "src")); err == nil || s.tree() != was {
		t.Errorf("undo: %v: %s", err, s.tree())
	}
	other := begin(t, Review, script, project)
	if err := os.Mkdir(filepath.Join(other.dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.store.Apply(other.record(), nil); err == nil || !strings.Contains(err.Error(), whyThere) {
		t.Errorf("control: a folder of somebody else's: %v", err)
	}
	if _, _, err := other.store.Apply(other.record(), []string{"src/two"}); err != nil {
		t.Error("a file in it:", err)
	}
}

// TestReviewIsAtomic: where one file has changed outside since, nothing is taken; the others are, by their paths. The
// folder is whole also where a change fails in the middle.
func TestReviewIsAtomic(t *testing.T) {
	for name, change := range map[string]func(*session){
		"changed":  func(s *session) { s.put("a", "mine\n") },
		"mode":     func(s *session) { _ = os.Chmod(filepath.Join(s.dir, "a"), 0o600) },
		"replaced": func(s *session) { s.put("z", "z"); _ = os.Rename(filepath.Join(s.dir, "z"), filepath.Join(s.dir, "a")) },
		"gone":     func(s *session) { _ = os.Remove(filepath.Join(s.dir, "a")) },
		"there":    func(s *session) { s.put("n/m/f", "mine") },
		"removed":  func(s *session) { s.put("d/1", "mine") },
	} {
		s := begin(t, Review, work, project)
		change(s)
		now := s.tree()
		n, _, err := s.store.Apply(s.record(), nil)
		var c Conflict
		if !errors.As(err, &c) || n != 0 || s.tree() != now {
			t.Errorf("%s: %d taken, %v, %s", name, n, err, s.tree())
		}
		if n, _, err := s.store.Apply(s.record(), []string{"l"}); err != nil || n != 1 {
			t.Errorf("%s: by its path: %d %v", name, n, err)
		}
	}
	s := begin(t, Review, work, project)
	// what is under way fails: its new file is gone
	if err := os.Remove(filepath.Join(s.store.upper(s.id, 0), "n/m/f")); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Link(filepath.Join(s.dir, "a"), other); err != nil {
		t.Fatal(err)
	}
	was, _ := os.Stat(other)
	_, _, err := s.store.Apply(s.record(), nil)
	if is, _ := os.Stat(filepath.Join(s.dir, "a")); err == nil || s.tree() != before || !os.SameFile(was, is) {
		t.Errorf("%v: %s, the same file: %v", err, s.tree(), os.SameFile(was, is))
	}
}

// TestModesLast: a folder that the run closed for writing takes the new files of it first.
func TestModesLast(t *testing.T) {
	s := begin(t, Review, "echo x > d/new; chmod 555 d; mkdir ro; echo y > ro/f; chmod 555 ro", project)
	if n, left, err := s.store.Apply(s.record(), nil); n != 4 || len(left) > 0 || err != nil {
		t.Fatal(n, left, err)
	}
	for name, want := range map[string]os.FileMode{"d": 0o555, "ro": 0o555, "d/new": 0o644, "ro/f": 0o644} {
		if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}

// TestUndoInClosedFolders: what is in folders that the run closed for writing is taken back by their owner, all or
// a part.
func TestUndoInClosedFolders(t *testing.T) {
	for _, part := range []string{"", "d/new"} {
		s := begin(t, Review, "echo x > d/new; echo z > d/b; chmod 555 d; mkdir ro; echo y > ro/f; chmod 555 ro", project)
		before := s.tree()
		asOwner(t, s.dir, s.store.dir, func() {
			if n, left, err := s.store.Apply(s.record(), nil); n != 5 || len(left) > 0 || err != nil {
				t.Error(n, left, err)
			}
			var paths []string
			want := 5
			if part != "" {
				paths, want = []string{part}, 1
			}
			if n, left, err := s.store.Undo(s.record(), paths); n != want || len(left) > 0 || err != nil {
				t.Error(part, n, left, err)
			}
		})
		info, err := os.Stat(filepath.Join(s.dir, "d"))
		if err != nil || info.Mode().Perm() != map[string]os.FileMode{"": 0o755, "d/new": 0o555}[part] {
			t.Error(part, info, err)
		}
		if part == "" && s.tree() != before {
			t.Errorf("%s, and was %s", s.tree(), before)
		}
	}
}

// asOwner does something as a user who is not root, and who owns two folders.
func asOwner(t *testing.T, one, two string, do func()) {
	t.Helper()
	if os.Getuid() == 0 {
		const user = 65534
		for _, top := range []string{one, two} {
			if err := filepath.WalkDir(top, func(p string, _ os.DirEntry, err error) error {
				return errors.Join(err, os.Lchown(p, user, user))
			}); err != nil {
				t.Fatal(err)
			}
			for up := filepath.Dir(top); strings.HasPrefix(up, os.TempDir()+"/"); up = filepath.Dir(up) {
				if err := os.Chmod(up, 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := errors.Join(syscall.Setfsgid(user), syscall.Setfsuid(user)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = errors.Join(syscall.Setfsuid(0), syscall.Setfsgid(0)) }()
	}
	do()
}

// TestUndoOfALargeFile: a large file that was removed is taken back whole.
func TestUndoOfALargeFile(t *testing.T) {
	s := begin(t, Review, "rm large", map[string]string{"large": strings.Repeat("0123456789abcdef", 65<<16)})
	at := filepath.Join(s.dir, "large")
	if n, left, err := s.store.Apply(s.record(), nil); n != 1 || len(left) > 0 || err != nil {
		t.Fatalf("%d %v %v", n, left, err)
	}
	if _, err := os.Lstat(at); err == nil {
		t.Fatal("control: the file is still there")
	}
	n, left, err := s.store.Undo(s.record(), nil)
	if info, serr := os.Stat(at); n != 1 || len(left) > 0 || err != nil || serr != nil || info.Size() != 65<<20 {
		t.Errorf("%d %v %v: %v %v", n, left, err, info, serr)
	}
}

// TestReviewLinks: a change below a folder that has become a link outside writes nothing where the link leads.
func TestReviewLinks(t *testing.T) {
	elsewhere := t.TempDir()
	s := begin(t, Review, "echo new > d/3", project)
	if err := errors.Join(os.RemoveAll(filepath.Join(s.dir, "d")), os.Symlink(elsewhere, filepath.Join(s.dir, "d"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.store.Apply(s.record(), nil); err == nil {
		t.Error("it was taken")
	}
	if all, err := os.ReadDir(elsewhere); err != nil || len(all) > 0 {
		t.Errorf("%v %v", all, err)
	}
}

// TestReviewOfRepositories: what runs later is protected also in a repository whose folder has another name, in one that a
// run completes, and in one that another run has made meanwhile.
func TestReviewOfRepositories(t *testing.T) {
	const plant = "mkdir -p r/hooks; echo x > r/hooks/post-checkout; echo x > r/config; echo x > r/notes"
	all := map[string]string{"r/HEAD": "ref: refs/heads/main\n", "r/objects/x": "", "r/refs/x": "", "r/config": "y"}
	for name, c := range map[string]struct {
		files  map[string]string
		script string
		left   []string
	}{
		"control: no repository": {map[string]string{"r/HEAD": "x"}, plant, nil},
		"one below":              {all, plant, []string{"r/config", "r/hooks", "r/hooks/post-checkout"}},
		"one below, whose name is not UTF-8": {map[string]string{"r\xff/HEAD": "x", "r\xff/objects/x": "", "r\xff/refs/x": ""},
			"echo x > 'r\xff/config'; echo x > 'r\xff/notes'", []string{"r\xff/config"}},
		"one that it completes": {map[string]string{"r/hooks/post-checkout": "x", "r/config": "y"},
			"mkdir r/objects r/refs; echo x > r/HEAD", []string{"r/HEAD", "r/objects", "r/refs"}},
	} {
		s := begin(t, Review, c.script, c.files)
		_, left, err := s.store.Apply(s.record(), nil)
		got := []string(nil)
		for _, l := range left {
			at, _ := filepath.Rel(s.dir, l.Path)
			got = append(got, at)
		}
		if err != nil || !slices.Equal(sorted(got), c.left) {
			t.Errorf("%s: left %q, %v", name, got, err)
		}
	}
	s := begin(t, Review, plant, map[string]string{"r/a": "a"})
	for name, text := range map[string]string{"r/HEAD": "x", "r/objects/x": "", "r/refs/x": ""} {
		s.put(name, text)
	}
	if n, left, err := s.store.Apply(s.record(), nil); err != nil || n != 0 || len(left) != 4 || left[0].Why != whyGit {
		t.Errorf("made meanwhile: %d taken, left %v, %v", n, left, err)
	}
	s = begin(t, Review, plant, map[string]string{"r/a": "a"})
	if n, left, err := s.store.Apply(s.record(), nil); err != nil || n != 4 || len(left) > 0 {
		t.Errorf("control: %d taken, left %v, %v", n, left, err)
	}
}

// TestNamesWithoutUTF8: a name that is not UTF-8 is itself: what it hides is not taken under another's, and what was there
// is put back.
func TestNamesWithoutUTF8(t *testing.T) {
	const plant = "for d in 'r\ufffd' 'r\xff'; do mkdir -p $d; echo x > $d/config; done"
	s := begin(t, Review, plant, map[string]string{"r\ufffd/HEAD": "x", "r\ufffd/objects/x": "", "r\ufffd/refs/x": "", "r\xff/a": ""})
	_, left, err := s.store.Apply(s.record(), nil)
	if err != nil || len(left) != 1 || left[0].Path != filepath.Join(s.dir, "r\ufffd/config") {
		t.Errorf("left %q, %v", left, err)
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, "r\xff/config")); err != nil || string(b) != "x\n" {
		t.Errorf("the other: %q %v", b, err)
	}
	s = begin(t, Keep, "echo 2 > 'caf\xe9.txt'", map[string]string{"caf\xe9.txt": "1"})
	if _, left, err := s.store.Undo(s.record(), nil); err != nil || len(left) != 0 || s.tree() != "caf\xe9.txt=1" {
		t.Errorf("undone: %q, %v, %q", left, err, s.tree())
	}
}

// TestDrop: dropped changes are not taken, and what went aside is gone when none waits.
func TestDrop(t *testing.T) {
	s := begin(t, Review, work, project)
	r := s.record()
	if n, err := s.store.Drop(r, []string{"n"}); err != nil || n != 3 {
		t.Errorf("%d %v", n, err)
	}
	if _, _, err := s.store.Apply(r, nil); err != nil || strings.Contains(s.tree(), "n/m") {
		t.Errorf("%v %s", err, s.tree())
	}
	if _, err := s.store.Drop(r, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.store.upper(s.id, 0)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestDiscard: nothing of the run is left, and the facts say what it did.
func TestDiscard(t *testing.T) {
	s := begin(t, Discard, work, project)
	if got := s.tree(); got != before {
		t.Error(got)
	}
	if !slices.Contains(s.facts.Written, "/p/a") || s.facts.ID != "" {
		t.Errorf("%+v", s.facts)
	}
	if _, err := s.store.Load(s.id); !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
}

// TestKeep: the facts list what was written, renamed and removed; all is taken back but what has changed since.
func TestKeep(t *testing.T) {
	s := begin(t, Keep, work, project)
	f := s.facts
	if !slices.Equal(f.Renamed, []string{"/p/b -> /p/bb"}) || !slices.Contains(f.Written, "/p/a") ||
		!slices.Contains(f.Removed, "/p/d/1") || slices.Contains(f.Written, "/p/bb") {
		t.Errorf("%+v", f)
	}
	s.put("n/m/f", "mine")
	_, left, err := s.store.Undo(s.record(), nil)
	if err != nil || len(left) != 3 || left[0].Why != whyTouched { // and the folders above it
		t.Errorf("%v %v", left, err)
	}
	if got := s.tree(); got != before+" n/m/f=mine" {
		t.Error(got)
	}
	if n, _, err := s.store.Undo(s.record(), nil); n != 0 || err != nil {
		t.Errorf("twice: %d %v", n, err)
	}
	s = begin(t, "", work, project) // without copies: what was overwritten stays, and is named
	_, left, err = s.store.Undo(s.record(), []string{"a"})
	if err != nil || len(left) != 1 || left[0].Why != whyNoCopy || !strings.Contains(s.tree(), "a=a2*") {
		t.Errorf("%v %v %s", left, err, s.tree())
	}
	s = begin(t, Keep, "true", project)
	if f := s.facts; f.ID != "" || len(f.Written) > 0 {
		t.Errorf("nothing changed: %+v", f)
	}
}

// TestThroughLinks: a change is taken, and taken back, by its own path alone. A folder above it that has become a link is
// refused.
func TestThroughLinks(t *testing.T) {
	files := map[string]string{"lib/x": "x", ".git/hooks/a.sample": ""}
	link := func(s *session) {
		t.Helper()
		lib := filepath.Join(s.dir, "lib")
		if err := errors.Join(os.RemoveAll(lib), os.Symlink(".git/hooks", lib)); err != nil {
			t.Fatal(err)
		}
	}
	const hook = "echo id > lib/pre-commit; chmod +x lib/pre-commit; mkdir lib/sub; echo y > lib/sub/y"
	s := begin(t, Review, hook, files)
	link(s)
	for _, paths := range [][]string{nil, {"lib/pre-commit"}, {"lib/sub"}} {
		if n, _, err := s.store.Apply(s.record(), paths); n != 0 || err == nil || !strings.Contains(err.Error(), errLink.Error()) {
			t.Errorf("%q: %d %v", paths, n, err)
		}
	}
	if got := s.tree(); got != ".git/hooks/a.sample= lib->.git/hooks" {
		t.Error(got)
	}
	files = map[string]string{"lib/x": "x", "lib/old": "o", "d/e": "e", ".git/hooks/a.sample": ""}
	s = begin(t, Keep, "rm lib/x; rm -r d; rm lib/old; mkdir lib/old", files)
	link(s)
	_, left, err := s.store.Undo(s.record(), nil)
	if err != nil || len(left) != 2 || left[0].Why != errLink.Error() || left[1].Why != errLink.Error() {
		t.Errorf("%v %v", left, err)
	}
	if got := s.tree(); got != ".git/hooks/a.sample= d/e=e lib->.git/hooks" { // d is the control
		t.Error(got)
	}
	s = begin(t, Keep, "rm a; mkdir a", map[string]string{"a": "1"})
	if n, left, err := s.store.Undo(s.record(), nil); n != 0 || err != nil || len(left) != 1 || left[0].Why != whyKind {
		t.Errorf("a file that became a folder: %d %v %v", n, left, err)
	}
}
