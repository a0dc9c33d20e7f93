// Package telemetry shows an operator what waldo does: traces and metrics by OpenTelemetry, and /metrics for
// Prometheus. Nothing is sent before the operator names a collector. No span and no metric holds arguments or results.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	prom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/core/approval"
	"waldo/internal/core/session"
	"waldo/internal/feature"
)

// Feature is traces and metrics.
var Feature = feature.Feature{Name: "telemetry", Open: open}

// Telemetry follows calls for one process.
type Telemetry struct {
	from     Source
	tracer   trace.Tracer
	queue    *queue // nil: no trace is sent
	registry *prometheus.Registry
	http     atomic.Bool // waldo listens; else it speaks over pipes
	closers  []func(context.Context) error
	failures *complaints

	server, client, steps metric.Float64Histogram
	decisions, runs       metric.Int64Counter
	egress, bytes, masked metric.Int64Counter
	active                metric.Int64UpDownCounter
	lived                 metric.Float64Histogram // of sessions that ended
}

// Source is where the values of the gauges come from.
type Source interface {
	Waiting(ctx context.Context) ([]approval.Question, error)
	Sessions() []session.Info
	Store(ctx context.Context) error // one read
	Unsynced() uint64                // records of the log that are not on the disk
	LogFailed() bool                 // the log takes no record
	// records of the log that its bucket does not have; false: there is no bucket
	Uncopied(ctx context.Context) (records uint64, has bool, err error)
	WaitingRuns(ctx context.Context) ([]app.Waiting, error)
}

// Options are what telemetry is made of.
type Options struct {
	Version string
	OTLP    string // of telemetry.otlp; empty: OTEL_EXPORTER_OTLP_ENDPOINT
	Lasting bool   // /metrics is served, too
	Source  Source
}

// closing is how long the end of waldo waits for a collector.
const closing = time.Second

// open opens telemetry for the first configuration of a process; later ones share its observer.
func open(h *app.App) (app.Running, error) {
	if h.InForce() != h {
		return app.Running{}, nil
	}
	t, err := New(Options{Version: h.Version(), OTLP: h.Config.Telemetry.OTLP, Lasting: h.Serves(), Source: source{h}})
	if t == nil || err != nil {
		return app.Running{}, err
	}
	h.Sessions.Ended = t.ended
	r := app.Running{Observer: t, Close: t.Close}
	if t.registry != nil {
		r.Routes = []app.Route{{Prefix: "/metrics", Exact: true, Handler: &page{h, promhttp.HandlerFor(t.registry,
			promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 2, Timeout: 10 * time.Second})}}}
		r.Serve = t.listens
	}
	return r, nil
}

// page shows the metrics to those whom the gateway admits.
type page struct {
	h       *app.App
	metrics http.Handler
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, why := p.h.InForce().Logins().Identify(r); why != nil {
		why.Answer(w)
		return
	}
	p.metrics.ServeHTTP(w, r)
}

// listens marks the transport of calls until ctx is done.
func (t *Telemetry) listens(ctx context.Context) {
	t.http.Store(true)
	<-ctx.Done()
}

func (t *Telemetry) transport() string {
	if t.http.Load() {
		return "tcp"
	}
	return "pipe"
}

// wanted reports whether the environment or waldo.yaml names a collector for a signal, as in TRACES.
func wanted(signal, otlp string) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_"+signal+"_EXPORTER") == "none" {
		return false
	}
	return otlp != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// New makes telemetry; nil: the configuration asks for none.
func New(o Options) (*Telemetry, error) {
	traces, metrics := wanted("TRACES", o.OTLP), wanted("METRICS", o.OTLP)
	if !traces && !metrics && !o.Lasting {
		return nil, nil
	}
	if p := os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"); (traces || metrics) && p != "" && p != "http/protobuf" {
		return nil, fault.Usage("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, at port 4318 of most collectors",
			"telemetry: protocol %q is not supported", p)
	}
	ctx := context.Background()
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "waldo"),
		attribute.String("service.version", o.Version)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	t := &Telemetry{from: o.Source, tracer: noop.NewTracerProvider().Tracer(instrumentation),
		failures: &complaints{now: time.Now, last: map[string]time.Time{}}}
	otel.SetErrorHandler(t.failures)
	if traces {
		if err = t.trace(ctx, about, o.OTLP); err != nil {
			return nil, err
		}
	}
	return t, t.measure(ctx, about, o, metrics)
}

