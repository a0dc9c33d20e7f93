package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/core/broker"
	"waldo/internal/core/effects"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/testing/storetest"
)

var _ broker.Budget = (*Manager)(nil)

// clock is a hand-moved clock.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func setup(t *testing.T, o Options) (*Manager, *clock, policy.Decision) {
	t.Helper()
	c := &clock{time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	m := NewManager(o, c.now)
	store, err := storetest.Open(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	m.Rates = &effects.Rates{Store: store, Process: "q_own", Gone: func(string) bool { return false }, Now: c.now}
	s, err := m.Open("os:1000", "w_1")
	if err != nil {
		t.Fatal(err)
	}
	d := policy.Decision{Effect: policy.Allow}
	d.Call = call.Call{Session: s.ID, Principal: "os:1000", Capability: "mail.send"}
	return m, c, d
}

func code(why *call.Reason) string {
	if why == nil {
		return ""
	}
	return why.Code
}

func TestTakeRefuses(t *testing.T) {
	for _, row := range []struct {
		why    string
		change func(*policy.Decision)
		want   string
	}{
		{"control: a call of an open session goes on", func(*policy.Decision) {}, ""},
		{"depth eight is allowed", func(d *policy.Decision) { d.Call.Depth = 8 }, ""},
		{"depth nine is too deep", func(d *policy.Decision) { d.Call.Depth = 9 }, "session.depth"},
		{"a negative depth is no depth", func(d *policy.Decision) { d.Call.Depth = -1 }, "session.depth"},
		{"no session", func(d *policy.Decision) { d.Call.Session = "" }, "session.absent"},
		{"a session that nobody opened", func(d *policy.Decision) { d.Call.Session = "n_aaaaaaaaaaaaaaaaaaaaaaaaaa" },
			"session.absent"},
		{"somebody else's session", func(d *policy.Decision) { d.Call.Principal = "os:1001" }, "session.principal"},
		{"a rate without a window allows nothing", func(d *policy.Decision) { d.Contract.RateLimit.Calls = 5 },
			"rate.exceeded"},
		{"a window without calls allows nothing", func(d *policy.Decision) { d.Contract.RateLimit.Per = time.Minute },
			"rate.exceeded"},
		{"a negative rate allows nothing",
			func(d *policy.Decision) { d.Contract.RateLimit = contract.Rate{Calls: -1, Per: time.Minute} }, "rate.exceeded"},
		{"a negative concurrency allows nothing", func(d *policy.Decision) { d.Contract.Concurrency = -1 },
			"concurrency.exceeded"},
		{"a dry run needs no session", func(d *policy.Decision) { d.Call.Session, d.DryRun = "", true }, ""},
	} {
		t.Run(row.why, func(t *testing.T) {
			m, _, d := setup(t, Defaults())
			row.change(&d)
			done, why := m.Take(d)
			done()
			if code(why) != row.want {
				t.Errorf("got %q, want %q", code(why), row.want)
			}
		})
	}
}

func TestZeroOptionsAllowNothing(t *testing.T) {
	if _, err := NewManager(Options{}, time.Now).Open("os:1000", ""); err == nil {
		t.Error("a manager without options opened a session")
	}
	m, _, d := setup(t, Options{MaxSessions: 1})
	if _, why := m.Take(d); code(why) != "session.budget" {
		t.Errorf("got %q", code(why))
	}
	if _, ok := m.Token(d.Call.Session, "EMAIL", "a@b.example"); ok {
		t.Error("a vault without room took a value")
	}
	if _, err := m.Open("os:1000", ""); err == nil {
		t.Error("a second session where one is the most")
	}
}

func TestOpenNeedsAPrincipal(t *testing.T) {
	if _, err := NewManager(Defaults(), time.Now).Open("", "w_1"); err == nil {
		t.Error("opened for nobody")
	}
}

func TestSessionBudgetCountsRefusedCalls(t *testing.T) {
	o := Defaults()
	o.MaxCalls = 2
	m, _, d := setup(t, o)
	d.Effect = policy.Deny
	for range 2 {
		if _, why := m.Take(d); why != nil {
			t.Fatal(why)
		}
	}
	d.Effect = policy.Allow
	if _, why := m.Take(d); code(why) != "session.budget" {
		t.Errorf("got %q", code(why))
	}
}

func TestRateIsASlidingWindow(t *testing.T) {
	m, c, d := setup(t, Defaults())
	d.Contract.RateLimit = contract.Rate{Calls: 2, Per: time.Minute}
	d.Contract.Keys = map[string]contract.Position{"rate_limit": {File: "waldo.yaml", Line: 7, Column: 3}}
	for _, step := range []struct {
		why  string
		wait time.Duration
		want string
	}{
		{"first of two", 0, ""},
		{"second of two", 40 * time.Second, ""},
		{"third within the minute", 19 * time.Second, "rate.exceeded"},
		{"the first has left the window", time.Second, ""},
		{"the second is still in it", time.Second, "rate.exceeded"},
	} {
		c.t = c.t.Add(step.wait)
		done, why := m.Take(d)
		done()
		if code(why) != step.want {
			t.Fatalf("%s: got %q, want %q", step.why, code(why), step.want)
		}
		if why != nil && (why.Line != 7 || why.File != "waldo.yaml") {
			t.Errorf("the reason does not name the contract's line: %+v", why)
		}
	}
}

func TestRateIsOfTheCapabilityOverAllSessions(t *testing.T) {
	m, _, d := setup(t, Defaults())
	d.Contract.RateLimit = contract.Rate{Calls: 1, Per: time.Minute}
	if _, why := m.Take(d); why != nil {
		t.Fatal(why)
	}
	other, err := m.Open("os:1000", "w_2")
	if err != nil {
		t.Fatal(err)
	}
	e := d
	e.Call.Session = other.ID
	if _, why := m.Take(e); code(why) != "rate.exceeded" {
		t.Errorf("a second session doubled the rate: %q", code(why))
	}
	e.Call.Capability = "mail.list"
	if _, why := m.Take(e); why != nil {
		t.Errorf("control: another capability has its own rate: %q", why.Code)
	}
}

func TestDeniedCallsTakeNoRate(t *testing.T) {
	m, _, d := setup(t, Defaults())
	d.Contract.RateLimit = contract.Rate{Calls: 1, Per: time.Minute}
	d.Effect = policy.Deny
	if _, why := m.Take(d); why != nil {
		t.Fatal(why)
	}
	d.Effect = policy.Allow
	if _, why := m.Take(d); why != nil {
		t.Errorf("a denied call used the rate up: %q", why.Code)
	}
}

func TestApprovedCallComesBackWithoutASecondSlot(t *testing.T) {
	m, _, d := setup(t, Defaults())
	d.Effect = policy.Ask
	d.Contract.RateLimit = contract.Rate{Calls: 1, Per: time.Minute}
	d.Call.Args, _ = call.ParseArgs([]byte(`{"to":"x"}`))
	if _, why := m.Take(d); why != nil {
		t.Fatal(why)
	}
	if _, why := m.Take(d); code(why) != "rate.exceeded" {
		t.Errorf("asking again without quoting an approval: %q", code(why))
	}
	d.Call.ApprovalID = "a_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	if _, why := m.Take(d); why != nil {
		t.Errorf("the call that comes back for its answer was refused: %q", why.Code)
	}
	d.Call.Args, _ = call.ParseArgs([]byte(`{"to":"y"}`))
	if _, why := m.Take(d); code(why) != "rate.exceeded" {
		t.Errorf("quoting an approval bought a call with other arguments: %q", code(why))
	}
}

