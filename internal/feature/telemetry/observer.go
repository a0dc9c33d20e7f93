package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// Begin satisfies broker.Observer.
func (t *Telemetry) Begin(c call.Call) broker.Trail {
	n := &trail{t: t, call: c, began: time.Now()}
	kind, name := trace.SpanKindInternal, string(c.Capability)
	switch c.Channel {
	case "mcp":
		kind, name = trace.SpanKindServer, methodCallTool+" "+name
	case "rest", call.A2A:
		kind = trace.SpanKindServer
	}
	n.in, n.span = t.tracer.Start(arriving(c.Trace), name, trace.WithSpanKind(kind), trace.WithTimestamp(n.began))
	t.active.Add(n.in, 1)
	return n
}

// trail follows one call: its span, and that of the step under way.
type trail struct {
	t     *Telemetry
	call  call.Call
	began time.Time
	in    context.Context // of the call's span
	span  trace.Span

	name     broker.Step // under way; empty: none
	from     time.Time
	step     trace.Span
	stepIn   context.Context
	ran      time.Time // when the execution ended; zero: it has not begun
	runs     context.Context
	upstream bool // the step is a request to a server
	server   bool // the execution was one: its facts name the server's sandbox, and nothing ran in another
	took     time.Duration
}

// Step satisfies broker.Trail.
func (n *trail) Step(s broker.Step, d policy.Decision) call.Trace {
	now := time.Now()
	n.endStep(now)
	kind, name := trace.SpanKindInternal, string(s)
	if n.upstream = s == broker.StepExecute && d.Contract.Transport == contract.MCP && d.Effect != policy.Deny; n.upstream {
		kind = trace.SpanKindClient
	}
	n.name, n.from = s, now
	n.stepIn, n.step = n.t.tracer.Start(n.in, name, trace.WithSpanKind(kind), trace.WithTimestamp(now))
	if s == broker.StepExecute {
		n.runs, n.server = n.stepIn, n.upstream
		n.step.SetAttributes(keyTool.String(string(d.Call.Capability)), keyMethod.String(methodCallTool))
	}
	return leaving(n.stepIn, n.call.Trace)
}

// endStep ends the step under way.
func (n *trail) endStep(now time.Time) {
	if n.name == "" {
		return
	}
	took := now.Sub(n.from)
	n.t.steps.Record(n.in, took.Seconds(), metric.WithAttributes(keyStep.String(string(n.name))))
	n.step.End(trace.WithTimestamp(now))
	if n.name == broker.StepExecute {
		n.ran = now
	}
	if n.name == broker.StepExecute && n.upstream {
		n.took = took
	}
	n.name = ""
}

// End satisfies broker.Trail.
func (n *trail) End(d policy.Decision, r call.Result, err error) {
	now := time.Now()
	n.endStep(now)
	n.sandbox(r.Facts)
	effect, reason := d.Effect, ""
	if r.Status == facts.Denied {
		effect = policy.Deny
	}
	if len(r.Why) > 0 {
		reason = r.Why[0].Code
	}
	capability := string(n.call.Capability)
	if d.Contract.Pattern == "" {
		capability = unknownCapability
	}
	failed := failure(r, err)
	labels := []attribute.KeyValue{keyMethod.String(methodCallTool), keyTool.String(capability), keyTransport.String(n.t.transport())}
	if failed != "" {
		labels = append(labels, keyError.String(failed))
	}
	if n.call.Channel == "mcp" {
		n.t.server.Record(n.in, now.Sub(n.began).Seconds(), metric.WithAttributes(labels...))
	}
	if n.took > 0 && r.Status != facts.Denied { // a refused call has the step, and no request
		n.t.client.Record(n.in, n.took.Seconds(), metric.WithAttributes(labels[0], labels[1]))
	}
	n.t.decisions.Add(n.in, 1, metric.WithAttributes(keyEffect.String(effect.String()), keyReason.String(reason),
		keyMode.String(d.Mode().String()), keyChannel.String(n.call.Channel)))
	n.t.active.Add(n.in, -1)
	if r.Facts.Masked > 0 {
		n.t.masked.Add(n.in, int64(r.Facts.Masked))
	}
	if n.span.IsRecording() {
		n.span.SetAttributes(keyMethod.String(methodCallTool), keyTool.String(string(n.call.Capability)),
			keyOperation.String("execute_tool"), keyMCPSess.String(string(n.call.Session)), keyTransport.String(n.t.transport()),
			keyChannel.String(n.call.Channel), keyCall.String(n.call.ID), keyDecision.String(d.ID), keyEffect.String(effect.String()),
			keyReason.String(reason), keyContract.String(d.Contract.Pattern), keyMode.String(d.Mode().String()),
			keyStatus.String(string(r.Status)), keySide.String(r.Facts.SideEffect.String()), keyMasked.Int(r.Facts.Masked))
		if r.ApprovalID != "" {
			n.span.SetAttributes(keyApproval.String(r.ApprovalID))
		}
		if failed != "" {
			n.span.SetAttributes(keyError.String(failed))
			n.span.SetStatus(codes.Error, "") // the text of a failure stays in the log
		}
	}
	n.span.End(trace.WithTimestamp(now))
}

