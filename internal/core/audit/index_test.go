package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/model/contract"
)

// busy is a log of calls of many callers, to which each step adds more.
type busy struct {
	*aging
	r     *rand.Rand
	calls []string
}

func newBusy(t *testing.T, processes int) *busy {
	return &busy{aging: newAging(t, processes), r: rand.New(rand.NewPCG(7, 11))}
}

func (b *busy) one(all ...string) string { return all[b.r.IntN(len(all))] }

// write adds n records: decisions, and others about calls before, some of long ago.
func (b *busy) write(n int) {
	b.t.Helper()
	for range n {
		body, kind := map[string]any{}, KindDecision
		switch k := b.r.IntN(10); {
		case k < 4 || len(b.calls) == 0:
			b.calls = append(b.calls, fmt.Sprint("c_", len(b.calls)))
			body = map[string]any{"call_id": b.calls[len(b.calls)-1], "decision_id": fmt.Sprint("d_", len(b.calls)),
				"principal": b.one("os:1", "os:2", "token:ci"), "capability": b.one("a.read", "a.write", "run_python"),
				"channel": b.one("mcp", "cli"), "agent": b.one("", "claude-code 1", "codex"), "effect": b.one("allow", "deny", "ask")}
			if len(b.calls) > 3 {
				body["parent"] = b.calls[b.r.IntN(len(b.calls)-1)]
			}
		case k < 8:
			kind = KindOutcome
			body["call_id"], body["capability"], body["status"] = b.calls[b.r.IntN(len(b.calls))], b.one("a.read", "a.write"), b.one("ok", "denied")
			if k == 7 {
				body["facts"] = map[string]any{"network": map[string]any{"denied": []string{"x"},
					"attempts": []any{map[string]any{"host": b.one("a.example.com", "b.example.com")}, map[string]any{"host": "c.example.org"}}}}
			}
		case k == 8:
			kind = b.one(KindVerdict, KindAnswer)
			body["approval_id"], body["by"], body["yes"] = fmt.Sprint("a_", b.r.IntN(9)), b.one("approver:ann", "os:1"), b.r.IntN(2) == 0
		default:
			kind = b.one("egress", "change", "port")
			body = map[string]any{"principal": "os:1", "call_id": b.calls[b.r.IntN(len(b.calls))],
				"attempts": []any{map[string]any{"host": "a.example.com", "allowed": b.r.IntN(2) == 0}}}
		}
		text, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		if _, err := b.logs[b.r.IntN(len(b.logs))].Append(ctx, kind, text, false); err != nil {
			b.t.Fatal(err)
		}
		if b.r.IntN(6) == 0 {
			b.passed.Add(1)
		}
	}
	b.settled()
}

// ask returns a selection at random.
func (b *busy) ask() (s Selection) {
	if b.r.IntN(2) == 0 {
		s.Principal = b.one("os:1", "os:*", "token:ci", "approver:ann", "none")
	}
	for p, all := range map[*string][]string{
		&s.Capability: {"a.*", "a.read"}, &s.Agent: {"codex", "claude*"}, &s.Channel: {"cli"}, &s.Effect: {"deny", "ask"},
		&s.Host: {"*.example.com", "c.example.org", "*"}, &s.Kind: {KindOutcome, KindDecision, "port"}, &s.Without: {KindVerdict},
	} {
		if b.r.IntN(6) == 0 {
			*p = b.one(all...)
		}
	}
	for b.r.IntN(5) == 0 {
		s.About = append(s.About, b.one("c_1", "d_2", "a_3", fmt.Sprint("c_", len(b.calls)/2)))
	}
	s.Denied = b.r.IntN(6) == 0
	s.Last = []int{0, 1, 20}[b.r.IntN(3)]
	if b.r.IntN(4) == 0 {
		s.Since = b.now().Add(-time.Duration(b.r.IntN(60*24)) * time.Hour)
	}
	if b.r.IntN(4) == 0 {
		s.Until = b.now().Add(-time.Duration(b.r.IntN(60*24)) * time.Hour)
	}
	return s
}

