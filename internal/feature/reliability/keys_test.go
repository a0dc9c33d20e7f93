//go:build unix

package reliability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/core/effects"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/storage/breakers"
	"waldo/internal/storage/presence"
)

// codes are the codes of the reasons of a result.
func codes(r call.Result) string {
	text := ""
	for _, w := range r.Why {
		text += " " + w.Code
	}
	return text
}

func first(r call.Result) string {
	if len(r.Why) == 0 {
		return ""
	}
	return r.Why[0].Code
}

// 20 parallel calls with one key: one effect, 20 equal answers. Another waldo on the state directory replays it.
func TestOneKeyOneEffect(t *testing.T) {
	b := newBench(t, "")
	h := b.waldo(t)
	answers := make([]string, 20)
	var own int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			r, err := create("a", "slow_before", "k1").make(t.Context(), h)
			answers[i] = fmt.Sprint(err, r.Status, r.Content, string(r.Structured.Raw()))
			mu.Lock()
			defer mu.Unlock()
			if r.Replayed == "" {
				own++
			}
		})
	}
	all.Wait()
	for i, a := range answers {
		if a != answers[0] {
			t.Errorf("answer %d: %s, and the first %s", i, a, answers[0])
		}
	}
	if n := b.effects(t, "a"); n != 1 || own != 1 {
		t.Errorf("%d effects, %d calls that acted", n, own)
	}
	other := b.waldo(t)
	if r := create("a", "slow_before", "k1").must(t, other); r.Replayed == "" || first(r) != "idempotency.replayed" {
		t.Errorf("another waldo: %+v", r)
	}
	if r := create("b", "", "k1").must(t, other); r.Status != facts.Denied || first(r) != "idempotency.conflict" {
		t.Errorf("other arguments: %s%s", r.Status, codes(r))
	}
	if r := create("a", "slow_before", "k2").must(t, other); r.Status != facts.OK || b.effects(t, "a") != 2 {
		t.Errorf("control: another key is another call: %s%s", r.Status, codes(r))
	}
	if r := create("c", "", "\x00").must(t, other); first(r) != "idempotency.malformed" {
		t.Errorf("a malformed key: %s%s", r.Status, codes(r))
	}
}

// A call that never reached its server frees its key; an outcome that is not known does not.
func TestUnknownKeepsItsKey(t *testing.T) {
	b := newBench(t, "")
	h := b.waldo(t)
	if r := create("a", "die_after", "k").must(t, h); r.Facts.SideEffect != facts.Unknown {
		t.Fatalf("control: %s", r.Facts.SideEffect)
	}
	if r := create("a", "die_after", "k").must(t, h); r.Status != facts.Denied || first(r) != "idempotency.unknown" {
		t.Errorf("%s%s", r.Status, codes(r))
	}
	if n := b.effects(t, "a"); n != 1 {
		t.Errorf("%d effects", n)
	}
	all, err := h.Effects.Pending(t.Context())
	if err != nil || len(all) != 1 || all[0].State != effects.Unknown {
		t.Errorf("pending: %v %v", all, err)
	}
}

// An error that the tool itself answered is an answer: it is not listed, and its key keeps it.
func TestErrorOfTheTool(t *testing.T) {
	b := newBench(t, "")
	h := b.waldo(t)
	r := create("a", "error", "k").must(t, h)
	if r.Status != facts.Failed || r.Facts.SideEffect != facts.Confirmed {
		t.Errorf("%s, side effect %s", r.Status, r.Facts.SideEffect)
	}
	if r = create("b", "error", "").must(t, h); r.Facts.SideEffect != facts.Confirmed {
		t.Errorf("without a key: side effect %s", r.Facts.SideEffect)
	}
	if r = create("a", "error", "k").must(t, h); r.Replayed == "" || b.effects(t, "a") != 1 {
		t.Errorf("%q, %d effects", r.Replayed, b.effects(t, "a"))
	}
	if all, err := h.Effects.Pending(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("listed: %v %v", all, err)
	}
	if r = create("c", "die_after", "k2").must(t, h); r.Facts.SideEffect != facts.Unknown {
		t.Errorf("control: side effect %s", r.Facts.SideEffect)
	}
	if all, err := h.Effects.Pending(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("control: %v %v", all, err)
	}
}

