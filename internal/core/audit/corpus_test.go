package audit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/testing/corpus"
)

// A corpus row names a change to a log of 50 records and the expected result.
type corpusRow struct {
	ID, Class, Expect, Why string
	Input                  struct {
		Records int
		Ops     [][]any
		Args    json.RawMessage
		ArgsRaw string `json:"args_raw"`
		Size    int    `json:"args_size"`
		Depth   int    `json:"args_depth"`
		Tool    string
		Call    string
		N       int
	}
	Text string `json:"input_json_text"`
}

// bench is a log under attack.
type bench struct {
	t   *testing.T
	dir string
	m   *memory
}

// build writes a log of n records, with a new segment at each of the numbers in rotate.
func build(t *testing.T, n int, rotate []int, now func() time.Time) *bench {
	t.Helper()
	b := &bench{t, t.TempDir(), &memory{}}
	l := openLog(t, b.dir, Options{Heads: b.m, Now: now})
	for i := 1; i < n; i++ {
		l.mu.Lock()
		l.o.SegmentBytes = 64 << 20
		if slices.Contains(rotate, i) {
			l.o.SegmentBytes = 1
		}
		l.mu.Unlock()
		addOne(t, l, i)
	}
	closeLog(t, l)
	return b
}

func addOne(t *testing.T, l *Log, i int) {
	t.Helper()
	if _, err := l.Append(ctx, "decision", fmt.Appendf(nil, `{"n":%d,"decision":"deny","price":10.50,"to":"café"}`, i),
		false); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) files() []string {
	names, err := segments(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	for i, n := range names {
		names[i] = filepath.Join(b.dir, n)
	}
	return names
}

// edit changes the lines of one segment.
func (b *bench) edit(file int, fn func([][]byte) [][]byte) {
	b.t.Helper()
	path := b.files()[file]
	old, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	lines := bytes.SplitAfter(bytes.Clone(old), []byte("\n"))
	out := bytes.Join(fn(lines[:len(lines)-1]), nil)
	if bytes.Equal(out, old) {
		b.t.Fatal("control: nothing was changed")
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) sub(i int, pattern, to string) {
	b.t.Helper()
	b.edit(0, func(l [][]byte) [][]byte {
		l[i] = regexp.MustCompile(pattern).ReplaceAll(l[i], []byte(to))
		return l
	})
}

func num(v any) int { return int(v.(float64)) }

// rehash chains every record from i on to the one before, as any process with write access can.
func rehash(t *testing.T, lines [][]byte, i int) [][]byte {
	t.Helper()
	for ; i < len(lines); i++ {
		text := bytes.TrimSuffix(lines[i], []byte("\n"))
		if i > 0 {
			before := bytes.TrimSuffix(lines[i-1], []byte("\n"))
			prev := before[len(before)-66 : len(before)-2]
			text = regexp.MustCompile(`"prev":"[0-9a-f]{64}"`).ReplaceAll(text, []byte(`"prev":"`+string(prev)+`"`))
		}
		body := text[:len(text)-tailLen]
		lines[i] = fmt.Appendf(nil, "%s,\"hash\":\"%s\"}\n", body, hashOf(body))
	}
	return lines
}

// mutations are what rows do to the files; each fails the test where it changes nothing.
var mutations = map[string]func(b *bench, op []any){
	"edit_value":             func(b *bench, op []any) { b.sub(num(op[1]), `("(?:n|log)":"?)`, `${1}9`) },
	"edit_value_same_length": func(b *bench, op []any) { b.sub(num(op[1]), `"body":\{"[nl]`, `"body":{"q`) },
	"flip_bit": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte { l[num(op[1])][150] ^= 1; return l })
	},
	"rename_key": func(b *bench, op []any) { b.sub(num(op[1]), `"body":\{"`, `"body":{"x`) },
	"remove_key": func(b *bench, op []any) { b.sub(num(op[1]), `"kind":"[a-z]*",`, ``) },
	"change_hash_field": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte { i := num(op[1]); l[i][len(l[i])-10] ^= 1; return l })
	},
	"duplicate": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte { i := num(op[1]); return insert(l, i, bytes.Clone(l[i])) })
	},
	"delete": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte { i := num(op[1]); return append(l[:i:i], l[i+1:]...) })
	},
	"delete_range": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte { return append(l[:num(op[1]):num(op[1])], l[num(op[2]):]...) })
	},
	"insert_forged": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte {
			i := num(op[1])
			forged := bytes.Replace(bytes.Clone(l[i]), []byte(`"body":{`), []byte(`"body":{"forged":1,`), 1)
			forged = forged[:len(forged)-1]
			head := forged[:len(forged)-tailLen]
			return insert(l, i, fmt.Appendf(nil, "%s,\"hash\":\"%s\"}\n", head, hashOf(head)))
		})
	},
	"swap": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte {
			i, j := num(op[1]), num(op[2])
			l[i], l[j] = l[j], l[i]
			return l
		})
	},
	"truncate_records": func(b *bench, op []any) { b.edit(0, func(l [][]byte) [][]byte { return l[:num(op[1])] }) },
	"truncate_bytes":   func(b *bench, op []any) { b.edit(0, func([][]byte) [][]byte { return nil }) },
	"remove_file":      func(b *bench, _ []any) { b.must(os.Remove(b.files()[0])) },
	"remove_rotated":   func(b *bench, op []any) { b.must(os.Remove(b.files()[num(op[1])])) },
	"swap_files": func(b *bench, op []any) {
		f := b.files()
		x, y := f[num(op[1])], f[num(op[2])]
		b.must(errors.Join(os.Rename(x, x+"~"), os.Rename(y, x), os.Rename(x+"~", y)))
	},
	"gzip": func(b *bench, op []any) {
		path := b.files()[num(op[1])]
		raw, err := os.ReadFile(path)
		b.must(err)
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, err = w.Write(raw)
		b.must(errors.Join(err, w.Close(), os.WriteFile(path+".gz", z.Bytes(), 0o600), os.Remove(path)))
	},
	"replace_by_other_log": func(b *bench, _ []any) {
		other := build(b.t, 50, nil, clock())
		raw, err := os.ReadFile(other.files()[0])
		b.must(errors.Join(err, os.WriteFile(b.files()[0], raw, 0o600)))
	},
	"concatenate_other": func(b *bench, _ []any) {
		other := build(b.t, 50, nil, clock())
		raw, err := os.ReadFile(other.files()[0])
		b.must(err)
		b.edit(0, func(l [][]byte) [][]byte { return append(l, raw) })
	},
	"rehash_from": func(b *bench, op []any) {
		i := num(op[1])
		b.edit(0, func(l [][]byte) [][]byte {
			l[i] = regexp.MustCompile(`("(?:n|log)":"?)`).ReplaceAll(l[i], []byte(`${1}9`))
			return rehash(b.t, l, i)
		})
	},
	"reorder_keys":   func(b *bench, op []any) { b.sub(num(op[1]), `("prev":"[^"]*"),("kind":"[^"]*")`, `$2,$1`) },
	"renumber":       func(b *bench, op []any) { b.sub(num(op[1]), `10\.50`, `10.5`) },
	"escape_unicode": func(b *bench, op []any) { b.sub(num(op[1]), `\\u00e9`, `é`) },
	"duplicate_key": func(b *bench, op []any) {
		b.sub(num(op[1]), `"decision":"deny"`, `"decision":"deny","decision":"allow"`)
	},
	"crlf": func(b *bench, _ []any) {
		b.edit(0, func(l [][]byte) [][]byte {
			for i := range l {
				l[i] = bytes.Replace(l[i], []byte("\n"), []byte("\r\n"), 1)
			}
			return l
		})
	},
	"append_bytes": func(b *bench, op []any) {
		b.edit(0, func(l [][]byte) [][]byte { return append(l, []byte(op[1].(string))) })
	},
	"insert_raw": func(b *bench, op []any) {
		text := op[2].(string)
		if strings.HasPrefix(text, "xxx") {
			text = strings.Repeat("x", 100<<20) // the row represents a line of 100 MB
		}
		b.edit(0, func(l [][]byte) [][]byte { return insert(l, num(op[1]), []byte(text+"\n")) })
	},
	"remove_checkpoint": func(b *bench, _ []any) { b.m.head = nil },
	"edit_checkpoint":   func(b *bench, _ []any) { h := *b.m.head; h.Hash = hashOf(nil); b.m.head = &h },
	"restore_checkpoint_at": func(b *bench, op []any) {
		raw, err := os.ReadFile(b.files()[0])
		b.must(err)
		line := bytes.Split(raw, []byte("\n"))[num(op[1])]
		r, err := parseRecord(line)
		b.must(err)
		h := place{seq: r.Seq, hash: r.Hash, in: segmentName(1), start: int64(bytes.Index(raw, line))}.head(time.Now())
		b.m.head = &h
	},
}

