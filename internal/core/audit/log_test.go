package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"waldo/internal/core/audit/headfile"
	"waldo/internal/storage/database"
	"waldo/internal/storage/safefile"
	"waldo/internal/testing/storetest"
)

var ctx = context.Background()

// memory is a head in memory.
type memory struct {
	mu   sync.Mutex
	head *database.Head
	err  error
}

func (m *memory) Head(context.Context, string) (*database.Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head, m.err
}

func (m *memory) SetHead(_ context.Context, _ string, h database.Head) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		h, _ = h.Over(m.head)
		m.head = &h
	}
	return m.err
}

func (m *memory) ResetHead(_ context.Context, _ string, h database.Head) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.head = &h
	return m.err
}

// clock gives each record a second of its own.
func clock() func() time.Time {
	var mu sync.Mutex
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Second)
		return at
	}
}

// hand is a clock that a test moves.
type hand struct {
	mu sync.Mutex
	at time.Time
}

func handClock() *hand { return &hand{at: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)} }

func (h *hand) read() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

func (h *hand) add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = h.at.Add(d)
}

func openLog(t testing.TB, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(ctx, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		if _, err := l.Append(ctx, "decision", fmt.Appendf(nil, `{"n":%d,"decision":"deny","price":10.50,"to":"café"}`, i),
			i%10 == 9); err != nil {
			t.Fatal(err)
		}
	}
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func verify(t testing.TB, dir string, h Heads) Report {
	t.Helper()
	var anchors []Anchor
	if h != nil {
		head, err := h.Head(ctx, Name)
		if err != nil {
			t.Fatal(err)
		}
		anchors = []Anchor{{"head", head}}
	}
	r, err := Verify(ctx, dir, anchors, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Expect{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func codes(r Report) string {
	var out []string
	for _, f := range r.Findings {
		out = append(out, f.Code)
	}
	return strings.Join(out, " ")
}

func TestAppendAndVerify(t *testing.T) {
	dir, m := t.TempDir(), &memory{}
	l := openLog(t, dir, Options{Heads: m, Now: clock()})
	add(t, l, 25)
	r, err := l.Append(ctx, "outcome", []byte(`{"ok":true}`), true)
	if err != nil || r.Seq != 27 || string(r.Body) != `{"ok":true}` {
		t.Fatalf("%+v %v", r, err)
	}
	closeLog(t, l)
	if m.head.Seq != 27 || m.head.Hash != r.Hash {
		t.Fatalf("head %+v; want record 27", m.head)
	}
	rep := verify(t, dir, m)
	if !rep.OK || rep.Records != 27 || len(rep.Findings) != 0 || rep.LastHash != r.Hash {
		t.Fatalf("%+v", rep)
	}
	if !strings.Contains(rep.Claim, "both the log and that head") {
		t.Errorf("the claim hides its limit: %s", rep.Claim)
	}
	if rep := verify(t, dir, nil); !rep.OK || !strings.Contains(rep.Claim, "would not show") {
		t.Errorf("without a head: %+v", rep)
	}
}

// TestBehindItsHead: records that no head vouches for are normal while waldo writes. Later they are not checked,
// whatever time they name, and the next start notes them.
func TestBehindItsHead(t *testing.T) {
	dir, m := t.TempDir(), &memory{}
	l := openLog(t, dir, Options{Heads: m})
	add(t, l, 3)
	closeLog(t, l)
	head := m.head
	l = openLog(t, dir, Options{Heads: m})
	add(t, l, 2)
	closeLog(t, l)
	for after, complete := range map[time.Duration]bool{0: true, time.Minute: false, -time.Minute: false} {
		r, err := Verify(ctx, dir, []Anchor{{"head", head}}, time.Now().Add(after), Expect{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(codes(r), "head.behind") || r.Complete != complete {
			t.Errorf("after %v: %s, complete %t", after, codes(r), r.Complete)
		}
	}
	if r := verify(t, dir, m); codes(r) != "" || !r.Complete {
		t.Errorf("control: %s", codes(r))
	}
	for i, after := range []time.Duration{time.Hour, -time.Hour} {
		m.head = head
		l = openLog(t, dir, Options{Heads: m, Now: func() time.Time { return time.Now().Add(after) }})
		closeLog(t, l)
		if r := verify(t, dir, m); strings.Count(codes(r), "head.recovered") != i+1 {
			t.Errorf("a start after %v: %s", after, codes(r))
		}
	}
}

func TestChainGoesOn(t *testing.T) {
	dir, m := t.TempDir(), &memory{}
	for i := range 100 {
		l := openLog(t, dir, Options{Heads: m})
		if r := l.Recovery(); r != (Recovery{}) {
			t.Fatalf("start %d: %+v", i, r)
		}
		add(t, l, 1)
		closeLog(t, l)
	}
	if r := verify(t, dir, m); !r.OK || r.Records != 101 {
		t.Fatalf("%+v", r)
	}
}

func TestSegments(t *testing.T) {
	dir, m := t.TempDir(), &memory{}
	o := Options{Heads: m, SegmentBytes: 2000}
	l, other := openLog(t, dir, o), openLog(t, dir, o)
	for range 20 {
		add(t, l, 3)
		add(t, other, 2)
	}
	closeLog(t, l)
	closeLog(t, other)
	names, err := segments(dir)
	if err != nil || len(names) < 10 {
		t.Fatalf("%v %v", names, err)
	}
	if r := verify(t, dir, m); !r.OK || r.Records != 101 || r.Segments != len(names) {
		t.Fatalf("%+v", r)
	}
	closeLog(t, openLog(t, dir, o))
}

// A log looks for the segment that another process began where its folder has changed, or could have without showing
// it: within one step of the file system's clock.
func TestSegmentOfAnother(t *testing.T) {
	for _, age := range []time.Duration{0, time.Hour} {
		dir, m := t.TempDir(), &memory{}
		l, other := openLog(t, dir, Options{Heads: m}), openLog(t, dir, Options{Heads: m, SegmentBytes: 1})
		changed := time.Now().Add(-age).Truncate(time.Second)
		if err := os.Chtimes(dir, changed, changed); err != nil {
			t.Fatal(err)
		}
		add(t, l, 2)
		if knows := !l.last.IsZero(); knows != (age > 0) {
			t.Fatalf("control: a folder changed %v ago, and it knows %v", age, knows)
		}
		add(t, other, 1) // in a segment of its own
		if age == 0 {    // at the same step of the clock
			if err := os.Chtimes(dir, changed, changed); err != nil {
				t.Fatal(err)
			}
		}
		add(t, l, 1)
		closeLog(t, l)
		closeLog(t, other)
		if r := verify(t, dir, m); !r.OK || r.Records != 5 || r.Segments != 2 {
			t.Errorf("a folder changed %v ago: %+v", age, r)
		}
	}
}

// TestProcesses has processes append at once; nothing may be lost, doubled or out of order.
func TestProcesses(t *testing.T) {
	if dir := os.Getenv("AUDIT_CHILD_DIR"); dir != "" {
		s, err := storetest.Open(t, filepath.Join(dir, "state"))
		if err != nil {
			t.Fatal(err)
		}
		l := openLog(t, filepath.Join(dir, "state", "log"), Options{Heads: s, SegmentBytes: 50_000})
		add(t, l, 200)
		closeLog(t, l)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
			cmd.Env = append(os.Environ(), "AUDIT_CHILD_DIR="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	s, err := storetest.Open(t, filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if r := verify(t, filepath.Join(dir, "state", "log"), s); !r.OK || r.Records < 801 || codes(r) != "" {
		t.Fatalf("%+v", r)
	}
}

// failing is a segment on a disk that fails on request.
type failing struct {
	file
	write, sync *error
	short       *bool
}

func (f failing) WriteAt(b []byte, at int64) (int, error) {
	if *f.write != nil {
		n, _ := f.file.WriteAt(b[:len(b)/2], at)
		return n, *f.write
	}
	if *f.short {
		return f.file.WriteAt(b[:len(b)/3], at)
	}
	return f.file.WriteAt(b, at)
}

func (f failing) Sync() error {
	if *f.sync != nil {
		return *f.sync
	}
	return f.file.Sync()
}

func TestFailingDisk(t *testing.T) {
	rows := []struct {
		why   string
		fail  func(write, sync *error, short *bool, m *memory)
		still int // records that the failed attempts may have left
	}{
		{"no space left", func(w, _ *error, _ *bool, _ *memory) { *w = syscall.ENOSPC }, 0},
		{"a write that is short", func(_, _ *error, s *bool, _ *memory) { *s = true }, 0},
		{"a sync that fails", func(_, s *error, _ *bool, _ *memory) { *s = syscall.EIO }, 1},
		{"a read-only disk", func(w, s *error, _ *bool, _ *memory) { *w, *s = syscall.EROFS, syscall.EROFS }, 0},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			var write, sync error
			var short bool
			dir, m := t.TempDir(), &memory{}
			l := openLog(t, dir, Options{Heads: m, wrap: func(f file) file { return failing{f, &write, &sync, &short} }})
			add(t, l, 49)
			settled(t, l)
			r.fail(&write, &sync, &short, m)
			for i := range 3 {
				if _, err := l.Append(ctx, "decision", []byte(`{}`), true); err == nil {
					t.Fatalf("attempt %d was taken", i)
				}
			}
			l.mu.Lock()
			write, sync, short = nil, nil, false
			l.mu.Unlock()
			rec, err := l.Append(ctx, "decision", []byte(`{"after":1}`), true)
			if err != nil {
				t.Fatal("the disk works again: ", err)
			}
			if want := uint64(50 + 1 + 1); rec.Seq < want || rec.Seq > want+uint64(r.still) {
				t.Errorf("record %d; want %d, after one that says how many were refused", rec.Seq, want)
			}
			closeLog(t, l)
			if rep := verify(t, dir, m); !rep.OK {
				t.Fatalf("%+v", rep)
			}
			if b, _ := os.ReadFile(filepath.Join(dir, segmentName(1))); !bytes.Contains(b,
				[]byte(`"kind":"recovered","body":{"refused":3`)) {
				t.Error("the log does not say that 3 records were refused")
			}
		})
	}
}

// settled waits until nothing is unsynced, so that a fault set next meets the next record.
func settled(t *testing.T, l *Log) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		l.mu.Lock()
		done := l.synced.seq == l.at.seq
		l.mu.Unlock()
		if done {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("never synced")
}

func TestHeadThatCannotBeMoved(t *testing.T) {
	dir, m := t.TempDir(), &memory{}
	l := openLog(t, dir, Options{Heads: m, HeadDelay: time.Millisecond})
	m.mu.Lock()
	m.err = errors.New("the database is gone")
	m.mu.Unlock()
	stopped := false
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if _, err := l.Append(ctx, "decision", []byte(`{}`), true); err != nil {
			stopped = true
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !stopped {
		t.Fatal("the log went on without a head")
	}
	m.mu.Lock()
	m.err = nil
	m.mu.Unlock()
	if _, err := l.Append(ctx, "decision", []byte(`{}`), true); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	if r := verify(t, dir, m); !r.OK || len(r.Findings) > 0 {
		t.Fatalf("%+v", r)
	}
}

func TestLockHeldElsewhere(t *testing.T) {
	dir, m := t.TempDir(), &memory{}
	l := openLog(t, dir, Options{Heads: m, LockWait: 30 * time.Millisecond})
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if ok, err := safefile.TryLock(f, false); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := l.Append(ctx, "decision", []byte(`{}`), true); !errors.Is(err, ErrLocked) {
		t.Fatalf("got %v", err)
	}
	if _, err := Open(ctx, dir, Options{Heads: m, LockWait: 30 * time.Millisecond}); !errors.Is(err, ErrLocked) {
		t.Fatalf("got %v", err)
	}
	if err := safefile.Unlock(f); err != nil {
		t.Fatal(err)
	}
	add(t, l, 1)
}

func TestChangedWhileOpen(t *testing.T) {
	rows := []struct {
		why    string
		change func(path string) error
	}{
		{"removed", os.Remove},
		{"cut", func(p string) error { return os.Truncate(p, 100) }},
		{"replaced by a copy", func(p string) error {
			b, err := os.ReadFile(p)
			return errors.Join(err, os.Remove(p), os.WriteFile(p, b, 0o600))
		}},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			dir := t.TempDir()
			l := openLog(t, dir, Options{Heads: &memory{}})
			add(t, l, 10)
			if err := r.change(filepath.Join(dir, segmentName(1))); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and it stays refused
				if _, err := l.Append(ctx, "decision", []byte(`{}`), false); !errors.Is(err, ErrTampered) {
					t.Fatalf("got %v", err)
				}
			}
		})
	}
}

// TestDamageBehindAnotherProcess: a process that was idle finds, where another wrote and moved the
// head, a record that was edited. It must not cut that off as if a crash had torn it.
func TestDamageBehindAnotherProcess(t *testing.T) {
	dir, m := t.TempDir(), &memory{}
	idle := openLog(t, dir, Options{Heads: m})
	busy := openLog(t, dir, Options{Heads: m})
	add(t, busy, 20)
	closeLog(t, busy)
	path := filepath.Join(dir, segmentName(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := bytes.Replace(b, []byte(`{"n":5,`), []byte(`{"n":6,`), 1)
	if bytes.Equal(b, edited) {
		t.Fatal("control: nothing was edited")
	}
	if err := os.WriteFile(path, edited, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Append(ctx, "decision", []byte(`{}`), true); !errors.Is(err, ErrTampered) {
		t.Fatalf("got %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, edited) {
		t.Error("the evidence was changed")
	}
}

func TestOpenRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, filepath.Join(dir, "log"), Options{Heads: &memory{}}); err == nil {
		t.Fatal("the log folder may be a link")
	}
	m := &memory{}
	closeLog(t, openLog(t, filepath.Join(dir, "real"), Options{Heads: m}))
	seg := filepath.Join(dir, "real", segmentName(1))
	if err := errors.Join(os.Rename(seg, filepath.Join(dir, "elsewhere")),
		os.Symlink(filepath.Join(dir, "elsewhere"), seg)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, filepath.Join(dir, "real"), Options{Heads: m}); err == nil {
		t.Fatal("a segment may be a link")
	}
}

func TestOpenNeedsHeads(t *testing.T) {
	if _, err := Open(ctx, t.TempDir(), Options{}); err == nil {
		t.Fatal("a log without a head cannot see a cut tail")
	}
}

func TestClosed(t *testing.T) {
	l := openLog(t, t.TempDir(), Options{Heads: &memory{}})
	closeLog(t, l)
	closeLog(t, l)
	if _, err := l.Append(ctx, "decision", []byte(`{}`), true); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestBadKind(t *testing.T) {
	l := openLog(t, t.TempDir(), Options{Heads: &memory{}})
	for _, kind := range []string{"", `a"b`, "A", strings.Repeat("a", 33), "a\n"} {
		if _, err := l.Append(ctx, kind, []byte(`{}`), false); err == nil {
			t.Errorf("%q is a kind", kind)
		}
	}
}

func TestHeadFile(t *testing.T) {
	h := &headfile.File{Path: filepath.Join(t.TempDir(), "head.json")}
	dir, m := t.TempDir(), &memory{}
	l := openLog(t, dir, Options{Heads: m, Second: h})
	add(t, l, 10)
	closeLog(t, l)
	got, err := h.Head(ctx, Name)
	if err != nil || *got != *m.head {
		t.Fatalf("%+v %v; want %+v", got, err, m.head)
	}
	// If an attacker cuts the log and puts the first head back, the second head reveals it.
	seg := filepath.Join(dir, segmentName(1))
	b, _ := os.ReadFile(seg)
	first := b[:bytes.IndexByte(b, '\n')+1]
	r, err := parseRecord(first[:len(first)-1])
	if err != nil {
		t.Fatal(err)
	}
	m.head = &database.Head{Seq: 1, Hash: r.Hash, Segment: segmentName(1)}
	if err := os.WriteFile(seg, first, 0o600); err != nil {
		t.Fatal(err)
	}
	closeLog(t, openLog(t, dir, Options{Heads: m})) // control: one head alone does not see it
	if _, err := Open(ctx, dir, Options{Heads: m, Second: h}); !errors.Is(err, ErrTampered) {
		t.Fatalf("got %v", err)
	}
}

// lineOf checks that a record is one line of printable ASCII and JSON.
func lineOf(t *testing.T, r Record) {
	t.Helper()
	b := r.line()
	for _, c := range b {
		if c < 0x20 || c > 0x7e {
			t.Fatalf("byte %#x in %s", c, b)
		}
	}
	if !json.Valid(b) {
		t.Fatalf("not JSON: %s", b)
	}
}

// TestSyncOfAClosedSegment: a segment that was followed by another is closed, which the syncer
// must be able to tell from a disk that fails.
func TestSyncOfAClosedSegment(t *testing.T) {
	f, err := openSegment(t.TempDir(), segmentName(1), os.O_CREATE|os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// TestReady: a log is ready if a file can be written beside it, and a failure that is over ends without a record. It is
// tried once a second.
func TestReady(t *testing.T) {
	now := handClock()
	var write, synced error
	var short bool
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}, Now: now.read,
		wrap: func(f file) file { return failing{f, &write, &synced, &short} }})
	defer closeLog(t, l)
	settled(t, l)
	if err := l.Ready(); err != nil {
		t.Fatal("control:", err)
	}
	at := filepath.Join(dir, "ready")
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		t.Error("its file is left", err)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Ready(); err != nil {
		t.Error("it was tried again within a second:", err)
	}
	now.add(time.Second)
	if err := l.Ready(); !errors.Is(err, syscall.EISDIR) {
		t.Error("a file that cannot be written:", err)
	}
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	now.add(time.Second)
	if err := l.Ready(); err != nil {
		t.Error(err)
	}

	l.mu.Lock()
	write, synced = syscall.EROFS, syscall.EROFS
	l.mu.Unlock()
	if _, err := l.Append(ctx, "decision", []byte(`{}`), true); err == nil {
		t.Fatal("control: the record was taken")
	}
	now.add(time.Second)
	if err := l.Ready(); !errors.Is(err, syscall.EROFS) || l.Failed() == nil {
		t.Error("the disk still fails:", err)
	}
	l.mu.Lock()
	write, synced = nil, nil
	l.mu.Unlock()
	now.add(time.Second)
	if err := l.Ready(); err != nil || l.Failed() != nil {
		t.Error("the disk works again:", err, l.Failed())
	}
}
