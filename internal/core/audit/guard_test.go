package audit

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"waldo/internal/core/approval"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/storage/database"
)

// TestVerifyChain: a record that was edited and given a fitting hash of its own no longer fits the
// one after it.
func TestVerifyChain(t *testing.T) {
	b := build(t, 50, nil, clock())
	b.edit(0, func(l [][]byte) [][]byte {
		l[7] = regexp.MustCompile(`"deny"`).ReplaceAll(l[7], []byte(`"allow"`))
		fixed := rehash(t, [][]byte{l[7]}, 0)
		l[7] = fixed[0]
		return l
	})
	if rep := verify(t, b.dir, nil); rep.OK || codes(rep) != "chain.broken" || rep.Findings[0].Line != 9 {
		t.Fatalf("%+v", rep)
	}
}

// TestOpenHoldsTheHead: Open requires every byte up to the record of the head.
func TestOpenHoldsTheHead(t *testing.T) {
	rows := []struct {
		why    string
		attack func(b *bench)
	}{
		{"the last record was edited", func(b *bench) { b.sub(49, `"deny"`, `"allow"`) }},
		{"the last record was edited and given a fitting hash", func(b *bench) {
			b.edit(0, func(l [][]byte) [][]byte {
				l[49] = bytes.Replace(l[49], []byte(`"deny"`), []byte(`"allow"`), 1)
				return rehash(b.t, l, 49)
			})
		}},
		{"the end was cut", func(b *bench) { mutations["truncate_records"](b, []any{"", float64(40)}) }},
		{"the segment was removed", func(b *bench) { b.must(os.Remove(b.files()[0])) }},
		{"the head was removed", func(b *bench) { b.m.head = nil }},
		{"the head names another segment", func(b *bench) { h := *b.m.head; h.Segment = segmentName(9); b.m.head = &h }},
		{"the head names a place before the file", func(b *bench) { h := *b.m.head; h.Start = -5; b.m.head = &h }},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			b := build(t, 50, nil, clock())
			l, err := Open(ctx, b.dir, Options{Heads: b.m})
			if err != nil {
				t.Fatal("control: ", err)
			}
			closeLog(t, l)
			r.attack(b)
			before := stored(b)
			if l, err := Open(ctx, b.dir, Options{Heads: b.m}); err == nil {
				_ = l.Close()
				t.Fatal("the log was opened")
			}
			if after := stored(b); after != before {
				t.Error("the evidence was changed")
			}
		})
	}
}

func stored(b *bench) string {
	all := ""
	for _, f := range b.files() {
		all += string(mustRead(b.t, f))
	}
	return all
}

// TestDamageInAFullSegment: a full segment was synced before the next began, so damage in it counts as tampering,
// even past the head.
func TestDamageInAFullSegment(t *testing.T) {
	b := build(t, 50, []int{25}, clock())
	mutations["restore_checkpoint_at"](b, []any{"", float64(10)})
	b.sub(20, `"deny"`, `"allow"`)
	before := stored(b)
	if _, err := Open(ctx, b.dir, Options{Heads: b.m}); !errors.Is(err, ErrTampered) {
		t.Fatalf("got %v", err)
	}
	if stored(b) != before {
		t.Error("the evidence was changed")
	}
}

// TestWhoWaitsForTheDisk: if the disk accepts writes and fails to sync them, records that lead to an act are refused.
// Records of reads and refusals succeed.
func TestWhoWaitsForTheDisk(t *testing.T) {
	with := func(effect policy.Effect, mode contract.Mode) policy.Decision {
		d := decision(t, `{}`)
		d.Effect, d.Contract.Mode = effect, mode
		return d
	}
	none, unknown := facts.New(), facts.New()
	none.SideEffect = facts.None
	rows := []struct {
		why   string
		do    func(r *Recorder) error
		waits bool
	}{
		{
			"a write that is allowed", func(r *Recorder) error {
				return r.Decision(ctx, with(policy.Allow, contract.Write))
			}, true,
		},
		{"a high-risk call that is asked",
			func(r *Recorder) error { return r.Decision(ctx, with(policy.Ask, contract.HighRisk)) }, true},
		{"a read", func(r *Recorder) error { return r.Decision(ctx, with(policy.Allow, contract.Read)) }, false},
		{"a refusal", func(r *Recorder) error { return r.Decision(ctx, with(policy.Deny, contract.Write)) }, false},
		{"an answer", func(r *Recorder) error {
			return r.Answer(ctx, with(policy.Ask, contract.Read), approval.Answer{Yes: true})
		}, true},
		{"the outcome of a write", func(r *Recorder) error {
			_, err := r.Outcome(ctx, with(policy.Allow, contract.Write), call.Result{Facts: unknown})
			return err
		}, true},
		{"the outcome of a refusal", func(r *Recorder) error {
			_, err := r.Outcome(ctx, with(policy.Deny, contract.Write), call.Result{Facts: none})
			return err
		}, false},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			var write, sync error
			short := false
			l := openLog(t, t.TempDir(), Options{
				Heads: &memory{}, wrap: func(f file) file { return failing{f, &write, &sync, &short} },
			})
			l.mu.Lock()
			sync = syscall.EIO
			l.mu.Unlock()
			err := r.do(&Recorder{Log: l})
			if waited := errors.Is(err, syscall.EIO); waited != r.waits || (err != nil && !waited) {
				t.Fatalf("waited: %v (%v); want %v", waited, err, r.waits)
			}
		})
	}
}

// TestVerifyBoundsLines: Verify reports a line of any length in bounded memory and reads the lines after it.
func TestVerifyBoundsLines(t *testing.T) {
	b := build(t, 50, nil, clock())
	mutations["insert_raw"](b, []any{"", float64(20), "xxx"})
	rep := verify(t, b.dir, b.m)
	if rep.OK || codes(rep) != "line.long" || rep.Records != 50 {
		t.Fatalf("%+v", rep)
	}
}

func TestManyFindings(t *testing.T) {
	b := build(t, 2, nil, clock())
	b.must(os.WriteFile(b.files()[0], []byte(strings.Repeat("x\n", 5000)), 0o600))
	b.m.head = &database.Head{Seq: 9}
	rep := verify(t, b.dir, b.m)
	if rep.OK || len(rep.Findings) > maxFindings+1 {
		t.Fatalf("%d findings", len(rep.Findings))
	}
}
