package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/model/facts"
	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// fleet is a gateway and its workers on one PostgreSQL. Runs reach a server that counts what they fetch.
type fleet struct {
	*testing.T
	dir, port, pg string
	mu            sync.Mutex
	fetched       map[string]int
}

func fleetOf(t *testing.T) *fleet {
	t.Helper()
	pg := pgtest.New(t)
	f := &fleet{T: t, dir: t.TempDir(), fetched: map[string]int{}, pg: pg.URL("postgres", "postgres")}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.fetched[r.URL.Path]++
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	at, _ := url.Parse(s.URL)
	f.port = at.Port()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(f.dir, "waldo"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(f.dir, "waldo.yaml"), fmt.Appendf(nil, `
store: {url: %q}
workers: {key: "file:%s/key", wait: 10s}
capabilities:
  run_python: {mode: write, approval: none, isolation: namespace, filesystem: workspace_only, timeout_seconds: 60,
    network: {allow: ["localhost:%s"]}}
  run_shell: {mode: write, approval: none, isolation: namespace, filesystem: workspace_only}
`, f.pg, f.dir, f.port), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.say(f.start("g", "worker", "--new-key", filepath.Join(f.dir, "key")))
	for _, name := range []string{"g", "1", "2"} {
		if _, _, err := database.Migrate(t.Context(), filepath.Join(f.dir, name), f.pg); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// process is a waldo of the fleet.
type process struct {
	*exec.Cmd
	out  bytes.Buffer
	said spoken
	over chan error
}

// spoken is what a process wrote.
type spoken struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *spoken) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), text)
}

func (f *fleet) command(state string, args ...string) *exec.Cmd {
	all := []string{"--state", filepath.Join(f.dir, state), "--config", filepath.Join(f.dir, "waldo.yaml")}
	return exec.Command(filepath.Join(f.dir, "waldo"), append(all, args...)...)
}

func (f *fleet) start(state string, args ...string) *process {
	f.Helper()
	p := &process{Cmd: f.command(state, args...), over: make(chan error, 1)}
	p.Stdout, p.Stderr = &p.out, &p.said
	if err := p.Start(); err != nil {
		f.Fatal(err)
	}
	go func() { p.over <- p.Wait() }()
	f.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// worker starts a worker and waits until it takes runs.
func (f *fleet) worker(state string) *process {
	f.Helper()
	p := f.start(state, "worker")
	f.until("the worker", func() bool { return p.said.has("takes runs") })
	return p
}

// program starts a run of Python.
func (f *fleet) program(code string) *process {
	return f.start("g", "--json", "run", "-c", "import urllib.request, time\n"+
		"def get(name):\n  urllib.request.urlopen('http://localhost:"+f.port+"/'+name)\n"+code)
}

// say waits for the end of a process and returns its output.
func (f *fleet) say(p *process) string {
	f.Helper()
	select {
	case <-p.over:
	case <-time.After(2 * time.Minute):
		f.Fatalf("it goes on: %s%s", p.out.String(), p.said.b.String())
	}
	return p.out.String()
}

// facts returns those of a run that has ended.
func (f *fleet) facts(p *process) (out facts.Facts) {
	f.Helper()
	text := f.say(p)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		f.Fatalf("%v: %s%s", err, text, p.said.b.String())
	}
	return out
}

func (f *fleet) until(what string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("%s: not within a minute", what)
		}
	}
}

func (f *fleet) times(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetched["/"+name]
}

