package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonschema"
	"waldo/internal/protocol/strictjson"
)

// hostile is a text of an agent that tries to be markup, a terminal code and another direction.
const hostile = "<script>alert(1)</script>\x1b[2J\u202egpj.exe\"'><img src=x onerror=alert(1)>"

// fake is a backend with one of each thing.
type fake struct {
	Backend
	role    Role
	used    bool
	events  []Event
	deny    error // of Audit
	settled int
	live    []LiveEvent
	acts    []string // on sandboxes and sessions
}

func (f *fake) Audit(_ context.Context, _ Who, e Event) error {
	if f.deny != nil {
		return f.deny
	}
	f.events = append(f.events, e)
	return nil
}

func (f *fake) UseLink(_ context.Context, _ Who, token string) (Role, error) {
	if token != "good" || f.used {
		return RoleNone, Problemf(http.StatusForbidden, "link", "used")
	}
	f.used = true
	return f.role, nil
}

var question = Approval{ID: "a_1", State: "pending", Capability: hostile, Principal: hostile, Session: "n_1",
	Channel: "mcp", Mode: "write", Danger: 3, Need: 1, Given: []string{},
	Reasons: []call.Reason{{Code: "rule", Text: hostile, File: "waldo.yaml",
		Line: 3}}, Notes: []string{hostile}, Preview: []string{hostile, "+ " + hostile},
	Fields: []Field{{Path: "cmd", Value: hostile, Changed: Differs, Before: `"ls"`}}, Digest: "sha256:1",
	Created: time.Now(), Expires: time.Now().Add(time.Hour)}

func (f *fake) Approvals(context.Context, Page) (List[Approval], error) {
	return List[Approval]{Items: []Approval{question}, Total: 1}, nil
}

func (f *fake) Approval(context.Context, string) (Approval, error) { return question, nil }

func (f *fake) Approvers(context.Context) (List[Approver], error) {
	return List[Approver]{Items: []Approver{{Name: "ann", Passkey: true, Origin: "http://localhost:7677",
		Roles: []string{}}}}, nil
}

func (f *fake) Settle(context.Context, Who, string, string, string, json.RawMessage) error {
	f.settled++
	return nil
}

var hostileCall = Call{ID: "c_1", At: hostile, Capability: hostile, Gist: hostile, Principal: hostile, Agent: hostile,
	Folder: hostile, Channel: hostile, Effect: "allow", Status: "ok", Result: hostile, Because: hostile, Approval: "a_1"}

func (f *fake) Calls(_ context.Context, _ CallFilter, p Page) (List[Call], error) {
	return List[Call]{
		Items: []Call{hostileCall}, Next: "7",
	}, nil
}

func (f *fake) Call(_ context.Context, id string) (CallLife, error) {
	if id != "c_1" {
		return CallLife{}, Problemf(http.StatusNotFound, "call.unknown", "%s", hostile)
	}
	args, _ := json.Marshal(map[string]string{"cmd": hostile})
	return CallLife{
		Call: hostileCall, Args: args, Answers: []Answer{{By: hostile, Yes: true}}, Children: []Call{},
		Records: []Record{{Kind: "decision", Body: args}}, Facts: json.RawMessage(`{"status":"timeout","signal":"SIGKILL",
			"limits":{"wall_ms":1000},"usage":{"wall_ms":1000},"network":{"attempts":[{"host":"example.com","port":443}]}}`),
	}, nil
}

func (f *fake) Stop(_ context.Context, _ Who, name string, release bool) error {
	f.acts = append(f.acts, fmt.Sprintf("%s release=%v", name, release))
	return nil
}

func (f *fake) Agents(context.Context, Page) (List[Agent], error) {
	return List[Agent]{Items: []Agent{{Session: hostile, Principal: hostile, Channel: hostile, First: hostile,
		State: Running},
		{Session: hostile, Folder: hostile, Agent: hostile, State: "stopped"}}}, nil
}

