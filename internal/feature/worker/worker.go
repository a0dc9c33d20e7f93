// Package worker carries out runs on other machines: a gateway puts a decided run into a queue in PostgreSQL, and
// waldo worker takes it from there. What stands in the database proves nothing: jobs and results are sealed with a key
// that gateways and workers share.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"waldo/internal/app"
	"waldo/internal/core/grant"
	"waldo/internal/core/policy"
	"waldo/internal/executor/runner"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/feature"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/storage/workspace"
)

// Feature is waldo worker, and the gateway's side of it.
var Feature = feature.Feature{Name: "worker", Commands: commands, Open: open}

// open has the runs of a configuration with workers carried out by them.
func open(h *app.App) (app.Running, error) {
	w := h.Config.Workers
	if w == nil {
		return app.Running{}, nil
	}
	g := &gateway{h: h, wait: w.Wait, used: map[string]app.Waiting{}}
	h.Runner.Elsewhere = g
	return app.Running{Sweep: g.sweep, Waiting: g.waiting, Close: g.close, Require: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := g.open(ctx)
		return err
	}}, nil
}

// worker takes runs from one queue.
type worker struct {
	river.WorkerDefaults[ticket]
	h               *app.App
	q               *queue
	key             keyring
	name            string // of this process, in the rows of its runs
	policy          string // digest of its configuration
	isolation, size string
	scratch         string // a folder with the files of each run

	strange sync.Map // ids of other keys that were logged

	held sync.Map // the leases of runs under way, by their sessions

	mu   sync.Mutex
	seen map[string]int64 // the runs that it began, with the end of their jobs' time
}

// Timeout is the most that a run takes, with a margin. River takes a longer one for stuck.
func (w *worker) Timeout(j *river.Job[ticket]) time.Duration {
	return min(max(time.Duration(j.Args.Seconds)*time.Second, 30*time.Second), 25*time.Hour)
}

// otherKey is why a worker does not begin runs of a gateway.
const otherKey = "workers.key of this worker is not that of the gateway"

// Work carries out one run. It is never tried again. The only error leaves a run of another key, which did not begin, to
// another worker.
func (w *worker) Work(ctx context.Context, j *river.Job[ticket]) error {
	if other := j.Args.Key; other != "" && other != w.key.id() {
		if _, again := w.strange.LoadOrStore(other, true); !again {
			slog.Error("runs are left to other workers: "+otherKey, "code", "worker.key", "run", j.Args.Run)
		}
		return river.JobSnooze(renewal)
	}
	l := &lease{}
	l.renewed.Store(new(time.Now()))
	e, sealed, ok, err := w.q.claim(ctx, j.Args.Run, w.name)
	if err != nil || !ok {
		if err != nil {
			slog.Error("a run cannot be begun", "run", j.Args.Run, "why", err)
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := w.hold(ctx, e, l, cancel)
	res := w.carry(ctx, e, l, sealed)
	cancel(nil)
	if !<-held {
		slog.Error("a run was ended, and its result is not sent", "code", "worker.lease", "run", e.run)
		return nil
	}
	text, err := json.Marshal(res)
	if err != nil {
		return err
	}
	w.send(context.WithoutCancel(ctx), e, w.key.seal(toGateway, e, text))
	return nil
}

// send stores a result while the lease lasts.
func (w *worker) send(ctx context.Context, e envelope, sealed []byte) {
	ctx, end := context.WithTimeout(ctx, leased)
	defer end()
	for {
		ok, err := w.q.end(ctx, e, w.name, sealed)
		switch {
		case err == nil && !ok:
			slog.Error("a result came too late, and is refused", "code", "worker.late", "run", e.run)
			return
		case err == nil:
			return
		}
		select {
		case <-ctx.Done():
			slog.Error("a result cannot be sent", "run", e.run, "why", err)
			return
		case <-time.After(renewal / 4):
		}
	}
}

var (
	errLease    = errors.New("the lease on the run is lost")
	errUnwanted = errors.New("the gateway ended the run")
)

// lease is a worker's on a run: good for giveUp after its last renewal, by the clock of this machine. The timer that
// kills the sandbox can come later than bytes of it, where this process was paused.
type lease struct{ renewed atomic.Pointer[time.Time] }

func (l *lease) good() bool { return time.Since(*l.renewed.Load()) < giveUp }

// hold renews the lease of a run until ctx is done, and ends the run where that fails for too long or where the gateway
// does not want it any more. The channel gets whether the worker still had the lease.
func (w *worker) hold(ctx context.Context, e envelope, l *lease, end context.CancelCauseFunc) <-chan bool {
	held := make(chan bool, 1)
	late := time.AfterFunc(giveUp-time.Since(*l.renewed.Load()), func() { end(errLease) })
	go func() {
		defer late.Stop()
		tick := time.NewTicker(renewal)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				held <- !errors.Is(context.Cause(ctx), errLease)
				return
			case <-tick.C:
			}
			asked := time.Now()
			once, done := context.WithTimeout(context.WithoutCancel(ctx), renewal)
			has, needed, err := w.q.renew(once, e, w.name)
			done()
			switch {
			case err != nil: // the timer goes on
			case !has:
				end(errLease)
			case !needed:
				end(errUnwanted)
			default:
				l.renewed.Store(&asked)
				late.Reset(giveUp - time.Since(asked))
			}
		}
	}()
	return held
}

