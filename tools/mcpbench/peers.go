package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
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
)

// ordinary is a server as people write it, with the official SDK: on lines, or at an address.
func ordinary(address string) error {
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
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	return http.ListenAndServe(address, h)
}

// gateway is one way from the client to the server.
type gateway struct {
	name    string
	program []string // a client starts it and speaks over its lines
	daemon  []string // started once; clients speak to address
	address string
	over    string // the direct row that it is compared with
	tool    string

	pid      int
	stop     func()
	revision string
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
		all = slices.DeleteFunc(all, func(g *gateway) bool { return g.program != nil && g.over != "" })
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
	direct := map[string]float64{}
	for _, g := range all {
		slices.Sort(g.took)
		p50 := micros(g.took, .5)
		if g.over == "" {
			direct[g.name] = p50
			fmt.Fprintf(out, "| %s | %d | %s | %.0f µs | | %.1f ms | | %.0f | |\n",
				g.name, sessions, g.revision, p50, micros(g.took, .99)/1000, g.rate())
			continue
		}
		cpu := float64(g.cpu.Microseconds()) / 1000 / float64(len(g.took))
		fmt.Fprintf(out, "| %s | %d | %s | %.0f µs | %.1f | %.1f ms | %.2f ms | %.0f | %d MB |\n",
			g.name, sessions, g.revision, p50, p50/direct[g.over], micros(g.took, .99)/1000, cpu, g.rate(), g.rss>>20)
	}
	return nil
}

// gateways are the rows of the table, direct ones first.
func gateways(waldo, folder, dir string) ([]*gateway, error) {
	me, err := os.Executable()
	if err != nil {
		return nil, err
	}
	at := free()
	config := func(name, server string) (string, error) {
		text := "version: 1\nservers:\n  s: {" + server + "}\ncapabilities:\n  s.look: {mode: read, approval: none}\n"
		file := filepath.Join(dir, name+".yaml")
		return file, os.WriteFile(file, []byte(text), 0o600)
	}
	remote, err := config("remote", "url: 'http://"+at+"/mcp', placement: outside")
	if err != nil {
		return nil, err
	}
	local, err := config("local", "command: ["+me+", ordinary]")
	if err != nil {
		return nil, err
	}
	serve := func(config, state string, more ...string) []string {
		return append([]string{waldo, "--config", config, "--state", filepath.Join(dir, state), "serve"}, more...)
	}
	listen, listen2, proxy, super := free(), free(), free(), free()
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	program := func(name string) string { return filepath.Join(folder, "node_modules", ".bin", name) }
	all := []*gateway{
		{name: "direct, HTTP", daemon: []string{me, "ordinary", at}, address: at, tool: "look"},
		{name: "direct, stdio", program: []string{me, "ordinary"}, tool: "look"},
		{name: "waldo, HTTP to HTTP", daemon: serve(remote, "a", "--listen", listen),
			address: listen, over: "direct, HTTP", tool: "s__look"},
		{name: "waldo, stdio to a sandboxed stdio server", program: serve(local, "b", "--stdio"),
			over: "direct, stdio", tool: "s__look"},
		{name: "waldo, HTTP to a sandboxed stdio server", daemon: serve(local, "c", "--listen", listen2),
			address: listen2, over: "direct, stdio", tool: "s__look"},
	}
	if folder != "" {
		all = append(all,
			&gateway{name: "mcp-proxy (npm), HTTP to stdio", address: proxy, over: "direct, stdio", tool: "look",
				daemon: []string{program("mcp-proxy"), "--host", "127.0.0.1", "--port", port(proxy), "--server", "stream",
					"--", me, "ordinary"}},
			&gateway{name: "supergateway, HTTP to stdio", address: super, over: "direct, stdio", tool: "look",
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
		s, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, t, nil)
		if err != nil {
			return err
		}
		if cmd != nil {
			g.pid = cmd.Process.Pid
		}
		g.revision = s.InitializeResult().ProtocolVersion
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
