package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// starts is a worker that begins runs and does nothing else.
type starts struct {
	river.WorkerDefaults[ticket]
	q     *queue
	begun chan time.Time
}

func (s *starts) Work(ctx context.Context, j *river.Job[ticket]) error {
	e, _, ok, err := s.q.claim(ctx, j.Args.Run, "w")
	if err == nil && ok {
		s.begun <- time.Now()
		_, err = s.q.end(ctx, e, "w", nil)
	}
	return err
}

// BenchmarkDispatch is the time from the decision of a run to its beginning at a worker, one after the other: sealing,
// the transaction of row and job, and the claim. PostgreSQL waits for its disk.
func BenchmarkDispatch(b *testing.B) {
	q := queueOf(b, "fsync=on")
	s := &starts{q: q, begun: make(chan time.Time, 1)}
	all := river.NewWorkers()
	river.AddWorker(all, s)
	c, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{Workers: all, Logger: quiet(),
		Queues:        map[string]river.QueueConfig{queueName("namespace", "small"): {MaxWorkers: 4}},
		FetchCooldown: time.Millisecond, FetchPollInterval: fetch})
	if err == nil {
		err = c.Start(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Stop(context.Background()) }()
	k, code := keyOf(b), make([]byte, 4<<10)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		e := envelope{run: fmt.Sprintf("r_%d", i), attempt: 1, expires: time.Now().Add(time.Hour).UnixMilli()}
		if _, err := q.add(b.Context(), e, "namespace", "small", time.Minute, k.seal(toWorker, e, code)); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-s.begun).Sub(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
