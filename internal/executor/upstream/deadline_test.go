package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// TestDeadlineTravels: a server of the official SDK hears with each call how long waldo waits, which is the least of the
// contract's time and the caller's. One that stops in time answers. One that does not is cut: it hears a cancellation.
func TestDeadlineTravels(t *testing.T) {
	var heard, cut atomic.Int64
	serve := func(in *bufio.Scanner, out io.Writer) {
		r, w := io.Pipe()
		go func() {
			for in.Scan() {
				fmt.Fprintln(w, in.Text())
			}
			_ = w.Close()
		}()
		s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
		type args struct {
			Honours bool `json:"honours"`
		}
		mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(ctx context.Context, r *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
			ms, _ := r.Params.Meta[call.MetaTimeout].(float64)
			heard.Store(int64(ms))
			if a.Honours {
				time.Sleep(time.Duration(ms)*time.Millisecond - 200*time.Millisecond)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "stopped in time"}}}, nil, nil
			}
			<-ctx.Done()
			cut.Add(1)
			return nil, nil, ctx.Err()
		})
		_ = s.Run(context.Background(), &mcp.IOTransport{Reader: r, Writer: nopCloser{out}})
	}
	m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){"s": serve}), Options{})
	if _, err := m.Tools(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	k := contract.Contract{Mode: contract.Write, Timeout: time.Second}
	for _, row := range []struct {
		args   string
		caller time.Duration // 0: it does not say
		status facts.Status
		most   int64
	}{
		{`{"honours":true}`, 0, facts.OK, 1000},
		{`{"honours":true}`, 500 * time.Millisecond, facts.OK, 500},
		{`{"honours":false}`, 500 * time.Millisecond, facts.Cancelled, 500},
		{`{"honours":true}`, 0, facts.OK, 1000}, // the server is the same
		{`{"honours":false}`, 0, facts.Timeout, 1000},
	} {
		ctx, done := t.Context(), func() {}
		if row.caller > 0 {
			ctx, done = context.WithTimeoutCause(ctx, row.caller, call.ErrCallerGone)
		}
		before, starts := cut.Load(), m.Status()[0].Starts
		o := execute(t, ctx, m, decision(t, "s.work", row.args, k))
		done()
		if o.Facts.Status != row.status || heard.Load() > row.most || heard.Load() < row.most/2 {
			t.Errorf("%+v: %s %q, the server heard %d ms", row, o.Facts.Status, text(o), heard.Load())
		}
		for end := time.Now().Add(5 * time.Second); row.status != facts.OK && cut.Load() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%+v: the server heard of no cancellation", row)
			}
		}
		if n := m.Status()[0].Starts; row.caller > 0 && n != starts {
			t.Errorf("%+v: a caller's short time ended the server", row)
		}
	}
}
