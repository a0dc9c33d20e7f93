package telemetry

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// maxSpans is how many spans wait for the collector. A call never waits for room: more spans are dropped and counted.
const maxSpans = 2048

// queue bounds the spans that wait. It is the processor before the SDK's batches and the exporter behind them.
type queue struct {
	sdktrace.SpanProcessor
	to      sdktrace.SpanExporter
	waiting atomic.Int64
	dropped atomic.Int64
}

func newQueue(to sdktrace.SpanExporter) *queue {
	q := &queue{to: to}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(exporter{q}, sdktrace.WithMaxQueueSize(maxSpans))
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
	q.SpanProcessor.OnEnd(s)
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
