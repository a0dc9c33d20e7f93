package telemetry

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"waldo/internal/app"
	"waldo/internal/core/approval"
	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/core/session"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// quiet is a source without anything.
type quiet struct{}

func (quiet) Waiting(context.Context) ([]approval.Question, error) { return nil, nil }
func (quiet) Sessions() []session.Info                             { return nil }
func (quiet) Store(context.Context) error                          { return nil }
func (quiet) LogFailed() bool                                      { return false }
func (quiet) Unsynced() uint64                                     { return 0 }
func (quiet) Uncopied(context.Context) (uint64, bool, error)       { return 0, false, nil }

func (quiet) WaitingRuns(context.Context) ([]app.Waiting, error) { return nil, nil }

// BenchmarkCall is what telemetry adds to one call: /metrics alone, and with a collector for traces and metrics. Its
// time includes the export; spans that a full queue drops are counted.
func BenchmarkCall(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer collector.Close()
	for name, otlp := range map[string]string{"metrics": "", "collector": collector.URL} {
		b.Run(name, func(b *testing.B) {
			t, err := New(Options{Version: "1", OTLP: otlp, Lasting: true, Source: quiet{}})
			if err != nil {
				b.Fatal(err)
			}
			c := call.Call{ID: "c_1", Capability: "s.echo", Principal: "os:0", Session: "n_1", Channel: "mcp"}
			d := policy.Decision{ID: "d_1", Call: c, Contract: contract.Contract{Pattern: "s.*", Transport: contract.MCP,
				Mode: contract.Read}}
			done := facts.Facts{Status: facts.OK}
			for b.Loop() {
				n := t.Begin(c)
				for _, s := range []broker.Step{broker.StepDecide, broker.StepRecord, broker.StepExecute, broker.StepRedact,
					broker.StepOutcome} {
					n.Step(s, d)
				}
				n.End(d, call.Result{Status: facts.OK, Facts: done}, nil)
			}
			b.ReportMetric(float64(t.Dropped())/float64(b.N), "dropped/op")
			if err := t.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}
