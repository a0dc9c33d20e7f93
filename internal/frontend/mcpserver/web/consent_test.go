package web

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/frontend/mcpserver"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/testing/pipelinetest"
)

// A person who decides after the call was answered is heard over HTTP, too: the form outlives the stream that it came
// on, and the same call finds the answer.
func TestALateAnswerOverHTTP(t *testing.T) {
	var said atomic.Bool
	h := open(t, Limits{}, func(o *mcpserver.Options) {
		o.HostWait = 50 * time.Millisecond
		o.Pipeline.(*pipelinetest.Pipeline).OnCall = func(_ context.Context, c call.Call) (call.Result, error) {
			r := call.Result{CallID: c.ID, DecisionID: "d_1", Facts: facts.New(), Status: facts.Waiting, IsError: true,
				ApprovalID: "a_1"}
			if said.Load() && c.ApprovalID == "a_1" {
				r.Status, r.IsError, r.ApprovalID, r.Content = facts.OK, false, "", []call.Content{call.Text("done")}
			}
			return r, nil
		}
		o.Consent = &pipelinetest.Consent{
			OnPut: func(context.Context, call.Session, string) (string, bool) { return "delete everything", true },
			OnSaid: func(_ context.Context, _ call.Session, _ string, yes bool) error {
				said.Store(yes)
				return nil
			},
		}
	})
	decides := make(chan struct{})
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			<-decides
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}, nil
		}})
	s, err := c.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: h.url},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ask := func() string {
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "s__echo"})
		if err != nil {
			t.Fatal(err)
		}
		return r.Content[0].(*mcp.TextContent).Text
	}
	if got := ask(); !strings.Contains(got, "approval a_1") {
		t.Errorf("while the person thinks: %s", got)
	}
	time.Sleep(200 * time.Millisecond) // the stream of the call has ended
	close(decides)
	for until := time.Now().Add(20 * time.Second); !said.Load() && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if !said.Load() {
		t.Error("the answer to the first form is lost")
	}
	if got := ask(); got != "done" {
		t.Errorf("after the answer: %s", got)
	}
}
