package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/protocol/jsonrpc"
)

// unreliable is a server that crashes, hangs, floods and changes at random. Its tool "write" adds a line to a file of
// the folder oracle each time.
func unreliable(name, oracle, address string) error {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{Logger: quiet})
	var hang sync.RWMutex // held while the server hangs
	type input struct {
		ID string `json:"id"`
	}
	answer := func(id string) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done " + id}}}, nil, nil
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			hang.RLock()
			defer hang.RUnlock()
			return answer(in.ID)
		})
	mcp.AddTool(s, &mcp.Tool{Name: "write"},
		func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			hang.RLock()
			defer hang.RUnlock()
			f, err := os.OpenFile(filepath.Join(oracle, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
			if err != nil {
				return nil, nil, err
			}
			defer f.Close()
			if _, err := f.WriteString(in.ID + "\n"); err != nil {
				return nil, nil, err
			}
			if rand.IntN(100) == 0 {
				os.Exit(3) // done, without an answer
			}
			return answer(in.ID)
		})
	go func() {
		for extra := 0; ; extra++ {
			time.Sleep(time.Duration(5+rand.IntN(55)) * time.Second)
			switch rand.IntN(4) {
			case 0:
				os.Exit(1)
			case 1:
				hang.Lock()
				time.Sleep(time.Duration(1+rand.IntN(8)) * time.Second)
				hang.Unlock()
			case 2:
				for range 20000 {
					fmt.Fprintln(os.Stderr, "an error message that says nothing, again and again")
				}
			case 3:
				t := &mcp.Tool{Name: fmt.Sprintf("extra_%d", extra), InputSchema: map[string]any{"type": "object"}}
				s.AddTool(t, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{}, nil
				})
				time.Sleep(2 * time.Second)
				s.RemoveTools(t.Name)
			}
		}
	}()
	if address == "" {
		return s.Run(context.Background(), &mcp.StdioTransport{})
	}
	return http.ListenAndServe(address, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
}

// soaking is one soak: the answers that clients have seen, and those that they should not have seen.
type soaking struct {
	mu       sync.Mutex
	answered map[string]string // id of a write that was answered → its server
	calls    int
	wrong    []string
	failures map[string]int
	lost     int // sessions that ended under their clients
}

func (s *soaking) note(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

// caller is a session of one kind of host.
type caller func(ctx context.Context, tool, id string) (text string, failed bool, err error)

const unreliables, overHTTP = 20, 5

// soak drives waldo for a time with 20 unreliable servers and 200 sessions of five kinds of host.
func soak(waldo string, length time.Duration, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mcpsoak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	oracle := filepath.Join(dir, "oracle")
	if err := os.Mkdir(oracle, 0o777); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, err := soakConfig(ctx, dir, oracle)
	if err != nil {
		return err
	}
	front := free()
	line := []string{"--config", config, "--state", filepath.Join(dir, "state"), "serve"}
	cmd := exec.Command(waldo, append(line, "--listen", front)...)
	cmd.Stderr, _ = os.Create(filepath.Join(os.TempDir(), "mcpsoak.stderr"))
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
	if err := started(front); err != nil {
		return err
	}
	s := &soaking{answered: map[string]string{}, failures: map[string]int{}}
	kinds := []struct {
		name  string
		count int
		open  func() (caller, func(), error)
	}{
		{"official SDK over HTTP, 2026-07-28", 100, sdkHost(func() mcp.Transport {
			return &mcp.StreamableClientTransport{Endpoint: "http://" + front + "/mcp"}
		})},
		{"2025-11-25 over HTTP", 60, plainHost(nil, "http://"+front+"/mcp", jsonrpc.Legacy)},
		{"2025-03-26 over HTTP", 30, plainHost(nil, "http://"+front+"/mcp", "2025-03-26")},
		{"official SDK over stdio", 5, sdkHost(func() mcp.Transport {
			return &mcp.CommandTransport{Command: exec.Command(waldo, stdioLine(config, dir)...)}
		})},
		{"2025-11-25 over stdio", 5, plainHost(append([]string{waldo}, stdioLine(config, dir)...), "", jsonrpc.Legacy)},
	}
	var wg sync.WaitGroup
	until := time.Now().Add(length)
	for k, kind := range kinds {
		for n := range kind.count {
			wg.Go(func() { s.host(ctx, fmt.Sprintf("%d-%d", k, n), until, kind.open) })
		}
	}
	samples := watch(cmd.Process.Pid, length)
	wg.Wait()
	return s.report(out, oracle, length, samples)
}

// stdioLine is the command line of a waldo for one stdio host: with a state directory of its own.
func stdioLine(config, dir string) []string {
	state, _ := os.MkdirTemp(dir, "state-")
	return []string{"--config", config, "--state", state, "serve", "--stdio"}
}

// soakConfig writes waldo.yaml and starts the servers that answer over HTTP; one that crashes is started again.
func soakConfig(ctx context.Context, dir, oracle string) (string, error) {
	me, err := os.Executable()
	if err != nil {
		return "", err
	}
	var servers, capabilities strings.Builder
	for n := range unreliables {
		name := fmt.Sprintf("s%d", n)
		fmt.Fprintf(&capabilities, "  %s.echo: {mode: read, approval: none, timeout_seconds: 5}\n", name)
		fmt.Fprintf(&capabilities, "  %s.write: {mode: write, approval: none, timeout_seconds: 5}\n", name)
		if n >= overHTTP {
			fmt.Fprintf(&servers,
				"  %s: {command: [%s, unreliable, %s, /oracle], mounts: {/oracle: {from: %s, writable: true}}}\n",
				name, me, name, oracle)
			continue
		}
		at := free()
		fmt.Fprintf(&servers, "  %s: {url: 'http://%s/mcp', placement: outside}\n", name, at)
		go func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, me, "unreliable", name, oracle, at).Run()
				time.Sleep(time.Second)
			}
		}()
		if err := started(at); err != nil {
			return "", err
		}
	}
	config := filepath.Join(dir, "waldo.yaml")
	text := "version: 1\ngateway: {limits: {strangers: 1000}}\nservers:\n" + servers.String() + "capabilities:\n" +
		capabilities.String()
	return config, os.WriteFile(config, []byte(text), 0o600)
}

