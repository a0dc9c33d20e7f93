package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"waldo/internal/core/approval/enrolment"

	"waldo/internal/config"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/core/policy"
	"waldo/internal/executor/preview"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/storage/database"
	"waldo/internal/storage/inbox"
	"waldo/internal/testing/passkeytest"
)

// desk is one state directory with its console, as a browser sees it at origin.
type desk struct {
	t      testing.TB
	ctx    context.Context
	store  *database.Store
	log    *audit.Log
	k      *approval.Service
	op     *Operator
	web    *site.Server
	dir    string
	policy *policy.Policy
	cfg    *contract.Config
	pins   []site.Pin
	lock   lockfile.Lock
	serves bool          // the process of the console has the servers of agents
	clock  time.Duration // of the log, beside the real one
	later  atomic.Int64  // the clock of the questions, beside the real one
}

const host = "localhost:7677"

func open(t testing.TB) *desk { return openWith(t, &contract.Config{}) }

// anyMachine has all that a contract of a test needs.
var anyMachine = policy.Machine{
	Isolations: map[string]bool{"namespace": true, "gvisor": true},
	Transports: map[contract.Transport]bool{contract.MCP: true, contract.SandboxedExec: true, contract.Direct: true},
}

func openWith(t testing.TB, cfg *contract.Config) *desk {
	t.Helper()
	d := &desk{t: t, ctx: t.Context(), dir: filepath.Join(t.TempDir(), "state"), cfg: cfg}
	var err error
	if d.store, err = database.Open(d.dir); err != nil {
		t.Fatal(err)
	}
	if d.log, err = audit.Open(d.ctx, audit.Dir(d.dir), audit.Options{Heads: d.store,
		Now: func() time.Time { return time.Now().Add(d.clock) }}); err != nil {
		t.Fatal(err)
	}
	if d.policy, err = policy.New(cfg, anyMachine); err != nil {
		t.Fatal(err)
	}
	r := &audit.Recorder{Log: d.log}
	d.k = &approval.Service{Calls: previewed{}, Store: d.store, Witness: &audit.Witness{Dir: audit.Dir(d.dir)},
		Now:     func() time.Time { return time.Now().Add(time.Duration(d.later.Load())) },
		Records: audit.Desk{Recorder: r, User: "os:1000"}}
	d.op = d.operator()
	d.web = site.New(site.Options{Backend: d.op, Hosts: []string{"localhost", "127.0.0.1"}})
	t.Cleanup(func() {
		_ = d.op.Close()
		_ = d.log.Close()
		_ = d.store.Close()
	})
	return d
}

// operator opens the state directory as a process of waldo does.
func (d *desk) operator() *Operator {
	q := &inbox.Queue{Store: d.store, Holder: "p1", Gone: func(h string) bool { return h == "gone" }}
	return New(Options{Store: d.store, Log: d.log, Approvals: d.k, Owner: "os:1000",
		Webhooks: q, Events: events{q, d.log}, Waldo: process{d}})
}

// process is a waldo with the configuration of a desk.
type process struct{ d *desk }

func (w process) Config() *contract.Config                 { return w.d.cfg }
func (w process) Policy() *policy.Policy                   { return w.d.policy }
func (w process) Accepted() *lockfile.Lock                 { return &w.d.lock }
func (process) ForgetCLI(context.Context, string) error    { return nil }
func (w process) Serves() bool                             { return w.d.serves }
func (process) Restart(name string) bool                   { return name == "crm" }
func (w process) Pins(context.Context) ([]site.Pin, error) { return w.d.pins, nil }

func (w process) VerifyLog(ctx context.Context) (audit.Report, error) {
	anchors, err := audit.Anchors(ctx, audit.Options{Heads: w.d.store})
	if err != nil {
		return audit.Report{}, err
	}
	return audit.Verify(ctx, audit.Dir(w.d.dir), anchors, time.Now(), audit.Expect{})
}