// trace sends traces to a collector.
func (t *Telemetry) trace(ctx context.Context, about *resource.Resource, otlp string) error {
	var to []otlptracehttp.Option
	if otlp != "" {
		to = append(to, otlptracehttp.WithEndpointURL(strings.TrimSuffix(otlp, "/")+"/v1/traces"))
	}
	e, err := otlptracehttp.New(ctx, to...)
	if err != nil {
		return err
	}
	t.queue = newQueue(e)
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t.queue), sdktrace.WithResource(about))
	t.tracer, t.closers = p.Tracer(instrumentation), append(t.closers, p.Shutdown)
	return nil
}

// measure makes the metrics, which Prometheus reads and a collector gets.
func (t *Telemetry) measure(ctx context.Context, about *resource.Resource, o Options, send bool) error {
	with := []sdkmetric.Option{sdkmetric.WithResource(about), sdkmetric.WithCardinalityLimit(maxSeries)}
	if o.Lasting {
		t.registry = prometheus.NewRegistry()
		t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		e, err := prom.New(prom.WithRegisterer(t.registry), prom.WithoutScopeInfo())
		if err != nil {
			return err
		}
		with = append(with, sdkmetric.WithReader(e))
	}
	if send {
		var to []otlpmetrichttp.Option
		if o.OTLP != "" {
			to = append(to, otlpmetrichttp.WithEndpointURL(strings.TrimSuffix(o.OTLP, "/")+"/v1/metrics"))
		}
		e, err := otlpmetrichttp.New(ctx, to...)
		if err != nil {
			return err
		}
		with = append(with, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e)))
	}
	p := sdkmetric.NewMeterProvider(with...)
	t.closers = append(t.closers, p.Shutdown)
	m := p.Meter(instrumentation)
	return errors.Join(t.instruments(m), t.gauges(m))
}

// maxSeries is the most label sets of one metric; further ones count together (otel.metric.overflow).
const maxSeries = 1000

// seconds are the boundaries that the conventions for MCP give.
var seconds = metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

func (t *Telemetry) instruments(m metric.Meter) error {
	var errs []error
	for _, row := range []struct {
		at          *metric.Float64Histogram
		name, about string
	}{
		{&t.server, metricServerDuration, "Calls of agent hosts, from the request to the answer."},
		{&t.client, metricClientDuration, "Requests to servers."},
		{&t.steps, metricStep, "The steps of a call."},
	} {
		h, err := m.Float64Histogram(row.name, metric.WithUnit("s"), metric.WithDescription(row.about), seconds)
		*row.at, errs = h, append(errs, err)
	}
	for _, row := range []struct {
		at                *metric.Int64Counter
		name, unit, about string
	}{
		{&t.decisions, metricDecisions, "{call}", "Decided calls."},
		{&t.runs, metricRuns, "{run}", "Runs in sandboxes; warm: the sandbox was ready before its call."},
		{&t.egress, metricEgress, "{attempt}", "Connections of sandboxes through egress."},
		{&t.bytes, metricBytes, "By", "Bytes of these connections."},
		{&t.masked, metricMasked, "{value}", "Values hidden from the model."},
	} {
		c, err := m.Int64Counter(row.name, metric.WithUnit(row.unit), metric.WithDescription(row.about))
		*row.at, errs = c, append(errs, err)
	}
	lived, err := m.Float64Histogram(metricSession, metric.WithUnit("s"), metric.WithDescription("Ended sessions, from their opening."),
		metric.WithExplicitBucketBoundaries(1, 10, 60, 300, 1800, 3600, 14400, 86400))
	t.lived, errs = lived, append(errs, err)
	a, err := m.Int64UpDownCounter(metricActive, metric.WithUnit("{call}"), metric.WithDescription("Calls under way."))
	t.active = a
	return errors.Join(append(errs, err)...)
}

// ended counts a session that ends.
func (t *Telemetry) ended(n session.Info) {
	t.lived.Record(context.Background(), time.Since(n.Created).Seconds())
}

