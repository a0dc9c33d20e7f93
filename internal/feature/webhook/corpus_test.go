package webhook

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/storage/database"
	"waldo/internal/storage/inbox"
	"waldo/internal/testing/corpus"
)

// row is one line of the corpus, or one request of a sequence.
type row struct {
	ID, Class, Why string
	Expect         any
	Input          struct {
		request
		Scheme    string
		Secrets   []string
		Tolerance int `json:"tolerance_s"`
		Sequence  []request

		Key  string `json:"key_hex"`
		Msg  string `json:"msg_hex"`
		Tag  string `json:"tag_hex"`
		Full bool   `json:"require_full_length"`
	}
}

type request struct {
	Now      int64
	Method   string
	Headers  [][2]string
	Body     string `json:"body_b64"`
	Endpoint string
	Handler  string
	Parallel string
	Clock    int64 `json:"set_clock"`
}

// bench is the front end with a real queue and log. Its clock stands still.
type bench struct {
	*Hooks
	address string
	log     *audit.Log
	mu      sync.Mutex
	at      time.Time
	fails   bool
	cfg     contract.Config
	secrets map[secret.Ref]string
	call    func(ctx context.Context, c call.Call) (call.Result, error)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s, err := database.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), s.Path("log"), audit.Options{Heads: s})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{log: log, at: time.Unix(1_766_000_000, 0), secrets: map[secret.Ref]string{}}
	b.cfg.Webhooks = map[string]contract.Webhook{}
	b.Hooks = New(Options{
		Queue: &inbox.Queue{Store: s, Holder: "bench", Gone: func(string) bool { return false }, Now: b.now},
		Log:   log, Kernel: benchKernel{b}, Now: b.now,
	})
	srv := httptest.NewServer(b.Handler())
	b.address = srv.Listener.Addr().String()
	t.Cleanup(func() { srv.Close(); _ = log.Close(); _ = s.Close() })
	return b
}

// benchKernel is the pipeline of a bench: its calls go to the function of the test.
type benchKernel struct{ b *bench }

func (k benchKernel) Config() *contract.Config { return &k.b.cfg }

func (k benchKernel) Secret(r secret.Ref) (secret.Value, error) {
	if k.b.fails {
		return secret.Value{}, fmt.Errorf("%s cannot be had", r)
	}
	return secret.NewValue(k.b.secrets[r]), nil
}

func (benchKernel) Prepare(context.Context, *call.Call) *call.Reason { return nil }

func (k benchKernel) Call(ctx context.Context, c call.Call) (call.Result, error) {
	return k.b.call(ctx, c)
}

func (benchKernel) Refuse(context.Context, call.Call, call.Reason) (call.Result, error) {
	return call.Result{}, errors.New("no call of a bench is refused")
}

func (benchKernel) Enter(call.Principal) (call.Session, func(), error) { return "n_1", func() {}, nil }

func (b *bench) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

func (b *bench) set(unix int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Unix(unix, 0)
}

// hook configures a webhook whose secrets are texts.
func (b *bench) hook(name, scheme string, window time.Duration, texts ...string) {
	w := contract.Webhook{Name: name, Scheme: scheme, Window: window, MaxKB: 1024, Tries: 3, Agent: true,
		Rate: contract.Rate{Calls: 1000, Per: time.Minute}}
	for i, to := range []*secret.Ref{&w.Secret, &w.Previous} {
		if i < len(texts) {
			*to = secret.Ref(fmt.Sprintf("env:%s%d", name, i))
			b.secrets[*to] = texts[i]
		}
	}
	b.cfg.Webhooks[name] = w
}

// send writes a request byte by byte as the row has it, which no HTTP client would, and returns the status.
func (b *bench) send(t *testing.T, name string, r request) int {
	t.Helper()
	c, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer c.Close()
	body, err := base64.StdEncoding.DecodeString(r.Body)
	if err != nil {
		t.Error(err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s /hooks/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n", r.Method, name, len(body))
	for _, h := range r.Headers {
		fmt.Fprintf(&text, "%s: %s\r\n", h[0], h[1])
	}
	go func() { _, _ = io.WriteString(c, text.String()+"\r\n"+string(body)) }()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return 0
	}
	defer a.Body.Close()
	if said, _ := io.ReadAll(a.Body); a.StatusCode == 401 && string(said) != "unauthorized\n" {
		t.Errorf("a refusal has a detail: %s", said)
	}
	return a.StatusCode
}

func rows(t *testing.T) []row { return corpus.Rows[row](t, "webhooks.jsonl") }

// TestCorpus sends each row of the corpus to the handler. Rows about outgoing webhooks are TestCorpusOut's.
func TestCorpus(t *testing.T) {
	done := map[string]int{}
	for _, r := range rows(t) {
		if r.Class == "outgoing" {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			b := newBench(t)
			switch r.Class {
			case "hmac-vector":
				vector(t, b, r)
			case "replay":
				sequence(t, b, r)
			default:
				single(t, b, r)
			}
		})
		done[r.Class]++
	}
	t.Log(done)
}

