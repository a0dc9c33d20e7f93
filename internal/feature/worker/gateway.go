package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"waldo/internal/app"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
)

// The ids of runs: one call can have several.
const runID id.Kind = "r_"

// gateway has decided runs carried out by workers.
type gateway struct {
	h    *app.App
	mu   sync.Mutex
	q    *queue // nil: not connected yet
	key  keyring
	wait time.Duration
	used map[string]app.Waiting // the queues that it used, without runs
}

// gatewayConnections are those of a gateway to the queue.
const gatewayConnections = 8

// open connects where nothing did yet. An error holds until the next try.
func (g *gateway) open(ctx context.Context) (*queue, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.q != nil {
		return g.q, nil
	}
	v, err := g.h.Secret(g.h.Config.Workers.Key)
	if err == nil {
		g.key, err = readKey(v)
	}
	if err == nil {
		err = announce(ctx, g.h.Store, g.key)
	}
	if err != nil {
		return nil, err
	}
	if g.q, err = openQueue(ctx, g.h.Store, gatewayConnections); err == nil {
		g.q.key = g.key.id()
	}
	return g.q, err
}

// The row with the id of the key of the gateway that started last.
const keyBucket, keyName = "workers", "key"

// announce stores the id of a gateway's key, for workers that start with another.
func announce(ctx context.Context, s *database.Store, k keyring) error {
	return s.Put(ctx, keyBucket, keyName, k.id())
}

func (g *gateway) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.q != nil {
		g.q.pool.Close()
	}
	g.q = nil
	return nil
}

// waiting returns the queues that this gateway used, and those where runs wait.
func (g *gateway) waiting(ctx context.Context) ([]app.Waiting, error) {
	q, err := g.open(ctx)
	if err != nil {
		return nil, err
	}
	now, err := q.waiting(ctx)
	g.mu.Lock()
	all := maps.Clone(g.used)
	g.mu.Unlock()
	for _, w := range now {
		all[queueName(w.Isolation, w.Size)] = w
	}
	return slices.Collect(maps.Values(all)), err
}

func (g *gateway) sweep(ctx context.Context, _ time.Time) error {
	q, err := g.open(ctx)
	if err != nil {
		return err
	}
	return q.sweep(ctx)
}

// Carry has a run carried out by a worker. It returns false where the files of its session are too large.
func (g *gateway) Carry(ctx context.Context, run runner.Remote) (out call.Outcome, taken bool, err error) {
	j, fits, err := jobOf(run)
	if err != nil || !fits {
		return out, false, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return out, false, err
	}
	q, err := g.open(ctx)
	if err != nil {
		return g.unreachable(run, err), true, nil
	}
	e := envelope{run: id.New(runID), attempt: 1, expires: time.Now().Add(g.wait + 5*time.Second).UnixMilli()}
	size := sizeOf(run.Limits.Memory)
	g.mu.Lock()
	g.used[queueName(run.Level, size)] = app.Waiting{Isolation: run.Level, Size: size}
	g.mu.Unlock()
	committed, err := q.add(ctx, e, run.Level, size, run.Limits.Wall, g.key.seal(toWorker, e, text))
	if err != nil && !committed {
		return g.unreachable(run, err), true, nil
	}
	out, err = g.await(ctx, q, run, e, err)
	return out, true, err
}

func (g *gateway) unreachable(run runner.Remote, err error) call.Outcome {
	slog.Error("the queue of the workers", "why", err)
	return refused(run, call.Reason{Code: "worker.queue", Text: "the queue of the workers cannot be reached; nothing ran",
		Cause: err.Error()})
}

// patience is how long a database that does not answer is waited for.
const patience = 30 * time.Second