// sql returns the answer to a question with one value.
func (f *fleet) sql(text string) string {
	f.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
	out, err := exec.Command(found[len(found)-1], f.pg, "-qAtc", text).CombinedOutput()
	if err != nil {
		f.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func (f *fleet) states() string {
	return f.sql(`SELECT COALESCE(string_agg(state || attempt, ' ' ORDER BY id), '') FROM worker_runs`)
}

// TestWorkers: a gateway has its runs carried out by workers, each once, whatever ends in between.
func TestWorkers(t *testing.T) {
	f := fleetOf(t)
	lost := f.program("print('canary-in-the-code')")
	f.until("the row", func() bool {
		return f.sql(`SELECT to_regclass('worker_runs') IS NOT NULL`) == "t" && f.states() == "waiting0"
	})
	const clear = `SELECT count(*) FROM worker_runs r, river_job j WHERE r::text || j::text LIKE '%canary%'
		OR r::text LIKE '%' || encode('canary', 'hex') || '%'`
	if n := f.sql(clear); n != "0" {
		t.Errorf("the code stands in the database: %s rows", n)
	}
	if out := f.say(lost); !strings.Contains(out+lost.said.b.String(), "worker.absent") || f.states() != "over0" {
		t.Errorf("without a worker: %s%s, %s", out, lost.said.b.String(), f.states())
	}
	one := f.worker("1")
	ok := f.facts(f.program("get('ok'); print(6*7); open('/workspace/output/a.txt', 'w').write('kept')"))
	if ok.Status != facts.OK || ok.Stdout != "42\n" || len(ok.Files.Artifacts) != 1 || f.times("ok") != 1 {
		t.Fatalf("control: %+v", ok)
	}
	if b, err := os.ReadFile(filepath.Join(ok.Files.KeptIn, "output", "a.txt")); err != nil || string(b) != "kept" {
		t.Errorf("a file of the run: %q, %v", b, err)
	}
	if got := f.states(); got != "over0 over1" {
		t.Errorf("the rows: %s", got)
	}
	f.overStdio()

	killed := f.program("get('killed'); time.sleep(50); get('after')")
	f.until("the run", func() bool { return f.times("killed") == 1 })
	_ = one.Process.Kill()
	two := f.worker("2")
	if r := f.facts(killed); r.Status != facts.Failed || r.SideEffect != facts.Unknown || !warned(r, "worker.lost") {
		t.Errorf("a worker that was killed: %+v", r)
	}
	if n := f.times("killed"); n != 1 {
		t.Errorf("the run began %d times", n)
	}

	orphan := f.program("get('orphan'); time.sleep(50); get('after')")
	f.until("the run", func() bool { return f.times("orphan") == 1 })
	_ = orphan.Process.Kill()
	f.until("the end of a run without a gateway", func() bool { return !strings.Contains(f.states(), "running") })

	stopped := f.program("get('stopped'); time.sleep(50); get('after')")
	f.until("the run", func() bool { return f.times("stopped") == 1 })
	_ = stopped.Process.Signal(os.Interrupt)
	began := time.Now()
	f.say(stopped)
	if took := time.Since(began); took > 20*time.Second || strings.Contains(f.states(), "running") {
		t.Errorf("a run that was stopped took %v more: %s", took, f.states())
	}

	cut := f.program("get('cut'); time.sleep(1); get('after')")
	f.until("the run", func() bool { return f.times("cut") == 1 })
	_ = two.Process.Signal(syscall.SIGSTOP)
	if r := f.facts(cut); r.SideEffect != facts.Unknown || !warned(r, "worker.lost") {
		t.Errorf("a worker that was cut off: %+v", r)
	}
	_ = two.Process.Signal(syscall.SIGCONT)
	f.until("the late worker", func() bool { return two.said.has("worker.lease") || two.said.has("worker.late") })
	last := f.sql(`SELECT state || (result IS NULL) FROM worker_runs ORDER BY id DESC LIMIT 1`)
	if last != "overtrue" || f.times("after") != 0 || f.times("cut") != 1 {
		t.Errorf("the row: %s; after: %d; begun: %d", last, f.times("after"), f.times("cut"))
	}
	if r := f.facts(f.program("print('again')")); r.Stdout != "again\n" {
		t.Errorf("the worker afterwards: %+v", r)
	}
	_ = two.Process.Signal(os.Interrupt)
	if f.say(two); two.ProcessState.ExitCode() != 0 {
		t.Errorf("the worker ends with %d: %s", two.ProcessState.ExitCode(), two.said.b.String())
	}
}

func warned(f facts.Facts, code string) bool {
	return strings.Contains(strings.Join(f.Warnings, "\n"), code)
}

// overStdio makes a call of an agent's host at the gateway.
func (f *fleet) overStdio() {
	f.Helper()
	ctx, end := context.WithTimeout(f.Context(), 2*time.Minute)
	defer end()
	c := f.command("g", "serve", "--stdio")
	c.Stderr = io.Discard
	host := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	s, err := host.Connect(ctx, &mcp.CommandTransport{Command: c}, nil)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	before := f.states()
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_shell",
		Arguments: map[string]any{"command": "echo $((6*7))"}})
	if err != nil || r.IsError || len(r.Content) == 0 || !strings.Contains(r.Content[0].(*mcp.TextContent).Text, "42") {
		f.Errorf("over stdio: %+v, %v", r, err)
	}
	if after := f.states(); after != before+" over1" {
		f.Errorf("the rows: %s", after)
	}
}
