package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/protocol/jsonrpc"
)

// ordinary is a server as people write it, with the official SDK: on lines, or at an address.
func ordinary(address string) error { return standard(address, false) }

// stateless is the same server at an address, without sessions, as the revision of 2026-07-28 has it.
func stateless(address string) error { return standard(address, true) }

func standard(address string, stateless bool) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "ordinary", Version: "1"}, nil)
	type input struct {
		Text string `json:"text"`
	}
	look := &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	mcp.AddTool(s, look, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done: " + in.Text}}}, nil, nil
	})
	if address == "" {
		return s.Run(context.Background(), &mcp.StdioTransport{})
	}
	return listen(address, s, stateless)
}

func listen(address string, s *mcp.Server, stateless bool) error {
	return http.ListenAndServe(address, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: stateless}))
}

// forward is the least that a program between client and server can cost: the reverse proxy of Go's library, which
// reads no message.
func forward(addresses string) error {
	at, to, _ := strings.Cut(addresses, ",")
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	p.ErrorLog = log.New(io.Discard, "", 0) // it would report each stream that its client ends
	return http.ListenAndServe(at, p)
}

// relay is the least that a gateway for MCP can cost: the official SDK's server, whose tool calls the SDK's client.
func relay(addresses string) error {
	at, rest, _ := strings.Cut(addresses, ",")
	to, revision, _ := strings.Cut(rest, ",")
	ctx := context.Background()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "relay", Version: "1"}, nil).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: "http://" + to + "/mcp"},
			&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "relay", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "look", InputSchema: map[string]any{"type": "object"}},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return c.CallTool(ctx, &mcp.CallToolParams{Name: "look", Arguments: r.Params.Arguments})
		})
	return listen(at, s, revision >= jsonrpc.Modern)
}

// gateway is one way from the client to the server.
type gateway struct {
	name    string
	program []string // a client starts it and speaks over its lines
	daemon  []string // started once; clients speak to address
	address string
	over    *gateway // the direct row that it is compared with; nil: it is one
	tool    string
	// the revision of MCP that its clients ask for; "": the newest. open replaces it by the one that was agreed on.
	revision string

	pid      int
	stop     func()
	p50      float64 // µs
	sessions []*mcp.ClientSession
	took     []time.Duration
	whole    time.Duration
	cpu      time.Duration
	rss      int64
}

