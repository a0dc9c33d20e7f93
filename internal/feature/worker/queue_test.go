package worker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

func queueOf(t testing.TB, settings ...string) *queue {
	t.Helper()
	pg := pgtest.New(t, settings...)
	dir := t.TempDir()
	if _, _, err := database.Migrate(t.Context(), dir, pg.URL("postgres", "postgres")); err != nil {
		t.Fatal(err)
	}
	s, err := database.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	q, err := openQueue(t.Context(), s, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.pool.Close)
	if err := q.migrate(t.Context()); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	return q
}

func keyOf(t testing.TB) keyring {
	k, err := readKey(secret.NewValue(newKey()))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (q *queue) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := q.pool.Exec(context.Background(), text, args...); err != nil {
		t.Fatal(err)
	}
}

func add(t testing.TB, q *queue, run string) envelope {
	t.Helper()
	e := envelope{run: run, attempt: 1, expires: time.Now().Add(time.Hour).UnixMilli()}
	if _, err := q.add(t.Context(), e, "namespace", "small", time.Minute, []byte("sealed")); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestLease: one worker gets a run, once; it holds it by its name, its attempt and its lease, and by nothing else.
func TestLease(t *testing.T) {
	q, ctx := queueOf(t), t.Context()
	e := add(t, q, "r_1")
	if w, err := q.waiting(ctx); err != nil || len(w) != 1 || w[0].Size != "small" || w[0].Runs != 1 || w[0].Oldest <= 0 {
		t.Errorf("waiting: %v, %v", w, err)
	}
	if _, sealed, ok, err := q.claim(ctx, "r_1", "a"); err != nil || !ok || string(sealed) != "sealed" {
		t.Fatalf("control: %q, %v, %v", sealed, ok, err)
	}
	if _, _, ok, err := q.claim(ctx, "r_1", "b"); err != nil || ok {
		t.Errorf("begun twice: %v", err)
	}
	if held, wants, err := q.renew(ctx, e, "a"); err != nil || !held || !wants {
		t.Fatalf("control: %v, %v, %v", held, wants, err)
	}
	late := e
	late.attempt = 2
	for who, e := range map[string]envelope{"b": e, "a": late} {
		if held, _, err := q.renew(ctx, e, who); err != nil || held {
			t.Errorf("%s renews with attempt %d: %v", who, e.attempt, err)
		}
		if ok, err := q.end(ctx, e, who, []byte("result")); err != nil || ok {
			t.Errorf("%s ends with attempt %d: %v", who, e.attempt, err)
		}
	}
	if err := q.unwanted(ctx, "r_1"); err != nil {
		t.Fatal(err)
	}
	if held, wants, err := q.renew(ctx, e, "a"); err != nil || !held || wants {
		t.Errorf("unwanted: %v, %v, %v", held, wants, err)
	}
	q.exec(t, `UPDATE worker_runs SET lease_until = clock_timestamp() - interval '1 second'`)
	if held, _, err := q.renew(ctx, e, "a"); err != nil || held {
		t.Errorf("a lease that is over was renewed: %v", err)
	}
	if ok, err := q.end(ctx, e, "a", []byte("result")); err != nil || ok {
		t.Errorf("a late result was taken: %v", err)
	}
	add(t, q, "r_2")
	q.exec(t, `UPDATE worker_runs SET wanted_until = clock_timestamp() - interval '1 second' WHERE id = 'r_2'`)
	if _, _, ok, err := q.claim(ctx, "r_2", "a"); err != nil || ok {
		t.Errorf("a run that nobody wants was begun: %v", err)
	}
	if w, err := q.waiting(ctx); err != nil || len(w) != 0 {
		t.Errorf("waiting: %v, %v", w, err)
	}
	q.exec(t, `UPDATE worker_runs SET wanted_until = clock_timestamp() - interval '2 hours' WHERE id = 'r_2'`)
	if err := q.sweep(ctx); err != nil {
		t.Error(err)
	}
	if _, err := q.look(ctx, "r_2", false); err == nil {
		t.Error("a row of long ago was not swept")
	}
	if r, err := q.look(ctx, "r_1", false); err != nil || r.state != "running" {
		t.Errorf("a row of now was swept: %v", err)
	}
}

// TestForgedResult: who can write to the database cannot answer a run.
func TestForgedResult(t *testing.T) {
	q := queueOf(t)
	g := &gateway{q: q, key: keyOf(t), wait: time.Minute}
	text, err := json.Marshal(result{Facts: facts.Facts{Status: facts.OK, SideEffect: facts.None, Stdout: "42\n"}})
	if err != nil {
		t.Fatal(err)
	}
	run := runner.Remote{Level: "namespace", Decision: policy.Decision{Call: call.Call{ID: "c_1"}}}
	of := func(e envelope, k keyring, direction string) []byte { return k.seal(direction, e, text) }
	for why, forged := range map[string]func(e envelope) []byte{
		"control":           func(e envelope) []byte { return of(e, g.key, toGateway) },
		"in clear text":     func(envelope) []byte { return text },
		"another key":       func(e envelope) []byte { return of(e, keyOf(t), toGateway) },
		"the job":           func(e envelope) []byte { return of(e, g.key, toWorker) },
		"another attempt":   func(e envelope) []byte { e.attempt = 2; return of(e, g.key, toGateway) },
		"another run":       func(e envelope) []byte { e.run = "r_old"; return of(e, g.key, toGateway) },
		"an earlier expiry": func(e envelope) []byte { e.expires--; return of(e, g.key, toGateway) },
	} {
		t.Run(why, func(t *testing.T) {
			e := add(t, q, "r_"+strings.ReplaceAll(why, " ", "_"))
			q.exec(t, `UPDATE worker_runs SET state = 'ended', result = $2 WHERE id = $1`, e.run, forged(e))
			out, err := g.await(t.Context(), q, run, e, nil)
			if err != nil {
				t.Fatal(err)
			}
			refused := strings.HasPrefix(strings.Join(out.Facts.Warnings, "\n"), "worker.forged: ")
			if why == "control" {
				if refused || out.Facts.Stdout != "42\n" {
					t.Fatalf("control: %+v", out.Facts)
				}
				return
			}
			if !refused || out.Facts.SideEffect != facts.Unknown || out.Facts.Stdout != "" {
				t.Errorf("%+v", out.Facts)
			}
		})
	}
	e := add(t, q, "r_gone")
	q.exec(t, `DELETE FROM worker_runs WHERE id = 'r_gone'`)
	if out, err := g.await(t.Context(), q, run, e, nil); err != nil || out.Facts.SideEffect != facts.Unknown {
		t.Errorf("a row that is gone: %+v, %v", out.Facts, err)
	}
	began := time.Now()
	out, err := g.await(t.Context(), q, run, e, errors.New("the commit got no answer"))
	if err != nil || out.Refused == nil || out.Refused.Code != "worker.queue" || time.Since(began) < wanted {
		t.Errorf("a row that never came: %+v, %v", out, err)
	}
}

// TestLeaseIsOver: a worker sends nothing for a run whose lease it has not renewed in time.
func TestLeaseIsOver(t *testing.T) {
	l := &lease{}
	l.renewed.Store(new(time.Now()))
	if !l.good() {
		t.Error("control: a lease of now is over")
	}
	l.renewed.Store(new(time.Now().Add(-giveUp)))
	if l.good() {
		t.Error("a lease of before is good")
	}
	if _, err := (given{w: &worker{}}).Egress(policy.Decision{}, contract.Network{}); !errors.Is(err, errLease) {
		t.Errorf("a run without a lease: %v", err)
	}
}

// TestForgedJob: who can write to the database cannot make a worker run anything, nor the same run twice.
func TestForgedJob(t *testing.T) {
	k := keyOf(t)
	fresh := func() *worker {
		return &worker{key: k, policy: "sha256:1", isolation: "namespace", size: "small", seen: map[string]int64{}}
	}
	e := envelope{run: "r_1", attempt: 1, expires: time.Now().Add(time.Minute).UnixMilli()}
	good := job{Policy: "sha256:1", Level: "namespace", Limits: sandbox.Limits{Memory: 512 << 20}}
	sealed := func(k keyring, e envelope, change func(*job)) []byte {
		j := good
		if change != nil {
			change(&j)
		}
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		return k.seal(toWorker, e, text)
	}
	w := fresh()
	if _, why := w.read(e, sealed(k, e, nil)); why != nil {
		t.Fatalf("control: %v", why)
	}
	if _, why := w.read(e, sealed(k, e, nil)); why == nil || why.Code != "worker.replayed" {
		t.Errorf("a second time: %v", why)
	}
	old := envelope{run: "r_0", attempt: 1, expires: time.Now().Add(-time.Minute).UnixMilli()}
	other, again := e, e
	other.run, again.attempt = "r_2", 2
	for why, row := range map[string]struct {
		e      envelope
		sealed []byte
		code   string
	}{
		"in clear text":         {e, []byte(`{"policy":"sha256:1","level":"namespace"}`), "worker.forged"},
		"another key":           {e, sealed(keyOf(t), e, nil), "worker.forged"},
		"a result":              {e, k.seal(toGateway, e, []byte("{}")), "worker.forged"},
		"the job of another":    {e, sealed(k, other, nil), "worker.forged"},
		"another attempt":       {again, sealed(k, e, nil), "worker.forged"},
		"after its time":        {old, sealed(k, old, nil), "worker.expired"},
		"a later time":          {envelope{"r_0", 1, e.expires}, sealed(k, old, nil), "worker.forged"},
		"another configuration": {e, sealed(k, e, func(j *job) { j.Policy = "sha256:2" }), "worker.config"},
		"another level":         {e, sealed(k, e, func(j *job) { j.Level = "confined" }), "worker.size"},
		"another size":          {e, sealed(k, e, func(j *job) { j.Limits.Memory++ }), "worker.size"},
	} {
		if _, got := fresh().read(row.e, row.sealed); got == nil || got.Code != row.code {
			t.Errorf("%s: %v, want %s", why, got, row.code)
		}
	}
}
