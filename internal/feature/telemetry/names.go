package telemetry

import (
	"go.opentelemetry.io/otel/attribute"

	"waldo/internal/core/broker"
)

// Names of the conventions for MCP and generative AI: model/mcp of open-telemetry/semantic-conventions-genai at commit
// 55a32cddb97d99cec08d5ee081e74206a0636041. They are in development there.
const (
	metricServerDuration = "mcp.server.operation.duration"
	metricClientDuration = "mcp.client.operation.duration"

	methodCallTool = "tools/call"
	toolError      = "tool_error" // error.type of a tool whose result is an error

	keyMethod    = attribute.Key("mcp.method.name")
	keyMCPSess   = attribute.Key("mcp.session.id")
	keyTool      = attribute.Key("gen_ai.tool.name")
	keyOperation = attribute.Key("gen_ai.operation.name")
	keyError     = attribute.Key("error.type")
	keyTransport = attribute.Key("network.transport") // pipe or tcp
	keyHost      = attribute.Key("server.address")
	keyPort      = attribute.Key("server.port")
)

// Names of waldo's own.
const (
	metricStep        = "waldo.step.duration"
	metricDecisions   = "waldo.decisions"
	metricActive      = "waldo.calls.active"
	metricRuns        = "waldo.sandbox.runs"
	metricEgress      = "waldo.egress.attempts"
	metricBytes       = "waldo.egress.io"
	metricMasked      = "waldo.redactions"
	metricWaiting     = "waldo.approvals.waiting"
	metricOldest      = "waldo.approvals.oldest"
	metricSessions    = "waldo.sessions.live"
	metricSession     = "waldo.session.duration"
	metricStore       = "waldo.store.latency"
	metricStoreUp     = "waldo.store.up"
	metricLogBehind   = "waldo.log.unsynced"
	metricLogFailed   = "waldo.log.failed"
	metricUncopied    = "waldo.log.uncopied"
	metricQueued      = "waldo.runs.waiting"
	metricQueuedFor   = "waldo.runs.waiting.seconds"
	metricSpansLost   = "waldo.telemetry.dropped"
	spanSandbox       = "sandbox"
	spanEgress        = "egress"
	instrumentation   = "waldo"
	unknownCapability = "unknown" // a capability without a contract: agents choose its name

	keyIsolation = attribute.Key("isolation")
	keySize      = attribute.Key("size")
	keyChannel   = attribute.Key("waldo.channel")
	keyCall      = attribute.Key("waldo.call.id")
	keyDecision  = attribute.Key("waldo.decision.id")
	keyEffect    = attribute.Key("waldo.effect") // allow, ask or deny
	keyReason    = attribute.Key("waldo.reason") // the code of the deciding one
	keyContract  = attribute.Key("waldo.contract")
	keyMode      = attribute.Key("waldo.mode")
	keyApproval  = attribute.Key("waldo.approval.id")
	keyStatus    = attribute.Key("waldo.status")
	keySide      = attribute.Key("waldo.side_effect")
	keyStep      = attribute.Key("waldo.step")
	keyDriver    = attribute.Key("waldo.sandbox.driver")
	keySandbox   = attribute.Key("waldo.sandbox.id")
	keyWarm      = attribute.Key("waldo.sandbox.warm")
	keyAllowed   = attribute.Key("waldo.egress.allowed")
	keyDirection = attribute.Key("network.io.direction")
	keyMasked    = attribute.Key("waldo.masked")
)

// Metrics are the names of all metrics. The dashboard and the alerts name no other.
var Metrics = []string{metricServerDuration, metricClientDuration, metricStep, metricDecisions, metricActive, metricRuns,
	metricEgress, metricBytes, metricMasked, metricWaiting, metricOldest, metricSessions, metricSession, metricStore,
	metricStoreUp, metricLogBehind, metricLogFailed, metricUncopied, metricQueued, metricQueuedFor, metricSpansLost}

// Spans are the names of all spans below that of the call.
var Spans = []string{string(broker.StepDecide), string(broker.StepRecord), string(broker.StepAsk),
	string(broker.StepExecute), spanSandbox, spanEgress, string(broker.StepRedact), string(broker.StepOutcome)}
