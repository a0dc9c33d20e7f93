package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/network/mcphttp"
	"waldo/internal/sandbox"
)

// direct is the way to servers of a test.
func direct(_ context.Context, s contract.Server) (mcphttp.Options, error) {
	rt, err := mcphttp.Transport(s.URL, nil)
	return mcphttp.Options{Transport: rt}, err
}

// reach makes a manager of servers at addresses.
func reach(t *testing.T, servers map[string]http.Handler, o Options) *Manager {
	t.Helper()
	cfg := map[string]contract.Server{}
	for name, h := range servers {
		srv := httptest.NewServer(h)
		t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
		cfg[name] = contract.Server{URL: srv.URL + "/mcp", Placement: "outside"}
	}
	o.Remote = direct
	m := New(cfg, o)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// Servers of the official SDK at an address: every era, and both ways of HTTP.
func TestHTTPWithTheSDK(t *testing.T) {
	get := func(newest bool) func(*http.Request) *mcp.Server {
		s := sdkServer(newest)
		return func(*http.Request) *mcp.Server { return s }
	}
	for _, row := range []struct {
		why, revision string
		h             http.Handler
	}{
		{"stateless", "2026-07-28", mcp.NewStreamableHTTPHandler(get(true), &mcp.StreamableHTTPOptions{Stateless: true})},
		{"stateless, in one object", "2026-07-28",
			mcp.NewStreamableHTTPHandler(get(true), &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})},
		{"sessions", "2025-06-18", mcp.NewStreamableHTTPHandler(get(false), nil)},
		{"HTTP+SSE", "2025-06-18", mcp.NewSSEHandler(get(false), nil)},
	} {
		t.Run(row.why, func(t *testing.T) {
			m := reach(t, map[string]http.Handler{"s": row.h}, Options{})
			tools, err := m.Tools(context.Background(), "s")
			if err != nil || len(tools) != 1 || tools[0].Input.IsZero() {
				t.Fatalf("%v %v", tools, err)
			}
			if got := m.Status()[0].Revision; got != row.revision {
				t.Errorf("revision %s", got)
			}
			steps := 0
			ctx := call.WithProgress(context.Background(), func(float64, float64, string) { steps++ })
			o := execute(t, ctx, m, decision(t, "s.echo", `{"message":"hi"}`, contract.Contract{Mode: contract.Write}))
			if text(o) != "hi" || string(o.Structured.Raw()) != `{"said":"hi"}` || o.Facts.SideEffect != facts.Confirmed {
				t.Errorf("%q %s %+v", text(o), o.Structured.Raw(), o.Facts)
			}
			if strings.HasSuffix(row.why, "object") != (steps == 0) {
				t.Errorf("%d steps", steps)
			}
			for limit, before := 300*time.Millisecond, waits.Load(); waits.Load() == before &&
				limit < 20*time.Second; limit *= 3 {
				short, cancel := context.WithTimeout(context.Background(), limit)
				o = execute(t, short, m, decision(t, "s.echo", `{"message":"wait"}`, contract.Contract{Mode: contract.Write}))
				cancel()
			}
			if o.Facts.Status != facts.Timeout || o.Facts.SideEffect != facts.Unknown {
				t.Errorf("out of time: %q %+v", text(o), o.Facts)
			}
			o = execute(t, context.Background(), m,
				decision(t, "s.echo", `{"message":"again"}`, contract.Contract{Mode: contract.Read}))
			if text(o) != "again" {
				t.Errorf("the call after: %q", text(o))
			}
		})
	}
}

// at is a legacy server at an address, with sessions; calls are answered by call.
func at(tools string, answer func(w http.ResponseWriter, r *http.Request, q request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q request
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&q) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},`+
				`"serverInfo":{"name":"fake","version":"1"}}}`, q.ID)
		case q.Method == "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":%s}}`, q.ID, tools)
		case q.Method == "tools/call":
			answer(w, r, q)
		case q.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}
}

func fineAt(w http.ResponseWriter, _ *http.Request, q request) {
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, fine)
}

