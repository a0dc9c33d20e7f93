// Command mcpbench measures what waldo adds to a call of a tool: it drives an MCP server directly and
// through waldo, in turns, in one run. The server is mcpbench itself, so that what it does itself
// costs nearly nothing.
//
//	mcpbench [-n CALLS] [-only ROW] [-update FILE] WALDO-PROGRAM
//	mcpbench -peers [-folder FOLDER] [-n CALLS] [-update FILE] WALDO-PROGRAM
//	mcpbench -peers -before WALDO-PROGRAM [-only TEXT] [-n CALLS] WALDO-PROGRAM
//	mcpbench -soak TIME WALDO-PROGRAM
//	mcpbench -hostile TIME WALDO-PROGRAM
//
// With -peers, client and server are the official SDK's, and other gateways stand beside waldo: those that FOLDER,
// a folder of npm, holds.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
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

	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// tools are the tools of the server: one reads and one writes, both without effect.
const tools = `{"tools":[{"name":"look","description":"Looks.","inputSchema":{"type":"object",` +
	`"properties":{"text":{"type":"string"}}}},{"name":"change","description":"Changes.","inputSchema":{"type":"object",` +
	`"properties":{"text":{"type":"string"}}}}]}`

// answer returns the server's response, in revision 2025-11-25.
func answer(m jsonrpc.Message) (any, error) {
	raw := func(s string) (any, error) { return strictjson.Parse([]byte(s)) }
	switch m.Method {
	case "initialize":
		return raw(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`)
	case "tools/list":
		return raw(tools)
	case "tools/call":
		return raw(`{"content":[{"type":"text","text":"done: one hundred bytes or so of an answer that nobody will ever ` +
			`read, and no secret in it"}]}`)
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method")
}

// serve is the server, on lines or at an address.
func serve(address string) error {
	if address == "" {
		c := jsonrpc.New(os.Stdin, os.Stdout, jsonrpc.Options{
			Request: func(_ context.Context, m jsonrpc.Message) (any, error) { return answer(m) },
			Inline:  func(string) bool { return true },
		})
		return c.Serve(context.Background())
	}
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		b := make([]byte, max(r.ContentLength, 0))
		_, _ = bufio.NewReader(r.Body).Read(b)
		m, fault := jsonrpc.Parse(b)
		switch {
		case fault != nil:
			w.WriteHeader(http.StatusBadRequest)
		case !m.IsRequest():
			w.WriteHeader(http.StatusAccepted)
		default:
			result, err := answer(m)
			var e *jsonrpc.Error
			if err != nil {
				e, _ = err.(*jsonrpc.Error)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(jsonrpc.Answer(m.ID, result, e))
		}
	}))
}

// link is a connection to the server or to waldo.
type link interface {
	Call(ctx context.Context, method string, params func(id int64) any,
		progress func(done, total float64)) (strictjson.Value, error)
	Notify(method string, params any) bool
	Serve(ctx context.Context) error
	Close()
}

// open makes a connection over a program's lines or to an address, and begins a session.
func open(program []string, address string) (link, int, error) {
	return openAs(program, address, jsonrpc.Legacy)
}

// openAs opens a session of one legacy revision.
func openAs(program []string, address, revision string) (link, int, error) {
	var l link
	pid := 0
	if address != "" {
		rt, err := mcphttp.Transport(address, nil)
		if err != nil {
			return nil, 0, err
		}
		c, err := mcphttp.New(mcphttp.Options{URL: address, Transport: rt})
		if err != nil {
			return nil, 0, err
		}
		l = c
		c.Speak(revision)
	} else {
		cmd := exec.Command(program[0], program[1:]...)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, 0, err
		}
		pid = cmd.Process.Pid
		l = jsonrpc.New(out, in, jsonrpc.Options{})
		go func() { _ = cmd.Wait() }()
	}
	go func() { _ = l.Serve(context.Background()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := l.Call(ctx, "initialize", func(int64) any {
		return map[string]any{
			"protocolVersion": revision, "capabilities": struct{}{},
			"clientInfo": jsonrpc.Implementation{Name: "bench", Version: "1"},
		}
	}, nil)
	if err == nil {
		l.Notify("notifications/initialized", nil)
		_, err = l.Call(ctx, "tools/list", func(int64) any { return struct{}{} }, nil)
	}
	return l, pid, err
}

// run makes n calls of a tool on each of the links and returns how long each took, sorted.
func run(links []link, tool string, n int) ([]time.Duration, time.Duration, error) {
	var mu sync.Mutex
	var all []time.Duration
	var first error
	var wg sync.WaitGroup
	begin := time.Now()
	for _, l := range links {
		wg.Go(func() {
			took := make([]time.Duration, 0, n)
			for range n {
				at := time.Now()
				v, err := l.Call(context.Background(), "tools/call", func(int64) any {
					return map[string]any{"name": tool, "arguments": map[string]any{"text": strings.Repeat("a", 80)}}
				}, nil)
				if err == nil && !strings.Contains(string(v.Raw()), "done: ") {
					err = fmt.Errorf("%.200s", v.Raw())
				}
				if err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
				took = append(took, time.Since(at))
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	wg.Wait()
	whole := time.Since(begin)
	slices.Sort(all)
	return all, whole, first
}

// spent is the processor time of a process so far, and its memory.
func spent(pid int) (cpu time.Duration, rss int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, pages * int64(os.Getpagesize()) // USER_HZ is 100
}

func main() {
	servers := map[string]func(string) error{
		"server": serve, "ordinary": ordinary, "stateless": stateless, "forward": forward, "relay": relay,
		"attack": attacks,
	}
	if len(os.Args) > 1 && servers[os.Args[1]] != nil {
		address := ""
		if len(os.Args) > 2 {
			address = os.Args[2]
		}
		if err := servers[os.Args[1]](address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "unreliable" {
		fmt.Fprintln(os.Stderr, unreliable(os.Args[2], os.Args[3], strings.Join(os.Args[4:], "")))
		os.Exit(1)
	}
	n := flag.Int("n", 2000, "calls of each kind")
	only := flag.String("only", "",
		"measure one row alone, as in stdio-1, stdio-32, HTTP-1 or HTTP-32: to look at it with a profiler")
	beside := flag.Bool("peers", false, "measure the official SDK's client and server, directly and through gateways")
	before := flag.String("before", "",
		"with -peers: another build of waldo, measured in turns with the first; no other program is")
	folder := flag.String("folder", "", "with -peers: where npm has installed mcp-proxy and supergateway")
	length := flag.Duration("soak", 0,
		"drive waldo for this long with servers that crash, hang, flood and change at random")
	attacked := flag.Duration("hostile", 0, "drive waldo for this long with a hostile principal beside an honest one")
	file := flag.String("update", "", "a file whose table is replaced, between its markers")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: mcpbench [-n CALLS] [-only ROW] [-update FILE] WALDO-PROGRAM")
		os.Exit(2)
	}
	table := &strings.Builder{}
	out := io.MultiWriter(os.Stdout, table)
	var err error
	if *length > 0 {
		err = soak(flag.Arg(0), *length, os.Stdout)
	} else if *attacked > 0 {
		err = hostile(flag.Arg(0), *attacked, os.Stdout)
	} else if *beside && *before != "" {
		err = builds(*before, flag.Arg(0), *only, *n, out)
	} else if *beside {
		fmt.Fprintln(out, "| gateway | sessions | revision | p50 | times direct | p99 | CPU a call | calls/s | memory |")
		fmt.Fprintln(out, "|---|--:|---|--:|--:|--:|--:|--:|--:|")
		for _, sessions := range []int{1, 16} {
			if err == nil {
				err = peers(flag.Arg(0), *folder, *n, sessions, out)
			}
		}
	} else {
		err = bench(flag.Arg(0), *n, *only, out)
	}
	if err == nil && *file != "" && *only == "" && *before == "" {
		mark := "gateway"
		if *beside {
			mark = "peers"
		}
		err = place(*file, mark, table.String())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcpbench:", err)
		os.Exit(1)
	}
}

// free returns an unused address of this machine.
func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return ""
	}
	defer l.Close()
	return l.Addr().String()
}

// started waits until a server listens.
func started(address string) error {
	for range 200 {
		if c, err := net.Dial("tcp", address); err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("no listener on %s", address)
}

// place puts the table into a file, between the markers of that name.
func place(file, mark, table string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+mark+":begin -->\n", "<!-- "+mark+":end -->"
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no place for the table", file)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	said := fmt.Sprintf("%d processors, load %s when it ended.\n\n", runtime.NumCPU(),
		strings.Join(strings.Fields(string(load))[:1], ""))
	return os.WriteFile(file, []byte(head+begin+said+table+end+tail), 0o644)
}

func bench(waldo string, n int, only string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mcpbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	me, err := os.Executable()
	if err != nil {
		return err
	}
	at := free()
	server := exec.Command(me, "server", at)
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	if err := started(at); err != nil {
		return err
	}
	fmt.Fprintln(out, "| upstream | sessions | calls | direct p50 | through p50 | added p50 | added p99 | CPU of waldo a "+
		"call | calls/s | direct calls/s | memory of waldo |")
	fmt.Fprintln(out, "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, up := range []struct {
		name, line string
		program    []string
		address    string
	}{
		{"stdio, in a sandbox", "command: [" + me + ", server]", []string{me, "server"}, ""},
		{"HTTP", "url: 'http://" + at + "/mcp', placement: outside", nil, "http://" + at + "/mcp"},
	} {
		config := filepath.Join(dir, "waldo.yaml")
		text := "version: 1\nservers:\n  s: {" + up.line +
			"}\ncapabilities:\n  s.look: {mode: read, approval: none}\n  s.change: {mode: write, approval: none}\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return err
		}
		for _, sessions := range []int{1, 32} {
			row, _, _ := strings.Cut(up.name, ",")
			if only != "" && only != row+"-"+strconv.Itoa(sessions) {
				continue
			}
			if err := compare(waldo, config, filepath.Join(dir, "state-"+strconv.Itoa(sessions)+up.name[:2]), up.name,
				up.program, up.address, sessions, n, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare measures one row of each kind of call: direct and through waldo in turns, four times.
func compare(
	waldo, config, state, name string, program []string, address string, sessions, n int, out io.Writer,
) error {
	var direct, through []link
	defer func() {
		for _, l := range append(direct, through...) {
			l.Close()
		}
	}()
	pid := 0
	front := ""
	if sessions > 1 { // one program serves them all, over HTTP
		front = "http://" + free() + "/mcp"
		cmd := exec.Command(waldo, "--config", config, "--state", state, "serve", "--listen",
			strings.TrimSuffix(strings.TrimPrefix(front, "http://"), "/mcp"))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		pid = cmd.Process.Pid
		defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
		if err := started(strings.TrimSuffix(strings.TrimPrefix(front, "http://"), "/mcp")); err != nil {
			return err
		}
	}
	for range sessions {
		d, _, err := open(program, address)
		if err != nil {
			return err
		}
		direct = append(direct, d)
		t, p, err := open([]string{waldo, "--config", config, "--state", state, "serve", "--stdio"}, front)
		if err != nil {
			return err
		}
		through = append(through, t)
		if p != 0 {
			pid = p
		}
	}
	for _, tool := range []string{"look", "change"} {
		kind := map[string]string{"look": "read", "change": "write"}[tool]
		var a, b []time.Duration
		var ta, tb, cpu time.Duration
		rss := int64(0)
		const turns = 4
		each := max(n/sessions/turns, 5)
		for range turns {
			x, t, err := run(direct, tool, each)
			if err != nil {
				return fmt.Errorf("direct: %w", err)
			}
			a, ta = append(a, x...), ta+t
			before, _ := spent(pid)
			if x, t, err = run(through, "s__"+tool, each); err != nil {
				return fmt.Errorf("through waldo: %w", err)
			}
			after, m := spent(pid)
			b, tb, cpu, rss = append(b, x...), tb+t, cpu+after-before, max(rss, m)
		}
		slices.Sort(a)
		slices.Sort(b)
		at := func(d []time.Duration, q float64) float64 {
			return float64(d[int(q*float64(len(d)-1))].Microseconds()) / 1000
		}
		fmt.Fprintf(out, "| %s | %d | %s | %.2f ms | %.2f ms | %.2f ms | %.2f ms | %.2f ms | %.0f | %.0f | %d MB |\n", name,
			sessions, kind, at(a, .5), at(b, .5),
			at(b, .5)-at(a, .5), at(b, .99)-at(a, .99), float64(cpu.Microseconds())/1000/float64(len(b)),
			float64(len(b))/tb.Seconds(), float64(len(a))/ta.Seconds(), rss>>20)
		runtime.GC()
	}
	return nil
}
