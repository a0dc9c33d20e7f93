package effects

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// reads answers each read of a settlement with a count.
type reads struct {
	count  string
	made   int
	masked int
	cut    bool
}

func (*reads) Prepare(context.Context, *call.Call) *call.Reason { return nil }

func (r *reads) Call(_ context.Context, c call.Call) (call.Result, error) {
	r.made++
	f := facts.New()
	f.Status, f.Masked = facts.OK, r.masked
	v, err := strictjson.Parse([]byte(`{"count":` + r.count + `}`))
	return call.Result{CallID: c.ID, Status: facts.OK, Facts: f, Structured: v, Cut: r.cut}, err
}

// notes keeps what is recorded.
type notes struct{ settled []Settlement }

func (*notes) Outcome(context.Context, policy.Decision, call.Result) (l call.Logged, _ error) {
	return l, nil
}
func (*notes) Bound(context.Context, string, string, bool) *call.Reason {
	return nil
}
func (*notes) Standing(context.Context, policy.Decision, bool) Standing {
	return Standing{Allowed: true, Ended: true}
}
func (*notes) Keyed(context.Context, string, time.Time) (string, error) { return "", nil }
func (*notes) Undone(context.Context, policy.Decision, call.Capability) (string, error) {
	return "", nil
}
func (n *notes) Settled(_ context.Context, s Settlement) error {
	n.settled = append(n.settled, s)
	return nil
}

// killed begins a keyed call under a contract with settle, whose process is gone then.
func killed(t *testing.T, b *bench, file string) policy.Decision {
	t.Helper()
	d := keyed(t, "k", `{"a":1}`)
	d.Contract = b.Contract("s.create")
	d.Contract.At.File = file
	b.Process = "q_gone"
	if _, r, why, err := b.Begin(t.Context(), d, d.Call.Args); r != nil || why != nil || err != nil {
		t.Fatal(r, why, err)
	}
	b.Process = "q_own"
	return d
}

// TestSettleOnlyOwn: the configuration that decided a call finds out whether it happened, and no other one: its read
// can look somewhere else.
func TestSettleOnlyOwn(t *testing.T) {
	dir := t.TempDir()
	own, other, link := filepath.Join(dir, "own.yaml"), filepath.Join(dir, "other.yaml"), filepath.Join(dir, "link.yaml")
	for _, name := range []string{own, other} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		file string
		want call.Settled
		err  error
	}{{other, call.StillUnknown, ErrOther}, {link, call.Happened, nil}, {own, call.Happened, nil}} {
		b, log, server := settling(t, own, "1")
		d := killed(t, b, own)
		b.Contract = contracts(row.file)
		word, err := b.Settle(t.Context(), d.Call.ID, d.Call)
		if word != row.want || !errors.Is(err, row.err) {
			t.Errorf("%s: %s %v", row.file, word, err)
		}
		if n := len(log.settled); (n == 0) != (row.err != nil) || (server.made == 0) != (row.err != nil) {
			t.Errorf("%s: %d recorded, %d reads", row.file, n, server.made)
		}
	}
}

// late is a server whose write takes effect a while after the first read. A read takes its time.
type late struct {
	reads
	after, takes time.Duration
	began        time.Time
	looked       []time.Duration // after the first read, each at its end
}

func (l *late) Call(ctx context.Context, c call.Call) (call.Result, error) {
	if l.made == 0 {
		l.began = time.Now()
	}
	time.Sleep(l.takes)
	l.looked = append(l.looked, time.Since(l.began))
	if l.count = "0"; time.Since(l.began) >= l.after {
		l.count = "1"
	}
	return l.reads.Call(ctx, c)
}