// Compile compiles a changed configuration as the application does.
func (w process) Compile(text []byte) (*policy.Policy, contract.Problems, error) {
	cfg, problems := config.Parse(w.d.cfg.File, text)
	if len(problems) > 0 {
		return nil, problems, nil
	}
	p, err := policy.New(cfg, anyMachine)
	if errors.As(err, &problems) {
		return nil, problems, nil
	}
	return p, nil, err
}

// browser is one browser with its login.
type browser struct {
	d            *desk
	cookie, csrf string
}

func (b *browser) do(method, path string, body any, into any) (status int, code string) {
	b.d.t.Helper()
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			b.d.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	r := httptest.NewRequest(method, "http://"+host+path, in).WithContext(b.d.ctx)
	if method != http.MethodGet {
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-CSRF-Token", b.csrf)
	}
	if b.cookie != "" {
		r.Header.Set("Cookie", b.cookie)
	}
	w := httptest.NewRecorder()
	b.d.web.ServeHTTP(w, r)
	var p site.Problem
	if w.Code >= 400 {
		_ = json.Unmarshal(w.Body.Bytes(), &p)
	} else if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			b.d.t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	return w.Code, p.Code
}

// login opens a browser with a link of a role.
func (d *desk) login(role site.Role) *browser {
	d.t.Helper()
	token, err := NewLink(d.ctx, d.store, role, "")
	if err != nil {
		d.t.Fatal(err)
	}
	b := &browser{d: d}
	r := httptest.NewRequest("POST", "http://"+host+"/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	d.web.ServeHTTP(w, r)
	b.cookie, _, _ = strings.Cut(w.Header().Get("Set-Cookie"), ";")
	var me struct{ CSRF string }
	if status, code := b.do("GET", "/api/v1/me", nil, &me); status != 200 {
		d.t.Fatalf("login: %d %s", status, code)
	}
	b.csrf = me.CSRF
	return b
}

type ceremony struct {
	Draft, Name string
	Options     struct{ Challenge string }
}

// enrol takes a passkey through the page /enrol, with the secret of an invitation.
func (b *browser) enrol(secret string, key *passkeytest.Authenticator) (status int, code string) {
	var c ceremony
	if status, code = b.do("POST", "/api/v1/enrolment", map[string]string{"secret": secret}, &c); status != 200 {
		return status, code
	}
	if status, code = b.do("POST", "/api/v1/enrolment/"+c.Draft+"/register",
		map[string]any{"credential": json.RawMessage(key.Create(c.Options.Challenge))}, &c); status != 200 {
		return status, code
	}
	return b.do("POST", "/api/v1/enrolment/"+c.Draft+"/finish",
		map[string]any{"assertion": json.RawMessage(key.Get(c.Options.Challenge))}, nil)
}

// approver enrols a passkey as a person at a terminal and a browser do, signed by root; nil: it is the first.
func (d *desk) approver(name string, root approval.Signer, roles ...string) *passkeytest.Authenticator {
	d.t.Helper()
	by := name
	if root != nil {
		by = root.Name()
	}
	i := enrolment.Invite{Name: name, Roles: roles, By: by}
	secret, err := enrolment.NewInvite(d.ctx, d.store, i)
	if err != nil {
		d.t.Fatal(err)
	}
	key := passkeytest.New("http://"+host, "localhost")
	if status, code := (&browser{d: d}).enrol(secret, key); status != 200 {
		d.t.Fatalf("enrolling: %d %s", status, code)
	}
	a, sig, err := enrolment.Enrolled(d.ctx, d.store, secret, i)
	if err != nil {
		d.t.Fatal(err)
	}
	if root != nil {
		sig, _ = root.Sign(a.Message())
	}
	if err := d.k.EnrollSigned(d.ctx, a, sig); err != nil {
		d.t.Fatal(err)
	}
	return key
}

// decide is a decision that asks a human.
func (d *desk) decide(args string, change func(*policy.Decision)) policy.Decision {
	d.t.Helper()
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		d.t.Fatal(err)
	}
	p := policy.Decision{ID: id.New(id.Decision), Effect: policy.Ask, Danger: 3, Policy: "sha256:config",
		Reasons: []call.Reason{{Code: "approval.always"}},
		Call: call.Call{
			ID: id.New(id.Call), Capability: "files.delete", Args: a, Session: "n_one", Principal: "os:1000", Channel: "mcp",
		},
		Contract: contract.Contract{Pattern: "files.*", Approval: contract.Approval{When: contract.Always}}}
	if change != nil {
		change(&p)
	}
	return p
}