// A server that loses its session during a call gets a new one: a read is retried, a write is not, and the next call
// works.
func TestForgottenSession(t *testing.T) {
	for _, row := range []struct {
		why    string
		mode   contract.Mode
		calls  int64
		want   string
		effect facts.SideEffect
	}{
		{"a read is asked again", contract.Read, 2, "fine", facts.None},
		{"a write is not", contract.Write, 1, "whether it took effect is not known", facts.Unknown},
	} {
		t.Run(row.why, func(t *testing.T) {
			var calls atomic.Int64
			m := reach(t, map[string]http.Handler{"s": at(echoTool, func(w http.ResponseWriter, r *http.Request, q request) {
				if calls.Add(1) == 1 {
					http.Error(w, "who are you?", http.StatusNotFound)
					return
				}
				fineAt(w, r, q)
			})}, Options{})
			o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: row.mode}))
			if calls.Load() != row.calls || !strings.Contains(text(o), row.want) || o.Facts.SideEffect != row.effect {
				t.Errorf("%d calls: %q %s", calls.Load(), text(o), o.Facts.SideEffect)
			}
			if o := execute(t, context.Background(), m,
				decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write})); text(o) != "fine" {
				t.Errorf("the next call: %q", text(o))
			}
		})
	}
}

// TestStatuses: a read is asked again where a later request can succeed, at the time that the server names.
func TestStatuses(t *testing.T) {
	for _, row := range []struct {
		why    string
		code   int
		after  string
		retry  int
		calls  int64
		waited time.Duration
		want   string
	}{
		{"429 without retry in the contract", 429, "1", 0, 1, 0, "come back in 1s"},
		{"429 with retry", 429, "1", 1, 2, time.Second, "fine"},
		{"503 with retry", 503, "", 1, 2, 0, "fine"},
		{"429 after the time of the call", 429, "3600", 1, 1, 0, "come back in 1h0m0s"},
		{"401 with retry", 401, "", 1, 1, 0, "HTTP status 401"},
		{"500 with retry", 500, "", 1, 1, 0, "HTTP status 500"},
	} {
		t.Run(row.why, func(t *testing.T) {
			var calls, bad atomic.Int64
			m := reach(t, map[string]http.Handler{"s": at(echoTool, func(w http.ResponseWriter, r *http.Request, q request) {
				calls.Add(1)
				if bad.Add(-1) == 0 {
					w.Header().Set("Retry-After", row.after)
					w.WriteHeader(row.code)
					return
				}
				fineAt(w, r, q)
			})}, Options{})
			read := contract.Contract{Mode: contract.Read, Timeout: 10 * time.Second, Retry: contract.Retry{Max: row.retry}}
			if o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, read)); text(o) != "fine" {
				t.Fatalf("control, a session that has served: %q", text(o))
			}
			calls.Store(0)
			bad.Store(1)
			began := time.Now()
			o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, read))
			if calls.Load() != row.calls || !strings.Contains(text(o), row.want) || time.Since(began) < row.waited {
				t.Errorf("%d calls in %v: %q", calls.Load(), time.Since(began), text(o))
			}
		})
	}
}

// TestBrokenList: a list that cannot be read is told with its reason, to the caller and in the log.
func TestBrokenList(t *testing.T) {
	var log bytes.Buffer
	m := reach(t, map[string]http.Handler{"s": at(`[{"name":"echo","name":"other"}]`, fineAt)}, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
	const want = "duplicate"
	if !strings.Contains(text(o), want) || !strings.Contains(log.String(), want) || o.Facts.SideEffect != facts.None {
		t.Errorf("%q, log %q", text(o), log.String())
	}
}

// reaching launches a server whose sandbox has reached hosts.
type reaching struct{ *fakes }

func (r reaching) Launch(ctx context.Context, s contract.Server, n call.Session) (Process, error) {
	p, err := r.fakes.Launch(ctx, s, n)
	p.Reached = func(f *facts.Facts) {
		f.Network.Contacted, f.Network.Denied = []string{"api.example.com:443"}, []string{"other.example.com:443"}
	}
	return p, err
}

// TestReached: the facts of a call have the hosts that the server's sandbox reached, and those that it was refused.
func TestReached(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(r request, out io.Writer) string {
		return fine
	})})
	for name, l := range map[string]Launcher{"control": f, "reports": reaching{f}} {
		m := New(map[string]contract.Server{"s": {Command: []string{"s"}}}, Options{Launcher: l})
		o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
		_ = m.Close()
		n := o.Facts.Network
		if got := len(n.Contacted) == 1 && len(n.Denied) == 1; got != (name == "reports") || text(o) != "fine" {
			t.Errorf("%s: %q %+v", name, text(o), n)
		}
	}
}