// vector is a test vector of HMAC-SHA256, as a webhook of GitHub: any bytes are a secret and a body.
func vector(t *testing.T, b *bench, r row) {
	raw := func(s string) []byte {
		out, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	b.hook("h", "github", time.Minute, string(raw(r.Input.Key)))
	got := b.send(t, "h", request{Method: "POST", Body: base64.StdEncoding.EncodeToString(raw(r.Input.Msg)),
		Headers: [][2]string{{"X-Hub-Signature-256", "sha256=" + r.Input.Tag}}})
	if want := map[any]int{"accept": 202, "reject": 401}[r.Expect]; got != want {
		t.Errorf("%s: %d, not %d", r.Why, got, want)
	}
}

func single(t *testing.T, b *bench, r row) {
	b.set(r.Input.Now)
	b.hook("h", r.Input.Scheme, time.Duration(r.Input.Tolerance)*time.Second, r.Input.Secrets...)
	if r.Why == "body of 20 MB" {
		r.Input.Body = base64.StdEncoding.EncodeToString(make([]byte, 20<<20))
	}
	got := b.send(t, "h", r.Input.request)
	want := map[any][]int{
		"accept": {202}, "accept_raw_bytes": {202}, "reject": {401, 400}, "reject_method": {405}, "bounded": {413},
		"config_error": {503}, "accept_or_reject": {202, 401, 415}, "accept_or_reject_consistent": {401},
		"accept_or_reject_after_verify": {202},
	}[r.Expect]
	if !slices.Contains(want, got) {
		t.Errorf("%s: %d, not one of %v", r.Why, got, want)
	}
	all, err := b.o.Queue.List(t.Context())
	if err != nil || (len(all) == 1) != (got == 202) {
		t.Fatalf("%d deliveries after %d: %v", len(all), got, err)
	}
	if got == 202 {
		d, err := b.o.Queue.Claim(t.Context(), inbox.Agent)
		if err != nil || base64.StdEncoding.EncodeToString(d.Body) != r.Input.Body {
			t.Errorf("%s: the body was changed: %q %v", r.Why, d.Body, err)
		}
	}
}

func sequence(t *testing.T, b *bench, r row) {
	window := time.Duration(r.Input.Tolerance) * time.Second
	b.hook("h", r.Input.Scheme, window, r.Input.Secrets...)
	b.hook("b", r.Input.Scheme, window, r.Input.Secrets...)
	got := make([]int, len(r.Input.Sequence))
	var all sync.WaitGroup
	for i, q := range r.Input.Sequence {
		if q.Clock != 0 {
			b.set(q.Clock)
			continue
		}
		b.set(q.Now)
		q.Method = "POST"
		name := "h"
		if q.Endpoint == "/b" {
			name = "b"
		}
		if q.Parallel != "" {
			all.Go(func() { got[i] = b.send(t, name, q) })
			continue
		}
		b.fails = q.Handler == "fails"
		got[i] = b.send(t, name, q)
		b.fails = false
	}
	all.Wait()
	got = slices.DeleteFunc(got, func(n int) bool { return n == 0 })
	stored, err := b.o.Queue.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]any{
		"[accept reject]": {"[202 401]", 1}, "[accept duplicate_id]": {"[202 200]",
			1}, "[error accept]": {"[503 202]", 1},
		"[reject accept]": {"[401 202]", 1}, "[accept accept_or_reject_documented]": {"[202 202]", 2},
		"[reject_or_bounded]": {"", 0}, "[exactly_one_accept]": {"", 1},
	}[fmt.Sprint(r.Expect)]
	if len(stored) != want[1] {
		t.Errorf("%s: %d stored, not %v", r.Why, len(stored), want[1])
	}
	switch text := fmt.Sprint(got); {
	case want[0] != "" && text != want[0]:
		t.Errorf("%s: %s, not %v", r.Why, text, want[0])
	case r.Why == "ids of 10 kB each" && strings.Contains(text, "20"):
		t.Errorf("%s: %s", r.Why, text)
	case want[1] == 1 && want[0] == "":
		slices.Sort(got)
		if got[0] != 202 || len(slices.Compact(got[1:])) != 1 || got[1] != 409 {
			t.Errorf("%s: %v", r.Why, got)
		}
	}
}