// ask asks and returns the answer, or the id of the question that waits.
func (d *desk) ask(p policy.Decision) (*approval.Answer, string) {
	d.t.Helper()
	a, waiting, err := d.k.Ask(d.ctx, p)
	if err != nil {
		d.t.Fatal(err)
	}
	return a, waiting
}

// draft prepares an answer in a browser.
func (b *browser) draft(approvalID, as, verdict string) (c ceremony, status int, code string) {
	var a site.Approval
	if status, code = b.do("GET", "/api/v1/approvals/"+approvalID, nil, &a); status != 200 {
		return c, status, code
	}
	status, code = b.do("POST", "/api/v1/approvals/"+approvalID+"/draft",
		map[string]string{"verdict": verdict, "as": as, "digest": a.Digest, "reason": "",
			"word": call.Capability(a.Capability).Word()}, &c)
	return c, status, code
}

func (b *browser) settle(approvalID, verdict, draft string, assertion []byte) (status int, code string) {
	return b.do("POST", "/api/v1/approvals/"+approvalID+"/"+verdict,
		map[string]any{"draft": draft, "assertion": json.RawMessage(assertion)}, nil)
}

func (d *desk) verify() audit.Report {
	d.t.Helper()
	r, err := audit.Verify(d.ctx, audit.Dir(d.dir), nil, time.Now(), audit.Expect{})
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// TestPasskeyApproves: enrol, approve in the console, use the yes, and verify the assertion in the log offline.
func TestPasskeyApproves(t *testing.T) {
	d := open(t)
	key := d.approver("ann", nil)
	b := d.login(site.RoleApprover)
	p := d.decide(`{"path":"/a"}`, nil)
	_, waiting := d.ask(p)
	c, status, code := b.draft(waiting, "ann", "approve")
	if status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	if status, code := b.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge)); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	a, _ := d.ask(p)
	if a == nil || !a.Yes || a.By != "approver:ann" {
		t.Fatalf("%+v", a)
	}
	r := &audit.Recorder{Log: d.log, Witness: &audit.Witness{Dir: audit.Dir(d.dir)}}
	if err := r.Answer(d.ctx, p, *a); err != nil {
		t.Fatal(err)
	}
	if v := d.verify(); !v.OK {
		t.Errorf("%+v", v.Findings)
	}
	var l struct{ Items []site.Record }
	if b.do("GET", "/api/v1/audit?kind=console", nil, &l); len(l.Items) == 0 ||
		!strings.Contains(string(l.Items[0].Body), `"action":"approve"`) {
		t.Errorf("the log of the console: %+v", l)
	}

	// The same log with another assertion in the answer, and fresh hashes, does not verify.
	forged := *a
	forged.Signature = "e30="
	p.ID = id.New(id.Decision)
	forged.ApprovalID = id.New(id.Approval)
	if err := (&audit.Recorder{Log: d.log}).Answer(d.ctx, p, forged); err != nil {
		t.Fatal(err)
	}
	if v := d.verify(); v.OK || v.Findings[0].Code != "answer.signature" {
		t.Errorf("a forged answer: %+v", v)
	}
}

