package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// calls writes n calls to a log in small segments and returns the folder.
func calls(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}, SegmentBytes: 3000})
	r := &Recorder{Log: l}
	for i := range n {
		d := decision(t, `{}`)
		d.ID, d.Call.ID = fmt.Sprint("d_", i), fmt.Sprint("c_", i)
		d.Call.Parent = "c_parent"
		if err := r.Decision(ctx, d); err != nil {
			t.Fatal(err)
		}
		if err := r.Answer(ctx, d, approval.Answer{
			ApprovalID: fmt.Sprint("a_", i), Yes: i%2 == 0, By: "approver:=ann",
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Outcome(ctx, d, call.Result{Status: facts.OK, Facts: facts.New()}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Append(ctx, "decision", []byte(`{"call_id":"c_x","args":{"call_id":"c_3"}}`), true); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	return dir
}

func TestFind(t *testing.T) {
	dir := calls(t, 10)
	for id, want := range map[string]int{"c_3": 3, "d_3": 3, "a_3": 1, "c_parent": 10, "c_none": 0, "": 0} {
		got, err := Find(ctx, dir, id)
		if err != nil || (id != "" && len(got) != want) {
			t.Errorf("%s: %d records, %v; want %d", id, len(got), err, want)
		}
	}
	if got, _ := Find(ctx, dir, "c_3"); got[0].Kind != KindDecision || got[2].Kind != KindOutcome {
		t.Error("out of order")
	}
	if effect, ended := Fate(ctx, dir, "c_3"); effect != facts.Unknown || !ended {
		t.Errorf("the fate of c_3: %s %v", effect, ended)
	}
	if _, ended := Fate(ctx, dir, "c_x"); ended { // a decision and no outcome
		t.Error("c_x has no end")
	}
}

// TestSearchesStop: a search about a call reads no segment older than what it looks for, and finds all that is newer. The
// oldest segment cannot be read here. The control needs it.
func TestSearchesStop(t *testing.T) {
	dir := t.TempDir()
	r := &Recorder{Log: openLog(t, dir, Options{Heads: &memory{}, SegmentBytes: 3000})}
	of := func(n int) policy.Decision {
		d := decision(t, `{}`)
		d.ID, d.Call.ID, d.Effect = fmt.Sprint("d_", n), fmt.Sprint("c_", n), policy.Allow
		return d
	}
	undo := func(id string, effect facts.SideEffect) {
		d := of(0)
		d.ID, d.Call.ID, d.Call.Parent, d.Call.Capability, d.Effect = "d_"+id, "c_"+id, "c_8", "s.drop", policy.Allow
		res := call.Result{Status: facts.OK, Facts: facts.New()}
		res.Facts.SideEffect = effect
		if err := r.Decision(ctx, d); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Outcome(ctx, d, res); err != nil {
			t.Fatal(err)
		}
	}
	asked := func(from int) {
		for n := range 10 {
			if err := r.Decision(ctx, of(from+n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	asked(0)
	names, err := segments(dir)
	if err != nil || len(names) < 3 {
		t.Fatalf("control: %v %v", names, err)
	}
	first := filepath.Join(dir, names[0])
	if err := errors.Join(os.Rename(first, first+".away"), os.Symlink(first+".away", first)); err != nil {
		t.Fatal(err)
	}
	if by, err := r.Undone(ctx, of(8), "s.drop"); by != "" || err != nil || !r.Standing(ctx, of(8), false).Allowed {
		t.Errorf("c_8: undone by %q, %v, or nobody asked for it", by, err)
	}
	if _, err := r.Undone(ctx, of(0), "s.drop"); err == nil || r.Standing(ctx, of(0), false).Allowed {
		t.Error("control: the oldest segment was read")
	}
	other := of(8)
	other.ID = "d_other"
	if r.Standing(ctx, other, false).Allowed {
		t.Error("another decision was asked for")
	}
	undo("failed", facts.None)
	undo("done", facts.Confirmed)
	if err := r.Decision(ctx, other); err != nil { // the call comes again, after it was undone
		t.Fatal(err)
	}
	asked(100)
	if by, err := r.Undone(ctx, of(8), "s.drop"); by != "c_done" || err != nil {
		t.Errorf("c_8: undone by %q, %v", by, err)
	}
	if effect, ended := Fate(ctx, dir, "c_failed"); effect != facts.None || !ended {
		t.Errorf("the undo that failed: %s %t", effect, ended)
	}
}

func TestSelectTheLast(t *testing.T) {
	dir := calls(t, 10)
	for _, n := range []int{1, 7, 32, 500} {
		var got []Record
		_, err := Select(ctx, dir, Selection{Last: n}, func(r Record) error { got = append(got, r); return nil })
		want := min(n, 32)
		if err != nil || len(got) != want || (want > 0 && got[len(got)-1].Seq != 32) {
			t.Errorf("tail %d: %d records, %v", n, len(got), err)
		}
	}
	if names, _ := segments(dir); len(names) < 5 {
		t.Errorf("%d segments", len(names))
	}
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}, SegmentBytes: 1000})
	add(t, l, 5)
	stop, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	next := uint64(4)
	err := Follow(stop, dir, 3, func(r Record) error {
		if r.Seq != next {
			return fmt.Errorf("record %d; want %d", r.Seq, next)
		}
		if next++; r.Seq == 6 {
			add(t, l, 20)
		}
		if r.Seq == 26 {
			cancel()
		}
		return nil
	})
	if err != nil || next != 27 {
		t.Fatal(next, err)
	}
}

func TestSetAside(t *testing.T) {
	b := build(t, 50, []int{25}, clock())
	o := Options{Heads: b.m}
	if _, err := SetAside(ctx, b.dir, o, Aside{By: "os:0", Reason: "tidying"}); err == nil {
		t.Fatal("a sound log was set aside")
	}
	b.must(os.Truncate(b.files()[1], 1000))
	if _, err := Open(ctx, b.dir, o); !errors.Is(err, ErrTampered) {
		t.Fatal("control: ", err)
	}
	if _, err := SetAside(ctx, b.dir, o, Aside{By: "os:0"}); err == nil {
		t.Fatal("without a reason")
	}
	before := mustRead(t, b.files()[0])
	folder, err := SetAside(ctx, b.dir, o, Aside{By: "os:0", Reason: "the disk was full"})
	b.must(err)
	if after := mustRead(t, filepath.Join(folder, segmentName(1))); !bytes.Equal(before, after) {
		t.Error("the old log was changed")
	}
	l := openLog(t, b.dir, o)
	add(t, l, 3)
	closeLog(t, l)
	if rep := verify(t, b.dir, b.m); !rep.OK || rep.Records != 4 {
		t.Fatalf("%+v", rep)
	}
	first := mustRead(t, b.files()[0])
	for _, want := range []string{`"by":"os:0"`, `"reason":"the disk was full"`, `"head.past_end"`, `"seq":50`} {
		if !bytes.Contains(first[:bytes.IndexByte(first, '\n')], []byte(want)) {
			t.Errorf("the first record lacks %s", want)
		}
	}
}

// TestVerifyByAStranger runs the program in docs/audit.md, which knows nothing of this package.
func TestVerifyByAStranger(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the program in docs/audit.md is checked where python3 is")
	}
	doc := string(mustRead(t, filepath.Join("..", "..", "..", "docs", "audit.md")))
	_, code, ok := strings.Cut(doc, "```python\n")
	code, _, end := strings.Cut(code, "```")
	if !ok || !end {
		t.Fatal("docs/audit.md has no program")
	}
	if n := strings.Count(code, "\n"); n > 20 {
		t.Errorf("it has %d lines", n)
	}
	run := func(b *bench) (string, error) {
		out, err := exec.Command(python, "-c", code, b.dir).CombinedOutput()
		return string(out), err
	}
	b := build(t, 50, []int{20}, clock())
	out, err := run(b)
	if err != nil || !strings.Contains(out, fmt.Sprintf("50 %s", b.m.head.Hash)) {
		t.Fatalf("%v: %s", err, out)
	}
	for _, op := range []string{"edit_value", "flip_bit", "delete", "duplicate", "remove_key", "reorder_keys"} {
		b := build(t, 50, []int{20}, clock())
		mutations[op](b, []any{op, float64(7)})
		if out, err := run(b); err == nil {
			t.Errorf("%s: not seen: %s", op, out)
		}
	}
}

// FuzzRecord: every accepted record is written back byte for byte, on one line of ASCII, and its hash is that of its
// bytes.
func FuzzRecord(f *testing.F) {
	r := Record{
		Seq: 1, ID: "e_aaaaaaaaaaaaaaaaaaaaaaaaaa", At: "2026-11-20T12:00:00.000Z", Prev: genesis, Kind: "decision",
		Body: []byte(`{"a":"\u00e9"}`),
	}
	line := r.seal(nil)
	f.Add(line[:len(line)-1])
	r.Body = []byte(`{},"kind":"x","body":{}`)
	line = r.seal(nil)
	f.Add(line[:len(line)-1])
	f.Add([]byte(`{"v":1,"seq":01`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, in := range [][]byte{b, rehashed(b)} {
			r, err := parseRecord(in)
			if err != nil {
				continue
			}
			if !bytes.Equal(r.line(), in) {
				t.Fatalf("read  %q\nwrote %q", in, r.line())
			}
			if !json.Valid(in) || bytes.ContainsAny(in, "\n\r") {
				t.Fatalf("not one line of JSON: %q", in)
			}
			if hashOf(in[:len(in)-tailLen]) != r.Hash {
				t.Fatal("the hash does not fit")
			}
		}
	})
}

// rehashed gives a line the hash that fits it, so that fuzzing comes past that check.
func rehashed(b []byte) []byte {
	if len(b) < tailLen {
		return b
	}
	head := b[:len(b)-tailLen]
	return fmt.Appendf(nil, `%s,"hash":"%s"}`, head, hashOf(head))
}

// FuzzBounded: any body is recorded as one JSON object of printable ASCII, and a strict one keeps its value.
func FuzzBounded(f *testing.F) {
	for _, s := range []string{
		`{"a":"\ud800"}`, `{"a":1,"a":2}`, "{\"a\":\"é\u2028\x7f\"}", `{"a" : "\" b\\" , "c":[ 1 ]}`, "\xff", `{"x":"😀"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out := bounded(b)
		for _, c := range out {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("byte %#x in %q", c, out)
			}
		}
		r := Record{
			Seq: 1, ID: "e_aaaaaaaaaaaaaaaaaaaaaaaaaa", At: "2026-11-20T12:00:00.000Z", Prev: genesis, Kind: "x", Body: out,
		}
		line := r.seal(nil)
		if _, err := parseRecord(line[:len(line)-1]); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		if bytes.HasPrefix(out, []byte(`{"left_out"`)) {
			return
		}
		var before, after any
		if json.Unmarshal(b, &before) == nil &&
			(json.Unmarshal(out, &after) != nil || fmt.Sprint(before) != fmt.Sprint(after)) {
			t.Fatalf("%q became %q", b, out)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	body := []byte(`{"decision_id":"d_aaaaaaaaaaaaaaaaaaaaaaaaaa","call_id":"c_aaaaaaaaaaaaaaaaaaaaaaaaaa",` +
		`"effect":"allow","args":{"path":"/work/a","text":"` + strings.Repeat("x", 300) + `"}}`)
	for _, sync := range []bool{false, true} {
		for _, writers := range []int{1, 32} {
			b.Run(fmt.Sprintf("sync=%v/writers=%d", sync, writers), func(b *testing.B) {
				dir := b.TempDir()
				l, err := Open(ctx, dir, Options{Heads: &memory{}})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = l.Close() }()
				old := time.Now().Add(-time.Hour) // the folder changes with each segment alone
				if err := os.Chtimes(dir, old, old); err != nil {
					b.Fatal(err)
				}
				work := make(chan struct{})
				done := make(chan struct{})
				for range writers {
					go func() {
						for range work {
							if _, err := l.Append(ctx, "decision", body, sync); err != nil {
								b.Error(err)
							}
						}
						done <- struct{}{}
					}()
				}
				b.ResetTimer()
				for range b.N {
					work <- struct{}{}
				}
				close(work)
				for range writers {
					<-done
				}
			})
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	dir := b.TempDir()
	l, err := Open(ctx, dir, Options{Heads: &memory{}})
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(`{"decision_id":"d_aaaaaaaaaaaaaaaaaaaaaaaaaa","call_id":"c_aaaaaaaaaaaaaaaaaaaaaaaaaa",` +
		`"effect":"allow","args":{"path":"/work/a","text":"` + strings.Repeat("x", 300) + `"}}`)
	for range 100 {
		batch := make([]*pending, 1000)
		for i := range batch {
			batch[i] = &pending{kind: "decision", body: body, result: make(chan result, 1)}
		}
		l.mu.Lock()
		l.write(batch)
		l.mu.Unlock()
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := Verify(ctx, dir, nil, time.Now(), Expect{})
		if err != nil || !r.OK || r.Records != 100_001 {
			b.Fatal(r, err)
		}
		b.SetBytes(r.Bytes)
	}
}

func BenchmarkOpenAndClose(b *testing.B) {
	dir, m := b.TempDir(), &memory{}
	for b.Loop() {
		l, err := Open(ctx, dir, Options{Heads: m})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzWhen: when takes what time.Parse takes in the same layout, and reads it the same.
func FuzzWhen(f *testing.F) {
	for _, s := range []string{
		"2026-11-22T03:14:15.926Z", "2024-02-29T23:59:59.999Z", "2026-02-29T00:00:00.000Z", "2026-13-01T00:00:00.000Z",
		"2026-11-22T24:00:00.000Z", "2026-11-22T03:60:00.000Z", "2026-11-22T03:00:60.000Z", "2026-11-22T03:14:15,926Z",
		"2026-11-22 03:14:15.926Z", "0000-01-01T00:00:00.000Z", "2026-00-10T00:00:00.000Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := time.Parse(TimeLayout, s)
		got, ok := when(s)
		if strings.Contains(s, ",") { // time.Parse takes it for the point of a fraction
			return
		}
		if ok != (err == nil && len(s) == len(TimeLayout)) || ok && !got.Equal(want) {
			t.Errorf("%q: %v %v; time.Parse: %v %v", s, got, ok, want, err)
		}
	})
}

func TestPrintable(t *testing.T) {
	for c := range 256 {
		for at := range 17 {
			b := []byte(strings.Repeat("~ ", 9))
			b[at] = byte(c)
			if want := c >= ' ' && c <= '~'; printable(b) != want {
				t.Errorf("byte %#x at %d: %v", c, at, !want)
			}
		}
	}
}
