package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/approval"
)

// aging is a log whose clock the test moves, a day at a time, with a segment for each few days.
type aging struct {
	t   *testing.T
	dir string
	m   *memory
	calendar
	logs []*Log
}

// calendar is a clock whose days a test lets pass, while goroutines read it.
type calendar struct {
	begin  time.Time
	passed atomic.Int64 // days
}

func (c *calendar) now() time.Time {
	return c.begin.Add(time.Duration(c.passed.Load()) * 24 * time.Hour)
}

func newAging(t *testing.T, processes int) *aging {
	a := &aging{
		t: t, dir: filepath.Join(t.TempDir(), "log"), m: &memory{},
		calendar: calendar{begin: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	for i := range processes {
		age := 4 * 24 * time.Hour
		if i > 0 {
			age = 0 // it begins no segment itself
		}
		l, err := Open(context.Background(), a.dir, Options{
			Heads: a.m, SegmentAge: age, Now: a.now, HeadDelay: time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		a.logs = append(a.logs, l)
		t.Cleanup(func() { _ = l.Close() })
	}
	return a
}

// days writes a record a day through one process.
func (a *aging) days(n, process int) {
	a.t.Helper()
	for i := range n {
		a.passed.Add(1)
		if _, err := a.logs[process].Append(context.Background(), "day", fmt.Appendf(nil, `{"i":%d}`, i), true); err != nil {
			a.t.Fatal(err)
		}
	}
}

// settled waits until the head has passed what was written.
func (a *aging) settled() {
	for range 2000 {
		h, _ := a.m.Head(context.Background(), Name)
		n, err := Select(context.Background(), a.dir, Selection{Last: 1}, func(Record) error { return nil })
		if err != nil {
			a.t.Fatal(err)
		}
		if h != nil && h.Seq == n.Last {
			return
		}
		time.Sleep(time.Millisecond)
	}
	a.t.Fatal("the head stays behind")
}

func (a *aging) verify() Report {
	a.t.Helper()
	a.settled()
	h, _ := a.m.Head(context.Background(), Name)
	r, err := Verify(context.Background(), a.dir, []Anchor{{"waldo.db", h}}, a.now(), Expect{Keeps: []Retention{{Keep: keep}}})
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

const keep = 30 * 24 * time.Hour

// Prune removes whole segments older than the retention; the chain stays verifiable.
func TestPruneKeepsTheChainVerifiable(t *testing.T) {
	a := newAging(t, 1)
	a.days(100, 0)
	if r := a.verify(); !r.OK || r.Records != 101 || r.Segments < 20 {
		t.Fatalf("control: %+v", r)
	}
	p, err := a.logs[0].Prune(context.Background(), keep, "os:1", nil)
	if err != nil || p.Through < 60 || p.Through > 72 || len(p.Segments) < 15 {
		t.Fatalf("%+v %v", p, err)
	}
	r := a.verify()
	if !r.OK || r.Pruned != p.Through || r.Records != 102-p.Through ||
		!strings.Contains(fmt.Sprint(r.Findings), "pruned at") {
		t.Fatalf("%+v", r)
	}
	// again, with the earlier record of a removal removed as well
	a.days(60, 0)
	a.settled()
	if p, err = a.logs[0].Prune(context.Background(), keep, "os:1", nil); err != nil || p.Through < 120 {
		t.Fatalf("%+v %v", p, err)
	}
	if r := a.verify(); !r.OK || r.Pruned != p.Through {
		t.Fatalf("%+v", r)
	}
	if p, err = a.logs[0].Prune(context.Background(), keep, "os:1", nil); err != nil || p.Through != 0 {
		t.Errorf("a second time at once: %+v %v", p, err)
	}
	// another start finds the log as it is
	if err := a.logs[0].Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(context.Background(), a.dir, Options{Heads: a.m, Now: a.now})
	if err != nil || l.Recovery() != (Recovery{}) {
		t.Fatal(err, l.Recovery())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Each row removes or changes more than was pruned, and is found.
func TestPruneIsNoWayToHideMore(t *testing.T) {
	for _, row := range []struct {
		why, code string
		prune     bool
		harm      func(dir string, names []string) error
	}{
		{"the control", "", true, func(string, []string) error { return nil }},
		{"one more segment", "segment.order", true, func(dir string, names []string) error {
			return os.Remove(filepath.Join(dir, names[0]))
		}},
		{"segments without a record of it", "segment.order", false,
			func(dir string, names []string) error { return os.Remove(filepath.Join(dir, names[0])) }},
		{"a first record that follows another", "prune.mismatch", true, func(dir string, names []string) error {
			file := filepath.Join(dir, names[0])
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			first, rest, _ := strings.Cut(string(b), "\n")
			r, err := parseRecord([]byte(first))
			if err != nil {
				return err
			}
			r.Prev = genesis
			return os.WriteFile(file, append(append(r.seal(nil)[:0:0], r.seal(nil)...), rest...), 0o600)
		}},
	} {
		a := newAging(t, 1)
		a.days(100, 0)
		a.settled()
		if row.prune {
			if _, err := a.logs[0].Prune(context.Background(), keep, "os:1", nil); err != nil {
				t.Fatal(err)
			}
		}
		a.settled()
		names, err := segments(a.dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := row.harm(a.dir, names); err != nil {
			t.Fatal(err)
		}
		r := a.verify()
		codes := ""
		for _, f := range r.Findings {
			if f.Problem {
				codes += f.Code + " "
			}
		}
		if r.OK != (row.code == "") || !strings.Contains(codes, row.code) {
			t.Errorf("%s: %v %s", row.why, r.OK, codes)
		}
	}
}

// An idle process goes on after others have moved to new segments and its own was pruned. It fails if its segment was
// merely deleted.
func TestPruneWhileOthersWrite(t *testing.T) {
	a := newAging(t, 2)
	a.days(3, 1)
	a.days(100, 0)
	a.days(2, 1)
	a.days(2, 0)
	if r := a.verify(); !r.OK || r.Records != 108 {
		t.Fatalf("control: %+v", r)
	}
	a.days(60, 0)
	a.settled()
	if p, err := a.logs[0].Prune(context.Background(), keep, "os:1", nil); err != nil || p.Through < 105 {
		t.Fatal(p, err)
	}
	a.settled()
	a.days(5, 1)
	a.days(1, 0)
	if r := a.verify(); !r.OK {
		t.Fatalf("%+v", r)
	}
	a.days(1, 1) // it is in the last segment
	names, _ := segments(a.dir)
	if err := os.Remove(filepath.Join(a.dir, names[len(names)-1])); err != nil {
		t.Fatal(err)
	}
	if _, err := a.logs[1].Append(context.Background(), "day", []byte(`{}`), true); err == nil {
		t.Error("a log whose last segment was taken away takes records")
	}
}

// Prune never removes segments that the heads have not passed, or the current one.
func TestPruneLeavesWhatHeadsNeed(t *testing.T) {
	a := newAging(t, 1)
	a.days(20, 0)
	a.settled()
	a.passed.Add(1000)
	behind := &memory{}
	h, _ := a.m.Head(context.Background(), Name)
	old := *h
	old.Seq = 1
	if err := behind.ResetHead(context.Background(), Name, old); err != nil {
		t.Fatal(err)
	}
	all, err := Prunable(context.Background(), a.dir, Options{Heads: a.m}, a.now())
	if names, _ := segments(a.dir); err != nil || len(all.Segments) != len(names)-1 {
		t.Fatalf("control: %+v %v", all, err)
	}
	if p, err := Prunable(context.Background(), a.dir, Options{Heads: a.m, Second: behind}, a.now()); err != nil ||
		p.Through != 0 {
		t.Errorf("%+v %v", p, err)
	}
}

// Approvers survive a removal, for Verify and for witnesses, including a witness that was reading the removed
// records.
func TestPruneCarriesApprovers(t *testing.T) {
	b := newApprovals(t)
	early := &Witness{Dir: b.dir}
	firsts := func(w *Witness) (n int, err error) {
		err = w.Look(context.Background(), func(l *approval.Ledger) { n = len(l.Firsts()) })
		return n, err
	}
	if n, err := firsts(early); n != 1 || err != nil {
		t.Fatalf("control: %d %v", n, err)
	}
	closeLog(t, b.log)
	c := calendar{begin: time.Now()}
	b.log = openLog(t, b.dir, Options{
		Heads: b.store, SegmentAge: 4 * 24 * time.Hour, Now: c.now, HeadDelay: time.Millisecond,
	})
	for range 2 { // the second time the first record of a removal is removed as well
		for range 60 {
			c.passed.Add(1)
			if _, err := b.log.Append(context.Background(), "day", []byte(`{}`), true); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond) // for the head
		if _, err := b.log.Prune(context.Background(), keep, "os:1", nil); !errors.Is(err, ErrUnsigned) {
			t.Fatalf("nobody signed: %v", err)
		}
		p, err := b.log.Prune(context.Background(), keep, "os:1", b.sign)
		if err != nil || p.Through == 0 || len(p.Approvers) != 1 {
			t.Fatalf("%+v %v", p, err)
		}
		for why, w := range map[string]*Witness{"new": {Dir: b.dir}, "early": early} {
			if n, err := firsts(w); n != 1 || err != nil {
				t.Errorf("a witness that is %s: %d first approvers, %v", why, n, err)
			}
		}
	}
	names, _ := segments(b.dir)
	if err := os.Remove(filepath.Join(b.dir, names[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := firsts(&Witness{Dir: b.dir}); err == nil {
		t.Error("a witness reads a log whose beginning was taken away")
	}
	closeLog(t, b.log)
	b.log = nil
}
