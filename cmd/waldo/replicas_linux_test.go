package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/storage/database"
	"waldo/internal/testing/passkeytest"
	"waldo/internal/testing/pgtest"
	"waldo/internal/testing/terminaltest"
)

// replica is one waldo serve with a state directory of its own.
type replica struct {
	t          *testing.T
	dir, state string
	does       []string // a command in place of serve
	env        []string
	root       string // fingerprint of the first approver
	c          *exec.Cmd
	at         atomic.Pointer[url.URL]
}

// replicasOf binds two state directories to one PostgreSQL. Their configuration has a server that counts writes.
func replicasOf(t *testing.T, config string) (all []*replica, o *oracle) {
	t.Helper()
	pg := pgtest.New(t)
	dir, o := t.TempDir(), &oracle{made: map[string]int{}}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "waldo"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "waldo.yaml"), fmt.Appendf(nil, config, o.serve(t), identity.Hash("waldo_ci")),
			0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		r := &replica{t: t, dir: dir, state: filepath.Join(dir, name)}
		if _, _, err := database.Migrate(t.Context(), r.state, pg.URL("postgres", "postgres")); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all, o
}

// start starts it and waits until it listens.
func (r *replica) start() {
	r.t.Helper()
	if err := r.launch(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.end)
}

// launch starts it and waits until it listens, or ends. What it says stands in a file beside its state directory.
func (r *replica) launch() error {
	does, ready := []string{"serve", "--listen", "127.0.0.1:0"}, "listening on "
	if r.does != nil {
		does, ready = r.does, " takes runs "
	}
	r.c = exec.Command(filepath.Join(r.dir, "waldo"), append([]string{"--state", r.state, "--config",
		filepath.Join(r.dir, "waldo.yaml")}, does...)...)
	r.c.Env = append(append(os.Environ(), r.env...), "WALDO_APPROVER_ROOT="+r.root)
	said, err := r.c.StderrPipe()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(r.state+".said", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := r.c.Start(); err != nil {
		return errors.Join(err, to.Close())
	}
	lines := bufio.NewReader(io.TeeReader(said, to))
	for all := ""; ; {
		line, err := lines.ReadString('\n')
		all += line
		if _, after, ok := strings.Cut(line, ready); ok {
			go func() { _, _ = io.Copy(io.Discard, lines); _ = to.Close() }()
			text, _, _ := strings.Cut(strings.TrimSpace(after), " ")
			at, err := url.Parse(text)
			r.at.Store(at)
			return err
		}
		if err != nil {
			return fmt.Errorf("%s%w", all, errors.Join(err, r.c.Wait(), to.Close()))
		}
	}
}

func (r *replica) end() {
	_ = r.c.Process.Signal(os.Interrupt)
	_ = r.c.Wait()
}

// oracle is a server that counts the writes of each text.
type oracle struct {
	mu   sync.Mutex
	made map[string]int
	late time.Duration // that a write takes; it acts at any time of it
}

func (o *oracle) serve(t *testing.T) (url string) {
	up := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(up, &mcp.Tool{Name: "put"},
		func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Text string `json:"text"`
		}) (*mcp.CallToolResult, any, error) {
			o.put(in.Text)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "put " + in.Text}}}, nil, nil
		})
	mcp.AddTool(up, &mcp.Tool{Name: "find"},
		func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Text string `json:"text"`
		}) (*mcp.CallToolResult, any, error) {
			return nil, map[string]any{"total": o.times(in.Text)}, nil
		})
	calls := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return up },
		&mcp.StreamableHTTPOptions{Stateless: true})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, run := strings.CutPrefix(r.URL.Path, "/run/"); run { // a program writes
			o.put(text)
			return
		}
		calls.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// put counts a write.
func (o *oracle) put(text string) {
	before := rand.N(o.late + 1)
	time.Sleep(before)
	o.mu.Lock()
	o.made[text]++
	o.mu.Unlock()
	time.Sleep(o.late - before)
}

func (o *oracle) times(text string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.made[text]
}

// reached connects a client of a revision of MCP.
func reached(ctx context.Context, endpoint, revision string) (*mcp.ClientSession, error) {
	return mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: endpoint, HTTPClient: &http.Client{Transport: shows("waldo_ci")}, MaxRetries: -1},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
}

// put makes one write, under a key unless that is empty, and returns the text of the answer.
func put(ctx context.Context, s *mcp.ClientSession, text, key string) (answer string, failed bool, err error) {
	p := &mcp.CallToolParams{Name: "notes__put", Arguments: map[string]any{"text": text}}
	if key != "" {
		p.Meta = mcp.Meta{"waldo/idempotency_key": key}
	}
	r, err := s.CallTool(ctx, p)
	if err != nil {
		return "", true, err
	}
	return r.Content[0].(*mcp.TextContent).Text, r.IsError, nil
}