// scan answers a selection from every record of the log, without an index.
func scan(t *testing.T, dir string, s Selection) (out []string, matched int) {
	t.Helper()
	type body struct {
		Principal string
		Agent     string
		Channel   string
		By        string
		named
		Capability, Effect, Status string
		Yes                        bool
		Attempts                   []struct {
			Host    string
			Allowed bool
		}
		Facts struct {
			Network struct {
				Denied   []string
				Attempts []struct{ Host string }
			}
		}
	}
	wild := func(pattern string, all ...string) bool {
		return pattern == "" || slices.ContainsFunc(all, func(one string) bool { return contract.Pattern(pattern).Match(one) })
	}
	decided := map[string]body{}
	_, err := All(ctx, dir, func(r Record) error {
		var b body
		_ = json.Unmarshal(r.Body, &b)
		from := b
		if r.Kind == KindDecision {
			decided[b.CallID] = b
		} else if of, known := decided[b.CallID]; known {
			from = of
		}
		at, _ := when(r.At)
		var hosts []string
		refused := false
		for _, a := range b.Attempts {
			refused = refused || !a.Allowed
			if r.Kind == "egress" {
				hosts = append(hosts, a.Host)
			}
		}
		for _, a := range b.Facts.Network.Attempts {
			hosts = append(hosts, a.Host)
		}
		denied := map[string]bool{KindDecision: b.Effect == "deny", KindVerdict: !b.Yes, KindAnswer: !b.Yes, "egress": refused,
			KindOutcome: b.Status == "denied" || len(b.Facts.Network.Denied) > 0}[r.Kind]
		switch {
		case at.Before(s.Since), !s.Until.IsZero() && !at.Before(s.Until), s.Kind != "" && r.Kind != s.Kind, r.Kind == s.Without,
			s.Effect != "" && b.Effect != s.Effect, s.Channel != "" && from.Channel != s.Channel, s.Denied && !denied,
			!wild(s.Principal, from.Principal, b.By), !wild(s.Capability, b.Capability), !wild(s.Agent, from.Agent), !wild(s.Host, hosts...),
			s.About != nil && !slices.ContainsFunc([]string{r.ID, b.CallID, b.DecisionID, b.ApprovalID, b.Parent},
				func(one string) bool { return slices.Contains(s.About, one) }):
			return nil
		}
		out = append(out, string(r.line()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	matched = len(out)
	if s.Last > 0 {
		out = out[max(0, matched-s.Last):]
	}
	return out, matched
}

// agree compares the index with a scan, in many selections.
func (b *busy) agree(step string) (rebuilt bool) {
	b.t.Helper()
	some := 0
	for range 30 {
		s := b.ask()
		want, matched := scan(b.t, b.dir, s)
		var got []string
		n, err := Select(ctx, b.dir, s, func(r Record) error { got = append(got, string(r.line())); return nil })
		if err != nil || !slices.Equal(got, want) || int(n.Matched) != matched {
			b.t.Fatalf("%s: %+v\nindex %d of %d: %v\nscan %d of %d", step, s, len(got), n.Matched, err, len(want), matched)
		}
		if rebuilt = rebuilt || n.Rebuilt; len(got) > 0 {
			some++
		}
	}
	if some < 8 {
		b.t.Errorf("%s: control: %d selections found something", step, some)
	}
	return rebuilt
}

// files returns the files of the index.
func (b *busy) files() []string {
	all, _ := filepath.Glob(filepath.Join(indexDir(b.dir), "*.idx"))
	return all
}

// The index gives the answers of a scan, whatever happens to the log.
func TestIndex(t *testing.T) {
	b := newBusy(t, 2)
	b.agree0()
	b.write(300)
	b.agree("new")
	if len(b.files()) < 5 {
		t.Fatalf("control: %d files", len(b.files()))
	}
	for range 4 {
		b.write(1 + b.r.IntN(200))
		b.agree("more")
	}
	p, err := b.logs[0].Prune(ctx, keep, "test", nil)
	if err != nil || p.Through == 0 {
		t.Fatalf("control: %+v %v", p, err)
	}
	b.agree("pruned")
	if first, _ := firstOf(strings.TrimSuffix(filepath.Base(b.files()[0]), ".idx") + suffix); first <= p.Through {
		t.Errorf("the index of a segment that was pruned is there: %s", b.files()[0])
	}
	names, _ := segments(b.dir)
	segment := filepath.Join(b.dir, names[2])
	text, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segment, append([]byte("!"), text[1:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	b.agree("a damaged record")
	if err := os.RemoveAll(indexDir(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.agree("without index")
}

// agree0: an empty log has no records of callers.
func (b *busy) agree0() {
	n, err := Select(ctx, b.dir, Selection{Principal: "*", Kind: KindDecision}, nil)
	if err != nil || n.Shown != 0 {
		b.t.Fatal(n, err)
	}
}

// An index of another log, of a log that went on, or of one that was put back, is not used.
func TestIndexOfAnotherLog(t *testing.T) {
	b := newBusy(t, 1)
	b.write(200)
	b.agree("before")
	old := t.TempDir()
	if err := os.CopyFS(filepath.Join(old, "log"), os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.write(200)
	b.agree("after")
	index := indexDir(b.dir)
	b.dir = filepath.Join(old, "log") // rolled back, under the index of later
	if err := os.CopyFS(indexDir(b.dir), os.DirFS(index)); err != nil {
		t.Fatal(err)
	}
	b.agree("rolled back")
	another := newBusy(t, 1)
	another.r = rand.New(rand.NewPCG(1, 1))
	another.write(150)
	if err := os.RemoveAll(indexDir(another.dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(indexDir(another.dir), os.DirFS(index)); err != nil {
		t.Fatal(err)
	}
	another.agree("of another log")
}

// A file that was cut, flipped or forged shows no record that does not fit, and is made again.
func TestForgedIndex(t *testing.T) {
	b := newBusy(t, 1)
	b.write(300)
	b.agree("sound")
	for i, file := range b.files()[:5] {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := i; at < len(text); at += 1 + len(text)/7 {
			for _, bad := range [][]byte{text[:at], slices.Concat(text[:at], []byte{text[at] ^ 1}, text[at+1:]), {}} {
				if err := os.WriteFile(file, bad, 0o600); err != nil {
					t.Fatal(err)
				}
				s := b.ask()
				want, _ := scan(t, b.dir, s)
				var got []string
				_, err := Select(ctx, b.dir, s, func(r Record) error { got = append(got, string(r.line())); return nil })
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("%s at %d: %+v %d, want %d: %v", file, at, s, len(got), len(want), err)
				}
			}
		}
	}
}

// forge writes the index of one segment with other words, as its own writer does.
func (b *busy) forge(i int, change func(words []string)) {
	b.t.Helper()
	names, sizes, err := extent(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	x := newIndexed(b.dir, names[i])
	if !x.open(sizes[i]) || x.load() != nil {
		b.t.Fatal("control: no index")
	}
	change(x.words)
	x.save()
}

// A forger who writes sound files can hide records from a query until a sample meets them, and can show none.
func TestForgedWords(t *testing.T) {
	b := newBusy(t, 1)
	b.write(300)
	b.agree("sound")
	swap := func(words []string) {
		for i, w := range words {
			switch w {
			case "os:1":
				words[i] = "os:2"
			case "os:2":
				words[i] = "os:1"
			}
		}
	}
	for i := range b.files() {
		b.forge(i, swap)
	}
	found := false
	for range 20 {
		n, err := Select(ctx, b.dir, Selection{Principal: "os:1"}, func(r Record) error {
			if e := entryOf(r); e.texts[textPrincipal] == "os:2" {
				t.Errorf("record %d of another is shown", r.Seq)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		found = found || n.Rebuilt
	}
	if !found {
		t.Error("the forged index was not found")
	}
	b.agree("made again")
}

// Readers, of which each extends the index, and writers do not disturb each other.
func TestIndexWhileOthersWrite(t *testing.T) {
	b := newBusy(t, 2)
	b.write(100)
	ended, c := context.WithTimeout(ctx, time.Second)
	defer c()
	var work sync.WaitGroup
	for range 3 {
		work.Go(func() {
			last := uint64(0)
			for ended.Err() == nil {
				n, err := Select(ctx, b.dir, Selection{Principal: "os:*", Last: 5}, func(Record) error { return nil })
				if err != nil || n.Last < last || n.Missing > 0 || n.Rebuilt {
					t.Errorf("%+v %v after %d", n, err, last)
					return
				}
				last = n.Last
			}
		})
	}
	for ended.Err() == nil {
		b.write(20)
	}
	work.Wait()
	b.agree("then")
}

// FuzzIndex: no file makes a query fail or show what a scan does not.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"v":1}`), 0)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		dir := calls(t, 3)
		s := Selection{About: []string{"c_1"}}
		want, _ := scan(t, dir, s)
		if _, err := Select(ctx, dir, s, func(Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
		all, _ := filepath.Glob(filepath.Join(indexDir(dir), "*.idx"))
		for _, file := range all {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if at = max(0, min(at, len(b))); os.WriteFile(file, bytes.Join([][]byte{b[:at], b[at:]}, text), 0o600) != nil {
				t.Fatal(file)
			}
		}
		var got []string
		_, err := Select(ctx, dir, s, func(r Record) error { got = append(got, string(r.line())); return nil })
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q, want %q: %v", got, want, err)
		}
	})
}