// A slot that a question took belongs to its session: the same arguments from another session are another call.
func TestASlotBelongsToItsSession(t *testing.T) {
	m, _, d := setup(t, Defaults())
	d.Effect = policy.Ask
	d.Contract.RateLimit = contract.Rate{Calls: 1, Per: time.Minute}
	d.Call.Args, _ = call.ParseArgs([]byte(`{"to":"x"}`))
	if _, why := m.Take(d); why != nil {
		t.Fatal(why)
	}
	d.Call.ApprovalID = "a_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	other, err := m.Open("os:1000", "w_2")
	if err != nil {
		t.Fatal(err)
	}
	mine := d.Call.Session
	d.Call.Session = other.ID
	if _, why := m.Take(d); code(why) != "rate.exceeded" {
		t.Errorf("another session went through the slot: %q", code(why))
	}
	d.Call.Session = mine
	if _, why := m.Take(d); why != nil {
		t.Errorf("control: the call that comes back was refused: %q", why.Code)
	}
}

func TestConcurrency(t *testing.T) {
	m, _, d := setup(t, Defaults())
	d.Contract.Concurrency = 2
	one, _ := m.Take(d)
	two, why := m.Take(d)
	if why != nil {
		t.Fatal(why)
	}
	if _, why := m.Take(d); code(why) != "concurrency.exceeded" {
		t.Fatalf("a third beside two: %q", code(why))
	}
	one()
	one() // ending a call twice ends it once
	three, why := m.Take(d)
	if why != nil {
		t.Fatalf("after one ended: %q", why.Code)
	}
	if _, why := m.Take(d); code(why) != "concurrency.exceeded" {
		t.Errorf("ending one call twice made room for two: %q", code(why))
	}
	two()
	three()
}

