package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/storage/database"
	"waldo/internal/testing/pgtest"
)

// line is a TCP proxy that can be cut.
type line struct {
	l     net.Listener
	mu    sync.Mutex
	to    string
	state string // "", cut: every connection is reset, silent: what arrives is dropped
	open  map[net.Conn]bool
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &line{l: l, to: to, open: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = l.Close(); n.set("cut", "") })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go n.carry(c)
		}
	}()
	return n
}

func (n *line) addr() string { return n.l.Addr().String() }

// set changes the state of the line, and with to its end. What was connected before a line works again is reset: it
// has lost bytes.
func (n *line) set(state, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state = state; to != "" {
		n.to = to
	}
	if state == "silent" {
		return
	}
	for c := range n.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
		delete(n.open, c)
	}
}

// join adds a connection, unless the line is cut.
func (n *line) join(c net.Conn) (to string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == "cut" {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
		return "", false
	}
	n.open[c] = true
	return n.to, true
}

func (n *line) leave(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.open, c)
	_ = c.Close()
}

func (n *line) silent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == "silent"
}

func (n *line) carry(c net.Conn) {
	to, ok := n.join(c)
	if !ok {
		return
	}
	defer n.leave(c)
	s, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return
	}
	if _, ok := n.join(s); !ok {
		return
	}
	defer n.leave(s)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		both.Go(func() {
			b := make([]byte, 32<<10)
			for {
				k, err := way[0].Read(b)
				if err == nil && !n.silent() {
					_, err = way[1].Write(b[:k])
				}
				if err != nil {
					_ = c.Close()
					_ = s.Close()
					return
				}
			}
		})
	}
	both.Wait()
}

// The parts of the system under faults.
const (
	failoverGateways = 3
	failoverClients  = 12
	failoverTokens   = 6 // a principal has at most 10,000 remembered calls
	failoverWorkers  = 2
	failoverRuns     = 4 // one in so many writes is made by a program at a worker
)

const failoverConfig = `version: 1
store: {url: "postgres://postgres@127.0.0.1/postgres?sslmode=disable"} # each process has a $PGPORT
workers: {key: "file:%[1]s/key", wait: 5s}
servers: {notes: {url: "http://%[2]s"}}
capabilities:
  notes.find: {mode: read, approval: none, timeout_seconds: 2}
  notes.put: {mode: write, approval: none, timeout_seconds: 2, idempotency: {window: 24h},
    settle: {by: notes.find, args: {text: args.text}, happened: "result.total > 0.0", within: 1s}}
  run_python: {mode: write, approval: none, isolation: namespace, timeout_seconds: 5, idempotency: {window: 24h},
    network: {allow: ["localhost:%[3]s"]},
    settle: {by: notes.find, args: {text: "args.args[0]"}, happened: "result.total > 0.0", within: 1s}}
gateway: {auth: {tokens: {%[4]s}}}
`

// failoverProgram writes the text that it is given, through the egress of its worker.
const failoverProgram = `import random, sys, time, urllib.request
time.sleep(random.random() / 2)
urllib.request.urlopen("http://localhost:%s/run/" + sys.argv[1], timeout=4)
`

// member is one gateway with its own line to the database.
type member struct {
	*replica
	db *line
}

// system is gateways on one PostgreSQL with a synchronous standby, a server that counts writes, and their clients.
type system struct {
	*testing.T
	members []*member
	workers []*member // processes that carry out runs
	primary *pgtest.Server
	standby *pgtest.Server
	notes   *oracle
	server  *line
	program string

	most    int64 // calls, at least
	next    atomic.Int64
	faulted atomic.Bool // every fault was made

	mu     sync.Mutex
	faults map[string]int    // by name
	heard  map[string]int    // what clients were answered
	acted  map[string]string // the call that acted, by the text of each acknowledged write
	took   []time.Duration   // from the first try of a write to its acknowledgement
}

func (s *system) note(in map[string]int, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in[what]++
}