// spending launches a server whose sandbox uses one second and has the peak as given at each reading.
type spending struct {
	*fakes
	peaks []int64
}

func (s spending) Launch(ctx context.Context, c contract.Server, n call.Session) (Process, error) {
	p, err := s.fakes.Launch(ctx, c, n)
	reads := 0
	p.Spent = func() sandbox.Use {
		reads++
		return sandbox.Use{CPU: time.Duration(reads) * time.Second, Memory: int64(10 * reads), Peak: s.peaks[min(reads, len(s.peaks))-1]}
	}
	return p, err
}

// TestSpent: the facts of a call have the processor time of its server since the call began, and its memory: the peak
// where the call raised it.
func TestSpent(t *testing.T) {
	f := launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(r request, out io.Writer) string {
		return fine
	})})
	for _, c := range []struct {
		l      Launcher
		cpu    float64
		memory int64
	}{{f, 0, 0}, {spending{f, []int64{500, 700}}, 1000, 700}, {spending{f, []int64{500, 500}}, 1000, 20}} {
		m := New(map[string]contract.Server{"s": {Command: []string{"s"}}}, Options{Launcher: c.l})
		o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
		_ = m.Close()
		if u := o.Facts.Usage; u.CPUMS != c.cpu || u.MemoryPeak != c.memory || text(o) != "fine" {
			t.Errorf("%q %+v, want %v ms and %d bytes", text(o), u, c.cpu, c.memory)
		}
	}
}

