package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
)

// A malformed answer fails its call at once, with the fault named, and leaves another call of the same server alone,
// over stdio and over HTTP.
func TestMalformedAnswers(t *testing.T) {
	for _, row := range []struct{ why, frame, says string }{
		{"a name twice", `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[]}}`, "not one strict JSON value"},
		{"no UTF-8", `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"` + "\xff" + `"}]}}`,
			"not one strict JSON value"},
		{"a lone surrogate", `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"caf\udce9"}]}}`, "surrogate"},
		{"too deep", `{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`,
			"nested deeper than 200"},
		{"too many values", `{"jsonrpc":"2.0","id":%s,"result":[` + strings.Repeat("1,", 200_001) + `1]}`,
			"more than 200000 values"},
		{"broken off", `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"te`, "not one strict JSON value"},
		{"no version", `{"id":%s,"result":{"content":[]}}`, `"jsonrpc" must be "2.0"`},
		{"no result", `{"jsonrpc":"2.0","id":%s}`, "neither a request nor an answer"},
		{"a text for a result", `{"jsonrpc":"2.0","id":%s,"result":"fine"}`, "not a result of a tool"},
		{"null for a result", `{"jsonrpc":"2.0","id":%s,"result":null}`, "not a result of a tool"},
		{"a text for content", `{"jsonrpc":"2.0","id":%s,"result":{"content":"fine"}}`, "not a result of a tool"},
		{"a text without text", `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text"}]}}`, "not a result of a tool"},
	} {
		wait := make(chan struct{})
		servers := map[string]*Manager{
			"a line": manager(t,
				launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(r request, out io.Writer) string {
					if strings.Contains(string(r.Params.Arguments), "slow") {
						go func() {
							<-wait
							fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, fine)
						}()
						return ""
					}
					fmt.Fprintf(out, row.frame+"\n", r.ID)
					return ""
				})}), Options{}),
			"JSON": reach(t, map[string]http.Handler{"s": at(echoTool, func(w http.ResponseWriter, r *http.Request, q request) {
				if strings.Contains(string(q.Params.Arguments), "slow") {
					<-wait
					fineAt(w, r, q)
					return
				}
				fmt.Fprintf(w, row.frame, q.ID)
			})}, Options{}),
			"a stream": reach(t,
				map[string]http.Handler{"s": at(echoTool, func(w http.ResponseWriter, r *http.Request, q request) {
					if strings.Contains(string(q.Params.Arguments), "slow") {
						<-wait
						fineAt(w, r, q)
						return
					}
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprintf(w, "data: "+row.frame+"\n\n", q.ID)
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				})}, Options{}),
		}
		slow := make(chan string, len(servers))
		for name, m := range servers {
			begun := time.Now()
			go func() {
				slow <- text(execute(t, context.Background(), m,
					decision(t, "s.echo", `{"a":"slow"}`, contract.Contract{Mode: contract.Write})))
			}()
			o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
			if o.Facts.Status != facts.Failed || o.Facts.SideEffect != facts.Unknown || !strings.Contains(text(o), row.says) ||
				time.Since(begun) > 40*time.Second {
				t.Errorf("%s over %s: %s, %q after %s", row.why, name, o.Facts.Status, text(o), time.Since(begun))
			}
		}
		close(wait)
		for range servers {
			if got := <-slow; got != "fine" {
				t.Errorf("%s: the call beside it: %q", row.why, got)
			}
		}
	}
}

// An answer written over several lines is reported as such, and costs its call no time.
func TestSpreadAnswers(t *testing.T) {
	m := manager(t,
		launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(r request, out io.Writer) string {
			fmt.Fprintf(out, "{\n  \"jsonrpc\": \"2.0\",\n  \"id\": %s,\n  \"result\": {\n    \"content\": []\n  }\n}\n", r.ID)
			return ""
		})}), Options{})
	begun := time.Now()
	o := execute(t, context.Background(), m, decision(t, "s.echo", `{}`, contract.Contract{Mode: contract.Write}))
	if o.Facts.Status != facts.Failed || o.Facts.SideEffect != facts.Unknown ||
		!strings.Contains(text(o), "spread over several lines") || time.Since(begun) > 40*time.Second {
		t.Errorf("%s, %q after %s", o.Facts.Status, text(o), time.Since(begun))
	}
}

// Before a call, too: a malformed list or greeting is reported, and the call was not made.
func TestMalformedBeforeACall(t *testing.T) {
	greets := func(answer string) func(*bufio.Scanner, io.Writer) {
		return func(in *bufio.Scanner, out io.Writer) {
			for id := 1; in.Scan(); id++ {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,`+answer+`}`+"\n", id)
			}
		}
	}
	m := manager(t, launchers(map[string]func(*bufio.Scanner, io.Writer){
		"list": legacy(`"none"`, nil),
		"text": greets(`"result":"hello"`),
		"odd":  greets(`"result":{},"result":{}`),
	}), Options{})
	for server, says := range map[string]string{
		"list": "it holds no list of tools", "text": "it says no revision", "odd": "not one strict JSON value",
	} {
		begun := time.Now()
		o := execute(t, context.Background(), m, decision(t, server+".echo", `{}`, contract.Contract{Mode: contract.Write}))
		if o.Facts.SideEffect != facts.None || !strings.Contains(text(o), says) || time.Since(begun) > 40*time.Second {
			t.Errorf("%s: %q after %s, %v", server, text(o), time.Since(begun), o.Facts.SideEffect)
		}
	}
}

// If a server's lines cannot be parsed at all, the call times out, and the facts report the lines.
func TestStrayLines(t *testing.T) {
	for say, want := range map[string]bool{"hello\n": true, "": false} {
		var heard atomic.Int64
		m := manager(t,
			launchers(map[string]func(*bufio.Scanner, io.Writer){"s": legacy(echoTool, func(_ request, out io.Writer) string {
				_, _ = io.WriteString(out, say)
				heard.Add(1)
				return ""
			})}), Options{})
		o := late(t, m, decision(t, "s.echo", `{}`, contract.Contract{Timeout: 300 * time.Millisecond}), &heard)
		if got := strings.Contains(strings.Join(o.Facts.Warnings, " "), "lines that are not messages"); got != want ||
			o.Facts.Status != facts.Timeout {
			t.Errorf("%q: %s %q", say, o.Facts.Status, o.Facts.Warnings)
		}
	}
}

// An HTTP error is reported with its status, before a call and as its answer.
func TestStatusIsTold(t *testing.T) {
	no := func(w http.ResponseWriter, _ *http.Request, _ request) {
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}
	m := reach(t, map[string]http.Handler{
		"calls": at(echoTool, no),
		"all":   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }),
	}, Options{})
	for server, want := range map[string]string{
		"calls": "the server answered with HTTP status 429; whether it took effect is not known",
		"all":   "not available: it answers with HTTP status 403. Try again in 1s. The call was not made.",
	} {
		if o := execute(t, context.Background(), m,
			decision(t, server+".echo", `{}`, contract.Contract{Mode: contract.Write})); !strings.Contains(text(o), want) {
			t.Errorf("%s: %q", server, text(o))
		}
	}
}