func insert(l [][]byte, i int, x []byte) [][]byte {
	out := append([][]byte{}, l[:i]...)
	return append(append(out, x), l[i:]...)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestCorpusMutate(t *testing.T) {
	judged, none := 0, 0
	for _, r := range corpus.Rows[corpusRow](t, "audit.jsonl") {
		if strings.HasPrefix(r.Class, "merkle") || r.Class != "mutate" {
			if strings.HasPrefix(r.Class, "merkle") {
				none++
			}
			continue
		}
		judged++
		t.Run(r.ID+" "+r.Why, func(t *testing.T) { judgeMutation(t, r) })
	}
	t.Logf("%d rows judged; %d rows of Merkle proofs do not apply: this format has a chain and no tree", judged, none)
}

func judgeMutation(t *testing.T, r corpusRow) {
	if special, ok := specials[r.Input.Ops[0][0].(string)]; ok {
		special(t)
		return
	}
	var rotate []int
	now := clock()
	for _, op := range r.Input.Ops {
		switch op[0] {
		case "rotate_at":
			rotate = append(rotate, num(op[1]))
		case "clock_back":
			now = jump(num(op[1]), -time.Hour)
		case "clock_forward":
			now = jump(num(op[1]), 365*24*time.Hour)
		}
	}
	b := build(t, r.Input.Records, rotate, now)
	if rep := verify(t, b.dir, b.m); !rep.OK || rep.Records != 50 || rep.Segments != len(rotate)+1 {
		t.Fatalf("control: %+v", rep)
	}
	for _, op := range r.Input.Ops {
		name := op[0].(string)
		if fn := mutations[name]; fn != nil {
			fn(b, op)
		} else if !strings.HasPrefix(name, "clock_") && name != "rotate_at" && name != "restart" && name != "append" &&
			name != "rotate_key" {
			t.Fatalf("no such operation: %s", name)
		}
		if name == "restart" { // it must not start anew over a removed log
			if _, err := Open(ctx, b.dir, Options{Heads: b.m}); !errors.Is(err, ErrTampered) {
				t.Fatalf("got %v", err)
			}
		}
	}
	with, without := verify(t, b.dir, b.m), verify(t, b.dir, nil)
	t.Logf("with the head: %s; without: %s", codes(with), codes(without))
	switch r.Expect {
	case "detect", "detect_or_warn", "detect_or_canonical", "bounded", "accept_or_detect", "accept_or_documented":
		if with.OK {
			t.Error("not detected")
		}
	case "detect_with_anchor", "detect_with_key_or_anchor":
		if with.OK {
			t.Error("not detected with the head")
		}
		if !without.OK {
			t.Error("detected without a head: then docs/audit.md claims too little")
		}
	case "accept_and_flag":
		if !with.OK || len(with.Findings) == 0 {
			t.Errorf("%+v", with)
		}
	case "accept":
		if !with.OK {
			t.Errorf("%+v", with)
		}
	default:
		t.Fatalf("no judge for %q", r.Expect)
	}
	openMustAgree(t, r, b)
}

// openMustAgree: if Verify rejects a record from the head's on that the head covers, Open refuses the log.
func openMustAgree(t *testing.T, r corpusRow, b *bench) {
	l, err := Open(ctx, b.dir, Options{Heads: b.m})
	if err == nil {
		defer func() { _ = l.Close() }()
	}
	cut := r.Expect == "detect_with_anchor" || strings.Contains(r.Why, "removed") || strings.Contains(r.Why, "emptied") ||
		strings.Contains(r.Why, "another machine")
	if cut && !errors.Is(err, ErrTampered) && !strings.Contains(r.Why, "key removed") {
		t.Errorf("Open: got %v", err)
	}
}

// jump is a clock that jumps at its nth reading and goes on from there for ever, or, forward, for
// one reading.
func jump(n int, by time.Duration) func() time.Time {
	base, i := clock(), 0
	return func() time.Time {
		i++
		at := base()
		if i == n || (by < 0 && i > n) {
			at = at.Add(by)
		}
		return at
	}
}

// specials are rows about writers and disks, which have tests of their own.
var specials = map[string]func(t *testing.T){
	"disk_full":     func(t *testing.T) { TestFailingDisk(t) },
	"second_writer": func(t *testing.T) { TestLockHeldElsewhere(t) },
	"parallel_writers": func(t *testing.T) {
		b := &bench{t, t.TempDir(), &memory{}}
		parallel(t, b, 2, 2, 500)
	},
	"parallel_appends": func(t *testing.T) {
		b := &bench{t, t.TempDir(), &memory{}}
		parallel(t, b, 1, 20, 500)
	},
}

// parallel has writers append at once through some logs over one folder.
func parallel(t *testing.T, b *bench, logs, writers, each int) {
	var all []*Log
	for range logs {
		all = append(all, openLog(t, b.dir, Options{Heads: b.m}))
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := all[w%logs].Append(ctx, "decision", fmt.Appendf(nil, `{"w":%d,"i":%d}`, w, i), i%50 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, l := range all {
		closeLog(t, l)
	}
	if rep := verify(t, b.dir, b.m); !rep.OK || rep.Records != uint64(writers*each+1) {
		t.Fatalf("%+v", rep)
	}
	seen := map[string]int{}
	if err := eachRecord(b.dir, func(r Record) { seen[string(r.Body)]++ }); err != nil {
		t.Fatal(err)
	}
	for w := range writers {
		for i := range each {
			if n := seen[fmt.Sprintf(`{"w":%d,"i":%d}`, w, i)]; n != 1 {
				t.Fatalf("record %d of writer %d is there %d times", i, w, n)
			}
		}
	}
}

func eachRecord(dir string, fn func(Record)) error {
	return each(ctx, dir, nil, func(r Record) error { fn(r); return nil })
}

func TestCorpusCrash(t *testing.T) {
	for _, r := range corpus.Rows[corpusRow](t, "audit.jsonl") {
		if r.Class == "crash" {
			t.Run(r.ID+" "+r.Why, func(t *testing.T) { judgeCrash(t, r) })
		}
	}
}

func judgeCrash(t *testing.T, r corpusRow) {
	op := r.Input.Ops[0]
	switch op[0] {
	case "fsync_error", "short_write", "enospc_once":
		TestFailingDisk(t)
		return
	case "restart_n":
		TestChainGoesOn(t)
		return
	}
	b := build(t, 50, nil, clock())
	mutations["restore_checkpoint_at"](b, []any{"", float64(39)}) // the head is a little behind when it happens
	raw, err := os.ReadFile(b.files()[0])
	b.must(err)
	last := bytes.LastIndexByte(raw[:len(raw)-1], '\n') + 1
	wantRecords, torn := uint64(50), true
	now := func() time.Time { return time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC) }
	switch op[0] {
	case "kill_during_append":
		keep := map[string]int{
			"half": (len(raw) - last) / 2, "len-1": len(raw) - last - 1, "len": len(raw) - last, "len+1": len(raw) - last,
		}[fmt.Sprint(op[2])]
		if n, err := strconv.Atoi(fmt.Sprint(op[2])); err == nil {
			keep = n
		}
		raw = raw[:last+keep]
		torn = raw[len(raw)-1] != '\n'
		if torn || keep == 0 {
			wantRecords = 49
		}
	case "torn_sector": // the file has its new length, and its last bytes were never written
		wantRecords = 49
		clear(raw[len(raw)-200:])
	case "reorder_blocks": // the last record came to the disk, and the one before it did not
		wantRecords = 48
		before := bytes.LastIndexByte(raw[:last-1], '\n') + 1
		clear(raw[before : before+100])
	case "restart_clock_back":
		torn, now = false, func() time.Time { return time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC) }
	case "restart_config":
		torn = false
	default:
		t.Fatalf("no such operation: %v", op)
	}
	b.must(os.WriteFile(b.files()[0], raw, 0o600))
	l := openLog(t, b.dir, Options{Heads: b.m, Now: now})
	rec := l.Recovery()
	if torn != (rec.TornBytes > 0) || rec.Past != wantRecords-40 {
		t.Errorf("recovered %+v; want %d records past the head, torn %v", rec, wantRecords-40, torn)
	}
	if torn {
		if aside, err := os.ReadFile(filepath.Join(b.dir, rec.SetAside)); err != nil || int64(len(aside)) != rec.TornBytes {
			t.Errorf("what was torn is not kept: %v", err)
		}
	}
	addOne(t, l, 99)
	closeLog(t, l)
	rep := verify(t, b.dir, b.m)
	told := bytes.Contains(mustRead(t, b.files()[0]), []byte(`"kind":"recovered"`))
	if !rep.OK || rep.Records < wantRecords+1 || rep.Records > wantRecords+2 {
		t.Errorf("%+v", rep)
	}
	if op[0] == "restart_clock_back" {
		if codes(rep) != "head.recovered clock.back" {
			t.Errorf("the clock is not flagged: %s", codes(rep))
		}
	}
	if !told {
		t.Error("the log does not say that it recovered")
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCorpusContent(t *testing.T) {
	for _, r := range corpus.Rows[corpusRow](t, "audit.jsonl") {
		if r.Class == "content" {
			t.Run(r.ID+" "+r.Why, func(t *testing.T) { judgeContent(t, r) })
		}
	}
}

func judgeContent(t *testing.T, r corpusRow) {
	if r.Expect == "bounded_time" {
		t.Log("measured by BenchmarkVerify: a million records take about a second")
		return
	}
	dir := t.TempDir()
	l := openLog(t, dir, Options{Heads: &memory{}})
	args := []byte(r.Input.Args)
	switch {
	case r.Text != "":
		var in struct{ Args json.RawMessage }
		if err := json.Unmarshal([]byte(r.Text), &in); err != nil {
			t.Fatal(err)
		}
		args = in.Args
	case r.Input.ArgsRaw != "":
		args = []byte(r.Input.ArgsRaw)
	case r.Input.Size > 0:
		args = []byte(`{"x":"` + strings.Repeat("x", r.Input.Size) + `"}`)
	case r.Input.Depth > 0:
		args = []byte(strings.Repeat(`{"a":`, r.Input.Depth) + "1" + strings.Repeat("}", r.Input.Depth))
	}
	if len(args) == 0 {
		args = []byte("{}")
	}
	d := decision(t, "{}")
	if r.Input.Tool != "" {
		d.Call.Capability = call.Capability(r.Input.Tool)
	}
	if r.Input.Call == "denied" {
		d.Effect = policy.Deny
	}
	rec := &Recorder{Log: l, Args: func(policy.Decision) strictjson.Value {
		v, _ := strictjson.Parse(args) // the redactor returns strict JSON only
		return v
	}}
	if err := rec.Decision(ctx, d); err != nil {
		t.Fatal(err)
	}
	raw, err := l.Append(ctx, "decision", args, false) // as a body of its own, regardless of its content
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	all := strings.Split(strings.TrimSuffix(string(mustRead(t, filepath.Join(dir, segmentName(1)))), "\n"), "\n")
	if len(all) != 3 {
		t.Fatalf("%d lines; want 3", len(all))
	}
	lineOf(t, raw)
	got, err := parseRecord([]byte(all[1]))
	if err != nil {
		t.Fatal(err)
	}
	lineOf(t, got)
	var body Decided
	if err := json.Unmarshal(got.Body, &struct{ *Decided }{&body}); err != nil &&
		!strings.Contains(err.Error(), "cannot unmarshal string into Go") {
		t.Fatal(err)
	}
	switch r.Expect {
	case "bounded_with_digest", "bounded":
		if len(all[1]) > 2000 || len(all[2]) > 2000 || !strings.Contains(all[2], `"sha256":"`+hashOf(args)) {
			t.Errorf("%d and %d bytes: %.300s", len(all[1]), len(all[2]), all[2])
		}
	case "real_actor_kept":
		if body.Principal != "os:1000" || !strings.Contains(string(body.Args), "admin") {
			t.Errorf("%+v", body)
		}
	case "recorded":
		if !strings.Contains(string(got.Body), `"effect":"deny"`) {
			t.Errorf("%s", got.Body)
		}
	case "escaped":
		if r.Input.Tool != "" && body.Capability != r.Input.Tool {
			t.Errorf("%q became %q", r.Input.Tool, body.Capability)
		}
	}
}