// carry opens a job and carries it out.
func (w *worker) carry(ctx context.Context, e envelope, l *lease, sealed []byte) result {
	j, why := w.read(e, sealed)
	if why != nil {
		slog.Error("a job is refused", "code", why.Code, "run", e.run, "why", why.Text)
		return refusal(*why)
	}
	n := call.Session(id.New(id.Session))
	c, err := j.asked(n)
	if err != nil {
		return refusal(call.Reason{Code: "args.invalid", Text: err.Error()})
	}
	g, why := w.granted(j, c)
	if why != nil {
		return refusal(*why)
	}
	ws, err := w.place(n)
	if err == nil {
		err = unpack(ws, j.Files, nil)
	}
	if err != nil {
		return failed(err)
	}
	defer func() { _ = ws.Destroy() }()
	w.held.Store(n, l)
	defer w.held.Delete(n)
	out, err := w.h.Runner.Execute(ctx, g)
	out.Release()
	res := resultOf(out, w.h.Redact.Known)
	if err != nil {
		res.Error = w.h.Redact.Known.Text(err.Error())
	}
	if res.Files, err = pack(ws, j.Files); err != nil {
		res.Files, res.Facts.Files.Artifacts = nil, []string{}
		res.Facts.Warnings = append(res.Facts.Warnings, "files were not kept: "+err.Error())
		return res
	}
	res.Removed = gone(ws, j.Files)
	return res
}

// read opens a job, and checks that it is for this worker, for now, and for the first time.
func (w *worker) read(e envelope, sealed []byte) (j job, why *call.Reason) {
	text, err := w.key.open(toWorker, e, sealed)
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	now := time.Now().UnixMilli()
	w.mu.Lock()
	defer w.mu.Unlock()
	_, again := w.seen[e.run]
	switch {
	case err != nil:
		return j, &call.Reason{Code: "worker.forged", Text: "no gateway sealed this job for this run"}
	case again:
		return j, &call.Reason{Code: "worker.replayed", Text: "this worker began the run before"}
	case now > e.expires:
		return j, &call.Reason{Code: "worker.expired", Text: "the job came after its time"}
	case j.Policy != w.policy:
		return j, &call.Reason{Code: "worker.config", Text: "the worker has another configuration than the gateway"}
	case j.Level != w.isolation || sizeOf(j.Limits.Memory) != w.size:
		return j, &call.Reason{Code: "worker.size", Text: "the job belongs into another queue"}
	}
	for run, expires := range w.seen {
		if now > expires {
			delete(w.seen, run)
		}
	}
	w.seen[e.run] = e.expires
	return j, nil
}

// granted decides a call once more, by the configuration of this worker, which is that of the gateway. A yes of a
// human is the gateway's, who sealed the job for it.
func (w *worker) granted(j job, c call.Call) (*grant.Grant, *call.Reason) {
	d := w.h.Policy.Decide(c)
	if d.Effect == policy.Deny {
		return nil, &call.Reason{Code: "worker.denied", Text: "the contract at the worker denies the run"}
	}
	d.ID, d.Effect, d.Danger = j.Decision, policy.Allow, max(d.Danger, j.Danger)
	return grant.Issue(d, nil, c.Args)
}

// place makes the workspace of a run.
func (w *worker) place(n call.Session) (*workspace.Workspace, error) {
	dir := filepath.Join(w.scratch, string(n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return workspace.OpenFolder(dir)
}

// given is what the runs of a worker take: files that came with them, and no tools.
type given struct {
	runner.Means
	w *worker
}

// Workspace opens the workspace of a run under way.
func (g given) Workspace(n call.Session) (*workspace.Workspace, error) {
	dir := filepath.Join(g.w.scratch, string(n))
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("run %s is not under way", n)
	}
	return workspace.OpenFolder(dir)
}

// Egress makes the egress of a run, which sends nothing once the lease is over.
func (g given) Egress(d policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
	l, ok := g.w.held.Load(d.Call.Session)
	if !ok {
		return nil, errLease
	}
	e, err := g.Means.Egress(d, n)
	if err == nil {
		e.Server.Fence(l.(*lease).good)
	}
	return e, err
}

// Servers returns none.
func (given) Servers(call.Call) []string { return nil }

func refusal(why call.Reason) result {
	f := facts.New()
	f.Status, f.SideEffect = facts.Denied, facts.None
	f.Warnings = []string{why.Code + ": " + why.Text}
	return result{Facts: f, IsError: true, Refused: &why, Content: []content{{Type: "text", Text: why.Text}}}
}

func failed(err error) result {
	f := facts.New()
	f.Status, f.SideEffect = facts.Failed, facts.None
	return result{Facts: f, IsError: true, Error: err.Error()}
}

// client returns a client of River that works the queue in slots.
func (w *worker) client(slots int) (*river.Client[pgx.Tx], error) {
	all := river.NewWorkers()
	if err := river.AddWorkerSafely(all, w); err != nil {
		return nil, err
	}
	return river.NewClient(riverpgxv5.New(w.q.pool), &river.Config{
		Queues:        map[string]river.QueueConfig{queueName(w.isolation, w.size): {MaxWorkers: slots}},
		FetchCooldown: time.Millisecond, FetchPollInterval: fetch, Workers: all, Logger: quiet(),
	})
}
