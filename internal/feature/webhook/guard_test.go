package webhook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/audit"
	"waldo/internal/feature/webhook/receive"
	sign "waldo/internal/feature/webhook/signature"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/storage/inbox"
)

// signed is a request that is accepted, from an address.
func (b *bench) signed(t *testing.T, name, body string) *http.Request {
	t.Helper()
	k, err := sign.Standard.Key(standardSecret)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/hooks/h", strings.NewReader(body))
	r.RemoteAddr = "203.0.113.7:1000"
	r.Header = sign.Standard.Sign(k, name, b.now(), []byte(body))
	return r
}

func (b *bench) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w
}

func standardBench(t *testing.T) *bench {
	b := newBench(t)
	b.hook("h", "standard", 5*time.Minute, standardSecret)
	return b
}

// raw sends the head of a request and no body, and returns the status of the answer that comes all the same.
func (b *bench) raw(t *testing.T, head string) int {
	t.Helper()
	c, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, "POST /hooks/h HTTP/1.1\r\nHost: h\r\n"+head+"\r\n"); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_ = a.Body.Close()
	return a.StatusCode
}

// TestBeforeReading: a body that is too long, and one whose headers cannot be right, are refused unread.
func TestBeforeReading(t *testing.T) {
	b := standardBench(t)
	lines := ""
	for name, v := range b.signed(t, "m", "x").Header {
		lines += name + ": " + v[0] + "\r\n"
	}
	for head, want := range map[string]int{
		lines + "Content-Length: 1048577\r\n":                                           413,
		"Content-Length: 9\r\n":                                                         401,
		lines + "Content-Length: 9\r\nContent-Encoding: gzip\r\n":                       415,
		lines + "Content-Length: 9\r\nContent-Type: multipart/form-data\r\n":            415,
		lines + "Content-Length: 9\r\nWebhook-Timestamp: 1\r\n":                         401,
		strings.Replace(lines, "Webhook-Id", "Webhook-Xd", 1) + "Content-Length: 9\r\n": 401,
	} {
		if got := b.raw(t, head); got != want {
			t.Errorf("%q: %d, not %d", head, got, want)
		}
	}
	r := b.signed(t, "long", strings.Repeat("x", 1<<20+1))
	r.ContentLength = -1 // chunked
	if w := b.serve(r); w.Code != 413 {
		t.Errorf("a long body of no known length: %d", w.Code)
	}
	if w := b.serve(b.signed(t, "fits", strings.Repeat("x", 1<<20))); w.Code != 202 {
		t.Errorf("control: %d", w.Code)
	}
}