// TestBypasses: every way around the passkey is refused with its reason, and the question stays open.
func TestBypasses(t *testing.T) {
	d := open(t)
	key := d.approver("ann", nil)
	b := d.login(site.RoleOperator)
	other := d.login(site.RoleOperator)
	p := d.decide(`{"path":"/a"}`, nil)
	_, waiting := d.ask(p)
	_, second := d.ask(d.decide(`{"path":"/b"}`, nil))
	get := func(c ceremony) []byte { return key.Get(c.Options.Challenge) }
	draft := func(b *browser, id, verdict string) ceremony {
		c, status, code := b.draft(id, "ann", verdict)
		if status != 200 {
			t.Fatalf("draft: %d %s", status, code)
		}
		return c
	}
	for why, row := range map[string]struct {
		do     func() (int, string)
		status int
		want   string
	}{
		"a virtual authenticator": {func() (int, string) {
			mine := passkeytest.New("http://"+host, "localhost")
			mine.ID = key.ID
			c := draft(b, waiting, "approve")
			return b.settle(waiting, "approve", c.Draft, mine.Get(c.Options.Challenge))
		}, 403, "approval.not_enrolled"},
		"no user verification": {func() (int, string) {
			lazy := *key
			lazy.Unverified = true
			c := draft(b, waiting, "approve")
			return b.settle(waiting, "approve", c.Draft, lazy.Get(c.Options.Challenge))
		}, 403, "approval.not_enrolled"},
		"signed at another port": {func() (int, string) {
			phished := *key
			phished.Origin = "http://localhost:9999"
			c := draft(b, waiting, "approve")
			return b.settle(waiting, "approve", c.Draft, phished.Get(c.Options.Challenge))
		}, 403, "approval.not_enrolled"},
		"swapped arguments": {func() (int, string) {
			c, mine := draft(b, second, "approve"), draft(b, waiting, "approve")
			return b.settle(waiting, "approve", mine.Draft, get(c))
		}, 403, "approval.not_enrolled"},
		"the draft of another question": {func() (int, string) {
			c := draft(b, second, "approve")
			return b.settle(waiting, "approve", c.Draft, get(c))
		}, 403, "draft.other"},
		"a no handed in as a yes": {func() (int, string) {
			c := draft(b, waiting, "deny")
			return b.settle(waiting, "approve", c.Draft, get(c))
		}, 403, "draft.other"},
		"the draft of another login": {func() (int, string) {
			c := draft(b, waiting, "approve")
			return other.settle(waiting, "approve", c.Draft, get(c))
		}, 403, "draft.other"},
		"a draft used twice": {func() (int, string) {
			c := draft(b, waiting, "approve")
			b.settle(waiting, "approve", c.Draft, []byte(`{}`))
			return b.settle(waiting, "approve", c.Draft, get(c))
		}, 409, "draft.unknown"},
		"a question that changed since it was shown": {func() (int, string) {
			return b.do("POST", "/api/v1/approvals/"+waiting+"/draft",
				map[string]string{"verdict": "approve", "as": "ann", "digest": "sha256:0", "reason": ""}, nil)
		}, 409, "approval.changed"},
		"another word than the capability's last": {func() (int, string) {
			var a site.Approval
			b.do("GET", "/api/v1/approvals/"+waiting, nil, &a)
			return b.do("POST", "/api/v1/approvals/"+waiting+"/draft",
				map[string]string{"verdict": "approve", "as": "ann", "digest": a.Digest, "reason": "", "word": "read"}, nil)
		}, 403, "approval.word"},
		"nobody": {func() (int, string) {
			_, status, code := b.draft(waiting, "eve", "approve")
			return status, code
		}, 403, "approval.not_enrolled"},
		"a viewer": {func() (int, string) {
			_, status, code := d.login(site.RoleViewer).draft(waiting, "ann", "approve")
			return status, code
		}, 403, "role"},
		"no signature": {func() (int, string) {
			c := draft(b, waiting, "approve")
			return b.settle(waiting, "approve", c.Draft, []byte(`{}`))
		}, 400, "assertion"},
	} {
		if status, code := row.do(); status != row.status || code != row.want {
			t.Errorf("%s: %d %s, want %d %s", why, status, code, row.status, row.want)
		}
		if a, _ := d.ask(p); a != nil {
			t.Fatalf("%s: answered: %+v", why, a)
		}
	}
	c := draft(b, waiting, "approve")
	if status, code := b.settle(waiting, "approve", c.Draft, get(c)); status != 200 {
		t.Errorf("control: %d %s", status, code)
	}
}