// TestRollingRestart: two replicas on one PostgreSQL are restarted one after the other. Clients write with keys until
// both have restarted, and try again at the other. Each write that was answered was made, and none was made twice.
func TestRollingRestart(t *testing.T) {
	all, o := replicasOf(t, "version: 1\nservers:\n  notes: {url: %q}\n"+
		"capabilities:\n  notes.put: {mode: write, approval: none, idempotency: {window: 1h}}\n"+
		"gateway: {auth: {tokens: {ci: %q}}}\n")
	for _, r := range all {
		r.start()
	}
	const clients = 4
	var begun, ended sync.WaitGroup
	begun.Add(clients)
	restarted, answers := make(chan struct{}), make([][]string, clients)
	for c := range clients {
		ended.Go(func() {
			last := false
			for n := 0; !last && t.Context().Err() == nil; n++ {
				select {
				case <-restarted:
					last = true
				default:
				}
				answers[c] = append(answers[c], writes(t.Context(), all, c+n, fmt.Sprintf("%d-%d", c, n)))
				if n == 0 {
					begun.Done()
				}
			}
		})
	}
	begun.Wait()
	for _, r := range all {
		r.end()
		r.start()
	}
	close(restarted)
	ended.Wait()
	for c, all := range answers {
		if len(all) < 2 || all[0] == unknown || all[len(all)-1] == unknown {
			t.Errorf("client %d had no answer before or after: %q", c, all)
		}
		for n, answer := range all {
			text := fmt.Sprintf("%d-%d", c, n)
			if made := o.times(text); made > 1 || answer != unknown && (answer != "put "+text || made != 1) {
				t.Errorf("%s: answered %q, made %d times", text, answer, made)
			}
		}
	}
	for _, r := range all {
		operate(t, r.state, "log", "verify")
	}
}

// writes makes one write under one key until it is answered, at one replica after the other.
func writes(ctx context.Context, all []*replica, first int, text string) (answer string) {
	for n := first; ctx.Err() == nil; n++ {
		s, err := reached(ctx, all[n%len(all)].at.Load().String(), "2026-07-28")
		if err != nil {
			continue
		}
		got, failed, err := put(ctx, s, text, text)
		_ = s.Close()
		switch {
		case err == nil && !failed:
			return got
		case strings.Contains(got, "idempotency.unknown"):
			return unknown
		}
	}
	return "none"
}

// unknown is the answer to a call that ended with its replica after it was sent.
const unknown = "unknown"

