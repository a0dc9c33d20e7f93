package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A selection takes the records of its time that match, the newest of them, and counts what it left.
func TestSelect(t *testing.T) {
	dir, heads := t.TempDir()+"/log", &memory{}
	clock := handClock()
	l, err := Open(context.Background(), dir, Options{
		Heads: heads, SegmentBytes: 1000, Now: clock.read,
	})
	if err != nil {
		t.Fatal(err)
	}
	start := clock.read()
	for i := range 40 { // with the first record, 41
		clock.add(time.Hour)
		kind := "even"
		if i%2 == 1 {
			kind = "odd"
		}
		if _, err := l.Append(context.Background(), kind, fmt.Appendf(nil, `{"call_id":"c_%d"}`, i), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if names, _ := segments(dir); len(names) < 5 {
		t.Fatalf("control: %d segments", len(names))
	}
	for _, row := range []struct {
		why  string
		s    Selection
		want []uint64
		n    Counted
	}{
		{"the last three", Selection{Last: 3}, []uint64{39, 40, 41}, Counted{3, 41, 41, 41, 0, false}},
		{"since an hour", Selection{Since: start.Add(39 * time.Hour)}, []uint64{40, 41}, Counted{2, 2, 41, 41, 0, false}},
		{"the last odd two", Selection{Last: 2, Kind: "odd"}, []uint64{39, 41}, Counted{2, 20, 41, 41, 0, false}},
		{"odd since", Selection{Kind: "odd", Since: start.Add(37 * time.Hour)}, []uint64{39, 41}, Counted{2, 2, 41, 41, 0, false}},
		{"ids, one twice", Selection{About: []string{"c_5", "c_3", "c_5", ""}}, []uint64{5, 7}, Counted{2, 2, 41, 41, 0, false}},
		{"nothing matches", Selection{Kind: "none"}, nil, Counted{0, 0, 41, 41, 0, false}},
		{"later than all", Selection{Since: clock.read().Add(time.Hour)}, nil, Counted{0, 0, 41, 41, 0, false}},
	} {
		var got []uint64
		n, err := Select(context.Background(), dir, row.s, func(r Record) error { got = append(got, r.Seq); return nil })
		if err != nil || !slices.Equal(got, row.want) || n != row.n {
			t.Errorf("%s: %v %+v %v, want %v %+v", row.why, got, n, err, row.want, row.n)
		}
	}
	names, err := segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(dir, names[1])
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	b[2] = '!' // the first of its records can no longer be read
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := Select(context.Background(), dir, Selection{Last: 3}, func(Record) error { return nil }); err != nil ||
		n != (Counted{3, 40, 41, 41, 1, false}) {
		t.Errorf("a damaged record: %+v %v", n, err)
	}
	if n, err := Select(context.Background(), t.TempDir(), Selection{}, nil); err != nil || n != (Counted{}) {
		t.Errorf("no log: %+v %v", n, err)
	}
}

// TestRefusedHosts: a run without any egress is found by the hosts that it was refused.
func TestRefusedHosts(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	for _, denied := range []string{`"example.com"`, `"192.0.2.1:80","b.example.com:443"`, ``} {
		body := fmt.Appendf(nil, `{"call_id":"c_1","status":"ok","facts":{"network":{"denied":[%s],"attempts":[]}}}`, denied)
		if _, err := l.Append(t.Context(), KindOutcome, body, true); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, l)
	for host, want := range map[string][]uint64{
		"example.com": {2}, "*.example.com": {3}, "192.0.2.1": {3}, "*": {2, 3}, "example.org": nil,
	} {
		var got []uint64
		_, err := Select(t.Context(), dir, Selection{Host: host}, func(r Record) error { got = append(got, r.Seq); return nil })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v, want %v", host, got, err, want)
		}
	}
}