func TestConcurrencyUnderRace(t *testing.T) {
	m, _, d := setup(t, Defaults())
	d.Contract.Concurrency = 3
	var taken, wg sync.WaitGroup
	var passed atomic.Int64
	taken.Add(50)
	for range 50 {
		wg.Go(func() {
			done, why := m.Take(d)
			if why == nil {
				passed.Add(1)
			}
			taken.Done()
			taken.Wait() // all of them overlap
			done()
		})
	}
	wg.Wait()
	if n := passed.Load(); n != 3 {
		t.Errorf("%d passed where three may", n)
	}
}

// Limits hold over the processes of one state directory, for each principal. A process that was killed frees its calls.
func TestLimitsAcrossProcesses(t *testing.T) {
	m, c, d := setup(t, Defaults())
	d.Contract.RateLimit, d.Contract.Concurrency = contract.Rate{Calls: 2, Per: time.Minute}, 1
	r := m.Rates.(*effects.Rates)
	other := &effects.Rates{Store: r.Store, Process: "q_other", Now: r.Now, Gone: r.Gone}
	if _, why := m.Take(d); why != nil {
		t.Fatal(why)
	}
	if _, why := other.Take(d); code(why) != "concurrency.exceeded" || why.RetryAfter != 1 {
		t.Errorf("another process: %+v", why)
	}
	e := d
	e.Call.Principal = "os:1001"
	if _, why := other.Take(e); why != nil {
		t.Errorf("control: another principal has limits of its own: %+v", why)
	}
	other.Gone = func(name string) bool { return name == r.Process } // killed
	if _, why := other.Take(d); why != nil {
		t.Errorf("a call of a killed process holds its place: %+v", why)
	}
	c.t = c.t.Add(20 * time.Second)
	d.Contract.Concurrency = 0
	if _, why := other.Take(d); code(why) != "rate.exceeded" || why.RetryAfter != 40 {
		t.Errorf("the third in a minute, of two processes: %+v", why)
	}
}

// TestRatesOfATree is the property: over random trees of delegations, all calls that have the authority of a principal
// are within its limits, whoever makes them. Without the authority, which is the control, children make more.
func TestRatesOfATree(t *testing.T) {
	const most = 3
	for seed := range uint64(8) {
		for _, control := range []bool{false, true} {
			m, _, d := setup(t, Defaults())
			d.Contract.RateLimit = contract.Rate{Calls: most, Per: time.Minute}
			rnd, made := rand.New(rand.NewPCG(seed, 1)), map[call.Principal]int{}
			chains := map[call.Principal][]call.Principal{"p0": nil} // of each principal, those above it
			for i := 1; i < 6; i++ {
				above := call.Principal(fmt.Sprint("p", rnd.IntN(i)))
				chains[call.Principal(fmt.Sprint("p", i))] = append([]call.Principal{above}, chains[above]...)
			}
			for range 30 {
				who := call.Principal(fmt.Sprint("p", rnd.IntN(6)))
				e := d
				if e.Call.Principal = who; !control {
					e.Authority = chains[who]
				}
				_, why := m.Rates.Take(e)
				if why != nil {
					full := slices.ContainsFunc(append([]call.Principal{who}, chains[who]...),
						func(p call.Principal) bool { return made[p] == most })
					if code(why) != "rate.exceeded" || !full && !control {
						t.Errorf("seed %d: %s below %v is refused by %+v, and made %v", seed, who, chains[who], why, made)
					}
					continue
				}
				for _, p := range append([]call.Principal{who}, chains[who]...) {
					made[p]++
				}
			}
			if root := made["p0"]; root > most != control {
				t.Errorf("seed %d, control %v: %d calls by the authority of the root, which has %d", seed, control, root, most)
			}
		}
	}
}