// TestRace: of 100 answers at the same moment one is taken.
func TestRace(t *testing.T) {
	d := open(t)
	key := d.approver("ann", nil)
	b := d.login(site.RoleApprover)
	_, waiting := d.ask(d.decide(`{"path":"/a"}`, nil))
	var all [100]ceremony
	for i := range all {
		all[i], _, _ = b.draft(waiting, "ann", "approve")
	}
	var mu sync.Mutex
	codes := map[string]int{}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			status, code := b.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge))
			mu.Lock()
			defer mu.Unlock()
			codes[fmt.Sprint(status, code)]++
		})
	}
	wg.Wait()
	if len(codes) != 2 || codes["200"] != 1 || codes["409approval.answered"] != 99 {
		t.Errorf("%v", codes)
	}
}

// TestAgentEnrolsItself: an agent that can write the whole state directory, and run a browser and an authenticator of
// its own, does not become an approver.
func TestAgentEnrolsItself(t *testing.T) {
	i := enrolment.Invite{Name: "eve", Roles: []string{"manager"}, By: "ann"}
	t.Run("without the terminal's secret", func(t *testing.T) {
		d := open(t)
		d.approver("ann", nil)
		if status, code := (&browser{d: d}).enrol("guess", passkeytest.New("http://"+host, "localhost")); status != 403 ||
			code != "enrol.secret" {
			t.Errorf("%d %s", status, code)
		}
	})
	t.Run("with an invitation of its own in the database", func(t *testing.T) {
		d := open(t)
		d.approver("ann", nil)
		mine, err := enrolment.NewInvite(d.ctx, d.store, i)
		if err != nil {
			t.Fatal(err)
		}
		if status, code := (&browser{d: d}).enrol(mine, passkeytest.New("http://"+host, "localhost")); status != 200 {
			t.Fatalf("control: %d %s", status, code)
		}
		a, sig, err := enrolment.Enrolled(d.ctx, d.store, mine, i)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.k.EnrollSigned(d.ctx, a, sig); err == nil {
			t.Error("enrolled without the root's signature")
		}
		a.By = a.Name
		if err := d.k.EnrollSigned(d.ctx, a, sig); err == nil || !strings.Contains(err.Error(), "approver.root") {
			t.Errorf("as a first approver: %v", err)
		}
	})
	t.Run("in place of the browser that a terminal waits for", func(t *testing.T) {
		d := open(t)
		i := enrolment.Invite{Name: "ann", By: "ann"}
		secret, err := enrolment.NewInvite(d.ctx, d.store, i)
		if err != nil {
			t.Fatal(err)
		}
		mine := "of-my-own"
		row, _, err := d.store.Get(d.ctx, enrolment.Invites, enrolment.Digest(secret))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.store.Put(d.ctx, enrolment.Invites, enrolment.Digest(mine), row); err != nil {
			t.Fatal(err)
		}
		if status, code := (&browser{d: d}).enrol(mine, passkeytest.New("http://"+host, "localhost")); status != 200 {
			t.Fatalf("control: %d %s", status, code)
		}
		forged, _, err := d.store.Get(d.ctx, enrolment.Answers, enrolment.Digest(mine))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.store.Put(d.ctx, enrolment.Answers, enrolment.Digest(secret), forged); err != nil {
			t.Fatal(err)
		}
		if a, _, err := enrolment.Enrolled(d.ctx, d.store, secret, i); err == nil {
			t.Errorf("the terminal takes %+v", a)
		}
	})
	t.Run("for another name", func(t *testing.T) {
		d := open(t)
		asked := enrolment.Invite{Name: "ann", Roles: []string{"reader"}, By: "ann"}
		secret, err := enrolment.NewInvite(d.ctx, d.store, asked)
		if err != nil {
			t.Fatal(err)
		}
		wider := asked
		wider.Roles = []string{"manager"}
		b, _ := json.Marshal(enrolment.Invite{Name: "ann", Roles: wider.Roles, By: "ann", Expires: time.Now().Add(time.Hour)})
		if err := d.store.Put(d.ctx, enrolment.Invites, enrolment.Digest(secret), string(b)); err != nil {
			t.Fatal(err)
		}
		if status, _ := (&browser{d: d}).enrol(secret, passkeytest.New("http://"+host, "localhost")); status != 200 {
			t.Fatal("control")
		}
		if _, _, err := enrolment.Enrolled(d.ctx, d.store, secret, asked); err == nil || !strings.Contains(err.Error(), "other roles") {
			t.Errorf("%v", err)
		}
	})
}