// failure returns error.type: of waldo's own failure, of a refusal its code, of a tool that failed tool_error.
func failure(r call.Result, err error) string {
	switch {
	case err != nil:
		return "waldo"
	case r.Status == facts.Denied && len(r.Why) > 0:
		return r.Why[0].Code
	case r.Status == facts.Failed || r.Status == facts.OK && r.IsError:
		return toolError
	case r.Status == facts.OK || r.Status == facts.Waiting:
		return ""
	}
	return string(r.Status)
}

// maxAttempts is the most spans of egress of one call.
const maxAttempts = 32

// sandbox adds the run in a sandbox and its egress to the trace. The facts hold how long they took; the spans end
// with the execution.
func (n *trail) sandbox(f facts.Facts) {
	if n.ran.IsZero() || f.Sandbox.Driver == "" {
		return
	}
	if !n.server {
		n.t.runs.Add(n.in, 1, metric.WithAttributes(keyDriver.String(f.Sandbox.Driver), keyWarm.Bool(f.Sandbox.Warm),
			keyStatus.String(string(f.Status))))
	}
	from := n.ran.Add(-time.Duration(f.Usage.WallMS * float64(time.Millisecond)))
	in, span := n.t.tracer.Start(n.runs, spanSandbox, trace.WithTimestamp(from), trace.WithAttributes(
		keyDriver.String(f.Sandbox.Driver), keySandbox.String(f.Sandbox.ID), keyWarm.Bool(f.Sandbox.Warm)))
	for i, a := range f.Network.Attempts {
		n.t.egress.Add(n.in, int64(a.Times), metric.WithAttributes(keyAllowed.Bool(a.Allowed), keyReason.String(a.Why)))
		n.t.bytes.Add(n.in, a.Sent, metric.WithAttributes(keyDirection.String("transmit")))
		n.t.bytes.Add(n.in, a.Received, metric.WithAttributes(keyDirection.String("receive")))
		if i >= maxAttempts {
			continue
		}
		_, s := n.t.tracer.Start(in, spanEgress, trace.WithTimestamp(from), trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(keyHost.String(a.Host), keyPort.Int(a.Port), keyAllowed.Bool(a.Allowed), keyReason.String(a.Why)))
		s.End(trace.WithTimestamp(n.ran))
	}
	span.End(trace.WithTimestamp(n.ran))
}

// arriving returns the context of a place in a trace, as W3C Trace Context writes it. Baggage and
// state stay behind: both are anybody's words, and collectors store what they get.
func arriving(at call.Trace) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": at.Parent})
}

// leaving returns the place of a context in its trace, with the state that came; without one, where the call came from.
func leaving(ctx context.Context, otherwise call.Trace) call.Trace {
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, m)
	if m["traceparent"] == "" {
		return otherwise
	}
	return call.Trace{Parent: m["traceparent"], State: otherwise.State}
}