// A hostile server at an address affects neither another server nor waldo's memory, and each is reported with its
// fault.
func TestHostileServersAtAnAddress(t *testing.T) {
	event := func(w http.ResponseWriter, format string, a ...any) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		_, err := fmt.Fprintf(w, "data: "+format+"\n\n", a...)
		w.(http.Flusher).Flush()
		return err == nil
	}
	hostile := map[string]func(w http.ResponseWriter, r *http.Request, q request){
		"silent": func(_ http.ResponseWriter, r *http.Request, _ request) { <-r.Context().Done() },
		"floods": func(w http.ResponseWriter, r *http.Request, _ request) {
			for event(w, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":%q}}`, strings.Repeat("x", 8<<10)) {
			}
		},
		"long line": func(w http.ResponseWriter, r *http.Request, q request) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, q.ID)
			chunk := []byte(strings.Repeat("x", 1<<20))
			for range 100 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
			fmt.Fprint(w, `"}]}}`)
		},
		"deep": func(w http.ResponseWriter, _ *http.Request, q request) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s%s}`, q.ID, strings.Repeat(`{"a":`, 1<<20),
				strings.Repeat(`}`, 1<<20))
		},
		"asks in a loop": func(w http.ResponseWriter, r *http.Request, _ request) {
			for n := 0; event(w, `{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":{"message":"?",`+
				`"requestedSchema":{"type":"object"}}}`, n) && r.Context().Err() == nil; n++ {
			}
		},
		"wrong ids": func(w http.ResponseWriter, r *http.Request, q request) {
			for n := 100; event(w, `{"jsonrpc":"2.0","id":%d,"result":%s}`, n, fine) && r.Context().Err() == nil; n++ {
			}
		},
		"malformed": func(w http.ResponseWriter, _ *http.Request, q request) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"id":1,"result":{}}`, q.ID)
		},
		"dies": func(http.ResponseWriter, *http.Request, request) { panic(http.ErrAbortHandler) },
		"a task": func(w http.ResponseWriter, _ *http.Request, q request) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"task","taskId":"1"}}`, q.ID)
		},
	}
	servers := map[string]http.Handler{"good": at(echoTool, fineAt)}
	heard := map[string]*atomic.Int64{}
	for name, f := range hostile {
		n := &atomic.Int64{}
		heard[name] = n
		servers[strings.ReplaceAll(name, " ", "_")] = at(echoTool,
			func(w http.ResponseWriter, r *http.Request, q request) { n.Add(1); f(w, r, q) })
	}
	var deaf atomic.Int64
	servers["deaf"] = at(echoTool, func(w http.ResponseWriter, r *http.Request, q request) {
		deaf.Add(1)
		hostile["silent"](w, r, q)
	})
	m := reach(t, servers, Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := make(chan string, len(hostile))
	for name := range hostile {
		d := decision(t, strings.ReplaceAll(name, " ", "_")+".echo", `{}`,
			contract.Contract{Mode: contract.Write, Timeout: 2 * time.Second})
		go func() {
			o := late(t, m, d, heard[name])
			if o.Facts.Status == facts.OK || o.Facts.SideEffect != facts.Unknown {
				t.Errorf("%s: %q %s %s", name, text(o), o.Facts.Status, o.Facts.SideEffect)
			}
			done <- name
		}()
	}
	mute(t, m, "deaf.echo", &deaf)
	for left := len(hostile); left > 0; {
		o := execute(t, context.Background(), m, decision(t, "good.echo", `{}`, contract.Contract{Mode: contract.Read}))
		if text(o) != "fine" {
			t.Fatalf("the good server, among hostile ones: %q", text(o))
		}
		select {
		case <-done:
			left--
		case <-time.After(10 * time.Millisecond):
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
}

// A tool whose marks for headers are wrong is not offered; its neighbours are.
func TestWrongHeaderMarks(t *testing.T) {
	m := reach(t,
		map[string]http.Handler{"s": at(`[{"name":"good","inputSchema":{}},{"name":"bad",`+
			`"inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nB: c"}}}}]`, fineAt)}, Options{})
	tools, err := m.Tools(context.Background(), "s")
	if err != nil || len(tools) != 1 || tools[0].Capability != "s.good" {
		t.Fatalf("%v %v", tools, err)
	}
	o := execute(t, context.Background(), m, decision(t, "s.bad", `{}`, contract.Contract{}))
	if !strings.HasPrefix(text(o), "tool.header") {
		t.Errorf("%q", text(o))
	}
}

// An error that no legacy server makes ends the search for a revision; any other opens the old way.
func TestAgreementAtAnAddress(t *testing.T) {
	for _, row := range []struct {
		why, fault string // of server/discover, the first time
		want       string // the revision, or the error's text
	}{
		{"control: a legacy server", `{"code":-32601,"message":"no such method"}`, "2025-11-25"},
		{"control: no word of revisions", `{"code":-32022,"message":"no"}`, "2025-11-25"},
		{"it speaks legacy revisions", `{"code":-32022,"message":"no","data":{"supported":["2025-06-18"]}}`, "2025-11-25"},
		{"it speaks what it refused", `{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}`, "2026-07-28"},
		{"it speaks only what is newer", `{"code":-32022,"message":"no","data":{"supported":["2099-01-01"]}}`,
			"does not take what is asked"},
		{"it wants a capability", `{"code":-32021,"message":"no"}`, "does not take what is asked"},
		{"the headers do not please it", `{"code":-32020,"message":"no"}`, "does not take what is asked"},
	} {
		t.Run(row.why, func(t *testing.T) {
			var asked atomic.Int64
			old := at(echoTool, fineAt)
			m := reach(t, map[string]http.Handler{"s": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				var q request
				_ = json.Unmarshal(b, &q)
				w.Header().Set("Content-Type", "application/json")
				switch {
				case q.Method == "server/discover" && asked.Add(1) == 1:
					w.WriteHeader(http.StatusBadRequest)
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, q.ID, row.fault)
				case q.Method == "server/discover":
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],`+
						`"capabilities":{}}}`, q.ID)
				default:
					r.Body = io.NopCloser(bytes.NewReader(b))
					old(w, r)
				}
			})}, Options{})
			_, err := m.Tools(context.Background(), "s")
			if err != nil && !strings.Contains(err.Error(), row.want) || err == nil && m.Status()[0].Revision != row.want {
				t.Errorf("%v %s", err, m.Status()[0].Revision)
			}
		})
	}
}
