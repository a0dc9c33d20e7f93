//go:build unix

package reliability

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/model/call"
	"waldo/internal/model/facts"
)

// cuts are the steps of a call at which a network can be cut: by a reset, or by silence.
var cuts = []string{"", "reset_within_request", "reset_before_server", "reset_before_answer", "reset_within_answer",
	"silence_before_server", "silence_before_answer", "silence_within_answer"}

// network is a proxy between waldo and a server. It cuts the first call of each title as the call's argument how says,
// and every seventh look of waldo's.
type network struct {
	to   string
	mu   sync.Mutex
	seen map[string]bool
	cut  map[string]int
	look int
	calm atomic.Bool
}

// how returns where a request is cut; empty: nowhere.
func (n *network) how(body []byte) string {
	var m struct {
		Params struct {
			Name      string
			Arguments struct{ Title, How string }
		}
	}
	_ = json.Unmarshal(body, &m)
	a := m.Params.Arguments
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calm.Load() {
		return ""
	}
	if m.Params.Name == "find" {
		if n.look++; n.look%7 == 0 {
			return "reset_before_answer"
		}
	}
	if m.Params.Name != "create" || n.seen[a.Title] {
		return ""
	}
	n.seen[a.Title] = true
	n.cut[a.How]++
	return a.How
}

// serve carries the requests of one connection.
func (n *network) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		cause, at, _ := strings.Cut(n.how(body), "_")
		end := func() {
			if cause == "silence" { // until waldo gives up
				_, _ = io.Copy(io.Discard, c)
			}
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		switch at {
		case "before_server":
			end()
			return
		case "within_request": // the server gets half of it
			if s, err := net.Dial("tcp", n.to); err == nil {
				_, _ = fmt.Fprintf(s, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", r.URL.Path, len(body),
					body[:len(body)/2])
				_ = s.(*net.TCPConn).SetLinger(0)
				_ = s.Close()
			}
			end()
			return
		}
		r.URL.Scheme, r.URL.Host, r.RequestURI, r.Body = "http", n.to, "", io.NopCloser(bytes.NewReader(body))
		a, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return
		}
		var answer bytes.Buffer
		err = a.Write(&answer)
		_ = a.Body.Close()
		if err != nil || at == "before_answer" {
			end()
			return
		}
		if at == "within_answer" {
			_, _ = c.Write(answer.Bytes()[:answer.Len()-5])
			end()
			return
		}
		if _, err := c.Write(answer.Bytes()); err != nil {
			return
		}
	}
}

// counting is the oracle over HTTP.
func counting(dir string) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Title string }
			}
		}
		b, err := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || err != nil || json.Unmarshal(b, &m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		var result any
		switch m.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "oracle", "version": "1"}}
		case "tools/list":
			result = map[string]any{"tools": []any{tool("create", "title", "how"), tool("find", "title")}}
		case "tools/call":
			mu.Lock()
			result = answer(dir, m.Params.Name, m.Params.Arguments.Title, "", "", 0)
			mu.Unlock()
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	})
}

// Keyed writes whose network is cut at each step, by a reset or by silence: each acts at most once, and each is known
// or settled at the end. WALDO_WRITES sets their number.
func TestNetworkCuts(t *testing.T) {
	count := writes(t, 48)
	b := bench{t.TempDir()}
	server := httptest.NewServer(counting(b.dir))
	t.Cleanup(server.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	n := &network{to: server.Listener.Addr().String(), seen: map[string]bool{}, cut: map[string]int{}}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go n.serve(c)
		}
	}()
	text := fmt.Sprintf("version: 1\nservers: {s: {url: 'http://%s/mcp'}}\ncapabilities:\n"+
		"  s.find: {mode: read, approval: none, timeout_seconds: 2}\n  s.create: {mode: write, approval: none, "+
		"timeout_seconds: 2, %s, retry: {max: 1, on: [unavailable, timeout]}}\n", l.Addr(), settles)
	if err := os.WriteFile(filepath.Join(b.dir, "waldo.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h := b.waldo(t)
	orders := make([]ordered, count)
	for i := range orders {
		how := cuts[i%len(cuts)]
		orders[i] = create(fmt.Sprintf("w%d", i), how, fmt.Sprintf("k%d", i))
	}
	rand.Shuffle(count, func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	ends, mu := map[string]int{}, sync.Mutex{}
	abreast(orders, func(o ordered) {
		r := o.patient(t, h)
		mu.Lock()
		defer mu.Unlock()
		end := "done"
		if r.Status != facts.OK {
			end = string(r.Settled)
		}
		ends[fmt.Sprint(o.Args["how"])+": "+end]++
		if n := b.effects(t, fmt.Sprint(o.Args["title"])); n > 1 {
			t.Errorf("%+v: %d effects", o, n)
		} else if r.Settled == call.Happened && n != 1 || r.Settled == call.NotHappened && r.Status != facts.OK && n != 0 {
			t.Errorf("%+v: settled %s, and it has %d effects", o, r.Settled, n)
		}
	})
	for _, how := range cuts {
		if n.cut[how] != count/len(cuts) {
			t.Errorf("control: %d calls were cut at %q", n.cut[how], how)
		}
	}
	n.calm.Store(true)
	if open, err := h.Effects.Pending(t.Context()); err != nil {
		t.Fatal(err)
	} else {
		for _, e := range open {
			as := call.Call{Principal: e.Principal, Channel: "cli"}
			if info, err := h.OpenSession(); err == nil {
				as.Session = info.ID
			}
			if word, err := h.Effects.Settle(t.Context(), e.ID, as); err != nil || word == call.StillUnknown {
				t.Errorf("%s: %s, %v", e.ID, word, err)
			}
		}
	}
	for _, o := range orders {
		r := o.patient(t, h)
		if title := fmt.Sprint(o.Args["title"]); r.Status != facts.OK || b.effects(t, title) != 1 {
			t.Errorf("%+v: %s%s, %d effects", o, r.Status, codes(r), b.effects(t, title))
		}
	}
	if all, err := h.Effects.Pending(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%d outcomes are not known: %v", len(all), err)
	}
	t.Log(ends)
}

// patient makes a call, again when the breaker of its server is closed. A read tries that: of the first calls most are
// cut, and each that fails keeps the breaker open for twice as long.
func (o ordered) patient(t *testing.T, h *app.App) call.Result {
	t.Helper()
	look := ordered{Capability: "s.find", Args: map[string]any{"title": o.Args["title"]}}
	for {
		r, err := o.make(t.Context(), h)
		if err != nil {
			t.Error(err)
		}
		if first(r) != "upstream.open" {
			return r
		}
		for {
			if r, err = look.make(t.Context(), h); err != nil {
				t.Error(err)
			}
			if first(r) != "upstream.open" {
				break
			}
			time.Sleep(time.Duration(r.Why[0].RetryAfter) * time.Second)
		}
	}
}

// writes returns how many keyed writes a test makes: WALDO_WRITES, or a few.
func writes(t *testing.T, few int) int {
	text := os.Getenv("WALDO_WRITES")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
