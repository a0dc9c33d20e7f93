package mcpserver

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
)

// If the operator accepts a host's answers, a call that waits for a human is put to the host's person as the protocol
// revision provides. To decline or cancel is a no: no call waits for a host without a person.
func TestHostsAnswerForTheirPersons(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		for _, row := range []struct {
			why    string
			result *mcp.ElicitResult // nil: the host shows no forms
			closed bool              // the operator takes no host's answer
			want   string
			said   string
		}{
			{"yes", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}, false, "done", "yes"},
			{"no", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "no"}}, false, "denied", "no"},
			{"a host that declines for nobody", &mcp.ElicitResult{Action: "decline"}, false, "denied", "no"},
			{"a host that cancels", &mcp.ElicitResult{Action: "cancel"}, false, "denied", "no"},
			{"a yes that declines", &mcp.ElicitResult{Action: "decline", Content: map[string]any{"answer": "yes"}}, false,
				"denied", "no"},
			{"a host without forms", nil, false, "waiting", ""},
			{"an operator who takes no host's word",
				&mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}, true, "waiting", ""},
		} {
			t.Run(revision+" "+row.why, func(t *testing.T) {
				var shown, said string
				o := options(t, newDesk(t))
				var calls []call.Call
				pipeline(&o).OnCall = func(_ context.Context, c call.Call) (call.Result, error) {
					calls = append(calls, c)
					f := facts.New()
					r := call.Result{
						CallID: c.ID, DecisionID: "d_1", Facts: f, Status: facts.Waiting, IsError: true, ApprovalID: "a_1",
					}
					switch {
					case said == "yes" && c.ApprovalID == "a_1":
						r = call.Result{
							CallID: c.ID, DecisionID: "d_2", Facts: f, Status: facts.OK, Content: []call.Content{call.Text("done")},
						}
					case said == "no":
						r.Status, r.ApprovalID = facts.Denied, ""
					}
					return r, nil
				}
				consent(&o).OnPut = func(_ context.Context, n call.Session, id string) (string, bool) {
					return "delete everything", n == me.Session && id == "a_1" && !row.closed
				}
				consent(&o).OnSaid = func(_ context.Context, n call.Session, id string, yes bool) error {
					said = map[bool]string{true: "yes", false: "no"}[yes]
					return nil
				}
				co := &mcp.ClientOptions{}
				if row.result != nil {
					co.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						shown = r.Params.Message
						return row.result, nil
					}
				}
				s := client(t, o, revision, co)
				defer s.Close()
				r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "s__own"})
				if err != nil {
					t.Fatal(err)
				}
				got := say(r)
				if row.want == "waiting" && !strings.Contains(got, "approval a_1") ||
					row.want != "waiting" && !strings.Contains(got, row.want) || said != row.said {
					t.Errorf("said %q: %s", said, got)
				}
				if wants := row.result != nil &&
					!row.closed; wants != strings.HasPrefix(shown, "waldo asks you to decide:\ndelete everything") {
					t.Errorf("shown %q", shown)
				}
				if len(calls) == 2 && (calls[0].ID == calls[1].ID || calls[0].Args.Digest() != calls[1].Args.Digest()) {
					t.Errorf("the second call is another: %+v", calls)
				}
			})
		}
	}
}

// A legacy host waits for its call while its person decides, and gives up. So the call ends before, names the approval,
// and its form stays open. The same call later finds the answer, or joins the same form.
func TestASlowPersonHoldsNoHost(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			o := options(t, newDesk(t))
			o.HostWait = 50 * time.Millisecond
			if revision == jsonrpc.Modern {
				o.HostWait = time.Hour // its call is answered at once, with the question
			}
			var said atomic.Bool
			pipeline(&o).OnCall = func(ctx context.Context, c call.Call) (call.Result, error) {
				if at := call.AnswerBy(ctx); at.IsZero() || time.Until(at) > o.HostWait {
					t.Errorf("a human can answer until %v", at)
				}
				r := call.Result{CallID: c.ID, DecisionID: "d_1", Facts: facts.New(), Status: facts.Waiting, IsError: true,
					ApprovalID: "a_1"}
				if said.Load() && c.ApprovalID == "a_1" {
					r = call.Result{CallID: c.ID, DecisionID: "d_2", Facts: facts.New(), Status: facts.OK,
						Content: []call.Content{call.Text("done")}}
				}
				return r, nil
			}
			consent(&o).OnPut = func(context.Context, call.Session, string) (string, bool) { return "delete everything", true }
			consent(&o).OnSaid = func(_ context.Context, _ call.Session, _ string, yes bool) error {
				said.Store(yes)
				return nil
			}
			decides, forms := make(chan struct{}), atomic.Int32{}
			s := client(t, o, revision, &mcp.ClientOptions{ElicitationHandler: func(context.Context,
				*mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				forms.Add(1)
				<-decides
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "yes"}}, nil
			}})
			defer s.Close()
			ask := func() string {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "s__own"})
				if err != nil {
					t.Fatal(err)
				}
				return say(r)
			}
			if revision != jsonrpc.Modern {
				for range 2 {
					if got := ask(); !strings.Contains(got, "a human has to agree first (approval a_1)") {
						t.Errorf("while the person thinks: %s", got)
					}
				}
			}
			close(decides)
			for until := time.Now().Add(20 * time.Second); revision != jsonrpc.Modern && !said.Load(); {
				if time.Now().After(until) {
					t.Fatal("the late answer was not taken")
				}
				time.Sleep(time.Millisecond)
			}
			if got := ask(); got != "done" || forms.Load() != 1 {
				t.Errorf("after the answer: %s, %d forms", got, forms.Load())
			}
		})
	}
}
