package telemetry_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/feature/telemetry"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
)

// collector is a collector of OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracepb.Span
	metrics []string
	raw     []byte
	slow    chan struct{} // answers wait for it, and nothing is read: by then the sender may be gone; nil: they do not
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.slow != nil {
			<-c.slow
			return
		}
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		raw, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw = append(c.raw, raw...)
		switch r.URL.Path {
		case "/v1/traces":
			var m collectortrace.ExportTraceServiceRequest
			if err := proto.Unmarshal(raw, &m); err != nil || len(m.ProtoReflect().GetUnknown()) > 0 {
				t.Errorf("not a request of OTLP: %v", err)
			}
			for _, rs := range m.ResourceSpans {
				for _, ss := range rs.ScopeSpans {
					c.spans = append(c.spans, ss.Spans...)
				}
			}
		case "/v1/metrics":
			var m collectormetrics.ExportMetricsServiceRequest
			if err := proto.Unmarshal(raw, &m); err != nil {
				t.Errorf("not a request of OTLP: %v", err)
			}
			for _, rm := range m.ResourceMetrics {
				for _, sm := range rm.ScopeMetrics {
					for _, x := range sm.Metrics {
						c.metrics = append(c.metrics, x.Name)
					}
				}
			}
		default:
			t.Errorf("request of %s", r.URL.Path)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

const contracts = `
capabilities:
  run_python: {transport: sandboxed_exec, mode: write, isolation: namespace, approval: none}
  read_output: deny
  files.read: {transport: direct, mode: read, root: ., approval: none}
`

// bucket is a feature whose copy of the log lags behind, and which has runs wait for workers.
func bucket(*app.App) (app.Running, error) {
	return app.Running{Uncopied: func(context.Context) (uint64, error) { return 7, nil },
		Waiting: func(context.Context) ([]app.Waiting, error) {
			return []app.Waiting{{Isolation: "namespace", Size: "small", Runs: 3, Oldest: time.Second}}, nil
		}}, nil
}

func opened(t *testing.T, otlp string, warm int) *app.App {
	t.Helper()
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if _, set := os.LookupEnv(name); set {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "waldo.yaml")
	text := "version: 1\n" + contracts
	if otlp != "" {
		text += "telemetry: {otlp: \"" + otlp + "\"}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := app.New(t.Context(), app.Options{State: filepath.Join(dir, "state"), Source: configfile.Source{Config: file},
		Openers: []app.Opener{telemetry.Feature.Open, bucket}, Warm: warm, Version: "1.2.3", Tells: true})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func try(t *testing.T, h *app.App, n call.Session, capability, args, parent string) call.Result {
	t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Call(t.Context(), call.Call{ID: id.New(id.Call), Capability: call.Capability(capability), Args: a,
		Session: n, Principal: app.Principal(), Channel: "mcp", Trace: call.Trace{Parent: parent}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	secret  = "the-argument-that-no-span-may-hold"
)

// TestSpans: one trace for a call, its steps below it, and the calls of its code below its execution.
func TestSpans(t *testing.T) {
	c := newCollector(t)
	h := opened(t, c.URL, 0)
	n, err := h.OpenSession()
	if err != nil {
		t.Fatal(err)
	}
	code := "import waldo\nprint('" + secret + "')\ntry:\n  str(waldo.servers.files.read(path='x'))\nexcept Exception as e:\n  pass\n"
	body, _ := json.Marshal(map[string]string{"code": code})
	r := try(t, h, n.ID, "run_python", string(body), "00-"+traceID+"-"+spanID+"-01")
	if r.Status != "ok" {
		t.Fatalf("%s: %+v %s", r.Status, r.Why, r.Facts.Stderr)
	}
	try(t, h, n.ID, "read_output", `{"path":"x"}`, "00-"+traceID+"-"+spanID+"-01")
	try(t, h, n.ID, "nothing.here", "{}", "not a trace parent")
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	names, byName := map[string]int{}, map[string]*tracepb.Span{}
	for _, s := range c.spans {
		names[s.Name]++
		byName[s.Name] = s
		if in := hex.EncodeToString(s.TraceId) == traceID; in == (s.Name == "tools/call nothing.here") {
			if s.Name == "tools/call nothing.here" || s.Name == "tools/call run_python" {
				t.Errorf("%s: in the host's trace: %v", s.Name, in)
			}
		}
	}
	top := byName["tools/call run_python"]
	if top == nil || top.Kind != tracepb.Span_SPAN_KIND_SERVER || hex.EncodeToString(top.ParentSpanId) != spanID {
		t.Fatalf("the call's span: %v; all: %v", top, names)
	}
	golden := []string{"decide", "record", "ask", "execute", "sandbox", "redact", "outcome"}
	var below []string
	for _, s := range c.spans {
		if string(s.ParentSpanId) == string(top.SpanId) {
			below = append(below, s.Name)
		}
	}
	for _, name := range golden {
		if name != "sandbox" && !slices.Contains(below, name) {
			t.Errorf("no span %q below the call: %v", name, below)
		}
		if !slices.Contains(telemetry.Spans, name) {
			t.Errorf("%q is no name of a span", name)
		}
	}
	run := byName["sandbox"]
	var execute, bridged *tracepb.Span
	for _, s := range c.spans {
		if run != nil && string(s.SpanId) == string(run.ParentSpanId) {
			execute = s
		}
		if s.Name == "files.read" {
			bridged = s
		}
	}
	if execute == nil || execute.Name != "execute" || string(execute.ParentSpanId) != string(top.SpanId) {
		t.Errorf("the sandbox is not below the execution of its call: %v", execute)
	}
	if execute != nil && (bridged == nil || string(bridged.ParentSpanId) != string(execute.SpanId)) {
		t.Errorf("the call of the code is not below its execution: %v", bridged)
	}
	if v := value(byName["tools/call read_output"], "waldo.effect"); v != "deny" {
		t.Errorf("effect of a refused call: %q", v)
	}
	if v := value(byName["tools/call nothing.here"], "error.type"); v != "contract.absent" {
		t.Errorf("error.type of a call without a contract: %q", v)
	}
	if strings.Contains(string(c.raw), secret) {
		t.Error("an argument left with the telemetry")
	}
	slices.Sort(c.metrics)
	for _, m := range []string{"mcp.server.operation.duration", "waldo.decisions", "waldo.step.duration",
		"waldo.approvals.waiting", "waldo.store.latency"} {
		if _, ok := slices.BinarySearch(c.metrics, m); !ok {
			t.Errorf("the collector got no %s: %v", m, c.metrics)
		}
	}
	for _, m := range c.metrics {
		if !slices.Contains(telemetry.Metrics, m) {
			t.Errorf("%s is not in the list of metrics", m)
		}
	}
}

func value(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// scrape returns the names of the metrics of /metrics, read by Prometheus' own strict parser.
func scrape(t *testing.T, h *app.App) (int, map[string]int) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	at := make(chan string, 1)
	done := make(chan error, 1)
	go func() { done <- h.ServeHTTP(ctx, "127.0.0.1:0", nil, false, func(a net.Addr) { at <- a.String() }) }()
	defer func() { end(); <-done }()
	res, err := http.Get("http://" + <-at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(res.Body)
	if err != nil && res.StatusCode == http.StatusOK {
		t.Fatal(err)
	}
	names := map[string]int{}
	for name, f := range all {
		names[name] = len(f.Metric)
	}
	return res.StatusCode, names
}

// TestMetrics: /metrics shows the metrics of the golden list, and the dashboard and the alerts name no other.
func TestMetrics(t *testing.T) {
	h := opened(t, "", 1)
	defer h.Close()
	n, err := h.OpenSession()
	if err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(map[string]string{"code": "print(1)"})
	if r := try(t, h, n.ID, "run_python", string(body), ""); r.Status != "ok" {
		t.Fatal(r.Why)
	}
	for i := range 50 { // agents choose names; they make no series
		try(t, h, n.ID, "made.up"+strings.Repeat("x", i), "{}", "")
	}
	h.Sessions.Close(n.ID)
	status, names := scrape(t, h)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	for _, name := range []string{"mcp_server_operation_duration_seconds", "waldo_step_duration_seconds", "waldo_decisions_total",
		"waldo_calls_active", "waldo_sandbox_runs_total", "waldo_approvals_waiting", "waldo_approvals_oldest_seconds",
		"waldo_sessions_live", "waldo_session_duration_seconds", "waldo_store_latency_seconds", "waldo_store_up",
		"waldo_log_unsynced", "waldo_log_failed",
		"waldo_log_uncopied", "waldo_runs_waiting", "waldo_runs_waiting_seconds",
		"waldo_telemetry_dropped_total", "target_info",
		"process_open_fds", "go_goroutines"} {
		if names[name] == 0 {
			t.Errorf("/metrics has no %s", name)
		}
	}
	if got := names["mcp_server_operation_duration_seconds"]; got > 3 {
		t.Errorf("50 names that agents made up are %d series", got)
	}
	known := []string{"up", "process_resident_memory_bytes"}
	for _, m := range telemetry.Metrics {
		base := strings.ReplaceAll(m, ".", "_")
		for _, suffix := range []string{"", "_total", "_seconds", "_bytes_total", "_seconds_bucket", "_seconds_sum", "_seconds_count"} {
			known = append(known, base+suffix)
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "waldo_") || strings.HasPrefix(name, "mcp_") {
			if !slices.Contains(known, name) {
				t.Errorf("%s is not in the list of metrics", name)
			}
		}
	}
	for _, file := range []string{"files/dashboard.json", "files/alerts.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Errorf("%s is not JSON", file)
		}
		used := regexp.MustCompile(`\b(waldo|mcp|process|go)_[a-z_]+\b|\bup\b`).FindAllString(string(text), -1)
		if len(used) < 5 {
			t.Errorf("%s names %d metrics", file, len(used))
		}
		for _, name := range used {
			if !slices.Contains(known, name) && names[name] == 0 && !slices.Contains(labels, name) {
				t.Errorf("%s names %s, which waldo has not", file, name)
			}
		}
	}
}

// labels are words of the files that are labels and no metrics.
var labels = []string{"waldo_effect", "waldo_reason", "waldo_step", "waldo_sandbox_driver", "waldo_sandbox_warm", "waldo_egress_allowed"}

// TestOff: without a collector and without a server no call is followed.
func TestOff(t *testing.T) {
	h := opened(t, "", 0)
	defer h.Close()
	if h.Broker.Observer != nil {
		t.Error("calls are followed though nobody asked for it")
	}
	t.Run("control", func(t *testing.T) {
		on := opened(t, newCollector(t).URL, 0)
		defer on.Close()
		if on.Broker.Observer == nil {
			t.Error("calls are not followed")
		}
	})
	t.Run("a protocol that waldo does not speak", func(t *testing.T) {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
		if _, err := telemetry.New(telemetry.Options{}); err == nil {
			t.Error("taken")
		}
		t.Setenv("OTEL_SDK_DISABLED", "true")
		if x, err := telemetry.New(telemetry.Options{}); x != nil || err != nil {
			t.Error(x, err)
		}
	})
}

// TestSlowCollector: a collector that does not answer delays no call; what has no room is dropped and counted.
func TestSlowCollector(t *testing.T) {
	c := newCollector(t)
	c.slow = make(chan struct{})
	h := opened(t, c.URL, 1)
	n, err := h.OpenSession()
	if err != nil {
		t.Fatal(err)
	}
	longest := time.Duration(0)
	for range 1500 { // four spans each
		began := time.Now()
		try(t, h, n.ID, "read_output", "{}", "")
		longest = max(longest, time.Since(began))
	}
	_, names := scrape(t, h)
	if names["waldo_telemetry_dropped_total"] == 0 {
		t.Error("the spans without room are not counted")
	}
	if got := h.Broker.Observer.(*telemetry.Telemetry).Dropped(); got < 1000 {
		t.Errorf("%d spans were dropped", got)
	}
	if longest > 2*time.Second {
		t.Errorf("a call took %v", longest)
	}
	began := time.Now()
	closed := make(chan struct{})
	go func() { _ = h.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the end of waldo waits for the collector")
	}
	t.Logf("longest call %v, end %v", longest, time.Since(began))
	close(c.slow)
}
