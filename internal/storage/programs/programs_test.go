package programs

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func saved(t *testing.T) (Store, string) {
	t.Helper()
	s := Store{Dir: filepath.Join(t.TempDir(), "programs")}
	name, err := s.Save(Program{Capability: "run_javascript", Session: "n_1", Principal: "os:7",
		Approvals: []string{"a_1"}, Image: []byte("x\ny\x00")})
	if err != nil {
		t.Fatal(err)
	}
	return s, name
}

// TestOnce: a program goes on once, for its principal, and comes back as it was.
func TestOnce(t *testing.T) {
	s, name := saved(t)
	for _, other := range []string{"os:8", "beta/os:7"} {
		if _, err := s.Take(name, other); !errors.Is(err, ErrAbsent) {
			t.Errorf("another principal, %s: %v", other, err)
		}
	}
	p, err := s.Take(name, "os:7")
	if err != nil || string(p.Image) != "x\ny\x00" || p.Session != "n_1" || p.Approvals[0] != "a_1" {
		t.Fatalf("%+v %v", p, err)
	}
	if _, err := s.Take(name, "os:7"); !errors.Is(err, ErrRunning) {
		t.Errorf("a second time: %v", err)
	}
	if p, err := s.Look(name, "os:7"); err != nil || p.Session != "n_1" {
		t.Errorf("a look at what was taken: %+v %v", p, err)
	}
	if _, err := s.Look(name, "os:8"); !errors.Is(err, ErrAbsent) {
		t.Errorf("a look by another principal: %v", err)
	}
	if err := s.Return(name); err != nil {
		t.Error(err)
	}
	if _, err := s.Take(name, "os:7"); err != nil {
		t.Errorf("after its return: %v", err)
	}
	if err := s.End(name); err != nil {
		t.Error(err)
	}
	if _, err := s.Take(name, "os:7"); !errors.Is(err, ErrAbsent) {
		t.Errorf("after its end: %v", err)
	}
	for _, bad := range []string{"", "key", "../key", "g_x", "g_" + string(bytes.Repeat([]byte("a"), 26))} {
		if _, err := s.Take(bad, "os:7"); !errors.Is(err, ErrAbsent) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestSealed: a file that was changed, or has another's name, does not open, and shows nothing of the program.
func TestSealed(t *testing.T) {
	s, name := saved(t)
	other, err := s.Save(Program{Principal: "os:7", Image: []byte("other")})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(s.Dir, name)
	text, err := os.ReadFile(at)
	if err != nil || bytes.Contains(text, []byte("run_javascript")) {
		t.Fatalf("%v: the file is not sealed", err)
	}
	for i := range text {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		if err := os.WriteFile(at, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Take(name, "os:7"); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.Dir, other), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(other, "os:7"); !errors.Is(err, ErrDamaged) {
		t.Errorf("another's name: %v", err)
	}
	if err := os.WriteFile(at, text[:10], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(name, "os:7"); !errors.Is(err, ErrDamaged) {
		t.Errorf("cut: %v", err)
	}
}

// TestSweep: only old programs are removed.
func TestSweep(t *testing.T) {
	s, name := saved(t)
	s.Sweep(time.Now())
	if _, err := os.Stat(filepath.Join(s.Dir, name)); err != nil {
		t.Errorf("a new one is gone: %v", err)
	}
	s.Sweep(time.Now().Add(Retention + time.Hour))
	if _, err := os.Stat(filepath.Join(s.Dir, name)); err == nil {
		t.Error("an old one is there")
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "key")); err != nil {
		t.Errorf("the key is gone: %v", err)
	}
}

// BenchmarkTenThousand stores 10,000 programs of the usual size, and measures the memory that this takes.
func BenchmarkTenThousand(b *testing.B) {
	image := make([]byte, 60_000)
	_, _ = rand.Read(image)
	for b.Loop() {
		s := Store{Dir: filepath.Join(b.TempDir(), "programs")}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range 10_000 {
			if _, err := s.Save(Program{Principal: "os:7", Image: image}); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(max(int64(after.HeapAlloc)-int64(before.HeapAlloc), 0))/1e6, "MB")
		b.ReportMetric(10_000*float64(len(image))/1e6, "disk-MB")
	}
}

// TestList: programs are listed with their sizes and without their images, and removed by owner.
func TestList(t *testing.T) {
	if all, err := (Store{Dir: filepath.Join(t.TempDir(), "none")}).List(); err != nil || len(all) != 0 {
		t.Errorf("%v %v", all, err)
	}
	s, first := saved(t)
	second, err := s.Save(Program{Session: "n_2", Principal: "os:8", At: time.Now(), Image: make([]byte, 5000)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Take(first, "os:7"); err != nil {
		t.Fatal(err)
	}
	all, err := s.List()
	if err != nil || len(all) != 2 || all[0].ID != first || !all[0].Taken || all[1].ID != second || all[1].Taken ||
		all[1].Bytes < 5000 || all[1].Image != nil || all[0].Session != "n_1" {
		t.Errorf("%+v %v", all, err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, second), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); err != nil || len(all) != 1 {
		t.Errorf("a file that was changed: %+v %v", all, err)
	}
	if n, err := s.Remove(func(p Program) bool { return p.Session == "n_none" }); n != 0 || err != nil {
		t.Errorf("control: %d %v", n, err)
	}
	if n, err := s.Remove(func(p Program) bool { return p.Session == "n_1" }); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if _, err := s.Take(first, "os:7"); !errors.Is(err, ErrAbsent) {
		t.Errorf("after its removal: %v", err)
	}
}