func (f *fake) Sandboxes(context.Context) (List[Sandbox], error) {
	return List[Sandbox]{Items: []Sandbox{{Name: hostile, ID: hostile, State: "paused", Template: hostile}}}, nil
}

func (f *fake) SandboxAct(_ context.Context, _ Who, name, act string) error {
	f.acts = append(f.acts, act+" "+name)
	return nil
}

func (f *fake) Restart(_ context.Context, name string) error {
	f.acts = append(f.acts, "restart "+name)
	return nil
}

func (f *fake) Upstreams(context.Context) (List[Upstream], error) {
	return List[Upstream]{Items: []Upstream{{Name: hostile, Target: hostile, Health: "failing", Why: hostile,
		Failures: 5, OpenUntil: hostile}}}, nil
}

func (f *fake) Unsettled(context.Context) (List[Unsettled], error) {
	return List[Unsettled]{Items: []Unsettled{{CallID: hostile, Capability: hostile, Principal: hostile}}}, nil
}

func (f *fake) Pins(context.Context) (List[Pin], error) {
	return List[Pin]{Items: []Pin{{Server: hostile, Name: hostile, Code: "lock.changed", Text: hostile,
		Diff: []string{"-" + hostile, "+" + hostile, hostile}}}}, nil
}

func (f *fake) Records(_ context.Context, _ RecordFilter, _ Page) (List[Record], error) {
	body, _ := json.Marshal(map[string]string{"cmd": hostile})
	return List[Record]{Items: []Record{{Seq: 9, ID: hostile, Kind: hostile, Body: body}}, Next: "9"}, nil
}

func (f *fake) Verify(context.Context) (json.RawMessage, error) {
	return json.Marshal(map[string]any{"ok": false, "records": 9, "segments": 1, "claim": hostile,
		"findings": []any{map[string]any{"problem": true, "code": "chain.broken", "text": hostile, "seq": 9}}})
}

func (f *fake) Live(_ context.Context, after uint64) (<-chan LiveEvent, bool, error) {
	c := make(chan LiveEvent, len(f.live))
	for _, e := range f.live {
		if e.Seq > after {
			c <- e
		}
	}
	close(c)
	return c, after > 100, nil
}

const host = "localhost:7677"