// gauges are read when the metrics are.
func (t *Telemetry) gauges(m metric.Meter) error {
	count := func(name, about string) metric.Int64ObservableGauge {
		g, _ := m.Int64ObservableGauge(name, metric.WithDescription(about)) // the names are valid: a test reads them all
		return g
	}
	age := func(name, about string) metric.Float64ObservableGauge {
		g, _ := m.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
		return g
	}
	waiting, sessions := count(metricWaiting, "Questions to people."), count(metricSessions, "Open sessions.")
	oldest, store := age(metricOldest, "Age of the oldest question."), age(metricStore, "One read of the database.")
	up := count(metricStoreUp, "1: the database can be read; 0: it cannot.")
	behind := count(metricLogBehind, "Records of the log that are not on the disk yet.")
	failed := count(metricLogFailed, "1: the log takes no record, and calls are refused.")
	uncopied := count(metricUncopied, "Records of the log that its bucket does not have.")
	queued := count(metricQueued, "Runs that no worker has taken yet.")
	queuedFor, _ := m.Float64ObservableGauge(metricQueuedFor, metric.WithDescription("Age of the oldest of them."))
	lost, err := m.Int64ObservableCounter(metricSpansLost, metric.WithUnit("{span}"),
		metric.WithDescription("Spans that no collector got."))
	if err != nil {
		return err
	}
	_, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		o.ObserveInt64(lost, t.Dropped())
		o.ObserveInt64(sessions, int64(len(t.from.Sessions())))
		o.ObserveInt64(behind, int64(t.from.Unsynced()))
		no := int64(0)
		if t.from.LogFailed() {
			no = 1
		}
		o.ObserveInt64(failed, no)
		began := time.Now()
		if t.from.Store(ctx) != nil { // the gauges below are in the database
			o.ObserveInt64(up, 0)
			return nil
		}
		o.ObserveInt64(up, 1)
		o.ObserveFloat64(store, time.Since(began).Seconds())
		if n, has, err := t.from.Uncopied(ctx); has && err == nil {
			o.ObserveInt64(uncopied, int64(n))
		}
		queues, err := t.from.WaitingRuns(ctx)
		if err != nil {
			return err
		}
		for _, q := range queues {
			of := metric.WithAttributes(keyIsolation.String(q.Isolation), keySize.String(q.Size))
			o.ObserveInt64(queued, q.Runs, of)
			o.ObserveFloat64(queuedFor, q.Oldest.Seconds(), of)
		}
		open, err := t.from.Waiting(ctx)
		if err != nil {
			return err
		}
		o.ObserveInt64(waiting, int64(len(open)))
		since := time.Duration(0)
		for _, q := range open {
			since = max(since, time.Since(q.Created))
		}
		o.ObserveFloat64(oldest, since.Seconds())
		return nil
	}, waiting, sessions, oldest, store, up, behind, failed, uncopied, queued, queuedFor, lost)
	return err
}

// Close sends what waits, for a second at most.
func (t *Telemetry) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	for _, end := range t.closers {
		if err := end(ctx); err != nil {
			t.failures.Handle(err)
		}
	}
	return nil
}

// complaints logs errors of exporters, one of each kind a minute. The end of an exporter repeats an error.
type complaints struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]time.Time // by kind
}

// Handle satisfies otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	kind := "other"
	for _, signal := range []string{"traces", "metrics"} {
		if strings.Contains(err.Error(), signal) {
			kind = signal
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if last, ok := c.last[kind]; ok && now.Sub(last) < time.Minute {
		return
	}
	c.last[kind] = now
	slog.Warn("telemetry was not sent", "kind", kind, "why", err)
}

// source reads the gauges from the configuration in force.
type source struct{ h *app.App }

func (s source) Waiting(ctx context.Context) ([]approval.Question, error) {
	return s.h.Approvals.Pending(ctx)
}
func (s source) Sessions() []session.Info { return s.h.Sessions.List() }
func (s source) Unsynced() uint64         { return s.h.Log.Unsynced() }
func (s source) LogFailed() bool          { return s.h.Log.Failed() != nil }
func (s source) Uncopied(ctx context.Context) (uint64, bool, error) {
	return s.h.InForce().Uncopied(ctx)
}
func (s source) WaitingRuns(ctx context.Context) ([]app.Waiting, error) {
	return s.h.InForce().WaitingRuns(ctx)
}
func (s source) Store(ctx context.Context) error {
	return s.h.Reachable(ctx)
}
