package sandboxes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
	"waldo/internal/storage/workspace"
)

const me, other = "os:1000", "os:1001"

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func step(c *clock, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func fresh(t testing.TB) (*Manager, *clock) {
	t.Helper()
	return again(t, t.TempDir())
}

func again(t testing.TB, dir string) (*Manager, *clock) {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := database.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c := &clock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return New(s, c.now), c
}

func limits() sandbox.Limits {
	return sandbox.Limits{
		Wall: time.Second, CPU: time.Second, Memory: 1 << 20, Pids: 5, Files: 5, Disk: 4 << 20, Inodes: 100, Output: 100,
	}
}

func create(t testing.TB, m *Manager, owner, name string) Sandbox {
	t.Helper()
	s, err := m.Create(context.Background(), Sandbox{
		Owner: owner, Name: name, Template: "host", Isolation: "auto", Limits: limits(), Idle: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, m *Manager, owner, name, file, text string) {
	t.Helper()
	_, w, done, err := m.Files(context.Background(), owner, name)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := w.Put(workspace.Output, file, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
}

// read returns a file's text, or "-" if it is missing.
func read(t testing.TB, m *Manager, owner, name, file string) string {
	t.Helper()
	_, w, done, err := m.Files(context.Background(), owner, name)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	f, err := w.Get(workspace.Output, file)
	if err != nil {
		return "-"
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	return string(b)
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	m, _ := again(t, dir)
	ctx := t.Context()
	a := create(t, m, me, "a")
	create(t, m, other, "a")
	if unnamed := create(t, m, me, ""); !strings.HasPrefix(unnamed.Name, "sandbox-") {
		t.Errorf("%+v", unnamed)
	}
	for _, row := range []struct {
		why  string
		harm func(*Sandbox)
		want error
	}{
		{"a name that is taken", func(s *Sandbox) { s.Name = "a" }, ErrExists},
		{"a name that climbs", func(s *Sandbox) { s.Name = "../a" }, ErrName},
		{"a name with a slash", func(s *Sandbox) { s.Name = "a/b" }, ErrName},
		{"a name that looks like an id", func(s *Sandbox) { s.Name = "s_x" }, ErrName},
		{"a name too long", func(s *Sandbox) { s.Name = strings.Repeat("a", 64) }, ErrName},
		{"nobody's", func(s *Sandbox) { s.Owner = "" }, nil},
		{"no idle time", func(s *Sandbox) { s.Idle = 0 }, nil},
		{"no limits", func(s *Sandbox) { s.Limits = sandbox.Limits{} }, nil},
	} {
		s := Sandbox{Owner: me, Name: "fine", Limits: limits(), Idle: time.Hour}
		row.harm(&s)
		if _, err := m.Create(ctx, s); err == nil || row.want != nil && !errors.Is(err, row.want) {
			t.Errorf("%s: %v", row.why, err)
		}
	}
	// The stored sandbox survives the process. An id finds it too. Another owner does not see it.
	m2, _ := again(t, dir)
	for _, name := range []string{"a", a.ID} {
		if got, err := m2.Get(ctx, me, name); err != nil || got.ID != a.ID || got.State != Ready || got.Limits != limits() {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	if _, err := m2.Get(ctx, other, a.ID); !errors.Is(err, ErrAbsent) {
		t.Errorf("another owner's sandbox: %v", err)
	}
	if all, err := m2.List(ctx, me); err != nil || len(all) != 2 {
		t.Errorf("%v %v", all, err)
	}
}

func TestBegin(t *testing.T) {
	m, c := fresh(t)
	ctx := t.Context()
	create(t, m, me, "a")
	begin := func() (*Run, error) { return m.Begin(ctx, me, "a", id.New(id.Call), false) }
	r, err := begin()
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	if s, _ := m.Get(ctx, me, "a"); s.Running != 1 || s.Runs != 1 {
		t.Errorf("%+v", s)
	}
	if err := m.Remove(ctx, me, "a", false); !errors.Is(err, ErrBusy) {
		t.Errorf("removed while a command runs: %v", err)
	}
	if _, err := m.Reset(ctx, me, "a", other); !errors.Is(err, ErrBusy) {
		t.Errorf("reset while a command runs: %v", err)
	}
	if _, err := m.Snapshot(ctx, me, "a"); !errors.Is(err, ErrBusy) {
		t.Errorf("a snapshot while a command runs: %v", err)
	}
	if err := r.End(ctx); err != nil {
		t.Fatal(err)
	}
	if s, _ := m.Get(ctx, me, "a"); s.Running != 0 {
		t.Errorf("%+v", s)
	}
	// A person's pause holds until a person resumes; one for want of use does not.
	if _, _, err := m.Pause(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := begin(); !errors.Is(err, ErrPaused) {
		t.Errorf("began in a paused sandbox: %v", err)
	}
	if _, err := m.Resume(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	step(c, time.Hour)
	if changed, err := m.Sweep(ctx); err != nil || len(changed) != 1 || changed[0].State != Paused {
		t.Fatalf("%+v %v", changed, err)
	}
	if r, err = begin(); err != nil {
		t.Fatalf("an idle sandbox did not wake: %v", err)
	}
	step(c, 24*time.Hour)
	if changed, err := m.Sweep(ctx); err != nil || len(changed) != 0 {
		t.Errorf("swept while a command runs: %+v %v", changed, err)
	}
	if err := r.End(ctx); err != nil {
		t.Fatal(err)
	}
	step(c, 2*time.Hour)
	if changed, err := m.Sweep(ctx); err != nil || len(changed) != 1 || changed[0].State != Stopped {
		t.Fatalf("%+v %v", changed, err)
	}
	if _, err := begin(); !errors.Is(err, ErrStopped) {
		t.Errorf("began in a stopped sandbox: %v", err)
	}
	if _, _, err := m.Pause(ctx, me, "a"); !errors.Is(err, ErrStopped) {
		t.Errorf("paused a stopped sandbox: %v", err)
	}
	if s, err := m.Resume(ctx, me, "a"); err != nil || s.State != Ready {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := m.Begin(ctx, other, "a", id.New(id.Call), false); !errors.Is(err, ErrAbsent) {
		t.Errorf("began in another owner's sandbox: %v", err)
	}
}

func TestNoMoreThanMaxRuns(t *testing.T) {
	m, _ := fresh(t)
	create(t, m, me, "a")
	for i := range MaxRuns + 1 {
		r, err := m.Begin(t.Context(), me, "a", id.New(id.Call), false)
		if (err == nil) != (i < MaxRuns) || err != nil && !errors.Is(err, ErrBusy) {
			t.Fatalf("run %d: %v", i+1, err)
		}
		if r != nil {
			defer r.End(context.Background())
		}
	}
}

// A command whose waldo died is not counted: its file exists, but no process holds the lock.
func TestAfterACrash(t *testing.T) {
	m, _ := fresh(t)
	s := create(t, m, me, "a")
	dir := m.store.Path("run", s.ID)
	if err := errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "c_x.live"), []byte(running), 0o600)); err != nil {
		t.Fatal(err)
	}
	if s, _ := m.Get(t.Context(), me, "a"); s.Running != 0 {
		t.Errorf("%d running", s.Running)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// instance is a running sandbox that only knows whether it is paused.
type instance struct{ paused atomic.Bool }

func (b *instance) Run(context.Context, sandbox.Command) (facts.Facts, error) {
	return facts.Facts{}, nil
}
func (b *instance) Export(string, string) ([]string, error) { return nil, nil }
func (b *instance) Close() error                            { return nil }
func (b *instance) Abilities() sandbox.Abilities {
	return sandbox.Abilities{Pause: b.Pause, Resume: b.Resume}
}
func (b *instance) Pause() error  { b.paused.Store(true); return nil }
func (b *instance) Resume() error { b.paused.Store(false); return nil }

// plain is a running sandbox that cannot be paused.
type plain struct{ sandbox.Sandbox }

func (plain) Abilities() sandbox.Abilities { return sandbox.Abilities{} }

func TestWatch(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	create(t, m, me, "a")
	b := &instance{}
	r, err := m.Begin(ctx, me, "a", id.New(id.Call), false)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	over := r.Watch(b, func() { close(ended) })
	if still, going, err := m.Pause(ctx, me, "a"); err != nil || still != 1 || going != 0 || !b.paused.Load() {
		t.Errorf("%d %d %v", still, going, err)
	}
	if _, err := m.Snapshot(ctx, me, "a"); err != nil {
		t.Errorf("a snapshot of a paused sandbox: %v", err)
	}
	if _, err := m.Resume(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); b.paused.Load() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if b.paused.Load() {
		t.Error("not resumed")
	}
	removed := make(chan error, 1)
	go func() { removed <- m.Remove(ctx, me, "a", true) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a command of a removed sandbox goes on")
	}
	over()
	if err := r.End(ctx); err != nil {
		t.Error(err)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(m.store.Path("workspaces", r.Sandbox.Workspace)); err == nil {
		t.Error("its files are still there")
	}
}

func TestWhatCannotBePausedIsTold(t *testing.T) {
	m, _ := fresh(t)
	create(t, m, me, "a")
	r, err := m.Begin(t.Context(), me, "a", id.New(id.Call), false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Watch(plain{&instance{}}, func() {})()
	told := false
	for wait := time.Second; !told && wait < 30*time.Second; wait *= 5 { // a busy machine looks later
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		if still, going, err := m.Pause(ctx, me, "a"); still != 0 || going != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d %d %v", still, going, err)
		}
		words := m.live(r.Sandbox.ID)
		told = len(words) == 1 && words[0].State == deaf
	}
	if !told {
		t.Errorf("%v", m.live(r.Sandbox.ID))
	}
}

func TestResetLeavesNothing(t *testing.T) {
	for _, next := range []string{me, other} {
		m, _ := fresh(t)
		a := create(t, m, me, "a")
		put(t, m, me, "a", "secret", "of the first owner")
		b, err := m.Reset(t.Context(), me, "a", next)
		if err != nil {
			t.Fatal(err)
		}
		if b.Session == a.Session || b.Workspace == a.Workspace || b.ID == a.ID || b.Owner != next || b.Limits != a.Limits {
			t.Errorf("%+v", b)
		}
		if got := read(t, m, next, "a", "secret"); got != "-" {
			t.Errorf("the next owner reads %q", got)
		}
		if _, err := os.Stat(m.store.Path("workspaces", a.Workspace)); err == nil {
			t.Error("the files are still there")
		}
		if _, err := m.Get(t.Context(), me, a.ID); !errors.Is(err, ErrAbsent) {
			t.Errorf("the first owner's is still there: %v", err)
		}
	}
}

// noise is bytes that do not repeat.
func noise(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func TestSnapshots(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	create(t, m, me, "a")
	big := noise(3 << 20)
	put(t, m, me, "a", "big", big)
	put(t, m, me, "a", "d/small", "one")
	_, w, done, _ := m.Files(ctx, me, "a")
	if err := w.Executable(workspace.Output, "d/small"); err != nil {
		t.Fatal(err)
	}
	done()
	first, err := m.Snapshot(ctx, me, "a")
	if err != nil || first.Files != 2 || first.Bytes != 3<<20+3 || first.New != first.Bytes {
		t.Fatalf("%+v %v", first, err)
	}
	same, err := m.Snapshot(ctx, me, "a")
	if err != nil || same.New != 0 || same.Digest != first.Digest {
		t.Errorf("nothing changed, and %d bytes are new: %v", same.New, err)
	}
	// A byte before all the others makes one chunk new, not all.
	put(t, m, me, "a", "big", "x"+big)
	put(t, m, me, "a", "d/small", "two")
	second, err := m.Snapshot(ctx, me, "a")
	if err != nil || second.New == 0 || second.New > chunkMost+3 {
		t.Errorf("one byte more, and %d bytes are new: %v", second.New, err)
	}
	if _, err := m.Restore(ctx, me, "a", first.ID); err != nil {
		t.Fatal(err)
	}
	if read(t, m, me, "a", "big") != big || read(t, m, me, "a", "d/small") != "one" {
		t.Error("not the files of the first snapshot")
	}
	_, w, done, _ = m.Files(ctx, me, "a")
	if files, _ := w.List(workspace.Output, 10); len(files) != 2 || !files[1].Exec || files[0].Exec {
		t.Errorf("%+v", files)
	}
	done()
	b, err := m.From(ctx, me, "b", second.ID)
	if err != nil || b.Template != "host" || b.Limits != limits() || read(t, m, me, "b", "d/small") != "two" {
		t.Errorf("%+v %v", b, err)
	}
	// Content that another snapshot uses stays when one is removed, and the rest is deleted.
	for _, p := range []Snapshot{first, same} {
		if err := m.Forget(ctx, me, p.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Restore(ctx, me, "a", second.ID); err != nil || read(t, m, me, "a", "big") != "x"+big {
		t.Errorf("%v", err)
	}
	if err := m.Forget(ctx, me, second.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(m.store.Path("blobs", "??", "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := m.Restore(ctx, me, "a", second.ID); !errors.Is(err, ErrNoPicture) {
		t.Errorf("restored what is forgotten: %v", err)
	}
}

func TestSnapshotsOfOthersAndDamagedOnes(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	create(t, m, me, "a")
	create(t, m, other, "a")
	put(t, m, me, "a", "f", "mine")
	p, err := m.Snapshot(ctx, me, "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		func() error { _, err := m.Restore(ctx, other, "a", p.ID); return err }(),
		func() error { _, err := m.From(ctx, other, "b", p.ID); return err }(),
		m.Forget(ctx, other, p.ID),
	} {
		if !errors.Is(err, ErrNoPicture) {
			t.Errorf("another owner's snapshot: %v", err)
		}
	}
	if all, _ := m.Snapshots(ctx, other); len(all) != 0 {
		t.Errorf("%v", all)
	}
	put(t, m, me, "a", "f", "later")
	at := m.blob(fmt.Sprintf("%x", sha256.Sum256([]byte("mine"))))
	if err := errors.Join(os.Chmod(at, 0o600), os.WriteFile(at, []byte("evil"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Restore(ctx, me, "a", p.ID); !errors.Is(err, ErrDamaged) {
		t.Errorf("restored a damaged snapshot: %v", err)
	}
	if got := read(t, m, me, "a", "f"); got != "later" {
		t.Errorf("a failed restore left %q", got)
	}
	if left, _ := os.ReadDir(m.store.Path("workspaces")); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	put(t, m, me, "a", "f", "mine")
	if _, err := m.Snapshot(ctx, me, "a"); err != nil {
		t.Fatal(err)
	}
	put(t, m, me, "a", "f", "later")
	if _, err := m.Restore(ctx, me, "a", p.ID); err != nil || read(t, m, me, "a", "f") != "mine" {
		t.Errorf("a snapshot of the same content does not mend what was damaged: %v", err)
	}
}

// TestRestoreByID: a sandbox that was made anew under the name of another does not get its files by its id. The control
// names it.
func TestRestoreByID(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	was := create(t, m, me, "a")
	put(t, m, me, "a", "f", "old")
	p, err := m.Snapshot(ctx, me, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(ctx, me, "a", false); err != nil {
		t.Fatal(err)
	}
	create(t, m, me, "a")
	put(t, m, me, "a", "f", "new")
	if _, err := m.Restore(ctx, me, was.ID, p.ID); !errors.Is(err, ErrAbsent) || read(t, m, me, "a", "f") != "new" {
		t.Errorf("by the id of the earlier one: %v", err)
	}
	if _, err := m.Restore(ctx, me, "a", p.ID); err != nil || read(t, m, me, "a", "f") != "old" {
		t.Errorf("control: by name: %v", err)
	}
}

func TestRestoreHoldsToTheLimit(t *testing.T) {
	m, _ := fresh(t)
	ctx := t.Context()
	create(t, m, me, "big")
	put(t, m, me, "big", "f", noise(3<<20))
	p, err := m.Snapshot(ctx, me, "big")
	if err != nil {
		t.Fatal(err)
	}
	small := Sandbox{Owner: me, Name: "small", Limits: limits(), Idle: time.Hour}
	small.Limits.Disk = 1 << 20
	if _, err := m.Create(ctx, small); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Restore(ctx, me, "small", p.ID); !errors.Is(err, workspace.ErrTooMuch) {
		t.Errorf("%v", err)
	}
	if _, err := m.Restore(ctx, me, "big", p.ID); err != nil {
		t.Errorf("control: %v", err)
	}
}

// The chunks of anything are within their bounds, and together they are it.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("short"), 1)
	f.Add([]byte(noise(1000)), 3000)
	f.Fuzz(func(t *testing.T, b []byte, times int) {
		whole := bytes.Repeat(b, min(max(times, 0), 3<<20/(len(b)+1)))
		var got []byte
		last := 0
		err := chunks(bytes.NewReader(whole), func(c []byte) error {
			if len(got) > 0 && last < chunkLeast {
				t.Fatalf("a chunk of %d bytes before the last", last)
			}
			if last = len(c); last == 0 || last > chunkMost {
				t.Fatalf("a chunk of %d bytes", last)
			}
			got = append(got, c...)
			return nil
		})
		if err != nil || !bytes.Equal(got, whole) {
			t.Fatalf("%d bytes became %d: %v", len(whole), len(got), err)
		}
	})
}

func BenchmarkSnapshot16MB(b *testing.B) {
	m, _ := fresh(b)
	create(b, m, me, "a")
	put(b, m, me, "a", "f", noise(16<<20))
	b.SetBytes(16 << 20)
	for b.Loop() {
		if _, err := m.Snapshot(context.Background(), me, "a"); err != nil {
			b.Fatal(err)
		}
	}
}
