package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/storage/database"
)

// The goals of a hostile principal beside an honest one.
const (
	goalTimes  = 2         // the honest one's 99th percentile, beside it and alone
	goalMemory = 300 << 20 // bytes of waldo's own process
)

// toolCall is one call of a tool.
type toolCall struct {
	name string
	args map[string]any
}

// honestCalls are what the honest principal does, in turns.
var honestCalls = []toolCall{
	{"run_python", map[string]any{"code": "print(6 * 7)"}},
	{"files__read", map[string]any{"path": "small.txt"}},
	{"sql__query", map[string]any{"sql": "SELECT 1"}},
	{"run_python", map[string]any{"code": "print(1)", "session": "mine"}},
}

// hostileCalls are what the hostile principal does, all at a time and without pause.
func hostileCalls() []toolCall {
	recursive := "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT "
	calls := []toolCall{
		{"run_python", map[string]any{"code": "open('/workspace/output/a.csv', 'w').write(',' * (32 << 20))"}},
		{"run_python", map[string]any{"code": "for i in range(4): open(f'/workspace/output/b{i}.csv', 'w').write('\\n' * (16 << 20))"}},
		{"run_python", map[string]any{"code": "import threading\nq = 'w ' * 1_300_000\n" +
			"ts = [threading.Thread(target=lambda: [search_tools(q) for _ in range(3)]) for _ in range(8)]\n" +
			"[t.start() for t in ts]; [t.join() for t in ts]"}},
		{"sql__query", map[string]any{"max_rows": 10000, "sql": recursive + "10000) SELECT 1" + strings.Repeat(",1", 999) + " FROM c"}},
		{"sql__query", map[string]any{"max_rows": 10000, "sql": recursive + "8000) SELECT printf('%.1000c', '<') FROM c"}},
		{"sql__query", map[string]any{"sql": recursive + "22) SELECT max(length(a.b)) FROM (SELECT x, zeroblob(15000000) || x b " +
			"FROM c) a GROUP BY a.b"}},
		{"files__edit", map[string]any{"path": "ends.txt", "old": "X", "new": "Y"}},
		{"files__edit", map[string]any{"path": "ends.txt", "old": "X", "new": strings.Repeat("\n", 1<<20)}},
		{"files__write", map[string]any{"path": "ends.txt", "content": strings.Repeat("\n", 3<<20)}},
	}
	for n := range 9 {
		calls = append(calls, toolCall{"run_python", map[string]any{"code": "print('x' * 3_000_000)", "session": fmt.Sprint("s", n)}})
	}
	return calls
}

// hostile drives waldo with an honest principal alone, and then beside a hostile one.
func hostile(waldo string, length time.Duration, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mcphostile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	line := []string{"--config", filepath.Join(dir, "waldo.yaml"), "--state", filepath.Join(dir, "state")}
	address := free()
	tokens, err := hostileConfig(waldo, dir, line)
	if err != nil {
		return err
	}
	cmd := exec.Command(waldo, append(line, "serve", "--listen", address)...)
	cmd.Stderr, _ = os.Create(filepath.Join(os.TempDir(), "mcphostile.stderr"))
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
	if err := started(address); err != nil {
		return err
	}
	honest, err := speaker("http://"+address+"/mcp", tokens["honest"])
	if err != nil {
		return err
	}
	var most atomic.Int64
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		for watching.Err() == nil {
			_, rss := spent(cmd.Process.Pid)
			most.Store(max(most.Load(), rss))
			time.Sleep(50 * time.Millisecond)
		}
	}()
	honestly(honest, 10*time.Second) // warm
	alone, wrong := honestly(honest, max(length/5, time.Minute))
	fmt.Fprintf(out, "alone: %s, at most %d MB\n", spread(alone), most.Load()>>20)
	of, err := os.Executable()
	if err != nil {
		return err
	}
	before, _ := spent(cmd.Process.Pid)
	other := exec.Command(of, "attack", "http://"+address+"/mcp") // its own processor time is not the honest one's
	other.Env, other.Stdout, other.Stderr = append(os.Environ(), "TOKEN="+tokens["hostile"]), out, os.Stderr
	if err := other.Start(); err != nil {
		return err
	}
	beside, more := honestly(honest, length)
	own, _ := spent(cmd.Process.Pid)
	theirs, _ := spent(other.Process.Pid)
	err = errors.Join(other.Process.Signal(os.Interrupt), other.Wait())
	fmt.Fprintf(out, "beside it for %v: %s, at most %d MB; waldo used %v of a processor, the hostile callers %v\n", length,
		spread(beside), most.Load()>>20, own-before, theirs)
	wrong = append(wrong, more...)
	if err != nil {
		return err
	}
	for _, w := range wrong[:min(len(wrong), 10)] {
		fmt.Fprintln(out, "  honest call failed:", w)
	}
	for n, c := range honestCalls {
		fmt.Fprintf(out, "  %s %v: alone %s; beside %s\n", c.name, c.args["session"] != nil, spread(every(alone, n)), spread(every(beside, n)))
	}
	times := float64(percentile(beside, 99)) / float64(percentile(alone, 99))
	fmt.Fprintf(out, "99th percentile: %.1f times; honest calls that failed: %d\n", times, len(wrong))
	if times > goalTimes || most.Load() > goalMemory || len(wrong) > 0 {
		return errors.New("the goals are missed")
	}
	return nil
}

