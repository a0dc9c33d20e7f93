//go:build unix

package webhook

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	sign "waldo/internal/feature/webhook/signature"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
	"waldo/internal/storage/inbox"
	"waldo/internal/storage/presence"
)

// The variables that make this test binary a waldo of its own: its state directory, and where it kills itself.
const (
	stateOf = "HOOKS_TEST_STATE"
	killAt  = "HOOKS_TEST_KILL"
)

func TestMain(m *testing.M) {
	if state := os.Getenv(stateOf); state != "" {
		if err := child(state, os.Getenv(killAt)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// child receives and hands over until its standard input ends. Its calls leave a line in a file, between the records
// that the pipeline writes. at says where it kills itself, once.
func child(state, at string) error {
	s, err := database.Open(state)
	if err != nil {
		return err
	}
	log, err := audit.Open(context.Background(), s.Path("log"), audit.Options{Heads: s})
	if err != nil {
		return err
	}
	me, err := presence.New(s)
	if err != nil {
		return err
	}
	q := &inbox.Queue{Store: s, Holder: me.Name, Gone: presence.Gone(s)}
	record := &audit.Recorder{Log: log}
	cfg := &contract.Config{Webhooks: map[string]contract.Webhook{"h": {Name: "h", Scheme: "standard",
		Window: time.Hour,
		Secret: "env:S", MaxKB: 64, Tries: 100, Rate: contract.Rate{Calls: 10_000, Per: time.Second},
		Deliver: contract.HookTool{Tool: "s.t", Args: map[string]any{"id": "$json/id"}}}}}
	b := &bench{cfg: *cfg, secrets: map[secret.Ref]string{"env:S": standardSecret}}
	b.call = func(ctx context.Context, c call.Call) (call.Result, error) {
		d := policy.Decision{ID: id.New(id.Decision), Effect: policy.Allow, Call: c,
			Contract: contract.Contract{Mode: contract.Write}}
		if at == "claimed" {
			die()
		}
		if err := record.Decision(ctx, d); err != nil {
			return call.Result{}, err
		}
		if at == "decided" {
			die()
		}
		if err := effect(state, c); err != nil {
			return call.Result{}, err
		}
		if at == "acted" {
			die()
		}
		f := facts.New()
		f.Status, f.SideEffect, f.CallID = facts.OK, facts.Confirmed, c.ID
		r := call.Result{CallID: c.ID, Status: facts.OK, Facts: f}
		_, err := record.Outcome(ctx, d, r)
		if at == "recorded" {
			die()
		}
		return r, err
	}
	h := New(Options{Queue: q, Log: log, Kernel: benchKernel{b}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.Handler().ServeHTTP(w, r)
		if at == "stored" {
			die() // before the answer is sent
		}
	}))
	fmt.Println(srv.URL)
	ctx, end := context.WithCancel(context.Background())
	if at != "stored" {
		go h.Run(ctx)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	end()
	return errors.Join(log.Close(), me.Close(), s.Close())
}

const standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// effect appends a line in one write.
func effect(state string, c call.Call) error {
	f, err := os.OpenFile(filepath.Join(state, "effects"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%v\n", c.Args.Values()["id"])
	return errors.Join(err, f.Close())
}

// effects counts the lines.
func effects(t *testing.T, state string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(state, "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		out[strings.TrimSpace(line)]++
	}
	return out
}

// start starts a waldo of its own over a state directory.
func start(t *testing.T, state, at string) (url string, kill func()) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), stateOf+"="+state, killAt+"="+at)
	c.Stderr = os.Stderr
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = in.Close()
	}
}

// post sends the webhook n, as its sender does each time, and returns the status; 0: no answer.
func post(t *testing.T, url string, n int) int {
	t.Helper()
	k, err := sign.Standard.Key(standardSecret)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"id":"e%d"}`, n)
	r, err := http.NewRequest(http.MethodPost, url+"/hooks/h", strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header = sign.Standard.Sign(k, fmt.Sprint("msg_", n), time.Unix(time.Now().Unix(), 0), []byte(body))
	a, err := (&http.Client{Timeout: 20 * time.Second}).Do(r)
	if err != nil {
		return 0
	}
	_ = a.Body.Close()
	return a.StatusCode
}

// waiting returns the deliveries of a state directory in which no waldo runs.
func waiting(t *testing.T, state string) []*inbox.Delivery {
	t.Helper()
	s, err := database.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := (&inbox.Queue{Store: s}).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKilled kills waldo at each step of one webhook and starts it again. The sender tries until it has an answer.
func TestKilled(t *testing.T) {
	for at, want := range map[string]struct {
		first   int // the sender's answer
		effects int
		dead    string
	}{
		"stored":   {0, 1, ""},                         // its second try is acknowledged, and stored once
		"claimed":  {202, 1, ""},                       // nothing was recorded: it had not begun
		"decided":  {202, 0, "can have had an effect"}, // the log cannot tell: the operator decides
		"acted":    {202, 1, "can have had an effect"}, // the same, and it is not done twice
		"recorded": {202, 1, ""},                       // the log has its outcome
		"":         {202, 1, ""},                       // control
	} {
		t.Run("at "+at, func(t *testing.T) {
			state := t.TempDir()
			url, kill := start(t, state, at)
			if got := post(t, url, 1); got != want.first && got != 0 {
				t.Errorf("first: %d", got)
			}
			time.Sleep(300 * time.Millisecond)
			kill()
			url, kill = start(t, state, "")
			if got := post(t, url, 1); got != 200 && got != 409 {
				t.Errorf("the sender's second try: %d", got)
			}
			for range 200 {
				if all := waiting(t, state); len(all) == 0 || all[0].State == inbox.Dead {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			kill()
			if n := effects(t, state)["e1"]; n != want.effects {
				t.Errorf("%d effects, not %d", n, want.effects)
			}
			all := waiting(t, state)
			if want.dead == "" && len(all) != 0 || want.dead != "" && (len(all) != 1 || all[0].State != inbox.Dead ||
				!strings.Contains(all[0].Reason, want.dead)) {
				b, _ := json.Marshal(all)
				t.Errorf("left: %s", b)
			}
		})
	}
}

// TestKilledAtRandom kills waldo again and again while webhooks arrive. Each is handed over once, or it is dead
// because waldo ended in the middle of its call.
func TestKilledAtRandom(t *testing.T) {
	const n = 40
	state := t.TempDir()
	taken := map[int]bool{}
	for round := 0; len(taken) < n && round < 60; round++ {
		url, kill := start(t, state, "")
		timer := time.AfterFunc(time.Duration(20+rand.IntN(250))*time.Millisecond, kill)
		for i := range n {
			if taken[i] {
				continue
			}
			got := post(t, url, i)
			if got == 0 {
				break // killed
			}
			if taken[i] = got == 202 || got == 200 || got == 409; !taken[i] {
				t.Errorf("%d: %d", i, got)
			}
		}
		timer.Stop()
		kill()
	}
	_, kill := start(t, state, "")
	for range 400 {
		open := false
		for _, d := range waiting(t, state) {
			open = open || d.State != inbox.Dead
		}
		if !open {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	kill()
	dead := map[string]bool{}
	for _, d := range waiting(t, state) {
		if d.State != inbox.Dead || !strings.Contains(d.Reason, "can have had an effect") {
			t.Errorf("left: %+v", d)
		}
		dead[strings.TrimPrefix(d.Name, "msg_")] = true
	}
	had := effects(t, state)
	for i := range n {
		e := had[fmt.Sprint("e", i)]
		if e > 1 || e == 0 && !dead[fmt.Sprint(i)] {
			t.Errorf("webhook %d had %d effects; dead: %v", i, e, dead[fmt.Sprint(i)])
		}
	}
	t.Logf("%d accepted, %d dead", len(taken), len(dead))
	if len(taken) != n {
		t.Errorf("%d of %d accepted", len(taken), n)
	}
}
