package worker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// TestOtherKey: a worker with another key than the gateway neither starts nor begins a run, which waits for another.
func TestOtherKey(t *testing.T) {
	pg, dir := pgtest.New(t), t.TempDir()
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
	k, other := keyOf(t), keyOf(t)
	if err := sameKey(t.Context(), s, other); err != nil {
		t.Fatalf("control: no gateway started yet: %v", err)
	}
	if err := announce(t.Context(), s, k); err != nil {
		t.Fatal(err)
	}
	if err := sameKey(t.Context(), s, k); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := sameKey(t.Context(), s, other); err == nil || !strings.Contains(err.Error(), "workers.key") {
		t.Errorf("it starts: %v", err)
	}
	e := envelope{run: "r_1", attempt: 1, expires: time.Now().Add(time.Hour).UnixMilli()}
	if _, err := q.add(t.Context(), e, "namespace", "small", time.Minute, k.seal(toWorker, e, []byte("{}"))); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		r, err := q.look(t.Context(), "r_1", false)
		if err != nil {
			t.Fatal(err)
		}
		return r.state
	}
	j := &river.Job[ticket]{Args: ticket{Run: "r_1", Key: k.id()}}
	snoozed := (*river.JobSnoozeError)(nil)
	w := &worker{q: q, key: other, name: "w_1", seen: map[string]int64{}}
	if err := w.Work(t.Context(), j); !errors.As(err, &snoozed) || state() != "waiting" {
		t.Errorf("it begins: %v, %s", err, state())
	}
	w = &worker{q: q, key: k, name: "w_2", policy: "p", seen: map[string]int64{}}
	if err := w.Work(t.Context(), j); err != nil || state() != "ended" {
		t.Errorf("control: %v, %s", err, state())
	}
}