// TestDelegateElsewhere: a token of one replica works at another with the key of the store, until that one revokes it.
func TestDelegateElsewhere(t *testing.T) {
	const config = "version: 1\nservers:\n  notes: {url: %q}\ncapabilities:\n  notes.put: {mode: write, approval: none}\n" +
		"gateway: {auth: {tokens: {ci: %q}}}\n"
	for _, row := range []struct{ why, key string }{{"control: without the key", ""}, {"with it", "file:store.key"}} {
		t.Run(row.why, func(t *testing.T) {
			all, o := replicasOf(t, config)
			a, b := all[0], all[1]
			if row.key != "" {
				operate(t, a.state, "worker", "--new-key", filepath.Join(a.dir, "store.key"))
				f, err := os.OpenFile(filepath.Join(a.dir, "waldo.yaml"), os.O_APPEND|os.O_WRONLY, 0)
				if err == nil {
					_, err = fmt.Fprintf(f, "store: {key: \"file:%s/store.key\"}\n", a.dir)
					err = errors.Join(err, f.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			made := exec.CommandContext(t.Context(), filepath.Join(a.dir, "waldo"), "--state", a.state, "--config",
				filepath.Join(a.dir, "waldo.yaml"), "delegate", "--allow", "notes.*", "--danger", "2", "--host", "*")
			token, err := made.Output()
			if err != nil {
				t.Fatal(err)
			}
			try := func(r *replica, text string) string {
				c := exec.CommandContext(t.Context(), filepath.Join(r.dir, "waldo"), "--state", r.state, "--config",
					filepath.Join(r.dir, "waldo.yaml"), "--delegation", strings.TrimSpace(string(token)), "call", "notes.put",
					"text="+text)
				out, _ := c.CombinedOutput()
				return string(out)
			}
			at := try(b, "there")
			if row.key == "" {
				if !strings.Contains(at, "delegation.absent") || o.times("there") != 0 {
					t.Errorf("%s", at)
				}
				return
			}
			if o.times("there") != 1 {
				t.Fatalf("%s", at)
			}
			name := regexp.MustCompile(`dg_[a-z2-7]{26}`).FindString(string(token))
			operate(t, b.state, "delegate", "revoke", name)
			if out := try(a, "after"); !strings.Contains(out, "delegation.revoked") || o.times("after") != 0 {
				t.Errorf("after its end: %s", out)
			}
			for _, r := range all {
				operate(t, r.state, "log", "verify")
			}
		})
	}
}

// balancer is one address for both replicas, which leads to one of them at a time.
type balancer struct {
	url string
	to  atomic.Pointer[replica]
}

func newBalancer(t *testing.T) *balancer {
	b := &balancer{}
	s := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		at := *b.to.Load().at.Load()
		at.Path = ""
		r.SetURL(&at)
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	b.url = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return b
}

// console logs in at the console of a replica, by the name of the balancer or by its own.
func (b *balancer) console(r *replica, own bool) *consoleClient {
	r.t.Helper()
	b.to.Store(r)
	link := operate(r.t, r.state, "console", "--link", "--listen", r.at.Load().Host)
	if _, token, ok := strings.Cut(link, "/login#"); ok && !own {
		link = b.url + "/login#" + token
	}
	return enter(r.t, link)
}

// enrolled enrols ann with a passkey at the first replica, and starts them anew as those of her fingerprint.
func (b *balancer) enrolled(all []*replica) *passkeytest.Authenticator {
	one := all[0]
	t := one.t
	t.Helper()
	person, key := b.console(one, false), passkeytest.New(b.url, "localhost")
	terminal, _, seen, _ := onTTY(t, "--state", one.state, "--config", filepath.Join(one.dir, "waldo.yaml"), "approve",
		"--enroll", "ann", "--passkey")
	terminaltest.Until(t, "the secret", seen, func() bool { return seen.Has("waiting for the browser") })
	if status, code := person.enrol(regexp.MustCompile(`\b[a-z2-7]{26}\b`).FindString(seen.Text()), key); status != 200 {
		t.Fatalf("enrolling: %d %s", status, code)
	}
	terminaltest.Until(t, "the question", seen, func() bool { return seen.Has("Enrol it?") })
	_, _ = terminal.WriteString("yes\r")
	terminaltest.Until(t, "the enrolment", seen, func() bool { return seen.Has("enrolled ann, passkey sha256:") })
	root := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(operate(t, one.state, "approve", "--list"))
	for _, r := range all {
		r.end()
		r.root = root
		r.start()
	}
	return key
}

// TestChangeReplica: behind one name, a client of MCP and a person with a passkey go on at another replica.
func TestChangeReplica(t *testing.T) {
	b := newBalancer(t)
	all, o := replicasOf(t, "version: 1\nservers:\n  notes: {url: %q}\ncapabilities:\n"+
		"  notes.put: {mode: write, approval: always}\ngateway: {url: "+b.url+"/mcp, auth: {tokens: {ci: %q}}}\n")
	for _, r := range all {
		operate(t, r.state, "trust", filepath.Join(r.dir, "waldo.yaml"))
		r.start()
	}
	one, two := all[0], all[1]
	key := b.enrolled(all)
	for _, row := range []struct {
		name, revision        string
		asked, answered, made *replica
	}{{"made at the other", "2026-07-28", one, one, two}, {"answered at the other", "2026-07-28", one, two, one},
		{"asked at the other", "2026-07-28", two, one, one}, {"a session of the client", "2025-11-25", one, two, two}} {
		t.Run(row.name, func(t *testing.T) {
			b.to.Store(row.asked)
			s, err := reached(t.Context(), b.url+"/mcp", row.revision)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			said, _, err := put(t.Context(), s, row.name, "")
			question := regexp.MustCompile(`a_[a-z2-7]{26}`).FindString(said)
			if err != nil || question == "" {
				t.Fatalf("%q %v", said, err)
			}
			status, code := b.console(row.answered, true).answer(question, "ann", "approve", key)
			if status != 403 || code != "approval.origin" {
				t.Errorf("at the replica's own name: %d %s", status, code)
			}
			if status, code = b.console(row.answered, false).answer(question, "ann", "approve", key); status != 200 {
				t.Fatalf("%d %s", status, code)
			}
			b.to.Store(row.made)
			said, _, err = put(t.Context(), s, row.name, "")
			if row.revision == "2025-11-25" { // its session is of one replica; that of waldo is not
				if err == nil || !strings.Contains(err.Error(), mcp.ErrSessionMissing.Error()) {
					t.Fatalf("the session is known at another replica: %q %v", said, err)
				}
				if s, err = reached(t.Context(), b.url+"/mcp", row.revision); err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				said, _, err = put(t.Context(), s, row.name, "")
			}
			if err != nil || said != "put "+row.name || o.times(row.name) != 1 {
				t.Errorf("%q %v, made %d times", said, err, o.times(row.name))
			}
			if row.made == one {
				return
			}
			said, failed, err := put(t.Context(), s, row.name, "")
			if again := regexp.MustCompile(`a_[a-z2-7]{26}`).FindString(said); err != nil || !failed || again == "" ||
				again == question || o.times(row.name) != 1 {
				t.Errorf("once more: %q %v, made %d times", said, err, o.times(row.name))
			}
		})
	}
	t.Run("over REST", func(t *testing.T) { // its session has one id at both
		write := map[string]string{"text": "over REST"}
		question := regexp.MustCompile(`a_[a-z2-7]{26}`).FindString(one.call(t, "waldo_ci", "notes.put", write))
		if question == "" {
			t.Fatal("no question")
		}
		if status, code := b.console(two, false).answer(question, "ann", "approve", key); status != 200 {
			t.Fatalf("%d %s", status, code)
		}
		said := two.call(t, "waldo_ci", "notes.put", write)
		if !strings.Contains(said, "put over REST") || o.times("over REST") != 1 {
			t.Errorf("%s, made %d times", said, o.times("over REST"))
		}
	})
	for _, r := range all {
		operate(t, r.state, "log", "verify")
	}
}

// TestProgramElsewhere: a program that was suspended at one replica goes on at another after the first was killed, once,
// with the answers to its calls. Another principal cannot let it go on.
func TestProgramElsewhere(t *testing.T) {
	b := newBalancer(t)
	all, o := replicasOf(t, "version: 1\nservers:\n  notes: {url: %q}\ncapabilities:\n"+
		"  notes.put: {mode: write, approval: always}\n"+
		"  run_javascript: {mode: write, approval: none, isolation: engine}\n"+
		"  run_typescript: {mode: write, approval: none, isolation: engine, writes: hold}\n"+
		"gateway: {url: "+b.url+"/mcp, auth: {tokens: {ci: %q, other: \""+identity.Hash("waldo_other")+"\"}}}\n")
	one, two := all[0], all[1]
	operate(t, one.state, "worker", "--new-key", filepath.Join(one.dir, "store.key"))
	at := filepath.Join(one.dir, "waldo.yaml")
	text, err := os.ReadFile(at)
	if err == nil {
		text = fmt.Appendf(text, "store: {key: \"file:%s/store.key\"}\n", one.dir)
		err = os.WriteFile(at, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		operate(t, r.state, "trust", at)
		r.start()
	}
	key := b.enrolled(all)
	for tool, code := range map[string]string{
		"run_javascript": `const r = await servers.notes.put({ text: 'run_javascript' }); console.log('after', String(r))`,
		"run_typescript": `const r = await servers.notes.put({ text: 'run_typescript' });
			console.log('after', String(await resultOf(r)))`,
	} {
		t.Run(tool, func(t *testing.T) {
			said := one.call(t, "waldo_ci", tool, map[string]string{"code": code})
			program := regexp.MustCompile(`g_[a-z2-7]{26}`).FindString(said)
			question := regexp.MustCompile(`a_[a-z2-7]{26}`).FindString(said)
			if program == "" || question == "" {
				t.Fatal(said)
			}
			_ = one.c.Process.Kill()
			_ = one.c.Wait()
			on := map[string]string{"resume": program}
			if got := two.call(t, "waldo_other", tool, on); !strings.Contains(got, "program.not_suspended") {
				t.Errorf("another principal: %s", got)
			}
			if status, code := b.console(two, false).answer(question, "ann", "approve", key); status != 200 {
				t.Fatalf("%d %s", status, code)
			}
			if got := two.call(t, "waldo_ci", tool, on); !strings.Contains(got, "after put "+tool) || o.times(tool) != 1 {
				t.Errorf("at the other: %s, made %d times", got, o.times(tool))
			}
			one.start()
			for _, r := range all {
				if got := r.call(t, "waldo_ci", tool, on); !strings.Contains(got, "program.not_suspended") || o.times(tool) != 1 {
					t.Errorf("once more: %s, made %d times", got, o.times(tool))
				}
			}
		})
	}
	for _, r := range all {
		operate(t, r.state, "log", "verify")
	}
}

// call makes a call over HTTP and returns the answer.
func (r *replica) call(t *testing.T, token, capability string, args map[string]string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"capability": capability, "arguments": args})
	if err != nil {
		t.Fatal(err)
	}
	at := *r.at.Load()
	at.Path = "/api/v1/calls"
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token}}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	said, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}