// TestTwoPeople: a contract that needs two takes two passkeys, and not one twice.
func TestTwoPeople(t *testing.T) {
	d := open(t)
	ann := d.approver("ann", nil)
	root := signer{"ann", ann}
	bob := d.approver("bob", root)
	b := d.login(site.RoleApprover)
	p := d.decide(`{"path":"/a"}`, func(p *policy.Decision) { p.Contract.Approval.Need = 2 })
	_, waiting := d.ask(p)
	say := func(name string, key *passkeytest.Authenticator) (int, string) {
		c, status, code := b.draft(waiting, name, "approve")
		if status != 200 {
			return status, code
		}
		return b.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge))
	}
	if status, code := say("ann", ann); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	if status, code := say("ann", ann); status != 409 || code != "approval.same" {
		t.Errorf("ann again: %d %s", status, code)
	}
	if a, _ := d.ask(p); a != nil {
		t.Fatal("one was enough")
	}
	if status, code := say("bob", bob); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	if a, _ := d.ask(p); a == nil || !a.Yes || len(a.Also) != 1 {
		t.Errorf("%+v", a)
	}
}

// signer signs as an approver whose passkey a test holds.
type signer struct {
	name string
	key  *passkeytest.Authenticator
}

func (s signer) Name() string { return s.name }

func (s signer) Sign(message []byte) ([]byte, error) {
	return s.key.Sign(message), nil
}

// TestLinks: of many logins with one link one succeeds.
func TestLinks(t *testing.T) {
	d := open(t)
	token, err := NewLink(d.ctx, d.store, site.RoleViewer, "")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	won := 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if role, err := d.op.UseLink(d.ctx, site.Who{}, token); err == nil && role == site.RoleViewer {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d logins with one link", won)
	}
	for _, bad := range []string{"", "guess", strings.Repeat("x", 1<<16)} {
		if role, err := d.op.UseLink(d.ctx, site.Who{}, bad); err == nil || role != site.RoleNone {
			t.Errorf("%.20q: %v", bad, role)
		}
	}
}