func systemOf(t *testing.T, most int64) *system {
	t.Helper()
	s := &system{T: t, most: most, notes: &oracle{made: map[string]int{}, late: 20 * time.Millisecond},
		faults: map[string]int{}, heard: map[string]int{}, acted: map[string]string{}}
	s.primary = pgtest.New(t, "max_connections=100")
	var err error
	if s.standby, err = s.primary.Standby(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.primary.Stop(); s.standby.Stop() })
	at, err := url.Parse(s.notes.serve(t))
	if err != nil {
		t.Fatal(err)
	}
	s.server = newLine(t, at.Host)
	dir, tokens := t.TempDir(), []string{}
	for i := range failoverTokens {
		tokens = append(tokens, fmt.Sprintf("c%d: %q", i, identity.Hash(fmt.Sprint("waldo_c", i))))
	}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "waldo"))
	}
	_, port, _ := net.SplitHostPort(s.server.addr())
	s.program = fmt.Sprintf(failoverProgram, port)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "waldo.yaml"), fmt.Appendf(nil, failoverConfig, dir, s.server.addr(), port,
			strings.Join(tokens, ", ")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	operate(t, filepath.Join(dir, "w0"), "worker", "--new-key", filepath.Join(dir, "key"))
	for i := range failoverWorkers {
		s.workers = append(s.workers, s.join(dir, fmt.Sprint("w", i), "worker"))
	}
	for i := range failoverGateways {
		s.members = append(s.members, s.join(dir, fmt.Sprint("g", i)))
	}
	return s
}

// join binds a state directory to the database and starts a process of it: a gateway, or another command.
func (s *system) join(dir, name string, does ...string) *member {
	s.Helper()
	const at = "postgres://postgres@127.0.0.1/postgres?sslmode=disable"
	m := &member{&replica{t: s.T, dir: dir, state: filepath.Join(dir, name), does: does},
		newLine(s.T, fmt.Sprint("127.0.0.1:", s.primary.Port))}
	_, port, _ := net.SplitHostPort(m.db.addr())
	m.env = []string{"PGPORT=" + port}
	s.Setenv("PGPORT", port)
	if _, _, err := database.Migrate(s.Context(), m.state, at); err != nil {
		s.Fatal(err)
	}
	m.start()
	return m
}

// client makes writes until there are enough.
func (s *system) client(n int) {
	c := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{}}
	for i := s.next.Add(1); (i <= s.most || !s.faulted.Load()) && s.Context().Err() == nil; i = s.next.Add(1) {
		text, what := fmt.Sprint("w", i), map[string]any{}
		if what["capability"], what["arguments"] = "notes.put", map[string]any{"text": text}; i%failoverRuns == 0 {
			what["capability"] = "run_python"
			what["arguments"] = map[string]any{"code": s.program, "args": []string{text}}
		}
		body, err := json.Marshal(what)
		if err != nil {
			s.Error(err)
			return
		}
		s.write(c, fmt.Sprint("waldo_c", n%failoverTokens), text, string(body))
		time.Sleep(rand.N(100 * time.Millisecond))
	}
}

// write makes one write under its key, at any gateway, until it is acknowledged.
func (s *system) write(c *http.Client, token, text, body string) {
	began := time.Now()
	for s.Context().Err() == nil {
		wait := s.once(c, token, text, body)
		if wait == 0 {
			break
		}
		time.Sleep(wait)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, time.Since(began))
}