// TestSettleReadsAtTheEndOfWithin: a write that arrives within within is seen, whatever a read takes. Only a read that
// began after it says that the write did not happen.
func TestSettleReadsAtTheEndOfWithin(t *testing.T) {
	const within = time.Second
	for _, row := range []struct {
		after, takes time.Duration
		want         call.Settled
	}{
		{0, 0, call.Happened}, {950 * time.Millisecond, 0, call.Happened}, {950 * time.Millisecond, 90 * time.Millisecond, call.Happened},
		{time.Hour, 90 * time.Millisecond, call.NotHappened},
	} {
		b, _, _ := settling(t, "own.yaml", "0")
		server := &late{after: row.after, takes: row.takes}
		k := b.Contract("s.create")
		k.Settle.Within = within
		b.Calls, b.Contract = server, func(call.Capability) contract.Contract { return k }
		d := killed(t, b, "own.yaml")
		word, err := b.Settle(t.Context(), d.Call.ID, d.Call)
		if last := server.looked[len(server.looked)-1]; err != nil || word != row.want ||
			word == call.NotHappened && last < within+row.takes {
			t.Errorf("%+v: %s %v, looked at %v", row, word, err, server.looked)
		}
	}
}

// TestNothingIsKnownEarly: a read does not show that a call did not happen while its server can still act on it: its
// waldo was killed, or its caller gave up. The control comes when the contract's timeout is over.
func TestNothingIsKnownEarly(t *testing.T) {
	for _, status := range []facts.Status{"", facts.Cancelled, facts.Timeout} {
		b, _, server := settling(t, "own.yaml", "0")
		k := b.Contract("s.create")
		k.Timeout = time.Minute
		b.Contract = func(call.Capability) contract.Contract { return k }
		d := killed(t, b, "own.yaml")
		if status != "" {
			r := call.Result{CallID: d.Call.ID, DecisionID: d.ID, Status: status, IsError: true, Facts: facts.New()}
			r.Facts.Status, r.Facts.SideEffect = status, facts.Unknown
			if _, open, err := b.End(t.Context(), d, r, false); !open || err != nil {
				t.Fatal(open, err)
			}
		}
		b.now = b.now.Add(59 * time.Second)
		if word, err := b.Settle(t.Context(), d.Call.ID, d.Call); err != nil || word != call.StillUnknown {
			t.Errorf("%s: %s %v before its timeout", status, word, err)
		}
		e, err := b.Get(t.Context(), d.Call.ID)
		if early := b.Early(e); err != nil || early != time.Second {
			t.Errorf("control: %s: early for %v, %v", status, early, err)
		}
		with := b.Contract
		b.Contract = func(call.Capability) contract.Contract { return contract.Contract{Timeout: time.Minute} }
		if early := b.Early(e); early != 0 {
			t.Errorf("%s: a contract without settle waits %v", status, early)
		}
		b.Contract = with
		b.now = b.now.Add(2 * time.Second)
		if word, err := b.Settle(t.Context(), d.Call.ID, d.Call); err != nil || word != call.NotHappened || server.made < 2 {
			t.Errorf("control: %s: %s %v, %d reads", status, word, err, server.made)
		}
	}
}

// TestTokensSettleNothing: a read does not get the values that the tool got in the place of tokens, so it says nothing.
func TestTokensSettleNothing(t *testing.T) {
	for restored, want := range map[string]call.Settled{`{"a":"[EMAIL_1]"}`: call.NotHappened, `{"a":"ann@example.com"}`: call.StillUnknown} {
		b, _, server := settling(t, "own.yaml", "0")
		d := keyed(t, "k", `{"a":"[EMAIL_1]"}`)
		d.Contract = b.Contract("s.create")
		args, err := call.ParseArgs([]byte(restored))
		if err != nil {
			t.Fatal(err)
		}
		b.Process = "q_gone"
		if _, r, why, err := b.Begin(t.Context(), d, args); r != nil || why != nil || err != nil {
			t.Fatal(r, why, err)
		}
		b.Process = "q_own"
		word, err := b.Settle(t.Context(), d.Call.ID, d.Call)
		if err != nil || word != want || (server.made == 0) != (want == call.StillUnknown) {
			t.Errorf("%s: %s %v, %d reads", restored, word, err, server.made)
		}
	}
}

