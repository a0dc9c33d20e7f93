package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// maxSpans is how many spans wait for the collector. A call never waits for room: more spans are dropped and counted.
const maxSpans = 2048

// Ended spans reach the SDK's batches together: its goroutine would wake for each one, which was half of their cost.
const (
	together = 256
	pause    = 200 * time.Millisecond
)

// queue bounds the spans that wait. It is the processor before the SDK's batches and the exporter behind them.
type queue struct {
	sdktrace.SpanProcessor
	to      sdktrace.SpanExporter
	waiting atomic.Int64
	dropped atomic.Int64

	mu    sync.Mutex
	ended []sdktrace.ReadOnlySpan
	later *time.Timer // passes them on
}

func newQueue(to sdktrace.SpanExporter) *queue {
	q := &queue{to: to}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(exporter{q}, sdktrace.WithMaxQueueSize(maxSpans))
	q.later = time.AfterFunc(pause, q.pass)
	q.later.Stop()
	return q
}

// OnEnd satisfies sdktrace.SpanProcessor.
func (q *queue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > maxSpans {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = append(q.ended, s)
	switch len(q.ended) {
	case 1:
		q.later.Reset(pause)
	case together:
		q.later.Reset(0)
	}
}

// pass hands the ended spans to the SDK's batches.
func (q *queue) pass() {
	q.mu.Lock()
	ended := q.ended
	q.ended = nil
	q.mu.Unlock()
	for _, s := range ended {
		q.SpanProcessor.OnEnd(s)
	}
}

// ForceFlush satisfies sdktrace.SpanProcessor.
func (q *queue) ForceFlush(ctx context.Context) error {
	q.pass()
	return q.SpanProcessor.ForceFlush(ctx)
}

// Shutdown satisfies sdktrace.SpanProcessor.
func (q *queue) Shutdown(ctx context.Context) error {
	q.pass()
	return q.SpanProcessor.Shutdown(ctx)
}

// exporter sends the batches of a queue.
type exporter struct{ q *queue }

func (e exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	defer e.q.waiting.Add(-int64(len(spans)))
	err := e.q.to.ExportSpans(ctx, spans)
	if err != nil {
		e.q.dropped.Add(int64(len(spans)))
	}
	return err
}

func (e exporter) Shutdown(ctx context.Context) error { return e.q.to.Shutdown(ctx) }

// Dropped returns how many spans no collector got.
func (t *Telemetry) Dropped() int64 {
	if t.queue == nil {
		return 0
	}
	return t.queue.dropped.Load()
}
