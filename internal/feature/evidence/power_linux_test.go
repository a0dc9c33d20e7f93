package evidence

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/app/trust"
	"waldo/internal/cli"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/session"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/testing/powertest"
)

// A waldo writes to a disk that forgets what was not flushed. It acknowledges outside of that disk.
//
// world is what does not lose power: the configuration, and a server whose effects stay as they were at the cut.
type world struct{ dir, state, record string }

const worldVariable = "POWER_TEST_WORLD" // a world in JSON, for the process that writes

func TestMain(m *testing.M) {
	powertest.Main()
	app.Child()
	switch text := os.Getenv(worldVariable); {
	case len(os.Args) == 3 && os.Args[1] == "power-server":
		dir, record, _ := strings.Cut(os.Args[2], "::") // no path: waldo trust would hold it
		serveEffects(dir, record)
	case text != "":
		var w struct{ Dir, State, Record string }
		err := json.Unmarshal([]byte(text), &w)
		if err == nil {
			err = world{w.Dir, w.State, w.Record}.write(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

const powerConfig = `version: 1
servers:
  s: {command: [%[1]q, power-server, "%[2]s::%[3]s"], placement: outside}
capabilities:
  s.find: {mode: read, approval: none}
  s.create:
    mode: write
    approval: none
    timeout_seconds: 5
    settle: {by: s.find, args: {title: args.title}, happened: "result.total > 0.0", within: 1s}
  s.pay: {mode: write, approval: always}
`

// serveEffects is an MCP server. An effect is a line of its title and the place in the record of the disk.
func serveEffects(dir, record string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Title string }
			}
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		title := m.Params.Arguments.Title
		var result any
		switch m.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": "2025-11-25",
				"capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo":   map[string]any{"name": "power", "version": "1"}}
		case "tools/list":
			title := map[string]any{"title": map[string]any{"type": "string"}}
			schema := map[string]any{"type": "object", "properties": title}
			var all []any
			for _, name := range []string{"find", "create", "pay"} {
				all = append(all, map[string]any{"name": name, "description": name, "inputSchema": schema})
			}
			result = map[string]any{"tools": all}
		case "tools/call":
			if m.Params.Name != "find" {
				appendLine(filepath.Join(dir, "effects"), fmt.Sprintf("%s %d\n", title, size(record)))
			}
			total := map[string]any{"total": effectsOf(dir)[title]}
			text, _ := json.Marshal(total)
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": string(text)}},
				"structuredContent": total}
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}`+"\n", m.ID)
			continue
		}
		b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		fmt.Println(string(b))
	}
}

func appendLine(file, line string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err)
	}
}

func size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		panic(err)
	}
	return info.Size()
}

// effectsOf counts the effects of each title.
func effectsOf(dir string) map[string]int {
	b, _ := os.ReadFile(filepath.Join(dir, "effects"))
	n := map[string]int{}
	for line := range strings.Lines(string(b)) {
		title, _, _ := strings.Cut(line, " ")
		n[title]++
	}
	return n
}

func (w world) open(ctx context.Context) (*app.App, session.Info, error) {
	config := filepath.Join(w.dir, "waldo.yaml")
	h, err := app.New(ctx, app.Options{State: w.state, Openers: []app.Opener{open}, Version: "test",
		Source: configfile.Source{Config: config, State: w.state, Say: func(string) {}}})
	if err != nil {
		return nil, session.Info{}, err
	}
	n, err := h.OpenCLI(ctx)
	return h, n, err
}

func order(ctx context.Context, h *app.App, n session.Info, tool, title, key, quoted string) (call.Result, error) {
	args, err := call.ArgsOf(map[string]any{"title": title})
	if err != nil {
		return call.Result{}, err
	}
	c := call.Call{ID: id.New(id.Call), Capability: call.Capability("s." + tool), Args: args, Session: n.ID,
		Principal: n.Principal, Channel: "cli", Key: key, ApprovalID: quoted}
	if why := h.Prepare(ctx, &c); why != nil {
		return call.Result{}, fmt.Errorf("%s: %s", why.Code, why.Text)
	}
	return h.Call(ctx, c)
}

// powerAnn signs for the approver of the test.
var powerAnn = approval.NewSigner("ann", ed25519.NewKeyFromSeed(make([]byte, 32)))

// acked is one thing that the writer was told is done, and what the disk had been sent by then. Begun is one that it is
// about to ask for.
type acked struct {
	What, Title, Approval, Digest string
	N                             uint64
	At                            int64
}

// write is the process that writes: three workers, of keyed calls, of approvals, and of records in short segments with
// checkpoints over all.
func (w world) write(ctx context.Context) error {
	var mu sync.Mutex
	ack := func(a acked) {
		mu.Lock()
		defer mu.Unlock()
		a.At = size(w.record)
		b, _ := json.Marshal(a)
		fmt.Println(string(b))
	}
	signed, err := w.trusted()
	if err != nil {
		return err
	}
	h, n, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	public := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	if _, err := h.Approvals.EnrollKey(ctx, "ann", nil, public, powerAnn, signed...); err != nil {
		return err
	}
	ack(acked{What: "enrolled"})
	rounds, err := strconv.Atoi(os.Getenv("POWER_TEST_ROUNDS"))
	short := app.LogOptions(h.Store)
	short.SegmentBytes = 24 << 10
	log, lerr := audit.Open(ctx, audit.Dir(w.state), short)
	if err = errors.Join(err, lerr); err != nil {
		return err
	}
	defer log.Close()
	done := make(chan error, 3)
	go func() { done <- writeKeyed(ctx, h, n, rounds, ack) }()
	go func() { done <- writeApproved(ctx, h, n, rounds, ack) }()
	go func() { done <- writeTree(ctx, h, log, rounds, ack) }()
	return errors.Join(<-done, <-done, <-done)
}

// trusted does what waldo trust does, and returns what the first approver signs of it.
func (w world) trusted() ([]approval.Configuration, error) {
	file := filepath.Join(w.dir, "waldo.yaml")
	digest, err := trust.Digest(file)
	if err == nil {
		err = os.Mkdir(w.state, 0o700)
	}
	if err == nil {
		err = trust.Write(w.state, map[string]trust.Record{file: {Digest: digest, Lock: trust.NoLock}})
	}
	if err != nil {
		return nil, err
	}
	return app.TrustedNow(w.state)
}

func writeKeyed(ctx context.Context, h *app.App, n session.Info, rounds int, ack func(acked)) error {
	for i := range rounds {
		title := fmt.Sprint("k", i)
		ack(acked{What: "begun", Title: title})
		r, err := order(ctx, h, n, "create", title, title, "")
		if err != nil || r.Status != facts.OK {
			return fmt.Errorf("%s: %s %v: %w", title, r.Status, r.Why, err)
		}
		ack(acked{What: "done", Title: title, N: r.Logged.Seq, Digest: r.Logged.Digest})
	}
	return nil
}

func writeApproved(ctx context.Context, h *app.App, n session.Info, rounds int, ack func(acked)) error {
	for i := range rounds {
		title := fmt.Sprint("p", i)
		r, err := order(ctx, h, n, "pay", title, "", "")
		if err != nil || r.Status != facts.Waiting {
			return fmt.Errorf("%s: %s %v: %w", title, r.Status, r.Why, err)
		}
		asked := r.ApprovalID
		ack(acked{What: "asked", Title: title, Approval: asked})
		q, _, err := h.Approvals.Question(ctx, asked)
		if err == nil {
			err = h.Approvals.Answer(ctx, powerAnn, q, true, "")
		}
		if err != nil {
			return err
		}
		ack(acked{What: "yes", Title: title, Approval: asked})
		ack(acked{What: "begun", Title: title})
		r, err = order(ctx, h, n, "pay", title, "", asked)
		if err != nil || r.Status != facts.OK {
			return fmt.Errorf("%s: %s %v: %w", title, r.Status, r.Why, err)
		}
		ack(acked{What: "used", Title: title, Approval: asked, N: r.Logged.Seq, Digest: r.Logged.Digest})
	}
	return nil
}

func writeTree(ctx context.Context, h *app.App, log *audit.Log, rounds int, ack func(acked)) error {
	t := treeOf(h.Store)
	for i := range 4 * rounds {
		r, err := log.Append(ctx, "test", fmt.Appendf(nil, `{"n":%d,"pad":%q}`, i, strings.Repeat("x", 500)), true)
		if err != nil {
			return err
		}
		ack(acked{What: "record", N: r.Seq, Digest: r.Hash})
		if i%4 != 0 {
			continue
		}
		at, err := t.grown(ctx, h.Store)
		if err != nil {
			return err
		}
		ack(acked{What: "checkpoint", N: uint64(at.N), Digest: at.Hash.String()})
	}
	return nil
}

// TestPower cuts the power at many points of one run. POWER_CUTS sets how many; POWER_WALDO names a waldo whose `log
// verify` judges, too.
func TestPower(t *testing.T) {
	if !powertest.Own(t) {
		return
	}
	cuts, rounds := 6, 8
	if text := os.Getenv("POWER_CUTS"); text != "" {
		var err error
		if cuts, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		rounds = 60
	}
	d := powertest.New(t, 64<<20)
	w := world{t.TempDir(), filepath.Join(d.Dir, "state"), d.Record}
	config := fmt.Appendf(nil, powerConfig, os.Args[0], w.dir, w.record)
	if err := os.WriteFile(filepath.Join(w.dir, "waldo.yaml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	all := w.run(t, rounds)
	effects, err := os.ReadFile(filepath.Join(w.dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	first, last := all[0].At, all[len(all)-1].At
	places := make([]int64, cuts)
	for i := range places {
		if places[i] = all[random.IntN(len(all))].At; i%2 == 0 { // half of them as soon as something was acknowledged
			places[i] = first + random.Int64N(last-first+1)
		}
	}
	slices.Sort(places)
	t.Logf("seed %d: %d acknowledgements, %d bytes sent to the disk, %d cuts", seed, len(all), last, cuts)
	c, image, forgotten := d.Cuts(t, seed), filepath.Join(t.TempDir(), "cut"), 0
	for i, at := range places {
		keep := []float64{0, 1, random.Float64()}[i%3]
		lost, err := c.Image(image, at, keep)
		if err != nil {
			t.Fatal(err)
		}
		forgotten += min(lost, 1)
		if !t.Run(fmt.Sprintf("%d at %d", i, at), func(t *testing.T) {
			powertest.Mount(t, image, d.Dir) // over the disk: paths stay what they are
			defer powertest.Unmount(t, d.Dir)
			w.judge(t, at, all, string(effects))
		}) {
			t.Fatalf("a cut at %d of which %d sectors were lost; keep %v", at, lost, keep)
		}
	}
	if cuts >= 50 && forgotten == 0 { // of few, it can happen; the control of those is TestCut
		t.Error("control: no cut lost anything that was not flushed")
	}
	t.Logf("%d cuts, %d of which lost sectors: 0 lost, 0 twice, 0 unverifiable", cuts, forgotten)
}

// run runs the writer and returns what it acknowledged.
func (w world) run(t *testing.T, rounds int) (all []acked) {
	t.Helper()
	text, _ := json.Marshal(map[string]string{"Dir": w.dir, "State": w.state, "Record": w.record})
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), worldVariable+"="+string(text), fmt.Sprint("POWER_TEST_ROUNDS=", rounds))
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("the writer: %v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		var a acked
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, a)
	}
	if len(all) < 10*rounds {
		t.Fatalf("control: %d acknowledgements", len(all))
	}
	return all
}

// judge checks the state directory after a cut, and goes on from there.
func (w world) judge(t *testing.T, at int64, all []acked, effects string) {
	var happened strings.Builder
	for line := range strings.Lines(effects) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if when, err := strconv.ParseInt(text, 10, 64); err != nil || when <= at {
			happened.WriteString(line)
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, "effects"), []byte(happened.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	past := all[:slices.IndexFunc(append(all, acked{At: at + 1}), func(a acked) bool { return a.At > at })]
	w.verified(t, true, past)
	h, n, err := w.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.resume(t, h, n, past)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	w.verified(t, false, past)
}

// verified runs what waldo log verify runs, and holds what was acknowledged of records and checkpoints against the log.
// Before the next waldo, the last line can be torn, and the head behind.
func (w world) verified(t *testing.T, first bool, past []acked) {
	t.Helper()
	ctx, when := t.Context(), "after the next waldo"
	if first {
		when = "after the cut"
	}
	g := &cli.Context{Config: filepath.Join(w.dir, "waldo.yaml"), State: w.state, Evidence: Evidence{}}
	r, err := g.Verify(ctx, nil, false)
	torn := first && slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.Code == "line.torn" })
	unsound := func(f audit.Finding) bool { return f.Problem && !(torn && f.Code == "line.torn") }
	unchecked := func(f audit.Finding) bool { return f.Unchecked && !(first && f.Code == "head.behind") }
	if err != nil || slices.ContainsFunc(r.Findings, unchecked) || !r.OK && !torn || slices.ContainsFunc(r.Findings, unsound) {
		t.Errorf("%s: verify: %v %+v", when, err, r)
	}
	if tool := os.Getenv("POWER_WALDO"); tool != "" {
		c := exec.CommandContext(ctx, tool, "--config", g.Config, "--state", w.state, "log", "verify")
		out, err := c.CombinedOutput()
		if (err == nil) != (r.OK && r.Complete) {
			t.Errorf("%s: waldo log verify: %v: %s", when, err, out)
		}
	}
	s, err := g.OpenStorage()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var word string
	err = s.Store.View(ctx, func(tx *sql.Tx) error { return tx.QueryRow("PRAGMA integrity_check").Scan(&word) })
	if err != nil || word != "ok" {
		t.Errorf("%s: the database: %s, %v", when, word, err)
	}
	records := map[uint64]string{}
	err = audit.Range(ctx, audit.Dir(w.state), 0, 1<<40, func(r audit.Record) error {
		records[r.Seq] = r.Hash
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	tree := treeOf(s.Store)
	for _, a := range past {
		if a.Digest != "" && a.What != "checkpoint" && records[a.N] != a.Digest {
			t.Errorf("%s: record %d, acknowledged as %s, is %q", when, a.N, a.Digest, records[a.N])
		}
		if a.What != "checkpoint" {
			continue
		}
		if c, err := tree.Read(); err != nil || c == nil || uint64(c.N) < a.N {
			t.Errorf("%s: the checkpoint of %d records is gone: %+v, %v", when, a.N, c, err)
		}
	}
}

// resume makes the last acknowledged calls again, and those under way at the cut.
func (w world) resume(t *testing.T, h *app.App, n session.Info, past []acked) {
	ctx, last := t.Context(), map[string]acked{}
	titles := []string{}
	for _, a := range past {
		if a.Title != "" {
			if last[a.Title].What == "" {
				titles = append(titles, a.Title)
			}
			a.Approval = cmp.Or(a.Approval, last[a.Title].Approval)
			last[a.Title] = a
		}
	}
	before := effectsOf(w.dir)
	for _, title := range titles[max(0, len(titles)-10):] {
		a := last[title]
		var r call.Result
		var err error
		if a.Approval == "" {
			r, err = order(ctx, h, n, "create", title, title, "")
			if why := r.Cause(); a.What == "begun" && len(why) > 0 && why[0].Code == "idempotency.unknown" {
				time.Sleep(time.Duration(why[0].RetryAfter) * time.Second) // its server could still act on it, by its timeout
				r, err = order(ctx, h, n, "create", title, title, "")
			}
			if err != nil || r.Status != facts.OK || a.What == "done" && r.Replayed == "" {
				t.Errorf("%s, which was %s: %s %v %v, replay of %q", title, a.What, r.Status, r.Why, err, r.Replayed)
			}
		} else {
			r, err = w.quote(ctx, t, h, n, a, before[title])
		}
		if got := effectsOf(w.dir)[title]; err != nil || got > 1 || got == 0 && r.Status == facts.OK {
			t.Errorf("%s, which was %s: %d effects, %s, %v", title, a.What, got, r.Status, err)
		}
	}
	if r, err := order(ctx, h, n, "create", "after", "after", ""); err != nil || r.Status != facts.OK {
		t.Errorf("a new call: %s %v, %v", r.Status, r.Why, err)
	}
}

// quote quotes an approval after a cut. One that was used acts no more; one that was answered, and not yet used, acts.
func (w world) quote(
	ctx context.Context, t *testing.T, h *app.App, n session.Info, a acked, effects int,
) (call.Result, error) {
	_, state, err := h.Approvals.Question(ctx, a.Approval)
	if err != nil {
		t.Errorf("the question %s of %s, which was %s: %v", a.Approval, a.Title, a.What, err)
	}
	r, err := order(ctx, h, n, "pay", a.Title, "", a.Approval)
	switch {
	case a.What == "used" && (state != approval.Used || r.Status != facts.Denied || effects != 1):
		t.Errorf("%s was used: %s, %s %v, %d effects at the cut", a.Title, state, r.Status, r.Why, effects)
	case a.What == "yes" && (state != approval.Yes || r.Status != facts.OK):
		t.Errorf("%s was answered with yes: %s, %s %v", a.Title, state, r.Status, r.Why)
	case a.What == "begun" && effects == 1 && r.Status == facts.OK:
		t.Errorf("%s acted before the cut, and its yes served again", a.Title)
	}
	return r, err
}
