package web

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bearer adds the token of a principal to each request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// A client of HTTP+SSE lists, calls and hears of progress.
func TestClientsOfHTTPAndSSE(t *testing.T) {
	h := open(t, Limits{})
	steps := make(chan float64, 10)
	c := mcp.NewClient(&mcp.Implementation{Name: "old", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			steps <- r.Params.Progress
		}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := c.Connect(ctx, &mcp.SSEClientTransport{Endpoint: h.url, HTTPClient: &http.Client{Transport: bearer{"one"}}},
		&mcp.ClientSessionOptions{ProtocolVersion: "2024-11-05"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.ListTools(ctx, nil)
	if err != nil || len(list.Tools) < 3 {
		t.Fatalf("%v %v", list, err)
	}
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "s__chatty", Meta: mcp.Meta{"progressToken": "x"}})
	if err != nil || r.Content[0].(*mcp.TextContent).Text != "fine" || <-steps != 1 {
		t.Errorf("%+v %v", r, err)
	}
	if got := h.desk.last(); got.Principal != "token:one" || h.desk.count() != 1 {
		t.Errorf("the call: %+v", got)
	}
}

// The address that a stream names is good for its principal alone, and ends with the stream.
func TestAnSSESessionBelongsToItsPrincipal(t *testing.T) {
	h := open(t, Limits{})
	s := h.stream("GET", "", "MCP-Protocol-Version", "", "Accept", "text/event-stream", "Authorization", "Bearer one")
	_, place := s.next()
	path, found := strings.CutPrefix(place, "/mcp")
	if !found {
		t.Fatalf("the endpoint: %q", place)
	}
	post := func(token string) int {
		r, err := http.NewRequest("POST", h.url+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	if got := post("one"); got != http.StatusAccepted {
		t.Fatalf("control: %d", got)
	}
	if _, data := s.next(); !strings.Contains(data, `"id":1,`) {
		t.Errorf("control: %q", data)
	}
	if got := post("two"); got != http.StatusNotFound {
		t.Errorf("somebody else: %d", got)
	}
	s.cut()
	for begin := time.Now(); post("one") != http.StatusNotFound; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("the session outlives its stream")
		}
	}
}