// visit makes a request of a browser; with sets headers.
func visit(s *Server, method, path, body string, with map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(body))
	r.Host = host
	if method != http.MethodGet {
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range with {
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// enter logs in by a link and returns the headers of its later requests.
func enter(t *testing.T, s *Server) map[string]string {
	t.Helper()
	w := visit(s, "POST", "/login", url.Values{"token": {"good"}}.Encode(),
		map[string]string{"Content-Type": "application/x-www-form-urlencoded"})
	if w.Code != http.StatusSeeOther {
		t.Fatalf("login: %d %s", w.Code, w.Body)
	}
	cookie := w.Header().Get("Set-Cookie")
	for _, want := range []string{"__Host-waldo=", "; Path=/", "; HttpOnly", "; Secure", "; SameSite=Strict"} {
		if !strings.Contains(cookie, want) || strings.Contains(cookie, "Domain") {
			t.Errorf("cookie %q lacks %q", cookie, want)
		}
	}
	value, _, _ := strings.Cut(cookie, ";")
	with := map[string]string{"Cookie": value}
	var me struct{ CSRF string }
	if err := json.Unmarshal(visit(s, "GET", "/api/v1/me", "", with).Body.Bytes(), &me); err != nil || me.CSRF == "" {
		t.Fatalf("me: %v", err)
	}
	with["X-CSRF-Token"] = me.CSRF
	return with
}

func newServer(f *fake) *Server {
	return New(Options{Backend: f, Hosts: []string{"localhost", "127.0.0.1"},
		Identify: func(r *http.Request) (call.Principal, Role) {
			switch r.Header.Get("Authorization") {
			case "Bearer view":
				return "token:view", RoleViewer
			case "Bearer none":
				return "token:agent", RoleNone
			}
			return "", RoleNone
		}})
}

func code(w *httptest.ResponseRecorder) string {
	var p Problem
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	return p.Code
}

func TestGuards(t *testing.T) {
	f := &fake{role: RoleOperator}
	s := newServer(f)
	in := enter(t, s)
	answer := `{"draft":"x","assertion":{}}`
	if w := visit(s, "POST", "/api/v1/approvals/a_1/approve", answer, in); w.Code != 200 || f.settled != 1 {
		t.Fatalf("control: %d %s", w.Code, w.Body)
	}
	with := func(change map[string]string) map[string]string {
		out := map[string]string{}
		for k, v := range in {
			out[k] = v
		}
		for k, v := range change {
			out[k] = v
		}
		return out
	}
	for why, row := range map[string]struct {
		method, path, body string
		with               map[string]string
		status             int
		want               string
	}{
		"no login": {"POST", "/api/v1/approvals/a_1/approve", answer, nil, 401, "login"},
		"another site's page": {"POST", "/api/v1/approvals/a_1/approve", answer,
			with(map[string]string{"Origin": "https://evil.example"}), 403, "cross_site"},
		"another local port": {"POST", "/api/v1/approvals/a_1/approve", answer,
			with(map[string]string{"Origin": "http://localhost:9999"}), 403, "cross_site"},
		"a null origin": {"POST", "/api/v1/approvals/a_1/approve", answer,
			with(map[string]string{"Origin": "null"}), 403, "cross_site"},
		"fetch metadata": {"POST", "/api/v1/approvals/a_1/approve", answer,
			with(map[string]string{"Sec-Fetch-Site": "cross-site"}), 403, "cross_site"},
		"no token of the session": {"POST", "/api/v1/approvals/a_1/approve", answer,
			with(map[string]string{"X-CSRF-Token": ""}), 403, "csrf"},
		"another token": {"POST", "/api/v1/approvals/a_1/approve", answer,
			with(map[string]string{"X-CSRF-Token": secret()}), 403, "csrf"},
		"a guessed cookie": {"POST", "/api/v1/approvals/a_1/approve", answer,
			map[string]string{"Cookie": "__Host-waldo=" + secret()}, 401, "login"},
		"a link preview": {"GET", "/api/v1/approvals/a_1/approve", "", in, 404, "not_found"},
		"a form": {"POST", "/api/v1/approvals/a_1/approve", "draft=x",
			with(map[string]string{"Content-Type": "application/x-www-form-urlencoded"}), 415, "media_type"},
		"rebinding": {"GET", "/api/v1/calls", "", with(map[string]string{"Host": "evil.example:7677"}),
			403, "host"},
		"a viewer's token": {"POST", "/api/v1/approvals/a_1/approve", answer,
			map[string]string{"Authorization": "Bearer view"}, 403, "role"},
		"a viewer stops": {"POST", "/api/v1/agents/n_1/stop", "", map[string]string{"Authorization": "Bearer view"},
			403, "role"},
		"an agent's token": {"GET", "/api/v1/calls", "", map[string]string{"Authorization": "Bearer none"}, 403,
			"role"},
		"an unknown token": {"GET", "/api/v1/calls", "", map[string]string{"Authorization": "Bearer x"}, 401, "token"},
		"a token and a cookie": {"GET", "/api/v1/calls", "", with(map[string]string{"Authorization": "Bearer x"}),
			401, "token"},
		"a token for a page": {"GET", "/calls", "", map[string]string{"Authorization": "Bearer view"}, 401, "token"},
		"an unknown member": {"POST", "/api/v1/approvals/a_1/approve", `{"draft":"x","assertion":{},"yes":true}`, in,
			400, "body"},
		"two values": {"POST", "/api/v1/approvals/a_1/approve", answer + answer, in, 400, "body"},
		"a long body": {"POST", "/api/v1/approvals/a_1/approve", `{"draft":"` + strings.Repeat("x", 2<<20) + `"}`,
			in, 413, "too_long"},
		"a bad limit":    {"GET", "/api/v1/calls?limit=100000", "", in, 400, "limit"},
		"no such path":   {"GET", "/api/v1/secrets", "", in, 404, "not_found"},
		"a bad event id": {"GET", "/api/v1/events", "", with(map[string]string{"Last-Event-ID": "x"}), 400, "event_id"},
	} {
		w := visit(s, row.method, row.path, row.body, row.with)
		if w.Code != row.status || code(w) != row.want {
			t.Errorf("%s: %d %s, want %d %s", why, w.Code, w.Body, row.status, row.want)
		}
		if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("%s: %s", why, kind)
		}
	}
	if f.settled != 1 {
		t.Errorf("%d answers were taken", f.settled)
	}
	if w := visit(s, "GET", "/api/v1/calls", "", map[string]string{"Authorization": "Bearer view"}); w.Code != 200 {
		t.Errorf("control: a viewer's token: %d", w.Code)
	}
}

// TestLink: a link logs in once, and no GET spends it.
func TestLink(t *testing.T) {
	f := &fake{role: RoleViewer}
	s := newServer(f)
	if w := visit(s, "GET", "/login?token=good", "",
		nil); w.Code != 200 || f.used || w.Header().Get("Set-Cookie") != "" {
		t.Fatalf("a preview: %d, spent %v", w.Code, f.used)
	}
	cross := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example"}
	if w := visit(s, "POST", "/login", "token=good", cross); w.Code != 403 || f.used {
		t.Errorf("a login from another site: %d, spent %v", w.Code, f.used)
	}
	in := enter(t, s)
	for range maxFailed {
		w := visit(s, "POST", "/login", "token=good",
			map[string]string{"Content-Type": "application/x-www-form-urlencoded"})
		if w.Code != 403 || w.Header().Get("Set-Cookie") != "" {
			t.Fatalf("the link again: %d", w.Code)
		}
	}
	if w := visit(s, "POST", "/login", "token=x",
		map[string]string{"Content-Type": "application/x-www-form-urlencoded"}); w.Code != http.StatusTooManyRequests {
		t.Errorf("a guess too many: %d", w.Code)
	}
	f.used = false
	enter(t, s) // a good link works beside them
	if w := visit(s, "POST", "/logout", url.Values{"csrf": {in["X-CSRF-Token"]}}.Encode(),
		map[string]string{"Cookie": in["Cookie"], "Content-Type": "application/x-www-form-urlencoded"}); w.Code != 303 {
		t.Errorf("logout: %d %s", w.Code, w.Body)
	}
	if w := visit(s, "GET", "/api/v1/calls", "", in); w.Code != 401 {
		t.Errorf("after logout: %d", w.Code)
	}
}

// TestShares: failed logins of strangers and of other users keep nobody out, at a login of any kind. A peer with too many
// is refused without a record, and what is good succeeds even there.
func TestShares(t *testing.T) {
	f := &fake{role: RoleViewer, used: true}
	s := newServer(f)
	uid, address, now := "", "192.0.2.1:1234", time.Now()
	s.o.Peer, s.o.Now = func(*http.Request) string { return uid }, func() time.Time { return now }
	try := func(token string) int {
		r := httptest.NewRequest("POST", "http://localhost:7677/login", strings.NewReader("token="+token))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	flood := func(who string) {
		t.Helper()
		for range maxFailed {
			if got := try("x"); got != http.StatusForbidden {
				t.Fatalf("%s has no share of its own: %d", who, got)
			}
		}
		for range 3 {
			if got := try("x"); got != http.StatusTooManyRequests {
				t.Errorf("%s has no end: %d", who, got)
			}
		}
	}
	flood("an address")
	address = "192.0.2.2:1"
	flood("another address")
	address = "[2001:db8::1]:1"
	flood("a network")
	address = "[2001:db8::2]:1"
	if got := try("x"); got != http.StatusTooManyRequests {
		t.Errorf("another address of the same network: %d", got)
	}
	address, uid = "127.0.0.1:1", "1004"
	flood("a user")
	if n := len(f.events); n != 4*maxFailed {
		t.Errorf("%d records", n)
	}
	f.used = false
	if got := try("good"); got != http.StatusSeeOther {
		t.Errorf("a good link of a peer with too many: %d", got)
	}
	uid = ""
	for i := range 2 * maxPeers {
		address = fmt.Sprintf("198.51.100.%d:1", i)
		try("x")
	}
	if n := len(s.failed); n > maxPeers+2 {
		t.Errorf("%d peers are remembered", n)
	}
	if got := try("x"); got != http.StatusTooManyRequests {
		t.Errorf("strangers without a share of their own: %d", got)
	}
	uid = "1000"
	if got := try("x"); got != http.StatusForbidden {
		t.Errorf("a user of this machine, after all these: %d", got)
	}
	flooded := 0
	if uid = "1004"; try("x") == http.StatusTooManyRequests {
		flooded++
	}
	if now = now.Add(time.Minute); flooded != 1 || try("x") != http.StatusForbidden {
		t.Errorf("a share is of one minute: %d", flooded)
	}
}

// TestPeer: a cookie that another user of the machine learnt opens nothing.
func TestPeer(t *testing.T) {
	s, peer := newServer(&fake{role: RoleOperator}), "1000"
	s.o.Peer = func(*http.Request) string { return peer }
	in := enter(t, s)
	for _, row := range []struct {
		peer string
		want int
	}{{"1000", 200}, {"65534", 401}, {"unknown", 401}, {"", 401}, {"1000", 200}} {
		peer = row.peer
		if w := visit(s, "GET", "/api/v1/me", "", in); w.Code != row.want {
			t.Errorf("%q: %d, not %d", row.peer, w.Code, row.want)
		}
	}
}

// TestSessionEnds: a login that is not used for two hours, or is 12 hours old, is over.
func TestSessionEnds(t *testing.T) {
	now := time.Now()
	s := newServer(&fake{role: RoleViewer})
	s.o.Now = func() time.Time { return now }
	in := enter(t, s)
	for range 7 {
		now = now.Add(100 * time.Minute)
		if w := visit(s, "GET", "/api/v1/me", "", in); w.Code != 200 {
			t.Fatalf("control: %d", w.Code)
		}
	}
	now = now.Add(time.Hour)
	if w := visit(s, "GET", "/api/v1/me", "", in); w.Code != 401 {
		t.Errorf("after 12 hours: %d", w.Code)
	}
	s = newServer(&fake{role: RoleViewer})
	s.o.Now = func() time.Time { return now }
	in = enter(t, s)
	now = now.Add(sessionIdle + time.Second)
	if w := visit(s, "GET", "/api/v1/me", "", in); w.Code != 401 {
		t.Errorf("after two idle hours: %d", w.Code)
	}
}

// TestUnrecorded: an action without a record is not done.
func TestUnrecorded(t *testing.T) {
	f := &fake{role: RoleOperator}
	s := newServer(f)
	in := enter(t, s)
	f.deny = errors.New("the disk is full")
	if w := visit(s, "POST", "/api/v1/approvals/a_1/approve", `{"draft":"x","assertion":{}}`, in); w.Code != 500 ||
		f.settled != 0 {
		t.Errorf("%d, %d answers taken", w.Code, f.settled)
	}
	f.deny = nil
	visit(s, "POST", "/api/v1/agents/n_1/stop", "", in)
	if n := len(f.events); n != 3 || f.events[1] != (Event{Action: "stop", Target: "n_1", Result: "begun"}) ||
		f.events[2].Result != "done" {
		t.Errorf("%+v", f.events)
	}
}

// TestPages: every page of a hostile agent's texts is inert, and every answer forbids frames and inline script.
func TestPages(t *testing.T) {
	s := newServer(&fake{role: RoleOperator})
	in := enter(t, s)
	in["Accept"] = "text/html"
	for _, path := range []string{
		"/", "/approvals", "/approvals/a_1", "/sessions/x", "/servers/x", "/egress", "/egress?text=" + url.QueryEscape(hostile),
		"/calls?text=" + url.QueryEscape(hostile) + "&agent=" + url.QueryEscape(hostile), "/calls", "/calls?capability=" + url.QueryEscape(hostile), "/calls/c_1", "/calls/c_2",
		"/enrol", "/nowhere", "/servers", "/pins", "/log", "/log?text=" + url.QueryEscape(hostile), "/sandboxes", "/sessions", "/webhooks",
		"/contracts", "/contracts?capability=" + url.QueryEscape(hostile), "/usage", "/usage?period=" + url.QueryEscape(hostile),
	} {
		w := visit(s, "GET", path, "", in)
		page := w.Body.String()
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%s: %d %s", path, w.Code, page)
		}
		for _, bad := range []string{"<script>alert", "<img", "\x1b", "\u202e", "onerror=alert(1)>", "style=",
			"ZgotmplZ"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s holds %q:\n%s", path, bad, page)
			}
		}
		if path == "/calls/c_1" { // of the facts: what ended it, its whole time as a bar, an attempt that was refused
			for _, want := range []string{"SIGKILL", `class="f full"`, "refused"} {
				if !strings.Contains(page, want) {
					t.Errorf("%s lacks %q:\n%s", path, want, page)
				}
			}
		}
		if strings.Count(page, "<script") != 1 || !strings.Contains(page,
			`<script src="/assets/app.js" defer></script>`) {
			t.Errorf("%s: scripts:\n%s", path, page)
		}
		h := w.Header()
		if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self';") ||
			!strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %q", path, csp)
		}
		if h.Get("X-Frame-Options") != "DENY" || h.Get("Cache-Control") != "no-store" ||
			h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if w := visit(s, "GET", "/approvals", "", map[string]string{"Host": "127.0.0.1:7677"}); w.Code != 307 ||
		w.Header().Get("Location") != "http://localhost:7677/approvals" {
		t.Errorf("by address: %d %v", w.Code, w.Header())
	}
	if w := visit(s, "GET", "/assets/../templates/call.html", "", nil); w.Code == 200 {
		t.Error("a template was sent")
	}
}

