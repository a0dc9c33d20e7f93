package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/testing/repo"
)

// sdk is a server of the official SDK, in the revisions given.
func sdk(newest bool) func(*bufio.Scanner, io.Writer) {
	return func(in *bufio.Scanner, out io.Writer) {
		r, w := io.Pipe()
		go func() {
			for in.Scan() {
				fmt.Fprintln(w, in.Text())
			}
			_ = w.Close()
		}()
		s := sdkServer(newest)
		_ = s.Run(context.Background(), &mcp.IOTransport{Reader: r, Writer: nopCloser{out}})
	}
}

// waits counts the calls that the servers of sdkServer do not answer.
var waits atomic.Int64

// sdkServer has one tool that says its argument again.
func sdkServer(newest bool) *mcp.Server {
	o := &mcp.ServerOptions{SupportedProtocolVersions: []string{"2025-06-18"}}
	if newest {
		o = nil
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, o)
	type args struct {
		Message string `json:"message"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Says it again."},
		func(ctx context.Context, r *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
			if token := r.Params.GetProgressToken(); token != nil {
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 2})
			}
			if a.Message == "wait" {
				waits.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Second): // a server at an address does not see the end of a stream by itself
				}
				return nil, nil, ctx.Err()
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Message}}},
				map[string]string{"said": a.Message}, nil
		})
	return s
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Servers of the official SDK, of either era: list, call, structure, progress, cancellation.
func TestWithTheSDK(t *testing.T) {
	for name, want := range map[string]string{"new": "2026-07-28", "old": "2025-06-18"} {
		t.Run(want, func(t *testing.T) {
			m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){name: sdk(name == "new")}), Options{})
			tools, err := m.Tools(context.Background(), name)
			if err != nil || len(tools) != 1 || tools[0].Input.IsZero() {
				t.Fatalf("%v %v", tools, err)
			}
			if got := m.Status()[0].Revision; got != want {
				t.Errorf("revision %s", got)
			}
			steps := 0
			ctx := call.WithProgress(context.Background(), func(float64, float64, string) { steps++ })
			o := execute(t, ctx, m, decision(t, name+".echo", `{"message":"hi"}`, contract.Contract{Mode: contract.Write}))
			if text(o) != "hi" || string(o.Structured.Raw()) != `{"said":"hi"}` || o.Facts.SideEffect != facts.Confirmed ||
				steps != 1 {
				t.Errorf("%q %s %+v, %d steps", text(o), o.Structured.Raw(), o.Facts, steps)
			}
			o = execute(t, context.Background(), m,
				decision(t, name+".echo", `{"message":"wait"}`, contract.Contract{Timeout: 200 * time.Millisecond}))
			if o.Facts.Status != facts.Timeout {
				t.Errorf("%+v", o.Facts)
			}
			if o = execute(t, context.Background(), m,
				decision(t, name+".echo", `{"message":1}`, contract.Contract{})); !o.IsError || o.Facts.Status != facts.Failed {
				t.Errorf("arguments that do not fit: %q", text(o))
			}
		})
	}
}

// npm returns the start script of a real server, or ends the test if the servers are not installed. Under CI that is
// a failure, elsewhere a skip with a hint.
func npm(t *testing.T, server string) []string {
	t.Helper()
	script := "@modelcontextprotocol/" + server + "/dist/index.js"
	node, modules := repo.Packages(t, "npm", script)
	return []string{node, filepath.Join(modules, script)}
}

func TestServerEverything(t *testing.T) {
	m := New(map[string]contract.Server{"everything": {Command: append(npm(t, "server-everything"), "stdio"),
		Placement: "outside"}}, Options{Launcher: processes{t}})
	defer m.Close()
	tools, err := m.Tools(context.Background(), "everything")
	if err != nil || len(tools) < 10 {
		t.Fatalf("%d tools: %v; %+v", len(tools), err, m.Status())
	}
	long := contract.Contract{Mode: contract.Read}
	if o := execute(t, context.Background(), m,
		decision(t, "everything.echo", `{"message":"ünï\n🙂"}`, long)); !strings.Contains(text(o), "ünï\n🙂") {
		t.Errorf("echo: %q", text(o))
	}
	o := execute(t, context.Background(), m, decision(t, "everything.get-tiny-image", `{}`, long))
	kinds := []string{}
	for _, c := range o.Content {
		kinds = append(kinds, c.Type)
	}
	if strings.Join(kinds, " ") != "text image text" {
		t.Errorf("get-tiny-image: %v %q", kinds, text(o))
	}
	o = execute(t, context.Background(), m,
		decision(t, "everything.get-structured-content", `{"location":"New York"}`, long))
	if o.Structured.IsZero() {
		t.Errorf("get-structured-content: %q", text(o))
	}
	steps := 0
	ctx := call.WithProgress(context.Background(), func(float64, float64, string) { steps++ })
	o = execute(t, ctx, m, decision(t, "everything.trigger-long-running-operation", `{"duration":0.5,"steps":3}`, long))
	if o.IsError || steps == 0 {
		t.Errorf("trigger-long-running-operation: %q, %d steps", text(o), steps)
	}
	short := contract.Contract{Mode: contract.Write, Timeout: 2 * time.Second}
	o = execute(t, context.Background(), m,
		decision(t, "everything.trigger-long-running-operation", `{"duration":30,"steps":1}`, short))
	if o.Facts.Status != facts.Timeout || o.Facts.SideEffect != facts.Unknown {
		t.Errorf("out of time: %+v", o.Facts)
	}
	if o = execute(t, context.Background(), m,
		decision(t, "everything.echo", `{"message":"still here"}`, long)); !strings.Contains(text(o), "still here") {
		t.Errorf("after that: %q", text(o))
	}
}

func TestServerMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.json")
	m := New(map[string]contract.Server{"memory": {Command: npm(t, "server-memory"),
		Env: map[string]string{"MEMORY_FILE_PATH": file}, Placement: "outside"}}, Options{Launcher: processes{t}})
	defer m.Close()
	o := execute(t, context.Background(), m,
		decision(t, "memory.create_entities",
			`{"entities":[{"name":"waldo","entityType":"box","observations":["is sealed"]}]}`,
			contract.Contract{Mode: contract.Write}))
	if o.Facts.SideEffect != facts.Confirmed {
		t.Fatalf("create_entities: %q %+v", text(o), o.Facts)
	}
	if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "is sealed") {
		t.Errorf("the effect that was confirmed: %s %v", b, err)
	}
	m.servers["memory"].session.stop() // as if it had died between two calls
	o = execute(t, context.Background(), m, decision(t, "memory.read_graph", `{}`, contract.Contract{Mode: contract.Read}))
	var graph struct{ Entities []struct{ Name string } }
	if err := json.Unmarshal(o.Structured.Raw(), &graph); err != nil || len(graph.Entities) != 1 ||
		graph.Entities[0].Name != "waldo" {
		t.Errorf("read_graph: %q %v", text(o), err)
	}
	if st := m.Status()[0]; st.Starts != 2 {
		t.Errorf("%+v", st)
	}
}
