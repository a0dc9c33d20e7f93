package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"waldo/internal/feature/agent/chat"
	"waldo/internal/model/secret"
	"waldo/internal/testing/providertest"
)

var allKinds = []string{"anthropic", "openai", "ollama"}

// key is a made-up key of a provider.
const key = "sk-test-4f9Qm2Lx8Rw7Tz1K"

func serve(t testing.TB, s *providertest.Server) string {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web.URL
}

func one(t testing.TB, kind, url string) *Provider {
	t.Helper()
	rt, err := Transport(url, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Kind: kind, URL: url, Model: "m", Transport: rt, Silence: 5 * time.Second,
		Key: func() (secret.Value, error) { return secret.NewValue(key), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// told gathers what a watch hears.
type told struct {
	text    string
	retries []string
}

func (w *told) watch() chat.Watch {
	return chat.Watch{Text: func(s string) { w.text += s },
		Retry: func(why string) { w.text, w.retries = "", append(w.retries, why) }}
}

func quick(ps ...*Provider) *Chain {
	return &Chain{Providers: ps, Hide: func(s string) string { return s },
		Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

var asking = chat.Request{System: "be short", Most: 100,
	Messages: []chat.Message{{Role: chat.User, Blocks: []chat.Block{{Text: "what now?"}}}},
	Tools:    []chat.Tool{{Name: "mail__read", Description: "reads", Schema: []byte(`{"type":"object"}`)}}}

// TestAnswers: each kind gives the same reply, however its stream is cut.
func TestAnswers(t *testing.T) {
	for name, turn := range map[string]providertest.Turn{
		"a text":          {Text: "hé 🐊 llo\nthere"},
		"a call":          {Calls: []providertest.Call{{Tool: "mail__read", Input: `{"id":7,"q":"ü \" }"}`}}},
		"text and calls":  {Text: "both", Calls: []providertest.Call{{Tool: "a", Input: `{}`}, {Tool: "b", Input: `{"x":[1,2]}`}}},
		"nothing":         {},
		"a carriage end ": {Text: "one\r\ntwo\rthree"},
	} {
		for _, kind := range allKinds {
			body := providertest.Render(kind, turn)
			whole := read(t, kind, body, len(body))
			if whole.Usage != (chat.Usage{Input: 11, Output: 7}) || len(whole.Blocks) == 0 && name != "nothing" {
				t.Errorf("%s, %s: %+v", name, kind, whole)
			}
			for n := 1; n <= len(body); n++ {
				if got := read(t, kind, body, n); !reflect.DeepEqual(got, whole) {
					t.Fatalf("%s, %s, parts of %d bytes: %+v, whole: %+v", name, kind, n, got, whole)
				}
				if n > 70 {
					n += 37
				}
			}
		}
	}
}

// parts gives a text n bytes at a time.
type parts struct {
	s string
	n int
}

func (p *parts) Read(b []byte) (int, error) {
	if p.s == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.s)
	p.s = p.s[n:]
	return n, nil
}

func read(t testing.TB, kind, body string, n int) chat.Reply {
	t.Helper()
	a := &answer{text: func(string) {}}
	err := kinds[kind].read(&parts{body, n}, a)
	var r chat.Reply
	if err == nil {
		r, err = a.finish()
	}
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return r
}

// TestSplitAtEveryByte: over real HTTP, one byte at a time.
func TestSplitAtEveryByte(t *testing.T) {
	for _, kind := range allKinds {
		s := &providertest.Server{Chunk: 1, Script: func(providertest.Ask) providertest.Turn {
			return providertest.Turn{Text: "über", Calls: []providertest.Call{{Tool: "mail__read", Input: `{"id":1}`}}}
		}}
		var w told
		r, err := quick(one(t, kind, serve(t, s))).Next(t.Context(), asking, w.watch())
		if err != nil || w.text != "über" || r.Stop != chat.Calls || len(r.Blocks) != 2 ||
			string(r.Blocks[1].Call.Input) != `{"id":1}` || r.Provider != kind+" m" {
			t.Errorf("%s: %+v, heard %q: %v", kind, r, w.text, err)
		}
		a := s.Asked()[0]
		if a.Key != key || a.System != "be short" || a.Task != "what now?" || fmt.Sprint(a.Tools) != "[mail__read]" {
			t.Errorf("%s: asked %+v", kind, a)
		}
	}
}

// TestConversations: calls and results go back in the form that each API takes.
func TestConversations(t *testing.T) {
	r := asking
	r.Messages = append(r.Messages[:1:1],
		chat.Message{Role: chat.Assistant, Blocks: []chat.Block{{Text: "I look"},
			{Call: &chat.Call{ID: "call_1", Tool: "a", Input: []byte(`{"n":1}`)}},
			{Call: &chat.Call{ID: "call_2", Tool: "b", Input: []byte(`{}`)}}}},
		chat.Message{Role: chat.User, Blocks: []chat.Block{{Result: &chat.Result{CallID: "call_1", Tool: "a", Text: "one"}},
			{Result: &chat.Result{CallID: "call_2", Tool: "b", Text: "two", Error: true}}, {Text: "and then?"}}})
	for _, kind := range allKinds {
		s := &providertest.Server{Script: func(providertest.Ask) providertest.Turn { return providertest.Turn{Text: "ok"} }}
		var w told
		if _, err := quick(one(t, kind, serve(t, s))).Next(t.Context(), r, w.watch()); err != nil {
			t.Errorf("%s: %v: %v", kind, err, s.Faults())
			continue
		}
		a := s.Asked()[0]
		if a.Answers != 1 || len(a.Results) != 2 || a.Results[1].Text != "two" || a.Results[1].Tool != "b" ||
			fmt.Sprint(a.Said) != "[what now? and then?]" {
			t.Errorf("%s: %+v", kind, a)
		}
	}
}

// TestFaults: each failure of a provider, and its consequence.
func TestFaults(t *testing.T) {
	good := providertest.Turn{Text: "good"}
	for _, row := range []struct {
		why    string
		bad    providertest.Turn // until the fails-th request
		fails  int
		asked  int    // requests in the end
		answer string // "": an error
		says   string // of the error or of a retry
	}{
		{"overloaded, then well", providertest.Turn{Status: 529, Raw: `{"error":{"message":"busy"}}`}, 2, 3, "good", "busy"},
		{"too many requests", providertest.Turn{Status: 429, Raw: "slow down"}, 1, 2, "good", "slow down"},
		{"overloaded for ever", providertest.Turn{Status: 503, Raw: "x"}, 99, tries, "", "overloaded (HTTP 503)"},
		{"told to wait for an hour", providertest.Turn{Status: 429, Raw: "x", After: "3600"}, 99, 1, "", "HTTP 429"},
		{"a wrong key is not tried again", providertest.Turn{Status: 401, Raw: `{"error":{"message":"no"}}`}, 99, 1, "",
			"rejected (HTTP 401): no"},
		{"a redirect is not followed", providertest.Turn{Status: 307, Raw: "x"}, 99, 1, "", "rejected (HTTP 307)"},
		{"cut in the middle", providertest.Turn{Text: "go", Cut: true}, 1, 2, "good", ""},
		{"an end without an end", providertest.Turn{Raw: "\n"}, 99, 2, "", "ended before its end"},
		{"no JSON", providertest.Turn{Raw: "data: {]\n\n{]\n"}, 99, 2, "", "not the JSON"},
		{"a name twice", providertest.Turn{Raw: `data: {"type":"ping","type":"x"}` + "\n\n" + `{"done":true,"done":false}` + "\n"}, 99, 2,
			"", "malformed"},
	} {
		for _, kind := range allKinds {
			if row.why == "a name twice" && kind == "ollama" {
				row.bad.Raw = `{"done":true,"done":false}` + "\n"
			}
			n := 0
			s := &providertest.Server{Script: func(providertest.Ask) providertest.Turn {
				if n++; n <= row.fails {
					return row.bad
				}
				return good
			}}
			var w told
			r, err := quick(one(t, kind, serve(t, s))).Next(t.Context(), asking, w.watch())
			said := fmt.Sprint(err, w.retries)
			if len(s.Asked()) != row.asked || (err == nil) != (row.answer != "") || !strings.Contains(said, row.says) ||
				strings.Contains(said, key) {
				t.Errorf("%s, %s: asked %d times, %q", row.why, kind, len(s.Asked()), said)
			}
			if err == nil && (w.text != row.answer || r.Blocks[0].Text != row.answer) {
				t.Errorf("%s, %s: heard %q, %+v", row.why, kind, w.text, r)
			}
		}
	}
}

// TestErrorsInAStream: an error that comes after the head.
func TestErrorsInAStream(t *testing.T) {
	for kind, raw := range map[string]string{
		"anthropic": "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"full\"}}\n\n",
		"openai":    "data: {\"error\":{\"message\":\"full\"}}\n\n", "ollama": "{\"error\":\"full\"}\n",
	} {
		n := 0
		s := &providertest.Server{Script: func(providertest.Ask) providertest.Turn {
			if n++; n == 1 {
				return providertest.Turn{Raw: raw}
			}
			return providertest.Turn{Text: "good"}
		}}
		var w told
		if _, err := quick(one(t, kind, serve(t, s))).Next(t.Context(), asking, w.watch()); err != nil || n != 2 ||
			!strings.Contains(w.retries[0], "overloaded: full") {
			t.Errorf("%s: %d, %v: %v", kind, n, w.retries, err)
		}
	}
}

// TestFallback: the next provider is asked after a refusal and after a failure, and a refusal is the answer only where
// no other provider has one.
func TestFallback(t *testing.T) {
	refusal := map[string]string{"anthropic": "refusal", "openai": "content_filter"}
	for kind, stop := range refusal {
		first := &providertest.Server{Script: func(providertest.Ask) providertest.Turn { return providertest.Turn{Text: "no", Stop: stop} }}
		second := &providertest.Server{Script: func(providertest.Ask) providertest.Turn { return providertest.Turn{Text: "yes"} }}
		broken := &providertest.Server{Script: func(providertest.Ask) providertest.Turn { return providertest.Turn{Status: 401, Raw: "x"} }}
		a, b, x := one(t, kind, serve(t, first)), one(t, "ollama", serve(t, second)), one(t, "openai", serve(t, broken))
		var w told
		r, err := quick(a, x, b).Next(t.Context(), asking, w.watch())
		if err != nil || r.Provider != "ollama m" || w.text != "yes" || len(w.retries) != 2 ||
			!strings.Contains(w.retries[0], kind+" m refused") {
			t.Errorf("%s: %+v %v: %v", kind, r, w, err)
		}
		if r, err := quick(x, a).Next(t.Context(), asking, w.watch()); err != nil || r.Stop != chat.Refused {
			t.Errorf("%s: a refusal after a failure: %+v: %v", kind, r, err)
		}
	}
	if _, err := quick().Next(t.Context(), asking, (&told{}).watch()); err == nil {
		t.Error("no provider gave an answer")
	}
}

// TestSilence: a provider that stops sending is given up; one that sends slowly is not.
func TestSilence(t *testing.T) {
	for hold, works := range map[time.Duration]bool{0: true, 3 * time.Second: false} {
		s := &providertest.Server{Chunk: 40, Script: func(providertest.Ask) providertest.Turn {
			return providertest.Turn{Text: strings.Repeat("x", 400), Hold: hold}
		}}
		p := one(t, "openai", serve(t, s))
		p.o.Silence = 400 * time.Millisecond
		_, err := p.ask(t.Context(), asking, func(string) {})
		var f *Fault
		if works != (err == nil) || !works && (!errors.As(err, &f) || f.Cause != Unreachable ||
			!strings.Contains(f.Text, "nothing")) {
			t.Errorf("silence of %v: %v", hold, err)
		}
	}
}

// TestOnlyItsHost: the way out of a provider is to one host and port, and to no private address that the operator did
// not name.
func TestOnlyItsHost(t *testing.T) {
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer here.Close()
	for url, want := range map[string]string{
		here.URL: "", // the control: the address itself is named
		strings.Replace(here.URL, "127.0.0.1", "localhost", 1): "egress.host",
		"http://127.0.0.1:1/": "egress.port",
	} {
		rt, err := Transport(here.URL, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := rt.RoundTrip(r)
		if err == nil {
			a.Body.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestKeys: a key that cannot be sent, or cannot be fetched, is named and never quoted.
func TestKeys(t *testing.T) {
	s := &providertest.Server{Script: func(providertest.Ask) providertest.Turn { return providertest.Turn{Text: "x"} }}
	url := serve(t, s)
	for _, value := range []string{"two words", "line\nend", "", "ü"} {
		p := one(t, "anthropic", url)
		p.o.Key = func() (secret.Value, error) { return secret.NewValue(value), nil }
		_, err := p.ask(t.Context(), asking, func(string) {})
		if err == nil || value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if len(s.Asked()) > 0 {
		t.Error("it was sent")
	}
}

// TestBadCalls: arguments without a JSON object get the reason, and a cut answer has no calls.
func TestBadCalls(t *testing.T) {
	for input, fault := range map[string]bool{`{"a":1}`: false, "": false, `{"a":`: true, `[1]`: true, `{"a":1,"a":2}`: true} {
		body := providertest.Render("openai", providertest.Turn{Calls: []providertest.Call{{Tool: "a", Input: input}}})
		c := read(t, "openai", body, len(body)).Blocks[0].Call
		if (c.Fault != "") != fault || fault && string(c.Input) != "{}" {
			t.Errorf("%q: %+v", input, c)
		}
	}
	body := providertest.Render("anthropic", providertest.Turn{Text: "t", Stop: "max_tokens",
		Calls: []providertest.Call{{Tool: "a", Input: `{"a":`}}})
	if r := read(t, "anthropic", body, len(body)); r.Stop != chat.Length || len(r.Blocks) != 1 {
		t.Errorf("an answer that is cut: %+v", r)
	}
	before, _, _ := strings.Cut(body, "event: message_stop")
	cut := &answer{text: func(string) {}}
	if err := kinds["anthropic"].read(strings.NewReader(before), cut); err != nil || cut.stop == "" {
		t.Fatalf("the control: %+v: %v", cut, err)
	}
	if r, err := cut.finish(); err == nil {
		t.Errorf("an answer without its end: %+v", r)
	}
}

// TestBounds: an answer without end, or with too many calls, is malformed.
func TestBounds(t *testing.T) {
	many := providertest.Turn{}
	for range maxCalls + 1 {
		many.Calls = append(many.Calls, providertest.Call{Tool: "a", Input: "{}"})
	}
	for name, turn := range map[string]providertest.Turn{"calls": many, "text": {Text: strings.Repeat("x", maxAnswer+1)},
		"name": {Calls: []providertest.Call{{Tool: strings.Repeat("n", maxName+1), Input: "{}"}}}} {
		for _, kind := range allKinds {
			a := &answer{text: func(string) {}}
			var f *Fault
			if err := kinds[kind].read(strings.NewReader(providertest.Render(kind, turn)), a); !errors.As(err, &f) ||
				f.Cause != Malformed {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
		}
	}
}

// FuzzAnswer: any accepted reply is whole: it has a stop, each call has a name and a JSON object, and
// no text is empty. The same bytes in other parts give the same reply.
func FuzzAnswer(f *testing.F) {
	for i, kind := range allKinds {
		f.Add(byte(i), 3, providertest.Render(kind, providertest.Turn{Text: "a", Calls: []providertest.Call{{Tool: "t", Input: `{"a":1}`}}}))
		f.Add(byte(i), 1, "data: [DONE]\r\n\r\n")
	}
	f.Fuzz(func(t *testing.T, which byte, n int, body string) {
		kind := allKinds[int(which)%3]
		reply := func(n int) (chat.Reply, bool) {
			a := &answer{text: func(string) {}}
			if err := kinds[kind].read(&parts{body, n}, a); err != nil {
				return chat.Reply{}, false
			}
			r, err := a.finish()
			return r, err == nil
		}
		r, ok := reply(len(body) + 1)
		if again, same := reply(1 + max(n%7, -n%7)); ok != same || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v %v, in parts %+v %v", r, ok, again, same)
		}
		if !ok {
			return
		}
		if r.Stop == "" || r.Usage.Input < 0 || r.Usage.Output < 0 || (r.Stop == chat.Calls) != hasCalls(r) {
			t.Errorf("%+v", r)
		}
		for _, b := range r.Blocks {
			if c := b.Call; c != nil && (c.Tool == "" || !strings.HasPrefix(string(c.Input), "{")) || c == nil &&
				strings.TrimSpace(b.Text) == "" {
				t.Errorf("%+v", b)
			}
		}
	})
}

func hasCalls(r chat.Reply) bool {
	for _, b := range r.Blocks {
		if b.Call != nil {
			return true
		}
	}
	return false
}

// TestRedirect: a redirect with an address is an error answer; the other host hears nothing.
func TestRedirect(t *testing.T) {
	heard := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard++ }))
	defer other.Close()
	from := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer from.Close()
	p := one(t, "openai", from.URL)
	p.http.Transport = http.DefaultTransport // the control: without the egress rule a redirect could be followed
	_, err := p.ask(t.Context(), asking, func(string) {})
	var f *Fault
	if !errors.As(err, &f) || f.Status != http.StatusTemporaryRedirect || heard > 0 {
		t.Errorf("%v, heard %d", err, heard)
	}
}