// peers measures the official SDK's client and server directly, through waldo, and through the programs in folder.
func peers(waldo, folder string, n, sessions int, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mcpbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := gateways(waldo, folder, dir)
	if err != nil {
		return err
	}
	if sessions > 1 { // a process for each session of a program says nothing about one gateway
		all = slices.DeleteFunc(all, func(g *gateway) bool { return g.program != nil && g.over != nil })
	}
	defer func() {
		for _, g := range all {
			g.close()
		}
	}()
	for _, g := range all {
		if err := g.open(sessions); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	const turns = 5
	each := max(n/sessions/turns, 5)
	for turn := range turns + 1 {
		for _, g := range all {
			if err := g.turn(each, turn > 0); err != nil { // the first turn warms up
				return fmt.Errorf("%s: %w", g.name, err)
			}
		}
	}
	for _, g := range all {
		if g.over != nil && g.revision != g.over.revision {
			return fmt.Errorf("%s speaks %s, and %s %s: a ratio would say nothing", g.name, g.revision, g.over.name,
				g.over.revision)
		}
		slices.Sort(g.took)
		g.p50 = micros(g.took, .5)
		if g.over == nil {
			fmt.Fprintf(out, "| %s | %d | %s | %.0f µs | | %.1f ms | | %.0f | |\n",
				g.name, sessions, g.revision, g.p50, micros(g.took, .99)/1000, g.rate())
			continue
		}
		cpu := float64(g.cpu.Microseconds()) / 1000 / float64(len(g.took))
		fmt.Fprintf(out, "| %s | %d | %s | %.0f µs | %.1f | %.1f ms | %.2f ms | %.0f | %d MB |\n",
			g.name, sessions, g.revision, g.p50, g.p50/g.over.p50, micros(g.took, .99)/1000, cpu, g.rate(), g.rss>>20)
	}
	return nil
}

// gateways are the rows of the table, direct ones first.
func gateways(waldo, folder, dir string) ([]*gateway, error) {
	me, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config := func(name, server string) (string, error) {
		text := "version: 1\nservers:\n  s: {" + server + "}\ncapabilities:\n  s.look: {mode: read, approval: none}\n"
		file := filepath.Join(dir, name+".yaml")
		return file, os.WriteFile(file, []byte(text), 0o600)
	}
	serve := func(config, state string, more ...string) []string {
		return append([]string{waldo, "--config", config, "--state", filepath.Join(dir, state), "serve"}, more...)
	}
	var direct, all []*gateway
	for _, era := range []struct{ server, name, revision string }{
		{"ordinary", "HTTP", jsonrpc.Legacy}, {"stateless", "HTTP, stateless", jsonrpc.Modern},
	} {
		at := free()
		remote, err := config(era.server, "url: 'http://"+at+"/mcp', placement: outside")
		if err != nil {
			return nil, err
		}
		server := &gateway{name: "direct, " + era.name, daemon: []string{me, era.server, at}, address: at, tool: "look",
			revision: era.revision}
		direct = append(direct, server)
		add := func(name, tool string, daemon func(at string) []string) {
			address := free()
			all = append(all, &gateway{name: name + ", HTTP to " + era.name, daemon: daemon(address), address: address,
				over: server, tool: tool, revision: era.revision})
		}
		add("waldo", "s__look", func(own string) []string { return serve(remote, "state-"+era.server, "--listen", own) })
		add("reverse proxy of Go", "look", func(own string) []string { return []string{me, "forward", own + "," + at} })
		add("relay of the official SDK", "look", func(own string) []string {
			return []string{me, "relay", own + "," + at + "," + era.revision}
		})
	}
	local, err := config("local", "command: ["+me+", ordinary]")
	if err != nil {
		return nil, err
	}
	listen, proxy, super := free(), free(), free()
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	program := func(name string) string { return filepath.Join(folder, "node_modules", ".bin", name) }
	lines := &gateway{name: "direct, stdio", program: []string{me, "ordinary"}, tool: "look"}
	all = append(append(append(direct, lines), all...),
		&gateway{name: "waldo, stdio to a sandboxed stdio server", program: serve(local, "b", "--stdio"),
			over: lines, tool: "s__look"},
		&gateway{name: "waldo, HTTP to a sandboxed stdio server", daemon: serve(local, "c", "--listen", listen),
			address: listen, over: lines, tool: "s__look"})
	if folder != "" {
		all = append(all,
			&gateway{name: "mcp-proxy (npm), HTTP to stdio", address: proxy, over: lines, tool: "look",
				daemon: []string{program("mcp-proxy"), "--host", "127.0.0.1", "--port", port(proxy), "--server", "stream",
					"--", me, "ordinary"}},
			&gateway{name: "supergateway, HTTP to stdio", address: super, over: lines, tool: "look",
				daemon: []string{program("supergateway"), "--stdio", me + " ordinary", "--outputTransport", "streamableHttp",
					"--stateful", "--port", port(super), "--logLevel", "none"}})
	}
	return all, nil
}

// open starts the gateway and its sessions.
func (g *gateway) open(sessions int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if g.daemon != nil {
		cmd := exec.Command(g.daemon[0], g.daemon[1:]...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		g.pid = cmd.Process.Pid
		g.stop = func() {
			_ = cmd.Process.Signal(os.Interrupt)
			time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
		}
		if err := started(g.address); err != nil {
			return err
		}
	}
	for range sessions {
		var t mcp.Transport = &mcp.StreamableClientTransport{Endpoint: "http://" + g.address + "/mcp"}
		var cmd *exec.Cmd
		if g.program != nil {
			cmd = exec.Command(g.program[0], g.program[1:]...)
			t = &mcp.CommandTransport{Command: cmd}
		}
		s, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
			Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: g.revision})
		if err != nil {
			return err
		}
		if cmd != nil {
			g.pid = cmd.Process.Pid
		}
		if got := s.InitializeResult().ProtocolVersion; g.revision != "" && got != g.revision {
			return fmt.Errorf("it speaks %s where %s was asked for", got, g.revision)
		} else {
			g.revision = got
		}
		g.sessions = append(g.sessions, s)
		if _, err := s.ListTools(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func (g *gateway) close() {
	for _, s := range g.sessions {
		_ = s.Close()
	}
	if g.stop != nil {
		g.stop()
	}
}

// turn makes n calls in each session, and counts them if asked.
func (g *gateway) turn(n int, count bool) error {
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	before, _ := tree(g.pid)
	begin := time.Now()
	for _, s := range g.sessions {
		wg.Go(func() {
			took := make([]time.Duration, 0, n)
			var err error
			for range n {
				at := time.Now()
				if err = g.call(s); err != nil {
					break
				}
				took = append(took, time.Since(at))
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				first = err
			}
			if count {
				g.took = append(g.took, took...)
			}
		})
	}
	wg.Wait()
	if count {
		after, rss := tree(g.pid)
		g.whole, g.cpu, g.rss = g.whole+time.Since(begin), g.cpu+after-before, max(g.rss, rss)
	}
	runtime.GC()
	return first
}

func (g *gateway) call(s *mcp.ClientSession) error {
	text := strings.Repeat("a", 32)
	r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: g.tool, Arguments: map[string]any{"text": text}})
	if err != nil {
		return err
	}
	if t, ok := r.Content[0].(*mcp.TextContent); !ok || !strings.Contains(t.Text, "done: "+text) {
		return fmt.Errorf("wrong answer: %v", r.Content[0])
	}
	return nil
}

func (g *gateway) rate() float64 { return float64(len(g.took)) / g.whole.Seconds() }

func micros(sorted []time.Duration, q float64) float64 {
	return float64(sorted[int(q*float64(len(sorted)-1))].Nanoseconds()) / 1000
}

// tree is the processor time and memory of a process and of its descendants.
func tree(root int) (cpu time.Duration, rss int64) {
	if root == 0 {
		return 0, 0
	}
	parent, ticks, pages := map[int]int{}, map[int]int64{}, map[int]int64{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		parent[pid], _ = strconv.Atoi(f[1])
		for _, i := range []int{11, 12, 13, 14} { // its own time, and that of children that have ended
			t, _ := strconv.ParseInt(f[i], 10, 64)
			ticks[pid] += t
		}
		pages[pid], _ = strconv.ParseInt(f[21], 10, 64)
	}
	for pid := range parent {
		for at := pid; at > 1; at = parent[at] {
			if at == root {
				cpu += time.Duration(ticks[pid]) * 10 * time.Millisecond // USER_HZ is 100
				rss += pages[pid] * int64(os.Getpagesize())
				break
			}
		}
	}
	return cpu, rss
}