// TestEvents: a client that names its last event gets those after it; one too far behind gets a reset.
func TestEvents(t *testing.T) {
	f := &fake{
		role: RoleViewer, live: []LiveEvent{
			{5, "decision", []byte(`{"seq":5}`)}, {6, "outcome", []byte(`{"seq":6}`)}, {0, "approvals", []byte(`{}`)},
		},
	}
	s := newServer(f)
	in := enter(t, s)
	in["Last-Event-ID"] = "5"
	w := visit(s, "GET", "/api/v1/events", "", in)
	if got := w.Body.String(); w.Header().Get("Content-Type") != "text/event-stream" ||
		got != "retry: 1000\n\nid: 6\nevent: outcome\ndata: {\"seq\":6}\n\n" {
		t.Errorf("%q", got)
	}
	delete(in, "Last-Event-ID")
	if got := visit(s, "GET", "/api/v1/events?kinds=decision,approvals", "", in).Body.String(); got !=
		"retry: 1000\n\nid: 5\nevent: decision\ndata: {\"seq\":5}\n\n" {
		t.Errorf("without outcomes: %q", got)
	}
	in["Last-Event-ID"] = "200"
	if w := visit(s, "GET", "/api/v1/events", "", in); !strings.Contains(w.Body.String(), "event: reset\n") {
		t.Errorf("%q", w.Body)
	}
}