// once tries a write. It returns how long to wait before the next try; 0: the write is acknowledged.
func (s *system) once(c *http.Client, token, text, body string) time.Duration {
	const soon = 100 * time.Millisecond
	at := *s.members[rand.N(len(s.members))].at.Load()
	at.Path = "/api/v1/calls"
	q, err := http.NewRequestWithContext(s.Context(), http.MethodPost, at.String(), strings.NewReader(body))
	if err != nil {
		s.Error(err)
		return 0
	}
	q.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token},
		"Idempotency-Key": {text}}
	a, err := c.Do(q)
	if err != nil {
		s.note(s.heard, "no answer")
		return soon
	}
	defer a.Body.Close()
	if a.StatusCode >= http.StatusInternalServerError || a.StatusCode == http.StatusNotFound {
		s.note(s.heard, strconv.Itoa(a.StatusCode))
		return soon
	}
	var r struct {
		Status   facts.Status
		CallID   string `json:"call_id"`
		ReplayOf string `json:"replay_of"`
		Settled  call.Settled
		Reasons  []call.Reason
		Code     string
	}
	if err := json.NewDecoder(a.Body).Decode(&r); err != nil {
		s.note(s.heard, fmt.Sprintf("%d and no JSON", a.StatusCode))
		return soon
	}
	what := fmt.Sprintf("%d %s%s", a.StatusCode, r.Status, r.Code)
	if strings.Contains(body, `"run_python"`) {
		what = "run: " + what
	}
	if len(r.Reasons) > 0 {
		what += " " + r.Reasons[0].Code
	}
	if r.Settled != "" {
		what += " " + string(r.Settled)
	}
	if r.ReplayOf != "" {
		what += " replayed"
	}
	s.note(s.heard, what)
	if a.StatusCode != http.StatusOK || r.Status != facts.OK && r.Settled != call.Happened {
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		return max(soon, time.Duration(seconds)*time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acted[text] = cmp.Or(r.ReplayOf, r.CallID)
	return 0
}

// kill ends a gateway with a signal and starts it again, as whoever watches over it does.
func (s *system) kill(m *member, by os.Signal) {
	_ = m.c.Process.Signal(by)
	_ = m.c.Wait()
	s.again(m)
}

// again starts a gateway, also where its database is away.
func (s *system) again(m *member) {
	for end := time.Now().Add(2 * time.Minute); s.Context().Err() == nil; time.Sleep(200 * time.Millisecond) {
		err := m.launch()
		if err == nil {
			return
		}
		s.note(s.faults, "a start that failed")
		if time.Now().After(end) {
			s.Errorf("a gateway does not start: %v", err)
			return
		}
	}
}

// failover kills the primary and every process of it, and has the standby take over. A new standby follows that one.
func (s *system) failover() error {
	old := s.primary
	if err := old.Kill(); err != nil {
		return err
	}
	time.Sleep(rand.N(500 * time.Millisecond)) // until somebody notices
	if err := s.standby.Promote(); err != nil {
		return err
	}
	s.primary = s.standby
	for _, m := range append(slices.Clone(s.members), s.workers...) {
		m.db.set("", fmt.Sprint("127.0.0.1:", s.primary.Port))
	}
	old.Stop()
	next, err := s.primary.Standby()
	if err == nil {
		s.standby = next
	}
	return err
}

// storm makes every fault, in another order each time, until the clients have their writes.
func (s *system) storm(pause time.Duration) {
	for round := 0; round == 0 || s.next.Load() < s.most && s.Context().Err() == nil; round++ {
		all := []string{"SIGKILL of a gateway", "SIGKILL of a gateway", "SIGKILL of a gateway", "SIGSTOP of a gateway",
			"SIGSTOP of a gateway", "database cut", "database silent", "server cut", "server silent", "failover of PostgreSQL",
			"SIGTERM of a gateway", "SIGKILL of a worker", "SIGKILL of a worker", "SIGTERM of a worker",
			"SIGSTOP of a worker", "database cut of a worker", "database silent of a worker"}
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, fault := range all {
			if round > 0 && s.next.Load() >= s.most {
				break
			}
			m := s.members[rand.N(len(s.members))]
			some := 200*time.Millisecond + rand.N(pause)
			fault, of := strings.CutSuffix(fault, " of a worker")
			if of {
				m, some = s.workers[rand.N(len(s.workers))], some+4*time.Second // longer than its lease
			}
			switch name, how, _ := strings.Cut(fault, " "); name {
			case "SIGKILL":
				s.kill(m, syscall.SIGKILL)
			case "SIGTERM":
				s.kill(m, syscall.SIGTERM)
			case "SIGSTOP":
				_ = m.c.Process.Signal(syscall.SIGSTOP)
				time.Sleep(some)
				_ = m.c.Process.Signal(syscall.SIGCONT)
			case "database", "server":
				at := m.db
				if name == "server" {
					at = s.server
				}
				at.set(how, "")
				time.Sleep(some)
				at.set("", "")
			case "failover":
				if err := s.failover(); err != nil {
					s.Error(err)
				}
			}
			if of {
				fault += " of a worker"
			}
			s.note(s.faults, fault)
			time.Sleep(rand.N(300 * time.Millisecond))
		}
		s.faulted.Store(true)
	}
}

// TestFailover: clients write with keys while gateways are killed, paused and cut off, and PostgreSQL fails over.
// $WALDO_CALLS is the least number of writes.
func TestFailover(t *testing.T) {
	most, pause := int64(60), 600*time.Millisecond
	if text := os.Getenv("WALDO_CALLS"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		most, pause = n, 3*time.Second
	}
	s := systemOf(t, most)
	began := time.Now()
	var clients sync.WaitGroup
	for n := range failoverClients {
		clients.Go(func() { s.client(n) })
	}
	s.storm(pause)
	clients.Wait()
	s.report(time.Since(began))
}

// report compares what clients were answered with what the server counted and with the logs.
func (s *system) report(ran time.Duration) {
	s.Helper()
	for _, m := range append(slices.Clone(s.members), s.workers...) {
		// the last process has recorded what one that was killed left open
		m.end()
	}
	decided, ended := map[string]string{}, map[string]bool{} // the text of each call; whether its outcome is there
	for _, m := range s.members {
		if said := operate(s.T, m.state, "log", "verify"); !strings.Contains(said, "sound") {
			s.Error(said)
		}
		for text := range strings.Lines(operate(s.T, m.state, "log", "--json", "-n", "0")) {
			if !strings.HasPrefix(text, "{") {
				continue // a word about the number
			}
			var r struct {
				Kind string
				Body struct {
					CallID     string `json:"call_id"`
					Capability string
					Effect     string
					Args       struct {
						Text string
						Args []string
					}
				}
			}
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				s.Fatalf("%v: %s", err, text)
			}
			switch r.Kind {
			case "decision":
				if text := cmp.Or(r.Body.Args.Text, strings.Join(r.Body.Args.Args, " ")); r.Body.Effect == "allow" &&
					r.Body.Capability != "notes.find" {
					decided[r.Body.CallID] = text
				}
			case "outcome":
				ended[r.Body.CallID] = true
			}
		}
	}
	lost, twice, missing := 0, 0, 0
	for text, id := range s.acted {
		switch s.notes.times(text) {
		case 0:
			lost++
			s.Errorf("%s was acknowledged as %s, and the server has no effect of it", text, id)
		case 1:
		default:
			twice++
			s.Errorf("%s was made %d times", text, s.notes.times(text))
		}
		if decided[id] != text {
			missing++
			s.Errorf("%s was acknowledged as %s, whose decision is in no log: %q", text, id, decided[id])
		}
	}
	for id, text := range decided {
		if !ended[id] {
			missing++
			s.Errorf("%s, a call of %s, has no outcome in the log", id, text)
		}
	}
	slices.Sort(s.took)
	share := func(q float64) time.Duration {
		return s.took[int(q*float64(len(s.took)-1))].Round(time.Millisecond)
	}
	s.Logf("%d writes acknowledged in %v, as %d calls; p50 %v, p99 %v, longest %v; lost %d, twice %d, records missing %d",
		len(s.acted), ran.Round(time.Second), len(decided), share(0.5), share(0.99), share(1), lost, twice, missing)
	for _, table := range []map[string]int{s.faults, s.heard} {
		for _, what := range slices.Sorted(maps.Keys(table)) {
			s.Logf("%6d %s", table[what], what)
		}
	}
	if int64(len(s.acted)) < s.most {
		s.Errorf("%d writes were acknowledged", len(s.acted))
	}
}