// hostileConfig writes the configuration, a folder and a database, and returns the tokens of both principals.
func hostileConfig(waldo, dir string, line []string) (map[string]string, error) {
	tokens, hashes := map[string]string{}, []string{}
	for _, name := range []string{"honest", "hostile"} {
		b, err := exec.Command(waldo, "--state", line[3], "token", name, "--json").Output()
		var made struct{ Hash, Token string }
		if err = errors.Join(err, json.Unmarshal(b, &made)); err != nil {
			return nil, err
		}
		tokens[name] = made.Token
		hashes = append(hashes, fmt.Sprintf("%s: %q", name, made.Hash))
	}
	s, err := database.Open(filepath.Join(dir, "shop")) // any SQLite file
	if err == nil {
		err = errors.Join(s.Put(context.Background(), "a", "b", "c"), s.Close(), os.Mkdir(filepath.Join(dir, "d"), 0o755),
			os.WriteFile(filepath.Join(dir, "d/small.txt"), []byte("small\n"), 0o644),
			os.WriteFile(filepath.Join(dir, "d/ends.txt"), []byte("X"+strings.Repeat("\n", 8<<20-10)), 0o644),
			os.WriteFile(line[1], []byte("version: 1\ngateway: {auth: {tokens: {"+strings.Join(hashes, ", ")+"}}}\ncapabilities:\n"+
				"  run_python: {transport: sandboxed_exec, mode: read, isolation: namespace, approval: none}\n"+
				"  files.read: {transport: direct, root: ./d, mode: read, approval: none}\n"+
				"  files.edit: {transport: direct, root: ./d, mode: write, approval: always}\n"+
				"  files.write: {transport: direct, root: ./d, mode: write, approval: always}\n"+
				"  sql.*: {transport: direct, mode: read, approval: none, url: 'sqlite:./shop/waldo.db'}\n"), 0o600))
	}
	return tokens, err
}

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func speaker(url, token string) (*mcp.ClientSession, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "hostile", Version: "1"}, nil)
	return c.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: url,
		HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
}

// honestly makes the honest calls for a time, and returns how long each took and which failed.
func honestly(s *mcp.ClientSession, length time.Duration) (took []time.Duration, wrong []string) {
	for n, until := 0, time.Now().Add(length); time.Now().Before(until); n++ {
		c := honestCalls[n%len(honestCalls)]
		began := time.Now()
		r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: c.name, Arguments: c.args})
		took = append(took, time.Since(began))
		switch {
		case err != nil:
			wrong = append(wrong, c.name+": "+err.Error())
		case r.IsError:
			b, _ := json.Marshal(r.Content)
			wrong = append(wrong, fmt.Sprintf("%s: %.200s", c.name, b))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return took, wrong
}

// every returns what the n-th of the honest calls took.
func every(took []time.Duration, n int) (out []time.Duration) {
	for ; n < len(took); n += len(honestCalls) {
		out = append(out, took[n])
	}
	return out
}

// attacks is the process of the hostile callers. It ends when it is interrupted.
func attacks(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var wg sync.WaitGroup
	var calls, refused atomic.Int64
	for _, c := range hostileCalls() {
		wg.Go(func() { attack(ctx, url, os.Getenv("TOKEN"), c, &calls, &refused) })
	}
	wg.Wait()
	fmt.Printf("%d calls of a hostile principal, %d of them refused, waiting or failed\n", calls.Load(), refused.Load())
	return nil
}

// attack makes one call again and again, with a session that is opened anew when it ends.
func attack(ctx context.Context, url, token string, c toolCall, calls, refused *atomic.Int64) {
	var s *mcp.ClientSession
	for ctx.Err() == nil {
		var err error
		if s == nil {
			if s, err = speaker(url, token); err != nil {
				s = nil
				time.Sleep(time.Second)
				continue
			}
		}
		one, cancel := context.WithTimeout(ctx, time.Minute)
		r, err := s.CallTool(one, &mcp.CallToolParams{Name: c.name, Arguments: c.args})
		cancel()
		calls.Add(1)
		if err != nil || r.IsError {
			refused.Add(1)
		}
		if err != nil {
			_ = s.Close()
			s = nil
		}
	}
	if s != nil {
		_ = s.Close()
	}
}

func percentile(of []time.Duration, n int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, len(sorted)*n/100)]
}

func spread(of []time.Duration) string {
	return fmt.Sprintf("%d calls, median %v, 99th percentile %v", len(of), percentile(of, 50).Round(time.Millisecond),
		percentile(of, 99).Round(time.Millisecond))
}