// TestAnswersFitTheDocument: answers of handlers fit their schemas in openapi.json.
func TestAnswersFitTheDocument(t *testing.T) {
	s := newServer(&fake{role: RoleOperator})
	in := enter(t, s)
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
		Components map[string]any
	}
	if err := json.Unmarshal(visit(s, "GET", "/api/v1/openapi.json", "", nil).Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{"/api/v1/contracts/dry-run": `{"capability":"a.b","args":{}}`,
		"/api/v1/contracts/what-if": `{"text":"version: 1"}`}
	for path, at := range map[string]string{"/api/v1/contracts/dry-run": "/api/v1/contracts/dry-run",
		"/api/v1/contracts/what-if": "/api/v1/contracts/what-if", "/api/v1/approvals": "/api/v1/approvals",
		"/api/v1/approvals/a_1": "/api/v1/approvals/{id}", "/api/v1/calls": "/api/v1/calls",
		"/api/v1/calls/c_1": "/api/v1/calls/{id}", "/api/v1/approvers": "/api/v1/approvers", "/api/v1/me": "/api/v1/me",
		"/api/v1/usage/hours": "/api/v1/usage/hours", "/api/v1/usage": "/api/v1/usage", "/api/v1/contracts": "/api/v1/contracts",
		"/api/v1/agents": "/api/v1/agents", "/api/v1/answered": "/api/v1/answered", "/api/v1/egress": "/api/v1/egress",
		"/api/v1/agents/n_1": "/api/v1/agents/{id}", "/api/v1/upstreams/x": "/api/v1/upstreams/{id}", "/api/v1/sandboxes": "/api/v1/sandboxes", "/api/v1/upstreams": "/api/v1/upstreams",
		"/api/v1/pins": "/api/v1/pins", "/api/v1/unsettled": "/api/v1/unsettled", "/api/v1/webhooks": "/api/v1/webhooks", "/api/v1/deliveries": "/api/v1/deliveries", "/api/v1/audit": "/api/v1/audit"} {
		method := http.MethodGet
		if bodies[path] != "" {
			method = http.MethodPost
		}
		schema := doc.Paths[at][strings.ToLower(method)].Responses["200"].Content["application/json"].Schema
		b, _ := json.Marshal(map[string]any{"allOf": []any{schema}, "components": doc.Components})
		v, err := strictjson.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := jsonschema.Compile(v)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		var got any
		if err := json.Unmarshal(visit(s, method, path, bodies[path], in).Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if faults := compiled.Check(got); len(faults) > 0 {
			t.Errorf("%s: %v", path, faults)
		}
		if at != "/api/v1/me" && len(compiled.Check(map[string]any{})) == 0 {
			t.Errorf("%s: control: {} fits", at)
		}
	}
}

// TestStory: a record says what happened, to what, by whom and why, before it is opened.
func TestStory(t *testing.T) {
	for _, row := range []struct{ kind, body, want string }{
		{"decision", `{"effect":"deny","capability":"github.merge","principal":"os:1","agent":"claude-code 2",` +
			`"reasons":[{"code":"rule","text":"not on Fridays"}]}`, "bad|Denied|claude-code 2|github.merge: not on Fridays"},
		{"decision", `{"effect":"ask","capability":"github.merge","principal":"os:1"}`,
			"warn|Question|os:1|github.merge"},
		{"verdict", `{"yes":true,"capability":"github.merge","by":"alice","reason":"fine"}`,
			"good|Answer: yes|alice|github.merge: fine"},
		{"answer", `{"yes":false,"capability":"github.merge","by":"alice"}`, "bad|Answer: no|alice|github.merge"},
		{"outcome", `{"status":"timeout","capability":"run_python","why":[{"code":"limit.wall"}]}`,
			"bad|Timeout||run_python: limit.wall"},
		{"outcome", `{}`, "|||"},
		{"stop", `{"name":"n_1","by":"os:1","release":true}`, "|Agent let in again|os:1|n_1"},
		{"stop", `{"name":"token:bob","by":"os:1","session":"n_1"}`, "|Session ended|os:1|token:bob"},
		{"reload", `{"file":"w.yaml","taken":false,"why":"w.yaml:6: no","by":"os:1"}`,
			"bad|Configuration refused, the one before stays|os:1|w.yaml: w.yaml:6: no"},
		{"reload", `{"file":"w.yaml","taken":true,"by":"os:1"}`, "|Configuration read|os:1|w.yaml"},
		{"webhook", `{"event":"retry","hook":"ci","status":7}`, "|Webhook||retry ci"},
		{"egress", `{"server":"github"}`, "|Egress of a server||github"}, {"odd", "[]", "|odd||"}, {"odd", "",
			"|odd||"},
	} {
		s := storyOf(Record{Kind: row.kind, Body: []byte(row.body)})
		if got := strings.Join([]string{s.Class, s.What, s.Who, s.Detail}, "|"); got != row.want {
			t.Errorf("%s %s: %q, not %q", row.kind, row.body, got, row.want)
		}
	}
}

// TestMoments: times come in UTC with their zone, for script and without it; what is no time is shown as it is.
func TestMoments(t *testing.T) {
	at := time.Date(2026, 11, 24, 9, 3, 23, 0, time.FixedZone("", -5*3600))
	want := moment{"2026-11-24T14:03:23Z", "2026-11-24 14:03:23 UTC", "24 Nov 14:03:23 UTC"}
	if got := momentOf(at); got != want {
		t.Errorf("%+v", got)
	}
	if got := momentOf("2026-11-24T14:03:23.120Z"); got != want {
		t.Errorf("%+v", got)
	}
	if got := momentOf("yesterday\x1b"); got.ISO != "" || strings.Contains(got.Text, "\x1b") ||
		!strings.Contains(got.Text, "yesterday") {
		t.Errorf("%+v", got)
	}
	if got := momentOf(time.Time{}); got != (moment{}) {
		t.Errorf("%+v", got)
	}
}

// TestPlaces: a session is named by its folder, below a home with ~, else by how it calls.
func TestPlaces(t *testing.T) {
	for folder, want := range map[string]string{"/home/mika/shop": "in ~/shop", "/srv/shop": "in /srv/shop",
		"":           "over mcp",
		"/home/mika": "in /home/mika"} {
		if got := placeOf(folder, "mcp"); got != want {
			t.Errorf("%q: %s", folder, got)
		}
	}
}

// TestTexts: the page of a call shows code as its lines, and no measures of a call that never ran.
func TestTexts(t *testing.T) {
	v := callView{CallLife: CallLife{Args: json.RawMessage(`{"code":"a\nb","n":12345678901234567890,"one":"c"}`)}}
	if got := v.Texts(); len(got) != 1 || got[0] != (field{"code", "a\nb"}) {
		t.Errorf("%v", got)
	}
	if got := string(v.Plain()); got != `{"code":"(below)","n":12345678901234567890,"one":"c"}` {
		t.Error(got)
	}
	if v.Args = json.RawMessage(`[1]`); v.Texts() != nil || string(v.Plain()) != `[1]` {
		t.Errorf("no object: %v %s", v.Texts(), v.Plain())
	}
	for status, acted := range map[facts.Status]bool{facts.OK: true, facts.Timeout: true, facts.Denied: false,
		facts.Waiting: false} {
		if got := (ran{Facts: facts.Facts{Status: status}}).Acted(); got != acted {
			t.Errorf("%s: %t", status, got)
		}
	}
}