// TestUndoOfHiddenValues: an undo that needs a hidden value is not known. One whose text only looks like a mask is.
func TestUndoOfHiddenValues(t *testing.T) {
	for _, row := range []struct {
		text   string
		masked int
		known  bool
	}{{"7", 1, true}, {"[SECRET]", 1, false}, {"[BUG]", 0, true}, {"[EMAIL_1]", 0, false}} {
		b := newBench(t)
		d := keyed(t, "k", `{}`)
		d.Contract.Rollback = contract.Rollback{By: "s.drop", Args: map[string]any{"id": "text"}}
		if _, r, why, err := b.Begin(t.Context(), d, d.Call.Args); r != nil || why != nil || err != nil {
			t.Fatal(r, why, err)
		}
		f := facts.New()
		f.Status, f.SideEffect, f.Masked = facts.OK, facts.Confirmed, row.masked
		done := call.Result{Status: facts.OK, Facts: f, Content: []call.Content{call.Text(row.text)}}
		r, _, err := b.End(t.Context(), d, done, true)
		if err != nil || (r.Undo != nil) != row.known || (len(r.Facts.Warnings) > 0) == row.known {
			t.Errorf("%+v: %+v %q %v", row, r.Undo, r.Facts.Warnings, err)
		}
	}
}

// TestUndoOfAnEarlierWaldo: an earlier waldo remembered undos that need hidden values. They are not made.
func TestUndoOfAnEarlierWaldo(t *testing.T) {
	for value, want := range map[string]error{"[SECRET]": ErrNoUndo, "7": nil} {
		b, _, server := settling(t, "own.yaml", "1")
		d := keyed(t, "k", `{}`)
		b.end(t, d, "done")
		err := b.change(t.Context(), d.Call.ID, func(_ *sql.Tx, e *Entry) (bool, error) {
			args, err := call.ArgsOf(map[string]any{"id": value})
			e.Undo, e.result.Masked = &call.Undo{By: "s.drop", Args: args}, 1
			return true, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Undo(t.Context(), d.Call.ID, d.Call); !errors.Is(err, want) || (server.made == 0) != (want != nil) {
			t.Errorf("%s: %v, %d calls", value, err, server.made)
		}
	}
}

// recorded is a log that names the undo of each call.
type recorded struct{ notes }

func (*recorded) Undone(context.Context, policy.Decision, call.Capability) (string, error) {
	return "c_lost", nil
}

// TestUndoOfAKilledWaldo: an undo whose waldo was killed before its call was decided can be made. One that the log
// knows cannot.
func TestUndoOfAKilledWaldo(t *testing.T) {
	for _, log := range []Recorder{&notes{}, &recorded{}} {
		b, _, server := settling(t, "own.yaml", "1")
		d := keyed(t, "k", `{}`)
		d.Contract.Rollback = contract.Rollback{By: "s.drop", Args: map[string]any{"id": "'7'"}}
		if _, r, why, err := b.Begin(t.Context(), d, d.Call.Args); r != nil || why != nil || err != nil {
			t.Fatal(r, why, err)
		}
		f := facts.New()
		f.Status, f.SideEffect = facts.OK, facts.Confirmed
		if _, _, err := b.End(t.Context(), d, call.Result{Status: facts.OK, Facts: f}, true); err != nil {
			t.Fatal(err)
		}
		err := b.change(t.Context(), d.Call.ID, func(_ *sql.Tx, e *Entry) (bool, error) {
			e.Undone, e.undoes = "c_lost", "q_gone"
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Log = log
		_, known := log.(*recorded)
		if _, err := b.Undo(t.Context(), d.Call.ID, d.Call); errors.Is(err, ErrUndone) != known ||
			(server.made == 0) != known {
			t.Errorf("known %t: %v, %d calls", known, err, server.made)
		}
	}
}

// TestSettleUnderWay: a call whose process lives has no outcome yet, and is not read about.
func TestSettleUnderWay(t *testing.T) {
	b, log, server := settling(t, "own.yaml", "0")
	d := keyed(t, "k", `{"a":1}`)
	d.Contract = b.Contract("s.create")
	if _, r, why, err := b.Begin(t.Context(), d, d.Call.Args); r != nil || why != nil || err != nil {
		t.Fatal(r, why, err)
	}
	word, err := b.Settle(t.Context(), d.Call.ID, d.Call)
	if word != call.StillUnknown || !errors.Is(err, ErrUnderWay) || server.made+len(log.settled) > 0 {
		t.Errorf("%s %v, %d reads", word, err, server.made)
	}
}

// A read in which redaction hid values says nothing: a hidden value equals no argument.
func TestRedactedReadSettlesNothing(t *testing.T) {
	for masked, want := range map[int]call.Settled{0: call.Happened, 1: call.StillUnknown} {
		b, log, server := settling(t, "own.yaml", "1")
		server.masked = masked
		d := killed(t, b, "own.yaml")
		word, err := b.Settle(t.Context(), d.Call.ID, d.Call)
		if err != nil || word != want || len(log.settled) != 1 ||
			(masked > 0) != strings.Contains(log.settled[0].Why, "redaction hid") {
			t.Errorf("%d masked: %s %v %+v", masked, word, err, log.settled)
		}
	}
}

// TestCutReadSettlesNothing: the part of an answer that was cut off can have what the read looks for.
func TestCutReadSettlesNothing(t *testing.T) {
	for cut, want := range map[bool]call.Settled{false: call.NotHappened, true: call.StillUnknown} {
		b, log, server := settling(t, "own.yaml", "0")
		server.cut = cut
		d := killed(t, b, "own.yaml")
		word, err := b.Settle(t.Context(), d.Call.ID, d.Call)
		if err != nil || word != want || len(log.settled) != 1 ||
			cut != strings.Contains(log.settled[0].Why, "longer than its response_budget_bytes") {
			t.Errorf("cut %t: %s %v %+v", cut, word, err, log.settled)
		}
	}
}

// TestKeyedSettles: a call with a key whose outcome can be found out is not made again before that is done.
func TestKeyedSettles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.yaml")
	for _, row := range []struct{ count, want string }{{"1", "happened"}, {"0", "made again"}} {
		b, _, server := settling(t, file, row.count)
		killed(t, b, file)
		again := keyed(t, "k", `{"a":1}`)
		again.Contract = b.Contract("s.create")
		_, r, why, err := b.Begin(t.Context(), again, again.Call.Args)
		got := "made again"
		if r != nil {
			got = "happened"
		}
		if why != nil || err != nil || got != row.want || server.made == 0 {
			t.Errorf("%s: %s, %v %v, %d reads", row.count, got, why, err, server.made)
		}
	}
}

func settling(t *testing.T, file, count string) (*bench, *notes, *reads) {
	b, log, server := newBench(t), &notes{}, &reads{count: count}
	b.Log, b.Calls, b.Contract = log, server, contracts(file)
	return b, log, server
}

// contracts returns the contract of a file for each capability.
func contracts(file string) func(call.Capability) contract.Contract {
	return func(call.Capability) contract.Contract {
		k := contract.Contract{Mode: contract.Write, Idempotency: contract.Idempotency{Argument: "id"}}
		k.At.File = file
		k.Settle = contract.Settle{By: "s.find", Happened: "result.count > 0"}
		return k
	}
}

// meanwhile is a log that another waldo uses while an outcome is recorded.
type meanwhile struct {
	notes
	other   func()
	results []call.Result
	before  call.Settled // a settlement before the outcome
	bound   string       // the digest that the log has
}

func (m *meanwhile) Outcome(_ context.Context, _ policy.Decision, r call.Result) (l call.Logged, _ error) {
	if other := m.other; other != nil {
		m.other = nil
		other()
	}
	m.results = append(m.results, r)
	return l, nil
}

func (m *meanwhile) Standing(context.Context, policy.Decision, bool) Standing {
	return Standing{Allowed: true, Settled: m.before}
}

func (m *meanwhile) Bound(_ context.Context, _, digest string, _ bool) *call.Reason {
	if m.bound == "" || m.bound == digest {
		return nil
	}
	return &call.Reason{Code: "row.forged"}
}

// TestRecoveredOnce: of two waldos that find a killed call at one moment, one records its outcome. One whose log fails
// leaves the call to the next.
func TestRecoveredOnce(t *testing.T) {
	b := newBench(t)
	log := &meanwhile{}
	d := killed(t, &bench{Book: &Book{Store: b.Store, Process: "q_gone", Log: log, Gone: b.Gone, Now: b.Now,
		Contract: contracts("own.yaml")}}, "own.yaml")
	b.Log = log
	second := &Book{Store: b.Store, Process: "q_second", Log: log, Gone: b.Gone, Now: b.Now, Contract: b.Contract}
	log.other = func() {
		if err := second.Recover(t.Context(), []string{"q_gone"}); err != nil {
			t.Error(err)
		}
	}
	if err := b.Recover(t.Context(), []string{"q_gone"}); err != nil {
		t.Fatal(err)
	}
	e, err := b.Get(t.Context(), d.Call.ID)
	if len(log.results) != 1 || err != nil || e.process != "" || e.State != Begun && e.State != Unknown {
		t.Errorf("%d outcomes, %+v %v", len(log.results), e, err)
	}
}

// unwritable is a log that takes no outcome.
type unwritable struct{ meanwhile }

func (*unwritable) Outcome(context.Context, policy.Decision, call.Result) (l call.Logged, _ error) {
	return l, errors.New("no space")
}

func TestUnrecordedRecovery(t *testing.T) {
	b := newBench(t)
	d := killed(t, &bench{Book: &Book{Store: b.Store, Process: "q_gone", Log: &meanwhile{}, Gone: b.Gone, Now: b.Now,
		Contract: contracts("own.yaml")}}, "own.yaml")
	b.Log = &unwritable{}
	if err := b.Recover(t.Context(), nil); err == nil {
		t.Error("control: the log took the outcome")
	}
	log := &meanwhile{}
	b.Log = log
	if err := b.Recover(t.Context(), nil); err != nil || len(log.results) != 1 || log.results[0].CallID != d.Call.ID {
		t.Errorf("later: %v %+v", err, log.results)
	}
}

// TestRecoveredAsSettled: a call that the log has settled as happened, and whose waldo was killed before its outcome,
// has happened. The control has another row in the log.
func TestRecoveredAsSettled(t *testing.T) {
	for _, forged := range []bool{false, true} {
		b := newBench(t)
		log := &meanwhile{before: call.Happened}
		d := killed(t, &bench{Book: &Book{Store: b.Store, Process: "q_gone", Log: log, Gone: b.Gone, Now: b.Now,
			Contract: contracts("own.yaml")}}, "own.yaml")
		b.Log = log
		e, err := b.Get(t.Context(), d.Call.ID)
		if err != nil {
			t.Fatal(err)
		}
		if e.State = Happened; forged {
			e.ArgsDigest = "sha256:0"
		}
		log.bound = e.digest()
		if err := b.Recover(t.Context(), nil); err != nil || len(log.results) != 1 {
			t.Fatal(err, log.results)
		}
		want, effect := Happened, facts.Confirmed
		if forged {
			want, effect = Unknown, facts.Unknown
		}
		now, err := b.Get(t.Context(), d.Call.ID)
		if err != nil || now.State != want || log.results[0].Facts.SideEffect != effect {
			t.Errorf("forged %t: %s, %v, %v", forged, now.State, log.results[0].Facts.SideEffect, err)
		}
	}
}