// await waits for the end of a run: its result, a worker that is lost, or nobody who takes it. doubt is the error of a
// commit that got no answer: the row can be absent, and one that comes late is not wanted any more.
func (g *gateway) await(
	ctx context.Context, q *queue, run runner.Remote, e envelope, doubt error,
) (call.Outcome, error) {
	lasting := context.WithoutCancel(ctx)
	began, renewed, answered := time.Now(), time.Now(), time.Now()
	stop, stopped := ctx.Done(), false
	for {
		select {
		case <-stop:
			stop, stopped = nil, true
			if err := q.unwanted(lasting, e.run); err != nil {
				slog.Warn("ending a run at its worker", "run", e.run, "why", err)
			}
		case <-time.After(step(time.Since(began))):
		}
		renew := !stopped && time.Since(renewed) > renewal
		r, err := q.look(lasting, e.run, renew)
		switch {
		case errors.Is(err, pgx.ErrNoRows) && doubt != nil:
			if time.Since(began) > wanted+renewal {
				return g.unreachable(run, doubt), nil
			}
			continue
		case errors.Is(err, pgx.ErrNoRows):
			return unknown(run, "worker.row", "the row of the run is gone from the queue"), nil
		case err != nil && time.Since(answered) > patience:
			return unknown(run, "worker.queue", "the queue of the workers cannot be reached any more"), nil
		case err != nil:
			continue
		}
		answered = time.Now()
		if renew {
			renewed = answered
		}
		switch {
		case r.state == "ended":
			return g.take(lasting, q, run, e, r.result)
		case r.state == "waiting" && (stopped || time.Since(began) > g.wait):
			if ended, err := q.over(lasting, e.run, "waiting"); err == nil && ended {
				return g.untaken(run, stopped), nil
			}
		case r.state == "running" && r.lost:
			if ended, err := q.over(lasting, e.run, "running"); err == nil && ended {
				return unknown(run, "worker.lost",
					"the worker of this run stopped answering; the run is not started again"), nil
			}
		case r.state != "waiting" && r.state != "running":
			return unknown(run, "worker.row", "the row of the run was changed by another"), nil
		}
	}
}

// step is the time between two looks at a row, after a time.
func step(since time.Duration) time.Duration {
	return min(max(2*time.Millisecond, since/20), 50*time.Millisecond)
}

// untaken is the outcome of a run that no worker began.
func (g *gateway) untaken(run runner.Remote, stopped bool) call.Outcome {
	if stopped {
		f := facts.New()
		f.Status, f.SideEffect = facts.Cancelled, facts.None
		text := call.Text("Cancelled before a worker took the run.")
		return call.Outcome{IsError: true, Facts: f, Content: []call.Content{text}}
	}
	why := call.Reason{Code: "worker.absent", Text: fmt.Sprintf("no worker for isolation %s and size %s took the run "+
		"within %v; nothing ran", run.Level, sizeOf(run.Limits.Memory), g.wait)}
	return refused(run, *why.In(10 * time.Second))
}

// take opens a result and stores its files.
func (g *gateway) take(
	ctx context.Context, q *queue, run runner.Remote, e envelope, sealed []byte,
) (call.Outcome, error) {
	if _, err := q.over(ctx, e.run, "ended"); err != nil {
		slog.Warn("a result stays in the queue until it is swept", "run", e.run, "why", err)
	}
	var res result
	text, err := g.key.open(toGateway, e, sealed)
	if err == nil {
		err = json.Unmarshal(text, &res)
	}
	if err != nil {
		slog.Error("a result is refused", "code", "worker.forged", "run", e.run, "why", err)
		return unknown(run, "worker.forged", "the result of this run is not from a worker"), nil
	}
	out, err := res.outcome()
	if err == nil && run.Files != nil {
		if ferr := unpack(run.Files, res.Files, res.Removed); ferr != nil {
			out.Facts.Warnings = append(out.Facts.Warnings, "some files of the run could not be kept: "+ferr.Error())
		}
	}
	if err == nil && res.Error != "" {
		err = fmt.Errorf("run %s at a worker: %s", run.Decision.Call.ID, res.Error)
	}
	return out, err
}

// refused is the outcome of a run that did not begin.
func refused(run runner.Remote, why call.Reason) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.Denied, facts.None
	f.Sandbox.Driver = run.Level
	f.Warnings = []string{why.Code + ": " + why.Text}
	return call.Outcome{IsError: true, Refused: &why, Facts: f, Content: []call.Content{call.Text(why.Text)}}
}

// unknown is the outcome of a run that can have begun, and whose end is not known.
func unknown(run runner.Remote, code, text string) call.Outcome {
	f := facts.New()
	f.Status, f.SideEffect = facts.Failed, facts.Unknown
	f.Sandbox.Driver = run.Level
	f.Warnings = []string{code + ": " + text}
	return call.Outcome{IsError: true, Facts: f, Content: []call.Content{call.Text(text + call.NotKnown)}}
}