func TestTypes(t *testing.T) {
	b := standardBench(t)
	for i, row := range []struct {
		header, value string
		want          int
	}{
		{"Content-Type", "application/json; charset=utf-8", 202}, {"Content-Type", "application/cloudevents+json", 202},
		{"Content-Type", "application/x-www-form-urlencoded", 202}, {"Content-Encoding", "identity", 202},
		{"Content-Type", "text/html", 415}, {"Content-Type", "multipart/form-data; boundary=x", 415},
		{"Content-Type", "garbage;;", 415}, {"Content-Encoding", "gzip", 415}, {"Content-Encoding", "br", 415},
	} {
		r := b.signed(t, fmt.Sprint("m", i), "{}")
		r.Header.Set(row.header, row.value)
		if w := b.serve(r); w.Code != row.want {
			t.Errorf("%s: %s: %d", row.header, row.value, w.Code)
		}
	}
	for method, want := range map[string]int{"GET": 405, "HEAD": 405, "PUT": 405, "DELETE": 405, "OPTIONS": 405} {
		r := b.signed(t, "method"+method, "{}")
		r.Method = method
		if w := b.serve(r); w.Code != want || w.Header().Get("Allow") != "POST" {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	for _, path := range []string{"/hooks/", "/hooks/no", "/hooks/h/", "/hooks/h/x", "/hooks/H"} {
		r := b.signed(t, "path", "{}")
		r.URL.Path = path
		if w := b.serve(r); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestRates(t *testing.T) {
	b := standardBench(t)
	w := b.cfg.Webhooks["h"]
	w.Rate = contract.Rate{Calls: 2, Per: time.Minute}
	b.cfg.Webhooks["h"] = w
	for i, want := range []int{202, 202, 429} {
		a := b.serve(b.signed(t, fmt.Sprint("m", i), "{}"))
		if a.Code != want || (want == 429) != (a.Header().Get("Retry-After") == "30") {
			t.Errorf("%d: %d %v", i, a.Code, a.Header())
		}
	}
	if n := len(waitingIn(t, b)); n != 2 {
		t.Errorf("%d stored", n)
	}
	b.set(b.now().Unix() + 30)
	if a := b.serve(b.signed(t, "m2", "{}")); a.Code != 202 {
		t.Errorf("the sender's next try: %d", a.Code)
	}
}

// TestPeers: an address that sends many forged webhooks is not looked at any more, for a while; others are.
func TestPeers(t *testing.T) {
	b := standardBench(t)
	from := func(peer string, r *http.Request) int {
		r.RemoteAddr = peer
		return b.serve(r).Code
	}
	forged := func() *http.Request {
		r := b.signed(t, "m", "{}")
		r.Body = io.NopCloser(strings.NewReader("{ }"))
		return r
	}
	for i := range 70 {
		if got, want := from("[2001:db8::1]:1", forged()), 401; i < 60 && got != want || i >= 60 && got != 429 {
			t.Fatalf("%d: %d", i, got)
		}
	}
	if got := from("[2001:db8::2]:1", b.signed(t, "same network", "{}")); got != 429 {
		t.Errorf("the same network of 64 bits: %d", got)
	}
	if got := from("198.51.100.1:1", b.signed(t, "another", "{}")); got != 202 {
		t.Errorf("another address: %d", got)
	}
	b.set(b.now().Unix() + 60)
	if got := from("[2001:db8::2]:1", b.signed(t, "later", "{}")); got != 202 {
		t.Errorf("a minute later: %d", got)
	}
}

// records returns the bodies of the records about webhooks.
func (b *bench) records(t *testing.T) (all []receive.Event) {
	t.Helper()
	_, err := audit.Select(t.Context(), audit.Dir(b.o.Queue.Store.Dir()), audit.Selection{Last: 10_000,
		Match: func(r audit.Record) bool { return r.Kind == inbox.Kind }}, func(r audit.Record) error {
		var e receive.Event
		err := json.Unmarshal(r.Body, &e)
		all = append(all, e)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFloodIsCounted: every refusal is in the log, in a few records.
func TestFloodIsCounted(t *testing.T) {
	b := standardBench(t)
	if w := b.serve(b.signed(t, "good", "{}")); w.Code != 202 {
		t.Fatal(w.Code)
	}
	for i := range 300 {
		r := b.signed(t, "m", "{}")
		r.Header.Set("Webhook-Signature", "v1,"+strings.Repeat("A", 43)+"=")
		r.URL.Path += strings.Repeat("x\n", i%2) // no webhook has this name
		b.serve(r)
	}
	b.server.Flush()
	all, sum := b.records(t), 0
	for _, e := range all {
		if e.Event == "refused" {
			sum += e.Count
		}
		if (e.Principal == "") != (e.Hook == "") || strings.Contains(e.Hook, "x") {
			t.Errorf("%+v", e)
		}
	}
	if len(all) > 9 || sum != 300 || all[0].Event != "received" || all[0].Delivery == "" || all[0].Principal != "hook:h" {
		t.Errorf("%d records of %d refusals: %+v", len(all), sum, all)
	}
}

func TestUnrecordedIsNotStored(t *testing.T) {
	b := standardBench(t)
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	if w := b.serve(b.signed(t, "m", "{}")); w.Code != 503 || len(waitingIn(t, b)) != 0 {
		t.Errorf("%d, %d stored", w.Code, len(waitingIn(t, b)))
	}
}

func TestChallenge(t *testing.T) {
	b := newBench(t)
	b.hook("h", "slack", 5*time.Minute, "a secret of some length")
	body := []byte(`{"type":"url_verification","challenge":"abc"}`)
	r := httptest.NewRequest(http.MethodPost, "/hooks/h", bytes.NewReader(body))
	r.Header = sign.Slack.Sign(sign.Raw("a secret of some length"), "", b.now(), body)
	if w := b.serve(r); w.Code != 200 || w.Body.String() != "abc" || len(waitingIn(t, b)) != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r = httptest.NewRequest(http.MethodPost, "/hooks/h", bytes.NewReader(body))
	r.Header = sign.Slack.Sign(sign.Raw("another secret of length"), "", b.now(), body)
	if w := b.serve(r); w.Code != 401 || strings.Contains(w.Body.String(), "abc") {
		t.Errorf("forged: %d %s", w.Code, w.Body)
	}
}

func TestArguments(t *testing.T) {
	d := &inbox.Delivery{ID: "h_1", Hook: "h", About: inbox.About{Event: "push"},
		Body: []byte(`{"a":{"b/c":[10,{"~x":"y"}]},"n":12345678901234567890123,"evil":"$hook"}`)}
	for word, want := range map[string]string{
		"$payload": string(strictQuote(t, string(d.Body))), "$event": `"push"`, "$delivery": `"h_1"`, "$hook": `"h"`,
		"$json/a/b~1c/0": "10", "$json/a/b~1c/1/~0x": `"y"`, "$json/n": "12345678901234567890123", "$json/evil": `"$hook"`,
		"$json": string(d.Body), "before $payload": `"before $payload"`, "$payloads": `"$payloads"`, "$$": `"$$"`,
		"$json/none": "", "$json/a/b~1c/2": "", "$json/a/b~1c/-1": "", "$json/n/x": "", "$json/": "",
	} {
		args, err := arguments(map[string]any{"v": []any{word}}, d)
		if want == "" {
			if err == nil {
				t.Errorf("%s: %s", word, args.Raw())
			}
			continue
		}
		if got := string(args.Raw()); err != nil || got != `{"v":[`+want+`]}` {
			t.Errorf("%s: %s %v", word, got, err)
		}
	}
	for _, body := range []string{"\xff", `{"a":1,"a":2}`, "[1"} {
		if args, err := arguments(map[string]any{"v": map[bool]string{true: "$payload",
			false: "$json"}[body == "\xff"]},
			&inbox.Delivery{Body: []byte(body)}); err == nil {
			t.Errorf("%q: %s", body, args.Raw())
		}
	}
}

func strictQuote(t *testing.T, s string) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzArguments: no payload changes the names of the arguments, or a value that stands for nothing of it.
func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`))
	f.Add([]byte(`","fixed":"evil","x":"`))
	f.Add([]byte(`{"a":"$payload"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, word := range []string{"$payload", "$json", "$json/a", "$json/a/b"} {
			args, err := arguments(map[string]any{"v": word, "fixed": "good"}, &inbox.Delivery{Body: body})
			if err != nil {
				continue
			}
			v := args.Values()
			if len(v) != 2 || v["fixed"] != "good" {
				t.Fatalf("%q: %s", body, args.Raw())
			}
			if text, ok := v["v"].(string); word == "$payload" && (!ok || text != string(body)) {
				t.Fatalf("%q became %q", body, text)
			}
		}
	})
}

// TestJudge: a call that was denied, or can have had an effect, is not made again.
func TestJudge(t *testing.T) {
	result := func(s facts.Status, e facts.SideEffect) call.Result {
		f := facts.New()
		f.SideEffect = e
		return call.Result{Status: s, Facts: f, Why: []call.Reason{{Code: "contract.absent", Text: "no"}}}
	}
	for _, row := range []struct {
		r           call.Result
		ok          bool
		final, free bool
	}{
		{result(facts.OK, facts.Confirmed), true, false, false}, {result(facts.Denied, facts.None), false, true, false},
		{result(facts.Failed, facts.Unknown), false, true, false}, {result(facts.Failed, facts.Confirmed), false,
			true, false},
		{result(facts.Failed, facts.None), false, false, false}, {result(facts.Waiting, facts.None), false, false,
			true},
		{result("", facts.Unknown), false, true, false},
	} {
		why := judge(row.r, contract.Webhook{Tries: 3})
		if (why == nil) != row.ok || why != nil && (why.Final != row.final || why.Free != row.free) {
			t.Errorf("%s: %+v", row.r.Status, why)
		}
	}
}