// TestLiveOfATree: a call of a child is one of its parent's calls at a time, until it ends.
func TestLiveOfATree(t *testing.T) {
	m, _, d := setup(t, Defaults())
	d.Contract.Concurrency = 1
	child := d
	child.Call.Principal, child.Authority = "token:ci", []call.Principal{d.Call.Principal}
	done, why := m.Rates.Take(child)
	if why != nil {
		t.Fatal(why)
	}
	if _, why := m.Take(d); code(why) != "concurrency.exceeded" {
		t.Errorf("the parent beside its child: %+v", why)
	}
	done()
	if _, why := m.Take(d); why != nil {
		t.Errorf("control: %+v", why)
	}
	_, why = m.Rates.Take(child)
	if code(why) != "concurrency.exceeded" || !strings.Contains(why.Text, "os:1000 as well, whose authority it is") {
		t.Errorf("the child beside its parent: %+v", why)
	}
}

func TestSweepClosesIdleSessionsOnly(t *testing.T) {
	o := Defaults()
	o.Idle = time.Hour
	m, c, d := setup(t, o)
	busy, _ := m.Open("os:1000", "w_2")
	e := d
	e.Call.Session = busy.ID
	done, why := m.Take(e)
	if why != nil {
		t.Fatal(why)
	}
	if _, ok := m.Token(d.Call.Session, "EMAIL", "a@b.example"); !ok {
		t.Fatal("control: an open session takes a value")
	}
	c.t = c.t.Add(2 * time.Hour)
	if got := m.Sweep(); len(got) != 1 || got[0].ID != d.Call.Session {
		t.Fatalf("closed %+v", got)
	}
	if _, ok := m.Value(d.Call.Session, "[EMAIL_1]"); ok {
		t.Error("a closed session still restores")
	}
	done()
	if got := m.Sweep(); len(got) != 0 {
		t.Errorf("closed right after a call ended: %+v", got)
	}
	if !m.Close(busy.ID) || m.Close(busy.ID) {
		t.Error("Close says whether the session was open")
	}
	if len(m.List()) != 0 {
		t.Error("sessions are left")
	}
}

func TestVault(t *testing.T) {
	v := NewVault(3)
	one, _ := v.Token("EMAIL", "Jane@x.example")
	same, _ := v.Token("EMAIL", "jane@X.example")
	two, _ := v.Token("EMAIL", "joe@x.example")
	phone, _ := v.Token("PHONE", "joe@x.example")
	if one != "[EMAIL_1]" || same != one || two != "[EMAIL_2]" || phone != "[PHONE_1]" {
		t.Errorf("got %s %s %s %s", one, same, two, phone)
	}
	if s, ok := v.Value("[EMAIL_1]"); !ok || s != "Jane@x.example" {
		t.Errorf("restored %q", s)
	}
	for _, s := range []string{"[EMAIL_3]", "[email_1]", "EMAIL_1", "", "[NAME_1]"} {
		if got, ok := v.Value(s); ok {
			t.Errorf("%q stands for %q", s, got)
		}
	}
	if s, ok := v.Token("EMAIL", "fourth@x.example"); ok {
		t.Errorf("a full vault gave %s", s)
	}
	if s, ok := v.Token("EMAIL", "joe@x.example"); !ok || s != two {
		t.Errorf("a full vault forgot what it knew: %s", s)
	}
	if _, ok := NewVault(9).Token("TEXT", string(make([]byte, MaxValue+1))); ok {
		t.Error("a value that is too long was kept")
	}
}

func TestTokensOfAnotherSessionDoNotRestore(t *testing.T) {
	m, _, d := setup(t, Defaults())
	other, _ := m.Open("os:1000", "w_2")
	token, ok := m.Token(d.Call.Session, "EMAIL", "jane@x.example")
	if !ok {
		t.Fatal("control: no token")
	}
	if s, ok := m.Value(d.Call.Session, token); !ok || s != "jane@x.example" {
		t.Fatalf("control: restored %q", s)
	}
	if s, ok := m.Value(other.ID, token); ok {
		t.Errorf("another session restored %q", s)
	}
}

func TestVaultFromManyGoroutines(t *testing.T) {
	v := NewVault(1000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				value := fmt.Sprintf("u%d@x.example", i)
				token, ok := v.Token("EMAIL", value)
				if got, _ := v.Value(token); !ok || got != value {
					t.Errorf("%s stands for %q, not %q", token, got, value)
				}
			}
		})
	}
	wg.Wait()
	if len(v.values) != 200 {
		t.Errorf("%d tokens for 200 values", len(v.values))
	}
}