// TestLive: a client gets each new record once, resumes after the last it saw, and hears of a question.
func TestLive(t *testing.T) {
	d := open(t)
	r := &audit.Recorder{Log: d.log}
	p := d.decide(`{"path":"/a"}`, nil)
	write := func() {
		if err := r.Decision(d.ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		write()
	}
	next := func(c <-chan site.LiveEvent, kind string) site.LiveEvent {
		t.Helper()
		for {
			select {
			case e, open := <-c:
				if !open {
					t.Fatal("the stream ended")
				}
				if e.Kind == kind {
					return e
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("no event %s", kind)
			}
		}
	}
	ctx, end := context.WithCancel(d.ctx)
	c, reset, err := d.op.Live(ctx, 0)
	if err != nil || reset {
		t.Fatal(err, reset)
	}
	write()
	first := next(c, audit.KindDecision)
	end()
	write() // while it is away
	again, reset, err := d.op.Live(d.ctx, first.Seq)
	if err != nil || reset {
		t.Fatal(err, reset)
	}
	if e := next(again, audit.KindDecision); e.Seq != first.Seq+1 {
		t.Errorf("resumed with %d after %d", e.Seq, first.Seq)
	}
	d.ask(p)
	next(again, "approvals")
	if _, reset, _ := d.op.Live(d.ctx, 1_000_000); !reset {
		t.Error("a number that the log does not have is taken")
	}
	var l struct{ Items []site.Call }
	b := d.login(site.RoleViewer)
	if b.do("GET", "/api/v1/calls?limit=1", nil, &l); len(l.Items) != 1 || l.Items[0].Capability != "files.delete" {
		t.Errorf("%+v", l)
	}
	var life site.CallLife
	if status, code := b.do("GET", "/api/v1/calls/"+p.Call.ID, nil, &life); status != 200 || life.Pattern != "files.*" ||
		len(life.Records) != 5 {
		t.Errorf("%d %s %+v", status, code, life)
	}
	if status, code := b.do("GET", "/api/v1/calls/c_aaaaaaaaaaaaaaaaaaaaaaaaaa", nil, nil); status != 404 ||
		code != "call.unknown" {
		t.Errorf("%d %s", status, code)
	}
}

// TestRootSigns: a first approver with a passkey signs the enrolment of another, and an agent cannot.
func TestRootSigns(t *testing.T) {
	d := open(t)
	ann := d.approver("ann", nil)
	i := enrolment.Invite{Name: "bob", Roles: []string{"manager"}, By: "ann"}
	secret, err := enrolment.NewInvite(d.ctx, d.store, i)
	if err != nil {
		t.Fatal(err)
	}
	bob := passkeytest.New("http://"+host, "localhost")
	b := &browser{d: d}
	var c ceremony
	if status, code := b.do("POST", "/api/v1/enrolment-root", map[string]string{"secret": secret}, &c); status != 403 ||
		code != "enrol.secret" {
		t.Errorf("before the new passkey: %d %s", status, code)
	}
	if status, code := b.enrol(secret, bob); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	a, _, err := enrolment.Enrolled(d.ctx, d.store, secret, i)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(key *passkeytest.Authenticator) (int, string) {
		if status, code := b.do("POST", "/api/v1/enrolment-root", map[string]string{"secret": secret}, &c); status != 200 {
			return status, code
		}
		return b.do("POST", "/api/v1/enrolment-root/"+c.Draft+"/sign",
			map[string]any{"assertion": json.RawMessage(key.Get(c.Options.Challenge))}, nil)
	}
	if status, code := sign(bob); status != 400 || code != "enrol.signature" {
		t.Errorf("bob signs for ann: %d %s", status, code)
	}
	mine := passkeytest.New("http://"+host, "localhost")
	mine.ID = ann.ID
	if status, code := sign(mine); status != 400 || code != "enrol.signature" {
		t.Errorf("a virtual authenticator: %d %s", status, code)
	}
	if status, code := sign(ann); status != 200 {
		t.Fatalf("%d %s", status, code)
	}
	sig, err := enrolment.RootSigned(d.ctx, d.store, secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.k.EnrollSigned(d.ctx, a, sig); err != nil {
		t.Errorf("%v", err)
	}
	wider := a
	wider.Roles = []string{"root"}
	wider.Name = "eve"
	if err := d.k.EnrollSigned(d.ctx, wider, sig); err == nil {
		t.Error("the signature is good for another enrolment")
	}

	// The agent puts an enrolment of its own under the digest of the secret.
	row, _, err := d.store.Get(d.ctx, enrolment.Answers, enrolment.Digest(secret))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.store.Put(d.ctx, enrolment.Answers, enrolment.Digest(secret), strings.Replace(row, `"manager"`, `"admin"`, 1)); err != nil {
		t.Fatal(err)
	}
	if status, code := sign(ann); status != 403 || code != "enrol.secret" {
		t.Errorf("a changed row: %d %s", status, code)
	}
}

// previewed shows previews as of code and of a diff, with what the agent wrote.
type previewed struct{ approval.Fixed }

// Preview satisfies approval.Calls.
func (previewed) Preview(_ context.Context, d policy.Decision) []string {
	return append(preview.Sandboxed(d), "--- a.txt", "-old", "+"+string(d.Call.Args.Raw()))
}

// TestRestartsServers: the console restarts the servers of its own process, and no other.
func TestRestartsServers(t *testing.T) {
	d := open(t)
	var p *site.Problem
	if err := d.op.Restart(d.ctx, "crm"); !errors.As(err, &p) || p.Status != http.StatusConflict || p.Code != "server.elsewhere" {
		t.Errorf("beside waldo serve: %v", err)
	}
	d.serves = true
	if err := d.op.Restart(d.ctx, "crm"); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := d.op.Restart(d.ctx, "none"); !errors.As(err, &p) || p.Code != "server.unknown" {
		t.Errorf("an unknown server: %v", err)
	}
}