// A write of a contract without idempotency, settle or rollback is listed, too, while its outcome is unknown. So it is
// when waldo was killed before it could note that.
func TestUnknownIsListed(t *testing.T) {
	b := newBench(t, "")
	h := b.waldo(t)
	create("sure", "", "").must(t, h)
	lost := create("lost", "die_after", "").must(t, h)
	o := create("cut", "die_after", "")
	o.KillAt = "lost"
	b.killed(t, o)
	all, err := b.waldo(t).Effects.Pending(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != lost.CallID || b.effects(t, "cut") != 1 || b.effects(t, "sure") != 1 {
		t.Errorf("%d are listed: %v", len(all), err)
	}
	for _, e := range all {
		if word, err := h.Effects.Settle(t.Context(), e.ID, call.Call{}); word != call.StillUnknown || err == nil {
			t.Errorf("%s is settled as %s: %v", e.ID, word, err)
		}
	}
}

// TestReadyIsSettledFirst: a killed call whose server can act on it for ten more minutes holds up no call that can be
// settled now.
func TestReadyIsSettledFirst(t *testing.T) {
	b := newBench(t, settles)
	config := filepath.Join(b.dir, "waldo.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	const short, long = "s.create: {mode: write, approval: none, timeout_seconds: 2", "00"
	if err := os.WriteFile(config, []byte(strings.Replace(string(text), short, short+long, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	b.killed(t, create("slow", "kill_waldo_after", "k"))
	ready := once("ready", "kill_waldo_after", "k")
	ready.Args["request_id"] = "k"
	b.killed(t, ready)
	h := b.waldo(t)
	all, err := h.Effects.Pending(t.Context())
	if err != nil || len(all) != 2 || h.Effects.Early(all[0]) < time.Minute || h.Effects.Early(all[1]) > time.Minute {
		t.Fatalf("control: %d pending, %v", len(all), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	sessions, done := h.SharedSessions(""), make(chan struct{})
	go func() { settlePending(ctx, h.Effects, sessions); close(done) }()
	for e := all[1]; e.Word() == ""; time.Sleep(10 * time.Millisecond) { // the test's own time bounds it
		if e, err = h.Effects.Get(t.Context(), e.ID); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-done
	sessions.Close()
	if all, err := h.Effects.Pending(t.Context()); err != nil || len(all) != 1 || all[0].Capability != "s.create" {
		t.Errorf("%d pending: %v", len(all), err)
	}
}

// once orders the tool that requires a key, which waldo fills.
func once(title, how, key string) ordered {
	o := create(title, how, key)
	o.Capability = "s.create_once"
	return o
}

// The tool gets the key in its argument, so a retry with it is safe.
func TestArgument(t *testing.T) {
	b := newBench(t, "idempotency: {argument: request_id}, retry: {max: 2, on: [unavailable, timeout]}")
	h := b.waldo(t)
	for _, how := range []string{"die_before", "die_after", "hang_after"} {
		r := once(how, how, "k-"+how).must(t, h)
		if r.Status != facts.OK || b.effects(t, how) != 1 {
			t.Errorf("%s: %s%s, %d effects", how, r.Status, codes(r), b.effects(t, how))
		}
	}
	b = newBench(t, "idempotency: {argument: request_id}, retry: {max: 2, on: [unavailable, timeout]}")
	h = b.waldo(t)
	r := once("own", "die_after", "").must(t, h) // waldo makes a key
	if r.Status != facts.OK || b.effects(t, "own") != 1 {
		t.Errorf("without a key: %s%s, %d effects", r.Status, codes(r), b.effects(t, "own"))
	}
	o := once("two", "", "k")
	o.Args["request_id"] = "other"
	if r := o.must(t, h); first(r) != "idempotency.two_keys" {
		t.Errorf("two keys: %s%s", r.Status, codes(r))
	}
}

func TestSettle(t *testing.T) {
	b := newBench(t, settles+", retry: {max: 1, on: [unavailable, timeout]}")
	h := b.waldo(t)
	for how, want := range map[string]call.Settled{"die_after": call.Happened, "hang_after": call.Happened} {
		r := create(how, how, "").must(t, h)
		if text := fmt.Sprint(r.Content); strings.Contains(text, "not known") || text == "[]" {
			t.Errorf("%s: the text says %s", how, text)
		}
		if r.Settled != want || r.Facts.SideEffect != facts.Confirmed || b.effects(t, how) != 1 {
			t.Errorf("%s: settled %q, side effect %s, %d effects%s", how, r.Settled, r.Facts.SideEffect, b.effects(t, how), codes(r))
		}
	}
	r := create("retried", "die_before", "").must(t, h)
	if r.Status != facts.OK || b.effects(t, "retried") != 1 {
		t.Errorf("a call that did not happen is tried again: %s%s, %d effects", r.Status, codes(r), b.effects(t, "retried"))
	}
	var seen []string
	_, err := audit.Select(t.Context(), audit.Dir(h.State), audit.Selection{}, func(r audit.Record) error {
		if r.Kind == audit.KindSettled {
			seen = append(seen, string(r.Body))
		}
		return nil
	})
	if err != nil || len(seen) != 3 {
		t.Errorf("%d settlements in the log: %v", len(seen), err)
	}
}

// A contract that does not settle right leaves the outcome unknown, never a guess.
func TestStillUnknown(t *testing.T) {
	b := newBench(t, `settle: {by: s.find, args: {title: args.title}, happened: "result.absent > 0.0", within: 1s}`)
	h := b.waldo(t)
	r := create("a", "die_after", "k").must(t, h)
	if r.Settled != call.StillUnknown || r.Facts.SideEffect != facts.Unknown {
		t.Errorf("settled %q, %s", r.Settled, r.Facts.SideEffect)
	}
	if r := create("a", "die_after", "k").must(t, h); first(r) != "idempotency.unknown" || b.effects(t, "a") != 1 {
		t.Errorf("%s%s", r.Status, codes(r))
	}
}

// Waldo is killed at each step of a keyed write. The next waldo records the outcome, settles it, and makes the call
// at most once.
func TestKilled(t *testing.T) {
	for _, row := range []struct {
		at, how string
		before  int // effects when waldo was killed
	}{
		{"decided", "", 0}, {"begun", "", 0}, {"", "kill_waldo_before", 0}, {"", "kill_waldo_after", 1}, {"answered", "", 1},
		{"stored", "", 1}, {"recorded", "", 1},
	} {
		t.Run(row.at+row.how, func(t *testing.T) {
			b := newBench(t, settles)
			o := create("a", row.how, "k")
			o.KillAt = row.at
			b.killed(t, o)
			if n := b.effects(t, "a"); n != row.before {
				t.Fatalf("control: %d effects", n)
			}
			h := b.waldo(t)
			pending, err := h.Effects.Pending(t.Context())
			known := row.at == "decided" || row.at == "recorded" // what no record has is not known
			if err != nil || (len(pending) == 0) != known {
				t.Fatalf("pending: %v %v", pending, err)
			}
			outcomes := 0
			_, err = audit.Select(t.Context(), audit.Dir(h.State), audit.Selection{}, func(r audit.Record) error {
				if r.Kind == audit.KindOutcome {
					outcomes++
				}
				return nil
			})
			if want := 1; err != nil || outcomes != want && row.at != "decided" {
				t.Errorf("%d outcomes in the log: %v", outcomes, err)
			}
			r := create("a", row.how, "k").must(t, h)
			for n := 0; n < 10 && first(r) == "idempotency.unknown" && r.Cause()[0].RetryAfter > 0; n++ { // its timeout runs
				time.Sleep(time.Second)
				r = create("a", row.how, "k").must(t, h)
			}
			if r.Status != facts.OK || b.effects(t, "a") != 1 {
				t.Errorf("the same call: %s%s, %d effects", r.Status, codes(r), b.effects(t, "a"))
			}
			if pending, err := h.Effects.Pending(t.Context()); err != nil || len(pending) > 0 {
				t.Errorf("still pending: %v %v", pending, err)
			}
		})
	}
}

func TestUndo(t *testing.T) {
	b := newBench(t, `rollback: {by: s.delete, args: {id: result.id}}`)
	h := b.waldo(t)
	r := create("a", "", "").must(t, h)
	if r.Undo == nil || r.Undo.By != "s.delete" || string(r.Undo.Args.Raw()) != `{"id":1}` {
		t.Fatalf("undo: %+v", r.Undo)
	}
	n, err := h.OpenSession()
	if err != nil {
		t.Fatal(err)
	}
	as := call.Call{Session: n.ID, Principal: n.Principal, Channel: "cli"}
	if u, err := h.Effects.Undo(t.Context(), r.CallID, as); err != nil || u.Status != facts.OK || b.effects(t, "deleted-1") != 1 {
		t.Errorf("%v %s%s", err, u.Status, codes(u))
	}
	if _, err := h.Effects.Undo(t.Context(), r.CallID, as); err == nil || b.effects(t, "deleted-1") != 1 {
		t.Errorf("undone twice: %v", err)
	}
	if _, err := h.Effects.Undo(t.Context(), "c_none", as); err == nil {
		t.Error("a call that was never made was undone")
	}
}

// Keyed writes whose waldo or server is killed, or whose server hangs, at random steps: each acts at most once, and each
// is known or settled at the end. WALDO_WRITES sets their number.
func TestManyKeyedWrites(t *testing.T) {
	n := writes(t, 200)
	b := newBench(t, settles+", retry: {max: 1, on: [unavailable, timeout]}")
	hows := []string{"", "die_before", "die_after", "hang_before", "hang_after", "kill_waldo_before", "kill_waldo_after"}
	steps := []string{"", "", "decided", "begun", "answered", "stored", "recorded"}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	orders := make([]ordered, n)
	for i := range orders {
		orders[i] = create(fmt.Sprintf("w%d", i), hows[random.IntN(len(hows))], fmt.Sprintf("k%d", i))
		orders[i].KillAt = steps[random.IntN(len(steps))]
	}
	var killed, acted atomic.Int32
	abreast(orders, func(o ordered) {
		out, err := b.child(t, o)
		if e := (*exec.ExitError)(nil); errors.As(err, &e) && e.Sys().(syscall.WaitStatus).Signaled() {
			killed.Add(1)
		} else if err != nil {
			t.Errorf("%+v: %v\n%s", o, err, out)
		}
		acted.Add(int32(b.effects(t, fmt.Sprint(o.Args["title"]))))
	})
	if int(killed.Load()) < n/4 || int(acted.Load()) < n/4 || int(acted.Load()) == n {
		t.Fatalf("control: of %d writes %d were killed, %d acted", n, killed.Load(), acted.Load())
	}
	if err := os.WriteFile(filepath.Join(b.dir, "calm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := b.waldo(t)
	abreast(orders, func(o ordered) {
		title := fmt.Sprint(o.Args["title"])
		if n := b.effects(t, title); n > 1 {
			t.Errorf("%+v: %d effects", o, n)
		}
		r, err := o.make(t.Context(), h)
		for n := 0; n < 10 && first(r) == "idempotency.unknown" && r.Cause()[0].RetryAfter > 0; n++ { // its timeout runs
			time.Sleep(time.Second)
			r, err = o.make(t.Context(), h)
		}
		if err != nil || r.Status != facts.OK || b.effects(t, title) != 1 {
			t.Errorf("%+v: %v %s%s, %d effects", o, err, r.Status, codes(r), b.effects(t, title))
		}
	})
	if all, err := h.Effects.Pending(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%d outcomes are not known: %v", len(all), err)
		for _, e := range all {
			word, err := h.Effects.Settle(t.Context(), e.ID, own(t, h))
			t.Log(e.ID, word, err)
		}
	}
}

// abreast does a thing for each order, eight at a time.
func abreast(orders []ordered, do func(ordered)) {
	var all sync.WaitGroup
	next := make(chan ordered)
	for range 8 {
		all.Go(func() {
			for o := range next {
				do(o)
			}
		})
	}
	for _, o := range orders {
		next <- o
	}
	close(next)
	all.Wait()
}

// Five calls without an answer open the breaker. Another waldo of the state directory can show it, until the process of
// the breaker ends.
func TestOpenBreakerIsShown(t *testing.T) {
	b := newBench(t, "")
	h, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := b.waldo(t)
	shown := func() []breakers.Breaker {
		all, err := breakers.Open(t.Context(), other.Store, presence.Gone(other.Store))
		if err != nil {
			t.Error(err)
		}
		return all
	}
	orders := make([]ordered, 5)
	for i := range orders {
		orders[i] = create(fmt.Sprintf("w%d", i), "hang_before", "")
	}
	if all := shown(); len(all) > 0 {
		t.Errorf("control: %v", all)
	}
	abreast(orders, func(o ordered) { _, _ = o.make(t.Context(), h) })
	if all := shown(); len(all) != 1 || all[0].Server != "s" || all[0].Fails != 5 || !all[0].Until.After(time.Now()) {
		t.Errorf("%+v", all)
	}
	if r := create("a", "", "").must(t, h); first(r) != "upstream.open" || r.Meta()["waldo/retry_after"] == nil {
		t.Errorf("control: %s%s", r.Status, codes(r))
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if all := shown(); len(all) > 0 {
		t.Errorf("its process has ended: %v", all)
	}
}

// The argument of a key is required of callers where no contract says that waldo fills it.
func TestRequiredKeyIsFilledByContractAlone(t *testing.T) {
	b := newBench(t, "")
	if _, err := once("a", "", "k").make(t.Context(), b.waldo(t)); err == nil || b.effects(t, "a") != 0 {
		t.Errorf("a call without its required argument: %v", err)
	}
}