// sdkHost opens sessions with the official SDK.
func sdkHost(transport func() mcp.Transport) func() (caller, func(), error) {
	return func() (caller, func(), error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err := mcp.NewClient(&mcp.Implementation{Name: "soak", Version: "1"}, nil).Connect(ctx, transport(), nil)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, tool, id string) (string, bool, error) {
			r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"id": id}})
			if err != nil {
				return "", false, err
			}
			t, _ := r.Content[0].(*mcp.TextContent)
			return t.Text, r.IsError, nil
		}, func() { _ = c.Close() }, nil
	}
}

// plainHost opens legacy sessions without an SDK.
func plainHost(program []string, address, revision string) func() (caller, func(), error) {
	return func() (caller, func(), error) {
		l, _, err := openAs(program, address, revision)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, tool, id string) (string, bool, error) {
			v, err := l.Call(ctx, "tools/call", func(int64) any {
				return map[string]any{"name": tool, "arguments": map[string]any{"id": id}}
			}, nil)
			if err != nil {
				return "", false, err
			}
			var r mcp.CallToolResult
			if err := json.Unmarshal(v.Raw(), &r); err != nil || len(r.Content) == 0 {
				return "", false, fmt.Errorf("no result: %.100s", v.Raw())
			}
			t, _ := r.Content[0].(*mcp.TextContent)
			return t.Text, r.IsError, nil
		}, l.Close, nil
	}
}

// host is one session that calls tools at random until the time is over.
func (s *soaking) host(ctx context.Context, name string, until time.Time, open func() (caller, func(), error)) {
	var call caller
	var end func()
	for n := 0; time.Now().Before(until); n++ {
		// all together stay below a session's 100,000 calls
		time.Sleep(time.Duration(2000+rand.IntN(12000)) * time.Millisecond)
		if call == nil {
			var err error
			if call, end, err = open(); err != nil {
				s.note(func() { s.failures["open: "+short(err.Error())]++ })
				continue
			}
		}
		server, id := fmt.Sprintf("s%d", rand.IntN(unreliables)), fmt.Sprintf("%s-%d", name, n)
		tool := "echo"
		if rand.IntN(3) == 0 {
			tool = "write"
		}
		one, cancel := context.WithTimeout(ctx, 90*time.Second)
		text, failed, err := call(one, server+"__"+tool, id)
		cancel()
		s.note(func() {
			s.calls++
			var said *jsonrpc.Error
			switch {
			case err != nil && errors.As(err, &said), err != nil && strings.Contains(err.Error(), "jsonrpc2"):
				s.failures[short(err.Error())]++
			case err != nil:
				s.lost++
				s.failures["lost: "+short(err.Error())]++
				end()
				call = nil
			case failed:
				s.failures[short(text)]++
			case !strings.Contains(text, "done "+id):
				s.wrong = append(s.wrong, id+": "+short(text))
			case tool == "write":
				s.answered[id] = server
			}
		})
	}
	if call != nil {
		end()
	}
}

// short is the beginning of a text without its numbers, so that like texts count together.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
	return fmt.Sprintf("%.110s", strings.ReplaceAll(s, "\n", " "))
}

type sample struct {
	at    time.Duration
	rss   int64
	files int
}

// watch looks at a process twenty times.
func watch(pid int, length time.Duration) func() []sample {
	var all []sample
	done := make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(done)
		for range 20 {
			time.Sleep(length / 21)
			_, rss := spent(pid)
			files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			all = append(all, sample{time.Since(begin), rss, len(files)})
		}
	}()
	return func() []sample { <-done; return all }
}

// report says what was seen, and fails when it should not have been.
func (s *soaking) report(out io.Writer, oracle string, length time.Duration, samples func() []sample) error {
	done := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(oracle, "*"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		for id := range strings.FieldsSeq(string(b)) {
			done[id]++
		}
	}
	twice, missing := 0, 0
	for _, n := range done {
		if n > 1 {
			twice++
		}
	}
	for id := range s.answered {
		if done[id] == 0 {
			missing++
		}
	}
	fmt.Fprintf(out, "%s, %d calls, %d writes done, %d of them answered\n", length, s.calls, len(done), len(s.answered))
	fmt.Fprintf(out, "wrong answers: %d; writes done twice: %d; writes answered and not done: %d; sessions lost: %d\n",
		len(s.wrong), twice, missing, s.lost)
	for _, w := range s.wrong {
		fmt.Fprintln(out, "  wrong:", w)
	}
	var texts []string
	for t := range s.failures {
		texts = append(texts, t)
	}
	sort.Slice(texts, func(i, j int) bool { return s.failures[texts[i]] > s.failures[texts[j]] })
	for _, t := range texts[:min(len(texts), 25)] {
		fmt.Fprintf(out, "  %6d %s\n", s.failures[t], t)
	}
	for _, x := range samples() {
		fmt.Fprintf(out, "  %8s  %4d MB  %4d descriptors\n", x.at.Round(time.Second), x.rss>>20, x.files)
	}
	if len(s.wrong)+twice+missing > 0 {
		return errors.New("the soak found faults")
	}
	return nil
}
